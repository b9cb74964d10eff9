//! The layout commands of lfs, on two real mounts. Needs root and /dev/fuse; without them the tests say so and skip.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod common;

use std::{
    ffi::CString,
    fs::{self, File, OpenOptions},
    os::unix::{ffi::OsStrExt, fs::FileExt, fs::MetadataExt, fs::symlink},
    path::Path,
    process::Command,
};

use common::{
    forebay,
    mounts::{Mounts, run, soon},
};

const MIB: usize = 1 << 20;

/// The output of the command, which must succeed.
fn told(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The output on stderr of the command, which must end with `code`.
fn refused(command: &mut Command, code: i32) -> String {
    let output = command.output().expect("it runs");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{command:?}: {words}");
    words
}

fn get(flags: &[&str], path: &Path) -> String {
    told(forebay().arg("getstripe").args(flags).arg(path)).trim().to_owned()
}

/// The value of an extended attribute.
fn xattr(path: &Path, name: &str) -> Option<String> {
    let (path, name) = (CString::new(path.as_os_str().as_bytes()).ok()?, CString::new(name).ok()?);
    let mut value = vec![0_u8; 4096];
    // SAFETY: both strings end in NUL, and the value has the room that is told.
    let length = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    value.truncate(usize::try_from(length).ok()?);
    String::from_utf8(value).ok()
}

fn listed(path: &Path) -> String {
    let path = CString::new(path.as_os_str().as_bytes()).expect("a path");
    let mut names = vec![0_u8; 4096];
    // SAFETY: the path ends in NUL, and the list has the room that is told.
    let length = unsafe { libc::listxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    names.truncate(length.max(0) as usize);
    String::from_utf8(names).expect("names")
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 4096 * 7 + at % 251) as u8).collect()
}

/// setstripe -E | written over both components from two mounts, kept by O_TRUNC, inherited, restarted
#[test]
fn composite_layouts_hold_data_through_restarts() {
    let Some(mounts) = Mounts::new("composite") else { return };
    let dir = mounts.first.join("d");
    fs::create_dir(&dir).expect("made");
    run(forebay().args(["setstripe", "-E", "1M", "-c", "1", "-S", "64K", "-E", "-1", "-c", "-1"]).arg(&dir));
    fs::create_dir(dir.join("below")).expect("made");
    let file = dir.join("below/f");
    fs::write(&file, pattern(100)).expect("written");
    assert_eq!(get(&["-c"], &file), "1");
    assert!(get(&[], &file).contains("lcm_entry_count:   2") && get(&[], &file).contains("lcme_extent.e_end:   EOF"));
    let bytes = pattern(5 * MIB + 77);
    fs::write(&file, &bytes).expect("written");
    assert_eq!((get(&["-c"], &file), get(&["--component-count"], &file)), ("2".into(), "2".into()));
    let other = mounts.second.join("d/below/f");
    assert!(fs::read(&other).expect("read") == bytes);
    OpenOptions::new()
        .write(true)
        .open(&other)
        .expect("opens")
        .write_all_at(b"hello", MIB as u64 - 2)
        .expect("written");
    mounts.kill_servers();
    mounts.bring_back();
    let mut bytes = bytes;
    bytes[MIB - 2..MIB + 3].copy_from_slice(b"hello");
    assert!(fs::read(&file).expect("read") == bytes);
    assert_eq!(fs::metadata(&file).expect("there").len(), bytes.len() as u64);
    File::create(&file).expect("cut");
    assert_eq!((fs::metadata(&other).expect("there").len(), get(&["--component-count"], &file)), (0, "2".into()));
    let found =
        told(forebay().arg("find").arg(&mounts.first).args(["-type", "f", "-layout", "composite", "-ost", "0,1"]));
    assert_eq!(found.trim(), file.display().to_string());
    let copy = mounts.first.join("copy");
    run(forebay().arg("setstripe").arg("--copy").arg(&file).arg(&copy));
    fs::write(&copy, pattern(2 * MIB)).expect("written");
    let shape = ["--component-count", "-c", "-S"];
    assert_eq!(get(&shape, &copy), get(&shape, &file));
    assert_eq!((get(&["-I"], &copy), get(&["-c", "-I=1"], &copy)), ("1 2".into(), "1".into()));
    assert!(get(&["-F"], &copy) != get(&["-F"], &file) && get(&["-F"], &copy).starts_with('['));
    assert_eq!((get(&["-O", "7"], &copy), get(&["-c", "-O", "0,1"], &copy)), (String::new(), "2".into()));
    run(forebay().arg("migrate").args(["-c", "1"]).arg(&copy));
    run(forebay().arg("migrate").arg("--copy").arg(&file).arg(&copy));
    assert_eq!(get(&shape, &copy), get(&shape, &file));
    assert!(fs::read(mounts.second.join("copy")).expect("read") == pattern(2 * MIB));
    let found = told(forebay().arg("find").arg(&mounts.second).args(["-component-end", "1M", "-newer"]).arg(&file));
    assert_eq!(found.trim(), mounts.second.join("copy").display().to_string());
    // Other mounts may be among them, whose servers are down.
    let all = String::from_utf8(forebay().arg("df").output().expect("it runs").stdout).expect("text");
    assert!([&mounts.first, &mounts.second].iter().all(|mount| all.contains(&mount.display().to_string())), "{all}");
    let link = Path::new(mounts.scratch.path()).join("link");
    symlink(&mounts.first, &link).expect("a link");
    assert!(told(forebay().arg("df").arg(&link)).contains("OST0001"), "a mount by a link");
}

/// setstripe NEWFILE; called as lfs; refused on a file with data; migrate, while the file is open elsewhere, and with a
/// writer
#[test]
fn files_are_made_with_a_layout_and_moved_to_another() {
    let Some(mounts) = Mounts::new("moved") else { return };
    let lfs = Path::new(mounts.scratch.path()).join("lfs");
    symlink(env!("CARGO_BIN_EXE_forebay"), &lfs).expect("a link");
    let file = mounts.first.join("f");
    run(Command::new(&lfs).args(["setstripe", "-c", "1", "-i", "1", "-S", "128K"]).arg(&file));
    assert_eq!((get(&["-i"], &file), get(&["-S"], &file)), ("1".into(), "131072".into()));
    let bytes = pattern(3 * MIB);
    fs::write(&file, &bytes).expect("written");
    let words = refused(Command::new(&lfs).args(["setstripe", "-c", "2"]).arg(&file), 1);
    assert!(words.starts_with("lfs: ") && words.contains("migrate"), "{words}");
    let fifo = mounts.first.join("fifo");
    run(Command::new("mkfifo").arg(&fifo));
    let words = refused(Command::new(&lfs).args(["setstripe", "-c", "2"]).arg(&fifo), 2);
    assert!(words.contains("is no regular file or directory"), "{words}");
    fs::remove_file(&fifo).expect("removed");
    let words = refused(Command::new(&lfs).args(["setstripe", "-C", "2"]).arg(&file), 2);
    assert!(words.starts_with("lfs: setstripe -C: ") && words.lines().count() == 1, "{words}");
    let before = fs::metadata(&file).expect("there");
    let reader = File::open(&file).expect("opens");
    run(Command::new(&lfs).args(["migrate", "-c", "2", "-S", "64K"]).arg(&file));
    let after = fs::metadata(&file).expect("there");
    assert_eq!((get(&["-c"], &file), get(&["-S"], &file)), ("2".into(), "65536".into()));
    assert_eq!(
        (before.ino(), before.mtime(), before.mtime_nsec(), before.mode()),
        (after.ino(), after.mtime(), after.mtime_nsec(), after.mode())
    );
    let mut read = vec![0; bytes.len()];
    reader.read_exact_at(&mut read, 0).expect("a descriptor of before reads on");
    assert!(read == bytes && fs::read(mounts.second.join("f")).expect("read") == bytes);
    drop(reader);
    let writer = OpenOptions::new().write(true).open(mounts.second.join("f")).expect("opens");
    assert!(refused(forebay().args(["migrate", "-c", "1"]).arg(&file), 1).contains("open for writing"));
    drop(writer);
    assert!(soon(|| forebay()
        .args(["migrate", "-c", "1", "-i", "0"])
        .arg(&file)
        .output()
        .is_ok_and(|out| out.status.success())));
    mounts.kill_servers();
    mounts.bring_back();
    assert!(fs::read(&file).expect("read") == bytes && get(&["-i"], &file) == "0");
    assert_eq!(fs::read_dir(&mounts.first).expect("lists").count(), 1, "no copy is left");
}

#[test]
fn pools_keep_files_on_their_osts() {
    let Some(mounts) = Mounts::new("pools") else { return };
    let (cluster, dir) = (mounts.cluster(), mounts.first.join("d"));
    fs::create_dir(&dir).expect("made");
    run(forebay().args(["pool", "new", &cluster, "flash"]));
    run(forebay().args(["pool", "add", &cluster, "flash", "OST0001"]));
    assert_eq!(told(forebay().args(["pool", "list", &cluster])), "flash  OST0001\n");
    run(forebay().args(["setstripe", "-p", "flash"]).arg(&dir));
    for number in 0..6 {
        let file = dir.join(format!("{number}"));
        fs::write(&file, "x").expect("written");
        assert_eq!((get(&["-i"], &file), get(&["-p"], &file)), ("1".into(), "flash".into()));
    }
    mounts.kill_servers();
    mounts.bring_back();
    assert!(refused(forebay().args(["pool", "destroy", &cluster, "flash"]), 1).contains("remove them first"));
    assert!(refused(forebay().args(["pool", "add", &cluster, "flash", "9"]), 1).contains("no OST with index 9"));
    assert!(
        refused(forebay().args(["setstripe", "-p", "flash", "-c", "2"]).arg(&dir), 1)
            .contains("there is 1 OST in pool flash")
    );
    assert!(told(forebay().args(["df", "-h", "-p", "flash"]).arg(&mounts.first)).contains("OST0001"));
    run(forebay().args(["pool", "remove", &cluster, "flash", "1"]));
    run(forebay().args(["pool", "destroy", &cluster, "flash"]));
    // The directory's layout still names it, which causes no error.
    fs::write(dir.join("later"), "x").expect("written");
}

/// fill OST0000, continue to write | the file continues on another OST, and reads back after a restart
#[test]
fn a_file_on_a_full_ost_goes_on_elsewhere() {
    let Some(mounts) = Mounts::new("beyond") else { return };
    let file = mounts.first.join("f");
    run(forebay().args(["setstripe", "-c", "1", "-i", "0"]).arg(&file));
    let open = OpenOptions::new().write(true).open(&file).expect("opens");
    let piece = |number: usize| vec![number as u8 | 1; 4 * MIB];
    // One OST of 512 MiB is too small for this, two are not.
    let pieces = 150;
    for number in 0..pieces {
        open.write_all_at(&piece(number), (number * 4 * MIB) as u64).expect("there is room on the other");
    }
    open.sync_all().expect("synced");
    let components: usize = get(&["--component-count"], &file).parse().expect("a number");
    assert!(components >= 2, "{}", get(&[], &file));
    mounts.kill_servers();
    mounts.bring_back();
    let read = File::open(mounts.second.join("f")).expect("opens");
    let mut bytes = vec![0; 4 * MIB];
    for number in 0..pieces {
        read.read_exact_at(&mut bytes, (number * 4 * MIB) as u64).expect("read");
        assert!(bytes == piece(number), "piece {number}");
    }
    let stripe = |name: &str| {
        let path = mounts.first.join(name);
        let output = forebay().args(["setstripe", "-c", "2"]).arg(&path).output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
        (get(&["-c"], &path), String::from_utf8(output.stderr).expect("words"))
    };
    let (count, words) = stripe("narrow");
    assert!(
        count == "1" && words.contains("narrow: 1 stripe, not 2") && words.contains("forebay df"),
        "{count} {words}"
    );
    drop((open, read));
    // The MDT asks the OSTs for their space every 3 s; wait for that.
    fs::remove_file(mounts.first.join("f")).expect("removed");
    assert!(soon(|| stripe("wide") == ("2".into(), String::new())), "{:?}", stripe("wide"));
}

/// tar --xattrs, onto the mount, off it and back | the layout; plain files list nothing; cp never fails because of it
#[test]
fn layouts_travel_as_extended_attributes() {
    let Some(mounts) = Mounts::new("xattrs") else { return };
    let (from, to) = (mounts.first.join("from"), mounts.first.join("to"));
    fs::create_dir(&from).expect("made");
    fs::create_dir(&to).expect("made");
    let (striped, plain) = (from.join("striped"), from.join("plain"));
    run(forebay().args(["setstripe", "-E", "1M", "-c", "1", "-E", "-1", "-c", "2"]).arg(&striped));
    fs::write(&striped, pattern(2 * MIB)).expect("written");
    fs::write(&plain, "x").expect("written");
    let text = xattr(&striped, "user.forebay.layout").expect("it is there");
    assert_eq!(text, "-E 1048576 -c 1 -S 1048576 -E -1 -c 2 -S 1048576");
    assert_eq!((listed(&striped), listed(&plain)), ("user.forebay.layout\0".into(), String::new()));
    assert!(xattr(&plain, "user.forebay.layout").is_some() && xattr(&plain, "forebay.layout").is_some());
    let archive = format!("{}/x.tar", mounts.scratch.path());
    run(Command::new("tar").args(["--xattrs", "-cf", &archive, "-C"]).arg(&from).arg("."));
    run(Command::new("tar").args(["--xattrs", "-xf", &archive, "-C"]).arg(&to));
    assert_eq!(xattr(&to.join("striped"), "user.forebay.layout"), Some(text));
    assert!(fs::read(to.join("striped")).expect("read") == pattern(2 * MIB));
    run(Command::new("cp").arg("--preserve=xattr").arg(&striped).arg(mounts.first.join("copy")));
    run(Command::new("cp").arg("--preserve=xattr").arg(&striped).arg(mounts.scratch.path()));
    run(Command::new("cp")
        .args(["--attributes-only", "--preserve=xattr"])
        .arg(&striped)
        .arg(mounts.first.join("like")));
    assert_eq!(get(&["--component-count"], &mounts.first.join("like")), "2");
}
