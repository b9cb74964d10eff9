//! File locks across mounts and restarts.

use std::{
    fs::File,
    io::Read,
    os::fd::AsRawFd,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::{
    common::mounts::{Mounts, run, soon},
    open,
};

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
    // Who comes second gets the error, lets go of its own, and so the first goes on.
    let lock = |file, own, wanted| match fcntl(file, libc::F_OFD_SETLKW, write, wanted, 1).map(drop) {
        Err(libc::EDEADLK) => fcntl(file, ofd, none, own, 1).is_err(),
        locked => locked.is_ok(),
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| lock(&one, 0, 1));
        let locked = [lock(&two, 1, 0), first.join().expect("it ends")];
        assert!(locked[0] != locked[1], "one of them has both: {locked:?}");
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
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    let mut gets = waiter(&["echo", "got it"]);
    std::thread::sleep(Duration::from_millis(300));
    drop(a);
    let mut said = String::new();
    gets.stdout.take().expect("it is piped").read_to_string(&mut said).expect("it reads");
    assert!(gets.wait().expect("it ends").success() && said == "got it\n");
}
