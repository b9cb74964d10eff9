//! Attributes of an inode: from the cache, from the MDT, and of a file that is being written from its OSTs.

use crate::{Attr, Client, ClientResult, OpenFile, errors::Trouble, limits, tasks::try_all};
use forebay_env::Boxed;
use forebay_proto::{
    Fid, Layout,
    message::{EntryReply, GetAttr, GetObject, NEVER, ObjectRef, ObjectReply, attr_flags},
};
use forebay_rpc::Call;

/// The MDT's size and time do not count: somebody has the file open for writing.
pub(crate) fn size_is_on_osts(attr: &Attr) -> bool {
    attr.flags & attr_flags::SIZE_ON_OST != 0
}

/// The MDT's attributes with what the objects know. Pure.
///
/// Within one truncate epoch (the OSTs have checked it) a size only grows, so the larger one is right: the home may not
/// have received the size that the MDT has, nor the MDT the latest. Times count if their attribute epoch is current;
/// then they replace one that a client has set.
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
    /// Current attributes: the OSTs return size and times while anybody has the file open for writing.
    ///
    /// `open`: a handle the caller has.
    pub fn getattr<'a>(&'a self, fid: Fid, open: Option<&'a OpenFile>) -> Boxed<'a, ClientResult<Attr>> {
        Box::pin(async move {
            if let Some(attr) = self.known_under_lease(fid).await? {
                return Ok(self.with_accessed(attr));
            }
            let asked = self.inner.mdt.leases.ticket();
            let entry = match self.inner.mdt.leases.entry(fid) {
                Some(kept) => kept,
                None => self.ask_attributes(fid).await?,
            };
            if let Some(file) = open {
                file.state().adopt(asked, &entry.attr, entry.layout.as_ref());
            }
            Ok(self.with_accessed(self.complete(entry).await?))
        })
    }

    /// Owner and group, if no request is needed for them.
    pub fn known_owner(&self, fid: Fid) -> Option<(u32, u32)> {
        let leased = || self.inner.mdt.leases.entry(fid).or_else(|| self.inner.mdt.leases.written(fid));
        let known = self.known_but_times(fid).or_else(|| Some(leased()?.attr));
        known.map(|attr| (attr.uid, attr.gid))
    }

    /// Attributes of a file that only this client writes: its buffered writes are sent first, as the OSTs give the
    /// times; no other request is sent. `None`: not known, or not any more.
    async fn known_under_lease(&self, fid: Fid) -> ClientResult<Option<Attr>> {
        if let Some(attr) = self.known_as_set(fid) {
            return Ok(Some(attr));
        }
        let known = || {
            let entry = self.inner.mdt.leases.written(fid)?;
            self.known_as_sole_writer(&entry.attr).map(|known| merge(entry.attr, &[known]))
        };
        if known().is_none() {
            return Ok(None);
        }
        self.flush_own_writes_of(fid).await?;
        // It may have been recalled meanwhile, and others may have changed what we have not seen.
        Ok(known())
    }

    pub(crate) async fn ask_attributes(&self, fid: Fid) -> ClientResult<EntryReply> {
        let asked = self.inner.mdt.leases.ticket();
        let entry = self.mdt(fid, &GetAttr { fid }).await?;
        self.learn_choices(asked, &entry.attr);
        if entry.leases != 0 {
            self.inner.mdt.leases.learn(asked, &entry);
            self.inner.listen();
        }
        Ok(entry)
    }

    /// What the MDT replied, with size and times from the OSTs where they are newer.
    pub(crate) async fn complete(&self, mut entry: EntryReply) -> ClientResult<Attr> {
        let fid = entry.attr.fid;
        let _outside = self.flush_writes_of(fid).await?;
        for _ in 0..limits::STALE_ATTEMPTS {
            match self.ask_objects(entry.attr, entry.layout.as_ref()).await {
                Err(Trouble::Stale(_)) => entry = self.mdt(fid, &GetAttr { fid }).await?,
                other => return Ok(other?),
            }
        }
        let words = format!("{fid} is truncated or moved again and again; try later");
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

    /// If a file's truncate is stuck, the MDT replies with what it knows, though the file is being written: a writer
    /// knows its own size.
    fn with_own_size(&self, mut attr: Attr) -> Attr {
        if let Some(file) = self.inner.file(attr.fid).filter(|file| file.activity.writers.get() > 0) {
            let size = *file.size.borrow();
            if size.epoch() == attr.truncate_epoch {
                attr.size = attr.size.max(size.seen());
            }
        }
        attr
    }

    /// What the OSTs would reply about a file that only this client had open for writing when the MDT replied: it has
    /// received the result of every change, and acknowledges none before.
    ///
    /// `None`: the OSTs have to be asked, as the handle is closed by now, the file was cut meanwhile, or changes were
    /// lost.
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
}
