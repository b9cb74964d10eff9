//! The order in which the frames of one direction are handled when they come by several streams.
//!
//! Each stream brings its frames in ascending order, so the one whose turn it is lies at the head of a stream: the others wait
//! with one frame each, and no frame can be waited for that is behind another one that waits.

use std::cell::Cell;

use forebay_env::{Bug, Env, planted, sync::Notify};

use crate::{frame::FrameError, limits};

/// Whose turn it is.
#[derive(Default)]
pub struct Turns {
    /// Number of the next frame; 0: frames have no numbers.
    next: Cell<u64>,
    moved: Notify,
    waiting: Cell<u32>,
    reading: Cell<u32>,
}

/// Counts as long as it lives.
pub struct Counted<'a>(&'a Cell<u32>);

impl<'a> Counted<'a> {
    fn begin(count: &'a Cell<u32>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Turns {
    /// From now on frames have numbers.
    pub fn begin(&self) {
        self.next.set(1);
    }

    /// Frames have numbers.
    pub fn have_begun(&self) -> bool {
        self.next.get() > 0
    }

    /// Waits until all frames before this one were handled. The caller handles it, then calls [`Turns::done`].
    pub async fn wait(&self, env: &Env, order: u64) -> Result<(), FrameError> {
        if order == self.next.get() || planted(Bug::FramesAsTheyCome) {
            return Ok(());
        }
        if order == 0 || order < self.next.get() || !self.have_begun() {
            return Err(FrameError::Bad(format!("frame number {order} where {} is next", self.next.get())));
        }
        let mut silent = 0;
        while self.next.get() < order {
            // Others may be handled meanwhile, or a stream waits for memory, or for the rest of a long frame.
            match env.timeout(limits::RAIL_STALL, self.moved.notified()).await {
                Ok(()) => silent = 0,
                Err(_) if self.waiting.get() > 0 => {}
                Err(_) if self.reading.get() > 0 && silent < limits::RAIL_STALLS_IN_FRAME => silent += 1,
                Err(_) => {
                    let late = self.next.get();
                    let words = format!("frame {late} has not come by another stream within {:?}", limits::RAIL_STALL);
                    return Err(FrameError::Stalled(words));
                }
            }
        }
        Ok(())
    }

    /// A stream waits for memory as long as this lives.
    pub fn waits_for_memory(&self) -> Counted<'_> {
        Counted::begin(&self.waiting)
    }

    /// A stream reads the rest of a frame as long as this lives.
    pub fn reads(&self) -> Counted<'_> {
        Counted::begin(&self.reading)
    }

    /// The frame whose turn it was has been handled.
    pub fn done(&self) {
        if self.have_begun() {
            self.next.set(self.next.get() + 1);
            self.moved.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc, time::Duration};

    use forebay_env::sim::Sim;

    use super::*;

    #[test]
    fn frames_of_several_streams_are_handled_in_the_order_of_their_numbers() {
        let sim = Sim::new(1);
        let env = sim.env(sim.add_node("node"));
        let (turns, handled) = (Rc::new(Turns::default()), Rc::new(RefCell::new(Vec::new())));
        turns.begin();
        for (stream, orders) in [[1, 4, 5], [3, 6, 8], [2, 7, 9]].into_iter().enumerate() {
            let (turns, handled, own) = (turns.clone(), handled.clone(), env.clone());
            env.spawn(async move {
                for order in orders {
                    own.sleep(Duration::from_millis(7 * (3 - stream as u64))).await;
                    turns.wait(&own, order).await.expect("its turn comes");
                    handled.borrow_mut().push(order);
                    turns.done();
                }
            });
        }
        sim.run_for(Duration::from_secs(1));
        assert_eq!(*handled.borrow(), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn a_stream_that_waits_for_memory_is_not_taken_for_dead() {
        let sim = Sim::new(3);
        let env = sim.env(sim.add_node("node"));
        sim.block_on(async {
            let turns = Rc::new(Turns::default());
            turns.begin();
            let (slow, own) = (turns.clone(), env.clone());
            env.spawn(async move {
                let waits = slow.waits_for_memory();
                own.sleep(limits::RAIL_STALL * 10).await;
                drop(waits);
                let reads = slow.reads();
                own.sleep(limits::RAIL_STALL * 2).await;
                drop(reads);
                slow.wait(&own, 1).await.expect("the first");
                slow.done();
            });
            turns.wait(&env, 2).await.expect("the first comes late");
        });
    }

    #[test]
    fn a_number_that_was_handled_or_is_missing_or_not_expected_ends_the_connection() {
        let sim = Sim::new(2);
        let env = sim.env(sim.add_node("node"));
        sim.block_on(async {
            let turns = Turns::default();
            turns.wait(&env, 0).await.expect("frames have no numbers yet");
            assert!(matches!(turns.wait(&env, 1).await, Err(FrameError::Bad(_))));
            turns.begin();
            turns.wait(&env, 1).await.expect("the first");
            turns.done();
            for wrong in [0, 1] {
                assert!(matches!(turns.wait(&env, wrong).await, Err(FrameError::Bad(_))), "{wrong}");
            }
            let before = env.now();
            assert!(matches!(turns.wait(&env, 3).await, Err(FrameError::Stalled(_))));
            assert!(env.now().since(before) >= limits::RAIL_STALL);
        });
    }
}
