//! The end of a handle: its writes, size, times and delayed attributes go with the close.

use crate::{
    Client, ClientResult,
    cache::accesses::with_access,
    cache::inline,
    client::Inner,
    delayed::{buffered::Taken, flush::CloseBegun},
    file::{FileOwner, FileState, OpenFile, OpenInner, Stage, Writer},
    leases::{Holds, Ticket},
    limits,
    session::instance::ClientInstance,
    tasks::detached,
};
use forebay_env::Boxed;
use forebay_proto::{
    Errno,
    message::{Close, Closed, SetAttr},
};
use forebay_rpc::{Reservation, RpcError};
use std::{cell::Cell, rc::Rc};

/// What goes to the MDT along with a close.
#[derive(Default)]
struct GoesAlong {
    /// Of the session, reserved for it.
    slot: Option<Reservation>,
    /// All bytes of the file.
    taken: Option<Taken<Writer>>,
    /// Attributes that were set.
    set: Option<SetAttr>,
}

impl GoesAlong {
    /// The close of a handle, without delayed attributes. `done`: epoch and size that the OSTs replied about lost
    /// changes.
    fn close(&self, file: &FileState, handle: u64, wrote: bool, done: Option<(u64, u64)>) -> Close {
        let (truncate_epoch, size) = file.size_to_close(done);
        let (attr_epoch, mtime_ns) = file.time();
        // What was lost is a hole, where more follows.
        let sparse = file.activity.sparse.get() || file.losses() > 0;
        let (fid, inline, set) = (file.fid, None, None);
        let close = Close { fid, handle, wrote, size, truncate_epoch, mtime_ns, attr_epoch, sparse, inline, set };
        match &self.taken {
            None => close,
            // No OST has replied with a time.
            Some(taken) => Close {
                attr_epoch: taken.by.attr_epoch,
                mtime_ns: taken.by.at_ns,
                size: taken.bytes.len() as u64,
                inline: Some(taken.bytes.clone()),
                ..close
            },
        }
    }
}

impl Client {
    /// close(2) of one descriptor: reports acknowledged writes that were lost. Sends buffered writes, unless nobody
    /// else can notice that they are buffered: then they are sent a moment later, before anybody opens the file. The
    /// handle stays open.
    ///
    /// Does not wait for servers for long: exec(2) closes descriptors too, perhaps the very exec that brings a server back.
    pub fn flush<'a>(&'a self, file: &'a OpenFile) -> Boxed<'a, ClientResult<()>> {
        Box::pin(async move {
            let is_ours = self.inner.mdt.leases.may_keep(file.fid()) == Holds::All;
            if !is_ours && !file.state().buffered.borrow().is_clean() {
                let _ = self.env().timeout(limits::CLOSE_FLUSH, self.flush_writes(file.state())).await;
            }
            file.check_close()
        })
    }

    /// Ends the handle: waits for its writes, brings size and times to the MDT. Other clones of it become invalid.
    pub fn close(&self, file: OpenFile) -> Boxed<'_, ClientResult<()>> {
        Box::pin(async move {
            let reported = file.check_close();
            if file.inner.stage.replace(Stage::Closed) == Stage::Open {
                let end = self.end_of(&file.inner);
                detached(self.env(), end).await?;
            }
            reported.and(file.report_to_close())
        })
    }

    /// The same of any handle.
    pub(super) fn handle_goes(&self, file: &FileState) {
        file.activity.handles.set(file.activity.handles.get() - 1);
    }

    /// A handle ends. True if it was the last one that `writes`: with it the lease on the data ends, here and at the MDT.
    pub(super) fn writer_goes(&self, file: &FileState, writes: bool) -> bool {
        if !writes {
            return false;
        }
        let leases = &self.inner.mdt.leases;
        leases.writers.set(leases.writers.get() - 1);
        file.activity.writers.set(file.activity.writers.get() - 1);
        if file.activity.writers.get() == 0 {
            leases.end_data(file.fid);
        }
        file.activity.writers.get() == 0
    }

    /// The end of a handle at the MDT.
    fn end_of(&self, handle: &OpenInner) -> impl Future<Output = ClientResult<()>> + use<> {
        let (client, begun) = (self.clone(), self.begin_close());
        client.end(handle.state.clone(), handle.handle, handle.mode.write, handle.wrote.clone(), begun)
    }

    /// Closes a handle at the MDT, after all writes of the file were replied.
    async fn end(
        self,
        file: Rc<FileState>,
        handle: u64,
        writes: bool,
        wrote: Rc<Cell<bool>>,
        _begun: CloseBegun,
    ) -> ClientResult<()> {
        let (mut along, done) = self.finish_writes(&file, handle, writes, &wrote).await;
        self.handle_goes(&file);
        if let Some(set_attr) = file.set_attr.take() {
            let (slot, set) = set_attr.into_request(file.fid);
            (along.slot, along.set) = (Some(slot), Some(set));
        }
        let accessed = self.take_access(file.fid);
        // Whoever was still writing when it was closed has ended by now.
        let request = Close {
            set: with_access(along.set.clone(), file.fid, accessed),
            ..along.close(&file, handle, wrote.get(), done)
        };
        // Nobody waits for it but the kernel's own memory of the handle.
        if let Some(held) = self.inner.opens.handles.borrow_mut().get_mut(&handle) {
            held.closing = true;
        }
        let (asked, closed) = self.send_close(&file, request, along).await;
        if let Some(at_ns) = accessed {
            self.access_told(file.fid, at_ns);
        }
        // Only now: while the MDT may not have executed it, the handle is named to it after a restart.
        self.inner.opens.handles.borrow_mut().remove(&handle);
        let closed = match closed {
            // It was lost with the MDT's session, and not opened again yet: it is closed.
            Err(error) if error.errno() == Errno::EBADF => return Ok(()),
            closed => closed?,
        };
        if let Some(attr) = closed.attr {
            self.inner.mdt.leases.learn_attributes(asked, &attr);
            self.inner.listen();
        }
        Ok(())
    }

    /// The file's writes are replied, or go along with the close. Returns that, and epoch and size that the OSTs
    /// replied about lost changes.
    async fn finish_writes(
        &self,
        file: &Rc<FileState>,
        handle: u64,
        writes: bool,
        wrote: &Cell<bool>,
    ) -> (GoesAlong, Option<(u64, u64)>) {
        let inline = if writes { self.take_inline(file).await } else { None };
        if inline.is_none() {
            // What is lost of it, `close` reports.
            let _ = self.flush_writes(file).await;
        }
        file.sharing.leave(handle);
        file.activity.changes.ended().await;
        // Meanwhile the data-write lease is watched for recalls. Before the delayed attributes are taken: while those
        // are in flight, no other request is sent to the MDT.
        let done = match writes && wrote.get() && inline.is_none() {
            true => self.learn_what_was_done(file).await,
            false => None,
        };
        if self.writer_goes(file, writes) && inline.is_none() {
            let _ = self.flush_writes(file).await;
        }
        let along = inline.map_or_else(GoesAlong::default, |(slot, taken, set)| GoesAlong {
            slot: Some(slot),
            taken: Some(taken),
            set,
        });
        (along, done)
    }

    /// Sends a close. If the MDT refuses what goes along, that is sent alone, and then the close without it. Returns
    /// when the request was sent.
    async fn send_close(
        &self,
        file: &Rc<FileState>,
        mut request: Close,
        along: GoesAlong,
    ) -> (Ticket, Result<Closed, RpcError>) {
        let GoesAlong { slot, taken, set } = along;
        let asked = self.inner.mdt.leases.ticket();
        let closed = self.mdt_patiently(file.fid, &request, slot).await;
        let brought = taken.is_some() || set.is_some();
        if brought && closed.as_ref().is_err_and(inline::is_refused) {
            // Alone, and the attributes first: sending the bytes may need a request to the MDT.
            if let Some(set) = set {
                self.send_set(file, &set, None).await;
            }
            if let Some(taken) = taken {
                self.send_inline(file, taken).await;
            }
            let done = self.learn_what_was_done(file).await;
            (request.truncate_epoch, request.size) = file.size_to_close(done);
            (request.inline, request.set) = (None, None);
            (request.attr_epoch, request.mtime_ns) = file.time();
            let asked = self.inner.mdt.leases.ticket();
            return (asked, self.mdt_patiently(file.fid, &request, None).await);
        }
        if let Some(taken) = taken {
            self.inline_closed(file, &request, taken, closed.as_ref().err());
        }
        if set.is_some() {
            self.closed_set(file, closed.as_ref().map(drop));
        }
        (asked, closed)
    }

    /// The file's bytes went with a close: they are there, or lost.
    fn inline_closed(&self, file: &Rc<FileState>, request: &Close, taken: Taken<Writer>, error: Option<&RpcError>) {
        match error {
            None => {
                file.size.borrow_mut().see(request.truncate_epoch, request.size);
                file.told_time(request.attr_epoch, request.mtime_ns);
            }
            Some(error) => {
                let words = format!("buffered writes went with a close: {error}");
                self.inner.report_loss(file.fid, Errno::EIO, &words);
            }
        }
        self.end_inline(file, taken);
    }
}

impl FileOwner for Inner {
    fn instance(&self) -> ClientInstance {
        self.peers.instance()
    }

    fn file_ends(&self, file: &FileState) {
        let mut files = self.opens.files.borrow_mut();
        if files.get(&file.fid).is_some_and(|file| file.strong_count() == 0) {
            files.remove(&file.fid);
        }
        drop(files);
        if file.set_attr.borrow().is_some() {
            self.end_set(file.fid);
        }
        if file.losses() > file.losses.reported.get() {
            self.losses.remember(file.fid, file.loss());
        }
    }

    fn handle_dropped(self: Rc<Self>, handle: &OpenInner) {
        let client = Client { inner: self };
        drop(client.env().spawn(client.end_of(handle)));
    }
}
