//! What an OST needs to know of files and its slabs do not say: the MDT's rows say it.

use std::collections::{BTreeMap, BTreeSet};

use forebay_env::Env;
use forebay_proto::{Fid, TargetKind};

use crate::{
    CheckOptions, FsckError, FsckErrorKind, FsckResult,
    check::{self, Examined},
    format::identity::Identity,
    repair::refuse_deep_damage,
    rows::{
        fid_key,
        mdt::{Body, Inode},
        space,
    },
    table::{Source, Walk},
};

/// Files by the fid of their objects.
#[derive(Default)]
pub(super) struct Inodes {
    files: BTreeMap<Fid, Known>,
    /// Files that somebody had open, by their own fid.
    open: BTreeSet<Fid>,
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
}

impl Inodes {
    /// Reads them from the MDT in `dir`. Errors: `CannotRepair` if it is damaged itself, or of another cluster.
    pub(super) async fn read(env: &Env, dir: &str, ost: &Identity) -> FsckResult<Self> {
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
        let root = journal.anchor.root;
        let source = Source { media: &media, identity: &identity, slabs: &slabs, overlay: &journal.overlay, root };
        let mut inodes = Self::default();
        let mut walk = Walk::begin(&source).await?;
        while let Some(row) = walk.next().await? {
            if let Some(value) = row.live {
                inodes.take(&row.key, &value);
            }
        }
        Ok(inodes)
    }

    fn take(&mut self, key: &[u8], value: &[u8]) {
        let fid = || key.get(1..17).and_then(Fid::from_key);
        match key.first() {
            Some(&space::INODE) => {
                let (Some(file), Ok(inode)) = (fid_key(key), Inode::decode(value)) else { return };
                let Body::File(objects, osts, home) = inode.body else { return };
                let Inode { size, truncate_epoch, .. } = inode;
                let known = Known { file, size, truncate_epoch, home, striped: osts.len() > 1 };
                self.files.insert(objects.unwrap_or(file), known);
            }
            Some(&space::HANDLE) => self.open.extend(fid()),
            Some(&space::TRUNCATE) => self.truncating.extend(fid()),
            _ => {}
        }
    }

    /// The file of an object.
    pub(super) fn of(&self, object: Fid) -> Option<&Known> {
        self.files.get(&object)
    }

    /// Whether somebody had it open: then its OSTs know its size better than the MDT.
    pub(super) fn is_open(&self, known: &Known) -> bool {
        self.open.contains(&known.file)
    }

    /// The epoch its object has once every truncate has arrived; none while one is on its way.
    pub(super) fn epoch(&self, known: &Known) -> Option<u64> {
        (!self.truncating.contains(&known.file)).then_some(known.truncate_epoch)
    }
}
