//! Writes: split by layout, summed once, several requests in flight per OST; the size is raised last.
//!
//! Invariant: a write is acknowledged only when every request, and the raise of the size it needs, was replied.
//! Invariant: the bytes are not copied here; slices of them go to the socket and stay pinned until they are committed.

use std::collections::BTreeSet;

use bytes::Bytes;
use forebay_env::Boxed;
use forebay_proto::{
    Errno,
    limits::FILE_BYTES,
    message::{CommitLevel, Sync, WriteObject, WriteReply},
};
use forebay_rpc::{Call, Called};

use crate::{
    Client, ClientError, ClientResult, OpenFile,
    delayed::granted_space::request_cost,
    delayed::queue::Scope,
    errors::Trouble,
    file::{FileState, Snapshot},
    io::plan::{ObjectRange, plan},
    limits,
    payload::{Payload, block_sums},
    session::instance::ClientInstance,
    tasks::{all, detached, worst},
};

/// What came of an attempt.
pub(crate) struct Written {
    /// So many bytes, from the first on, are there.
    pub bytes: usize,
    /// Why the next are not, if some are missing.
    pub cut: Option<ClientError>,
}

impl Client {
    /// Writes `data` (its parts one after another) at `offset`; returns how many bytes: fewer than given only if the
    /// rest failed, which a call for the rest would report.
    ///
    /// The parts are not copied: they go to the socket as they are and stay pinned until they are committed.
    pub async fn write(&self, file: &OpenFile, offset: u64, data: impl Into<Payload>) -> ClientResult<usize> {
        self.write_payload(file, offset, data.into()).await
    }

    fn write_payload<'a>(&'a self, file: &'a OpenFile, offset: u64, data: Payload) -> Boxed<'a, ClientResult<usize>> {
        Box::pin(async move {
            let instance = file.check_write()?;
            let length = writable(offset, data.len())?;
            if length == 0 {
                return Ok(0);
            }
            let busy = file.state().busy();
            if file.state().is_inline() {
                self.outline(file.state()).await?;
            }
            let changing = self.bytes_change(file.fid(), offset..offset + length as u64);
            if length == data.len() && self.buffer_write(file, offset, &data, instance).await {
                return Ok(length);
            }
            let (client, file) = (self.clone(), file.clone());
            detached(self.env(), async move {
                let _busy = busy;
                client.flush_delayed(Scope::SetAttr(file.fid())).await;
                let _writing = client.begin_write(file.state(), offset, length as u64).await?;
                client.flush_own_writes_through(&file).await?;
                let written = client.write_all(&file, offset, length, &data, instance).await;
                drop(changing);
                written
            })
            .await
        })
    }

    async fn write_all(
        &self,
        file: &OpenFile,
        offset: u64,
        length: usize,
        data: &Payload,
        instance: ClientInstance,
    ) -> ClientResult<usize> {
        let _busy = file.state().busy();
        file.inner.wrote.set(true);
        if offset > file.state().size.borrow().seen() {
            file.state().make_sparse();
        }
        let written = self.write_pieces(file, offset, length, data, (instance, None)).await?.bytes;
        self.wrote(file, written).await?;
        Ok(written)
    }

    /// Writes the first `length` bytes of `data`, again and again until the epoch was current; fails only if nothing is written.
    ///
    /// A stale attempt is repeated whole: then all of it lies after the truncate that made it stale. `buffered_under`: it was kept back, under this
    /// attribute epoch; a time that was set since is not theirs to change. `instance`: in which they were taken.
    pub(crate) async fn write_pieces(
        &self,
        file: &OpenFile,
        offset: u64,
        length: usize,
        data: &Payload,
        (instance, buffered_under): (ClientInstance, Option<u64>),
    ) -> ClientResult<Written> {
        let mut written = 0;
        while written < length {
            // What an OST has no room for goes to another, if what came before it is there: asked for as a write of its own.
            let (offset, length, rest) = (offset + written as u64, length - written, data.skip(written));
            let at = || {
                let now = file.snapshot_in(instance)?;
                Ok::<_, Trouble>(buffered_under.map_or(now.clone(), |attr_epoch| now.buffered_under(attr_epoch)))
            };
            let once = async || self.write_once(file, &at()?, 0, offset, length, &rest).await;
            match self.roomy(file, once).await {
                Ok(Written { bytes, cut }) => {
                    written += bytes;
                    // Parts behind one that was lost are there, and others may have written over them since: not again.
                    if cut.as_ref().is_some_and(|error| error.errno != Errno::ENOSPC) {
                        return Ok(Written { bytes: written, cut });
                    }
                }
                Err(error) if written == 0 => return Err(error),
                Err(error) => return Ok(Written { bytes: written, cut: Some(error) }),
            }
        }
        Ok(Written { bytes: written, cut: None })
    }

    /// What is due when a write of `bytes` has been replied.
    pub(crate) async fn wrote(&self, file: &OpenFile, bytes: usize) -> ClientResult<()> {
        if file.mode().sync {
            self.make_name_durable(file).await?;
        }
        self.inner.counters.written(bytes);
        Ok(())
    }

    /// One attempt, under the epochs of `at`, in which the size was `raised` so far already.
    pub(crate) async fn write_once(
        &self,
        file: &OpenFile,
        at: &Snapshot,
        raised: u64,
        offset: u64,
        length: usize,
        data: &Payload,
    ) -> Result<Written, Trouble> {
        let level = self.level_of(file);
        if let Some((offset, length)) = at.layout.first_gap(offset, length as u64) {
            return Err(Trouble::Bare(offset, length));
        }
        let requests = plan(&at.layout, offset, length as u64, self.inner.options.max_rpc_bytes.into());
        // The size comes last: raised with one of several parts it would cover another that fails.
        let carries = requests.len() == 1;
        let sends = requests.iter().map(|request| {
            let parts = data.gather(offset, &request.ranges);
            let (client, file, at, request) = (self.clone(), file.clone(), at.clone(), request.clone());
            async move { client.write_object(&file, &at, request, parts, level, carries).await }
        });
        let results = all(self.env(), sends).await;
        let written = replied(offset, length, &requests, &results);
        let raised = if carries { raised.max(carried(at.layout.home(), &requests, &results)) } else { raised };
        if written == 0 && offset >= at.seen {
            full(offset, &requests, &results)?;
        }
        let cut = match worst(results.into_iter().filter_map(Result::err)) {
            Some(trouble) if written == 0 || matches!(trouble, Trouble::Stale(_)) => return Err(trouble),
            Some(Trouble::Failed(error) | Trouble::Full(_, _, error)) => Some(error),
            Some(Trouble::Bare(..) | Trouble::Stale(_)) | None => None,
        };
        if offset + written as u64 > raised {
            self.raise(file.state(), at, offset + written as u64, level).await?;
        }
        // Else it is done, in the epoch of `at`: a truncate that came since lies after it, and it must not be done again.
        Ok(Written { bytes: written, cut })
    }

    /// One request. At the home it carries the size too, if it `carries` it: else what is known of it.
    async fn write_object(
        &self,
        file: &OpenFile,
        at: &Snapshot,
        request: ObjectRange,
        parts: Vec<Bytes>,
        level: CommitLevel,
        carries: bool,
    ) -> Result<(), Trouble> {
        let (file, write_id) = (file.state(), self.write_id());
        let is_home = request.ost == at.layout.home();
        let end = if carries { request.file_end() } else { 0 };
        let file_bytes = if is_home { end.max(at.seen) } else { 0 };
        let granted_bytes = if at.is_buffered { request_cost(request.length, 1) } else { 0 };
        let message = WriteObject {
            object: at.object.clone(),
            offset: request.offset,
            length: request.length as u32,
            write_id,
            sums: block_sums(at.object.fid, request.offset, write_id, &parts),
            file_bytes,
            attr_epoch: at.attr_epoch,
            granted_bytes,
        };
        let call = Call { bulk: parts, fid: Some(file.fid), ..Call::level(level) };
        let called = self.ost_of(at, request.ost).await?.data_call(&message, call).await;
        self.inner.write_back.room.asked(request.ost, granted_bytes, &called);
        let called = called?;
        self.object_written(file, at, file_bytes, &called);
        Ok(())
    }

    /// A target has replied to a write; `file_bytes` is what the home was told of the size, 0 elsewhere.
    pub(crate) fn object_written(&self, file: &FileState, at: &Snapshot, file_bytes: u64, called: &Called<WriteReply>) {
        let epoch = at.object.truncate_epoch;
        if file_bytes > 0 {
            file.raised(at, file_bytes, called.transno);
            file.size.borrow_mut().see(epoch, called.reply.file_bytes);
        }
        file.told_time(called.reply.attr_epoch.max(at.attr_epoch), called.reply.mtime_ns);
    }

    /// A durable write to a file whose name is not durable would be lost with it.
    async fn make_name_durable(&self, file: &OpenFile) -> ClientResult<()> {
        let names = Some(file.state().activity.links.get());
        if file.inner.named.get() != names {
            self.mdt(file.fid(), &Sync { fid: Some(file.fid()) }).await?;
            file.inner.named.set(names);
        }
        Ok(())
    }
}

/// How many of `length` bytes one call writes at `offset`.
pub(crate) fn writable(offset: u64, length: usize) -> ClientResult<usize> {
    if length > 0 && offset >= FILE_BYTES {
        return Err(Errno::EFBIG.into());
    }
    Ok((length.min(limits::CALL_BYTES) as u64).min(FILE_BYTES.saturating_sub(offset)) as usize)
}

/// Bytes from `offset` on of which every request was replied. Pure.
fn replied(offset: u64, length: usize, requests: &[ObjectRange], results: &[Result<(), Trouble>]) -> usize {
    let failed = requests.iter().zip(results).filter(|(_, result)| result.is_err());
    failed.map(|(request, _)| (request.ranges[0].offset - offset) as usize).min().unwrap_or(length)
}

/// Fails with the OSTs that had no room, if one of those is why nothing was written. Pure.
fn full(offset: u64, requests: &[ObjectRange], results: &[Result<(), Trouble>]) -> Result<(), Trouble> {
    let mut osts = BTreeSet::new();
    let mut first = None;
    for (request, result) in requests.iter().zip(results) {
        match result {
            Err(Trouble::Failed(error)) if error.errno == Errno::ENOSPC => {
                osts.insert(request.ost);
                first.get_or_insert(error.clone());
            }
            Err(_) => return Ok(()),
            Ok(()) => {}
        }
    }
    first.map_or(Ok(()), |error| Err(Trouble::Full(offset, osts.into_iter().collect(), error)))
}

/// How far the requests to the home that were replied have raised the size. Pure.
fn carried(home: u32, requests: &[ObjectRange], results: &[Result<(), Trouble>]) -> u64 {
    let replied = requests.iter().zip(results).filter(|(request, result)| request.ost == home && result.is_ok());
    replied.map(|(request, _)| request.file_end()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use forebay_proto::Layout;

    use super::*;

    #[test]
    fn a_failed_request_leaves_the_bytes_before_it() {
        let layout = Layout::plain(1, 64 << 10, vec![0, 1]);
        let requests = plan(&layout, 1000, 200_000, 1 << 20);
        let failed = || Err(Trouble::Failed(Errno::ENOSPC.into()));
        assert_eq!(replied(1000, 200_000, &requests, &[Ok(()), Ok(())]), 200_000);
        assert_eq!(replied(1000, 200_000, &requests, &[Ok(()), failed()]), 65_536 - 1000);
        assert_eq!(replied(1000, 200_000, &requests, &[failed(), Ok(())]), 0);
    }

    #[test]
    fn the_size_is_raised_by_what_went_to_the_first_stripe() {
        let layout = Layout::plain(1, 64 << 10, vec![0, 1]);
        let failed = || Err(Trouble::Failed(Errno::ENOSPC.into()));
        let inside = plan(&layout, 1000, 500, 1 << 20);
        assert_eq!(carried(0, &inside, &[Ok(())]), 1500);
        assert_eq!(carried(0, &inside, &[failed()]), 0);
        let beyond = plan(&layout, 65_000, 1000, 1 << 20);
        assert_eq!(carried(0, &beyond, &[Ok(()), Ok(())]), 65_536);
        assert_eq!(carried(0, &plan(&layout, 70_000, 10, 1 << 20), &[Ok(())]), 0);
    }

    #[test]
    fn a_call_ends_at_the_largest_size_of_a_file() {
        assert_eq!(writable(FILE_BYTES - 10, 100), Ok(10));
        assert_eq!(writable(FILE_BYTES, 1), Err(Errno::EFBIG.into()));
        assert_eq!(writable(u64::MAX, 0), Ok(0));
        assert_eq!(writable(0, usize::MAX), Ok(limits::CALL_BYTES));
    }
}
