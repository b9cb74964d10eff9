//! Looks for the next small message for a while before the shard sleeps.
//!
//! A thread that sleeps is woken on whatever processor is idle, through an interrupt and, in a virtual machine, through
//! its host: 30 to 80 µs, more than the work of a request. So once messages follow each other closely the shard asks
//! again and again, [`BUSY_POLL`] long after the last one, and sleeps as ever when they stop. Whoever else wants the
//! processor gets it between two questions. Bulk transfers neither begin nor prolong it: bytes, not wake-ups, are what
//! they cost. Whoever knows better says so ([`expect_another`]).

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

/// What can tell without a system call whether something came.
pub(super) trait Look {
    /// Wakes who waits for it if something came. After the `last` look nobody looks, until messages follow each other again.
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

/// The next message is expected at once, however long the last one was: who sends it waits for what was just answered.
pub fn expect_another() {
    SHARD.with(|shard| shard.message());
}

/// From now on `look` is looked at.
pub(super) fn add(look: &Rc<dyn Look>) {
    SHARD.with(|shard| shard.looks.borrow_mut().push(Rc::downgrade(look)));
}

/// The shard looks again and again.
pub(super) fn is_polling() -> bool {
    SHARD.with(|shard| shard.polling.get())
}

/// The shard's task that does it.
pub(super) async fn run() {
    let shard = SHARD.with(Rc::clone);
    loop {
        shard.begin.notified().await;
        let mut seen = None;
        while shard.since_last() < BUSY_POLL {
            shard.look(false);
            // Nothing came since the last look: others may have the processor first.
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
            // Until a pair was close enough: this thread may lose its processor between any two.
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
    fn bulk_after_which_another_message_is_expected_makes_the_shard_poll_too() {
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
