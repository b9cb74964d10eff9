//! Copies a tree as `cp -a` does: bytes, modes, times, links.

use std::{
    ffi::OsStr,
    fs::{self, File, Permissions},
    io::{self, Read, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use forebay_command::{
    error::{CliResult, Doing},
    posix,
};

use super::{
    crew::{Share, each, parent_of, shares},
    dir::Dir,
    tree::{CHUNK_BYTES, Entry, Kind, Tree},
};

/// Callbacks of a copy.
pub struct Pace<'a> {
    /// Receives the number of each copied entry, and the nanoseconds that it took.
    pub copied: &'a (dyn Fn(usize, u64) + Sync),
    /// Asked before each file; after the first `false` the rest is skipped.
    pub go_on: &'a (dyn Fn() -> bool + Sync),
}

/// Copies `tree` to the new directory `to`, with modes, times and links, by several threads.
pub fn copy(tree: &Tree, to: &Path, pace: &Pace<'_>) -> CliResult {
    fs::create_dir(to).doing(|| format!("cannot make {}", to.display()))?;
    make_dirs(tree, to, pace)?;
    let (shares, umask) = (shares(tree), posix::umask());
    each(&shares, || vec![0; CHUNK_BYTES], |buffer, share| copy_share(tree, to, share, pace, umask, buffer))?;
    finish_dirs(&shares, to)
}

/// Makes the directories, parents first. They stay writable until they are filled; mode and times come last.
fn make_dirs(tree: &Tree, to: &Path, pace: &Pace<'_>) -> CliResult {
    let mut parent: Option<(&Path, Dir)> = None;
    for (number, entry) in tree.entries.iter().enumerate().filter(|(_, entry)| entry.kind == Kind::Dir) {
        let began_ns = posix::monotonic_ns();
        let shown = || format!("cannot make {}", to.join(&entry.path).display());
        let dir = parent_of(entry);
        if parent.as_ref().is_none_or(|(path, _)| *path != dir) {
            parent = Some((dir, Dir::open(&to.join(dir)).doing(shown)?));
        }
        let (_, dir) = parent.as_ref().expect("it was opened just now");
        dir.make_dir(name_of(entry)).doing(shown)?;
        (pace.copied)(number, posix::monotonic_ns() - began_ns);
    }
    Ok(())
}

fn copy_share(tree: &Tree, to: &Path, share: &Share<'_>, pace: &Pace<'_>, umask: u32, buffer: &mut [u8]) -> CliResult {
    if share.entries.is_empty() {
        return Ok(());
    }
    let open = |root: &Path| {
        let path = root.join(share.dir);
        Dir::open(&path).doing(|| format!("cannot open {}", path.display()))
    };
    let (from, at) = (open(&tree.root)?, open(to)?);
    for &number in &share.entries {
        let entry = &tree.entries[number];
        if !(pace.go_on)() {
            return Ok(());
        }
        let began_ns = posix::monotonic_ns();
        let copied = copy_entry(&from, &at, entry, umask, buffer);
        copied.doing(|| format!("cannot copy to {}", to.join(&entry.path).display()))?;
        (pace.copied)(number, posix::monotonic_ns() - began_ns);
    }
    Ok(())
}

fn copy_entry(from: &Dir, to: &Dir, entry: &Entry, umask: u32, buffer: &mut [u8]) -> io::Result<()> {
    let name = name_of(entry);
    if let Kind::Link(target) = &entry.kind {
        to.make_link(name, target)?;
        return to.set_times(name, entry.mtime_ns);
    }
    let mut file = to.create(name, entry.mode & 0o777)?;
    copy_bytes(&mut from.open_file(name)?, &mut file, buffer)?;
    if entry.mode & 0o777 & !umask != entry.mode {
        file.set_permissions(Permissions::from_mode(entry.mode))?;
    }
    posix::set_times_of(&file, entry.mtime_ns, entry.mtime_ns)
}

fn copy_bytes(from: &mut File, to: &mut File, buffer: &mut [u8]) -> io::Result<()> {
    loop {
        match from.read(buffer)? {
            0 => return Ok(()),
            length => to.write_all(&buffer[..length])?,
        }
    }
}

/// Sets modes and times of directories, children before parents.
fn finish_dirs(shares: &[Share<'_>], to: &Path) -> CliResult {
    for share in shares.iter().rev() {
        let children = share.all.iter().flatten().filter(|entry| entry.kind == Kind::Dir);
        let mut children = children.peekable();
        if children.peek().is_none() {
            continue;
        }
        let path = to.join(share.dir);
        let shown = || format!("cannot set modes and times in {}", path.display());
        let dir = Dir::open(&path).doing(shown)?;
        for entry in children {
            dir.set_mode(name_of(entry), entry.mode).doing(shown)?;
            dir.set_times(name_of(entry), entry.mtime_ns).doing(shown)?;
        }
    }
    Ok(())
}

fn name_of(entry: &Entry) -> &OsStr {
    entry.path.file_name().unwrap_or_default()
}
