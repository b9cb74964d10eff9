//! Paths of files according to an MDT, for users who read the list of what may be missing.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use forebay_proto::Fid;

use crate::{
    FsckResult,
    rows::{
        mdt::{self, DIRECTORY, Dirent},
        space,
    },
};

use super::inodes::Mdt;

/// Most directories on the path to a file.
const DEPTH: usize = 1024;

/// By fid: its parent directory and its name.
type Named = BTreeMap<Fid, (Fid, Bytes)>;

/// A path for each of `files`, if one leads to it. If a file has several names, the first one found.
pub(super) async fn find(mdt: &Mdt, files: &BTreeSet<Fid>) -> FsckResult<BTreeMap<Fid, String>> {
    let mut named = Named::new();
    if !files.is_empty() {
        mdt.each_row(|key, value| {
            let Some((parent, _)) = mdt::dirent_key(key).filter(|_| key[0] == space::DIRENT) else { return };
            let Some(entry) = Dirent::decode(value).ok().and_then(|row| row.entry) else { return };
            if entry.file_type == DIRECTORY || files.contains(&entry.fid) {
                named.entry(entry.fid).or_insert((parent, entry.name));
            }
        })
        .await?;
    }
    Ok(files.iter().filter_map(|file| Some((*file, path(&named, *file)?))).collect())
}

fn path(named: &Named, file: Fid) -> Option<String> {
    let (mut at, mut names) = (file, Vec::new());
    while at != Fid::ROOT && names.len() < DEPTH {
        let (parent, name) = named.get(&at)?;
        names.push(String::from_utf8_lossy(name));
        at = *parent;
    }
    names.reverse();
    Some(format!("/{}", names.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_what_leads_from_the_root_to_a_file() {
        let fid = |low| Fid { high: 0, low };
        let name = |name: &'static str| Bytes::from_static(name.as_bytes());
        let named = Named::from([
            (fid(100), (Fid::ROOT, name("a"))),
            (fid(101), (fid(100), name("b"))),
            (fid(102), (fid(103), name("c"))),
            (fid(104), (fid(105), name("d"))),
            (fid(105), (fid(104), name("e"))),
        ]);
        assert_eq!(path(&named, fid(101)).as_deref(), Some("/a/b"));
        assert_eq!(path(&named, fid(102)), None, "nothing leads to it");
        assert!(path(&named, fid(104)).is_some(), "a ring ends");
    }
}
