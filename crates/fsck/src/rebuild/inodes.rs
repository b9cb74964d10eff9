//! What an OST needs to know of files and its slabs do not say: the MDT's rows say it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use forebay_env::Env;
use forebay_proto::{Fid, TargetKind, limits::FILE_BYTES};

use crate::{
    CheckOptions, FsckError, FsckErrorKind, FsckResult,
    check::{self, Examined},
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
    /// Files that somebody had open, by their own fid.
    open: BTreeSet<Fid>,
    /// Those that somebody could write to.
    written: BTreeSet<Fid>,
    /// Files whose truncate the MDT still has to bring to the OSTs.
    truncating: BTreeSet<Fid>,
}

/// A file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    file: Fid,
    pub(super) size: u64,
    pub(super) truncate_epoch: u64,
    /// The OST that keeps its size.
    pub(super) home: u32,
    /// Its bytes lie on several OSTs.
    pub(super) striped: bool,
    /// Where its object on this OST ends, as long as the file is what the MDT knows.
    object_bytes: u64,
    /// This OST may have an object of it.
    is_here: bool,
    /// It may have holes, or none of its bytes lie on OSTs.
    may_have_holes: bool,
}

/// The MDT, open for reading.
pub(super) struct Mdt {
    identity: Identity,
    media: Media,
    slabs: Slabs,
    journal: JournalView,
}

impl Mdt {
    /// That in `dir`. Errors: `CannotRepair` if it is damaged itself, or of another cluster.
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

    /// Shows every row.
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
    /// As the MDT has them.
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

    /// The fid of an object's file.
    pub(super) fn file_of(&self, object: Fid) -> Option<Fid> {
        self.of(object).map(|known| known.file)
    }

    /// The file of an object.
    pub(super) fn of(&self, object: Fid) -> Option<&Known> {
        self.files.get(&object)
    }

    /// Whether somebody had it open: then its OSTs know its size better than the MDT.
    pub(super) fn is_open(&self, known: &Known) -> bool {
        self.open.contains(&known.file)
    }

    /// Whether somebody could write to it: then its size at the MDT says little.
    pub(super) fn is_written(&self, known: &Known) -> bool {
        self.written.contains(&known.file)
    }

    /// Objects on this OST whose file somebody could write to.
    pub(super) fn open_for_writing(&self) -> impl Iterator<Item = Fid> {
        let open = self.files.iter().filter(|(_, known)| known.is_here && self.is_written(known));
        open.map(|(fid, _)| *fid)
    }

    /// Whether there is an MDT to ask.
    pub(super) fn are_known(&self) -> bool {
        !self.files.is_empty()
    }

    /// How far the object reaches by what the MDT knows; none if it does not know the file, or is cutting it.
    pub(super) fn object_bytes(&self, object: Fid) -> Option<u64> {
        let known = self.of(object)?;
        self.epoch(known).map(|_| known.object_bytes)
    }

    /// How far the object is certainly whole: its file has no holes, and nobody could write to it.
    pub(super) fn dense_bytes(&self, object: Fid) -> u64 {
        let is_dense = |known: &&Known| !known.may_have_holes && !self.written.contains(&known.file);
        let known = self.of(object).filter(is_dense);
        known.filter(|known| self.epoch(known).is_some()).map_or(0, |known| known.object_bytes)
    }

    /// The objects that have bytes here and no holes, and how many.
    pub(super) fn dense(&self) -> impl Iterator<Item = (Fid, u64)> {
        let objects = self.files.keys().map(|fid| (*fid, self.dense_bytes(*fid)));
        objects.filter(|(_, bytes)| *bytes > 0)
    }

    /// The epoch its object has once every truncate has arrived; none while one is on its way.
    pub(super) fn epoch(&self, known: &Known) -> Option<u64> {
        (!self.truncating.contains(&known.file)).then_some(known.truncate_epoch)
    }
}
