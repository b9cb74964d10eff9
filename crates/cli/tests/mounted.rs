//! Two mounts of one cluster, as programs use them. Needs root and /dev/fuse; without them the tests say so and skip.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod common;

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Write},
    os::{
        fd::AsRawFd,
        unix::{
            fs::{FileExt, MetadataExt, OpenOptionsExt},
            process::CommandExt,
        },
    },
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use common::{
    Scratch, forebay,
    mounts::{Mounts, can_mount, run, soon},
};

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("it opens")
}

fn c_path(path: &Path) -> std::ffi::CString {
    std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("a path")
}

fn flock(file: &File, how: i32) -> bool {
    // SAFETY: a descriptor that is open.
    unsafe { libc::flock(file.as_raw_fd(), how) == 0 }
}

/// fcntl(2) with a lock of `[start, start + length)`. Returns what the kernel left in it, or the error.
fn fcntl(file: &File, command: i32, kind: i32, start: i64, length: i64) -> Result<libc::flock, i32> {
    // SAFETY: all zeros are a lock.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence, lock.l_start, lock.l_len) = (kind as i16, libc::SEEK_SET as i16, start, length);
    // SAFETY: a descriptor that is open, and a lock that outlives the call.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, &mut lock) };
    if done == 0 { Ok(lock) } else { Err(std::io::Error::last_os_error().raw_os_error().expect("an errno")) }
}

#[test]
fn fchmod_fchown_and_futimens_after_a_sync_set_the_given_values() {
    let Some(mounts) = Mounts::new("descriptor") else { return };
    let path = mounts.first.join("f");
    let file = File::create_new(&path).expect("a file");
    for round in 0..20u32 {
        // If a request were read from the wrong offset of its buffer, these bytes would show up as modes, owners and
        // times.
        file.write_all_at(&vec![0xff; 8192], u64::from(round) * 8192).expect("written");
        file.sync_data().expect("synced");
        let mode = 0o600 + (round % 8);
        // SAFETY: calls on a descriptor that is open.
        let outcomes = unsafe { [libc::fchmod(file.as_raw_fd(), mode), libc::fchown(file.as_raw_fd(), round, 7)] };
        assert_eq!(outcomes, [0, 0]);
        let times =
            fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + Duration::new(1_000_000 + u64::from(round), 5));
        file.set_times(times).expect("times are set");
        let meta = fs::metadata(mounts.second.join("f")).expect("seen from the other mount");
        assert_eq!((meta.mode() & 0o7777, meta.uid(), meta.gid()), (mode, round, 7));
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (1_000_000 + i64::from(round), 5));
    }
}

/// As on a local file system: ESTALE is for the kernel, which retries the lookup once.
#[test]
fn a_link_to_a_file_whose_last_name_went_through_another_mount_is_enoent() {
    let Some(mounts) = Mounts::new("late-link") else { return };
    fs::write(mounts.first.join("f"), b"x").expect("written");
    let file = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(mounts.first.join("f")).expect("found");
    fs::remove_file(mounts.second.join("f")).expect("removed");
    let (from, to) = (format!("/proc/self/fd/{}", file.as_raw_fd()), mounts.first.join("g"));
    for _ in 0..3 {
        let (from, to) = (c_path(Path::new(&from)), c_path(&to));
        // SAFETY: two strings that outlive the call.
        let linked = unsafe {
            libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW)
        };
        let error = std::io::Error::last_os_error().raw_os_error();
        assert_eq!((linked, error), (-1, Some(libc::ENOENT)));
    }
}

#[test]
fn locks_hold_across_mounts_and_a_restart_of_every_server_and_a_wait_ends_with_a_signal() {
    let Some(mounts) = Mounts::new("locks") else { return };
    let (a, b) = (open(&mounts.first.join("f")), open(&mounts.second.join("f")));
    let (set, ofd, get) = (libc::F_SETLK, libc::F_OFD_SETLK, libc::F_GETLK);
    let (write, read, none) = (libc::F_WRLCK, libc::F_RDLCK, libc::F_UNLCK);

    assert!(flock(&a, libc::LOCK_EX) && !flock(&b, libc::LOCK_EX | libc::LOCK_NB));
    assert!(fcntl(&b, set, write, 0, 0).is_ok(), "flock and fcntl do not meet");
    assert!(fcntl(&a, set, read, 5, 1).is_err());
    let holder = fcntl(&a, get, read, 5, 1).expect("it tells");
    assert_eq!((holder.l_type, holder.l_pid as u32), (write as i16, std::process::id()));
    assert!(fcntl(&b, set, none, 10, 10).is_ok());
    assert!(fcntl(&a, set, write, 10, 10).is_ok() && fcntl(&a, set, write, 9, 1).is_err());

    mounts.kill_servers();
    mounts.bring_back();
    assert!(!flock(&b, libc::LOCK_SH | libc::LOCK_NB), "flock after the restart");
    assert!(fcntl(&b, set, write, 19, 1).is_err() && fcntl(&b, set, write, 20, 1).is_ok());

    // Closing another descriptor of the same file releases this process's fcntl locks, but not its flock.
    drop(open(&mounts.first.join("f")));
    assert!(fcntl(&b, set, write, 10, 10).is_ok());
    assert!(!flock(&b, libc::LOCK_SH | libc::LOCK_NB));

    // Locks of open file descriptions end with their description.
    let c = open(&mounts.first.join("g"));
    let (d, again) = (open(&mounts.second.join("g")), open(&mounts.first.join("g")));
    assert!(fcntl(&c, ofd, write, 0, 100).is_ok());
    assert!(fcntl(&again, ofd, read, 0, 1).is_err() && fcntl(&d, ofd, read, 99, 1).is_err());
    drop(again);
    assert!(fcntl(&d, ofd, read, 99, 1).is_err());
    drop(c);
    // The kernel sends a RELEASE for the last close, but close(2) does not wait for it.
    assert!(soon(|| fcntl(&d, ofd, read, 99, 1).is_ok()));

    // A lock that would complete a deadlock fails with EDEADLK.
    let (one, two) = (open(&mounts.first.join("h")), open(&mounts.second.join("h")));
    assert!(fcntl(&one, ofd, write, 0, 1).is_ok() && fcntl(&two, ofd, write, 1, 1).is_ok());
    std::thread::scope(|scope| {
        let first = scope.spawn(|| fcntl(&one, libc::F_OFD_SETLKW, write, 1, 1).is_ok());
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(fcntl(&two, libc::F_OFD_SETLKW, write, 0, 1).map(drop), Err(libc::EDEADLK));
        assert!(fcntl(&two, ofd, none, 1, 1).is_ok() && first.join().expect("it ends"), "who waited first gets it");
    });

    // Upgrading a shared flock to an exclusive one first releases it, as flock(2) says. So there is no deadlock.
    let (one, two) = (open(&mounts.first.join("i")), open(&mounts.second.join("i")));
    assert!(flock(&one, libc::LOCK_SH) && flock(&two, libc::LOCK_SH));
    assert!(!flock(&one, libc::LOCK_EX | libc::LOCK_NB), "the other has a shared one");
    assert!(flock(&two, libc::LOCK_EX | libc::LOCK_NB), "the first let go of its own");
    assert!(flock(&two, libc::LOCK_SH) && flock(&one, libc::LOCK_SH));
    std::thread::scope(|scope| {
        let upgrade = |file| move || flock(file, libc::LOCK_EX) && flock(file, libc::LOCK_UN);
        let both = [scope.spawn(upgrade(&one)), scope.spawn(upgrade(&two))];
        assert!(both.into_iter().all(|one| one.join().expect("it ends")));
    });

    // flock(1) waits; a signal ends it, and so does the release of the lock.
    let waiter = |command: &[&str]| {
        let mut flock = Command::new("flock");
        flock.arg(mounts.second.join("f")).args(command).stdout(Stdio::piped());
        flock.spawn().expect("flock(1) is part of util-linux")
    };
    let mut waits = waiter(&["true"]);
    std::thread::sleep(Duration::from_millis(500));
    assert!(waits.try_wait().expect("it is asked").is_none(), "it waits");
    run(Command::new("kill").args(["-TERM", &waits.id().to_string()]));
    let begun = Instant::now();
    assert!(!waits.wait().expect("it ends").success());
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    let mut gets = waiter(&["echo", "got it"]);
    std::thread::sleep(Duration::from_millis(300));
    drop(a);
    let mut said = String::new();
    gets.stdout.take().expect("it is piped").read_to_string(&mut said).expect("it reads");
    assert!(gets.wait().expect("it ends").success() && said == "got it\n");
}

#[test]
fn a_mount_by_its_helper_has_the_options_of_fstab() {
    let Some(mounts) = Mounts::new("helper") else { return };
    let options = |mnt: &Path| {
        let (table, mnt) = (fs::read_to_string("/proc/self/mounts").expect("it reads"), mnt.to_string_lossy());
        let line = table.lines().find(|line| line.split(' ').nth(1) == Some(&mnt)).expect("it is mounted");
        line.split(' ').nth(3).expect("options").to_owned()
    };
    assert!(options(&mounts.first).contains("nosuid") && options(&mounts.first).contains("nodev"));
    assert!(!options(&mounts.second).contains("nosuid") && !options(&mounts.second).contains("nodev"));
    // Without FUSE's own helper, which some machines have.
    run(Command::new("mount").args(["-i", "-o", "remount,ro"]).arg(&mounts.second));
    let refused = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(mounts.second.join("x"));
    assert_eq!(refused.expect_err("it is read-only").raw_os_error(), Some(libc::EROFS));
    run(Command::new("mount").args(["-i", "-o", "remount,rw"]).arg(&mounts.second));
    fs::write(mounts.second.join("x"), b"y").expect("it is writable again");
    assert_eq!(fs::read(mounts.first.join("x")).expect("the other mount sees it"), b"y");
    // Options that are not named stay.
    for (words, expected) in
        [("remount,ro", "ro,relatime"), ("remount,nodev", "ro,nodev,relatime"), ("rw,remount", "rw,nodev,relatime")]
    {
        run(forebay().args(["mount", "-o", words, &mounts.cluster()]).arg(&mounts.second));
        let now = options(&mounts.second);
        assert!(now.starts_with(expected), "{words}: {now}");
    }
}

/// mount(8) finds its helper in /sbin, here of a mount namespace | what fstab says; remounts of options that the kernel
/// keeps; refusals
#[test]
fn a_line_of_fstab_is_mounted_and_remounted() {
    let Some(mounts) = Mounts::new("fstab") else { return };
    let at = |what: &str| Path::new(mounts.scratch.path()).join(what);
    fs::create_dir(at("sbin")).expect("made");
    for helper in ["sbin/mount.forebay", "sbin/mount.fuse.forebay"] {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_forebay"), at(helper)).expect("a link is made");
    }
    fs::create_dir(at("m3")).expect("made");
    let line = format!("{} {} forebay defaults,_netdev,noexec,commit=data 0 0\n", mounts.cluster(), at("m3").display());
    fs::write(at("fstab"), line).expect("written");
    let words = r#"
        mount --make-rprivate /
        mount --bind sbin /sbin
        trap 'umount -l "$PWD/m3"' EXIT
        [ -z "$(mount -f -T fstab "$PWD/m3" 2>&1)" ]; if grep "$PWD/m3" /proc/self/mounts; then exit 1; fi
        mount -T fstab "$PWD/m3"
        has() { grep " $PWD/m3 fuse.forebay " /proc/self/mounts | grep -qw "$1"; }
        hasnt() { if has "$1"; then exit 1; fi; }
        has noexec; hasnt nosuid; has rw
        echo one > m3/one
        mount -T fstab -o remount,ro "$PWD/m3"
        has noexec; has ro; [ "$(cat m3/one)" = one ]; if (echo two > m3/two); then exit 1; fi
        mount -T fstab -o remount,rw,exec,nosuid "$PWD/m3"
        has nosuid; hasnt noexec; echo two > m3/two
        refused() { status=0; mount -T fstab -o "$1" "$PWD/m3" 2> said || status=$?; [ $status = "$2" ]; grep -q "$3" said; }
        refused remount,commit=memory 1 'commit= is chosen when a mount is made'
        refused remount,frobnicate 1 'no such option'
        echo three > m3/three
        : > none
        mount -T none -o remount,ro "$PWD/m3"; has ro; mount -T none -o remount,rw "$PWD/m3"; has rw
        umount m3
        refused ro,remount 1 'is not mounted'
        mount -T fstab -s -o frobnicate "$PWD/m3"; [ "$(cat m3/three)" = three ]
    "#;
    let output =
        Command::new("unshare").args(["-m", "bash", "-euxc", words]).current_dir(at("")).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn holes_are_told_by_lseek_and_by_the_blocks_of_stat() {
    let Some(mounts) = Mounts::new("holes") else { return };
    run(forebay().args(["setstripe", "-c", "2", "-S", "64KiB"]).arg(&mounts.first));
    let file = open(&mounts.first.join("f"));
    file.write_all_at(&[1; 100_000], 1 << 20).expect("it writes");
    file.set_len(8 << 20).expect("it grows");
    // SAFETY: a descriptor that is open.
    let seek = |file: &File, offset: i64, whence: i32| unsafe { libc::lseek(file.as_raw_fd(), offset, whence) };
    // Holes begin at the end of the block.
    let end = ((1 << 20) + 100_000_i64) / 4096 * 4096 + 4096;
    for (offset, whence, expected) in [
        (0, libc::SEEK_DATA, 1 << 20),
        (0, libc::SEEK_HOLE, 0),
        (1 << 20, libc::SEEK_HOLE, end),
        ((1 << 20) + 70_000, libc::SEEK_HOLE, end),
        (end, libc::SEEK_DATA, -1),
        (end, libc::SEEK_HOLE, end),
        (8 << 20, libc::SEEK_HOLE, -1),
        (0, libc::SEEK_END, 8 << 20),
    ] {
        assert_eq!(seek(&file, offset, whence), expected, "{offset} {whence}");
    }
    // A change through a mapping in a hole is data, even while only the kernel has it.
    let mapped = open(&mounts.first.join("mapped"));
    mapped.set_len(1 << 20).expect("it grows");
    // Opening a file makes the kernel write its pages back, so open it before.
    let looker = open(&mounts.first.join("mapped"));
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a mapping of a file that has these bytes, of which one is written.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), 1 << 20, protection, libc::MAP_SHARED, mapped.as_raw_fd(), 0) };
    assert_ne!(at, libc::MAP_FAILED);
    unsafe { at.cast::<u8>().add(500_000).write_volatile(1) };
    let data = seek(&looker, 0, libc::SEEK_DATA);
    assert!((0..=500_000).contains(&data), "{data}");
    unsafe { libc::munmap(at, 1 << 20) };
    drop((mapped, looker));
    // The kernel sends a RELEASE for the last close, but close(2) does not wait for it.
    assert!(soon(|| seek(&open(&mounts.first.join("mapped")), 0, libc::SEEK_DATA) > 400_000), "holes are told again");
    drop(file);
    let blocks = |mnt: &Path| fs::metadata(mnt.join("f")).expect("it is there").blocks();
    let expected = 100_000_u64.div_ceil(512);
    assert_eq!((blocks(&mounts.first), blocks(&mounts.second)), (expected, expected));
    // cp(1) finds the holes automatically.
    run(Command::new("cp").arg("--sparse=always").arg(mounts.second.join("f")).arg(mounts.first.join("g")));
    assert!(fs::metadata(mounts.first.join("g")).expect("it is there").blocks() < 400);
    run(Command::new("cmp").arg(mounts.first.join("f")).arg(mounts.second.join("g")));
}

/// An access control list in its binary form: owner rwx, user `uid` rwx, group r-x, mask rwx, others ---.
fn list_for(uid: u32) -> Vec<u8> {
    let entries = [(1u16, 7u16, u32::MAX), (2, 7, uid), (4, 5, u32::MAX), (0x10, 7, u32::MAX), (0x20, 0, u32::MAX)];
    let words = entries
        .map(|(tag, bits, id)| [&tag.to_le_bytes()[..], &bits.to_le_bytes()[..], &id.to_le_bytes()[..]].concat());
    [&2u32.to_le_bytes()[..], &words.concat()[..]].concat()
}

fn set_list(path: &Path, name: &std::ffi::CStr, list: &[u8]) {
    let path = std::ffi::CString::new(path.to_str().expect("UTF-8")).expect("a path");
    // SAFETY: strings and a value that outlive the call.
    let done = unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), list.as_ptr().cast(), list.len(), 0) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn access_control_lists_admit_whom_they_name_and_are_inherited() {
    let Some(mounts) = Mounts::new("lists") else { return };
    let (file, dir) = (mounts.first.join("f"), mounts.first.join("d"));
    fs::write(&file, b"secret").expect("it is written");
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("it is private");
    fs::create_dir(&dir).expect("it is made");
    let as_user = |uid: u32, words: &str| {
        // It changes its user in its present directory, as the path to it may be closed to others.
        let user = uid.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "sh", "-c", words]);
        command.current_dir(&mounts.second).stderr(Stdio::null()).status().expect("it runs").success()
    };
    assert!(!as_user(4242, "cat f"));
    set_list(&file, c"system.posix_acl_access", &list_for(4242));
    assert_eq!(fs::metadata(mounts.second.join("f")).expect("it is there").mode() & 0o777, 0o770);
    assert!(as_user(4242, "cat f >/dev/null && echo more >> f") && !as_user(4243, "cat f"));
    // Files made in a directory with a default list get that list, whatever the umask.
    run(Command::new("chmod").arg("711").arg(&dir));
    set_list(&dir, c"system.posix_acl_default", &list_for(4242));
    run(Command::new("sh").args(["-c", "umask 077; mkdir e; echo x > e/g"]).current_dir(&dir));
    assert!(as_user(4242, "cat d/e/g >/dev/null && echo y >> d/e/g") && !as_user(4243, "cat d/e/g"));
}

/// Kills the process of the mount at `mnt`.
fn kill_mount(mnt: &Path) {
    let name = mnt.to_str().expect("a path of the tests").as_bytes();
    let is_its = |words: &[u8]| {
        let mut words = words.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        words.clone().any(|word| word == b"mount") && words.next_back() == Some(name)
    };
    let processes = fs::read_dir("/proc").expect("there is /proc").filter_map(Result::ok);
    let mut its =
        processes.filter(|process| fs::read(process.path().join("cmdline")).is_ok_and(|words| is_its(&words)));
    let pid = its.next().expect("it has a process").file_name();
    run(Command::new("kill").arg("-9").arg(pid));
}

/// At level `data`: without O_DSYNC the bytes would be lost.
#[test]
fn o_dsync_writes_survive_when_mount_and_servers_die_at_once() {
    let Some(mounts) = Mounts::new("dsync") else { return };
    let bytes: Vec<u8> = (0..300_000u32).map(|at| (at % 251) as u8).collect();
    for (name, flag) in [("dsync", libc::O_DSYNC), ("sync", libc::O_SYNC)] {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).custom_flags(flag);
        let mut file = options.open(mounts.first.join(name)).expect("made");
        // Small writes, which could be delayed, and one that is sent alone.
        bytes[..9_000].chunks(1_000).for_each(|piece| file.write_all(piece).expect("written"));
        file.write_all(&bytes[9_000..]).expect("written");
        std::mem::forget(file);
    }
    kill_mount(&mounts.first);
    mounts.kill_servers();
    mounts.bring_back();
    for name in ["dsync", "sync"] {
        assert!(fs::read(mounts.second.join(name)).expect("read") == bytes, "{name}");
    }
}

#[test]
fn ranges_that_are_zeroed_or_punched_read_as_zeros_on_both_mounts() {
    let Some(mounts) = Mounts::new("zeroed") else { return };
    let (path, mut model) = (mounts.first.join("f"), vec![7u8; 1 << 20]);
    fs::write(&path, &model).expect("written");
    let file = open(&path);
    let (keep, punch, zero) = (libc::FALLOC_FL_KEEP_SIZE, libc::FALLOC_FL_PUNCH_HOLE, libc::FALLOC_FL_ZERO_RANGE);
    // Within a block, over several, and past the end with and without a new size.
    for (mode, range, bytes) in [
        (zero, 100..5_001, 1 << 20),
        (punch | keep, 70_000..200_001, 1 << 20),
        (zero | keep, (1 << 20) - 10..(1 << 20) + 4_000, 1 << 20),
        (zero, (1 << 20) - 70_000..(1 << 20) + 5_000, (1 << 20) + 5_000),
    ] {
        let (at, length) = (range.start as i64, range.len() as i64);
        // SAFETY: an open descriptor.
        assert_eq!(unsafe { libc::fallocate(file.as_raw_fd(), mode, at, length) }, 0, "{mode} {range:?}");
        model.resize(bytes, 0);
        let end = range.end.min(bytes);
        model[range.start..end].fill(0);
        for mount in [&mounts.first, &mounts.second] {
            assert!(fs::read(mount.join("f")).expect("read") == model, "{mode} {range:?} in {}", mount.display());
        }
    }
}

#[test]
fn a_full_file_system_says_so_loses_nothing_and_takes_more_after_a_delete() {
    let Some(mounts) = Mounts::new("full") else { return };
    let piece = |number: usize| vec![number as u8 + 1; 8 << 20];
    let path = |number: usize| mounts.first.join(format!("{number}"));
    // Returns how many bytes of a file were acknowledged, and the error.
    let fill = |number: usize| {
        let (bytes, mut taken) = (piece(number), 0);
        let mut file = fs::File::create(path(number)).expect("a name takes no data");
        while taken < bytes.len() {
            match file.write(&bytes[taken..(taken + (1 << 20)).min(bytes.len())]) {
                Ok(more) => taken += more,
                Err(error) => return (taken, Some(error)),
            }
        }
        (taken, file.sync_all().err())
    };
    let mut whole = 0;
    let (taken, error, took) = loop {
        let begun = Instant::now();
        assert!(whole < 150, "2 x 512 MiB take less than 1,200 MiB");
        match fill(whole) {
            (_, None) => whole += 1,
            (taken, Some(error)) => break (taken, error, begun.elapsed()),
        }
    };
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
    assert!(took < Duration::from_secs(5), "to be refused took {took:?}");
    assert!(whole * 8 >= 600, "{whole} files of 8 MiB");
    // From now on writes fail without a wait, because the mount has already looked for space.
    let begun = Instant::now();
    let mut more = OpenOptions::new().append(true).open(path(whole)).expect("opened");
    let refused = (0..8).map(|_| more.write(&piece(whole)[..1 << 20])).find_map(Result::err);
    assert_eq!(refused.and_then(|error| error.raw_os_error()), Some(libc::ENOSPC));
    assert!(begun.elapsed() < Duration::from_secs(2), "to be refused again took {:?}", begun.elapsed());
    drop(more);
    // Names still fit, and the written data is there, after a restart too.
    fs::write(mounts.first.join("empty"), "").expect("a name takes no data");
    mounts.kill_servers();
    mounts.bring_back();
    for number in 0..whole {
        assert!(fs::read(mounts.second.join(format!("{number}"))).expect("read") == piece(number), "file {number}");
    }
    let last = fs::read(mounts.second.join(format!("{whole}"))).expect("read");
    assert!(last.len() >= taken && last.iter().all(|byte| *byte == whole as u8 + 1), "{} of {taken}", last.len());
    // Nearly all deleted space can be written again.
    (0..whole / 2).for_each(|number| fs::remove_file(path(number)).expect("removed"));
    let deadline = Instant::now() + Duration::from_secs(30);
    for number in 0..whole / 2 - 4 {
        while let Err(error) = fs::write(path(number), piece(number)) {
            assert!(Instant::now() < deadline, "{} were deleted, and number {number} again: {error}", whole / 2);
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    assert!((0..whole / 2 - 4).all(|number| fs::read(path(number)).expect("read") == piece(number)));
}

/// Programs that read, write, create and stat: a killed one ends, and the file system stays intact.
#[test]
fn killed_program_ends_while_server_is_unreachable() {
    let Some(mounts) = Mounts::new("killed") else { return };
    let file = mounts.first.join("file");
    fs::write(&file, vec![7; 3 << 20]).expect("written");
    // A stat that the mount can serve itself does not wait. So the other mount makes this file, in a directory that
    // both use.
    fs::write(mounts.second.join("unseen"), "x").expect("written");
    // Each program reports that it runs, and waits for a line. Starting a program in the mount needs servers too, and a
    // shell catches SIGINT.
    let script = |words: &&str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("echo >&2; read line; {words} 2>/dev/null")]).current_dir(&mounts.first);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        // The starter of this test may have made it ignore SIGINT.
        // SAFETY: signal(2) may be called between fork and exec.
        unsafe {
            shell.pre_exec(|| {
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                Ok(())
            });
        }
        let mut shell = shell.spawn().expect("it starts");
        shell.stderr.as_mut().expect("a pipe").read_exact(&mut [0]).expect("it runs");
        shell
    };
    let works = [
        "echo more > other",
        "exec cat file",
        "exec dd if=/dev/zero of=file bs=1M count=2 conv=notrunc",
        "exec stat unseen",
        "exec mkdir dir",
        "exec ls -l",
        "exec ln file linked",
    ];
    let mut waiting: Vec<_> = works.iter().map(script).collect();
    mounts.kill_servers();
    for program in &mut waiting {
        writeln!(program.stdin.take().expect("a pipe")).expect("heard");
    }
    std::thread::sleep(Duration::from_millis(700));
    for (number, program) in waiting.iter_mut().enumerate() {
        assert!(program.try_wait().expect("asked").is_none(), "{} waits for the server", works[number]);
        // Every other program gets SIGINT, as by Ctrl-C, and does not catch it.
        let signal = if number % 2 == 0 { libc::SIGKILL } else { libc::SIGINT };
        // SAFETY: no memory is involved; the child is ours and not waited for yet.
        unsafe { libc::kill(program.id() as i32, signal) };
    }
    let deadline = Instant::now() + Duration::from_secs(5);
    for (number, program) in waiting.iter_mut().enumerate() {
        while program.try_wait().expect("asked").is_none() {
            assert!(Instant::now() < deadline, "{} hangs", works[number]);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    // Unmounting needs no server.
    let mut umount = forebay().args(["umount", "--force"]).arg(&mounts.second).spawn().expect("it starts");
    let deadline = Instant::now() + Duration::from_secs(15);
    let ended = loop {
        if let Some(ended) = umount.try_wait().expect("asked") {
            break ended;
        }
        assert!(Instant::now() < deadline, "umount hangs");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(ended.success());
    mounts.bring_back();
    run(forebay().arg("mount").arg(mounts.cluster()).arg(&mounts.second));
    assert_eq!(fs::metadata(&file).expect("it is there").len(), 3 << 20);
    assert!(fs::read(mounts.second.join("file")).expect("read").iter().all(|byte| matches!(byte, 0 | 7)));
    fs::remove_file(&file).expect("removed");
    fs::create_dir(mounts.second.join("dir2")).expect("made");
}

/// Long enough that servers die in the middle of it: a server is restarted while copiers wait for it.
#[test]
fn the_demo_runs_through_a_mount_and_cleans_up() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("mounted-demo");
    let at = |name: &str| format!("{}/{name}", scratch.path());
    let (dir, tree) = (at("demo"), at("tree"));
    for number in 0..2400 {
        let sub = format!("{tree}/{:02}", number / 100);
        fs::create_dir_all(&sub).expect("made");
        fs::write(format!("{sub}/{number}"), vec![number as u8; 40 * number]).expect("written");
    }
    let flags = ["demo", &dir, "--quick", "--checkpoint-size", "192MiB", "--tree", &tree];
    let output = Command::new("timeout").args(["-k", "9", "120", env!("CARGO_BIN_EXE_forebay")]).args(flags).output();
    let output = output.expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("All verified") && said.contains("mounted at"), "{said}");
    let in_the_middle =
        |target: &str| (25..100).any(|percent| said.contains(&format!("{target}: SIGKILL when {percent} %")));
    assert!(in_the_middle("OST0001") && in_the_middle("MDT0000"), "{said}");
    assert!(!Path::new(&dir).exists());
}

#[test]
fn layouts_that_change_nothing_or_cannot_be_are_not_taken_in_silence() {
    let Some(mounts) = Mounts::new("layouts") else { return };
    let (dir, file) = (mounts.first.join("d"), mounts.first.join("f"));
    fs::create_dir(&dir).expect("made");
    fs::write(&file, "x").expect("written");
    let say = |flags: &[&str], path: &Path| {
        let output = forebay().arg("setstripe").args(flags).arg(path).output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (flags, path, code, said) in [
        (&[][..], &dir, 2, "-c COUNT"),
        (&["-d"], &file, 2, "-d is for directories"),
        (&["-p", "foo"], &dir, 1, "-p foo: there is no such pool"),
        (&["-i", "7"], &dir, 1, "there are 2 OSTs, 0 to 1"),
        (&["-c", "99"], &dir, 1, "there are 2 OSTs"),
        (&["-c", "2"], &file, 1, "forebay migrate"),
        (&["-E", "1M", "-c", "1"], &dir, 2, "-E -1"),
        (&["-c", "2"], &dir, 0, ""),
        (&["-d"], &dir, 0, ""),
    ] {
        let (got, words) = say(flags, path);
        assert!(got == Some(code) && words.contains(said) && words.is_empty() == said.is_empty(), "{flags:?}: {words}");
    }
    // A path within the mount names its cluster; no other cluster can be made there.
    let status = forebay().args(["status", "."]).current_dir(&dir).output().expect("it runs");
    assert!(status.status.success() && String::from_utf8_lossy(&status.stdout).contains("OST0001"));
    let up = forebay().arg("up").arg(dir.join("c")).output().expect("it runs");
    let said = String::from_utf8_lossy(&up.stderr).into_owned();
    assert!(up.status.code() == Some(1) && said.contains("is on the mount at"), "{said}");
}

#[test]
fn a_mount_says_whose_it_is_and_keeps_the_level_it_began_with() {
    let scratch = common::Scratch::new("level");
    if !can_mount() {
        return;
    }
    let (dir, mnt) = (format!("{}/c", scratch.path()), format!("{}/m", scratch.path()));
    let sizes = ["--osts", "1", "--ost-size", "128MiB", "--mdt-size", "128MiB", "--mount", &mnt];
    let up = |level: &str| {
        let output = forebay().args(["up", &dir, "--commit", level]).args(sizes).output().expect("it runs");
        (output.status.success(), common::words(&output))
    };
    assert_eq!(up("commit"), (true, String::new()));
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the kernel's table");
    let line = table.lines().find(|line| line.contains(&format!(" {mnt} "))).expect("it is mounted");
    assert!(line.contains(" - fuse.forebay "), "{line}");
    assert!(up("commit").0, "as it is");
    let (done, said) = up("data");
    assert!(!done && said.contains("is mounted with commit") && said.contains("forebay umount"), "{said}");
    run(forebay().args(["umount", &mnt]));
    assert!(up("data").0);
    run(forebay().args(["down", &dir]));
}

#[test]
fn down_takes_every_mount_of_its_cluster_away() {
    let Some(mounts) = Mounts::new("down") else { return };
    run(forebay().args(["down", &mounts.cluster()]));
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the kernel's table");
    assert!(!table.contains(mounts.scratch.path()), "{table}");
}

/// two clusters, and one mount point that the first remembers | the second is mounted there | the first leaves it alone
#[test]
fn down_leaves_a_mount_point_that_another_cluster_uses_now() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("taken");
    let [one, other, mnt] = ["one", "other", "mnt"].map(|name| format!("{}/{name}", scratch.path()));
    let small = ["--osts", "1", "--ost-size", "64MiB", "--mdt-size", "64MiB", "--mount", &mnt];
    run(forebay().args(["up", &one]).args(small));
    run(forebay().args(["umount", &mnt]));
    run(forebay().args(["up", &other]).args(small));
    let file = format!("{mnt}/file");
    fs::write(&file, "the other's").expect("written");
    let refused = forebay().args(["up", &one]).output().expect("it runs");
    assert!(!refused.status.success() && common::words(&refused).contains("is a mount already, of"), "{refused:?}");
    for force in [&["--force"][..], &[]] {
        run(forebay().args(["up", &one, "--no-mount"]));
        run(forebay().args(["down", &one]).args(force));
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "the other's");
    }
    run(forebay().args(["down", &other]));
}

#[test]
fn a_mount_below_stays_when_another_mount_changes_names_beside_it() {
    let Some(mounts) = Mounts::new("below") else { return };
    let (point, q) = (mounts.first.join("d"), mounts.first.join("q"));
    fs::create_dir(&point).expect("made");
    fs::create_dir(&q).expect("made");
    let names = [c"tmpfs".as_ptr(), c"tmpfs".as_ptr()];
    let target = c_path(&point);
    // SAFETY: C strings that outlive the call; tmpfs takes no data.
    let done = unsafe { libc::mount(names[0], target.as_ptr(), names[1], 0, std::ptr::null()) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    fs::write(point.join("here"), "x").expect("written");
    for round in 0..3 {
        let name = format!("f{round}");
        // The names of q are leased, and the kernel caches them.
        assert!(!q.join(&name).exists() && !q.join(&name).exists());
        let begun = Instant::now();
        fs::write(mounts.second.join("q").join(&name), "y").expect("written");
        assert!(begun.elapsed() < Duration::from_secs(8), "it waits no longer than a name is believed");
        assert!(q.join(&name).exists(), "and nothing stale is seen");
    }
    let stays = point.join("here").exists();
    // SAFETY: as above.
    unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
    assert!(stays, "the mount below is gone");
}

#[test]
fn renamed_entry_timeout_is_that_of_its_new_directory() {
    let Some(mounts) = Mounts::new("moved") else { return };
    let (first, second) = (&mounts.first, &mounts.second);
    for dir in ["a", "b"] {
        fs::create_dir(first.join(dir)).expect("made");
    }
    for round in 0..5 {
        // Both mounts change b, so neither keeps its entries lease for long.
        for number in 0..4 {
            fs::write(first.join(format!("b/m{round}.{number}")), "").expect("written");
            fs::write(second.join(format!("b/n{round}.{number}")), "").expect("written");
        }
        fs::write(first.join("a/x"), "old").expect("written");
        assert_eq!(fs::read_to_string(first.join("a/x")).expect("read"), "old");
        fs::write(second.join("b/z"), "").expect("written");
        fs::rename(first.join("a/x"), first.join("b/x")).expect("moved");
        fs::write(second.join("b/new"), "new").expect("written");
        fs::hard_link(second.join("b/x"), second.join(format!("b/kept{round}"))).expect("linked");
        fs::rename(second.join("b/new"), second.join("b/x")).expect("moved");
        assert_eq!(fs::read_to_string(first.join("b/x")).expect("read"), "new", "round {round}");
    }
}

/// The value of an extended attribute; `None` if there is none.
fn xattr(path: &Path, name: &std::ffi::CStr) -> Option<String> {
    let path = c_path(path);
    let mut value = vec![0_u8; 100];
    // SAFETY: both strings end in NUL, and the value has the room that is told.
    let length = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    value.truncate(usize::try_from(length).ok()?);
    String::from_utf8(value).ok()
}

#[test]
fn an_inline_bound_is_handed_down_and_copied_and_what_is_none_is_refused() {
    let Some(mounts) = Mounts::new("bounds") else { return };
    let bound = |path: &Path| xattr(path, c"user.forebay.inline");
    let set = |flags: &[&str], path: &Path| {
        let output = forebay().arg("setattr").args(flags).arg(path).output().expect("it runs");
        (output.status.code(), common::words(&output))
    };
    let dir = mounts.first.join("d");
    fs::create_dir(&dir).expect("made");
    fs::write(dir.join("before"), "x").expect("written");
    assert_eq!(set(&["--inline", "4096", "--commit", "data"], &dir), (Some(0), String::new()));
    fs::create_dir(dir.join("below")).expect("made");
    for (name, length) in [("small", 4096), ("below/large", 4097)] {
        fs::write(dir.join(name), vec![7; length]).expect("written");
    }
    run(Command::new("cp").arg("--preserve=xattr").arg(dir.join("small")).arg(mounts.first.join("copy")));
    let other = mounts.second.join("d");
    for name in ["", "below", "small", "below/large", "../copy"] {
        assert_eq!(bound(&other.join(name)).as_deref(), Some("4KiB"), "{name}");
    }
    assert_eq!(xattr(&other.join("small"), c"user.forebay.commit").as_deref(), Some("data"));
    assert_eq!(bound(&other.join("before")), None);
    for (name, length) in [("small", 4096), ("below/large", 4097)] {
        assert!(fs::read(other.join(name)).expect("read") == vec![7; length], "{name}");
    }

    for (flags, code, said) in [
        (&["--inline", "17KiB"][..], 2, "use whole KiB up to 16KiB, or 0 to write every file to the OSTs, or inherit"),
        (&["--inline", "1000"], 2, "use whole KiB"),
        (&[], 2, "--inline"),
        (&["--inline", "0"], 0, ""),
    ] {
        let (got, words) = set(flags, &dir);
        assert!(got == Some(code) && words.contains(said), "{flags:?}: {got:?} {words}");
    }
    assert_eq!(bound(&other).as_deref(), Some("0"));
    for _ in 0..2 {
        assert_eq!(set(&["--inline", "inherit"], &dir), (Some(0), String::new()));
        assert_eq!(bound(&other), None);
    }
    run(forebay().args(["down", &mounts.cluster()]));
    run(forebay().args(["fsck", &mounts.cluster()]));
}

#[test]
fn a_commit_level_is_handed_down_copied_and_kept_and_what_is_none_is_refused() {
    let Some(mounts) = Mounts::new("setattr") else { return };
    let level = |path: &Path| xattr(path, c"user.forebay.commit");
    let set = |level: &str, path: &Path| {
        let output = forebay().args(["setattr", "--commit", level]).arg(path).output().expect("it runs");
        (output.status.code(), common::words(&output))
    };
    let dir = mounts.first.join("d");
    fs::create_dir(&dir).expect("made");
    fs::write(dir.join("before"), "x").expect("written");
    assert_eq!(level(&dir), None);
    assert_eq!(set("commit", &dir), (Some(0), String::new()));
    fs::create_dir(dir.join("below")).expect("made");
    fs::write(dir.join("f"), "x").expect("written");
    fs::write(dir.join("below/g"), vec![7; 300_000]).expect("written");
    std::os::unix::fs::symlink("f", dir.join("link")).expect("made");
    run(Command::new("cp").arg("--preserve=xattr").arg(dir.join("f")).arg(mounts.first.join("copy")));

    // On the other mount, mounted anew, after every server was killed.
    mounts.kill_servers();
    mounts.bring_back();
    run(forebay().arg("umount").arg(&mounts.second));
    run(forebay().arg("mount").arg(mounts.cluster()).arg(&mounts.second));
    let other = mounts.second.join("d");
    for path in [other.clone(), other.join("below"), other.join("f"), other.join("below/g"), mounts.second.join("copy")]
    {
        assert_eq!(level(&path).as_deref(), Some("commit"), "{}", path.display());
    }
    assert_eq!((level(&other.join("before")), fs::read(other.join("below/g")).expect("read").len()), (None, 300_000));

    let elsewhere = Path::new(mounts.scratch.path()).join("file");
    fs::write(&elsewhere, "x").expect("written");
    run(Command::new("mkfifo").arg(dir.join("pipe")));
    for (value, path, code, said) in [
        ("fast", &dir, 2, "use memory, data or commit, or inherit"),
        ("data", &dir.join("nothing"), 1, "is not there"),
        ("data", &dir.join("pipe"), 1, "neither a file nor a directory"),
        ("data", &elsewhere, 1, "not on a Forebay mount"),
        ("memory", &other.join("f"), 0, ""),
        ("inherit", &other.join("below"), 0, ""),
        ("inherit", &other.join("below"), 0, ""),
    ] {
        let (got, words) = set(value, path);
        assert!(got == Some(code) && words.contains(said), "{value} {}: {got:?} {words}", path.display());
    }
    assert_eq!((level(&dir.join("f")).as_deref(), level(&dir.join("below"))), (Some("memory"), None));
    let path = c_path(&dir);
    let wrong = b"inherit";
    // SAFETY: both strings end in NUL; the kernel reads the value's bytes.
    let done = unsafe {
        libc::setxattr(path.as_ptr(), c"user.forebay.commit".as_ptr(), wrong.as_ptr().cast(), wrong.len(), 0)
    };
    assert_eq!((done, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EINVAL)));
    run(forebay().args(["down", &mounts.cluster()]));
    run(forebay().args(["fsck", &mounts.cluster()]));
}
