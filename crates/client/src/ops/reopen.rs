//! Handles after a restart of the MDT (reclaim), or after the end of its session (opened again).

use crate::{
    Client,
    client::Inner,
    delayed::queue::Scope,
    file::{OpenFile, OpenHandleEntry, OpenInner, Stage},
    leases::Holds,
    tasks::Counted,
};
use forebay_env::{Bug, planted};
use forebay_proto::{
    Fid,
    message::{Close, Closed, Open, OpenHandle, Reclaim, open_flags},
};
use forebay_rpc::RpcError;
use std::rc::Rc;

impl Inner {
    /// What to bring back after a restart of the MDT, ordered.
    pub fn reclaim(&self) -> Reclaim {
        let open = |held: &OpenHandleEntry| {
            let fid = held.open.fid;
            let kept = self.mdt.leases.holds(fid) > Holds::Nothing
                || self.delayed.has(Scope::SetAttr(fid))
                || self.file(fid).is_some_and(|file| !file.buffered.borrow().is_clean());
            let data = if kept { open_flags::DATA_WRITE_LEASE } else { 0 };
            let closing = if held.closing { open_flags::CLOSING } else { 0 };
            OpenHandle { flags: held.open.flags | data | closing, ..held.open.clone() }
        };
        let handles = self.opens.handles.borrow().values().map(open).collect();
        let directories = if planted(Bug::NamesNotReclaimed) { Vec::new() } else { self.mdt.leases.changing() };
        Reclaim { handles, locks: self.locks_to_reclaim(), directories }
    }

    /// All handles somebody holds and has not closed, ordered.
    pub fn open_handles(&self) -> Vec<OpenFile> {
        let handles = self.opens.handles.borrow();
        let open = handles.values().filter_map(|held| held.inner.upgrade());
        open.filter(|inner| inner.stage.get() == Stage::Open).map(|inner| OpenFile { inner }).collect()
    }

    /// The MDT has forgotten all handles: opens them again, in the background.
    pub fn reopen_all(self: &Rc<Self>) {
        self.open_handles().into_iter().for_each(|file| self.reopen(file));
    }

    pub(super) fn reopen(self: &Rc<Self>, file: OpenFile) {
        let reopening = Counted::new(file.state(), |file| &file.activity.reopening);
        let client = Client { inner: self.clone() };
        drop(self.env.spawn(async move {
            client.reopen_handle(&file.inner).await;
            drop(reopening);
        }));
    }
}

/// The end of a handle through which nothing was written.
fn close_only(fid: Fid, handle: u64) -> Close {
    let (size, truncate_epoch, mtime_ns, attr_epoch) = (0, 0, 0, u64::MAX);
    Close {
        fid,
        handle,
        wrote: false,
        size,
        truncate_epoch,
        mtime_ns,
        attr_epoch,
        sparse: false,
        inline: None,
        set: None,
    }
}

impl Client {
    /// Has the MDT open a handle again that it knows: the reply may bring a lease on the data.
    pub(crate) async fn open_again(&self, file: &OpenFile) {
        if file.inner.stage.get() == Stage::Open {
            // It was allowed once; that it is not any more is no matter.
            let _ = self.ask_to_open(&file.inner).await;
        }
    }

    async fn ask_to_open(&self, open: &OpenInner) -> Result<(), RpcError> {
        let (fid, handle) = (open.state.fid, open.handle);
        let request = Open { caller: open.caller.clone(), fid, flags: open.mode.access(), handle };
        let leases = &self.inner.mdt.leases;
        if open.mode.write {
            leases.touch(fid);
        }
        let asked = leases.ticket();
        let reply = self.mdt(fid, &request).await;
        if open.mode.write {
            leases.touch(fid);
        }
        let reply = reply?;
        open.state.adopt(asked, &reply.attr, reply.layout.as_ref());
        self.learn_data(asked, &reply);
        open.state.is_like(asked, &reply.attr);
        Ok(())
    }

    async fn reopen_handle(&self, open: &OpenInner) {
        let (fid, handle) = (open.state.fid, open.handle);
        match self.ask_to_open(open).await {
            Ok(()) if open.stage.get() == Stage::Closed && !self.inner.opens.handles.borrow().contains_key(&handle) => {
                // It was closed meanwhile, and the MDT may have received that first.
                let leases = &self.inner.mdt.leases;
                let asked = leases.ticket();
                if let Ok(Closed { attr: Some(attr) }) = self.mdt(fid, &close_only(fid, handle)).await {
                    leases.learn_attributes(asked, &attr);
                    self.inner.listen();
                }
            }
            Ok(()) => {}
            Err(error) => {
                self.env().log(&format!("client: {fid} could not be opened again: {error}"));
                if open.stage.get() == Stage::Open {
                    open.stage.set(Stage::Gone);
                    self.writer_goes(&open.state, open.mode.write);
                    self.handle_goes(&open.state);
                }
                self.inner.opens.handles.borrow_mut().remove(&handle);
            }
        }
    }
}
