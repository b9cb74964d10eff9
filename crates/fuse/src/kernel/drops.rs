//! Threads that make the kernel drop pages of files, or inform it that a file is larger.
//!
//! For each page the kernel waits until a read of it has its reply, and until changes of mappings are written back. The
//! shard replies to both, so the shard must not be the thread that waits.
//!
//! Invariant: at most [`limits::DROP_THREADS`] threads, and none before the first page is to be dropped. They end when
//! [`Drops`] is dropped.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // the notification blocks: it has threads

use std::{
    cell::OnceCell,
    collections::VecDeque,
    fs::File,
    io::Write,
    ops::Range,
    rc::Rc,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use forebay_env::{real::Descriptor, sync::oneshot};

use super::notify::{INVAL_INODE, header};
use crate::limits;

const OUT_BYTES: usize = 24;
const STORE: i32 = 4;

/// See the module.
pub(crate) struct Drops {
    descriptor: Rc<Descriptor>,
    /// The inner `None`: the descriptor could not be duplicated for threads.
    shared: OnceCell<Option<Arc<Shared>>>,
}

struct Shared {
    descriptor: File,
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    is_over: bool,
}

/// Messages for the kernel, and the sender that reports their completion.
struct Job {
    messages: Vec<Vec<u8>>,
    done: oneshot::Sender<()>,
}

impl Drops {
    pub(super) fn new(descriptor: Rc<Descriptor>) -> Self {
        Self { descriptor, shared: OnceCell::new() }
    }

    /// Makes the kernel write back and drop its pages of `bytes`. Resolves when that is done, or when the kernel has no
    /// such inode, or when the mount is gone.
    pub fn drop_pages(&self, ino: u64, bytes: &Range<u64>) -> oneshot::Receiver<()> {
        self.tell(vec![dropping(ino, bytes)])
    }

    /// Informs the kernel that a file has grown from `before` to `end` bytes. `have_pages`: the kernel may have pages
    /// of it.
    pub fn grow(&self, ino: u64, before: u64, end: u64, have_pages: bool) -> oneshot::Receiver<()> {
        // What a page shows behind the previous end is not part of the file. Nor is the byte that makes the file
        // larger.
        let drops = dropping(ino, &(before..u64::MAX));
        let first = have_pages.then(|| drops.clone());
        self.tell(first.into_iter().chain([growing(ino, end), drops]).collect())
    }

    fn tell(&self, messages: Vec<Vec<u8>>) -> oneshot::Receiver<()> {
        let (done, told) = oneshot::channel();
        let shared = self.shared.get_or_init(|| {
            let descriptor = File::from(self.descriptor.for_a_thread().ok()?);
            Some(Arc::new(Shared { descriptor, state: Mutex::default(), more: Condvar::new() }))
        });
        if let Some(shared) = shared {
            shared.add(Job { messages, done });
        }
        told
    }
}

impl Drop for Drops {
    fn drop(&mut self) {
        if let Some(Some(shared)) = self.shared.get() {
            shared.state().is_over = true;
            shared.more.notify_all();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(self: &Arc<Self>, job: Job) {
        let mut state = self.state();
        state.jobs.push_back(job);
        if state.idle < state.jobs.len() && state.threads < limits::DROP_THREADS {
            let shared = self.clone();
            let begun = thread::Builder::new().name("fuse-pages".into()).spawn(move || shared.run());
            state.threads += usize::from(begun.is_ok());
            if state.threads == 0 {
                // No thread would ever run the jobs, so their callers stop waiting.
                state.jobs.clear();
            }
        }
        drop(state);
        self.more.notify_one();
    }

    fn run(&self) {
        loop {
            let mut state = self.state();
            state.idle += 1;
            state = self
                .more
                .wait_while(state, |state| state.jobs.is_empty() && !state.is_over)
                .unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
            let Some(job) = state.jobs.pop_front() else { return };
            drop(state);
            // Errors mean that there are no pages: the inode or the mount is gone.
            for message in &job.messages {
                let _ = (&self.descriptor).write(message);
            }
            let _ = job.done.send(());
        }
    }
}

/// Stores a zero as the last byte: `struct fuse_notify_store_out`, and the byte. The kernel enlarges the file for it;
/// it does not for a store of no bytes. The page has to be dropped afterwards.
fn growing(ino: u64, end: u64) -> Vec<u8> {
    let mut message = header(STORE, OUT_BYTES + 1).to_vec();
    for word in [ino, end - 1, 1] {
        message.extend_from_slice(&word.to_ne_bytes());
    }
    message.push(0);
    message
}

/// `struct fuse_notify_inval_inode_out`.
fn dropping(ino: u64, bytes: &Range<u64>) -> Vec<u8> {
    // Length 0 means: up to the largest possible offset.
    let length = if bytes.end > i64::MAX as u64 { 0 } else { bytes.end - bytes.start };
    let mut message = header(INVAL_INODE, OUT_BYTES).to_vec();
    for word in [ino, bytes.start, length] {
        message.extend_from_slice(&word.to_ne_bytes());
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalidation_message_has_the_layout_of_the_kernel() {
        let words = |bytes: &Range<u64>| -> Vec<u64> {
            let message = dropping(7, bytes);
            message.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes"))).collect()
        };
        assert_eq!(words(&(4096..5000)), [40 | 2 << 32, 0, 7, 4096, 904]);
        assert_eq!(words(&(4096..u64::MAX))[3..], [4096, 0]);
        let grown = growing(7, 5000);
        let word = |at: usize| u64::from_ne_bytes(grown[at..at + 8].try_into().expect("eight bytes"));
        assert_eq!((grown.len(), word(0), word(16), word(24), word(32), grown[40]), (41, 41 | 4 << 32, 7, 4999, 1, 0));
    }
}
