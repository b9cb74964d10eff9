//! On whose behalf the kernel asks.
//!
//! The kernel checks permissions itself (`default_permissions`), with attributes it has just fetched, or has under a lease, and with
//! all it knows of the process: supplementary groups, capabilities, sticky directories, set-id bits to drop. A request tells
//! only uid and gid. So that the server never refuses what the kernel has allowed:
//! - where the caller's ids leave no trace in the file system, the mount asks as user 0: [`decided`];
//! - where they become the owner of something new, it asks as the caller, and if that is refused once more with the
//!   supplementary groups from /proc. What is left is a process that is not user 0 but holds CAP_DAC_OVERRIDE: it may
//!   be refused.
#![allow(clippy::disallowed_methods)] // a process's groups stand in /proc

use std::fs;

use forebay_client::{Caller, ClientError, ClientResult};
use forebay_proto::Errno;

pub(crate) const S_ISGID: u32 = 0o2000;

/// The kernel has decided: what it asks for is allowed.
pub(crate) fn decided() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new() }
}

/// Who asks.
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

    /// Without supplementary groups.
    pub fn plain(&self) -> Caller {
        Caller { uid: self.uid, gid: self.gid, groups: Vec::new() }
    }

    /// Calls `make` as the asker; with the supplementary groups only if they may matter.
    ///
    /// `mode`: of what is made; with set-group-id the server asks for membership without refusing.
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

/// Supplementary groups of a process that waits for an answer; none if they cannot be told (another pid namespace).
fn groups_of(pid: u32) -> Vec<u32> {
    fs::read_to_string(format!("/proc/{pid}/status")).map(|status| parse_groups(&status)).unwrap_or_default()
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
}
