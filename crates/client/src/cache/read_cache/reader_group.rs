//! Readers that go through one file side by side, as the programs of a job do: what one fetches the others find, while they
//! stay within what is kept of each other. Nothing holds them together but this: who is far ahead is not read ahead, so that
//! it waits for what it reads, and the others come up meanwhile. Apart by more than what is kept, each would fetch the whole
//! file for itself, at the same pace, to its end.
//!
//! Not here: what is returned. This decides only what is prefetched.

use std::cell::RefCell;

use forebay_env::Time;

use crate::limits;

/// Those that read one file through handles of this client.
#[derive(Default)]
pub(crate) struct ReaderGroup(RefCell<Vec<Reader>>);

struct Reader {
    handle: u64,
    /// Up to where it has read, if it reads onwards.
    at: Option<u64>,
    seen: Time,
}

impl Reader {
    fn is_there(&self, now: Time) -> bool {
        now.since(self.seen) < limits::READER_GROUP_TERM
    }
}

impl ReaderGroup {
    /// Whether there are others than the reader by `handle`.
    pub fn has_others(&self, handle: u64, now: Time) -> bool {
        self.0.borrow().iter().any(|reader| reader.handle != handle && reader.is_there(now))
    }

    /// Whether the reader by `handle`, who has come to `at` if it reads onwards, is so far ahead of another that this one may soon not find what it
    /// fetches, of which `kept` bytes are kept. A reader that is much further behind is not in the group.
    pub fn leads(&self, handle: u64, at: Option<u64>, kept: u64, now: Time) -> bool {
        let mut readers = self.0.borrow_mut();
        match readers.iter_mut().find(|reader| reader.handle == handle) {
            Some(reader) => (reader.at, reader.seen) = (at, now),
            None => {
                readers.retain(|reader| reader.is_there(now));
                if readers.len() < limits::READER_GROUP {
                    readers.push(Reader { handle, at, seen: now });
                }
            }
        }
        let far = kept / 4..kept.saturating_mul(2);
        let is_behind = |reader: &Reader| Some(at?.checked_sub(reader.at?)?).filter(|by| far.contains(by));
        readers.iter().any(|reader| reader.is_there(now) && is_behind(reader).is_some())
    }
}

#[cfg(test)]
mod tests;
