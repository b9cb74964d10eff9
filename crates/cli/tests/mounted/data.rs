//! Bytes: descriptors, holes, zeroed ranges, a full file system, O_DSYNC.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    },
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use crate::{
    common::{
        forebay,
        mounts::{Mounts, process_of, run, signal, soon},
    },
    open,
};

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
    signal("-9", &process_of(&mounts.first));
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
