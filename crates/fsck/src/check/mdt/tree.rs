//! Checks the tree: every directory is reachable from the root, and every inode has as many names as it counts, or is
//! an orphan.

use forebay_proto::Fid;

use super::{InodeRecord, MdtCheck, NO_DIRECTORY, inode_key, inode_place};
use crate::{
    examined::Fix,
    finding::{Finding, Findings, Kind, Place},
    rows::space,
};

/// What is known of a directory's path up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Unknown,
    OnIt,
    Ends,
}

impl MdtCheck {
    /// Walks up from every directory; each is visited once.
    pub(super) fn check_tree(&mut self, findings: &mut Findings) {
        let mut ways = vec![Way::Unknown; self.directories.len()];
        for start in 0..self.directories.len() {
            let (mut at, mut path) = (start, Vec::new());
            loop {
                if ways[at] == Way::OnIt {
                    let fid = self.fid_of(at);
                    let words = "the directory lies in itself: its ring hangs at nothing";
                    findings.add(Finding::error(Kind::Tree, inode_place(fid), words));
                }
                if ways[at] != Way::Unknown {
                    break;
                }
                ways[at] = Way::OnIt;
                path.push(at);
                let above = self.directories[at].named_by.and_then(|fid| self.find(fid));
                match above.map(|at| self.inodes[at].directory).filter(|number| *number != NO_DIRECTORY) {
                    Some(above) if self.fid_of(at) != Fid::ROOT => at = above as usize,
                    // The root, or a directory without a name, which is reported elsewhere.
                    _ => break,
                }
            }
            path.into_iter().for_each(|at| ways[at] = Way::Ends);
        }
        if !self.inodes.is_empty() && self.find(Fid::ROOT).is_none() {
            findings.add(Finding::error(Kind::Tree, inode_place(Fid::ROOT), "there is no root directory"));
        }
    }

    fn fid_of(&self, directory: usize) -> Fid {
        self.inodes[self.directories[directory].inode as usize].fid
    }

    /// Compares the counts of inodes with what was found.
    pub(super) fn check_links(&mut self, findings: &mut Findings) {
        let inodes = std::mem::take(&mut self.inodes);
        for inode in &inodes {
            match inode.directory {
                NO_DIRECTORY => self.check_file(inode, findings),
                number => self.check_directory(inode, number as usize, findings),
            }
            self.check_orphan(inode, findings);
        }
        self.inodes = inodes;
    }

    fn check_file(&mut self, inode: &InodeRecord, findings: &mut Findings) {
        match (inode.names, inode.nlink) {
            (0, 0) => {}
            (0, _) => self.lost(inode, findings),
            (names, nlink) if names != nlink => self.wrong_nlink(inode, names, findings),
            _ => {}
        }
    }

    fn check_directory(&mut self, inode: &InodeRecord, number: usize, findings: &mut Findings) {
        let directory = &self.directories[number];
        let (found, entries, right) = (directory.found, directory.entries, 2 + directory.subdirectories);
        let is_root = inode.fid == Fid::ROOT;
        if is_root && directory.parent != Fid::ROOT {
            let finding = Finding::error(Kind::ParentLink, inode_place(inode.fid), "the root is not its own parent");
            findings.add(finding.with(Fid::ROOT, directory.parent));
        }
        if is_root && inode.names > 0 {
            findings.add(Finding::error(Kind::Tree, inode_place(inode.fid), "the root has a name"));
        }
        if found != entries {
            let finding = Finding::warning(Kind::EntryCount, inode_place(inode.fid), "names in the directory");
            findings.add(finding.with(found, entries));
            self.fixes.push((inode_key(inode.fid), Fix::Entries(found), Kind::EntryCount));
        }
        match inode.nlink {
            0 if inode.names == 0 && !is_root => {}
            _ if inode.names == 0 && !is_root => self.lost(inode, findings),
            nlink if nlink != right => self.wrong_nlink(inode, right, findings),
            _ => {}
        }
    }

    fn lost(&self, inode: &InodeRecord, findings: &mut Findings) {
        let finding = Finding::error(Kind::LostInode, inode_place(inode.fid), "no name points to it");
        findings.add(finding.with(format!("{} names", inode.nlink), "none"));
    }

    fn wrong_nlink(&mut self, inode: &InodeRecord, right: u32, findings: &mut Findings) {
        let finding = Finding::warning(Kind::LinkCount, inode_place(inode.fid), "its number of names");
        findings.add(finding.with(right, inode.nlink));
        self.fixes.push((inode_key(inode.fid), Fix::Nlink(right), Kind::LinkCount));
    }

    fn check_orphan(&mut self, inode: &InodeRecord, findings: &mut Findings) {
        let key = [&[space::ORPHAN][..], &inode.fid.to_key()].concat();
        let nameless = inode.nlink == 0 && inode.names == 0;
        match (nameless, inode.is_orphan) {
            (true, false) => {
                let words = "an inode without names has no orphan row: it would never be reaped";
                findings.add(Finding::warning(Kind::Orphan, inode_place(inode.fid), words));
                self.fixes.push((key, Fix::Value(vec![1, 0]), Kind::Orphan));
            }
            (false, true) => {
                let words = "an inode with names is an orphan: it would be reaped";
                findings.add(Finding::error(Kind::Orphan, Place::Row(key.clone()), words));
                self.fixes.push((key, Fix::Delete, Kind::Orphan));
            }
            (true, true) if !inode.is_open => {
                let words = "nobody has the orphan open: it is reaped when the target starts";
                findings.add(Finding::info(Kind::Orphan, Place::Row(key), words));
            }
            _ => {}
        }
    }
}
