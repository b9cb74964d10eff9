//! Small files whose bytes lie with the MDT (see `ops::inline` there): one round trip to open and read, none to an OST to write.
//!
//! Invariant: a reply from bytes that are cached here is what the MDT would have replied at some time during the call:
//! the MDT sent them under a lease that still holds, or confirms that they are current.
//! Invariant: no OST receives a request about such a file, nor while a handle from before the MDT ended the session is
//! not open again: somebody may have closed it with its bytes meanwhile.
//! Invariant: bytes that go with a close count as on their way until it is replied: a recall waits for that. So the close has a slot of
//! the session before they are taken: it waits for no request that others may hold up until the recall is answered.

use std::rc::Rc;

use bytes::Bytes;
use forebay_env::{Bug, planted};
use forebay_proto::{
    Errno, Fid,
    message::{Attr, InlineBound, Outline, ReadInline, SetAttr, attr_flags},
};
use forebay_rpc::{Reservation, RpcError};

use crate::{
    Client, ClientError, ClientResult, OpenFile,
    cache::choices::Known,
    cache::inline_data::Inline,
    delayed::buffered::Taken,
    file::{FileState, Writer},
    leases::Holds,
    limits,
    tasks::detached,
};

impl Client {
    /// Takes over what a reply of the MDT contains of a file, and its bytes if they came along. Errors: EIO if they are
    /// not as long as the file.
    pub(crate) fn learn_bytes(&self, file: &FileState, attr: &Attr, bulk: Bytes) -> ClientResult<()> {
        if attr.flags & attr_flags::INLINE == 0 || bulk.is_empty() {
            return Ok(());
        }
        if bulk.len() as u64 != attr.size {
            let words = format!("the MDT sent {} bytes of {}, which has {}", bulk.len(), file.fid, attr.size);
            return Err(ClientError::new(Errno::EIO, words));
        }
        file.inline.keep(attr, bulk);
        Ok(())
    }

    /// Reads from bytes that lie with the MDT. `None`: they do not.
    pub(crate) async fn read_inline(&self, file: &OpenFile, offset: u64, end: u64) -> ClientResult<Option<Vec<Bytes>>> {
        let (state, fid) = (file.state(), file.fid());
        for _ in 0..limits::STALE_ATTEMPTS {
            let Some(Inline { epoch, bytes }) = state.inline.known() else { return Ok(None) };
            let is_same = |attr: &Attr| attr.truncate_epoch == epoch && attr.flags & attr_flags::INLINE != 0;
            let is_current = self.inner.mdt.leases.entry(fid).is_some_and(|entry| is_same(&entry.attr));
            if let Some(bytes) = bytes {
                if is_current || planted(Bug::InlineBytesNotAsked) {
                    return Ok(Some(cut(&bytes, offset, end)));
                }
                let asked = self.inner.mdt.leases.ticket();
                let entry = self.ask_attributes(fid).await?;
                state.adopt(asked, &entry.attr, entry.layout.as_ref());
                if is_same(&entry.attr) {
                    return Ok(Some(cut(&bytes, offset, end)));
                }
                if entry.attr.truncate_epoch == epoch {
                    state.inline.left(epoch);
                }
                continue;
            }
            let asked = self.inner.mdt.leases.ticket();
            let called = self.call_mdt(fid, &ReadInline { fid }).await?;
            let entry = called.reply;
            if entry.leases != 0 {
                self.inner.mdt.leases.learn(asked, &entry);
                self.inner.listen();
            }
            state.adopt(asked, &entry.attr, entry.layout.as_ref());
            if entry.attr.flags & attr_flags::INLINE == 0 {
                state.inline.left(entry.attr.truncate_epoch);
                continue;
            }
            self.learn_bytes(state, &entry.attr, called.bulk.clone())?;
            return Ok(Some(cut(&called.bulk, offset, end)));
        }
        let words = format!("{fid} is truncated or moved again and again; try later");
        Err(ClientError::new(Errno::EIO, words))
    }

    /// Has the bytes of a file written to its OSTs, if they lie with the MDT: something is to be done with it that only OSTs do.
    pub(crate) async fn outline(&self, file: &FileState) -> ClientResult<()> {
        while file.inline.is_there() && !planted(Bug::InlineNotOutlined) {
            let asked = self.inner.mdt.leases.ticket();
            let (client, fid) = (self.clone(), file.fid);
            let change = async move { Ok::<_, ClientError>(client.change(fid, &Outline { fid }).await?) };
            let entry = detached(self.env(), change).await?;
            file.adopt(asked, &entry.attr, entry.layout.as_ref());
            file.inline.left(entry.attr.truncate_epoch);
        }
        Ok(())
    }

    /// The largest size that is sent to the MDT: the file's own bound (`own`) if it has one, else the mount's.
    pub(crate) fn most_inline(&self, own: Option<InlineBound>) -> usize {
        let own = own.filter(|_| !planted(Bug::InlineBoundIgnored));
        own.map_or(self.inner.options.inline_bytes, InlineBound::bytes)
    }

    /// This client has given the file another inline bound, or none: it counts for the next close.
    pub(crate) fn inline_bound_changed(&self, fid: Fid, bound: Option<InlineBound>) {
        if let Some(file) = self.inner.file(fid) {
            file.attributes.inline_bound.set(Known::new(bound, self.inner.mdt.leases.ticket()));
        }
    }

    /// The bytes of a file that is written to for the last time, if they may lie with the MDT: nobody else has it open,
    /// and no OST has received a request about it. They are in flight from now on, in this slot. Delayed attributes go
    /// along.
    pub(crate) async fn take_inline(&self, file: &FileState) -> Option<(Reservation, Taken<Writer>, Option<SetAttr>)> {
        let most = self.most_inline(file.attributes.inline_bound.get().own());
        let may_be_taken = || {
            let is_alone = file.activity.handles.get() == 1 && self.inner.mdt.leases.may_keep(file.fid) == Holds::All;
            file.activity.untouched.get() && is_alone && file.losses() == 0 && file.size.borrow().seen() == 0
        };
        if !may_be_taken() || !file.buffered.borrow().is_whole(most) {
            return None;
        }
        file.activity.changes.ended().await;
        let mut slot = None;
        if file.set_attr.borrow().is_none() {
            let bytes = file.buffered.borrow().bytes() + limits::CHANGE_BYTES;
            slot = Some(self.inner.peers.mdt().session.reserve_in_turn(bytes).await.ok()?);
        }
        // What was recalled, or kept too long, meanwhile is on its way to the OSTs.
        if !may_be_taken() {
            return None;
        }
        let taken = file.buffered.borrow_mut().take_whole(most)?;
        self.inner.write_back.forget(file.fid);
        let (own, set) = file.set_attr.take().map(|set_attr| set_attr.into_request(file.fid)).unzip();
        let slot = own.or(slot).expect("one of them was there");
        Some((slot, taken, set))
    }

    /// They have arrived, or are lost.
    pub(crate) fn end_inline(&self, file: &Rc<FileState>, taken: Taken<Writer>) {
        self.inner.write_back.sent(&mut file.buffered.borrow_mut(), taken.number, taken.bytes.len());
        file.arrived.notify_waiters();
    }

    /// The MDT does not take them: they go to the OSTs, on their way all the time.
    pub(crate) async fn send_inline(&self, file: &FileState, taken: Taken<Writer>) {
        file.activity.untouched.set(false);
        let (by, number, run) = taken.into_run();
        self.send_batch(by, number, vec![run]).await;
    }
}

/// An answer of the MDT to a close that brings bytes, and has not come to pass: they belong elsewhere.
pub(crate) fn is_refused(error: &RpcError) -> bool {
    // Where the handle, or the file, is gone nobody can bring them anywhere.
    matches!(error, RpcError::Reply(reply) if !matches!(reply.errno, Errno::EBADF | Errno::ESTALE))
}

/// What lies between `offset` and `end`.
fn cut(bytes: &Bytes, offset: u64, end: u64) -> Vec<Bytes> {
    let length = bytes.len() as u64;
    let (start, end) = (offset.min(length), end.min(length));
    if start < end { vec![bytes.slice(start as usize..end as usize)] } else { Vec::new() }
}
