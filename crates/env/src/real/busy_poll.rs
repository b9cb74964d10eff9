//! Busy-polls for the next small message for a while before the shard sleeps.
//!
//! A sleeping thread is woken on any idle processor, through an interrupt and, in a virtual machine, through its host.
//! That takes 30 to 80 µs, more than the work of a request. So once messages follow each other closely, the shard polls
//! until [`BUSY_POLL`] after the last one, and then sleeps as usual. Between two polls it yields the processor to other
//! threads. Bulk transfers neither start nor prolong polling: their cost is bytes, not wake-ups. A caller that expects
//! a message says so ([`expect_another`]).

use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use crate::limits::{BUSY_POLL, BUSY_POLL_MESSAGE_BYTES};

thread_local! {
    /// Each shard is a thread.
    static SHARD: Rc<BusyPoll> = Rc::new(BusyPoll::default());
}

#[derive(Default)]
struct BusyPoll {
    last_message: Cell<Option<Instant>>,
    polling: Cell<bool>,
    begin: Notify,
    looks: RefCell<Vec<Weak<dyn Look>>>,
}

/// A source that can tell without a system call whether something arrived.
pub(super) trait Look {
    /// Wakes the source's waiters if something arrived. After the `last` look it is not polled until messages follow
    /// each other closely again.
    fn look(&self, last: bool);
}

impl BusyPoll {
    fn since_last(&self) -> Duration {
        self.last_message.get().map_or(Duration::MAX, |last| last.elapsed())
    }

    fn look(&self, last: bool) {
        self.looks.borrow_mut().retain(|look| look.upgrade().inspect(|look| look.look(last)).is_some());
    }

    fn message(&self) {
        let now = Instant::now();
        let close = self.last_message.replace(Some(now)).is_some_and(|last| now - last < BUSY_POLL);
        if close && !self.polling.replace(true) {
            self.begin.notify_one();
        }
    }
}

/// A message of this many bytes has been read.
pub(super) fn message(bytes: usize) {
    if bytes < BUSY_POLL_MESSAGE_BYTES {
        SHARD.with(|shard| shard.message());
    }
}

/// The next message is expected at once, however long the last one was: its sender waits for a reply that was just
/// sent.
pub fn expect_another() {
    SHARD.with(|shard| shard.message());
}

/// Adds a source to poll.
pub(super) fn add(look: &Rc<dyn Look>) {
    SHARD.with(|shard| shard.looks.borrow_mut().push(Rc::downgrade(look)));
}

/// True while the shard busy-polls.
pub(super) fn is_polling() -> bool {
    SHARD.with(|shard| shard.polling.get())
}

/// The shard's polling task.
pub(super) async fn run() {
    let shard = SHARD.with(Rc::clone);
    loop {
        shard.begin.notified().await;
        let mut seen = None;
        while shard.since_last() < BUSY_POLL {
            shard.look(false);
            // Nothing arrived since the last poll: other threads may have the processor first.
            if seen.replace(shard.last_message.get()) == Some(shard.last_message.get()) {
                std::thread::yield_now();
            }
            // Asks epoll without waiting, when no other task is ready.
            tokio::task::yield_now().await;
        }
        shard.polling.set(false);
        shard.look(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_messages_in_close_order_make_the_shard_poll_until_they_stop() {
        crate::real::run(async |env| {
            env.yield_now().await;
            message(1);
            assert!(!is_polling(), "one message alone is nothing");
            message(BUSY_POLL_MESSAGE_BYTES);
            assert!(!is_polling(), "bulk does not count");
            // Until two were close enough: this thread may lose its processor between any two.
            while !is_polling() {
                message(1);
            }
            let end = async {
                while is_polling() {
                    env.sleep(BUSY_POLL).await;
                }
            };
            env.timeout(Duration::from_secs(10), end).await.expect("it ends");
        });
    }

    #[test]
    fn a_shard_polls_after_bulk_that_another_message_follows() {
        crate::real::run(async |env| {
            env.yield_now().await;
            while !is_polling() {
                message(BUSY_POLL_MESSAGE_BYTES);
                expect_another();
            }
            let end = async {
                while is_polling() {
                    env.sleep(BUSY_POLL).await;
                }
            };
            env.timeout(Duration::from_secs(10), end).await.expect("it ends");
        });
    }
}
