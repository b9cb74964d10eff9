//! readdir(3), telldir(3), seekdir(3) while others change the directory.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::{c, common::mounts::Mounts};

/// A directory read with readdir(3): its names and, before each, telldir(3).
struct Listing(*mut libc::DIR);

impl Listing {
    fn open(path: &Path) -> Self {
        // SAFETY: a string that outlives the call.
        let dir = unsafe { libc::opendir(c(path).as_ptr()) };
        assert!(!dir.is_null());
        Self(dir)
    }

    fn tell(&self) -> libc::c_long {
        // SAFETY: an open directory.
        unsafe { libc::telldir(self.0) }
    }

    fn seek(&self, to: libc::c_long) {
        // SAFETY: an open directory, and a place it told.
        unsafe { libc::seekdir(self.0, to) }
    }

    fn next(&self) -> Option<String> {
        loop {
            // SAFETY: an open directory that nobody else reads.
            let entry = unsafe { libc::readdir(self.0) };
            // SAFETY: the entry is the directory's until its next call; its name ends in NUL.
            let name = unsafe { std::ffi::CStr::from_ptr(entry.as_ref()?.d_name.as_ptr()) };
            let name = name.to_str().expect("UTF-8").to_owned();
            if name != "." && name != ".." {
                return Some(name);
            }
        }
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        // SAFETY: an open directory, used no more.
        unsafe { libc::closedir(self.0) };
    }
}

#[test]
fn a_directory_that_others_change_is_listed_without_a_name_missed_or_told_twice() {
    let Some(mounts) = Mounts::new("listing") else { return };
    let dir = |mnt: &Path| mnt.join("d");
    fs::create_dir(dir(&mounts.first)).expect("made");
    let stays: BTreeSet<String> = (0..3000).map(|number| format!("stays-{number}")).collect();
    stays.iter().for_each(|name| drop(File::create(dir(&mounts.first).join(name)).expect("made")));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (who, mnt) in [&mounts.first, &mounts.second].into_iter().enumerate() {
            let over = &over;
            scope.spawn(move || {
                for round in 0.. {
                    let name = dir(mnt).join(format!("comes-{who}-{}", round % 300));
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    match round / 300 % 2 {
                        0 => drop(File::create(name).expect("made")),
                        _ => fs::remove_file(name).expect("removed"),
                    }
                }
            });
        }
        for round in 0..6 {
            let listing = Listing::open(&dir(if round % 2 == 0 { &mounts.first } else { &mounts.second }));
            let (mut seen, mut places) = (Vec::new(), Vec::new());
            loop {
                let place = listing.tell();
                let Some(name) = listing.next() else { break };
                places.push((place, name.clone()));
                seen.push(name);
            }
            let all: BTreeSet<&String> = seen.iter().collect();
            let twice = seen.len() - all.len();
            let missed = stays.iter().filter(|name| !all.contains(name)).count();
            // A name that was removed and made again during the listing may appear twice.
            let stayed: Vec<&String> = seen.iter().filter(|name| stays.contains(*name)).collect();
            assert_eq!((stayed.len(), missed), (stays.len(), 0), "round {round}, {twice} names twice");
            // After seekdir(3) to an earlier position, the same names follow, as far as they still exist.
            for (place, name) in places.iter().filter(|(_, name)| stays.contains(name)).step_by(311) {
                listing.seek(*place);
                let found = std::iter::from_fn(|| listing.next()).find(|name| stays.contains(name));
                assert_eq!(found.as_ref(), Some(name), "round {round}, place {place}");
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}
