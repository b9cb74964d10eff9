//! Servers in a cgroup with too little memory: the kernel kills them, which is a crash like any other. The memory that
//! they need is bounded.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

use std::{
    fs,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use forebay_client::{Client, OpenMode};

use crate::common::{
    site::Site,
    words,
    writer::{Busy, all_there, root, with_client},
};

const MINUTE: Duration = Duration::from_secs(60);
/// More than an MDT and two OSTs with two clients need.
const ENOUGH: u64 = 512 << 20;
/// Bytes that are written at once, regardless of the consequences.
const FLOOD_BYTES: usize = 256 << 20;
/// The memory limit of a mount.
const CACHES_LIMIT: u64 = 144 << 20;
/// More than a quarter of that.
const FILE_MIB: u64 = 50;

/// A memory cgroup (version 1 or 2). `None`, with a note, if it cannot be made.
struct Group(PathBuf);

impl Group {
    fn new(of: &str) -> Option<Self> {
        let name = format!("forebay-memory-{of}-{}", std::process::id());
        let places = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"];
        let made = places.iter().map(|place| Path::new(place).join(&name)).find_map(|path| {
            fs::create_dir(&path).ok()?;
            let group = Self(path);
            let limits = group.0.join(group.limit_file()).exists();
            limits.then_some(group)
        });
        if made.is_none() {
            eprintln!("skipped: no cgroup with a limit of memory can be made here (it takes root)");
        }
        made
    }

    fn is_first_version(&self) -> bool {
        self.0.join("memory.limit_in_bytes").exists()
    }

    fn limit_file(&self) -> &'static str {
        if self.is_first_version() { "memory.limit_in_bytes" } else { "memory.max" }
    }

    fn usage(&self) -> u64 {
        let file = if self.is_first_version() { "memory.usage_in_bytes" } else { "memory.current" };
        fs::read_to_string(self.0.join(file)).expect("a usage").trim().parse().expect("a number")
    }

    /// Number of processes that the kernel has killed.
    fn killed(&self) -> u64 {
        let file = if self.is_first_version() { "memory.oom_control" } else { "memory.events" };
        let text = fs::read_to_string(self.0.join(file)).expect("events");
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.expect("how many it killed").parse().expect("a number")
    }

    fn limit(&self, bytes: u64) {
        fs::write(self.0.join(self.limit_file()), bytes.to_string()).expect("it is limited");
        // Without swap there is nothing to forbid.
        let _ = fs::write(self.0.join("memory.swap.max"), "0");
        let _ = fs::write(self.0.join("memory.swappiness"), "0");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The last process may still be ending.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Writes a lot at once; this may kill the servers.
async fn flood(client: Client) {
    let Ok(file) = client.create_path(&root(), "/flood", OpenMode::WRITE).await else { return };
    let _ = client.write(&file, 0, vec![7; FLOOD_BYTES]).await;
}

/// write and sync |the kernel kills the servers for lack of memory| P1, and programs continue
#[test]
fn servers_that_the_kernel_kills_for_want_of_memory_lose_nothing_that_was_synced() {
    let Some(group) = Group::new("servers") else { return };
    group.limit(ENOUGH);
    let site = Site::new("memory");
    let (up, dir) = (env!("CARGO_BIN_EXE_forebay"), site.scratch.path());
    let script = format!("echo $$ > {}/cgroup.procs && exec {up} up {dir} --no-mount", group.0.display());
    let output = Command::new("sh").args(["-c", &script]).output().expect("it runs");
    assert!(output.status.success(), "{}", words(&output));
    let busy = Busy::start(&site.mgs());
    busy.reach(50);
    let usage = group.usage();
    println!("{} MiB of memory for three servers, after {} files", usage >> 20, busy.synced());
    assert!(usage < ENOUGH / 2, "{usage} bytes");
    let pid = fs::read_to_string(site.path("run/servers.pid")).expect("they run");
    let process = PathBuf::from(format!("/proc/{}", pid.split(' ').next().expect("a pid")));
    group.limit(usage + (1 << 20));
    let begun = Instant::now();
    while process.join("stat").exists() {
        // Until the flood comes through.
        with_client(&site.mgs(), Duration::from_secs(2), |client, _| flood(client));
        assert!(begun.elapsed() < MINUTE, "with {} bytes the servers still live", group.usage());
    }
    assert_eq!(group.killed(), 1, "it ended by itself");
    let synced = busy.synced();
    site.comes_up();
    busy.reach(synced + 5);
    let synced = busy.die();
    all_there(&site.mgs(), synced);
    site.down();
    assert_eq!(site.fsck("", &[]).0, Some(0), "{}", site.fsck("", &[]).1);
}

/// Unmounts at the end of the test, even if it fails: the directory is about to be removed.
struct TakenAway(PathBuf);

impl Drop for TakenAway {
    fn drop(&mut self) {
        let _ = Command::new(env!("CARGO_BIN_EXE_forebay")).args(["umount", "--force"]).arg(&self.0).output();
    }
}

/// read more than there is memory for, through a mount that may cache all of it | its cache shrinks, and no process is
/// killed
#[test]
fn a_mount_that_is_short_of_memory_keeps_less() {
    let Some(group) = Group::new("mount") else { return };
    let site = Site::new("caches");
    let forebay = env!("CARGO_BIN_EXE_forebay");
    site.comes_up();
    let mnt = site.path("caches");
    fs::create_dir(&mnt).expect("a mount point");
    group.limit(CACHES_LIMIT);
    let group_dir = group.0.display();
    let script = format!(
        "echo $$ > {group_dir}/cgroup.procs && exec {forebay} mount -o readcache=1GiB,pin=16MiB {} {}",
        site.mgs()[0],
        mnt.display()
    );
    let output = Command::new("sh").args(["-c", &script]).output().expect("it runs");
    assert!(output.status.success(), "{}", words(&output));
    let _mounted = TakenAway(mnt.clone());
    let names: Vec<PathBuf> = (0..4).map(|number| mnt.join(format!("f{number}"))).collect();
    for name in &names {
        let mut file = fs::File::create(name).expect("it is made");
        (0..FILE_MIB).for_each(|number| file.write_all(&vec![number as u8 + 1; 1 << 20]).expect("it writes"));
        file.sync_all().expect("it syncs");
    }
    // Committed bytes are cached.
    thread::sleep(Duration::from_secs(2));
    for name in [&names[..], &names[..]].concat() {
        let mut file = fs::File::open(name).expect("it opens");
        let mut piece = vec![0; 64 << 10];
        for number in 0..FILE_MIB * 16 {
            file.read_exact(&mut piece).expect("it reads");
            assert!(piece.iter().all(|byte| *byte == (number / 16) as u8 + 1), "piece {number}");
        }
    }
    assert_eq!(group.killed(), 0, "the mount was killed");
    assert!(group.usage() < CACHES_LIMIT);
    let output = Command::new(forebay).arg("umount").arg(&mnt).output().expect("it runs");
    assert!(output.status.success(), "{}", words(&output));
    site.down();
}
