//! Appends: the range is reserved at stripe 0's target first, so appenders never overlap.

use std::collections::BTreeSet;

use forebay_env::Boxed;
use forebay_proto::{
    Errno, Transno,
    limits::FILE_BYTES,
    message::{AppendReserve, OstStatFs},
};
use forebay_rpc::Call;

use crate::{
    Client, ClientError, ClientResult, CommitLevel, OpenFile, Payload,
    eras::Era,
    errors::Trouble,
    file::{FileState, Snapshot},
    limits,
    tasks::{detached, try_all},
    write::writable,
};

impl Client {
    /// Writes `data` at the end of the file, atomically against other appenders; returns where it begins.
    ///
    /// A failed append may leave zeros in its range, never anybody else's bytes.
    pub async fn append(&self, file: &OpenFile, data: impl Into<Payload>) -> ClientResult<u64> {
        self.append_payload(file, data.into()).await
    }

    fn append_payload<'a>(&'a self, file: &'a OpenFile, data: Payload) -> Boxed<'a, ClientResult<u64>> {
        Box::pin(async move {
            let era = file.check_write()?;
            if data.len() > limits::CALL_BYTES {
                return Err(ClientError::new(
                    Errno::EINVAL,
                    "an append is at most 1 GiB long: it is one piece or nothing",
                ));
            }
            let (client, file, busy) = (self.clone(), file.clone(), file.state().busy());
            detached(self.env(), async move {
                let _busy = busy;
                client.settle_set_of(file.fid()).await;
                let _outside = client.send_kept_through(&file).await?;
                // Its place is part of the file before its bytes are there.
                let end = file.state().size.borrow().seen();
                let _changing = client.bytes_change(file.fid(), end..u64::MAX);
                client.append_all(&file, &data, era).await
            })
            .await
        })
    }

    async fn append_all(&self, file: &OpenFile, data: &Payload, era: Era) -> ClientResult<u64> {
        let _busy = file.state().busy();
        file.inner.wrote.set(true);
        let (offset, written) = self.roomy(file, async || self.append_once(file, data, era).await).await?;
        self.wrote(file, written).await?;
        if written < data.len() {
            let words = format!("only {written} of {} bytes could be appended to {}", data.len(), file.fid());
            return Err(ClientError::new(Errno::ENOSPC, words));
        }
        Ok(offset)
    }

    /// Reserves and writes under one truncate epoch: where a truncate comes between, the place is no longer the end, and
    /// another is reserved.
    async fn append_once(&self, file: &OpenFile, data: &Payload, era: Era) -> Result<(u64, usize), Trouble> {
        let at = file.snapshot_in(era)?;
        let (offset, reserved) = self.reserve(file, &at, data.len() as u32).await?;
        // Since just now a reader may look there; after a truncate that is before the end of then.
        let _changing = self.bytes_change(file.fid(), offset..offset.saturating_add(data.len() as u64));
        if writable(offset, data.len())? < data.len() {
            return Err(Trouble::Failed(Errno::EFBIG.into()));
        }
        let written = self.fill(file, at.clone(), offset, data).await?;
        if self.level_of(file) == CommitLevel::Commit {
            // Mostly the bytes' own commit covers it.
            self.ost_of(&at, at.layout.home()).await?.session.committed(reserved).await?;
        }
        Ok((offset, written))
    }

    /// Refuses what OSTs beside the home have no room for, as long as that leaves nothing behind. (The home looks itself.)
    async fn look_for_room(&self, file: &FileState, at: &Snapshot, end: u64, length: u32) -> Result<(), Trouble> {
        let parts = at.layout.touched(end, length.into());
        let osts: BTreeSet<u32> = parts.flat_map(|(_, part)| part.osts.iter().copied()).collect();
        let osts: Vec<u32> = osts.into_iter().filter(|ost| *ost != at.layout.home()).collect();
        if osts.is_empty() || self.env().now() < file.roomy_until.get() {
            return Ok(());
        }
        let asks =
            osts.iter().map(|ost| {
                let (client, ost) = (self.clone(), *ost);
                async move {
                    client.ost(ost, &OstStatFs {}, Call::default()).await.map(|called| called.reply.available_bytes)
                }
            });
        let rooms = try_all(self.env(), asks).await?;
        let needed = 2 * u64::from(length) + limits::APPEND_SLACK_BYTES;
        let full: Vec<u32> = osts.iter().zip(&rooms).filter(|(_, room)| **room < needed).map(|(ost, _)| *ost).collect();
        if !full.is_empty() {
            let error =
                ClientError::new(Errno::ENOSPC, "an OST of the file has no room for an append; see `forebay df`");
            return Err(Trouble::Full(end, full, error));
        }
        if rooms.iter().all(|room| *room > limits::ROOMY_BYTES) {
            file.roomy_until.set(self.env().now() + limits::ROOMY_FOR);
        }
        Ok(())
    }

    /// Writes what was reserved. OSTs that it needs are asked for here: a second attempt at the whole would reserve anew, and
    /// leave zeros in between.
    async fn fill(&self, file: &OpenFile, mut at: Snapshot, offset: u64, data: &Payload) -> Result<usize, Trouble> {
        let end = offset + data.len() as u64;
        loop {
            match self.write_once(file, &at, end, offset, data.len(), data).await {
                Err(Trouble::Bare(from, length)) => self.extend(file, from, length, &[]).await?,
                Err(Trouble::Full(_, osts, error)) => {
                    // For the next one: this range is part of the file by now.
                    let _ = self.extend(file, end, 1, &osts).await;
                    return Err(Trouble::Failed(error));
                }
                done => return Ok(done?.bytes),
            }
            let now = file.snapshot_in(at.era)?;
            if now.object.truncate_epoch != at.object.truncate_epoch {
                return Err(Trouble::Stale(Errno::STALE_EPOCH.into()));
            }
            at = now;
        }
    }

    /// Where the next `length` bytes begin, and what made them this append's: not durable yet, at whatever level. Others append behind
    /// the place from now on: an OST that died before it told would give this append another one, and leave zeros here.
    async fn reserve(&self, file: &OpenFile, at: &Snapshot, length: u32) -> Result<(u64, Transno), Trouble> {
        let level = self.level_of(file).min(CommitLevel::Data);
        if at.seen.saturating_add(length.into()) > FILE_BYTES {
            return Err(Trouble::Failed(Errno::EFBIG.into()));
        }
        // Stripe 0's target may not have heard of a size that only the MDT knows.
        self.raise(file.state(), at, at.seen, level).await?;
        let end = file.state().size.borrow().seen();
        let mut touched = at.layout.touched(end, length.into());
        let here = touched.any(|(_, part)| part.osts.contains(&at.layout.home()));
        self.look_for_room(file.state(), at, end, length).await?;
        let request = AppendReserve { object: at.object.clone(), length, attr_epoch: at.attr_epoch, here };
        let call = Call { fid: Some(file.fid()), ..Call::level(level) };
        let home = self.ost_of(at, at.layout.home()).await?;
        let called = match home.call(&request, call).await.map_err(Trouble::from) {
            // Refused before the size was raised: nothing of it is in the file.
            Err(Trouble::Failed(error)) if here && error.errno == Errno::ENOSPC => {
                return Err(Trouble::Full(end, vec![at.layout.home()], error));
            }
            called => called?,
        };
        let offset = called.reply.file_offset;
        let end = offset.saturating_add(length.into());
        file.state().raised(at, end, called.transno);
        Ok((offset, called.transno))
    }
}
