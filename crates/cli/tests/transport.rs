//! A mount whose requests arrive by `/dev/fuse`, and one whose requests arrive by io_uring if this system has it. (The
//! other tests use the default.) Needs root and /dev/fuse; without them the tests say so and skip.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod common;

use std::{
    fs::{self, File, OpenOptions},
    os::{fd::AsRawFd, unix::fs::FileExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use common::{
    forebay,
    mounts::{Mounts, run, soon},
};

const ENABLED: &str = "/sys/module/fuse/parameters/enable_uring";

/// Whether the kernel offers it, and this test may use it.
fn has_uring() -> bool {
    let offered = fs::read_to_string(ENABLED).is_ok_and(|enabled| enabled.trim() == "Y");
    let has = offered && std::env::var_os("FOREBAY_NO_URING").is_none_or(|value| value != "1");
    if !has {
        eprintln!("no FUSE over io_uring here (`echo Y > {ENABLED}`): only /dev/fuse is tested");
    }
    has
}

fn transports() -> Vec<&'static str> {
    if has_uring() { vec!["dev", "uring"] } else { vec!["dev"] }
}

/// Another mount of a cluster, unmounted at the end.
struct Mount(PathBuf);

impl Mount {
    fn new(mounts: &Mounts, transport: &str) -> Self {
        let at = PathBuf::from(mounts.scratch.path()).join(transport);
        fs::create_dir_all(&at).expect("made");
        run(forebay().args(["mount", &mounts.cluster()]).arg(&at).args(["-o", &format!("transport={transport}")]));
        Self(at)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = forebay().args(["umount", "--force"]).arg(&self.0).output();
    }
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("it opens")
}

fn flock(file: &File, how: i32) -> bool {
    // SAFETY: a descriptor that is open.
    unsafe { libc::flock(file.as_raw_fd(), how) == 0 }
}

/// flock(1), which waits for a lock and then does nothing.
fn waiter(path: &Path) -> Child {
    Command::new("flock").arg(path).arg("true").stdout(Stdio::null()).spawn().expect("flock(1) is part of util-linux")
}

#[test]
fn bytes_and_names_are_the_same_by_either_way() {
    let Some(mounts) = Mounts::new("ways") else { return };
    for transport in transports() {
        let mount = Mount::new(&mounts, transport);
        let pattern: Vec<u8> = (0..(3 << 20) + 777_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let file = open(&mount.at(transport));
        // Every length that a request may have, and longer ones.
        for len in [0, 1, 511, 4096, 4097, 65_537, 262_144, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, pattern.len()] {
            file.write_all_at(&pattern[..len], 5).expect("written");
            let mut read = vec![0; len];
            file.read_exact_at(&mut read, 5).expect("read");
            assert!(read == pattern[..len], "{transport}: {len} bytes");
        }
        assert!(fs::read(mounts.first.join(transport)).expect("read")[5..] == pattern, "by the other mount");
        let longest = "n".repeat(255);
        fs::create_dir(mount.at("d")).expect("made");
        (0..500).for_each(|i| fs::write(mount.at(&format!("d/{i}")), "").expect("made"));
        fs::rename(mount.at("d/0"), mount.at(&longest)).expect("renamed");
        std::os::unix::fs::symlink("x".repeat(4095), mount.at("d/0")).expect("linked");
        assert_eq!(fs::read_link(mount.at("d/0")).expect("it leads").as_os_str().len(), 4095);
        assert_eq!(fs::read_dir(mount.at("d")).expect("listed").count(), 500);
        assert!(fs::metadata(mount.at("nothing")).is_err() && fs::metadata(mount.at(&"n".repeat(256))).is_err());
        fs::remove_dir_all(mount.at("d")).expect("removed");
        fs::remove_file(mount.at(&longest)).expect("removed");
        // So that the test of the next transport finds no file.
        drop(file);
        fs::remove_file(mount.at(transport)).expect("removed");
    }
}

/// More waiting programs than a queue initially has entries.
#[test]
fn any_number_of_programs_waits_for_a_lock_and_the_others_go_on_meanwhile() {
    let Some(mounts) = Mounts::new("crowd") else { return };
    for transport in transports() {
        let mount = Mount::new(&mounts, transport);
        let path = mount.at("f");
        let file = open(&path);
        assert!(flock(&file, libc::LOCK_EX));
        let mut waiters: Vec<Child> = (0..300).map(|_| waiter(&path)).collect();
        let begun = Instant::now();
        for i in 0..50 {
            fs::write(mount.at(&format!("g{i}")), vec![1; 100_000]).expect("written");
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{transport}: {:?}", begun.elapsed());
        // One of them is interrupted, another one killed.
        run(Command::new("kill").args(["-TERM", &waiters[0].id().to_string()]));
        run(Command::new("kill").args(["-KILL", &waiters[1].id().to_string()]));
        for mut child in waiters.drain(..2) {
            let begun = Instant::now();
            assert!(
                !child.wait().expect("it ends").success() && begun.elapsed() < Duration::from_secs(5),
                "{transport}"
            );
        }
        assert!(waiters.iter_mut().all(|child| child.try_wait().expect("it is asked").is_none()), "the others wait");
        assert!(flock(&file, libc::LOCK_UN));
        for mut child in waiters {
            assert!(child.wait().expect("it ends").success(), "{transport}");
        }
    }
}

/// The kernel forgets thousands of inodes, without waiting for a reply.
#[test]
fn a_storm_of_forgets_keeps_nobody_waiting_and_what_was_forgotten_is_found_again() {
    const FILES: usize = 4000;
    let Some(mounts) = Mounts::new("forgets") else { return };
    for transport in transports() {
        let mount = Mount::new(&mounts, transport);
        let at = |i: usize| mount.at(&format!("d/{i}"));
        fs::create_dir(mount.at("d")).expect("made");
        (0..FILES).for_each(|i| fs::write(at(i), i.to_string()).expect("written"));
        let held = open(&at(7));
        for round in 0..3 {
            (0..FILES)
                .for_each(|i| assert_eq!(fs::metadata(at(i)).expect("there").len() as usize, i.to_string().len()));
            let begun = Instant::now();
            if fs::write("/proc/sys/vm/drop_caches", "2").is_err() {
                eprintln!("the kernel's memory of inodes cannot be dropped here: skipped");
                return;
            }
            for i in 0..200 {
                fs::write(mount.at("beside"), i.to_string()).expect("written");
                assert_eq!(fs::read_to_string(at(i * 19)).expect("read"), (i * 19).to_string(), "{transport}, {round}");
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "{transport}: {:?}", begun.elapsed());
        }
        // Each of these inodes is forgotten too, except the open one.
        fs::remove_dir_all(mount.at("d")).expect("removed");
        let mut left = [0];
        held.read_exact_at(&mut left, 0).expect("it is open");
        assert_eq!((left, fs::read_dir(mount.0.as_path()).expect("read").count()), (*b"7", 1), "{transport}");
        fs::remove_file(mount.at("beside")).expect("removed");
    }
}

#[test]
fn a_mount_whose_servers_are_away_goes_when_it_is_told_to_and_so_does_its_process() {
    let Some(mounts) = Mounts::new("gone") else { return };
    let all: Vec<(&str, Mount)> = transports().into_iter().map(|way| (way, Mount::new(&mounts, way))).collect();
    let files: Vec<File> = all.iter().map(|(_, mount)| open(&mount.at("f"))).collect();
    mounts.kill_servers();
    for ((transport, mount), file) in all.iter().zip(files) {
        let mut cat = Command::new("cat").arg(mount.at("f")).stdout(Stdio::null()).spawn().expect("it runs");
        std::thread::sleep(Duration::from_millis(300));
        assert!(cat.try_wait().expect("it is asked").is_none(), "{transport}: it waits");
        cat.kill().expect("a signal");
        let begun = Instant::now();
        cat.wait().expect("it ends");
        assert!(begun.elapsed() < Duration::from_secs(5), "{transport}: who is killed ends");
        let begun = Instant::now();
        run(forebay().args(["umount", "--force"]).arg(&mount.0));
        assert!(begun.elapsed() < Duration::from_secs(10), "{transport}: {:?}", begun.elapsed());
        drop(file);
        assert!(soon(|| !fs::read_to_string("/proc/self/mounts")
            .expect("it reads")
            .contains(mount.0.to_str().unwrap())));
    }
}

#[test]
fn io_uring_where_the_kernel_has_none_for_us_is_refused_with_what_to_do() {
    let Some(mounts) = Mounts::new("refused") else { return };
    let at = PathBuf::from(mounts.scratch.path()).join("m3");
    fs::create_dir(&at).expect("made");
    let output = forebay()
        .args(["mount", &mounts.cluster()])
        .arg(&at)
        .args(["-o", "transport=uring"])
        .env("FOREBAY_NO_URING", "1")
        .output()
        .expect("it runs");
    let said = common::words(&output);
    assert!(!output.status.success() && said.contains("FOREBAY_NO_URING"), "{said}");
    if !has_uring() {
        let output = forebay().args(["mount", &mounts.cluster()]).arg(&at).args(["-o", "transport=uring"]).output();
        let output = output.expect("it runs");
        let said = common::words(&output);
        assert!(!output.status.success() && said.contains(ENABLED), "{said}");
    }
    run(forebay().args(["mount", &mounts.cluster()]).arg(&at).env("FOREBAY_NO_URING", "1"));
    fs::write(at.join("x"), "y").expect("it does without");
    run(forebay().args(["umount", "--force"]).arg(&at));
}
