//! Compares a tree with its original: names, modes, sizes, times, link targets and bytes.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

use forebay_command::{
    error::{CliError, CliResult, Doing},
    posix,
};

use super::{
    crew::{Share, each, shares},
    dir::Dir,
    tree::{CHUNK_BYTES, Entry, Kind, Pulse, Tree, entry_of, read_entry},
};

/// Compares `tree` with the tree at `at`: every name (and no additional one), mode, size, time, link target and byte.
pub fn compare(tree: &Tree, at: &Path, pulse: &Pulse) -> CliResult {
    let shares = shares(tree);
    // Names first: an additional file also changes the times of its directory.
    each(&shares, || (), |(), share| share.all.iter().try_for_each(|all| compare_names(at, share.dir, all)))?;
    let begin = || [vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]];
    each(&shares, begin, |buffers, share| compare_share(tree, at, share, pulse, buffers))
}

fn compare_share(tree: &Tree, at: &Path, share: &Share<'_>, pulse: &Pulse, buffers: &mut [Vec<u8>; 2]) -> CliResult {
    for entry in share.all.iter().flatten().filter(|entry| entry.kind == Kind::Dir) {
        let began_ns = posix::monotonic_ns();
        compare_entry(at, entry, look(at, entry)?.as_ref())?;
        pulse.beat(began_ns);
    }
    if share.entries.is_empty() {
        return Ok(());
    }
    let open = |root: &Path| {
        let path = root.join(share.dir);
        Dir::open(&path).doing(|| format!("cannot open {}", path.display()))
    };
    let (originals, copies) = (open(&tree.root)?, open(at)?);
    for &number in &share.entries {
        let (entry, began_ns) = (&tree.entries[number], posix::monotonic_ns());
        match entry.kind {
            Kind::File(_) => compare_file(at, entry, &originals, &copies, buffers)?,
            _ => compare_entry(at, entry, look(at, entry)?.as_ref())?,
        }
        pulse.beat(began_ns);
    }
    Ok(())
}

/// Checks that one directory has exactly the wanted names.
fn compare_names(at: &Path, dir: &Path, wanted: &[&Entry]) -> CliResult {
    let path = at.join(dir);
    let list = || -> io::Result<BTreeSet<OsString>> {
        fs::read_dir(&path)?.map(|entry| entry.map(|entry| entry.file_name())).collect()
    };
    let found = list().doing(|| format!("cannot list {}", path.display()))?;
    let wanted: BTreeSet<&OsStr> = wanted.iter().map(|entry| entry.path.file_name().unwrap_or_default()).collect();
    match found.iter().find(|name| !wanted.contains(name.as_os_str())) {
        Some(more) => Err(CliError::mismatch(format!("{} should not be there", path.join(more).display()))),
        None => Ok(()),
    }
}

fn look(at: &Path, entry: &Entry) -> CliResult<Option<Entry>> {
    match read_entry(at, entry.path.clone()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.doing(|| format!("cannot look at {}", at.join(&entry.path).display())),
    }
}

/// Compares everything except bytes.
fn compare_entry(at: &Path, wanted: &Entry, found: Option<&Entry>) -> CliResult {
    let shown = at.join(&wanted.path);
    let shown = shown.display();
    let Some(found) = found else { return Err(CliError::mismatch(format!("{shown} is missing"))) };
    // The permissions of symbolic links mean nothing and differ between file systems.
    let same_mode = matches!(wanted.kind, Kind::Link(_)) || found.mode == wanted.mode;
    if found.kind == wanted.kind && same_mode && found.mtime_ns == wanted.mtime_ns {
        return Ok(());
    }
    Err(CliError::mismatch(format!("{shown} is {found:?} and should be {wanted:?}")))
}

fn compare_file(at: &Path, wanted: &Entry, originals: &Dir, copies: &Dir, buffers: &mut [Vec<u8>; 2]) -> CliResult {
    let name = wanted.path.file_name().unwrap_or_default();
    let Ok(mut copy) = copies.open_file(name) else {
        // If the file is missing or a link, report that first.
        compare_entry(at, wanted, look(at, wanted)?.as_ref())?;
        return copies.open_file(name).map(drop).doing(|| format!("cannot open {}", at.join(&wanted.path).display()));
    };
    let shown = at.join(&wanted.path);
    let shown = shown.display();
    let meta = copy.metadata().doing(|| format!("cannot look at {shown}"))?;
    compare_entry(at, wanted, Some(&entry_of(wanted.path.clone(), Kind::of_file(&meta), &meta)))?;
    let mut original = originals.open_file(name).doing(|| format!("cannot open the original of {shown}"))?;
    match first_difference(&mut original, &mut copy, meta.len(), buffers).doing(|| format!("cannot compare {shown}"))? {
        Some(offset) => Err(CliError::mismatch(format!("{shown} differs from its original at byte {offset}"))),
        None => Ok(()),
    }
}

/// The offset of the first difference between two files of `length` bytes.
fn first_difference(a: &mut File, b: &mut File, length: u64, buffers: &mut [Vec<u8>; 2]) -> io::Result<Option<u64>> {
    let [left, right] = buffers;
    let mut offset = 0;
    while offset < length {
        let wanted = CHUNK_BYTES.min((length - offset) as usize);
        let (x, y) = (read_full(a, &mut left[..wanted])?, read_full(b, &mut right[..wanted])?);
        let differs = left[..x].iter().zip(&right[..y]).position(|(l, r)| l != r);
        if let Some(at) = differs.or((x.min(y) < wanted).then_some(x.min(y))) {
            return Ok(Some(offset + at as u64));
        }
        offset += wanted as u64;
    }
    Ok(None)
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
    use std::{
        fs::Permissions,
        os::unix::fs::{PermissionsExt, symlink},
        path::PathBuf,
        sync::{Mutex, atomic::Ordering},
    };

    use super::{
        super::{
            copy::{Pace, copy},
            tree::Bounds,
        },
        *,
    };

    fn set_times(path: &Path, ns: i128) -> io::Result<()> {
        let (dir, name) = (path.parent().unwrap_or(Path::new("/")), path.file_name().unwrap_or_default());
        Dir::open(dir)?.set_times(name, ns)
    }

    /// Copies as long as `go_on` is true; returns what was copied.
    fn copy_of(tree: &Tree, to: &Path, go_on: bool) -> Tree {
        let copied = Mutex::new(vec![false; tree.entries.len()]);
        let mark = |number: usize, _| copied.lock().expect("no panic")[number] = true;
        copy(tree, to, &Pace { copied: &mark, go_on: &|| go_on }).expect("copied");
        tree.only(&copied.into_inner().expect("no panic"))
    }

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
            set_times(&root.join("from/a"), 1_234_567_890_123_456_789).expect("set");
            Self(root)
        }

        fn copied(&self) -> Tree {
            let tree = Tree::scan(&self.0.join("from"), Tree::ALL).expect("a tree");
            copy_of(&tree, &self.to(), true)
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
                set_times(&to.join("a/b/one"), mtime)
            }),
            ("empty is missing", |to| fs::remove_file(to.join("empty"))),
            ("more should not be there", |to| fs::write(to.join("a/more"), "")),
            ("a/two", |to| fs::set_permissions(to.join("a/two"), Permissions::from_mode(0o600))),
            ("to/a is", |to| set_times(&to.join("a"), 0)),
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
        let none = copy_of(&small, &made.to(), false);
        assert_eq!((none.file_count(), none.dir_count()), (0, 2));
        compare(&none, &made.to(), &Pulse::default()).expect("the same");
    }
}
