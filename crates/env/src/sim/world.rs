//! The world: everything that a seed decides, and the loop that runs it.
//!
//! Not here: the behaviour of nodes, links and disks (see `node`, `net`, `device`), and the test's handle (see
//! `control`).

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    task::{Context, Wake, Waker},
};

use super::{
    NodeId,
    chance::Chance,
    executor::{DRIVER_SLOT, Event, Executor, TaskWaker},
    net::Network,
    node::Node,
    recorder::Recording,
    trace::{Kind, Trace},
};
use crate::{Boxed, limits::SIM_POLLS_AT_ONE_INSTANT};

pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) exec: Executor,
    pub(crate) trace: Trace,
    /// Chance of links and disks.
    pub(crate) chance: Chance,
    /// Chance of the test itself.
    pub(crate) test_chance: Chance,
    pub(crate) nodes: RefCell<Vec<Node>>,
    pub(crate) network_of_new_nodes: RefCell<crate::Network>,
    pub(crate) network: RefCell<Network>,
    pub(crate) recording: RefCell<Recording>,
    running: Cell<bool>,
    closed: Cell<bool>,
}

impl World {
    pub(crate) fn new(seed: u64) -> Rc<Self> {
        Rc::new(Self {
            seed,
            exec: Executor::default(),
            trace: Trace::default(),
            chance: Chance::new(seed, 0),
            test_chance: Chance::new(seed, 1),
            nodes: RefCell::default(),
            network_of_new_nodes: RefCell::new(crate::Network::InsecureLoopback),
            network: RefCell::default(),
            recording: RefCell::default(),
            running: Cell::new(false),
            closed: Cell::new(false),
        })
    }

    pub(crate) fn now(&self) -> u64 {
        self.exec.now()
    }

    pub(crate) fn note(&self, kind: Kind, node: NodeId, a: u64, b: u64) {
        self.trace.note(self.now(), kind, node.0, a, b);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Runs everything until `future` is ready.
    pub(crate) fn block_on(self: &Rc<Self>, mut future: Boxed<'_, ()>) {
        assert!(!self.running.replace(true), "block_on was called from inside the simulation");
        let _guard = RunGuard(self);
        let driver = self.exec.driver_waker();
        let waker = Waker::from(driver.clone());
        driver.clone().wake();
        loop {
            let mut polls = 0u64;
            while let Some(task) = self.exec.pop_ready() {
                polls += 1;
                assert!(polls < SIM_POLLS_AT_ONE_INSTANT, "livelock at virtual time {} ns", self.now());
                if task.id.slot != DRIVER_SLOT {
                    self.poll_task(task);
                } else if task.id == driver.id {
                    task.taken();
                    if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                        return;
                    }
                }
            }
            match self.exec.next_event() {
                Some(event) => self.fire(event),
                None => panic!("deadlock at virtual time {} ns: everything waits and nothing is to come", self.now()),
            }
        }
    }

    fn poll_task(&self, task: std::sync::Arc<TaskWaker>) {
        let Some(node) = self.exec.node_of(task.id) else { return };
        if self.park_if_still(node, &task) {
            return;
        }
        self.note(Kind::Poll, node, task.id.serial, 0);
        let before = self.exec.replace_at_work(Some(node));
        self.exec.poll(task);
        self.exec.replace_at_work(before);
    }

    fn fire(self: &Rc<Self>, event: Event) {
        match event {
            Event::Wake(waker) => waker.wake(),
            Event::Deliver(pipe) => {
                let before = self.exec.replace_at_work(Some(pipe.from));
                self.deliver(&pipe);
                self.exec.replace_at_work(before);
            }
            Event::Call(call) => call(self),
        }
    }

    /// Ends every task and drops every event; nothing runs here again.
    pub(crate) fn close(self: &Rc<Self>) {
        self.closed.set(true);
        let tasks = self.exec.take_tasks(None);
        drop(tasks);
        self.close_network();
        self.exec.clear_events();
        // A client that died with buffered writes is held by the handle through which they would be sent, and it holds
        // its world. So the disks are removed explicitly.
        let devices = |node: &mut Node| std::mem::take(&mut node.devices).into_values().collect::<Vec<_>>();
        let devices: Vec<_> = self.nodes.borrow_mut().iter_mut().flat_map(devices).collect();
        devices.iter().for_each(|device| device.leave_tier());
    }
}

/// Marks the end of a run, and prints the seed if it ends in a panic.
struct RunGuard<'a>(&'a World);

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        self.0.running.set(false);
        self.0.exec.replace_at_work(None);
        if std::thread::panicking() {
            eprintln!("simulation failed with seed {} at virtual time {} ns", self.0.seed, self.0.now());
        }
    }
}
