//! The caller of a request: the process on whose behalf the kernel sends it.
//!
//! The kernel checks permissions itself (`default_permissions`), with attributes that it has just fetched or caches
//! under a lease. It knows everything about the process: supplementary groups, capabilities, sticky directories, set-id
//! bits to drop. A request carries only uid and gid. So that the server never refuses what the kernel has permitted:
//! - Where the caller's ids leave no trace in the file system, the mount sends the request as user 0: [`decided`].
//! - Where they become the owner of a new inode, the mount sends the request as the caller. If that is refused, it
//!   tries once more with the supplementary groups from /proc. A process that is not user 0 but holds CAP_DAC_OVERRIDE
//!   may still be refused.
//! - What only the owner may do the kernel decides by the owner that it has cached. Another mount may have given the
//!   file away since. So the mount checks, and refuses a process that is not the owner and holds no capability over the
//!   file: [`Asker::is_still_permitted`].
//!
//! A WRITE request says whether the process holds CAP_FSETID. No other request that changes bytes does: there the mount
//! reads /proc.
#![allow(clippy::disallowed_methods)] // a process's groups and capabilities stand in /proc

use std::fs;

use forebay_client::{Caller, ClientError, ClientResult, Process, mode::S_ISGID};
use forebay_env::{Bug, planted};
use forebay_proto::Errno;
use fuser::WriteFlags;

/// CAP_FSETID among the bits of a process's capabilities.
const CAP_FSETID: u64 = 1 << 4;
/// What links in /proc to the initial user namespace read as. The kernel requires CAP_FSETID in that namespace.
const INITIAL_USERS: &str = "user:[4026531837]";

/// The caller for requests that the kernel has already permitted.
pub(crate) fn decided() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new() }
}

/// The process that sent a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    uid: u32,
    gid: u32,
    pid: u32,
}

impl Asker {
    pub fn of(request: &crate::kernel::Request) -> Self {
        Self { uid: request.uid(), gid: request.gid(), pid: request.pid() }
    }

    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// The caller without supplementary groups.
    pub fn plain(&self) -> Caller {
        Caller { uid: self.uid, gid: self.gid, groups: Vec::new() }
    }

    /// Whether an owner-only operation is still permitted now that the file belongs to user and group `owner`. The
    /// kernel has permitted it by the owner that it has cached, or by a capability. The check covers what this process
    /// can see.
    pub fn is_still_permitted(&self, owner: (u32, u32)) -> bool {
        self.uid == owner.0 || planted(Bug::StaleOwnerTrusted) || self.has_capability_over(owner)
    }

    /// Whether the process may hold a capability that applies to a file of user and group `owner`. The kernel has
    /// decided which one is needed. True for a process that cannot be seen.
    pub fn has_capability_over(&self, (uid, gid): (u32, u32)) -> bool {
        let Some(status) = status_of(self.pid) else { return true };
        let is_mapped = |map: &str, id| {
            fs::read_to_string(format!("/proc/{}/{map}", self.pid)).is_ok_and(|map| is_mapped(&map, id))
        };
        let counts = || self.is_of_initial_users() || is_mapped("uid_map", uid) && is_mapped("gid_map", gid);
        parse_capabilities(&status) != 0 && counts()
    }

    fn is_of_initial_users(&self) -> bool {
        let users = fs::read_link(format!("/proc/{}/ns/user", self.pid));
        users.is_ok_and(|users| users.as_os_str() == INITIAL_USERS)
    }

    /// Calls `make` as the asker, with the supplementary groups only if they may matter.
    ///
    /// `mode`: of the new inode. With set-group-id the server checks group membership but does not refuse.
    pub async fn make<T>(&self, mode: u32, make: impl AsyncFn(&Caller) -> ClientResult<T>) -> ClientResult<T> {
        let caller = self.plain();
        if mode & S_ISGID == 0 {
            match make(&caller).await {
                Err(ClientError { errno: Errno::EACCES | Errno::EPERM, .. }) if !self.is_root() => {}
                other => return other,
            }
        }
        make(&Caller { groups: groups_of(self.pid), ..caller }).await
    }
}

impl Process for Asker {
    fn keeps_set_ids(&self) -> bool {
        let Some(status) = status_of(self.pid) else { return self.is_root() };
        parse_capabilities(&status) & CAP_FSETID != 0 && self.is_of_initial_users()
    }

    fn is_of_group(&self, gid: u32) -> bool {
        self.gid == gid || groups_of(self.pid).contains(&gid)
    }

    /// The kernel does it before a truncate, fallocate(2) and copy_file_range(2), and leaves it to the mount for a write.
    fn has_removed_capabilities(&self) -> bool {
        true
    }
}

/// The process that sent a WRITE request: the kernel says whether it holds CAP_FSETID.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer {
    asker: Asker,
    keeps_set_ids: bool,
}

impl Writer {
    pub fn new(asker: Asker, flags: WriteFlags) -> Self {
        Self { asker, keeps_set_ids: !flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) }
    }
}

impl Process for Writer {
    fn keeps_set_ids(&self) -> bool {
        self.keeps_set_ids
    }

    fn is_of_group(&self, gid: u32) -> bool {
        self.asker.is_of_group(gid)
    }
}

/// Supplementary groups of a process that waits for a reply. Empty if they cannot be read (another pid namespace).
fn groups_of(pid: u32) -> Vec<u32> {
    status_of(pid).map(|status| parse_groups(&status)).unwrap_or_default()
}

/// `None`: this process cannot see `pid`.
fn status_of(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/status")).ok()
}

/// The effective capabilities, one bit each.
fn parse_capabilities(status: &str) -> u64 {
    let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}

/// `map`: a user namespace's map, one range a line: first id inside, first id outside, count.
fn is_mapped(map: &str, outside: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().skip(1).filter_map(|number| number.parse::<u64>().ok());
        let (Some(first), Some(count)) = (numbers.next(), numbers.next()) else { return false };
        (first..first + count).contains(&outside.into())
    })
}

fn parse_groups(status: &str) -> Vec<u32> {
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    groups.into_iter().flat_map(str::split_whitespace).filter_map(|group| group.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_from_a_process_status() {
        let status = "Name:\tsh\nUid:\t1\t1\t1\t1\nGid:\t5\t5\t5\t5\nGroups:\t4 24 1000 \nNStgid:\t9\n";
        assert_eq!(parse_groups(status), [4, 24, 1000]);
        assert_eq!(parse_groups("Name:\tsh\n"), []);
        assert_eq!(groups_of(u32::MAX), []);
    }

    #[test]
    fn effective_capabilities_are_read_from_a_process_status() {
        let status = "CapPrm:\t000001ffffffffff\nCapEff:\t0000000000000012\nCapBnd:\t000001ffffffffff\n";
        assert_eq!(parse_capabilities(status), CAP_FSETID | 2);
        assert_eq!(parse_capabilities("Name:\tsh\n"), 0);
    }

    #[test]
    fn previous_owner_is_refused_unless_a_capability_may_apply() {
        // Only root can start such a process.
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid", "4242", "--regid", "4242", "--clear-groups", "sleep", "60"]);
        let Ok(mut child) = command.spawn() else { return };
        let pid = child.id();
        let asker = Asker { uid: 4242, gid: 4242, pid };
        let has_become = || status_of(pid).is_some_and(|status| parse_capabilities(&status) == 0);
        let mut has_ended = || matches!(child.try_wait(), Ok(Some(_)));
        let waited = (0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            has_become() || has_ended()
        });
        assert!(waited, "it neither became another user nor ended");
        if !has_ended() {
            assert!(asker.is_still_permitted((4242, 0)), "the owner");
            assert!(!asker.is_still_permitted((0, 4242)), "the owner of before");
            let root = Asker { pid: std::process::id(), ..asker };
            let holds_any = status_of(root.pid).is_some_and(|status| parse_capabilities(&status) != 0);
            assert_eq!(root.is_still_permitted((0, 0)), holds_any);
            let unseen = Asker { pid: u32::MAX, ..asker };
            assert!(unseen.is_still_permitted((0, 0)), "it may have some");
        }
        let _ = (child.kill(), child.wait());
    }

    #[test]
    fn ids_outside_of_a_user_namespace_are_found_in_its_map() {
        let map = "         0     100000      65536\n     70000       1000          1\n";
        for (id, mapped) in
            [(99_999, false), (100_000, true), (165_535, true), (165_536, false), (1000, true), (0, false)]
        {
            assert_eq!(is_mapped(map, id), mapped, "{id}");
        }
        assert!(!is_mapped("", 0));
    }

    #[test]
    fn of_a_process_that_cannot_be_seen_only_the_superuser_keeps_set_ids() {
        let unseen = |uid| Asker { uid, gid: 7, pid: u32::MAX };
        assert!(unseen(0).keeps_set_ids() && !unseen(1).keeps_set_ids());
        assert!(unseen(1).is_of_group(7) && !unseen(1).is_of_group(8));
    }
}
