//! A real tree: found, listed, copied, compared by name, mode, size, time, link target and byte.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, Permissions},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
};

use crate::{
    error::{CliError, CliResult, Doing},
    posix,
};

/// Programs that copy or compare side by side.
pub const COPIERS: usize = 4;
/// Bytes of one read or write.
const CHUNK_BYTES: usize = 1 << 20;

/// A file, directory or symbolic link of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Relative to the tree's root.
    pub path: PathBuf,
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Modification time, nanoseconds since 1970.
    pub mtime_ns: i128,
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Dir,
    /// A regular file of so many bytes.
    File(u64),
    /// A symbolic link, and where it points.
    Link(PathBuf),
}

/// A tree: its root and what is below, parents before children.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Where it lies.
    pub root: PathBuf,
    /// What is below, ordered by path.
    pub entries: Vec<Entry>,
}

/// How much of a tree to take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most entries.
    pub entries: usize,
    /// Most bytes.
    pub bytes: u64,
}

/// The first of these that is there: the Rust toolchain's documentation, the sources of dependencies, this program's own
/// directory.
pub fn find_source() -> PathBuf {
    let documentation = Command::new("rustc").args(["--print", "sysroot"]).output().ok().and_then(|output| {
        let sysroot = String::from_utf8(output.stdout).ok()?;
        Some(PathBuf::from(sysroot.trim()).join("share/doc"))
    });
    let sources = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo/registry/src"));
    let own = std::env::current_exe().ok().and_then(|path| path.parent().map(Path::to_owned));
    let candidates = [documentation, sources, own].into_iter().flatten();
    candidates
        .into_iter()
        .find(|path| fs::read_dir(path).is_ok_and(|mut dir| dir.next().is_some()))
        .unwrap_or("/etc".into())
}

impl Tree {
    /// Lists what is below `root`, as far as `bounds` allow. What is neither file, directory nor link is left out.
    pub fn scan(root: &Path, bounds: Bounds) -> CliResult<Self> {
        let mut tree = Self { root: root.to_owned(), entries: Vec::new() };
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

    /// Regular files.
    pub fn file_count(&self) -> u64 {
        self.entries.iter().filter(|entry| matches!(entry.kind, Kind::File(_))).count() as u64
    }

    /// Directories.
    pub fn dir_count(&self) -> u64 {
        self.entries.iter().filter(|entry| entry.kind == Kind::Dir).count() as u64
    }

    /// Symbolic links.
    pub fn link_count(&self) -> u64 {
        self.entries.len() as u64 - self.file_count() - self.dir_count()
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        let size = |entry: &Entry| if let Kind::File(bytes) = entry.kind { bytes } else { 0 };
        self.entries.iter().map(size).sum()
    }
}

fn read_entry(root: &Path, path: PathBuf) -> io::Result<Option<Entry>> {
    let full = root.join(&path);
    let meta = full.symlink_metadata()?;
    let kind = match meta.file_type() {
        t if t.is_dir() => Kind::Dir,
        t if t.is_file() => Kind::File(meta.len()),
        t if t.is_symlink() => Kind::Link(fs::read_link(&full)?),
        _ => return Ok(None),
    };
    let mtime_ns = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
    Ok(Some(Entry { path, kind, mode: meta.mode() & 0o7777, mtime_ns }))
}

/// What copiers tell while they work.
#[derive(Debug, Default)]
pub struct Pulse {
    /// Entries copied or compared so far.
    pub entries: AtomicU64,
    /// The longest that one entry took, in nanoseconds: what a program saw of a stall.
    pub longest_ns: AtomicU64,
}

impl Pulse {
    /// One more entry, begun at `began_ns`.
    pub fn beat(&self, began_ns: u64) {
        self.entries.fetch_add(1, Ordering::Relaxed);
        self.longest_ns.fetch_max(posix::monotonic_ns() - began_ns, Ordering::Relaxed);
    }
}

/// Copies `tree` to the new directory `to`, with modes, times and links, by [`COPIERS`] threads. Before each file
/// `go_on` is asked; at the first `false` the rest is left out. Returns what was copied.
pub fn copy(tree: &Tree, to: &Path, pulse: &Pulse, go_on: &(dyn Fn() -> bool + Sync)) -> CliResult<Tree> {
    fs::create_dir(to).doing(|| format!("cannot make {}", to.display()))?;
    let mut copied = tree.clone();
    let reached = each_in_parallel(&tree.entries, |entry| {
        if entry.kind == Kind::Dir || go_on() {
            let began_ns = posix::monotonic_ns();
            copy_entry(&tree.root, to, entry).doing(|| format!("cannot copy to {}", to.join(&entry.path).display()))?;
            pulse.beat(began_ns);
            return Ok(true);
        }
        Ok(false)
    })?;
    copied.entries = tree.entries.iter().zip(reached).filter(|(_, done)| *done).map(|(e, _)| e.clone()).collect();
    for entry in copied.entries.iter().rev().filter(|entry| entry.kind == Kind::Dir) {
        finish_dir(to, entry).doing(|| format!("cannot set times of {}", to.join(&entry.path).display()))?;
    }
    Ok(copied)
}

/// Directories first, in order, by one thread; then all else, by several.
fn each_in_parallel(entries: &[Entry], work: impl Fn(&Entry) -> CliResult<bool> + Sync) -> CliResult<Vec<bool>> {
    let mut reached = vec![false; entries.len()];
    for (i, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.kind == Kind::Dir) {
        reached[i] = work(entry)?;
    }
    let others: Vec<usize> = (0..entries.len()).filter(|&i| entries[i].kind != Kind::Dir).collect();
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, bool)>> = Mutex::new(Vec::new());
    let copier = || -> CliResult {
        while let Some(&i) = others.get(next.fetch_add(1, Ordering::Relaxed)) {
            let done = work(&entries[i])?;
            results.lock().expect("no copier panics").push((i, done));
        }
        Ok(())
    };
    let ends: Vec<CliResult> = thread::scope(|scope| {
        let threads: Vec<_> = (0..COPIERS).map(|_| scope.spawn(copier)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no copier panics")).collect()
    });
    ends.into_iter().collect::<CliResult>()?;
    results.into_inner().expect("no copier panics").into_iter().for_each(|(i, done)| reached[i] = done);
    Ok(reached)
}

fn copy_entry(from: &Path, to: &Path, entry: &Entry) -> io::Result<()> {
    let (from, to) = (from.join(&entry.path), to.join(&entry.path));
    match &entry.kind {
        // Writable until everything is in it; mode and times come last.
        Kind::Dir => return fs::create_dir(&to),
        Kind::Link(target) => symlink(target, &to)?,
        Kind::File(_) => {
            let mut file = File::options().write(true).create_new(true).open(&to)?;
            copy_bytes(&mut File::open(&from)?, &mut file)?;
            file.set_permissions(Permissions::from_mode(entry.mode))?;
            // Through the descriptor, as cp does: no second walk along the path.
            return posix::set_times_of(&file, entry.mtime_ns, entry.mtime_ns);
        }
    }
    posix::set_times(&to, entry.mtime_ns, entry.mtime_ns)
}

fn copy_bytes(from: &mut File, to: &mut File) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            length => to.write_all(&buffer[..length])?,
        }
    }
}

fn finish_dir(to: &Path, entry: &Entry) -> io::Result<()> {
    let path = to.join(&entry.path);
    fs::set_permissions(&path, Permissions::from_mode(entry.mode))?;
    posix::set_times(&path, entry.mtime_ns, entry.mtime_ns)
}

/// Compares `tree` with what lies at `at`: every name (also: none more), mode, size, time, link target and byte.
pub fn compare(tree: &Tree, at: &Path, pulse: &Pulse) -> CliResult {
    let found = Tree::scan(at, Bounds { entries: usize::MAX, bytes: u64::MAX })?;
    let there: BTreeMap<&Path, &Entry> = found.entries.iter().map(|entry| (entry.path.as_path(), entry)).collect();
    let wanted: BTreeSet<&Path> = tree.entries.iter().map(|entry| entry.path.as_path()).collect();
    if let Some(more) = there.keys().find(|path| !wanted.contains(*path)) {
        return Err(CliError::mismatch(format!("{} should not be there", at.join(more).display())));
    }
    each_in_parallel(&tree.entries, |entry| {
        let began_ns = posix::monotonic_ns();
        let missing = || CliError::mismatch(format!("{} is missing", at.join(&entry.path).display()));
        compare_entry(&tree.root, at, entry, there.get(entry.path.as_path()).ok_or_else(missing)?)?;
        pulse.beat(began_ns);
        Ok(true)
    })
    .map(drop)
}

fn compare_entry(root: &Path, at: &Path, wanted: &Entry, found: &Entry) -> CliResult {
    let path = at.join(&wanted.path);
    let shown = path.display();
    // A link's permissions mean nothing and differ between file systems.
    let same_mode = matches!(wanted.kind, Kind::Link(_)) || found.mode == wanted.mode;
    if found.kind != wanted.kind || !same_mode || found.mtime_ns != wanted.mtime_ns {
        return Err(CliError::mismatch(format!("{shown} is {found:?} and should be {wanted:?}")));
    }
    if matches!(wanted.kind, Kind::File(_)) {
        let first = first_difference(&root.join(&wanted.path), &path).doing(|| format!("cannot compare {shown}"))?;
        if let Some(offset) = first {
            return Err(CliError::mismatch(format!("{shown} differs from its original at byte {offset}")));
        }
    }
    Ok(())
}

fn first_difference(a: &Path, b: &Path) -> io::Result<Option<u64>> {
    let (mut a, mut b) = (File::open(a)?, File::open(b)?);
    let (mut left, mut right) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    let mut offset = 0;
    loop {
        let (x, y) = (read_full(&mut a, &mut left)?, read_full(&mut b, &mut right)?);
        if let Some(at) = left[..x].iter().zip(&right[..y]).position(|(l, r)| l != r) {
            return Ok(Some(offset + at as u64));
        }
        if x != y {
            return Ok(Some(offset + x.min(y) as u64));
        }
        if x == 0 {
            return Ok(None);
        }
        offset += x as u64;
    }
}

fn read_full(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read(&mut buffer[length..])? {
            0 => break,
            more => length += more,
        }
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Bounds = Bounds { entries: usize::MAX, bytes: u64::MAX };

    /// A small tree, removed after the test.
    struct Made(PathBuf);

    impl Made {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("forebay-tree-{name}-{}", std::process::id()));
            fs::create_dir_all(root.join("from/a/b")).expect("made");
            fs::write(root.join("from/a/b/one"), vec![1; 3_000_000]).expect("written");
            fs::write(root.join("from/a/two"), "two").expect("written");
            fs::set_permissions(root.join("from/a/two"), Permissions::from_mode(0o640)).expect("set");
            fs::write(root.join("from/empty"), "").expect("written");
            symlink("a/two", root.join("from/link")).expect("made");
            posix::set_times(&root.join("from/a"), 5, 1_234_567_890_123_456_789).expect("set");
            Self(root)
        }

        fn copied(&self) -> Tree {
            let tree = Tree::scan(&self.0.join("from"), ALL).expect("a tree");
            copy(&tree, &self.to(), &Pulse::default(), &|| true).expect("copied")
        }

        fn to(&self) -> PathBuf {
            self.0.join("to")
        }
    }

    impl Drop for Made {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_copy_is_the_same_in_every_respect() {
        let made = Made::new("same");
        let tree = made.copied();
        assert_eq!((tree.file_count(), tree.dir_count(), tree.link_count(), tree.bytes()), (3, 2, 1, 3_000_003));
        let pulse = Pulse::default();
        compare(&tree, &made.to(), &pulse).expect("the same");
        assert_eq!(pulse.entries.load(Ordering::Relaxed), 6);
    }

    #[test]
    fn every_kind_of_difference_is_found_and_named() {
        type Damage = fn(&Path) -> io::Result<()>;
        let damages: [(&str, Damage); 6] = [
            ("at byte 2999999", |to| {
                let mut bytes = fs::read(to.join("a/b/one"))?;
                bytes[2_999_999] ^= 1;
                let mtime = read_entry(to, "a/b/one".into())?.expect("a file").mtime_ns;
                fs::write(to.join("a/b/one"), bytes)?;
                posix::set_times(&to.join("a/b/one"), 0, mtime)
            }),
            ("empty is missing", |to| fs::remove_file(to.join("empty"))),
            ("more should not be there", |to| fs::write(to.join("a/more"), "")),
            ("a/two", |to| fs::set_permissions(to.join("a/two"), Permissions::from_mode(0o600))),
            ("to/a is", |to| posix::set_times(&to.join("a"), 0, 0)),
            ("link", |to| fs::remove_file(to.join("link")).and_then(|()| symlink("a/b", to.join("link")))),
        ];
        for (number, (words, damage)) in damages.into_iter().enumerate() {
            let made = Made::new(&format!("damage-{number}"));
            let tree = made.copied();
            damage(&made.to()).expect("damaged");
            let error = compare(&tree, &made.to(), &Pulse::default()).expect_err(words);
            assert!(error.exit_code() == 3 && error.message.contains(words), "{words}: {error}");
        }
    }

    #[test]
    fn bounds_leave_out_the_rest_and_a_stopped_copy_says_what_it_copied() {
        let made = Made::new("bounds");
        let small = Tree::scan(&made.0.join("from"), Bounds { entries: 10, bytes: 100 }).expect("a tree");
        assert_eq!((small.file_count(), small.bytes()), (2, 3));
        let none = copy(&small, &made.to(), &Pulse::default(), &|| false).expect("copied");
        assert_eq!((none.file_count(), none.dir_count()), (0, 2));
        compare(&none, &made.to(), &Pulse::default()).expect("the same");
    }
}
