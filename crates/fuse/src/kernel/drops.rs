//! Threads that have the kernel drop pages of files.
//!
//! The kernel waits for each page: until a read of it is answered, and until what a mapping changed in it is written back. The shard
//! answers both, so it cannot be the one that waits.
//!
//! Invariant: at most [`limits::DROP_THREADS`] threads, none before the first page is to be dropped. They end with this.
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

/// See the module.
pub(crate) struct Drops {
    descriptor: Rc<Descriptor>,
    /// None: the threads can have no descriptor.
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

/// A message for the kernel, and who waits until it has done what it says.
struct Job {
    message: Vec<u8>,
    done: oneshot::Sender<()>,
}

impl Drops {
    pub(super) fn new(descriptor: Rc<Descriptor>) -> Self {
        Self { descriptor, shared: OnceCell::new() }
    }

    /// Has the kernel write back and drop its pages of `bytes`. Resolves when it has, or has no such inode, or the mount is gone.
    pub fn drop_pages(&self, ino: u64, bytes: &Range<u64>) -> oneshot::Receiver<()> {
        let (done, dropped) = oneshot::channel();
        let shared = self.shared.get_or_init(|| {
            let descriptor = File::from(self.descriptor.for_a_thread().ok()?);
            Some(Arc::new(Shared { descriptor, state: Mutex::default(), more: Condvar::new() }))
        });
        if let Some(shared) = shared {
            shared.add(Job { message: message(ino, bytes), done });
        }
        dropped
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
                // Nobody would ever do it; who waits goes on.
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
            // An inode that is not there has no pages, nor has a mount that is gone.
            let _ = (&self.descriptor).write(&job.message);
            let _ = job.done.send(());
        }
    }
}

/// `struct fuse_notify_inval_inode_out`.
fn message(ino: u64, bytes: &Range<u64>) -> Vec<u8> {
    // Up to the largest offset there is: length 0 says so.
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
    fn the_message_lies_as_the_kernel_reads_it() {
        let words = |bytes: &Range<u64>| -> Vec<u64> {
            let message = message(7, bytes);
            message.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes"))).collect()
        };
        assert_eq!(words(&(4096..5000)), [40 | 2 << 32, 0, 7, 4096, 904]);
        assert_eq!(words(&(4096..u64::MAX))[3..], [4096, 0]);
    }
}
