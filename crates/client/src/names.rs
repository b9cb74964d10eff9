//! Names: lookup, create, make, link, unlink, rename, directories.

use bytes::Bytes;
use forebay_env::{Boxed, Bug, planted};
use forebay_proto::{
    Errno, Fid, Transno,
    message::{
        Changed, Create, EntryReply, LayoutSpec, Link, Lookup, Make, OpenReply, ReadDir, ReadLink, Rename, Rmdir,
        Unlink, open_flags,
    },
};
use forebay_rpc::{Called, RpcError};

use crate::{
    Attr, Caller, Client, ClientResult, DirEntry, Dropped, OpenFile, OpenMode,
    leases::{AllPaused, Ticket},
    limits, mode,
    tasks::detached,
};

/// A page of a directory.
#[derive(Clone, Debug)]
pub struct DirPage {
    /// In the order of cookies; `.` and `..` come first.
    pub entries: Vec<DirEntry>,
    /// Nothing follows.
    pub end: bool,
}

/// `RENAME_EXCHANGE` of renameat2(2).
const EXCHANGE: u32 = 2;

impl Client {
    /// Attributes of the entry `name`; `.` and `..` too.
    pub fn lookup<'a>(&'a self, caller: &'a Caller, parent: Fid, name: &'a [u8]) -> Boxed<'a, ClientResult<Attr>> {
        Box::pin(async move {
            // Who is not the superuser may not search every directory.
            // What lies above a directory is no name in it, and is not kept with those that are.
            let is_dots = matches!(name, b"." | b"..") && !planted(Bug::WayUpTakenForAName);
            if caller.uid == 0
                && !is_dots
                && let Some(kept) = self.inner.leases.name(parent, name)
            {
                return Ok(self.with_accessed(kept.ok_or(Errno::ENOENT)?.attr));
            }
            let request = Lookup { caller: caller.clone(), parent, name: Bytes::copy_from_slice(name) };
            for _ in 0..limits::STALE_ATTEMPTS {
                let asked = self.inner.leases.ticket();
                let reply = match self.lookup_ahead(asked, &request).await {
                    Some(reply) => reply,
                    None => {
                        // Changes of other names in the directory are nothing to it.
                        self.settle_name(parent, name).await;
                        self.call_mdt_at_once(parent, &request).await?.reply
                    }
                };
                self.learn_name(asked, parent, name, reply.leases, reply.entry.as_ref());
                let entry = reply.entry.ok_or(Errno::ENOENT)?;
                self.learn_choices(asked, &entry.attr);
                let fid = entry.attr.fid;
                let entry = if self.inner.ahead.concerns(fid) {
                    // The MDT does not know of all its names yet.
                    self.getattr(fid, None).await
                } else {
                    self.complete(entry).await
                };
                match entry {
                    // The file went before the OSTs were asked: the name stands for another by now, or for none.
                    Err(error) if error.errno == Errno::ESTALE => {}
                    other => return other.map(|attr| self.with_accessed(attr)),
                }
            }
            Err(Errno::ESTALE.into())
        })
    }

    /// Makes a regular file and opens it; opens the one that is there unless `open.exclusive`.
    ///
    /// `mode`: permission bits, umask applied or in it ([`mode::with_umask`]). `layout`: what is asked for, or the directory's default.
    pub fn create<'a>(
        &'a self,
        caller: &'a Caller,
        parent: Fid,
        name: &'a [u8],
        mode: u32,
        open: OpenMode,
        layout: LayoutSpec,
    ) -> Boxed<'a, ClientResult<(Attr, OpenFile)>> {
        Box::pin(async move {
            let (client, caller, name) = (self.clone(), caller.clone(), Bytes::copy_from_slice(name));
            detached(self.env(), async move {
                let (handle, flags) = (client.new_handle()?, open.flags());
                if open.truncate && !open.exclusive && client.keeps_any() {
                    // It may be one that is open here: a look has what is kept of it sent, by others too.
                    let _ = client.lookup(&caller, parent, &name).await;
                }
                client.settle(parent).await;
                let asked = client.inner.leases.ticket();
                let make = async |fid| {
                    let (caller, name, layout) = (caller.clone(), name.clone(), layout.clone());
                    let request = Create { caller, parent, name, fid, mode, flags, handle, layout, at_ns: 0 };
                    client.change_name(parent, &request.name, client.change_mdt(fid, parent, &request)).await
                };
                let called = client.with_new_fid(make).await?;
                let (reply, bulk) = (called.reply, called.bulk);
                if reply.created {
                    client.inner.leases.learn_file(asked, &reply);
                    client.inner.leases.learn_changes(asked, reply.leases, parent, Some(reply.attr.fid));
                    client.inner.listen();
                } else if open.write || open.truncate {
                    client.inner.leases.touch(reply.attr.fid);
                }
                if open.truncate && !reply.created {
                    drop(client.all_bytes_change(reply.attr.fid));
                }
                let (attr, created) = (reply.attr.clone(), reply.created);
                let file = client.opened(caller, asked, (reply, bulk), handle, open)?;
                if created {
                    // Nobody can have written to it before this reply left the MDT.
                    return Ok((attr, file));
                }
                Ok((client.with_sizes(attr, Some(&file.layout())).await?, file))
            })
            .await
        })
    }

    /// Makes a regular file without a name, as if in `parent`, and opens it. It ends with its last handle, unless
    /// [`Client::link`] gives it a name; with `open.exclusive` it never gets one.
    pub fn create_nameless<'a>(
        &'a self,
        caller: &'a Caller,
        parent: Fid,
        mode: u32,
        open: OpenMode,
    ) -> Boxed<'a, ClientResult<(Attr, OpenFile)>> {
        Box::pin(async move {
            let (client, caller) = (self.clone(), caller.clone());
            detached(self.env(), async move {
                let (handle, flags) = (client.new_handle()?, open.flags() | open_flags::NAMELESS);
                client.settle(parent).await;
                let asked = client.inner.leases.ticket();
                let make = async |fid| {
                    let (caller, name, layout) = (caller.clone(), Bytes::new(), LayoutSpec::inherit());
                    let request = Create { caller, parent, name, fid, mode, flags, handle, layout, at_ns: 0 };
                    client.mdt(fid, &request).await
                };
                let reply = client.with_new_fid(make).await?;
                Ok((reply.attr.clone(), client.opened(caller, asked, (reply, Bytes::new()), handle, open)?))
            })
            .await
        })
    }

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
            self.settle(parent).await;
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
        if let Some(attr) = self.make_ahead(caller, parent, name, mode, symlink) {
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
        self.settle(parent).await;
        let asked = self.inner.leases.ticket();
        let make = async |fid| self.change_name(parent, name, self.change_mdt(fid, parent, &request(fid))).await;
        let entry = self.with_new_fid(make).await?.reply;
        self.inner.leases.learn_empty(asked, &entry);
        self.inner.leases.learn_changes(asked, entry.leases, parent, Some(entry.attr.fid));
        self.inner.listen();
        Ok(entry.attr)
    }

    /// Gives `fid` another name.
    pub fn link<'a>(
        &'a self,
        caller: &'a Caller,
        fid: Fid,
        parent: Fid,
        name: &'a [u8],
    ) -> Boxed<'a, ClientResult<Attr>> {
        Box::pin(async move {
            let request = Link { caller: caller.clone(), fid, parent, name: Bytes::copy_from_slice(name) };
            self.settle(fid).await;
            self.settle(parent).await;
            self.inner.leases.links_change(fid);
            let entry = self.change_name(parent, name, self.change_mdt(fid, parent, &request)).await;
            let transno = entry.as_ref().map_or(Transno(0), |called| called.transno);
            self.inner.leases.touch_at(fid, transno);
            // Also if it failed, as nobody knows: then a durable write makes sure of a name too many.
            if let Some(file) = self.inner.file(fid) {
                file.links.set(file.links.get() + 1);
            }
            let entry = entry?.reply;
            let attr = entry.attr.clone();
            match self.complete(entry).await {
                // It was linked, and all its names went before the OSTs were asked.
                Err(error) if error.errno == Errno::ESTALE => Ok(attr),
                other => other,
            }
        })
    }

    /// Takes a name away; not a directory's.
    pub fn unlink<'a>(&'a self, caller: &'a Caller, parent: Fid, name: &'a [u8]) -> Boxed<'a, ClientResult<()>> {
        Box::pin(async move {
            if self.unlink_ahead(caller, parent, name) {
                return Ok(());
            }
            let request = Unlink { caller: caller.clone(), parent, name: Bytes::copy_from_slice(name), at_ns: 0 };
            self.settle(parent).await;
            let asked = self.inner.leases.ticket();
            let changed = self.change_name(parent, name, self.call_mdt(parent, &request)).await?;
            self.inner.leases.learn_changes(asked, changed.reply.leases, parent, None);
            self.touch_all(&changed);
            Ok(())
        })
    }

    /// Removes an empty directory.
    pub fn rmdir<'a>(&'a self, caller: &'a Caller, parent: Fid, name: &'a [u8]) -> Boxed<'a, ClientResult<()>> {
        Box::pin(async move {
            if self.rmdir_ahead(caller, parent, name) {
                return Ok(());
            }
            let request = Rmdir { caller: caller.clone(), parent, name: Bytes::copy_from_slice(name), at_ns: 0 };
            // What was made in it, too; and nothing more is, until it is gone or not.
            let leases = &self.inner.leases;
            let paused = match leases.name(parent, name) {
                Some(Some(victim)) => {
                    leases.stop_answering(victim.attr.fid);
                    None
                }
                _ => Some(leases.pause_answering_all()),
            };
            self.settle_all().await;
            let asked = self.inner.leases.ticket();
            let changed = self.change_name(parent, name, self.call_mdt(parent, &request)).await;
            paused.into_iter().for_each(AllPaused::over);
            let changed = changed?;
            self.inner.leases.learn_changes(asked, changed.reply.leases, parent, None);
            changed.reply.fids.iter().for_each(|fid| self.inner.leases.gave_names_back(*fid));
            self.touch_all(&changed);
            Ok(())
        })
    }

    /// Moves a name. `flags`: RENAME_NOREPLACE (1), RENAME_EXCHANGE (2).
    pub fn rename<'a>(
        &'a self,
        caller: &'a Caller,
        from: (Fid, &'a [u8]),
        to: (Fid, &'a [u8]),
        flags: u32,
    ) -> Boxed<'a, ClientResult<()>> {
        Box::pin(async move {
            let request = Rename {
                caller: caller.clone(),
                from_parent: from.0,
                from_name: Bytes::copy_from_slice(from.1),
                to_parent: to.0,
                to_name: Bytes::copy_from_slice(to.1),
                flags,
            };
            // What was made in a directory that gives way, too.
            let leases = &self.inner.leases;
            let is_file = matches!(leases.name(from.0, from.1), Some(Some(moved)) if !mode::is_dir(moved.attr.mode));
            let paused = (!is_file).then(|| leases.pause_answering_all());
            self.settle_all().await;
            let changes = [from, to].map(|(parent, name)| (leases.name_changes(parent, name), parent, name));
            let believed = [from, to].map(|(parent, _)| leases.names_until(parent));
            let result = self.change_mdt(from.0, to.0, &request).await;
            paused.into_iter().for_each(AllPaused::over);
            // What the names lead to now is looked up when somebody wants to know.
            changes.iter().for_each(|(change, parent, name)| leases.name_changed(*change, *parent, name, None));
            let called = result?;
            if let ([_, gone], false) = (&called.reply.fids[..], flags & EXCHANGE != 0) {
                leases.gave_names_back(*gone);
            }
            self.touch_all(&called);
            for dir in &called.reply.parents {
                leases.directory_changed(changes[0].0, dir, called.transno);
            }
            let moved = from.0 != to.0 && leases.name_moved(believed[0], to.0);
            let moved_back = from.0 != to.0 && flags & EXCHANGE != 0 && leases.name_moved(believed[1], from.0);
            if moved || moved_back {
                self.names_are_forgotten().await;
            }
            Ok(())
        })
    }

    /// Returns when nobody believes a name any more that was told before.
    async fn names_are_forgotten(&self) {
        while !self.inner.leases.tell(vec![Dropped::Names]).is_empty() {
            self.env().sleep(limits::HEARING_PAUSE).await;
        }
    }

    /// Changes one name.
    async fn change_name<R: Names>(
        &self,
        parent: Fid,
        name: &[u8],
        request: impl Future<Output = Result<Called<R>, RpcError>>,
    ) -> Result<Called<R>, RpcError> {
        let leases = &self.inner.leases;
        let change = leases.name_changes(parent, name);
        let result = request.await;
        leases.name_changed(change, parent, name, result.as_ref().ok().map(|called| called.reply.leads()));
        let called = result?;
        if let Some(dir) = called.reply.directory() {
            leases.directory_changed(change, dir, called.transno);
        }
        Ok(called)
    }

    /// What a change concerned beside the names that were given.
    fn touch_all(&self, changed: &Called<Changed>) {
        changed.reply.fids.iter().for_each(|fid| self.inner.leases.touch_at(*fid, changed.transno));
    }

    pub(crate) fn learn_name(&self, asked: Ticket, parent: Fid, name: &[u8], leases: u32, entry: Option<&EntryReply>) {
        if leases == 0 {
            return;
        }
        entry.inspect(|entry| self.inner.leases.learn(asked, entry));
        if !matches!(name, b"." | b"..") {
            entry.inspect(|entry| {
                self.inner.leases.learn_changes(asked, entry.leases, parent, Some(entry.attr.fid));
            });
            self.inner.leases.learn_name(asked, parent, name, leases, entry.map(|entry| entry.attr.fid));
        }
        self.inner.listen();
    }

    /// Target of a symbolic link.
    pub fn readlink(&self, fid: Fid) -> Boxed<'_, ClientResult<Bytes>> {
        Box::pin(async move { Ok(self.mdt(fid, &ReadLink { fid }).await?.target) })
    }

    /// Entries after `cookie` (0 = from the beginning), up to about `max_bytes` of names and attributes.
    ///
    /// With `attributes`, those of a file that somebody has open for writing are asked for from the OSTs too.
    pub fn readdir(&self, fid: Fid, cookie: u64, max_bytes: u32, attributes: bool) -> Boxed<'_, ClientResult<DirPage>> {
        Box::pin(async move {
            let request = ReadDir { fid, cookie, max_bytes, with_attributes: attributes };
            let reply = self.mdt(fid, &request).await?;
            let mut entries = reply.entries;
            if !attributes {
                self.inner.listings.listed(fid, cookie == 0, entries.len(), self.env().now());
            }
            for entry in &mut entries {
                let is_told = entry.attr.is_some() && self.inner.ahead.concerns(entry.fid);
                if is_told || entry.attr.as_ref().is_some_and(crate::attributes::size_is_on_osts) {
                    // The file may be gone by now; then the name comes without attributes.
                    entry.attr = self.getattr(entry.fid, None).await.ok();
                }
            }
            Ok(DirPage { entries, end: reply.end })
        })
    }
}

/// What a reply tells of the name that was changed.
pub(crate) trait Names {
    /// Where it leads now.
    fn leads(&self) -> Option<Fid>;
    /// Its directory now.
    fn directory(&self) -> Option<&Attr>;
    /// Leases that come with it.
    fn leases(&self) -> u32;
}

impl Names for OpenReply {
    fn leads(&self) -> Option<Fid> {
        Some(self.attr.fid)
    }
    fn directory(&self) -> Option<&Attr> {
        self.parent.as_ref()
    }
    fn leases(&self) -> u32 {
        self.leases
    }
}

impl Names for EntryReply {
    fn leads(&self) -> Option<Fid> {
        Some(self.attr.fid)
    }
    fn directory(&self) -> Option<&Attr> {
        self.parent.as_ref()
    }
    fn leases(&self) -> u32 {
        self.leases
    }
}

impl Names for Changed {
    fn leads(&self) -> Option<Fid> {
        None
    }
    fn directory(&self) -> Option<&Attr> {
        self.parents.first()
    }
    fn leases(&self) -> u32 {
        self.leases
    }
}
