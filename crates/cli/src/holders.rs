//! Holders of a mount: programs that use it by their directories, open files and mappings, and mount namespaces that
//! have it too.
//!
//! Only the kernel is queried (statx(2) with AT_STATX_DONT_SYNC, /proc), never the mount's servers: they may be
//! unreachable.
//! Not here: uses by the kernel itself (loop devices, exported file systems), and processes that this user may not
//! inspect.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // looks at processes; nothing here serves

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
};

use forebay_command::posix;

use crate::{device::Device, mounts};

/// Most holders that are named; the others are counted.
const NAMED: usize = 5;

/// A process that keeps a mount in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// How it holds the mount, for messages.
    pub how: String,
    /// It uses the mount now. If false, its mount namespace has the mount, and nothing is open there.
    pub is_user: bool,
}

/// The holders of the file system `device`, except this process and the process `served_by` that serves the mount.
pub fn of(device: Device, served_by: Option<u32>) -> Vec<Holder> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let pids: BTreeSet<u32> = pids.filter(|pid| *pid != std::process::id() && Some(*pid) != served_by).collect();
    let mut namespaces: BTreeSet<PathBuf> = namespace(std::process::id()).into_iter().collect();
    let mut holders = Vec::new();
    for pid in pids {
        let of_namespace = namespace(pid).filter(|namespace| namespaces.insert(namespace.clone()));
        let used = used_by(pid, device);
        let is_user = used.is_some();
        let how = used.map(str::to_owned).or_else(|| {
            let point = of_namespace.and_then(|_| mounted_for(pid, device))?;
            Some(format!("its mount namespace has it at {point}"))
        });
        holders.extend(how.map(|how| Holder { pid, name: name_of(pid), how, is_user }));
    }
    holders
}

/// A text that names the first few holders of the mount at `mnt`.
pub fn show(mnt: &Path, holders: &[Holder]) -> String {
    match holders.is_empty() {
        true => unseen(posix::is_root(), mounts::awaited(mnt)),
        false => list(holders),
    }
}

/// Possible holders of a mount without a visible holder. `awaited`: what programs in calls wait for, if that is known.
fn unseen(is_root: bool, awaited: Option<String>) -> String {
    let awaited = awaited.map_or_else(String::new, |awaited| format!(" (for {awaited})"));
    let others = if is_root { "" } else { "another user's program, " };
    format!("{others}a program that waits in a call there{awaited}, or the kernel (a loop device, an export)")
}

fn list(holders: &[Holder]) -> String {
    let named: Vec<String> = holders.iter().take(NAMED).map(Holder::to_string).collect();
    match holders.len().saturating_sub(NAMED) {
        0 => named.join("; "),
        more => format!("{}; and {more} more", named.join("; ")),
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {}: {})", self.name, self.pid, self.how)
    }
}

/// How a process uses the file system.
fn used_by(pid: u32, device: Device) -> Option<&'static str> {
    let at = |what: &str| PathBuf::from(format!("/proc/{pid}/{what}"));
    let links = [("cwd", "working directory"), ("root", "root directory"), ("exe", "program")];
    let by_link = links.into_iter().find(|(what, _)| device.holds(&at(what))).map(|(_, how)| how);
    by_link
        .or_else(|| {
            let open = std::fs::read_dir(at("fd")).into_iter().flatten().flatten();
            let mut open = open.map(|entry| entry.path());
            open.any(|path| device.holds(&path)).then_some("open file")
        })
        .or_else(|| {
            let maps = std::fs::read_to_string(at("maps")).unwrap_or_default();
            maps_name(&maps, device).then_some("mapping")
        })
}

/// Whether a line of /proc/PID/maps has the file system: `address permissions offset 00:2d inode path`.
fn maps_name(maps: &str, device: Device) -> bool {
    let wanted = format!("{:02x}:{:02x}", device.major, device.minor);
    maps.lines().any(|line| line.split(' ').nth(3) == Some(wanted.as_str()))
}

/// Where the file system is mounted in the process's mount namespace.
fn mounted_for(pid: u32, device: Device) -> Option<String> {
    let table = std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).ok()?;
    mounts::points_of(&table, device).into_iter().next()
}

fn namespace(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok()
}

fn name_of(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).map_or_else(|_| "?".into(), |name| name.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_is_seen_by_its_working_directory() {
        let (major, minor) = posix::device_of(Path::new("/sys")).expect("a file system");
        let device = Device { major, minor };
        let mut child = Command::new("sleep").arg("60").current_dir("/sys").spawn().expect("it starts");
        let seen = |pid: u32| of(device, None).into_iter().find(|holder| holder.pid == pid);
        let holder = seen(child.id());
        child.kill().and_then(|()| child.wait()).expect("ended");
        let holder = holder.expect("it is seen");
        assert_eq!(holder.to_string(), format!("sleep (process {}: working directory)", child.id()));
        assert_eq!(seen(child.id()), None);
    }

    #[test]
    fn a_mapping_is_found_by_its_device() {
        let device = Device { major: 0, minor: 45 };
        let maps = "7f00-7f01 r--s 00000000 00:2d 7 /mnt/f\n7f02-7f03 r-xp 00000000 fe:00 9 /bin/sh\n";
        assert!(maps_name(maps, device) && !maps_name(maps, Device { major: 0, minor: 46 }));
    }

    #[test]
    fn many_holders_are_counted() {
        let holders: Vec<Holder> =
            (0..7).map(|pid| Holder { pid, name: "sh".into(), how: "open file".into(), is_user: true }).collect();
        let said = list(&holders);
        assert!(said.starts_with("sh (process 0: open file); ") && said.ends_with("; and 2 more"), "{said}");
        let waits = unseen(true, Some("MDT0000, which does not answer".into()));
        assert!(waits.contains("waits in a call there (for MDT0000, which does not answer)"), "{waits}");
        assert!(unseen(false, None).starts_with("another user's program, "));
    }
}
