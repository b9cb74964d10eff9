//! Checks the rows of an MDT: inodes against names, logs, handles and counters.
//!
//! Memory: about 40 bytes per inode, 80 more per directory, 24 more per object of a file. Rows come in the order of
//! their keys, so each is checked as it comes: superblock, inodes, names (by directory), extended attributes, and
//! operations in progress.

mod names;
mod tree;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use forebay_proto::{DecodeError, Fid, FidSequence, Layout, SessionId, Transno, limits::FILE_BYTES};

use crate::{
    examined::{Fix, KeyedFix},
    finding::{Finding, Findings, Kind, Place},
    report::{MdtInventory, Stats},
    rows::{fid_key, mdt, space},
};

use names::NameGroup;

/// The directory index of an inode that is not a directory.
const NO_DIRECTORY: u32 = u32::MAX;

/// An inode.
struct InodeRecord {
    fid: Fid,
    nlink: u32,
    /// Names found.
    names: u32,
    /// Index in the list of directories.
    directory: u32,
    file_type: u32,
    truncate_epoch: u64,
    is_orphan: bool,
    is_open: bool,
    /// A session may write to it.
    is_written: bool,
    xattrs: bool,
    /// Required length of its inline row, if it has one.
    inline: Option<u64>,
}

/// An object of a file without holes, with its end.
struct Dense {
    /// Indices of the inode and of the file.
    inode: u32,
    file: u32,
    ost: u32,
    bytes: u64,
}

/// Additional data of a directory.
struct Directory {
    inode: u32,
    parent: Fid,
    /// The directory that has its name.
    named_by: Option<Fid>,
    seed: u64,
    entries: u64,
    /// Names found in it.
    found: u64,
    /// Number of directories among them.
    subdirectories: u32,
}

/// The check of an MDT's rows.
#[derive(Default)]
pub(crate) struct MdtCheck {
    secret: Option<u64>,
    inodes: Vec<InodeRecord>,
    directories: Vec<Directory>,
    layouts: BTreeMap<Vec<u32>, u32>,
    inventory: MdtInventory,
    dense: Vec<Dense>,
    group: NameGroup,
    /// Files whose objects have another fid.
    exchanged: BTreeSet<Fid>,
    /// The fids of those objects.
    borrowed: BTreeSet<Fid>,
    /// Inodes that have a row of extended attributes.
    with_xattrs: BTreeSet<Fid>,
    /// Inodes that have an inline row, with its length.
    with_bytes: BTreeMap<Fid, u64>,
    /// Files with a truncate in progress.
    truncating: BTreeSet<Fid>,
    /// The directory whose names come at the moment.
    current: Option<(Fid, Option<usize>)>,
    /// Names that refer to nothing. They are reported only if no inode can have been lost with a page.
    dangling: Vec<Finding>,
    inode_count: Option<u64>,
    next_sequence: Option<u64>,
    names: u64,
    fixes: Vec<KeyedFix>,
}

impl MdtCheck {
    /// Checks a row whose key begins with 0x20 to 0x2d.
    pub(crate) fn row(
        &mut self,
        key: &[u8],
        value: &Bytes,
        last_transno: Transno,
        sessions: &BTreeSet<SessionId>,
        findings: &mut Findings,
    ) {
        let outcome = match key[0] {
            space::SUPERBLOCK => mdt::decode_superblock(value).map(|secret| self.secret = Some(secret)),
            space::INODE => self.inode(key, value, last_transno, findings),
            space::DIRENT => self.dirent(key, value, findings),
            space::XATTR => self.attributes(key, value),
            space::ORPHAN => self.orphan(key, value, findings),
            space::HANDLE => self.handle(key, value, sessions, findings),
            space::LEASE => self.lease(key, value),
            space::DESTROY => self.destroy(key, value, findings),
            space::TRUNCATE => self.truncate(key, value, findings),
            space::COUNTER => self.counter(key, value),
            space::OBJECTS => self.objects(key, value, findings),
            space::INLINE => self.inline(key, value),
            space::MEMBER => mdt::check_member(key, value),
            _ => placement(key, value),
        };
        if let Err(error) = outcome {
            findings.add(Finding::error(Kind::Row, Place::row(key), error.what));
        }
    }

    fn find(&self, fid: Fid) -> Option<usize> {
        self.inodes.binary_search_by_key(&fid, |inode| inode.fid).ok()
    }

    fn inode(
        &mut self,
        key: &[u8],
        value: &[u8],
        last_transno: Transno,
        findings: &mut Findings,
    ) -> Result<(), DecodeError> {
        let fid = fid_key(key).ok_or(WRONG_KEY)?;
        let inode = mdt::Inode::decode(value)?;
        if inode.transno > last_transno {
            let finding = Finding::error(Kind::Ahead, Place::row(key), "an inode is ahead of the target's transnos");
            findings.add(finding.with(last_transno, inode.transno));
        }
        let mut directory = NO_DIRECTORY;
        match &inode.body {
            mdt::Body::Directory { parent, seed, entries } => {
                directory = self.directories.len() as u32;
                self.directory_seed(key, fid, *seed, findings);
                self.directories.push(Directory {
                    inode: self.inodes.len() as u32,
                    parent: *parent,
                    named_by: None,
                    seed: *seed,
                    entries: *entries,
                    found: 0,
                    subdirectories: 0,
                });
            }
            mdt::Body::File(layout) => {
                self.file(fid, layout.objects, &layout.osts());
                if !inode.sparse && !inode.inline && inode.nlink > 0 {
                    self.dense(layout, inode.size);
                }
            }
            mdt::Body::Other => {}
        }
        self.inodes.push(InodeRecord {
            fid,
            nlink: inode.nlink,
            names: 0,
            directory,
            file_type: inode.file_type(),
            truncate_epoch: inode.truncate_epoch,
            is_orphan: false,
            is_open: false,
            is_written: false,
            xattrs: inode.xattrs,
            inline: inode.inline.then_some(inode.size),
        });
        Ok(())
    }

    fn directory_seed(&self, key: &[u8], fid: Fid, seed: u64, findings: &mut Findings) {
        let Some(expected) = self.secret.map(|secret| mdt::seed_of(secret, fid)) else { return };
        if seed != expected {
            let finding = Finding::warning(Kind::NamePlace, Place::row(key), "a directory's hash key is another's");
            findings.add(finding.with(format!("{expected:#x}"), format!("{seed:#x}")));
        }
    }

    fn file(&mut self, fid: Fid, objects: Option<Fid>, osts: &[u32]) {
        if let Some(objects) = objects {
            self.exchanged.insert(fid);
            self.borrowed.insert(objects);
        }
        let next = self.layouts.len() as u32;
        let number = match self.layouts.get(osts) {
            Some(number) => *number,
            None => {
                self.layouts.insert(osts.to_vec(), next);
                self.inventory.layouts.push(osts.to_vec());
                next
            }
        };
        self.inventory.files.push((objects.unwrap_or(fid), number));
    }

    /// Records where the objects of the last file end, which has no holes.
    fn dense(&mut self, layout: &Layout, size: u64) {
        if size > FILE_BYTES || layout.validate().is_err() {
            return;
        }
        let (inode, file) = (self.inodes.len() as u32, self.inventory.files.len() as u32 - 1);
        let ends = layout.object_ends(size).into_iter().filter(|(_, bytes)| *bytes > 0);
        self.dense.extend(ends.map(|(ost, bytes)| Dense { inode, file, ost, bytes }));
    }

    fn attributes(&mut self, key: &[u8], value: &[u8]) -> Result<(), DecodeError> {
        self.with_xattrs.insert(fid_key(key).ok_or(WRONG_KEY)?);
        mdt::decode_xattrs(value).map(drop)
    }

    fn orphan(&mut self, key: &[u8], value: &[u8], findings: &mut Findings) -> Result<(), DecodeError> {
        let fid = fid_key(key).ok_or(WRONG_KEY)?;
        mdt::decode_orphan(value)?;
        match self.find(fid) {
            Some(at) => self.inodes[at].is_orphan = true,
            None => {
                findings.add(Finding::warning(Kind::Orphan, Place::row(key), "an orphan without an inode"));
                self.fixes.push((key.to_vec(), Fix::Delete, Kind::Orphan));
            }
        }
        Ok(())
    }

    fn handle(
        &mut self,
        key: &[u8],
        value: &[u8],
        sessions: &BTreeSet<SessionId>,
        findings: &mut Findings,
    ) -> Result<(), DecodeError> {
        let (fid, session, _) = mdt::handle_key(key).ok_or(WRONG_KEY)?;
        let flags = mdt::decode_handle(value)?;
        match self.find(fid) {
            Some(at) => {
                self.inodes[at].is_open = true;
                self.inodes[at].is_written |= flags & mdt::HANDLE_WRITES != 0;
            }
            None => findings.add(Finding::warning(Kind::Handle, Place::row(key), "a handle of a file that is gone")),
        }
        if !sessions.contains(&SessionId(session)) {
            findings.add(Finding::info(Kind::Handle, Place::row(key), format!("session {session} has no row")));
        }
        Ok(())
    }

    fn lease(&mut self, key: &[u8], value: &[u8]) -> Result<(), DecodeError> {
        mdt::decode_lease(value)?;
        self.inventory.leases.insert(FidSequence(mdt::number_key(key).ok_or(WRONG_KEY)?));
        Ok(())
    }

    fn destroy(&mut self, key: &[u8], value: &[u8], findings: &mut Findings) -> Result<(), DecodeError> {
        let (ost, fid) = mdt::destroy_key(key).ok_or(WRONG_KEY)?;
        mdt::decode_mark(value)?;
        if self.borrowed.contains(&fid) || (self.find(fid).is_some() && !self.exchanged.contains(&fid)) {
            findings.add(Finding::error(Kind::Destroy, Place::row(key), format!("{fid} exists")));
        }
        self.inventory.destroys.insert((ost, fid));
        Ok(())
    }

    fn truncate(&mut self, key: &[u8], value: &[u8], findings: &mut Findings) -> Result<(), DecodeError> {
        let fid = fid_key(key).ok_or(WRONG_KEY)?;
        let epoch = mdt::decode_truncate(value)?;
        self.truncating.insert(fid);
        match self.find(fid).map(|at| &self.inodes[at]) {
            None => {
                findings.add(Finding::warning(Kind::Truncate, Place::row(key), "a truncate of a file that is gone"))
            }
            Some(inode) if inode.truncate_epoch < epoch => {
                let finding = Finding::error(Kind::Truncate, Place::row(key), "a truncate is ahead of its file");
                findings.add(finding.with(format!("epoch {}", inode.truncate_epoch), format!("epoch {epoch}")));
            }
            Some(_) => {}
        }
        Ok(())
    }

    fn objects(&mut self, key: &[u8], value: &[u8], findings: &mut Findings) -> Result<(), DecodeError> {
        let (objects, owner) = (fid_key(key).ok_or(WRONG_KEY)?, mdt::decode_objects(value)?);
        if !self.borrowed.remove(&objects) {
            let words = format!("objects are called {owner}'s that are not");
            findings.add(Finding::warning(Kind::Row, Place::row(key), words));
        }
        Ok(())
    }

    fn inline(&mut self, key: &[u8], value: &[u8]) -> Result<(), DecodeError> {
        self.with_bytes.insert(fid_key(key).ok_or(WRONG_KEY)?, mdt::decode_inline(value)?);
        Ok(())
    }

    fn counter(&mut self, key: &[u8], value: &[u8]) -> Result<(), DecodeError> {
        let count = mdt::decode_counter(value)?;
        match key {
            [_, 0] => self.inode_count = Some(count),
            [_, 1] => self.next_sequence = Some(count),
            _ => return Err(DecodeError::new("a counter not known here")),
        }
        Ok(())
    }

    /// Checks what needs all rows. `incomplete`: rows may have been lost with pages.
    pub(crate) fn finish(
        mut self,
        incomplete: bool,
        findings: &mut Findings,
        stats: &mut Stats,
    ) -> (MdtInventory, Vec<KeyedFix>) {
        self.end_group(findings);
        for Dense { inode, file, ost, bytes } in std::mem::take(&mut self.dense) {
            let (inode, objects) = (&self.inodes[inode as usize], self.inventory.files[file as usize].0);
            if !inode.is_written && !self.truncating.contains(&inode.fid) {
                self.inventory.dense.entry(ost).or_default().push((objects, bytes));
            }
        }
        self.inventory.files.sort_unstable();
        (stats.files, stats.names) = (self.inodes.len() as u64, self.names);
        stats.orphans = self.inodes.iter().filter(|inode| inode.is_orphan).count() as u64;
        if !incomplete {
            findings.extend(std::mem::take(&mut self.dangling));
            self.check_tree(findings);
            self.check_links(findings);
            self.check_xattrs(findings);
            self.check_bytes(findings);
            for objects in &self.borrowed {
                let words =
                    format!("a file has the objects called {objects}, and no row says so: they would be collected");
                findings.add(Finding::error(Kind::Row, inode_place(*objects), words));
            }
            self.check_counters(findings);
        }
        (self.inventory, self.fixes)
    }

    fn check_xattrs(&self, findings: &mut Findings) {
        for inode in self.inodes.iter().filter(|inode| inode.xattrs != self.with_xattrs.contains(&inode.fid)) {
            let words = if inode.xattrs {
                "its extended attributes are missing"
            } else {
                "it does not know of its extended attributes"
            };
            findings.add(Finding::warning(Kind::Xattr, inode_place(inode.fid), words));
        }
        for fid in self.with_xattrs.iter().filter(|fid| self.find(**fid).is_none()) {
            let words = "extended attributes of an inode that is gone";
            findings.add(Finding::warning(Kind::Xattr, inode_place(*fid), words));
        }
    }

    fn check_bytes(&self, findings: &mut Findings) {
        for (inode, size) in self.inodes.iter().filter_map(|inode| Some((inode, inode.inline?))) {
            match self.with_bytes.get(&inode.fid) {
                None => {
                    let words = format!("its {size} bytes, which lie with the MDT, are missing");
                    findings.add(Finding::error(Kind::Bytes, inode_place(inode.fid), words));
                }
                // The file is growing out of its inline row and already has its new size.
                Some(bytes) if *bytes == size || *bytes < size && self.truncating.contains(&inode.fid) => {}
                Some(bytes) => {
                    let finding =
                        Finding::error(Kind::Bytes, inode_place(inode.fid), "its bytes are not as many as it has");
                    findings.add(finding.with(size, *bytes));
                }
            }
        }
        let is_owned = |fid: &Fid| self.find(*fid).is_some_and(|at| self.inodes[at].inline.is_some());
        for fid in self.with_bytes.keys().filter(|fid| !is_owned(fid)) {
            let place = Place::Row([&[space::INLINE][..], &fid.to_key()].concat());
            findings.add(Finding::warning(Kind::Bytes, place, "bytes of a file that has none with the MDT"));
        }
    }

    fn check_counters(&mut self, findings: &mut Findings) {
        if self.inodes.is_empty() {
            return;
        }
        if self.secret.is_none() {
            findings.add(Finding::error(Kind::Row, Place::Row(vec![space::SUPERBLOCK]), "there is no superblock"));
        }
        let count = self.inodes.len() as u64;
        if self.inode_count != Some(count) {
            self.wrong_counter(0, count, self.inode_count, Kind::Counter, findings);
        }
        let of_inodes = self.inodes.iter().map(|inode| inode.fid.sequence().0).filter(|sequence| *sequence > 0).max();
        let highest = self.inventory.leases.last().map(|sequence| sequence.0).max(of_inodes);
        if let Some(highest) = highest.filter(|highest| self.next_sequence.is_none_or(|next| next <= *highest)) {
            self.wrong_counter(1, highest + 1, self.next_sequence, Kind::Counter, findings);
        }
    }

    fn wrong_counter(&mut self, which: u8, right: u64, got: Option<u64>, kind: Kind, findings: &mut Findings) {
        let key = vec![space::COUNTER, which];
        let words = if which == 0 { "the number of inodes" } else { "the next fid sequence is not above those in use" };
        let got = got.map_or("nothing".into(), |got| got.to_string());
        findings.add(Finding::warning(kind, Place::row(&key), words).with(right, got));
        self.fixes.push((key, Fix::Value(mdt::encode_counter(right)), kind));
    }
}

const WRONG_KEY: DecodeError = DecodeError::new("its key has a wrong length");

fn placement(key: &[u8], value: &[u8]) -> Result<(), DecodeError> {
    mdt::number_key(key).ok_or(WRONG_KEY)?;
    mdt::decode_placement(value).map(drop)
}

/// The key of an inode's row.
fn inode_key(fid: Fid) -> Vec<u8> {
    [&[space::INODE][..], &fid.to_key()].concat()
}

fn inode_place(fid: Fid) -> Place {
    Place::Row(inode_key(fid))
}
