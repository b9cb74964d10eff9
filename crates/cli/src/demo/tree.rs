//! A real tree: found and listed. (`copy` and `compare` use it.)

use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU64, Ordering},
};

use forebay_command::{
    error::{CliResult, Doing},
    posix,
};
use serde::{Deserialize, Serialize};

/// Bytes of one read or write of a copier.
pub const CHUNK_BYTES: usize = 1 << 20;

/// A file, directory or symbolic link of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Relative to the tree's root.
    pub path: PathBuf,
    /// Its kind.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Modification time, nanoseconds since 1970.
    pub mtime_ns: i128,
}

/// The kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Dir,
    /// A regular file with this many bytes.
    File(u64),
    /// A symbolic link, and its target.
    Link(PathBuf),
}

impl Kind {
    /// The kind of a regular file.
    pub fn of_file(meta: &Metadata) -> Self {
        Self::File(meta.len())
    }
}

/// A tree: its root and its entries, parents before children.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Its root.
    pub root: PathBuf,
    /// Its entries, ordered by path.
    pub entries: Vec<Entry>,
    /// The bounds of the scan: another scan with these bounds finds the same entries.
    pub bounds: Bounds,
}

/// How much of a tree to take.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Bounds {
    /// Most entries.
    pub entries: usize,
    /// Most bytes.
    pub bytes: u64,
}

/// The first of these that exists: the Rust toolchain's documentation (not all installations have it), the sources of
/// dependencies, this program's own directory.
pub fn find_source() -> PathBuf {
    let documentation = Command::new("rustc").args(["--print", "sysroot"]).output().ok().and_then(|output| {
        let sysroot = String::from_utf8(output.stdout).ok()?;
        let documentation = PathBuf::from(sysroot.trim()).join("share/doc");
        documentation.join("rust/html").is_dir().then_some(documentation)
    });
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo_home = cargo_home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let sources = cargo_home.map(|home| home.join("registry/src"));
    let own = std::env::current_exe().ok().and_then(|path| path.parent().map(Path::to_owned));
    let mut candidates = [documentation, sources, own].into_iter().flatten();
    let has_something = |path: &PathBuf| fs::read_dir(path).is_ok_and(|mut dir| dir.next().is_some());
    candidates.find(has_something).unwrap_or("/etc".into())
}

impl Tree {
    /// No bounds.
    #[cfg(test)]
    pub const ALL: Bounds = Bounds { entries: usize::MAX, bytes: u64::MAX };

    /// Lists the entries below `root`, as far as `bounds` allow. Only files, directories and links are listed.
    pub fn scan(root: &Path, bounds: Bounds) -> CliResult<Self> {
        let mut tree = Self { root: root.to_owned(), entries: Vec::new(), bounds };
        let mut bytes_left = bounds.bytes;
        tree.scan_dir(Path::new(""), bounds.entries, &mut bytes_left)
            .doing(|| format!("cannot list {}", root.display()))?;
        Ok(tree)
    }

    fn scan_dir(&mut self, dir: &Path, most: usize, bytes_left: &mut u64) -> io::Result<()> {
        let mut names: Vec<_> =
            fs::read_dir(self.root.join(dir))?.map(|e| e.map(|e| e.file_name())).collect::<Result<_, _>>()?;
        names.sort();
        for name in names {
            let path = dir.join(name);
            let Some(entry) = read_entry(&self.root, path)? else { continue };
            let bytes = if let Kind::File(bytes) = entry.kind { bytes } else { 0 };
            if self.entries.len() >= most {
                return Ok(());
            }
            if bytes > *bytes_left {
                continue;
            }
            *bytes_left -= bytes;
            let subdir = (entry.kind == Kind::Dir).then(|| entry.path.clone());
            self.entries.push(entry);
            if let Some(subdir) = subdir {
                self.scan_dir(&subdir, most, bytes_left)?;
            }
        }
        Ok(())
    }

    /// The first `most` entries.
    pub fn beginning(&self, most: usize) -> Self {
        let entries = self.entries.iter().take(most).cloned().collect();
        let bounds = Bounds { entries: most.min(self.bounds.entries), ..self.bounds };
        Self { root: self.root.clone(), entries, bounds }
    }

    /// The entries whose numbers are marked.
    pub fn only(&self, marked: &[bool]) -> Self {
        let entries = self.entries.iter().zip(marked).filter(|(_, marked)| **marked).map(|(entry, _)| entry.clone());
        Self { root: self.root.clone(), entries: entries.collect(), bounds: self.bounds }
    }

    /// Number of regular files.
    pub fn file_count(&self) -> u64 {
        self.entries.iter().filter(|entry| matches!(entry.kind, Kind::File(_))).count() as u64
    }

    /// Number of directories.
    pub fn dir_count(&self) -> u64 {
        self.entries.iter().filter(|entry| entry.kind == Kind::Dir).count() as u64
    }

    /// Number of symbolic links.
    pub fn link_count(&self) -> u64 {
        self.entries.len() as u64 - self.file_count() - self.dir_count()
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        let size = |entry: &Entry| if let Kind::File(bytes) = entry.kind { bytes } else { 0 };
        self.entries.iter().map(size).sum()
    }
}

/// The entry at `path` below `root`; `None` if it is neither file, directory nor link.
pub fn read_entry(root: &Path, path: PathBuf) -> io::Result<Option<Entry>> {
    let full = root.join(&path);
    let meta = full.symlink_metadata()?;
    let kind = match meta.file_type() {
        t if t.is_dir() => Kind::Dir,
        t if t.is_file() => Kind::of_file(&meta),
        t if t.is_symlink() => Kind::Link(fs::read_link(&full)?),
        _ => return Ok(None),
    };
    Ok(Some(entry_of(path, kind, &meta)))
}

/// The entry that `meta` describes.
pub fn entry_of(path: PathBuf, kind: Kind, meta: &Metadata) -> Entry {
    let mtime_ns = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
    Entry { path, kind, mode: meta.mode() & 0o7777, mtime_ns }
}

/// Progress that copiers report while they work.
#[derive(Debug, Default)]
pub struct Pulse {
    /// Entries copied or compared so far.
    pub entries: AtomicU64,
    /// The longest time for one entry, in nanoseconds: how long a program saw a stall.
    pub longest_ns: AtomicU64,
}

impl Pulse {
    /// Counts one more entry, begun at `began_ns`.
    pub fn beat(&self, began_ns: u64) {
        self.took(posix::monotonic_ns() - began_ns);
    }

    /// Counts one more entry, which took `ns`.
    pub fn took(&self, ns: u64) {
        self.entries.fetch_add(1, Ordering::Relaxed);
        self.longest_ns.fetch_max(ns, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_listed_parents_first_as_far_as_bounds_allow() {
        let root = std::env::temp_dir().join(format!("forebay-tree-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).expect("made");
        for (name, bytes) in [("a/b/large", 1000), ("a/small", 3), ("z", 0)] {
            fs::write(root.join(name), vec![7; bytes]).expect("written");
        }
        let scan = |entries, bytes| Tree::scan(&root, Bounds { entries, bytes }).expect("a tree");
        let paths =
            |tree: &Tree| tree.entries.iter().map(|e| e.path.display().to_string()).collect::<Vec<_>>().join(" ");
        let (all, few, small) = (scan(100, 1 << 20), scan(3, 1 << 20), scan(100, 100));
        fs::remove_dir_all(&root).expect("removed");
        assert_eq!(paths(&all), "a a/b a/b/large a/small z");
        assert_eq!((all.file_count(), all.dir_count(), all.link_count(), all.bytes()), (3, 2, 0, 1003));
        assert_eq!(paths(&few), "a a/b a/b/large");
        assert_eq!(all.beginning(3).entries, few.entries);
        assert_eq!(paths(&small), "a a/b a/small z");
    }
}
