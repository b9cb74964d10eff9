//! Owners, groups, sticky bits and times.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    process::{Command, Stdio},
};

use crate::{
    c,
    common::{Scratch, mounts::Mounts},
};

/// Runs `words` in a shell, as user and group `user`, in `dir`.
pub fn as_user(user: u32, dir: &Path, words: &str) -> bool {
    let user = user.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "sh", "-c", words]).current_dir(dir);
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("it runs").success()
}

/// 40 supplementary groups, the relevant one among the last | the kernel's check, and the server's: names made, lists
/// set
#[test]
fn supplementary_groups_count_however_many() {
    let Some(mounts) = Mounts::new("groups") else { return };
    let local = Scratch::new("groups-local");
    fs::set_permissions(local.path(), PermissionsExt::from_mode(0o755)).expect("set");
    let numbers: Vec<String> = (60_000..60_040).map(|group: u32| group.to_string()).collect();
    let answers = |base: &Path| {
        let dir = base.join("d");
        fs::create_dir(&dir).expect("made");
        fs::write(dir.join("f"), b"x").expect("written");
        for (name, mode) in [("", 0o2070), ("f", 0o060)] {
            std::os::unix::fs::chown(dir.join(name), Some(0), Some(60_038)).expect("given");
            fs::set_permissions(dir.join(name), PermissionsExt::from_mode(mode)).expect("set");
        }
        let with = |groups: &[String], words: &str| {
            let mut command = Command::new("setpriv");
            command
                .args(["--reuid", "4242", "--regid", "4242", "--groups", &groups.join(",")])
                .args(["sh", "-c", words]);
            command.current_dir(base).stderr(Stdio::null()).status().expect("it runs").success()
        };
        let words = [
            "cat d/f > /dev/null",
            "echo y >> d/f",
            ": > d/made",
            "mkdir d/dir",
            "ln -s x d/link",
            "ln d/made d/again",
            "mv d/made d/moved",
            "chgrp 60031 d/moved",
            "chgrp 60050 d/moved",
            "chmod 2755 d/moved",
            "rm d/again && rmdir d/dir",
        ];
        let mut answers = Vec::new();
        for words in words {
            answers.push((words, with(&numbers[..38], words), with(&numbers, words)));
        }
        let moved = fs::metadata(dir.join("moved")).expect("made");
        (answers, moved.gid(), moved.mode())
    };
    let (ours, theirs) = (answers(&mounts.first), answers(Path::new(local.path())));
    assert_eq!(ours, theirs);
    let refused = |words: &str| words.contains("60050");
    assert!(ours.0.iter().all(|(words, without, with)| !without && *with != refused(words)), "{ours:?}");
}

#[test]
fn groups_sticky_bits_and_times_follow_the_rules_of_the_local_file_system() {
    let Some(mounts) = Mounts::new("rules") else { return };
    let local = Scratch::new("rules-local");
    fs::set_permissions(local.path(), PermissionsExt::from_mode(0o755)).expect("set");
    let answers = |base: &Path| {
        let dir = base.join("d");
        fs::create_dir(&dir).expect("made");
        std::os::unix::fs::chown(&dir, Some(0), Some(77)).expect("given");
        let mode = |mode: u32| fs::set_permissions(&dir, PermissionsExt::from_mode(mode)).expect("set");
        let of =
            |name: &str| fs::symlink_metadata(dir.join(name)).map(|meta| (meta.mode(), meta.uid(), meta.gid())).ok();
        let mut answers = Vec::new();
        let mut say = |what: &str, did: bool, of: Option<(u32, u32, u32)>| answers.push((what.to_owned(), did, of));

        mode(0o2777);
        say("a file takes the group", as_user(4242, &dir, "umask 022; : > f; chmod 2755 f"), of("f"));
        say("a directory the bit too", as_user(4242, &dir, "mkdir s"), of("s"));
        say("a link the group", as_user(4242, &dir, "ln -s f l"), of("l"));
        mode(0o1777);
        say("sticky: others' names stay", as_user(4343, &dir, "rm -f f"), of("f"));
        say("nor are they moved", as_user(4343, &dir, "mv f g"), of("f"));
        say("nor replaced", as_user(4343, &dir, ": > h; mv h f"), of("f"));
        say("one's own go", as_user(4242, &dir, "rm -f l"), of("l"));
        mode(0o777);
        say("not sticky: they go", as_user(4343, &dir, "mv f g"), of("g"));

        fs::write(dir.join("t"), b"x").expect("written");
        fs::set_permissions(dir.join("t"), PermissionsExt::from_mode(0o666)).expect("set");
        say("who may write may say now", as_user(4343, &dir, "touch t"), of("t"));
        say("but no other time", as_user(4343, &dir, "touch -d 2001-02-03 t"), None);
        say("nor one of the two", as_user(4343, &dir, "touch -a t"), None);
        fs::set_permissions(dir.join("t"), PermissionsExt::from_mode(0o644)).expect("set");
        say("who may not write says nothing", as_user(4343, &dir, "touch t"), None);
        std::os::unix::fs::chown(dir.join("t"), Some(4343), Some(1)).expect("given");
        say("the owner says any", as_user(4343, &dir, "touch -d 2001-02-03 t && touch -a -d 2002-02-03 t"), of("t"));
        let times = fs::metadata(dir.join("t")).map(|meta| (meta.atime(), meta.mtime())).expect("there");
        say(&format!("{times:?}"), true, None);
        say("the owner gives no file away", as_user(4343, &dir, "chown 0 t"), of("t"));
        say("nor takes a foreign group", as_user(4343, &dir, "chgrp 77 t"), of("t"));
        say("set-group-id goes with a foreign group", as_user(4343, &dir, "chmod 2755 t"), of("t"));
        answers
    };
    assert_eq!(answers(&mounts.first), answers(Path::new(local.path())));
    // UTIME_OMIT leaves a time unchanged, to the nanosecond.
    let path = c(&mounts.first.join("d/t"));
    let before = fs::metadata(mounts.second.join("d/t")).expect("there");
    let omit = libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT };
    let exact = libc::timespec { tv_sec: 5, tv_nsec: 123_456_789 };
    // SAFETY: a string and two times that outlive the call.
    assert_eq!(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), [omit, exact].as_ptr(), 0) }, 0);
    let after = fs::metadata(mounts.second.join("d/t")).expect("there");
    assert_eq!((after.atime(), after.atime_nsec()), (before.atime(), before.atime_nsec()));
    assert_eq!((after.mtime(), after.mtime_nsec()), (5, 123_456_789));
}

/// A user's file, which the user has open, is given away through another mount | the user changes nothing of it any
/// more; a process with the capability does
#[test]
fn previous_owner_cannot_change_attributes_through_open_file() {
    const USER: u32 = 4242;
    let Some(mounts) = Mounts::new("given") else { return };
    let path = mounts.first.join("f");
    fs::write(&path, b"x").expect("written");
    std::os::unix::fs::chown(&path, Some(USER), Some(USER)).expect("given");
    let file = fs::File::options().read(true).write(true).open(&path).expect("opened");
    let by_user = |what: &(dyn Fn() + Sync)| {
        let thread = || {
            // SAFETY: the system calls themselves are about the calling thread alone.
            let became = unsafe {
                [
                    libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()),
                    libc::syscall(libc::SYS_setresgid, USER, USER, USER),
                    libc::syscall(libc::SYS_setresuid, USER, USER, USER),
                ]
            };
            assert_eq!(became, [0; 3]);
            what();
        };
        std::thread::scope(|scope| scope.spawn(thread).join().expect("as said"));
    };
    by_user(&|| {
        file.set_permissions(PermissionsExt::from_mode(0o640)).expect("it is his");
        file.set_modified(std::time::UNIX_EPOCH).expect("it is his");
    });
    std::os::unix::fs::chown(mounts.second.join("f"), Some(0), Some(0)).expect("given away");
    by_user(&|| {
        let mode = file.set_permissions(PermissionsExt::from_mode(0o666));
        let time = file.set_modified(std::time::SystemTime::now());
        assert_eq!(mode.expect_err("not his").raw_os_error(), Some(libc::EPERM));
        assert_eq!(time.expect_err("not his").raw_os_error(), Some(libc::EPERM));
        let list = c"system.posix_acl_access";
        // SAFETY: an open descriptor and a string that outlives the call.
        let removed = unsafe { libc::fremovexattr(std::os::fd::AsRawFd::as_raw_fd(&file), list.as_ptr()) };
        assert_eq!((removed, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EPERM)));
        file.set_len(5).expect("he has it open for writing");
    });
    let there = fs::metadata(mounts.second.join("f")).expect("there");
    assert_eq!((there.mode() & 0o7777, there.uid(), there.len()), (0o640, 0, 5));
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "4242", "--regid", "4242", "--clear-groups"]);
    command.args(["--inh-caps", "+fowner,+chown", "--ambient-caps", "+fowner,+chown"]);
    command.args(["sh", "-c", "chmod 600 f && touch -d @5 f && chown 4243:4244 f"]).current_dir(&mounts.first);
    assert!(command.status().expect("it runs").success());
    let there = fs::metadata(mounts.second.join("f")).expect("there");
    assert_eq!((there.mode() & 0o7777, there.uid(), there.gid(), there.mtime()), (0o600, 4243, 4244, 5));
}
