//! mkdir, mknod, symlink: inodes that are not opened.

use crate::{Attr, Caller, Client, ClientResult, delayed::queue::Scope, mode, tasks::detached};
use bytes::Bytes;
use forebay_env::Boxed;
use forebay_proto::{
    Fid,
    message::{Create, LayoutSpec, Make},
};

impl Client {
    /// Makes a directory.
    pub fn mkdir<'a>(
        &'a self,
        caller: &'a Caller,
        parent: Fid,
        name: &'a [u8],
        mode: u32,
    ) -> Boxed<'a, ClientResult<Attr>> {
        Box::pin(async move { self.make(caller, parent, name, mode::with_type(mode, mode::S_IFDIR), 0, &[]).await })
    }

    /// Makes a fifo, socket or device, or a regular file without opening it. `mode`: type and permission bits.
    pub fn mknod<'a>(
        &'a self,
        caller: &'a Caller,
        parent: Fid,
        name: &'a [u8],
        mode: u32,
        rdev: u64,
    ) -> Boxed<'a, ClientResult<Attr>> {
        Box::pin(async move {
            if mode::is_special(mode) {
                return self.make(caller, parent, name, mode, rdev, &[]).await;
            }
            let request = Create {
                caller: caller.clone(),
                parent,
                name: Bytes::copy_from_slice(name),
                fid: Fid::default(),
                mode: mode & (mode::PERMISSIONS | mode::UMASK),
                flags: crate::open_flags::EXCLUSIVE,
                handle: 0,
                layout: LayoutSpec::inherit(),
                at_ns: 0,
            };
            detached(self.env(), self.clone().send_mknod(request)).await
        })
    }

    /// Makes a regular file. `request`: with any fid.
    async fn send_mknod(self, request: Create) -> ClientResult<Attr> {
        let (parent, name) = (request.parent, request.name.clone());
        self.flush_delayed(Scope::Entries(parent)).await;
        let make = async |fid| {
            let request = Create { fid, ..request.clone() };
            self.change_name(parent, &name, self.change_mdt(fid, parent, &request)).await
        };
        Ok(self.with_new_fid(make).await?.reply.attr)
    }

    /// Makes a symbolic link.
    pub fn symlink<'a>(
        &'a self,
        caller: &'a Caller,
        parent: Fid,
        name: &'a [u8],
        target: &'a [u8],
    ) -> Boxed<'a, ClientResult<Attr>> {
        Box::pin(async move { self.make(caller, parent, name, mode::S_IFLNK | 0o777, 0, target).await })
    }

    async fn make(
        &self,
        caller: &Caller,
        parent: Fid,
        name: &[u8],
        mode: u32,
        rdev: u64,
        symlink: &[u8],
    ) -> ClientResult<Attr> {
        if let Some(attr) = self.with_slot(|| self.delay_make(caller, parent, name, mode, symlink)).await {
            return Ok(attr);
        }
        let (name, symlink) = (Bytes::copy_from_slice(name), Bytes::copy_from_slice(symlink));
        let fid = Fid::default();
        let request = Make { caller: caller.clone(), parent, name, fid, mode, rdev, symlink, at_ns: 0 };
        detached(self.env(), self.clone().send_make(request)).await
    }

    /// Makes an inode. `request`: with any fid.
    async fn send_make(self, request: Make) -> ClientResult<Attr> {
        let (parent, name, leases) = (request.parent, request.name.clone(), &self.inner.mdt.leases);
        self.flush_delayed(Scope::Entries(parent)).await;
        let asked = leases.ticket();
        let make = async |fid| {
            let request = Make { fid, ..request.clone() };
            self.change_name(parent, &name, self.change_mdt(fid, parent, &request)).await
        };
        let entry = self.with_new_fid(make).await?.reply;
        leases.learn_empty(asked, &entry);
        leases.learn_changes(asked, entry.leases, parent, Some(entry.attr.fid));
        self.inner.listen();
        Ok(entry.attr)
    }
}
