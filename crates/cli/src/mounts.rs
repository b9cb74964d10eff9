//! The Forebay mounts of this machine.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // the kernel's table of mounts; nothing here serves

use std::{
    io,
    path::{Path, PathBuf},
};

use forebay_command::{
    error::{CliResult, Doing},
    posix,
    processes::PidFile,
};
use forebay_proto::crc;
use serde_json::Value;

use crate::device::Device;

/// The type of an automounter's mount at a path, until a file system is mounted there.
const AUTOFS: &str = "autofs";

/// Endings of the files that are kept for a mount.
const PID_ENDING: &str = ".pid";
const DEVICE_ENDING: &str = ".device";
/// Marks the files of an earlier mount at the same mount point; its pid follows. No name of a mount contains this.
const EARLIER: &str = "%earlier-";

/// Most bytes of a mount point's path in a file name, which may have 255 bytes.
const NAME_BYTES: usize = 180;

/// The directory for pids of mounts: for root one of this machine, otherwise one of this user.
pub fn run_dir() -> PathBuf {
    if posix::is_root() {
        return "/run/forebay".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) => PathBuf::from(dir).join("forebay"),
        None => std::env::temp_dir().join(format!("forebay-mounts-{}", posix::user_id())),
    }
}

/// The name of the process of the mount at `mnt`: the path, with `-` for `/`. For a long path its end, and a checksum
/// of the whole path.
pub fn name_of(mnt: &Path) -> String {
    let path = mnt.to_string_lossy();
    let escaped = path.replace('%', "%25").replace('-', "%2d").replace('/', "-");
    if escaped.len() <= NAME_BYTES {
        return format!("mount{escaped}");
    }
    let cut = (escaped.len() - NAME_BYTES..).find(|at| escaped.is_char_boundary(*at)).unwrap_or(escaped.len());
    format!("mount%{:016x}{}", crc::crc64(path.as_bytes()), &escaped[cut..])
}

/// The pid file of a mount of this user, in the current environment.
pub fn own_pid_file(mnt: &Path) -> PidFile {
    PidFile::of(&run_dir(), &name_of(mnt))
}

/// The pid file of the mount at `mnt`. It may have been mounted by another user, or by this one in another environment
/// (a login, cron).
pub fn pid_file(mnt: &Path) -> PidFile {
    let (own, name) = (own_pid_file(mnt), name_of(mnt));
    if own.running().is_some() {
        return own;
    }
    let noted = other_run_dirs().into_iter().map(|dir| (posix::owner(&dir), PidFile::of(&dir, &name)));
    // A user's pid file counts only for processes of that user.
    let is_true = |(owner, file): &(Option<u32>, PidFile)| {
        file.running().is_some_and(|pid| posix::owner(Path::new(&format!("/proc/{pid}"))) == *owner)
    };
    noted.filter(|(owner, _)| owner.is_some()).find(is_true).map_or(own, |(_, file)| file)
}

/// The directories that [`run_dir`] may be for other users.
fn other_run_dirs() -> Vec<PathBuf> {
    let entries = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let users = entries(Path::new("/run/user")).map(|dir| dir.join("forebay"));
    let temporary = entries(&std::env::temp_dir())
        .chain(entries(Path::new("/tmp")))
        .filter(|dir| dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with("forebay-mounts-")));
    [PathBuf::from("/run/forebay")].into_iter().chain(users).chain(temporary).collect()
}

/// What a mount reports while programs wait for servers: a JSON file beside its pid, removed when no program waits.
pub struct Notes {
    path: PathBuf,
}

impl Notes {
    /// The notes of the mount at `mnt`.
    pub fn of(mnt: &Path) -> Self {
        Self { path: pid_file(mnt).beside(".waits") }
    }

    /// Writes the notes. Errors do not stop the mount.
    pub fn keep(&self, waits: Option<Value>) {
        let _ = match waits {
            Some(waits) => std::fs::write(&self.path, waits.to_string()),
            None => std::fs::remove_file(&self.path),
        };
    }

    /// Reads the notes.
    pub fn read(&self) -> Option<Value> {
        serde_json::from_slice(&std::fs::read(&self.path).ok()?).ok()
    }
}

/// What a mount that has ended could not make durable: a text in a file beside its pid, for whoever unmounts it.
pub struct LossReport {
    path: PathBuf,
}

impl LossReport {
    /// The report of the mount at `mnt`.
    pub fn of(mnt: &Path) -> Self {
        Self { path: pid_file(mnt).beside(".loss") }
    }

    /// Writes the report. Its log has the same words, so errors are ignored.
    pub fn leave(&self, words: &str) {
        let _ = std::fs::write(&self.path, words);
    }

    /// Takes the report away, if there is one.
    pub fn take(&self) -> Option<String> {
        let words = std::fs::read_to_string(&self.path).ok()?;
        let _ = std::fs::remove_file(&self.path);
        Some(words)
    }
}

/// A text that says what a mount waits for, if the mount has noted that.
pub fn awaited(mnt: &Path) -> Option<String> {
    let awaited = Notes::of(mnt).read()?["awaited"].as_array()?.clone();
    let target = |awaited: &Value| {
        let (target, trouble) = (awaited["target"].as_str()?, awaited["trouble"].as_str().unwrap_or_default());
        Some(if trouble.is_empty() { target.to_owned() } else { format!("{target}, which {trouble}") })
    };
    let words: Vec<String> = awaited.iter().filter_map(target).collect();
    (!words.is_empty()).then(|| words.join("; "))
}

/// A mount's device number, in a file beside its pid that lasts as long as its session with the kernel. With it,
/// holders can be found of a mount that was detached lazily, or that another mount namespace still has.
pub struct Noted {
    path: PathBuf,
    /// The number that this mount wrote: another mount at the same mount point may have overwritten it.
    own: Option<Device>,
}

impl Noted {
    /// The file of the mount at `mnt`.
    pub fn of(mnt: &Path) -> Self {
        Self { path: pid_file(mnt).beside(DEVICE_ENDING), own: None }
    }

    /// Records the device number of the file system mounted at `mnt`. Errors do not stop the mount.
    pub fn keep(mnt: &Path) -> Self {
        let noted = Self { own: device(mnt), ..Self::of(mnt) };
        if let Some(device) = noted.own {
            let _ = std::fs::write(&noted.path, device.to_string());
        }
        noted
    }

    /// Removes the file: the session has ended.
    pub fn forget(&self) {
        if self.own.is_none() || self.own == self.read() {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// Reads the recorded number.
    pub fn read(&self) -> Option<Device> {
        Device::parse(&std::fs::read_to_string(&self.path).ok()?)
    }
}

/// Allows a new mount at `mnt`, while process `pid` continues to serve an earlier one that was detached.
pub fn set_aside(mnt: &Path, pid: u32) -> CliResult {
    let pid_file = pid_file(mnt);
    for ending in [PID_ENDING, DEVICE_ENDING] {
        let aside = pid_file.beside(&format!("{EARLIER}{pid}{ending}"));
        std::fs::rename(pid_file.beside(ending), &aside).doing(|| format!("cannot make {}", aside.display()))?;
    }
    Ok(())
}

/// Processes that still serve earlier mounts at `mnt`, and their recorded device numbers.
pub fn earlier(mnt: &Path) -> Vec<(PidFile, Noted)> {
    let prefix = format!("{}{EARLIER}", name_of(mnt));
    let all = PidFile::all(&run_dir()).into_iter().filter(|(name, _)| name.starts_with(&prefix));
    let noted = all.map(|(_, pid_file)| {
        let path = pid_file.beside(DEVICE_ENDING);
        (pid_file, Noted { path, own: None })
    });
    noted.collect()
}

/// The device number of the visible file system at a mount point.
pub fn device(mnt: &Path) -> Option<Device> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let wanted = mnt.to_string_lossy();
    let seen = table.lines().rfind(|line| mount_points(line).any(|point| point == wanted))?;
    Device::parse(seen.split(' ').nth(2)?)
}

/// The mount points of a file system in a mount table.
pub fn points_of(table: &str, device: Device) -> Vec<String> {
    let wanted = device.to_string();
    let of_device = table.lines().filter(|line| line.split(' ').nth(2) == Some(wanted.as_str()));
    of_device.flat_map(mount_points).collect()
}

/// What the mounts of a cluster on this machine wait for, each with its mount point. Mounts whose programs do not wait
/// are left out. `is_of`: whether a mount's source is that cluster.
pub fn waits(is_of: impl Fn(&str) -> bool) -> Vec<Value> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let ours = our_mounts(&table, is_noted).filter(|(_, source)| is_of(source));
    let waits = ours.filter_map(|(point, _)| {
        let mnt = Path::new(&point);
        let mut waits = Notes::of(mnt).read().filter(|_| pid_file(mnt).running().is_some())?;
        waits["mount"] = point.as_str().into();
        Some(waits)
    });
    waits.collect()
}

/// The type of the file system mounted at `mnt`, if it is not a Forebay mount.
pub fn foreign(mnt: &Path) -> Option<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    foreign_in(&table, &mnt.to_string_lossy(), is_noted)
}

/// Of several mounts at one mount point the last is visible.
fn foreign_in(table: &str, wanted: &str, is_noted: impl Fn(&str) -> bool) -> Option<String> {
    let seen = table.lines().rfind(|line| mount_points(line).any(|point| point == wanted))?;
    let kind = kind_in(seen, wanted)?;
    (kind != AUTOFS && our_mounts(seen, is_noted).next().is_none()).then(|| kind.to_owned())
}

/// True if the kernel has a mount at `mnt`, alive or dead. An automounter's own mount does not count.
pub fn is_mounted(mnt: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    kind_in(&table, &mnt.to_string_lossy()).is_some_and(|kind| kind != AUTOFS)
}

/// The type of the visible file system at a mount point: the last of several mounts.
fn kind_in<'a>(table: &'a str, wanted: &str) -> Option<&'a str> {
    let seen = table.lines().rfind(|line| mount_points(line).any(|point| point == wanted))?;
    seen.split_once(" - ")?.1.split(' ').next()
}

/// The mount points of the cluster made by `up` in `dir` on this machine, as far as they were mounted by that name.
pub fn of_cluster(dir: &Path) -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let is_of = |source: &str| Path::new(source).canonicalize().is_ok_and(|source| source == dir);
    our_mounts(&table, is_noted).filter(|(_, source)| is_of(source)).map(|(point, _)| point.into()).collect()
}

/// True if the visible file system at `mnt` is the cluster made by `up` in `dir`.
pub fn shows_cluster(dir: &Path, mnt: &Path) -> bool {
    seen(mnt).is_some_and(|(_, source)| Path::new(&source).canonicalize().is_ok_and(|source| source == dir))
        && foreign(mnt).is_none()
}

/// Type and source of the visible file system at a mount point: the last of several mounts.
pub fn seen(mnt: &Path) -> Option<(String, String)> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let wanted = mnt.to_string_lossy();
    let line = table.lines().rfind(|line| mount_points(line).any(|point| point == wanted))?;
    let mut fields = line.split_once(" - ")?.1.split(' ');
    Some((fields.next()?.to_owned(), unescape(fields.next()?)))
}

/// Options of the visible file system at a mount point: those of the mount, then those of its superblock.
pub fn options(mnt: &Path) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    options_in(&table, &mnt.to_string_lossy())
}

fn options_in(table: &str, wanted: &str) -> Vec<String> {
    let seen = table.lines().rfind(|line| mount_points(line).any(|point| point == wanted));
    let Some((mount, system)) = seen.and_then(|line| line.split_once(" - ")) else { return Vec::new() };
    let both = [mount.split(' ').nth(5), system.split(' ').nth(2)].into_iter().flatten();
    both.flat_map(|options| options.split(',')).map(str::to_owned).collect()
}

/// The mount points of all Forebay mounts of this machine.
pub fn all() -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    our_mounts(&table, is_noted).map(|(point, _)| point).collect()
}

/// The Forebay mount that holds `path`, if any: its mount point and source. Needs no server.
pub fn holding(path: &Path) -> Option<(String, String)> {
    let path = std::path::absolute(path).ok()?;
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    our_mounts(&table, is_noted).filter(|(point, _)| path.starts_with(point)).max_by_key(|(point, _)| point.len())
}

fn is_noted(point: &str) -> bool {
    pid_file(Path::new(point)).exists()
}

/// Mount points and sources of Forebay mounts. Mounts of type `fuse` (from earlier versions, or of other programs)
/// count if their process is recorded.
fn our_mounts(table: &str, is_noted: impl Fn(&str) -> bool) -> impl Iterator<Item = (String, String)> {
    table.lines().filter_map(move |line| {
        let (mount, rest) = line.split_once(" - ")?;
        let (kind, rest) = rest.split_once(' ')?;
        let (point, source) = (unescape(mount.split(' ').nth(4)?), unescape(rest.split(' ').next()?));
        let ours = kind == "fuse.forebay" || (kind == "fuse" && is_noted(&point));
        ours.then_some((point, source))
    })
}

/// The mount points in mountinfo: the fifth field of each line, unescaped.
fn mount_points(table: &str) -> impl Iterator<Item = String> + '_ {
    table.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape)
}

fn unescape(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut text = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                text.push(byte);
                text.extend_from_slice(&part.as_bytes()[3..]);
            }
            None => {
                text.push(b'\\');
                text.extend_from_slice(part.as_bytes());
            }
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// How to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Only if no program uses it.
    Unused,
    /// Detach at once, even while programs use the mount.
    Lazily,
    /// Also abort calls in which programs wait.
    Forcibly,
}

/// Unmounts `path`, through the system's helper where this user may not.
pub fn unmount(path: &Path, how: Unmount) -> io::Result<()> {
    let flags = match how {
        Unmount::Unused => 0,
        Unmount::Lazily => libc::MNT_DETACH,
        Unmount::Forcibly => libc::MNT_DETACH | libc::MNT_FORCE,
    };
    forebay_fuse::unmount(path, flags)
}

/// Unmounts a mount whose process has died (programs on it get ENOTCONN).
pub fn clear_dead(mnt: &Path) -> CliResult {
    if pid_file(mnt).running().is_some() || !is_mounted(mnt) {
        return Ok(());
    }
    // A name that was never looked up: for the mount point itself the kernel may reply from its cache.
    let name = format!(".is-anybody-there-{}", std::process::id());
    let dead = mnt.join(name).symlink_metadata().is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN));
    if dead {
        unmount(mnt, Unmount::Lazily).doing(|| format!("cannot take the dead mount at {} away", mnt.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_with_their_escapes() {
        let table = "36 35 0:3 / /a\\040b\\134c rw - fuse x rw\n37 35 0:4 / /plain rw - ext4 y rw\n";
        assert_eq!(mount_points(table).collect::<Vec<_>>(), ["/a b\\c", "/plain"]);
    }

    #[test]
    fn a_file_system_is_found_at_all_its_places() {
        let table =
            "36 35 0:3 / /a rw - fuse x rw\n37 35 0:4 / /b rw - ext4 y rw\n38 35 0:3 /d /c\\040d rw - fuse x rw\n";
        let device = Device::parse("0:3").expect("a device");
        assert_eq!(points_of(table, device), ["/a", "/c d"]);
    }

    #[test]
    fn our_mounts_are_told_from_others() {
        let table = "36 35 0:3 / /a\\040b rw shared:1 - fuse.forebay /srv/c rw\n37 35 0:4 / /plain rw - ext4 /srv/c rw\n\
             38 35 0:5 / /noted rw - fuse /srv/c rw\n39 35 0:6 / /others rw - fuse /srv/c rw\n";
        let ours: Vec<_> = our_mounts(table, |point| point == "/noted").collect();
        assert_eq!(ours, ["/a b", "/noted"].map(|point| (point.to_owned(), "/srv/c".to_owned())));
    }

    #[test]
    fn a_mount_of_others_is_told_by_what_lies_on_top() {
        let ours = "36 35 0:3 / /mnt rw - fuse.forebay /srv/c rw\n";
        let theirs = "37 36 0:4 / /mnt rw - tmpfs none rw\n";
        let foreign = |table: &str| foreign_in(table, "/mnt", |_| false);
        assert_eq!(foreign(ours), None);
        assert_eq!(foreign(&[ours, theirs].concat()), Some("tmpfs".into()));
        assert_eq!(foreign(&[theirs, ours].concat()), None);
        assert_eq!(foreign("38 35 0:5 / /mnt rw - fuse sshfs rw\n"), Some("fuse".into()));
        assert_eq!(foreign(""), None);
        let automounter = "30 29 0:2 / /mnt rw - autofs systemd-1 rw\n";
        assert_eq!((foreign(automounter), foreign(&[automounter, ours].concat())), (None, None));
        assert_eq!(kind_in(&[automounter, ours].concat(), "/mnt"), Some("fuse.forebay"));
    }

    #[test]
    fn options_are_those_of_the_mount_that_is_seen_and_of_its_file_system() {
        let table = "36 35 0:3 / /mnt rw,noexec shared:1 - ext4 /dev/sda rw\n37 36 0:4 / /mnt rw,nosuid - fuse.forebay c ro,user_id=0\n";
        assert_eq!(options_in(table, "/mnt"), ["rw", "nosuid", "ro", "user_id=0"]);
        assert!(options_in(table, "/other").is_empty());
    }

    #[test]
    fn different_places_have_different_names() {
        let long = "/x".repeat(1000);
        let longs = [format!("/a{long}"), format!("/b{long}")];
        let places = ["/a/b", "/a-b", "/a--b", "/a/-b", "/a-/b", "/a%2db", &longs[0], &longs[1]];
        let names = places.map(|place| name_of(Path::new(place)));
        assert!(names.iter().all(|name| name.len() < 240));
        for (i, name) in names.iter().enumerate() {
            assert!(!name.contains('/') && !names[..i].contains(name), "{names:?}");
        }
    }
}
