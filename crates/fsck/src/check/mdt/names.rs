//! Checks the names of directories, in the order of their keys: by directory, then by cookie.

use std::collections::BTreeSet;

use bytes::Bytes;
use forebay_proto::{DecodeError, Fid};

use super::{MdtCheck, NO_DIRECTORY, WRONG_KEY};
use crate::{
    finding::{Finding, Findings, Kind, Place},
    rows::mdt::{self, DIRECTORY, Entry},
};

/// The names with one hash in one directory.
#[derive(Default)]
pub(super) struct NameGroup {
    /// The directory and the hash.
    of: Option<(Fid, u64)>,
    /// What the row of collision number 0 contains: the highest number in use, and whether it has a name.
    head: Option<(u64, bool)>,
    highest: u64,
    names: BTreeSet<Bytes>,
    key: Vec<u8>,
}

impl MdtCheck {
    pub(super) fn dirent(&mut self, key: &[u8], value: &[u8], findings: &mut Findings) -> Result<(), DecodeError> {
        let (parent, cookie) = mdt::dirent_key(key).ok_or(WRONG_KEY)?;
        let (hash, number) = (cookie >> 15, cookie & 0x7fff);
        if self.group.of != Some((parent, hash)) {
            self.end_group(findings);
            self.group = NameGroup { of: Some((parent, hash)), key: key.to_vec(), ..NameGroup::default() };
        }
        let row = mdt::Dirent::decode(value)?;
        self.group.highest = self.group.highest.max(number);
        if number == 0 {
            self.group.head = Some((row.highest, row.entry.is_some()));
        } else if row.highest != 0 || row.entry.is_none() {
            let words = "a row that is not the first of its hash is empty or counts others";
            findings.add(Finding::error(Kind::NamePlace, Place::row(key), words));
        }
        let directory = self.directory_of(parent, key, findings);
        if let Some(entry) = row.entry {
            self.name(key, cookie, parent, directory, entry, findings);
        }
        Ok(())
    }

    /// The directory that the names are in. If there is none, that is reported once.
    fn directory_of(&mut self, parent: Fid, key: &[u8], findings: &mut Findings) -> Option<usize> {
        if let Some((_, known)) = self.current.filter(|(fid, _)| *fid == parent) {
            return known;
        }
        let inode = self.find(parent).map(|at| self.inodes[at].directory);
        let found = inode.filter(|number| *number != NO_DIRECTORY).map(|number| number as usize);
        if found.is_none() {
            let words = format!("names lie in {parent}, which is no directory");
            match inode {
                None => self.dangling.push(Finding::error(Kind::Tree, Place::row(key), words)),
                Some(_) => findings.add(Finding::error(Kind::Tree, Place::row(key), words)),
            }
        }
        self.current = Some((parent, found));
        found
    }

    fn name(
        &mut self,
        key: &[u8],
        cookie: u64,
        parent: Fid,
        directory: Option<usize>,
        entry: Entry,
        findings: &mut Findings,
    ) {
        self.names += 1;
        let place = || Place::row(key);
        let shown = String::from_utf8_lossy(&entry.name).into_owned();
        if !mdt::is_name(&entry.name) {
            findings.add(Finding::error(Kind::NamePlace, place(), format!("{shown:?} cannot be a name")));
        }
        if !self.group.names.insert(entry.name.clone()) {
            findings.add(Finding::error(Kind::NamePlace, place(), format!("{shown:?} is there twice")));
        }
        if let Some(directory) = directory {
            let first = mdt::first_cookie(self.directories[directory].seed, &entry.name);
            if first != cookie & !0x7fff {
                let finding =
                    Finding::error(Kind::NamePlace, place(), format!("{shown:?} is not where its hash puts it"));
                findings.add(finding.with(format!("{first:#x}"), format!("{cookie:#x}")));
            }
            self.directories[directory].found += 1;
            self.directories[directory].subdirectories += u32::from(entry.file_type == DIRECTORY);
        }
        let Some(at) = self.find(entry.fid) else {
            let words = format!("{shown:?} points to {}, which does not exist", entry.fid);
            self.dangling.push(Finding::error(Kind::DanglingName, place(), words));
            return;
        };
        let inode = &mut self.inodes[at];
        inode.names = inode.names.saturating_add(1);
        if inode.file_type != entry.file_type {
            let finding =
                Finding::error(Kind::NameType, place(), format!("{shown:?} tells another type than its inode"));
            findings.add(finding.with(format!("{:#o}", inode.file_type), format!("{:#o}", entry.file_type)));
        }
        if inode.directory != NO_DIRECTORY {
            let child = inode.directory as usize;
            self.directory_named(child, parent, &shown, key, findings);
        }
    }

    fn directory_named(&mut self, child: usize, parent: Fid, shown: &str, key: &[u8], findings: &mut Findings) {
        let child = &mut self.directories[child];
        if let Some(other) = child.named_by.replace(parent) {
            let words = format!("the directory {shown:?} is named in {other}, too");
            findings.add(Finding::error(Kind::Tree, Place::row(key), words));
        }
        if child.parent != parent {
            let finding =
                Finding::error(Kind::ParentLink, Place::row(key), format!("{shown:?} says it lies elsewhere"));
            findings.add(finding.with(parent, child.parent));
        }
    }

    /// Compares a complete group with its first row.
    pub(super) fn end_group(&mut self, findings: &mut Findings) {
        let group = std::mem::take(&mut self.group);
        let wrong = match group.head {
            _ if group.of.is_none() => None,
            None => Some(("the first row of a hash is missing: its names cannot be looked up", 0)),
            Some((0, false)) => Some(("the first row of a hash is there for nothing", 0)),
            Some((highest, _)) if highest != group.highest => {
                Some(("the first row of a hash tells another number of names", highest))
            }
            Some(_) => None,
        };
        if let Some((words, got)) = wrong {
            let finding = Finding::error(Kind::NamePlace, Place::Row(group.key), words);
            findings.add(finding.with(group.highest, got));
        }
    }
}
