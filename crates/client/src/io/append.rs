//! Appends: bytes to wherever the file ends, whole, and apart from those of all other appenders.
//!
//! Invariant: nobody is told of a size, here or elsewhere, before the bytes that make it are there.
//!
//! | where the file ends | requests, one after another |
//! |---|---|
//! | in the home's object, and so would the append | 1: the home chooses the place, and has the bytes |
//! | on other OSTs, or over several | 3: a place at the home, the bytes to their OSTs, and the home again |

use std::cell::RefCell;

use forebay_env::{Boxed, Bug, planted};
use forebay_proto::{
    Errno, WriteId,
    limits::FILE_BYTES,
    message::{
        AT_END, AppendObject, AppendReply, CompleteAppend, RemoveWritten, ReserveAppend, ReserveReply, WriteObject,
        WriteReserved,
    },
};
use forebay_rpc::{Call, Called};

use crate::{
    Client, ClientError, ClientResult, OpenFile, Payload,
    delayed::queue::Scope,
    errors::Trouble,
    file::Snapshot,
    io::plan::{ObjectRange, Stretch, plan, stretch_at_home},
    limits,
    payload::{block_sums, whole_sum},
    session::instance::ClientInstance,
    tasks::{all, detached, worst},
};

/// The writes of a place, by OST, in the words that remove them.
type Written = RefCell<Vec<(u32, RemoveWritten)>>;

/// What came of an append at the home.
enum AtHome {
    /// It lies there.
    Appended(u64),
    /// The file ends there, as far as the home knows.
    Elsewhere(u64),
}

impl Client {
    /// Writes `data` at the end of the file, atomically against other appenders; returns where it begins.
    ///
    /// Others see all of it or nothing, and the file is not longer before. One that fails is not in the file.
    pub async fn append(&self, file: &OpenFile, data: impl Into<Payload>) -> ClientResult<u64> {
        self.append_payload(file, data.into()).await
    }

    fn append_payload<'a>(&'a self, file: &'a OpenFile, data: Payload) -> Boxed<'a, ClientResult<u64>> {
        Box::pin(async move {
            let instance = file.check_write()?;
            if data.len() > limits::CALL_BYTES {
                return Err(ClientError::new(
                    Errno::EINVAL,
                    "an append is at most 1 GiB long: it is one piece or nothing",
                ));
            }
            let state = file.state();
            if data.is_empty() {
                return Ok(state.size.borrow().seen());
            }
            let busy = state.busy();
            let end = state.size.borrow().seen();
            let changing = self.bytes_change(file.fid(), end..u64::MAX);
            let (client, file) = (self.clone(), file.clone());
            detached(self.env(), async move {
                let _busy = busy;
                client.flush_delayed(Scope::SetAttr(file.fid())).await;
                let _outside = client.flush_writes_through(&file).await?;
                let appended = client.append_all(&file, &data, instance).await;
                drop(changing);
                appended
            })
            .await
        })
    }

    async fn append_all(&self, file: &OpenFile, data: &Payload, instance: ClientInstance) -> ClientResult<u64> {
        file.inner.wrote.set(true);
        let offset = self.roomy(file, async || self.append_once(file, data, instance).await).await?;
        // After a truncate that is before the end of then.
        drop(self.bytes_change(file.fid(), offset..offset + data.len() as u64));
        self.wrote(file, data.len()).await?;
        Ok(offset)
    }

    /// One attempt, under the truncate epoch of now.
    async fn append_once(&self, file: &OpenFile, data: &Payload, instance: ClientInstance) -> Result<u64, Trouble> {
        let at = file.snapshot_in(instance)?;
        let length = data.len() as u64;
        let mut end = at.seen;
        for _ in 0..limits::APPEND_GUESSES {
            if end.saturating_add(length) > FILE_BYTES {
                return Err(Trouble::Failed(Errno::EFBIG.into()));
            }
            let most = self.inner.options.max_rpc_bytes.into();
            let Some(stretch) = stretch_at_home(&at.layout, end, length, most) else { break };
            match self.append_at_home(file, &at, stretch, data).await? {
                AtHome::Appended(offset) => return Ok(offset),
                AtHome::Elsewhere(now) => end = now,
            }
        }
        self.append_reserved(file, at, data).await
    }

    /// The bytes with the request: the home puts them at the end, if that lies in `stretch`.
    async fn append_at_home(
        &self,
        file: &OpenFile,
        at: &Snapshot,
        stretch: Stretch,
        data: &Payload,
    ) -> Result<AtHome, Trouble> {
        let (write_id, parts) = (self.write_id(), data.parts().to_vec());
        let Stretch { from, to, offset } = stretch;
        let request = AppendObject {
            object: at.object.clone(),
            file_bytes: at.seen,
            from,
            to,
            offset,
            length: data.len() as u32,
            write_id,
            sum: whole_sum(at.object.fid, write_id, &parts),
            attr_epoch: at.attr_epoch,
            file_offset: AT_END,
            before: Vec::new(),
        };
        let call = Call { bulk: parts, fid: Some(file.fid()), ..Call::level(self.level_of(file)) };
        let home = at.layout.home();
        let called = match self.ost_of(at, home).await?.data_call(&request, call).await.map_err(Trouble::from) {
            Err(Trouble::Failed(error)) if error.errno == Errno::ENOSPC => {
                return Err(Trouble::Full(at.seen, vec![home], error));
            }
            called => called?,
        };
        let AppendReply { appended, file_offset, mtime_ns, attr_epoch, .. } = called.reply;
        if !appended {
            return Ok(AtHome::Elsewhere(file_offset));
        }
        let state = file.state();
        state.raised(at, file_offset.saturating_add(data.len() as u64), called.transno);
        state.told_time(attr_epoch.max(at.attr_epoch), mtime_ns);
        Ok(AtHome::Appended(file_offset))
    }

    /// A place first, then the bytes to where they belong, then the size. A place that cannot be filled is given up, with what was
    /// written in it.
    async fn append_reserved(&self, file: &OpenFile, at: Snapshot, data: &Payload) -> Result<u64, Trouble> {
        let (object, length) = (at.object.clone(), data.len() as u32);
        let request = ReserveAppend { object: object.clone(), file_bytes: at.seen, length };
        let home = self.ost_of(&at, at.layout.home()).await?;
        let place = home.call(&request, Call::default()).await?.reply;
        let ReserveReply { file_offset, number, .. } = place;
        if planted(Bug::ReservationShownEmpty) {
            let end = file_offset + u64::from(length);
            self.raise(file.state(), &at, end, self.level_of(file)).await?;
        }
        let attr_epoch = at.attr_epoch;
        let fill = CompleteAppend { object, number, file_offset, length, attr_epoch, before: Vec::new() };
        let written = Written::default();
        if let Err(trouble) = self.write_place(file, &at, &place, data, &written).await {
            // If this is not heard either, others wait for a while, and then do without.
            let given_up = CompleteAppend { length: 0, ..fill };
            let _ = self.ost_of(&at, at.layout.home()).await?.call(&given_up, Call::default()).await;
            self.remove_written(file, &at, written).await;
            return Err(trouble);
        }
        let call = Call { fid: Some(file.fid()), ..Call::level(self.level_of(file)) };
        let filled = self.ost_of(&at, at.layout.home()).await?.call(&fill, call).await.map_err(Trouble::from);
        // (Other errors do not say whether it is.)
        let is_void = match &filled {
            Ok(Called { reply, .. }) => !reply.filled,
            Err(trouble) => matches!(trouble, Trouble::Stale(_)),
        };
        if is_void {
            self.remove_written(file, &at, written).await;
            return Err(Trouble::Stale(Errno::STALE_EPOCH.into()));
        }
        let Called { reply, transno, .. } = filled?;
        let state = file.state();
        state.raised(&at, file_offset.saturating_add(length.into()), transno);
        state.told_time(reply.attr_epoch.max(attr_epoch), reply.mtime_ns);
        Ok(file_offset)
    }

    /// All of `data` to its place.
    async fn write_place(
        &self,
        file: &OpenFile,
        at: &Snapshot,
        place: &ReserveReply,
        data: &Payload,
        written: &Written,
    ) -> Result<(), Trouble> {
        let (offset, length) = (place.file_offset, data.len() as u64);
        if let Some((offset, length)) = at.layout.first_gap(offset, length) {
            return Err(Trouble::Bare(offset, length));
        }
        let requests = plan(&at.layout, offset, length, self.inner.options.max_rpc_bytes.into());
        let sends = requests.into_iter().map(|request| {
            let parts = data.gather(offset, &request.ranges);
            let write_id = self.write_id().reserved();
            let WriteId { client, sequence } = write_id;
            let (object, offset, length) = (at.object.clone(), request.offset, request.length);
            written.borrow_mut().push((request.ost, RemoveWritten { object, offset, length, client, sequence }));
            let (client, file, at, place) = (self.clone(), file.clone(), at.clone(), place.clone());
            async move { client.write_reserved_object(&file, &at, &place, (request, write_id), parts).await }
        });
        let results = all(self.env(), sends).await;
        worst(results.into_iter().filter_map(Result::err)).map_or(Ok(()), Err)
    }

    /// Bytes beyond the end of the file would show in a hole that is made there later. What an OST does not hear of stays, unless this
    /// client ends with the file open: then the MDT removes it.
    async fn remove_written(&self, file: &OpenFile, at: &Snapshot, written: Written) {
        let removals = written.into_inner().into_iter().map(|(ost, removal)| {
            let (client, at) = (self.clone(), at.clone());
            let call = Call { fid: Some(file.fid()), ..Call::level(self.level_of(file)) };
            async move {
                client.ost_of(&at, ost).await?.call(&removal, call).await?;
                Ok::<(), Trouble>(())
            }
        });
        let _ = all(self.env(), removals).await;
    }

    async fn write_reserved_object(
        &self,
        file: &OpenFile,
        at: &Snapshot,
        place: &ReserveReply,
        (request, write_id): (ObjectRange, WriteId),
        parts: Vec<bytes::Bytes>,
    ) -> Result<(), Trouble> {
        let write = WriteObject {
            object: at.object.clone(),
            offset: request.offset,
            length: request.length as u32,
            write_id,
            sums: block_sums(at.object.fid, request.offset, write_id, &parts),
            file_bytes: 0,
            attr_epoch: at.attr_epoch,
            granted_bytes: 0,
        };
        let message = WriteReserved { write, generation: place.generation };
        let call = Call { bulk: parts, fid: Some(file.fid()), ..Call::level(self.level_of(file)) };
        // Not one of a bounded number: appends behind it, which wait at the home for it, may be all of those.
        let called = self.ost_of(at, request.ost).await?.call(&message, call).await.map_err(Trouble::from);
        match called {
            Ok(Called { reply, .. }) => {
                file.state().told_time(reply.attr_epoch.max(at.attr_epoch), reply.mtime_ns);
            }
            Err(Trouble::Failed(error)) if error.errno == Errno::ENOSPC => {
                return Err(Trouble::Full(place.file_offset, vec![request.ost], error));
            }
            Err(trouble) => return Err(trouble),
        }
        Ok(())
    }
}
