//! Several writers of one file that grows.
//!
//! The kernel holds a file's lock exclusively during a write that goes past the end it knows of: programs that extend a
//! shared file (one after the other, in records) would wait for each other's round trips. So while a file is open for
//! writing more than once, the kernel is told that it may be longer than it is. Whoever asks for the size is told the true
//! one: the kernel keeps no attributes, each question comes to us. What it uses its own idea for is where writes wait, and
//! where a mapping ends: behind the end of such a file a mapping shows zeros where it would raise SIGBUS.
//!
//! Invariant: the kernel is told more only of a file with two or more writing handles.

use std::{cell::RefCell, collections::BTreeMap};

use forebay_proto::limits::FILE_BYTES;

use crate::limits;

/// Files with writing handles.
#[derive(Default)]
pub(crate) struct Growth {
    files: RefCell<BTreeMap<u64, Known>>,
}

#[derive(Default)]
struct Known {
    writers: usize,
    /// The kernel's idea of the size is about this.
    bytes: u64,
}

impl Growth {
    /// A handle that may write was opened.
    pub fn opened(&self, ino: u64) {
        self.files.borrow_mut().entry(ino).or_default().writers += 1;
    }

    /// Such a handle was closed.
    pub fn closed(&self, ino: u64) {
        let mut files = self.files.borrow_mut();
        if let Some(file) = files.get_mut(&ino) {
            file.writers -= 1;
            if file.writers == 0 {
                files.remove(&ino);
            }
        }
    }

    /// The kernel is told the size, and takes it over.
    pub fn told(&self, ino: u64, bytes: u64) {
        if let Some(file) = self.files.borrow_mut().get_mut(&ino) {
            file.bytes = bytes;
        }
    }

    /// A write that ends at `end` has come. `Some`: what to tell the kernel, so that the next ones need not wait.
    pub fn written(&self, ino: u64, end: u64) -> Option<u64> {
        let mut files = self.files.borrow_mut();
        let file = files.get_mut(&ino).filter(|file| end > file.bytes && end <= FILE_BYTES)?;
        let shared = file.writers > 1;
        file.bytes = if shared { (end + limits::GROWTH_BYTES).min(FILE_BYTES) } else { end };
        shared.then_some(file.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_with_several_writers_are_announced_and_rarely() {
        let growth = Growth::default();
        assert_eq!(growth.written(7, 100), None, "not open for writing: pages of a mapping");
        growth.opened(7);
        assert_eq!(growth.written(7, 100), None);
        growth.opened(7);
        assert_eq!(growth.written(7, 90), None, "within what the kernel knows");
        assert_eq!(growth.written(7, 200), Some(200 + limits::GROWTH_BYTES));
        assert_eq!(growth.written(7, 300), None);
        assert_eq!(growth.written(7, u64::MAX), None, "such a write fails");
        growth.told(7, 300);
        assert_eq!(growth.written(7, 400), Some(400 + limits::GROWTH_BYTES));
        growth.closed(7);
        growth.told(7, 400);
        assert_eq!(growth.written(7, 500), None);
        growth.closed(7);
        assert!(growth.files.borrow().is_empty());
    }
}
