//! Attributes, extended attributes.

use bytes::Bytes;
use forebay_env::Boxed;
use forebay_proto::{
    Errno, Fid, Layout, Transno,
    limits::NAME_BYTES,
    message::{
        EntryReply, GetAttr, GetObject, GetXattr, ListXattr, NEVER, ObjectRef, ObjectReply, Operation, RemoveXattr,
        SetAttr, SetXattr, attr_flags, set_attr,
    },
};
use forebay_rpc::{Call, RpcError};

use crate::{
    Attr, Caller, Client, ClientResult, OpenFile,
    choices::Choice,
    errors::Trouble,
    layouts::LAYOUT_XATTR,
    limits, mode,
    tasks::{detached, try_all},
};

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's now.
    Now,
    /// Nanoseconds since 1970.
    At(i64),
}

/// Attributes to change; `None` = as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size: truncates or extends.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
}

impl SetAttributes {
    pub(crate) fn request(&self, caller: &Caller, fid: Fid, handle: u64) -> SetAttr {
        let mut mask = 0;
        let mut take = |value: Option<u64>, bit: u32| {
            mask |= if value.is_some() { bit } else { 0 };
            value.unwrap_or(0)
        };
        let mode = take(self.mode.map(u64::from), set_attr::MODE) as u32;
        let uid = take(self.uid.map(u64::from), set_attr::UID) as u32;
        let gid = take(self.gid.map(u64::from), set_attr::GID) as u32;
        let size = take(self.size, set_attr::SIZE);
        let mut time = |time: Option<SetTime>, given: u32, now: u32| {
            let (bit, ns) = match time {
                None => (0, 0),
                Some(SetTime::Now) => (now, 0),
                Some(SetTime::At(ns)) => (given, ns),
            };
            mask |= bit;
            ns
        };
        let atime_ns = time(self.atime, set_attr::ATIME, set_attr::ATIME_NOW);
        let mtime_ns = time(self.mtime, set_attr::MTIME, set_attr::MTIME_NOW);
        SetAttr { caller: caller.clone(), fid, mask, mode, uid, gid, size, atime_ns, mtime_ns, handle, at_ns: 0 }
    }
}

/// The MDT's size and time do not count: somebody has the file open for writing.
pub(crate) fn size_is_on_osts(attr: &Attr) -> bool {
    attr.flags & attr_flags::SIZE_ON_OST != 0
}

/// The MDT's attributes with what the objects know. Pure.
///
/// Within one truncate epoch (the OSTs have checked it) a size only grows, so the larger one is right: stripe 0's
/// target may never have heard of the size the MDT has, nor the MDT of the latest. Times count if their attribute
/// epoch is current; then they replace one that somebody gave.
fn merge(mut attr: Attr, objects: &[ObjectReply]) -> Attr {
    let is_current = |object: &&ObjectReply| object.attr_epoch >= attr.attr_epoch && object.mtime_ns != NEVER;
    let there = objects.iter().filter(|object| object.exists);
    let written = there.clone().filter(is_current).map(|object| object.mtime_ns).max();
    attr.size = there.map(|object| object.file_bytes).fold(attr.size, u64::max);
    if let Some(mtime_ns) = written {
        let is_given = attr.flags & attr_flags::MTIME_SET != 0;
        let told = if is_given { mtime_ns } else { attr.mtime_ns.max(mtime_ns) };
        if told != attr.mtime_ns {
            // As the MDT has it when the writer closes.
            attr.ctime_ns = mtime_ns.max(attr.ctime_ns.saturating_add(1));
        }
        attr.mtime_ns = told;
    }
    attr
}

impl Client {
    /// Attributes as they are now: the OSTs are asked for size and times while anybody has the file open for writing.
    ///
    /// `open`: a handle the caller has.
    pub fn getattr<'a>(&'a self, fid: Fid, open: Option<&'a OpenFile>) -> Boxed<'a, ClientResult<Attr>> {
        Box::pin(async move {
            if let Some(attr) = self.known_under_lease(fid).await? {
                return Ok(self.with_accessed(attr));
            }
            let asked = self.inner.leases.ticket();
            let entry = match self.inner.leases.entry(fid) {
                Some(kept) => kept,
                None => self.ask_attributes(fid).await?,
            };
            if let Some(file) = open {
                file.state().adopt(asked, &entry.attr, entry.layout.as_ref());
            }
            Ok(self.with_accessed(self.complete(entry).await?))
        })
    }

    /// User and group whose it is, if nobody has to be asked.
    pub fn known_owner(&self, fid: Fid) -> Option<(u32, u32)> {
        let leased = || self.inner.leases.entry(fid).or_else(|| self.inner.leases.written(fid));
        let known = self.known_but_times(fid).or_else(|| Some(leased()?.attr));
        known.map(|attr| (attr.uid, attr.gid))
    }

    /// Attributes of a file that only this client writes: what it keeps back is sent first, as the OSTs give the times; else nobody
    /// is asked. `None`: not known, or not any more.
    async fn known_under_lease(&self, fid: Fid) -> ClientResult<Option<Attr>> {
        if let Some(attr) = self.known_as_set(fid) {
            return Ok(Some(attr));
        }
        let known = || {
            let entry = self.inner.leases.written(fid)?;
            self.known_as_sole_writer(&entry.attr).map(|known| merge(entry.attr, &[known]))
        };
        if known().is_none() {
            return Ok(None);
        }
        self.send_own_of(fid).await?;
        // It may have been recalled meanwhile, and others may have changed what we have not seen.
        Ok(known())
    }

    pub(crate) async fn ask_attributes(&self, fid: Fid) -> ClientResult<EntryReply> {
        let asked = self.inner.leases.ticket();
        let entry = self.mdt(fid, &GetAttr { fid }).await?;
        self.learn_choices(asked, &entry.attr);
        if entry.leases != 0 {
            self.inner.leases.learn(asked, &entry);
            self.inner.listen();
        }
        Ok(entry)
    }

    /// A change of an inode of which something may be kept.
    pub(crate) async fn change<O: Operation>(&self, fid: Fid, request: &O) -> Result<O::Reply, RpcError> {
        // What is made in a directory may depend on it.
        self.inner.leases.stop_answering(fid);
        let reply = self.change_inode(fid, request).await;
        self.inner.leases.stop_answering(fid);
        reply
    }

    /// The same of what a client can see of a directory whose names are its own: owner, permissions, times.
    async fn change_attributes(&self, request: &SetAttr, call: Call) -> Result<EntryReply, RpcError> {
        self.inner.leases.pause_answering(request.fid);
        let reply = self.change_inode_with(request.fid, request, call).await;
        self.inner.leases.resume_answering(request.fid);
        reply
    }

    async fn change_inode<O: Operation>(&self, fid: Fid, request: &O) -> Result<O::Reply, RpcError> {
        self.change_inode_with(fid, request, Call::level(self.level())).await
    }

    async fn change_inode_with<O: Operation>(&self, fid: Fid, request: &O, call: Call) -> Result<O::Reply, RpcError> {
        self.inner.leases.links_change(fid);
        self.settle(fid).await;
        let result = self.call_mdt_with(Call { fid: Some(fid), ..call }, request).await;
        let transno = result.as_ref().map_or(Transno(0), |called| called.transno);
        self.inner.leases.touch_at(fid, transno);
        Ok(result?.reply)
    }

    /// Changes attributes. Through an `open` handle a truncate needs no permission (ftruncate), and fails as a write through it would.
    pub fn setattr<'a>(
        &'a self,
        caller: &'a Caller,
        fid: Fid,
        changes: SetAttributes,
        open: Option<&'a OpenFile>,
    ) -> Boxed<'a, ClientResult<Attr>> {
        Box::pin(async move {
            if changes.atime.is_some() {
                self.forget_access(fid);
            }
            if let Some(attr) = self.set_ahead(caller, fid, &changes) {
                return Ok(attr);
            }
            let request = changes.request(caller, fid, open.map_or(0, OpenFile::handle));
            let (client, open) = (self.clone(), open.cloned());
            let through = open.clone().filter(|_| changes.size.is_some());
            // To its end: once it is asked for, the file is as long as that says, whoever hears of it.
            detached(self.env(), async move {
                let mut call = Call::level(client.level());
                let outside = match through {
                    Some(file) => {
                        client.settle_coming(fid).await;
                        let outside = client.send_kept_through(&file).await?;
                        // What lets it cut the file may end with the session, as what lets it write does.
                        file.state().reopened().await;
                        file.check()?;
                        call.evictions = Some(client.inner.peers.mdt().session.stats().evictions);
                        Some(outside)
                    }
                    None => client.send_kept_of(fid).await?,
                };
                let asked = client.inner.leases.ticket();
                let changing = changes.size.map(|_| client.all_bytes_change(fid));
                let entry = client.change_attributes(&request, call).await?;
                if let Some(file) = client.inner.file(fid) {
                    file.adopt(asked, &entry.attr, entry.layout.as_ref());
                    file.times_told(&entry.attr);
                }
                drop((outside, changing, open));
                client.complete(entry).await
            })
            .await
        })
    }

    /// What the MDT told, with size and times from the OSTs where they know better.
    pub(crate) async fn complete(&self, mut entry: EntryReply) -> ClientResult<Attr> {
        let fid = entry.attr.fid;
        let _outside = self.send_kept_of(fid).await?;
        for _ in 0..limits::STALE_ATTEMPTS {
            match self.ask_objects(entry.attr, entry.layout.as_ref()).await {
                Err(Trouble::Stale(_)) => entry = self.mdt(fid, &GetAttr { fid }).await?,
                other => return Ok(other?),
            }
        }
        let words = format!("{fid} is truncated again and again; try later");
        Err(crate::ClientError::new(forebay_proto::Errno::EIO, words))
    }

    /// As [`Client::complete`], of a file just opened.
    pub(crate) async fn with_sizes(&self, attr: Attr, layout: Option<&Layout>) -> ClientResult<Attr> {
        self.complete(EntryReply { attr, layout: layout.cloned(), default_layout: None, leases: 0, parent: None }).await
    }

    async fn ask_objects(&self, attr: Attr, layout: Option<&Layout>) -> Result<Attr, Trouble> {
        let Some(layout) = layout.filter(|_| size_is_on_osts(&attr)) else {
            return Ok(self.with_own_size(attr));
        };
        if let Some(known) = self.known_as_sole_writer(&attr) {
            return Ok(merge(attr, &[known]));
        }
        let object = ObjectRef {
            fid: layout.objects_of(attr.fid),
            layout_generation: layout.generation,
            truncate_epoch: attr.truncate_epoch,
        };
        let asks = layout.osts().into_iter().map(|ost| {
            let (client, object) = (self.clone(), object.clone());
            async move { client.ost(ost, &GetObject { object }, Call::default()).await.map(|called| called.reply) }
        });
        let objects = try_all(self.env(), asks).await?;
        Ok(merge(attr, &objects))
    }

    /// Of a file whose truncate is stuck the MDT tells what it knows, though it is being written: a writer knows its own size.
    fn with_own_size(&self, mut attr: Attr) -> Attr {
        if let Some(file) = self.inner.file(attr.fid).filter(|file| file.writers.get() > 0) {
            let size = *file.size.borrow();
            if size.epoch() == attr.truncate_epoch {
                attr.size = attr.size.max(size.seen());
            }
        }
        attr
    }

    /// What the OSTs would tell of a file that only this client had open for writing when the MDT replied: it has been told
    /// of every change, and acknowledges none before it is.
    ///
    /// `None`: they have to be asked, as the handle is closed by now, the file was cut meanwhile, or changes were lost.
    fn known_as_sole_writer(&self, attr: &Attr) -> Option<ObjectReply> {
        let file = self.inner.file(attr.fid).filter(|_| attr.flags & attr_flags::SOLE_WRITER != 0)?;
        let size = *file.size.borrow();
        if size.epoch() != attr.truncate_epoch || file.losses() > 0 {
            return None;
        }
        let (attr_epoch, mtime_ns) = file.told().unwrap_or((attr.attr_epoch, NEVER));
        let (object_bytes, used_bytes, truncate_epoch) = (0, 0, size.epoch());
        let file_bytes = size.seen();
        Some(ObjectReply { exists: true, file_bytes, object_bytes, used_bytes, mtime_ns, attr_epoch, truncate_epoch })
    }

    /// Value of an extended attribute. ENODATA if there is none.
    pub fn getxattr<'a>(&'a self, caller: &'a Caller, fid: Fid, name: &'a [u8]) -> Boxed<'a, ClientResult<Bytes>> {
        Box::pin(async move {
            if name == LAYOUT_XATTR {
                return self.layout_xattr(fid).await;
            }
            if caller.uid == 0 && self.lacks_xattr(fid, name) {
                return Err(Errno::ENODATA.into());
            }
            let request = GetXattr { caller: caller.clone(), fid, name: Bytes::copy_from_slice(name) };
            Ok(self.mdt(fid, &request).await?.value)
        })
    }

    /// It certainly has none of that name: `ls -l` looks for access control lists and labels of every file. What others than the
    /// superuser may ask for, and what is no row of its own (layout, level, inline bound), the MDT knows.
    fn lacks_xattr(&self, fid: Fid, name: &[u8]) -> bool {
        let is_label = name.starts_with(b"security.") && (10..=NAME_BYTES).contains(&name.len());
        let is_plain = is_label || name == b"system.posix_acl_access" || name == b"system.posix_acl_default";
        let kept = || self.inner.leases.entry(fid).map(|entry| entry.attr).or_else(|| self.known_but_times(fid));
        is_plain.then(kept).flatten().is_some_and(|attr| {
            (mode::is_dir(attr.mode) || mode::is_file(attr.mode)) && attr.flags & attr_flags::XATTRS == 0
        })
    }

    /// Sets an extended attribute. `flags`: XATTR_CREATE (1), XATTR_REPLACE (2).
    pub fn setxattr<'a>(
        &'a self,
        caller: &'a Caller,
        fid: Fid,
        name: &'a [u8],
        value: &'a [u8],
        flags: u32,
    ) -> Boxed<'a, ClientResult<()>> {
        Box::pin(async move {
            if name == LAYOUT_XATTR {
                return self.set_layout_xattr(caller, fid, value).await;
            }
            let choice = Choice::made(name, Some(value));
            let (name, value) = (Bytes::copy_from_slice(name), Bytes::copy_from_slice(value));
            let request = SetXattr { caller: caller.clone(), fid, name, value, flags };
            detached(self.env(), self.clone().change_xattr(fid, request, choice)).await
        })
    }

    /// Run it to its end: what is known of the attributes follows the change. `choice`: what the attribute chooses, if it does.
    async fn change_xattr<O: Operation>(self, fid: Fid, request: O, choice: Option<Choice>) -> ClientResult<()> {
        let outside = if let Some(Choice::Level(_)) = choice { self.see_others(fid).await? } else { None };
        self.change(fid, &request).await?;
        match choice {
            Some(Choice::Level(level)) => self.level_changed(fid, level).await,
            Some(Choice::InlineBound(bound)) => self.inline_bound_changed(fid, bound),
            None => {}
        }
        drop(outside);
        Ok(())
    }

    /// Names of the extended attributes, sorted.
    pub fn listxattr(&self, fid: Fid) -> Boxed<'_, ClientResult<Vec<Bytes>>> {
        Box::pin(async move { Ok(self.mdt(fid, &ListXattr { fid }).await?.names) })
    }

    /// Removes an extended attribute.
    pub fn removexattr<'a>(&'a self, caller: &'a Caller, fid: Fid, name: &'a [u8]) -> Boxed<'a, ClientResult<()>> {
        Box::pin(async move {
            if name == LAYOUT_XATTR {
                // It is what the file is; who makes two sets of attributes equal need not fail.
                return Ok(());
            }
            let choice = Choice::made(name, None);
            let request = RemoveXattr { caller: caller.clone(), fid, name: Bytes::copy_from_slice(name) };
            detached(self.env(), self.clone().change_xattr(fid, request, choice)).await
        })
    }
}
