//! Links whose file went between the kernel's lookup and the link.
//!
//! Told ESTALE, the kernel looks the file's name up again and asks once more; told it again, it hands it to the program, which no
//! local file system does: there a link that comes after its file's last name went is ENOENT.

use std::{cell::RefCell, collections::BTreeMap};

use bytes::Bytes;
use forebay_proto::Errno;

use crate::limits;

/// The last race that each thread lost.
#[derive(Default)]
pub(crate) struct Races {
    lost: RefCell<BTreeMap<u32, (u64, Bytes)>>,
}

impl Races {
    /// What a thread is told whose link to `name` of `parent` came too late.
    pub fn lost(&self, thread: u32, parent: u64, name: &[u8]) -> Errno {
        let mut lost = self.lost.borrow_mut();
        if lost.remove(&thread).is_some_and(|(of, last)| of == parent && last == name) {
            return Errno::ENOENT;
        }
        if lost.len() >= limits::LOST_RACES {
            lost.clear();
        }
        lost.insert(thread, (parent, Bytes::copy_from_slice(name)));
        Errno::ESTALE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_thread_is_told_to_look_again_once() {
        let races = Races::default();
        assert_eq!(races.lost(1, 7, b"a"), Errno::ESTALE);
        assert_eq!(races.lost(2, 7, b"a"), Errno::ESTALE, "another thread");
        assert_eq!(races.lost(1, 7, b"a"), Errno::ENOENT);
        assert_eq!(races.lost(1, 7, b"a"), Errno::ESTALE, "its next link");
        assert_eq!(races.lost(1, 7, b"b"), Errno::ESTALE, "another name");
        assert_eq!(races.lost(1, 8, b"b"), Errno::ESTALE, "of another directory");
        assert_eq!(races.lost(1, 8, b"b"), Errno::ENOENT);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let races = Races::default();
        for thread in 0..3 * limits::LOST_RACES as u32 {
            races.lost(thread, 1, b"a");
        }
        assert!(races.lost.borrow().len() <= limits::LOST_RACES);
    }
}
