//! Mappings together with all other ways to read and change a file, in the same pages, on one mount. Needs root and
//! /dev/fuse; without them the tests say so and skip. `cargo run --release -p xtask -- pairs` does the same for longer.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod common;
#[path = "../../../xtask/src/pairs/slots.rs"]
mod slots;

use std::{
    fs::{self, File},
    os::{fd::AsRawFd, unix::fs::FileExt},
    path::Path,
    sync::Barrier,
    time::Duration,
};

use common::mounts::Mounts;

const PAGE: usize = 4096;

#[test]
fn mappings_and_all_other_ways_to_change_a_file_agree_in_the_same_pages() {
    let Some(mounts) = Mounts::new("pairs") else { return };
    for threads in [2, 4] {
        let done = slots::run(&mounts.first, Some(&mounts.second), threads, Duration::from_secs(5), 1);
        let done = done.unwrap_or_else(|what| panic!("{what}"));
        assert!(done.met.total() > 500, "{} operations in {} rounds hardly met", done.operations, done.rounds);
        eprintln!("{threads} threads: {} rounds, {} pairs never met", done.rounds, done.met.missing().len());
    }
}

/// One thread touches each page for the first time while another writes to it.
#[test]
fn a_write_beside_the_first_store_to_its_page_is_kept_and_so_is_the_store() {
    let Some(mounts) = Mounts::new("first-store") else { return };
    let path = mounts.first.join("f");
    for round in 1..=15u64 {
        first_stores(&path, round);
    }
}

fn first_stores(path: &Path, round: u64) {
    const PAGES: usize = 32;
    let _ = fs::remove_file(path);
    fs::write(path, vec![0; PAGES * PAGE]).expect("it is written");
    let file = File::options().read(true).write(true).open(path).expect("it opens");
    // SAFETY: a new mapping, somewhere.
    let map = unsafe {
        let both = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(std::ptr::null_mut(), PAGES * PAGE, both, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    assert_ne!(map, libc::MAP_FAILED);
    let at = map as usize;
    let value = |page: usize, way: u64| round << 32 | (page as u64) << 8 | way;
    // SAFETY: within the mapping, and aligned.
    let word =
        |page: usize, place: usize| unsafe { ((at + page * PAGE + place) as *mut u64).as_ref() }.expect("mapped");
    let (start, writes) = (Barrier::new(2), &file);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            for page in 0..PAGES {
                // SAFETY: as above; nobody else goes to this place.
                unsafe { std::ptr::from_ref(word(page, 1024)).cast_mut().write_volatile(value(page, 1)) };
            }
        });
        scope.spawn(|| {
            start.wait();
            for page in 0..PAGES {
                let bytes = value(page, 2).to_ne_bytes();
                writes.write_all_at(&bytes, (page * PAGE + 2048) as u64).expect("it is written");
                // SAFETY: as above; what was written is there at once.
                let loaded = unsafe { std::ptr::from_ref(word(page, 2048)).read_volatile() };
                assert_eq!(loaded, value(page, 2), "round {round}, page {page}: loaded after the write");
            }
        });
    });
    for page in 0..PAGES {
        for (place, way) in [(1024, 1), (2048, 2)] {
            let mut read = [0; 8];
            file.read_exact_at(&mut read, (page * PAGE + place) as u64).expect("it is read");
            // SAFETY: as above.
            let loaded = unsafe { std::ptr::from_ref(word(page, place)).read_volatile() };
            let both = (u64::from_ne_bytes(read), loaded);
            assert_eq!(
                both,
                (value(page, way), value(page, way)),
                "round {round}, page {page} at {place}: read, loaded"
            );
        }
    }
    // SAFETY: the whole mapping, which nobody uses any more.
    unsafe { libc::munmap(map, PAGES * PAGE) };
}
