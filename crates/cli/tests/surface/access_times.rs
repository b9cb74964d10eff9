//! Access times, by the rules of mount(8).

use std::{
    fs::{self, File, FileTimes, OpenOptions},
    io::Read as _,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    },
    path::Path,
    thread::sleep,
    time::{Duration, SystemTime},
};

use crate::common::{
    forebay,
    mounts::{Mounts, run, soon},
};

/// Access, modification and change time, in nanoseconds.
fn times(path: &Path) -> [i64; 3] {
    let meta = fs::metadata(path).expect("there");
    [
        meta.atime() * 1_000_000_000 + meta.atime_nsec(),
        meta.mtime() * 1_000_000_000 + meta.mtime_nsec(),
        meta.ctime() * 1_000_000_000 + meta.ctime_nsec(),
    ]
}

/// Whether `read` updates the access time of `path`, as seen immediately. No other time may change.
fn moves(path: &Path, read: impl FnOnce(&Path)) -> bool {
    // The kernel's clock for file times advances in ticks.
    sleep(Duration::from_millis(20));
    let before = times(path);
    read(path);
    let after = times(path);
    assert_eq!(before[1..], after[1..], "a read moves the access time alone");
    after[0] > before[0]
}

/// A way to read a file.
type Read = fn(&Path);

fn read(path: &Path) {
    assert!(!fs::read(path).expect("read").is_empty());
}

fn map(path: &Path) {
    let file = File::open(path).expect("opened");
    // SAFETY: a read-only mapping of an open file that has this byte.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), 1, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(at.cast::<u8>().read_volatile(), b'x');
        libc::munmap(at, 1);
    }
}

fn list(path: &Path) {
    assert!(fs::read_dir(path).expect("listed").count() > 0);
}

fn change(path: &Path) {
    sleep(Duration::from_millis(20));
    fs::set_permissions(path, fs::metadata(path).expect("there").permissions()).expect("set");
}

/// Reads of each kind after a change update it, once only; not with O_NOATIME; an old one is updated; one that is set
/// stays
#[test]
fn access_times_move_as_relatime_says() {
    let Some(mounts) = Mounts::new("relatime") else { return };
    let (dir, file) = (mounts.first.join("d"), mounts.first.join("d/f"));
    fs::create_dir(&dir).expect("made");
    fs::write(&file, vec![b'x'; 100_000]).expect("written");
    assert!(moves(&file, read), "the first one after it was written");
    assert!(!moves(&file, read), "the second");
    let reads: [(&str, Read); 4] = [
        ("read", read),
        ("a page of a mapping", map),
        ("copy_file_range", |path| {
            fs::copy(path, path.with_file_name("copy")).expect("copied");
        }),
        ("a read at the end", |path| {
            let mut none = [0; 10];
            assert_eq!(File::open(path).expect("opened").read_at(&mut none, 100_000).expect("read"), 0);
        }),
    ];
    for (what, read) in reads {
        change(&file);
        assert!(moves(&file, read), "{what}");
    }
    change(&file);
    let quietly = |path: &Path| {
        let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NOATIME).open(path).expect("opened");
        assert_eq!(file.read(&mut [0; 10]).expect("read"), 10);
    };
    assert!(!moves(&file, quietly), "O_NOATIME");
    assert!(moves(&file, read));
    // Older than a day.
    let given = SystemTime::now() - Duration::from_secs(25 * 60 * 60);
    let open = OpenOptions::new().write(true).open(&file).expect("opened");
    open.set_times(FileTimes::new().set_accessed(given).set_modified(given - Duration::from_secs(5))).expect("given");
    assert!(moves(&file, read));
    // An access time that is set while the file is open counts.
    let reader = File::open(&file).expect("opened");
    change(&file);
    assert_eq!(reader.read_at(&mut [0; 10], 0).expect("read"), 10);
    let future = SystemTime::now() + Duration::from_secs(1000);
    reader.set_times(FileTimes::new().set_accessed(future)).expect("given");
    drop(reader);
    assert_eq!(fs::metadata(&file).expect("there").accessed().expect("a time"), future);
    // Directories, too.
    assert!(moves(&dir, list) && !moves(&dir, list));
}

/// read here, close | the other mount sees it; strictatime, noatime, nodiratime, ro
#[test]
fn mounts_choose_their_access_times_and_others_see_them_after_the_close() {
    let Some(mounts) = Mounts::new("atimes") else { return };
    let at = |what: &str| Path::new(mounts.scratch.path()).join(what);
    fs::create_dir(mounts.first.join("d")).expect("made");
    fs::write(mounts.first.join("d/f"), vec![b'x'; 100_000]).expect("written");
    sleep(Duration::from_millis(20));
    let file = File::open(mounts.first.join("d/f")).expect("opened");
    assert_eq!(file.read_at(&mut [0; 10], 0).expect("read"), 10);
    let here = times(&mounts.first.join("d/f"));
    assert!(here[0] > here[2]);
    drop(file);
    assert!(soon(|| times(&mounts.second.join("d/f")) == here), "it comes with the close");
    for (name, options, expected) in [
        ("strict", "strictatime", [true, true, true, true]),
        ("never", "noatime", [false; 4]),
        ("files", "strictatime,nodiratime", [true, true, false, false]),
        ("readonly", "ro,strictatime", [false; 4]),
    ] {
        let mnt = at(name);
        fs::create_dir(&mnt).expect("made");
        run(forebay().args(["mount", "-o", options, &mounts.cluster()]).arg(&mnt));
        let (dir, file) = (mnt.join("d"), mnt.join("d/f"));
        let moved = [moves(&file, read), moves(&file, read), moves(&dir, list), moves(&dir, list)];
        run(forebay().arg("umount").arg(&mnt));
        assert_eq!(moved, expected, "{options}");
    }
}
