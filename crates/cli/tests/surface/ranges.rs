//! copy_file_range(2).

use std::{
    fs::{self, File, OpenOptions},
    os::fd::AsRawFd,
    path::Path,
    process::Command,
};

use crate::{
    common::{
        Scratch, forebay,
        mounts::{Mounts, run},
    },
    done,
};

fn copy(from: (&File, i64), to: (&File, i64), bytes: usize) -> Result<i64, i32> {
    let (mut from_at, mut to_at) = (from.1, to.1);
    let (from, to) = (from.0.as_raw_fd(), to.0.as_raw_fd());
    // SAFETY: open descriptors, and offsets that outlive the call.
    done(unsafe { libc::copy_file_range(from, &mut from_at, to, &mut to_at, bytes, 0) } as i64)
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + at / 4096) as u8).collect()
}

#[test]
fn a_range_is_copied_from_file_to_file_as_on_the_local_file_system() {
    let Some(mounts) = Mounts::new("copy") else { return };
    run(forebay().args(["setstripe", "-c", "2", "-S", "64KiB"]).arg(&mounts.first));
    let content = pattern(9_000_001);
    let local = Scratch::new("copy-local");
    let answers = |dir: &Path| {
        fs::write(dir.join("from"), &content).expect("written");
        let open =
            |name: &str| OpenOptions::new().read(true).write(true).create(true).truncate(false).open(dir.join(name));
        let (from, to) = (open("from").expect("open"), open("to").expect("open"));
        let append = OpenOptions::new().append(true).create(true).open(dir.join("append")).expect("open");
        let read_only = File::open(dir.join("from")).expect("open");
        vec![
            copy((&from, 0), (&to, 0), content.len()),
            copy((&from, 8_999_990), (&to, 9_000_001), 1000),
            copy((&from, 9_000_001), (&to, 0), 1000),
            copy((&from, 100), (&to, 20_000_000), 5000),
            copy((&from, 0), (&from, 10), 1000),
            copy((&from, 0), (&from, 9_000_001), 1000),
            copy((&from, 0), (&append, 0), 1000),
            copy((&to, 0), (&read_only, 0), 1000),
            copy((&from, 0), (&to, i64::MAX - 1), 1000),
            copy((&from, -1), (&to, 0), 1000),
            copy((&from, 0), (&to, 0), 0),
        ]
    };
    let here = answers(&mounts.first);
    let there = answers(Path::new(local.path()));
    assert_eq!(here, there);
    for name in ["from", "to"] {
        let (here, there) = (fs::read(mounts.second.join(name)), fs::read(Path::new(local.path()).join(name)));
        assert!(here.expect("read") == there.expect("read"), "{name}");
    }
    // A copy of more bytes than one request takes returns a partial count, and the program continues.
    run(Command::new("cp").arg(mounts.first.join("to")).arg(mounts.first.join("cp")));
    run(Command::new("cmp").arg(mounts.first.join("to")).arg(mounts.second.join("cp")));
}
