//! Appends: bytes to wherever the file ends, whole, and apart from those of all other appenders.
//!
//! Invariant: nobody is shown a size, here or elsewhere, before the bytes that make it are there.
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
        AT_END, AppendObject, AppendReply, CompleteAppend, Piece, RemoveWritten, ReserveAppend, ReserveReply,
        WriteObject, WriteReserved,
    },
};
use forebay_rpc::{Call, Called, RpcError};

use crate::{
    Client, ClientError, ClientResult, OpenFile, Payload,
    delayed::queue::Scope,
    errors::Trouble,
    io::plan::{ObjectRequest, Stretch, plan_write, stretch_at_home},
    io::snapshot::Snapshot,
    limits,
    payload::{Run, whole_sum},
    session::instance::ClientInstance,
    tasks::{all, detached, worst},
};

/// The writes of a place, by OST, in the words that remove them.
type PlaceWrites = RefCell<Vec<(u32, RemoveWritten)>>;

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
                let words = "an append is at most 1 GiB long: it is one piece or nothing";
                return Err(ClientError::new(Errno::EINVAL, words));
            }
            let end = file.state().size.borrow().seen();
            if data.is_empty() {
                return Ok(end);
            }
            let held = (file.state().busy(), self.bytes_change(file.fid(), end..u64::MAX));
            let (client, file) = (self.clone(), file.clone());
            detached(self.env(), async move {
                client.flush_delayed(Scope::SetAttr(file.fid())).await;
                let _outside = client.flush_writes_through(&file).await?;
                let appended = client.append_all(&file, &data, instance).await;
                drop(held);
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
        let (write_id, home) = (self.write_id(), at.layout.home());
        let request = append_object(at, stretch, write_id, data);
        let call = Call { bulk: data.parts().to_vec(), ..self.change_call(file) };
        let called = self.ost_of(at, home).await?.data_call(&request, call).await;
        let called = called.map_err(|error| trouble_of(at.seen, home, error))?;
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
        let (place, fill) = self.reserve_place(file, &at, data.len() as u32).await?;
        let written = PlaceWrites::default();
        if let Err(trouble) = self.write_place(file, &at, &place, data, &written).await {
            // If this request is lost too, others wait for a while, and then do without.
            let given_up = CompleteAppend { length: 0, ..fill };
            let _ = self.ost_of(&at, at.layout.home()).await?.call(&given_up, Call::default()).await;
            self.remove_written(file, &at, written).await;
            return Err(trouble);
        }
        let filled = self.fill_place(file, &at, &fill).await;
        if matches!(filled, Err(Trouble::Stale(_))) {
            self.remove_written(file, &at, written).await;
        }
        filled.map(|()| place.file_offset)
    }

    /// A place for so many bytes, and the words that fill it.
    async fn reserve_place(
        &self,
        file: &OpenFile,
        at: &Snapshot,
        length: u32,
    ) -> Result<(ReserveReply, CompleteAppend), Trouble> {
        let (object, attr_epoch) = (at.object.clone(), at.attr_epoch);
        let request = ReserveAppend { object: object.clone(), file_bytes: at.seen, length };
        let home = self.ost_of(at, at.layout.home()).await?;
        let place = home.call(&request, Call::default()).await?.reply;
        let (file_offset, number) = (place.file_offset, place.number);
        if planted(Bug::ReservationShownEmpty) {
            self.raise(file.state(), at, file_offset + u64::from(length), self.level_of(file)).await?;
        }
        Ok((place, CompleteAppend { object, number, file_offset, length, attr_epoch, before: Vec::new() }))
    }

    /// Has the home show what was written to a place. Stale: the place is void. Other errors leave open whether it is.
    async fn fill_place(&self, file: &OpenFile, at: &Snapshot, fill: &CompleteAppend) -> Result<(), Trouble> {
        let home = self.ost_of(at, at.layout.home()).await?;
        let Called { reply, transno, .. } = home.call(fill, self.change_call(file)).await?;
        if !reply.filled {
            return Err(Trouble::Stale(Errno::STALE_EPOCH.into()));
        }
        let state = file.state();
        state.raised(at, fill.file_offset.saturating_add(fill.length.into()), transno);
        state.told_time(reply.attr_epoch.max(at.attr_epoch), reply.mtime_ns);
        Ok(())
    }

    /// All of `data` to its place.
    async fn write_place(
        &self,
        file: &OpenFile,
        at: &Snapshot,
        place: &ReserveReply,
        data: &Payload,
        written: &PlaceWrites,
    ) -> Result<(), Trouble> {
        let run = [Run { offset: place.file_offset, parts: data.parts().to_vec() }];
        if let Some((offset, length)) = at.layout.first_gap(run[0].offset, data.len() as u64) {
            return Err(Trouble::Bare(offset, length));
        }
        let writes = plan_write(&at.layout, &run, self.inner.options.max_rpc_bytes);
        let sends = writes.into_iter().map(|write| {
            let (ost, write_id) = (write.ost, self.write_id().reserved());
            written.borrow_mut().push((ost, removal(at, &write, write_id)));
            let (client, file, at, place) = (self.clone(), file.clone(), at.clone(), place.clone());
            async move { client.send_reserved(&file, &at, &place, write, write_id).await }
        });
        let results = all(self.env(), sends).await;
        worst(results.into_iter().filter_map(Result::err)).map_or(Ok(()), Err)
    }

    /// One request with bytes of a place.
    async fn send_reserved(
        &self,
        file: &OpenFile,
        at: &Snapshot,
        place: &ReserveReply,
        write: ObjectRequest,
        write_id: WriteId,
    ) -> Result<(), Trouble> {
        let (ost, Piece { offset, length }) = (write.ost, write.pieces[0].piece());
        let (object, attr_epoch, sums) = (at.object.clone(), at.attr_epoch, write.sums(at.object.fid, write_id));
        let message =
            WriteObject { object, offset, length, write_id, sums, file_bytes: 0, attr_epoch, granted_bytes: 0 };
        let message = WriteReserved { write: message, generation: place.generation };
        let call = Call { bulk: write.parts, ..self.change_call(file) };
        // Not one of a bounded number: appends behind it, which wait at the home for it, may be all of those.
        let called = self.ost_of(at, ost).await?.call(&message, call).await;
        let reply = called.map_err(|error| trouble_of(place.file_offset, ost, error))?.reply;
        file.state().told_time(reply.attr_epoch.max(at.attr_epoch), reply.mtime_ns);
        Ok(())
    }

    /// Bytes beyond the end of the file would show in a hole that is made there later. Bytes whose OST does not receive
    /// the request stay, unless this client ends with the file open: then the MDT removes them.
    async fn remove_written(&self, file: &OpenFile, at: &Snapshot, written: PlaceWrites) {
        let removals = written.into_inner().into_iter().map(|(ost, removal)| {
            let (client, at, call) = (self.clone(), at.clone(), self.change_call(file));
            async move {
                client.ost_of(&at, ost).await?.call(&removal, call).await?;
                Ok::<(), Trouble>(())
            }
        });
        let _ = all(self.env(), removals).await;
    }
}

/// Bytes for wherever the file ends in `stretch`.
fn append_object(at: &Snapshot, stretch: Stretch, write_id: WriteId, data: &Payload) -> AppendObject {
    let Stretch { from, to, offset } = stretch;
    AppendObject {
        object: at.object.clone(),
        file_bytes: at.seen,
        from,
        to,
        offset,
        length: data.len() as u32,
        write_id,
        sum: whole_sum(at.object.fid, write_id, data.parts()),
        attr_epoch: at.attr_epoch,
        file_offset: AT_END,
        before: Vec::new(),
    }
}

/// Takes a write of a place back.
fn removal(at: &Snapshot, write: &ObjectRequest, write_id: WriteId) -> RemoveWritten {
    let (WriteId { client, sequence }, piece) = (write_id, &write.pieces[0]);
    RemoveWritten { object: at.object.clone(), offset: piece.offset, length: piece.length, client, sequence }
}

/// What an OST answered to bytes for `offset`, behind the end of the file: others may have room that it does not have.
fn trouble_of(offset: u64, ost: u32, error: RpcError) -> Trouble {
    match Trouble::from(error) {
        Trouble::Failed(error) if error.errno == Errno::ENOSPC => Trouble::Full(offset, vec![ost], error),
        trouble => trouble,
    }
}
