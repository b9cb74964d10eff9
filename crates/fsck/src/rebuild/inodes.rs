//! What an OST must know of files but its slabs do not contain: it comes from the MDT's rows.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use forebay_env::Env;
use forebay_proto::{Fid, TargetKind, limits::FILE_BYTES};

use crate::{
    CheckOptions, FsckError, FsckErrorKind, FsckResult, check,
    examined::Examined,
    format::identity::Identity,
    journal::JournalView,
    media::Media,
    repair::refuse_deep_damage,
    rows::{
        fid_key,
        mdt::{self, Body, Inode},
        space,
    },
    slabs::Slabs,
    table::{Source, Walk},
};

/// Files by the fid of their objects.
#[derive(Default)]
pub(super) struct Inodes {
    files: BTreeMap<Fid, Known>,
    /// Fids of files that a session had open.
    open: BTreeSet<Fid>,
    /// Fids of files that a session could write to.
    written: BTreeSet<Fid>,
    /// Files with a truncate that the MDT has not brought to the OSTs yet.
    truncating: BTreeSet<Fid>,
}

/// A file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    file: Fid,
    pub(super) size: u64,
    pub(super) truncate_epoch: u64,
    /// The OST that keeps the file's size.
    pub(super) home: u32,
    /// The file has bytes on several OSTs.
    pub(super) striped: bool,
    /// Where its object on this OST ends, if the MDT's size is right.
    object_bytes: u64,
    /// This OST may have an object of the file.
    is_here: bool,
    /// The file may have holes, or has no bytes on OSTs.
    may_have_holes: bool,
}

/// The MDT, opened for reading.
pub(super) struct Mdt {
    identity: Identity,
    media: Media,
    slabs: Slabs,
    journal: JournalView,
}

impl Mdt {
    /// Opens the MDT in `dir`. Errors: `CannotRepair` if it is damaged, or belongs to another cluster.
    pub(super) async fn open(env: &Env, dir: &str, ost: &Identity) -> FsckResult<Self> {
        let options = CheckOptions::default();
        let Examined { report, identity, media, slabs, journal, .. } =
            check::examine(env, dir, &options, false).await?;
        let cannot = |words: String| FsckError::new(FsckErrorKind::CannotRepair, words);
        let (Some(identity), Some(media), Some(slabs), Some(journal)) = (identity, media, slabs, journal) else {
            return Err(cannot(format!("{dir}: what the MDT knows of files cannot be read; nothing was changed")));
        };
        if identity.cluster != ost.cluster || identity.target.kind != TargetKind::Mdt {
            return Err(cannot(format!("{dir} holds {} of cluster {}", identity.target, identity.cluster)));
        }
        refuse_deep_damage(&report)?;
        Ok(Self { identity, media, slabs, journal })
    }

    /// Calls `each` for every row.
    pub(super) async fn each_row(&self, mut each: impl FnMut(&[u8], &Bytes)) -> FsckResult<()> {
        let Self { identity, media, slabs, journal } = self;
        let source = Source { media, identity, slabs, overlay: &journal.overlay, root: journal.anchor.root };
        let mut walk = Walk::begin(&source).await?;
        while let Some(row) = walk.next().await? {
            if let Some(value) = &row.live {
                each(&row.key, value);
            }
        }
        Ok(())
    }
}

impl Inodes {
    /// Reads the files that the MDT knows.
    pub(super) async fn read(mdt: &Mdt, ost: &Identity) -> FsckResult<Self> {
        let mut inodes = Self::default();
        mdt.each_row(|key, value| inodes.take(key, value, ost.target.index)).await?;
        Ok(inodes)
    }

    fn take(&mut self, key: &[u8], value: &[u8], ost: u32) {
        let fid = || key.get(1..17).and_then(Fid::from_key);
        match key.first() {
            Some(&space::INODE) => {
                let (Some(file), Ok(inode)) = (fid_key(key), Inode::decode(value)) else { return };
                let Body::File(layout) = inode.body else { return };
                let Inode { size, truncate_epoch, sparse, inline, .. } = inode;
                let possible = size <= FILE_BYTES && layout.validate().is_ok();
                let ends = if possible { layout.object_ends(size) } else { Vec::new() };
                let here = ends.iter().find(|(index, _)| *index == ost).map(|(_, end)| *end);
                let (is_here, object_bytes) = (here.is_some(), here.unwrap_or(0));
                let (home, striped) = (layout.home(), layout.osts().len() > 1);
                let may_have_holes = sparse || inline || inode.nlink == 0;
                let known = Known { file, size, truncate_epoch, home, striped, object_bytes, is_here, may_have_holes };
                self.files.insert(layout.objects_of(file), known);
            }
            Some(&space::HANDLE) => {
                self.open.extend(fid());
                if mdt::decode_handle(value).is_ok_and(|flags| flags & mdt::HANDLE_WRITES != 0) {
                    self.written.extend(fid());
                }
            }
            Some(&space::TRUNCATE) => self.truncating.extend(fid()),
            _ => {}
        }
    }

    /// The fid of the file that an object belongs to.
    pub(super) fn file_of(&self, object: Fid) -> Option<Fid> {
        self.of(object).map(|known| known.file)
    }

    /// The file that an object belongs to.
    pub(super) fn of(&self, object: Fid) -> Option<&Known> {
        self.files.get(&object)
    }

    /// True if a session had the file open: then its OSTs know its size better than the MDT.
    pub(super) fn is_open(&self, known: &Known) -> bool {
        self.open.contains(&known.file)
    }

    /// True if a session could write to the file: then the MDT's size means little.
    pub(super) fn is_written(&self, known: &Known) -> bool {
        self.written.contains(&known.file)
    }

    /// Objects on this OST whose file a session could write to.
    pub(super) fn open_for_writing(&self) -> impl Iterator<Item = Fid> {
        let open = self.files.iter().filter(|(_, known)| known.is_here && self.is_written(known));
        open.map(|(fid, _)| *fid)
    }

    /// True if there was an MDT to read.
    pub(super) fn are_known(&self) -> bool {
        !self.files.is_empty()
    }

    /// Where the object ends according to the MDT. `None` if the MDT does not know the file, or is truncating it.
    pub(super) fn object_bytes(&self, object: Fid) -> Option<u64> {
        let known = self.of(object)?;
        self.epoch(known).map(|_| known.object_bytes)
    }

    /// Up to where the object certainly has all bytes: its file has no holes, and no session could write to it.
    pub(super) fn dense_bytes(&self, object: Fid) -> u64 {
        let is_dense = |known: &&Known| !known.may_have_holes && !self.written.contains(&known.file);
        let known = self.of(object).filter(is_dense);
        known.filter(|known| self.epoch(known).is_some()).map_or(0, |known| known.object_bytes)
    }

    /// The objects with bytes on this OST and without holes, with their lengths.
    pub(super) fn dense(&self) -> impl Iterator<Item = (Fid, u64)> {
        let objects = self.files.keys().map(|fid| (*fid, self.dense_bytes(*fid)));
        objects.filter(|(_, bytes)| *bytes > 0)
    }

    /// The truncate epoch of the file's objects once every truncate has arrived. `None` while one is in progress.
    pub(super) fn epoch(&self, known: &Known) -> Option<u64> {
        (!self.truncating.contains(&known.file)).then_some(known.truncate_epoch)
    }
}
