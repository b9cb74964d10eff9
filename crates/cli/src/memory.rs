//! How much memory a mount's caches may use: limited by the machine, and by the control groups of the process.
//!
//! Cached names and bytes can be fetched again; programs' memory cannot. So when memory is short, caches shrink first.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // /proc and /sys of this machine

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// How often a mount checks the memory.
pub const INTERVAL: Duration = Duration::from_millis(250);
/// This fraction of the memory is always left to others,
const RESERVE: u64 = 16;
/// or this many bytes of a large memory.
const RESERVE_BYTES: u64 = 1 << 30;
/// The read cache may always have this much. Without it, a mount would be slow whenever programs use all memory.
const ALWAYS_BYTES: u64 = 4 << 20;

/// Memory of a machine or group, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    total: u64,
    available: u64,
}

impl Memory {
    /// The machine or group with the least spare memory. `None`: the system does not report it.
    pub fn look() -> Option<Self> {
        let machine = of_machine(&fs::read_to_string("/proc/meminfo").ok()?);
        let groups = fs::read_to_string("/proc/self/cgroup").map(|text| groups(&text)).unwrap_or_default();
        let all = groups.iter().filter_map(|directory| of_group(directory)).chain(machine);
        all.min_by_key(Self::spare)
    }

    /// Available memory minus the part that is left to others.
    fn spare(&self) -> u64 {
        self.available.saturating_sub((self.total / RESERVE).min(RESERVE_BYTES))
    }

    /// How much a cache of `kept` bytes may hold until the next check: half of the spare memory more, or half of `kept`
    /// if none is spare.
    pub fn for_caches(&self, kept: u64) -> u64 {
        let bytes = match self.spare() {
            0 => kept / 2,
            spare => kept + spare / 2,
        };
        bytes.max(ALWAYS_BYTES)
    }
}

fn of_machine(text: &str) -> Option<Memory> {
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(Memory { total: bytes("MemTotal:")?, available: bytes("MemAvailable:")? })
}

/// Directories of the memory control groups of a process and all groups above them, from its `/proc/self/cgroup`.
/// Versions 1 and 2.
fn groups(text: &str) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let mounts: &[&str] = match controllers {
            "" => &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"],
            _ if controllers.split(',').any(|one| one == "memory") => &["/sys/fs/cgroup/memory"],
            _ => &[],
        };
        let path = path.trim_start_matches('/');
        all.extend(mounts.iter().flat_map(|mount| Path::new(path).ancestors().map(|path| Path::new(mount).join(path))));
    }
    all
}

/// `None`: the group has no limit, or does not exist (in a container the path may be the host's).
fn of_group(directory: &Path) -> Option<Memory> {
    let number = |name: &str| fs::read_to_string(directory.join(name)).ok()?.trim().parse::<u64>().ok();
    let total = number("memory.max").or_else(|| number("memory.limit_in_bytes"))?;
    let usage = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    let statistics = fs::read_to_string(directory.join("memory.stat")).unwrap_or_default();
    // The kernel reclaims inactive pages of files before it kills a process.
    let name = if statistics.contains("total_inactive_file") { "total_inactive_file " } else { "inactive_file " };
    let pages = statistics.lines().find_map(|line| line.strip_prefix(name)?.parse::<u64>().ok());
    Some(Memory { total, available: total.saturating_sub(usage.saturating_sub(pages.unwrap_or(0))) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_tells_what_is_available() {
        let text = "MemTotal:       24604616 kB\nMemFree:          811344 kB\nMemAvailable:   20311344 kB\n";
        let memory = of_machine(text);
        assert_eq!(memory, Some(Memory { total: 24_604_616 << 10, available: 20_311_344 << 10 }));
        assert_eq!(of_machine("MemTotal: lots kB\nMemAvailable: 5 kB\n"), None);
        assert!(Memory::look().is_some_and(|memory| memory.available <= memory.total));
    }

    #[test]
    fn groups_are_those_of_both_versions_and_all_above() {
        let text = "9:name=systemd:/\n4:cpu,memory:/jobs/7\n3:cpuset:/x\n0::/user\n";
        let of = |text: &str| groups(text).iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
        let memory = ["/sys/fs/cgroup/memory/jobs/7", "/sys/fs/cgroup/memory/jobs", "/sys/fs/cgroup/memory/"];
        let unified =
            ["/sys/fs/cgroup/user", "/sys/fs/cgroup/", "/sys/fs/cgroup/unified/user", "/sys/fs/cgroup/unified/"];
        assert_eq!(of(text), [&memory[..], &unified[..]].concat());
        assert_eq!(of("4:memory\n"), Vec::<String>::new());
    }

    #[test]
    fn caches_grow_into_half_of_what_is_spare_and_shrink_where_nothing_is() {
        let memory = |available_mib: u64| Memory { total: 1600 << 20, available: available_mib << 20 };
        let caches = |available_mib, kept_mib: u64| memory(available_mib).for_caches(kept_mib << 20) >> 20;
        assert_eq!([caches(1100, 300), caches(102, 300)], [300 + 500, 301]);
        assert_eq!([caches(100, 300), caches(0, 300), caches(0, 3)], [150, 150, 4]);
        let large = Memory { total: 1 << 38, available: 3 << 30 };
        assert_eq!(large.for_caches(0), 1 << 30);
    }
}
