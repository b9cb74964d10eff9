//! Whether anything is mounted below a mount of ours.
//!
//! When the kernel is told to forget all names, it detaches what is mounted on the directories that they lead to. It
//! looks each dentry up again, and a new dentry replaces it. So the mount invalidates all names only while nothing is
//! mounted below.
//! Not here: mounts in other mount namespaces, which this process cannot see (docs/posix.md).
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // the kernel's table of mounts is a file of /proc

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    fs::{self, File},
    io::{Read, Seek},
    os::fd::AsRawFd,
};

/// Watches the kernel's table of mounts.
pub(crate) struct Below {
    /// The mount point as the kernel writes it.
    point: String,
    table: RefCell<Option<File>>,
    is_any: Cell<bool>,
}

impl Below {
    /// Watches for mounts below `point`, where our file system will be mounted. `point` itself is accessed only here.
    pub fn new(point: &str) -> Self {
        let whole =
            fs::canonicalize(point).map_or_else(|_| point.to_owned(), |path| path.to_string_lossy().into_owned());
        let table = RefCell::new(File::open("/proc/self/mountinfo").ok());
        let this = Self { point: escaped(&whole), table, is_any: Cell::new(false) };
        // Poll reports changes since the last read, so read once now.
        this.look();
        this
    }

    /// True if something is mounted below, or the table cannot be read.
    pub fn is_any(&self) -> bool {
        let mut table = self.table.borrow_mut();
        let Some(file) = table.as_mut() else { return true };
        let mut asked = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLPRI, revents: 0 };
        // SAFETY: `asked` is one pollfd, valid for the call.
        let answered = unsafe { libc::poll(&mut asked, 1, 0) };
        drop(table);
        if answered != 0 {
            self.look();
        }
        self.is_any.get()
    }

    fn look(&self) {
        let mut text = String::new();
        let read = match self.table.borrow_mut().as_mut() {
            Some(file) => file.rewind().and_then(|()| file.read_to_string(&mut text)).is_ok(),
            None => false,
        };
        self.is_any.set(!read || has_any(&text, &self.point));
    }
}

/// Whether `table` has a mount whose parent is our file system: the one at `point`, or the same device mounted
/// elsewhere.
fn has_any(table: &str, point: &str) -> bool {
    // ID, parent's ID, device, root, point ...
    let lines = || table.lines().map(|line| line.split(' ').collect::<Vec<_>>()).filter(|fields| fields.len() > 5);
    let Some(device) = lines().rfind(|fields| fields[4] == point).map(|fields| fields[2]) else { return false };
    let ours: BTreeSet<&str> = lines().filter(|fields| fields[2] == device).map(|fields| fields[0]).collect();
    lines().any(|fields| ours.contains(fields[1]))
}

/// Escapes a path as the table does: blanks and the like in octal.
fn escaped(path: &str) -> String {
    let escape = |c: char| match c {
        ' ' | '\t' | '\n' | '\\' => format!("\\{:03o}", c as u32),
        c => c.to_string(),
    };
    path.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "22 1 253:0 / / rw - ext4 /dev/vda rw
30 22 0:40 / /mnt/a\\040b rw - fuse.forebay here rw
31 22 0:41 / /mnt/other rw - fuse.forebay there rw
";

    #[test]
    fn only_mounts_below_the_mount_point_count() {
        let point = escaped("/mnt/a b");
        assert!(!has_any(TABLE, &point));
        assert!(!has_any(&format!("{TABLE}40 31 0:50 / /mnt/other/x rw - tmpfs t rw\n"), &point));
        assert!(has_any(&format!("{TABLE}40 30 0:50 / /mnt/a\\040b/x rw - tmpfs t rw\n"), &point));
        // The same file system at a second mount point, with a mount below that.
        let twice =
            format!("{TABLE}41 22 0:40 /d /srv rw - fuse.forebay here rw\n42 41 0:50 / /srv/x rw - tmpfs t rw\n");
        assert!(has_any(&twice, &point));
        assert!(!has_any(TABLE, "/not/mounted"));
    }

    #[test]
    fn a_first_look_reads_the_table() {
        assert!(Below::new("/").is_any(), "/proc lies below the root");
        assert!(!Below::new("/proc/self/fd").is_any());
    }
}
