//! Access control lists, inline bounds and commit levels of files and directories.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    process::{Command, Stdio},
};

use crate::{
    c_path,
    common::{
        forebay,
        mounts::{Mounts, run},
        words,
    },
};

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
        (output.status.code(), words(&output))
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
        (output.status.code(), words(&output))
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
