//! The executor: tasks, the queue of ready ones, and timers on virtual time.
//!
//! Invariant: ready tasks run in the order in which they were woken; timers of one instant fire in the order in which
//! they were set. Time moves only when nothing is ready.
//! Invariant: no future is polled or dropped while a cell of the world is borrowed.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use super::{NodeId, stream::Pipe, world::World};
use crate::Boxed;

/// Identifies a task: its slot, and a serial number that is never reused.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskId {
    pub(crate) slot: usize,
    pub(crate) serial: u64,
}

/// The slot that stands for the test's own future in `block_on`.
pub(crate) const DRIVER_SLOT: usize = usize::MAX;

struct TaskEntry {
    serial: u64,
    node: NodeId,
    /// Absent while it is polled.
    future: Option<Boxed<'static, ()>>,
}

/// The effect of an event on the world.
pub(crate) type EventCall = Box<dyn FnOnce(&Rc<World>)>;

/// An event that happens at an instant.
pub(crate) enum Event {
    Wake(Waker),
    Deliver(Rc<Pipe>),
    Call(EventCall),
}

/// A timer's position in the order of events: time, then the order of setting.
pub(crate) type TimerKey = (u64, u64);

#[derive(Default)]
pub(crate) struct Executor {
    now: Cell<u64>,
    serial: Cell<u64>,
    ready: Arc<ReadyQueue>,
    tasks: RefCell<Tasks>,
    timers: RefCell<BTreeMap<TimerKey, Event>>,
}

#[derive(Default)]
struct Tasks {
    entries: Vec<Option<TaskEntry>>,
    free: Vec<usize>,
}

#[derive(Default)]
pub(crate) struct ReadyQueue {
    tasks: Mutex<VecDeque<Arc<TaskWaker>>>,
    /// The node that causes what happens now, as its number plus one; 0: none.
    at_work: AtomicU32,
}

/// Puts its task at the end of the ready queue, at most once until the task is polled.
pub(crate) struct TaskWaker {
    pub(crate) id: TaskId,
    queued: AtomicBool,
    /// The node that made it ready, as in [`ReadyQueue::at_work`].
    woken_by: AtomicU32,
    ready: Arc<ReadyQueue>,
}

impl Executor {
    pub(crate) fn now(&self) -> u64 {
        self.now.get()
    }

    fn next_serial(&self) -> u64 {
        self.serial.set(self.serial.get() + 1);
        self.serial.get()
    }

    /// Adds a task of `node` and makes it ready.
    pub(crate) fn add(&self, node: NodeId, future: Boxed<'static, ()>) -> TaskId {
        let serial = self.next_serial();
        let mut tasks = self.tasks.borrow_mut();
        let slot = tasks.free.pop().unwrap_or_else(|| {
            tasks.entries.push(None);
            tasks.entries.len() - 1
        });
        tasks.entries[slot] = Some(TaskEntry { serial, node, future: Some(future) });
        drop(tasks);
        let id = TaskId { slot, serial };
        self.waker(id).wake();
        id
    }

    /// A waker for a task, or for the driver.
    pub(crate) fn waker(&self, id: TaskId) -> Arc<TaskWaker> {
        let (queued, woken_by) = (AtomicBool::new(false), AtomicU32::new(0));
        Arc::new(TaskWaker { id, queued, woken_by, ready: self.ready.clone() })
    }

    pub(crate) fn driver_waker(&self) -> Arc<TaskWaker> {
        self.waker(TaskId { slot: DRIVER_SLOT, serial: self.next_serial() })
    }

    /// Makes `node` the cause of what happens now; returns the previous one.
    pub(crate) fn replace_at_work(&self, node: Option<NodeId>) -> Option<NodeId> {
        let number = node.map_or(0, |NodeId(number)| number + 1);
        self.ready.at_work.swap(number, Ordering::Relaxed).checked_sub(1).map(NodeId)
    }

    pub(crate) fn pop_ready(&self) -> Option<Arc<TaskWaker>> {
        self.ready.lock().pop_front()
    }

    /// The node of a task, if the task still exists.
    pub(crate) fn node_of(&self, id: TaskId) -> Option<NodeId> {
        let tasks = self.tasks.borrow();
        tasks.entries[id.slot].as_ref().filter(|task| task.serial == id.serial).map(|task| task.node)
    }

    /// Polls a task once; it is gone afterwards if it was ready or was removed meanwhile.
    pub(crate) fn poll(&self, waker: Arc<TaskWaker>) {
        let id = waker.id;
        waker.queued.store(false, Ordering::Relaxed);
        let Some(mut future) = self.tasks.borrow_mut().entry(id).and_then(|task| task.future.take()) else { return };
        let waker = Waker::from(waker);
        let poll = future.as_mut().poll(&mut Context::from_waker(&waker));
        if poll.is_pending() {
            let mut tasks = self.tasks.borrow_mut();
            if let Some(task) = tasks.entry(id) {
                task.future = Some(future);
                return;
            }
            drop(tasks);
        } else {
            self.remove(id);
        }
        drop(future);
    }

    /// Ends a task.
    pub(crate) fn remove(&self, id: TaskId) {
        let removed = self.tasks.borrow_mut().remove(id);
        drop(removed);
    }

    /// Takes all tasks of a node (of all, if `None`); the caller drops them.
    pub(crate) fn take_tasks(&self, node: Option<NodeId>) -> Vec<Boxed<'static, ()>> {
        let mut tasks = self.tasks.borrow_mut();
        let doomed = tasks.entries.iter().enumerate().filter_map(|(slot, entry)| {
            let task = entry.as_ref()?;
            node.is_none_or(|node| node == task.node).then_some(TaskId { slot, serial: task.serial })
        });
        let doomed: Vec<_> = doomed.collect();
        doomed.into_iter().filter_map(|id| tasks.remove(id)).filter_map(|task| task.future).collect()
    }

    /// Drops all ready tasks and all timers.
    pub(crate) fn clear_events(&self) {
        let ready = std::mem::take(&mut *self.ready.lock());
        let timers = std::mem::take(&mut *self.timers.borrow_mut());
        drop((ready, timers));
    }

    /// Sets a timer; an instant that has passed fires once nothing is ready.
    pub(crate) fn at(&self, time: u64, event: Event) -> TimerKey {
        let key = (time.max(self.now.get()), self.next_serial());
        self.timers.borrow_mut().insert(key, event);
        key
    }

    pub(crate) fn cancel(&self, key: TimerKey) {
        let event = self.timers.borrow_mut().remove(&key);
        drop(event);
    }

    /// Moves time to the next event and takes it.
    pub(crate) fn next_event(&self) -> Option<Event> {
        let ((time, _), event) = self.timers.borrow_mut().pop_first()?;
        self.now.set(time);
        Some(event)
    }
}

impl Tasks {
    fn entry(&mut self, id: TaskId) -> Option<&mut TaskEntry> {
        self.entries[id.slot].as_mut().filter(|task| task.serial == id.serial)
    }

    fn remove(&mut self, id: TaskId) -> Option<TaskEntry> {
        let place = self.entries.get_mut(id.slot)?;
        if place.as_ref()?.serial != id.serial {
            return None;
        }
        self.free.push(id.slot);
        place.take()
    }
}

impl ReadyQueue {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<TaskWaker>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TaskWaker {
    /// Puts a task that was taken from the queue, but not polled, back at its end.
    pub(crate) fn requeue(self: Arc<Self>) {
        let ready = self.ready.clone();
        ready.lock().push_back(self);
    }

    pub(crate) fn taken(&self) {
        self.queued.store(false, Ordering::Relaxed);
    }

    /// The node that made it ready, if one did.
    pub(crate) fn woken_by(&self) -> Option<NodeId> {
        self.woken_by.load(Ordering::Relaxed).checked_sub(1).map(NodeId)
    }

    /// True if it was not ready before.
    fn becomes_ready(&self) -> bool {
        let becomes = !self.queued.swap(true, Ordering::Relaxed);
        if becomes {
            self.woken_by.store(self.ready.at_work.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        becomes
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if self.becomes_ready() {
            self.requeue();
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.becomes_ready() {
            self.clone().requeue();
        }
    }
}

/// Waits on virtual time. Even a wait of zero lets everything run that is ready.
pub(crate) struct Sleep {
    world: Rc<World>,
    deadline: u64,
    key: Option<TimerKey>,
}

impl Sleep {
    pub(crate) fn new(world: &Rc<World>, duration: Duration) -> Self {
        Self::until(world, world.now().saturating_add(nanos(duration)))
    }

    pub(crate) fn until(world: &Rc<World>, deadline: u64) -> Self {
        Self { world: world.clone(), deadline, key: None }
    }
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(key) = self.key else {
            // No task waits for the end of time. Without a timer there, a deadlock is still detected.
            if self.deadline < u64::MAX {
                self.key = Some(self.world.exec.at(self.deadline, Event::Wake(cx.waker().clone())));
            }
            return Poll::Pending;
        };
        let mut timers = self.world.exec.timers.borrow_mut();
        match timers.get_mut(&key) {
            Some(Event::Wake(waker)) => {
                waker.clone_from(cx.waker());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.world.exec.cancel(key);
        }
    }
}

/// A duration in nanoseconds, limited to what fits.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
