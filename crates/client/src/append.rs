//! Appends: the range is reserved at stripe 0's target first, so appenders never overlap.

use forebay_proto::{Errno, limits::FILE_BYTES, message::AppendReserve};
use forebay_rpc::Call;

use crate::{
    Client, ClientError, ClientResult, OpenFile, Payload, errors::Trouble, file::Snapshot, limits, tasks::detached,
    write::writable,
};

impl Client {
    /// Writes `data` at the end of the file, atomically against other appenders; returns where it begins.
    ///
    /// A failed append may leave zeros in its range, never anybody else's bytes.
    pub async fn append(&self, file: &OpenFile, data: impl Into<Payload>) -> ClientResult<u64> {
        let data = data.into();
        file.check_write()?;
        if data.len() > limits::CALL_BYTES {
            return Err(ClientError::new(Errno::EINVAL, "an append is at most 1 GiB long: it is one piece or nothing"));
        }
        let (client, file) = (self.clone(), file.clone());
        detached(self.env(), async move { client.append_all(&file, &data).await }).await
    }

    async fn append_all(&self, file: &OpenFile, data: &Payload) -> ClientResult<u64> {
        let _busy = file.state().busy();
        file.inner.wrote.set(true);
        let (offset, written) = self.fresh(file.state(), async || self.append_once(file, data).await).await?;
        self.wrote(file, written).await?;
        if written < data.len() {
            let words = format!("only {written} of {} bytes could be appended to {}", data.len(), file.fid());
            return Err(ClientError::new(Errno::ENOSPC, words));
        }
        Ok(offset)
    }

    /// Reserves and writes under one truncate epoch: where a truncate comes between, the place is no longer the end, and
    /// another is reserved.
    async fn append_once(&self, file: &OpenFile, data: &Payload) -> Result<(u64, usize), Trouble> {
        let at = file.state().snapshot();
        let offset = self.reserve(file, &at, data.len() as u32).await?;
        if writable(offset, data.len())? < data.len() {
            return Err(Trouble::Failed(Errno::EFBIG.into()));
        }
        let end = offset + data.len() as u64;
        let written = self.write_once(file, &at, end, offset, data.len(), data).await?;
        Ok((offset, written))
    }

    async fn reserve(&self, file: &OpenFile, at: &Snapshot, length: u32) -> Result<u64, Trouble> {
        let level = self.level(file.mode().sync);
        if at.seen.saturating_add(length.into()) > FILE_BYTES {
            return Err(Trouble::Failed(Errno::EFBIG.into()));
        }
        // Stripe 0's target may not have heard of a size that only the MDT knows.
        self.raise(file.state(), at, at.seen, level).await?;
        let request = AppendReserve { object: at.object.clone(), length, attr_epoch: at.attr_epoch };
        let call = Call { fid: Some(file.fid()), ..Call::level(level) };
        let called = self.ost(at.layout.osts[0], &request, call).await?;
        let offset = called.reply.file_offset;
        let end = offset.saturating_add(length.into());
        file.state().raised(at.object.truncate_epoch, end, called.transno);
        Ok(offset)
    }
}
