//! Space: fallocate(2), and the space that a deleted file frees.

use std::{
    fs::{self, File},
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt},
    },
    process::Command,
};

use crate::{
    common::{
        forebay,
        mounts::{Mounts, run, soon},
    },
    done,
};

pub fn allocate(file: &File, mode: i32, offset: i64, bytes: i64) -> Result<i64, i32> {
    // SAFETY: an open descriptor.
    done(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, bytes) }.into())
}

#[test]
fn fallocated_space_is_writable_when_full() {
    let Some(mounts) = Mounts::new("aside") else { return };
    run(forebay().args(["setstripe", "-c", "2", "-S", "1MiB"]).arg(&mounts.first));
    let available = || {
        let output = Command::new("df").args(["--output=avail", "-B1"]).arg(&mounts.second).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        said.lines().nth(1).and_then(|line| line.trim().parse::<u64>().ok()).expect("a number")
    };
    let make = |name: &str| File::create_new(mounts.first.join(name)).expect("made");
    // Asked on the first mount: other mounts learn of a reservation only when the file is closed.
    let blocks = |name: &str| fs::metadata(mounts.first.join(name)).expect("there").blocks() * 512;
    let (before, aside) = (available(), 100 << 20);
    let file = make("aside");
    assert_eq!(allocate(&file, 0, 0, aside), Ok(0));
    let kept = make("kept");
    assert_eq!(allocate(&kept, libc::FALLOC_FL_KEEP_SIZE, 0, 10 << 20), Ok(0));
    assert_eq!((file.metadata().expect("there").len(), kept.metadata().expect("there").len()), (aside as u64, 0));
    assert_eq!((blocks("aside"), blocks("kept")), (aside as u64, 10 << 20));
    assert!(available() <= before - aside as u64 - (10 << 20), "{} of {before}", available());
    // SAFETY: an open descriptor.
    assert_eq!(unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_DATA) }, -1, "nothing is written yet");
    assert_eq!(allocate(&file, 0, 0, 1 << 40), Err(libc::ENOSPC));
    assert_eq!(file.metadata().expect("there").len(), aside as u64);

    let filler = make("filler");
    let piece = vec![5; 1 << 20];
    let mut filled = 0;
    let error = loop {
        match filler.write_all_at(&piece, filled) {
            Ok(()) => filled += 1 << 20,
            Err(error) => break error,
        }
        assert!(filled < 1200 << 20);
    };
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    mounts.kill_servers();
    mounts.bring_back();
    assert_eq!(
        filler.write_all_at(&[5; 8 << 20], filled + (1 << 20)).expect_err("still full").raw_os_error(),
        Some(libc::ENOSPC)
    );
    for at in 0..aside as u64 >> 20 {
        file.write_all_at(&piece, at << 20).unwrap_or_else(|error| panic!("MiB {at} of what was set aside: {error}"));
    }
    file.sync_all().expect("durable");
    assert_eq!(blocks("aside"), aside as u64);
    assert!(fs::read(mounts.second.join("aside")).expect("read").iter().all(|byte| *byte == 5));
    // A hole, a truncate and a delete free it.
    assert_eq!(allocate(&kept, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 0, 4 << 20), Ok(0));
    assert_eq!(blocks("kept"), 6 << 20);
    kept.set_len(1 << 20).expect("cut");
    assert_eq!(blocks("kept"), 0, "the part that was left is the hole");
    drop((file, filler));
    ["aside", "filler"].iter().for_each(|name| fs::remove_file(mounts.first.join(name)).expect("removed"));
    assert!((0..5).any(|_| soon(|| available() > before - (8 << 20))), "{} of {before}", available());
}

/// fallocate(2) of 100 ranges far from each other; of one range that is then written, with 100 holes | all are granted;
/// the holes free their space
#[test]
fn room_may_be_set_aside_in_many_places_and_many_holes_give_it_back() {
    let Some(mounts) = Mounts::new("places") else { return };
    let file = File::create_new(mounts.first.join("many")).expect("made");
    for place in 0..100 {
        assert_eq!(allocate(&file, libc::FALLOC_FL_KEEP_SIZE, place * (1 << 20), 4096), Ok(0), "place {place}");
    }
    let holes = File::create_new(mounts.first.join("holes")).expect("made");
    let bytes = 32 << 20;
    assert_eq!(allocate(&holes, 0, 0, bytes), Ok(0));
    holes.write_all_at(&vec![1; bytes as usize], 0).expect("written");
    holes.sync_all().expect("durable");
    for hole in 0..100 {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        assert_eq!(allocate(&holes, mode, hole * (256 << 10), 128 << 10), Ok(0));
    }
    let blocks = || holes.metadata().expect("there").blocks() * 512;
    assert!(soon(|| blocks() == (bytes - (100 << 17)) as u64), "{} bytes", blocks());
}

/// over half of all space is reserved, or written, and deleted, again and again | there is space each time, at once
#[test]
fn room_of_a_deleted_file_is_there_for_the_next() {
    let Some(mounts) = Mounts::new("rotate") else { return };
    let bytes: i64 = 640 << 20;
    for (name, stripes) in [("striped", "2"), ("round", "1")] {
        let dir = mounts.first.join(name);
        fs::create_dir(&dir).expect("made");
        run(forebay().args(["setstripe", "-c", stripes]).arg(&dir));
        let path = dir.join("checkpoint");
        for round in 0..6 {
            let file = File::create_new(&path).expect("made");
            if stripes == "2" {
                assert_eq!(allocate(&file, 0, 0, bytes), Ok(0), "round {round}");
            }
            for at in (0..bytes as u64).step_by(4 << 20) {
                if stripes == "1" || at % (64 << 20) == 0 {
                    file.write_all_at(&vec![round; 4 << 20], at)
                        .unwrap_or_else(|error| panic!("{name} {round} {at}: {error}"));
                }
            }
            drop(file);
            fs::remove_file(&path).expect("removed");
        }
    }
}
