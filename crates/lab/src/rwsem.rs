//! A model of the kernel's read-write semaphore (`kernel/locking/rwsem.c`): who holds it when, and which threads sleep
//! meanwhile.
//!
//! A thread that releases it may take it again before the woken writer runs. Waiting readers are handed the semaphore
//! directly. The first waiter gets it next once it has waited for [`HANDED_AFTER`]. Not modelled: spinning on a running
//! holder; holders here sleep.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    time::Duration,
};

use forebay_env::{Env, Time, sync::oneshot};

/// The kernel's RWSEM_WAIT_TIMEOUT.
const HANDED_AFTER: Duration = Duration::from_millis(4);

/// A read-write semaphore.
#[derive(Default)]
pub struct RwSem {
    writer: Cell<bool>,
    readers: Cell<u32>,
    waiting: RefCell<VecDeque<Waiting>>,
    /// The first waiter has waited for long: nobody may overtake it.
    handed: Cell<bool>,
}

struct Waiting {
    alone: bool,
    since: Time,
    woken: oneshot::Sender<Woken>,
}

enum Woken {
    /// The waiter holds the semaphore now.
    Given,
    /// The waiter may try to take it.
    Try,
}

/// A held semaphore; dropping it releases the semaphore.
pub struct Held {
    sem: Rc<RwSem>,
    env: Env,
    alone: bool,
}

impl RwSem {
    /// Takes the semaphore, exclusively or shared. A task that calls this must not be dropped before it holds the
    /// semaphore.
    pub async fn lock(self: &Rc<Self>, env: &Env, alone: bool) -> Held {
        let (since, mut again) = (env.now(), false);
        while !self.take(alone) {
            let (woken, wakes) = oneshot::channel();
            let waiting = Waiting { alone, since, woken };
            match again {
                false => self.waiting.borrow_mut().push_back(waiting),
                // The waiter keeps its position: only the first one is woken to try.
                true => {
                    self.handed.set(env.now().since(since) >= HANDED_AFTER);
                    self.waiting.borrow_mut().push_front(waiting);
                }
            }
            again = true;
            if let Ok(Woken::Given) = wakes.await {
                break;
            }
        }
        Held { sem: self.clone(), env: env.clone(), alone }
    }

    fn take(&self, alone: bool) -> bool {
        let free = !self.writer.get() && !self.handed.get() && (!alone || self.readers.get() == 0);
        if free {
            self.has(alone);
        }
        free
    }

    fn has(&self, alone: bool) {
        match alone {
            true => self.writer.set(true),
            false => self.readers.set(self.readers.get() + 1),
        }
    }

    fn wake_next(&self, now: Time) {
        if self.writer.get() {
            return;
        }
        let mut waiting = self.waiting.borrow_mut();
        let Some(first) = waiting.pop_front() else { return };
        if !first.alone {
            // Together with all other readers that wait.
            let (others, still): (VecDeque<_>, VecDeque<_>) = waiting.drain(..).partition(|waiting| !waiting.alone);
            *waiting = still;
            self.handed.set(false);
            for one in std::iter::once(first).chain(others) {
                self.has(false);
                let _ = one.woken.send(Woken::Given);
            }
        } else if self.readers.get() > 0 {
            waiting.push_front(first);
        } else if self.handed.get() || now.since(first.since) >= HANDED_AFTER {
            self.handed.set(false);
            self.has(true);
            let _ = first.woken.send(Woken::Given);
        } else {
            let _ = first.woken.send(Woken::Try);
        }
    }
}

impl Held {
    /// True if it is held exclusively.
    pub fn is_alone(&self) -> bool {
        self.alone
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        match self.alone {
            true => self.sem.writer.set(false),
            false => self.sem.readers.set(self.sem.readers.get() - 1),
        }
        self.sem.wake_next(self.env.now());
    }
}

#[cfg(test)]
mod tests {
    use forebay_env::sim::{Processors, Sim, Waking};

    use super::*;

    /// The order in which programs hold it. Each program has a name, a mode (exclusive or not) and a number of turns of
    /// a millisecond.
    fn order(programs: &[(&'static str, bool, u32)]) -> String {
        let sim = Sim::new(1);
        let (processors, sem, order) = (Processors::new(4), Rc::<RwSem>::default(), Rc::<RefCell<String>>::default());
        let tasks: Vec<_> = programs
            .iter()
            .map(|&(name, alone, times)| {
                let node = sim.add_node(name);
                sim.run_on(
                    node,
                    &processors,
                    Waking { latency: Duration::from_micros(50), work: Duration::ZERO, looks: false },
                );
                let (env, sem, order) = (sim.env(node), sem.clone(), order.clone());
                env.clone().spawn(async move {
                    for _ in 0..times {
                        let held = sem.lock(&env, alone).await;
                        assert!(held.is_alone() == alone && (!alone || sem.readers.get() == 0));
                        order.borrow_mut().push_str(name);
                        env.charge_cpu(Duration::from_millis(1)).await;
                        drop(held);
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| assert!(sim.block_on(task).is_some()));
        assert!(!sem.writer.get() && sem.readers.get() == 0 && sem.waiting.borrow().is_empty());
        order.take()
    }

    #[test]
    fn a_writer_takes_the_semaphore_again_until_another_has_waited_long() {
        assert_eq!(order(&[("a", true, 6), ("b", true, 6)]), "aaaabbbbaabb");
    }

    #[test]
    fn readers_share_the_semaphore_and_are_handed_it_on_release() {
        assert_eq!(order(&[("a", true, 2), ("b", false, 1), ("c", false, 1)]), "abca");
        assert_eq!(order(&[("b", false, 2), ("c", false, 2)]), "bcbc");
    }
}
