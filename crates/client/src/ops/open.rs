//! Opens: of a name that was found, of an inode, and what a reply to an open brings.

use crate::{
    Caller, Client, ClientError, ClientResult, OpenMode,
    delayed::queue::Scope,
    file::{OpenFile, OpenHandleEntry, OpenInner, Stage},
    leases::{Holds, Ticket},
    posix::privileges::Privileges,
    tasks::detached,
};
use bytes::Bytes;
use forebay_env::Boxed;
use forebay_proto::{
    Errno, Fid,
    limits::OPEN_FILES,
    message::{Attr, Create, LayoutSpec, Open, OpenHandle, OpenReply, lease_flags, open_flags},
};
use forebay_rpc::Called;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

impl Client {
    /// Opens the regular file that a name leads to, `found` a moment ago, neither to read nor to write: so long it is there. Errors:
    /// ENOENT, ESTALE or EISDIR if it is no regular file by now.
    pub fn hold<'a>(
        &'a self,
        caller: &'a Caller,
        parent: Fid,
        name: &'a [u8],
        found: Fid,
    ) -> Boxed<'a, ClientResult<(Attr, OpenFile)>> {
        Box::pin(async move {
            let (client, caller, name) = (self.clone(), caller.clone(), Bytes::copy_from_slice(name));
            detached(self.env(), async move {
                let (handle, flags, layout) = (client.new_handle()?, open_flags::EXISTING, LayoutSpec::inherit());
                let request = Create {
                    caller: caller.clone(),
                    parent,
                    name,
                    fid: found,
                    mode: 0,
                    flags,
                    handle,
                    layout,
                    at_ns: 0,
                };
                client.flush_delayed(Scope::Entries(parent)).await;
                let asked = client.inner.mdt.leases.ticket();
                let called = client.call_mdt(found, &request).await?;
                let attr = called.reply.attr.clone();
                let file = client.opened(caller, asked, called, handle, OpenMode::default())?;
                Ok((client.with_sizes(attr, Some(&file.layout())).await?, file))
            })
            .await
        })
    }

    /// Opens a regular file. ETXTBSY: that would truncate a running program ([`Client::check_not_running`]).
    pub fn open<'a>(&'a self, caller: &'a Caller, fid: Fid, mode: OpenMode) -> Boxed<'a, ClientResult<OpenFile>> {
        Box::pin(async move {
            self.check_not_running(fid, mode)?;
            let (client, caller) = (self.clone(), caller.clone());
            detached(self.env(), async move {
                let handle = client.new_handle()?;
                let flags = mode.flags() & !open_flags::EXCLUSIVE;
                let request = Open { caller: caller.clone(), fid, flags, handle };
                let changes = mode.write || mode.truncate;
                let changing = mode.truncate.then(|| client.all_bytes_change(fid));
                let _outside = if mode.truncate { client.flush_writes_of(fid).await? } else { None };
                let leases = &client.inner.mdt.leases;
                let change = changes.then(|| leases.change_begins(fid));
                let asked = leases.ticket();
                let called = client.call_mdt(fid, &request).await;
                if changes {
                    leases.touch(fid);
                }
                drop((change, changing));
                let called = called?;
                let file = client.opened(caller, asked, called, handle, mode)?;
                client.watch_size(file.state()).await;
                Ok(file)
            })
            .await
        })
    }

    /// The number of a handle that is about to be opened. ENFILE: there are too many.
    pub(crate) fn new_handle(&self) -> ClientResult<u64> {
        if self.inner.opens.handles.borrow().len() >= OPEN_FILES {
            let words =
                format!("this mount has {OPEN_FILES} files open, and may have no more: close some, or mount again");
            return Err(ClientError::new(Errno::ENFILE, words));
        }
        let handle = self.inner.opens.next_handle.get();
        self.inner.opens.next_handle.set(handle + 1);
        Ok(handle)
    }

    /// Takes over a file that the MDT has opened as `handle` for the request `asked`; its bytes may have come along.
    pub(crate) fn opened(
        &self,
        caller: Caller,
        asked: Ticket,
        Called { reply, bulk, capability, .. }: Called<OpenReply>,
        handle: u64,
        mode: OpenMode,
    ) -> ClientResult<OpenFile> {
        let fid = reply.attr.fid;
        self.learn_data(asked, &reply);
        let layout = reply.layout.ok_or_else(|| {
            ClientError::new(Errno::EIO, format!("the MDT opened {fid} without a layout: that is a bug, report it"))
        })?;
        self.inner.peers.learn_capability(layout.objects_of(fid), capability);
        let state = self.file_state(asked, &reply.attr, layout);
        // Without them they are requested later.
        let _ = self.learn_bytes(&state, &reply.attr, bulk);
        state.is_like(asked, &reply.attr);
        if reply.leases & lease_flags::INODE != 0 && !reply.created {
            self.inner.mdt.leases.learn_attributes(asked, &reply.attr);
            self.inner.listen();
        }
        state.activity.handles.set(state.activity.handles.get() + 1);
        let is_new = reply.created || mode.truncate && reply.attr.size == 0;
        state.activity.untouched.set(is_new && mode.write && state.activity.handles.get() == 1);
        if mode.write {
            state.activity.writers.set(state.activity.writers.get() + 1);
            self.inner.mdt.leases.writers.set(self.inner.mdt.leases.writers.get() + 1);
            self.inner.listen();
        }
        let inner = Rc::new(OpenInner {
            owner: self.inner.clone(),
            caller,
            privileges: Privileges::of(&reply.attr),
            handle,
            mode,
            stage: Cell::new(Stage::Open),
            wrote: Rc::default(),
            named: Cell::new(None),
            lock_lost: Cell::new(false),
            pattern: RefCell::default(),
            reported: Cell::new(state.losses()),
            // As on a local file system, a loss that no fsync has reported yet is reported to the next open.
            synced: Cell::new(state.losses.reported.get()),
            closed: Cell::new(state.losses()),
            state,
        });
        let held = OpenHandleEntry {
            open: OpenHandle { fid, handle, flags: mode.access() },
            inner: Rc::downgrade(&inner),
            closing: false,
        };
        self.inner.opens.handles.borrow_mut().insert(handle, held);
        let file = OpenFile { inner };
        if asked < self.inner.mdt.instance_begun.get() {
            // By a session that the MDT has ended since, maybe.
            self.inner.reopen(file.clone());
        }
        Ok(file)
    }

    pub(super) fn learn_data(&self, asked: Ticket, reply: &OpenReply) {
        if reply.leases & lease_flags::DATA != 0 {
            self.inner.mdt.leases.learn_data(asked, reply.attr.fid, Holds::All);
            self.inner.listen();
        }
    }
}
