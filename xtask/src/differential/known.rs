//! All documented differences: what docs/posix.md says is not as on a local file system, and how a run handles it.
//!
//! Each row quotes the page, and a test looks up the words there. A difference without a row is a failure.

use super::{
    answer::{Answer, Differ},
    call::{Call, Target},
    looks,
};

/// The setup of a run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Number of mounts that take turns.
    pub mounts: usize,
}

/// The file that a difference is about, according to the local file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct About {
    /// S_IFDIR, S_IFREG, ...; 0: unknown.
    pub kind: u32,
    /// True if it has no name any more.
    pub removed: bool,
    /// Opened with O_PATH.
    pub path_only: bool,
    /// Its inode number and birth time.
    pub inode: (u64, i128),
}

impl About {
    /// True for a directory.
    pub fn directory(&self) -> bool {
        self.kind == libc::S_IFDIR
    }
}

/// A call with one difference between its answers.
pub struct Case<'a> {
    /// The setup of the run.
    pub setup: Setup,
    /// The call.
    pub call: &'a Call,
    /// The file that it is about.
    pub about: About,
    /// The difference.
    pub differ: &'a Differ,
}

/// A call that is made on neither file system.
struct Left {
    /// The words of docs/posix.md.
    says: &'static str,
    when: fn(&Setup, &Call) -> bool,
}

const LEFT: [Left; 4] = [
    Left {
        says: "Between mounts mappings are not coherent",
        when: |setup, call| matches!(call, Call::Map { .. }) && setup.mounts > 1,
    },
    Left {
        says: "It connects programs of one mount",
        when: |setup, call| matches!(call, Call::Mkfifo { .. }) && setup.mounts > 1,
    },
    Left {
        says: "RWF_APPEND of pwritev2(2) does not reach the mount as",
        when: |setup, call| {
            matches!(call, Call::Pwritev2 { flags, .. } if flags & libc::RWF_APPEND != 0) && setup.mounts > 1
        },
    },
    Left {
        says: "Set on one mount while another has the file open for writing, they\nstay until that one has opened it anew",
        when: |setup, call| {
            let set_id = |mode: &u32| mode & 0o6000 != 0 && setup.mounts > 1;
            matches!(call, Call::Chmod { mode, .. } | Call::Fchmod { mode, .. } if set_id(mode))
        },
    },
];

/// Modes that a mount refuses and a local file system does not. The local one is called with a mode that it refuses,
/// too.
const MOVES_BYTES: (&str, i32) = (
    "Modes that move bytes (collapse, insert) are refused with EOPNOTSUPP",
    libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE,
);

/// A call that the mount may refuse until a program has asked about the file that it names. The run asks, and repeats
/// the call.
struct Refused {
    /// The words of docs/posix.md.
    says: &'static str,
    /// The calls to make first, if this is such a refusal.
    asks: fn(&Call, i32) -> Vec<Call>,
}

const REFUSED: [Refused; 2] = [
    Refused {
        says: "is refused (EPERM) until some program on this mount has fetched the file's attributes",
        asks: |call, errno| match call {
            Call::Fchmod { slot, .. } | Call::Fchown { slot, .. } | Call::Futimens { slot, .. }
                if matches!(errno, libc::EPERM | libc::EACCES) =>
            {
                vec![Call::Fstat { slot: *slot }]
            }
            _ => Vec::new(),
        },
    },
    Refused {
        says: "may return ESTALE, as with NFS, until the directory's new name has been looked up (stat(2))",
        asks: |call, errno| match call {
            Call::Rename { from, to } | Call::Renameat2 { from, to, .. } if errno == libc::ESTALE => {
                vec![Call::Lstat { path: from.clone() }, Call::Lstat { path: to.clone() }]
            }
            _ => Vec::new(),
        },
    },
];

/// An expected difference.
struct Row {
    /// The words of docs/posix.md.
    says: &'static str,
    covers: fn(&Case<'_>) -> bool,
}

const ROWS: [Row; 11] = [
    Row {
        says: "may move by a nanosecond when one of them closes it",
        covers: |case| {
            let moved = case.differ.local == "stayed" && case.differ.mount == looks::MOVED_A_LITTLE;
            case.setup.mounts > 1 && case.differ.what == "ctime" && moved
        },
    },
    Row {
        says: "is empty and takes no names (ENOENT, or ESTALE to a program that is not root",
        covers: |case| {
            let removed = case.about.directory() && case.about.removed;
            let lookup = matches!(case.call, Call::Openat { .. } | Call::Unlinkat { .. });
            removed && lookup && case.differ.local == "ENOENT" && case.differ.mount == "ESTALE"
        },
    },
    Row {
        says: "calls that read or change the attributes of an open pipe return ESTALE",
        covers: |case| {
            // Later answers differ too: the attributes that could not be changed still decide who may open it.
            case.about.kind == libc::S_IFIFO && case.about.removed && case.differ.what == "result"
        },
    },
    Row {
        says: "a write to it moves none of its times",
        covers: |case| {
            let given = case.differ.local.starts_with("given");
            case.about.kind == libc::S_IFIFO && matches!(case.differ.what, "mtime" | "ctime") && !given
        },
    },
    Row {
        says: "F_OFD_GETLK shows -1 for every lock",
        covers: |case| {
            let asked = matches!(case.call, Call::GetLock { open_file: true, .. });
            asked && case.differ.what == "owner" && case.differ.mount == "-1"
        },
    },
    Row {
        says: "Their `st_size` is 0, however many names they have",
        covers: |case| case.differ.what == "size" && case.about.directory() && case.differ.mount == "0",
    },
    Row {
        says: "Calls that change the attributes of a removed directory or read its extended ones return ESTALE",
        covers: |case| {
            let about = case.about.directory() && case.about.removed && case.differ.mount == "ESTALE";
            about && concerns_attributes(case.call)
        },
    },
    Row {
        says: "A file that O_PATH opened, without a handle, ends with its last name",
        covers: |case| {
            let gone = matches!(case.differ.mount.as_str(), "ESTALE" | "ENOENT");
            case.about.path_only && case.about.removed && gone
        },
    },
    Row {
        says: "F_GETLK shows the process also of a lock of an open file description, where Linux shows -1",
        covers: |case| {
            let shows = case.differ.what == "owner" && case.differ.local == "-1";
            shows && case.differ.mount == "this process" && matches!(case.call, Call::GetLock { .. })
        },
    },
    Row {
        says: "flock(2) of a *directory* itself: the lock holds within one mount only",
        covers: |case| case.about.directory() && case.setup.mounts > 1 && matches!(case.call, Call::Flock { .. }),
    },
    Row {
        says: "a request for the label of a file without one gets EOPNOTSUPP instead of ENODATA",
        covers: |case| match case.call {
            Call::Getxattr { name, .. } => name.0 == b"security.selinux" && case.differ.mount == "EOPNOTSUPP",
            _ => false,
        },
    },
];

fn concerns_attributes(call: &Call) -> bool {
    let open = |of: &Target| matches!(of, Target::Slot(_));
    match call {
        Call::Fchmod { .. } | Call::Fchown { .. } | Call::Futimens { .. } => true,
        Call::Setxattr { of, .. } | Call::Removexattr { of, .. } => open(of),
        Call::Getxattr { of, .. } | Call::Listxattr { of } => open(of),
        _ => false,
    }
}

/// The fallocate mode for the local file system in place of `mode`.
pub fn fallocate_mode(mode: i32) -> i32 {
    if mode & MOVES_BYTES.1 != 0 { libc::FALLOC_FL_UNSHARE_RANGE } else { mode }
}

impl Setup {
    /// Why the call is not made, in the words of docs/posix.md.
    pub fn not_made(&self, call: &Call) -> Option<&'static str> {
        LEFT.iter().find(|left| (left.when)(self, call)).map(|left| left.says)
    }

    /// The calls to make before the mount's call is repeated, with the words of docs/posix.md. `None`: the mount's
    /// answer stands.
    pub fn refused(&self, call: &Call, local: &Answer, mount: &Answer) -> Option<(&'static str, Vec<Call>)> {
        let errno = mount.result.err().filter(|_| self.mounts > 1 && local.result != mount.result)?;
        let mut refused = REFUSED.iter().map(|refused| (refused.says, (refused.asks)(call, errno)));
        refused.find(|(_, asks)| !asks.is_empty())
    }

    /// "Layouts as extended attributes", "Commit levels", "Small files": these attributes are listed where a directory
    /// passes them on.
    pub fn of_the_mount_alone(&self, name: &str) -> bool {
        name.starts_with("user.forebay.")
    }
}

/// The words of docs/posix.md, if a row covers the difference.
pub fn known(case: &Case<'_>) -> Option<&'static str> {
    ROWS.iter().find(|row| (row.covers)(case)).map(|row| row.says)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_documented_difference_stands_in_the_page_that_it_quotes() {
        let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let page = one_line(include_str!("../../../docs/posix.md"));
        let refused = REFUSED.iter().map(|refused| refused.says).chain([MOVES_BYTES.0]);
        let quoted = LEFT.iter().map(|left| left.says).chain(ROWS.iter().map(|row| row.says)).chain(refused);
        for says in quoted {
            assert!(page.contains(&one_line(says)), "docs/posix.md does not say: {says}");
        }
    }
}
