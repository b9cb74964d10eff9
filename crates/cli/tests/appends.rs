//! A log that processes append to while others follow it, as `tail -f` does: on one mount, on two, and while servers
//! die. Needs root and /dev/fuse; without them the tests say so and skip.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod common;

use std::{
    fs::{File, OpenOptions},
    io::Write,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    process::Command,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
};

use common::{
    forebay,
    mounts::{Mounts, run},
};

/// Number of lines of each writer. They have many lengths, so some cross stripes of 64 KiB.
const LINES: u64 = 400;

/// Line `number` of `writer`. The number determines its length; no byte is 0.
fn line(writer: u64, number: u64) -> Vec<u8> {
    let length = if number % 40 == 7 { 30_000 } else { 60 + number % 90 };
    let mut line = format!("{writer} {number} ").into_bytes();
    line.resize(length as usize, b'a' + (number % 26) as u8);
    line.push(b'\n');
    line
}

/// Appends lines, one call each.
fn append(log: &Path, writer: u64) {
    let mut file = OpenOptions::new().append(true).open(log).expect("it opens");
    for number in 0..LINES {
        let line = line(writer, number);
        assert_eq!(file.write(&line).expect("it appends"), line.len());
    }
}

/// Reads new bytes until all writers have ended and all is read. Checks that every byte was written by a writer.
fn follow(log: &Path, left: &AtomicU64) -> Vec<u8> {
    let file = File::open(log).expect("it opens");
    let (mut all, mut buffer) = (Vec::new(), vec![0; 1 << 20]);
    loop {
        let are_done = left.load(SeqCst) == 0;
        let size = file.metadata().expect("it has a size").size();
        let read = file.read_at(&mut buffer, all.len() as u64).expect("it reads");
        let new = &buffer[..read];
        assert!(!new.contains(&0), "zeros in {read} bytes at {}", all.len());
        all.extend_from_slice(new);
        assert!(all.len() as u64 >= size, "{size} bytes, of which {} can be read", all.len());
        if are_done && read == 0 {
            return all;
        }
    }
}

/// Checks that every line is there once and whole, and that each writer's lines are in order.
fn audit(bytes: &[u8], writers: u64) {
    let mut next = vec![0; writers as usize];
    for one in bytes.split_inclusive(|byte| *byte == b'\n') {
        let text = String::from_utf8_lossy(&one[..one.len().min(20)]).into_owned();
        let writer: usize = text.split(' ').next().and_then(|word| word.parse().ok()).expect("a writer");
        assert!(one == line(writer as u64, next[writer]), "{text:?} is not line {} of {writer}", next[writer]);
        next[writer] += 1;
    }
    assert_eq!(next, vec![LINES; writers as usize]);
}

/// Writers on the mounts in turn, and a follower on each of them.
fn write_and_follow(places: &[&Path], name: &str, stripes: u32, meanwhile: impl FnOnce()) {
    const WRITERS: u64 = 4;
    let log = places[0].join(name);
    run(forebay().args(["setstripe", "-c", &stripes.to_string(), "-S", "64KiB"]).arg(&log));
    let left = AtomicU64::new(WRITERS);
    thread::scope(|scope| {
        let followers: Vec<_> = places
            .iter()
            .map(|place| (place.join(name), &left))
            .map(|(log, left)| scope.spawn(move || follow(&log, left)))
            .collect();
        for writer in 0..WRITERS {
            let (log, left) = (places[writer as usize % places.len()].join(name), &left);
            scope.spawn(move || {
                append(&log, writer);
                left.fetch_sub(1, SeqCst);
            });
        }
        meanwhile();
        for follower in followers {
            audit(&follower.join().expect("no zeros"), WRITERS);
        }
    });
}

#[test]
fn a_reader_that_follows_a_log_on_either_mount_reads_the_appended_bytes() {
    let Some(mounts) = Mounts::new("follow") else { return };
    let (first, second) = (mounts.first.as_path(), mounts.second.as_path());
    for stripes in [1, 2] {
        write_and_follow(&[first], &format!("one{stripes}"), stripes, || {});
        write_and_follow(&[first, second], &format!("two{stripes}"), stripes, || {});
    }
}

#[test]
fn a_reader_that_follows_a_log_without_write_back_reads_the_appended_bytes_while_servers_die() {
    let Some(mounts) = Mounts::new("follow-killed") else { return };
    let (first, second) = (mounts.first.as_path(), mounts.second.as_path());
    run(forebay().arg("umount").arg(second));
    let mut mount = Command::new(env!("CARGO_BIN_EXE_forebay"));
    run(mount.args(["mount", &mounts.cluster()]).arg(second).args(["-o", "writeback=0"]));
    for stripes in [1, 2] {
        write_and_follow(&[second, first], &format!("log{stripes}"), stripes, || {
            thread::sleep(std::time::Duration::from_millis(100));
            mounts.kill_servers();
            mounts.bring_back();
        });
    }
}
