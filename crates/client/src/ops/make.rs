//! mkdir, mknod, symlink: inodes that are not opened.

use crate::{Attr, Caller, Client, ClientResult, delayed::queue::Scope, mode};
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
            let request = |fid| Create {
                caller: caller.clone(),
                parent,
                name: Bytes::copy_from_slice(name),
                fid,
                mode: mode & (mode::PERMISSIONS | mode::UMASK),
                flags: crate::open_flags::EXCLUSIVE,
                handle: 0,
                layout: LayoutSpec::inherit(),
                at_ns: 0,
            };
            self.flush_delayed(Scope::Entries(parent)).await;
            let make = async |fid| self.change_name(parent, name, self.change_mdt(fid, parent, &request(fid))).await;
            Ok(self.with_new_fid(make).await?.reply.attr)
        })
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
        if let Some(attr) = self.delay_make(caller, parent, name, mode, symlink) {
            return Ok(attr);
        }
        let request = |fid| Make {
            caller: caller.clone(),
            parent,
            name: Bytes::copy_from_slice(name),
            fid,
            mode,
            rdev,
            symlink: Bytes::copy_from_slice(symlink),
            at_ns: 0,
        };
        self.flush_delayed(Scope::Entries(parent)).await;
        let asked = self.inner.mdt.leases.ticket();
        let make = async |fid| self.change_name(parent, name, self.change_mdt(fid, parent, &request(fid))).await;
        let entry = self.with_new_fid(make).await?.reply;
        self.inner.mdt.leases.learn_empty(asked, &entry);
        self.inner.mdt.leases.learn_changes(asked, entry.leases, parent, Some(entry.attr.fid));
        self.inner.listen();
        Ok(entry.attr)
    }
}
