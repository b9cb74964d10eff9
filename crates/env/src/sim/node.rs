//! Nodes and their lives: start, crash, pause.
//!
//! Invariant: after a crash no part of the old life runs, holds a lock, listens, or completes a disk request.

use std::{collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};

use super::{
    NodeId,
    chance::Chance,
    cpu::CpuCosts,
    device::Device,
    disk_model::DiskModel,
    executor::{Event, TaskId, TaskWaker},
    thread::{Sleeps, Thread},
    tier::Placement,
    trace::Kind,
    world::World,
};
use crate::Network;

/// A machine: what survives a crash, and its current state.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) life: u64,
    pub(crate) running: bool,
    paused: bool,
    parked: Vec<Arc<TaskWaker>>,
    pub(crate) chance: Rc<Chance>,
    pub(crate) clock_offset_ns: i64,
    /// When each virtual core is free; none: there are as many as needed.
    pub(crate) cores: Vec<u64>,
    /// CPU cost of messages; none: no cost.
    pub(crate) costs: Option<Rc<CpuCosts>>,
    /// Connections of its shards over a network.
    pub(crate) network: Network,
    pub(crate) devices: BTreeMap<String, Rc<Device>>,
    pub(crate) models: BTreeMap<String, DiskModel>,
    pub(crate) placements: BTreeMap<String, Placement>,
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    pub(crate) locks: BTreeMap<String, u64>,
    /// Its thread, if it is one of several on a machine.
    pub(crate) thread: Option<Rc<Thread>>,
}

impl World {
    pub(crate) fn add_node(&self, name: &str) -> NodeId {
        let mut nodes = self.nodes.borrow_mut();
        let id = NodeId(u32::try_from(nodes.len()).expect("fewer than 2^32 nodes"));
        nodes.push(Node {
            name: name.to_string(),
            life: 0,
            running: false,
            paused: false,
            parked: Vec::new(),
            chance: Rc::new(Chance::new(self.seed, 16 + u64::from(id.0))),
            clock_offset_ns: 0,
            cores: Vec::new(),
            costs: None,
            network: self.network_of_new_nodes.borrow().clone(),
            devices: BTreeMap::new(),
            models: BTreeMap::new(),
            placements: BTreeMap::new(),
            files: BTreeMap::new(),
            locks: BTreeMap::new(),
            thread: None,
        });
        id
    }

    /// Reads or changes a node; `f` must not run futures.
    pub(crate) fn node<R>(&self, node: NodeId, f: impl FnOnce(&mut Node) -> R) -> R {
        f(&mut self.nodes.borrow_mut()[node.0 as usize])
    }

    pub(crate) fn node_name(&self, node: NodeId) -> String {
        self.node(node, |n| n.name.clone())
    }

    pub(crate) fn is_alive(&self, node: NodeId, life: u64) -> bool {
        !self.is_closed() && self.node(node, |n| n.running && n.life == life)
    }

    /// Begins a life and returns its number.
    pub(crate) fn begin_life(&self, node: NodeId) -> u64 {
        let life = self.node(node, |n| {
            assert!(!n.running, "node {} is already running", n.name);
            n.running = true;
            n.life += 1;
            n.life
        });
        self.note(Kind::Start, node, life, 0);
        self.trace.print(self.now(), &self.node_name(node), || format!("starts, life {life}"));
        life
    }

    /// Adds a task of this life; `None`, with the future dropped, if the life is over.
    pub(crate) fn spawn_on(&self, node: NodeId, life: u64, future: crate::Boxed<'static, ()>) -> Option<TaskId> {
        if self.is_alive(node, life) {
            return Some(self.exec.add(node, future));
        }
        drop(future);
        None
    }

    /// Ends the node's life, if it has one. With `power`, its disks lose unflushed writes.
    pub(crate) fn end_life(self: &Rc<Self>, node: NodeId, power: bool) {
        let (was_running, devices, parked) = self.node(node, |n| {
            n.locks.clear();
            n.paused = false;
            let was_running = std::mem::replace(&mut n.running, false);
            (was_running, n.devices.values().cloned().collect::<Vec<_>>(), std::mem::take(&mut n.parked))
        });
        self.note(Kind::Crash, node, u64::from(power), u64::from(was_running));
        let how = if power { "loses power" } else { "is killed" };
        self.trace.print(self.now(), &self.node_name(node), || how.to_string());
        if was_running {
            self.crash_network(node);
        }
        for device in devices {
            device.stop(self);
            if power {
                device.power_cut(self);
            }
        }
        let tasks = if was_running { self.exec.take_tasks(Some(node)) } else { Vec::new() };
        drop((tasks, parked));
    }

    pub(crate) fn pause(&self, node: NodeId) {
        self.note(Kind::Pause, node, 1, 0);
        self.node(node, |n| n.paused = n.running);
    }

    pub(crate) fn resume(&self, node: NodeId) {
        self.note(Kind::Pause, node, 0, 0);
        let parked = self.node(node, |n| {
            n.paused = false;
            std::mem::take(&mut n.parked)
        });
        parked.into_iter().for_each(TaskWaker::requeue);
    }

    /// Parks a ready task of a node that is paused or asleep, until the node resumes. The task stays marked as queued,
    /// so it is parked once.
    pub(crate) fn park_if_still(&self, node: NodeId, task: &Arc<TaskWaker>) -> bool {
        let (now, waker) = (self.now(), self.waker(node, task));
        let (parked, sleeps) = self.node(node, |n| {
            let sleeps = match &n.thread {
                Some(thread) if !n.paused => thread.sleeps(now, waker.is_some()),
                _ => Sleeps::Awake,
            };
            let parked = n.paused || !matches!(sleeps, Sleeps::Awake);
            if parked {
                n.parked.push(task.clone());
            }
            (parked, sleeps)
        });
        if let Sleeps::Until(time, work) = sleeps {
            self.exec.at(time, Event::Call(Box::new(move |world| world.wake_up(node))));
            if let Some((waker, thread)) = waker.filter(|_| !work.is_zero()) {
                self.exec.at(now, Event::Call(Box::new(move |world| world.has_woken(waker, thread, work))));
            }
        }
        parked
    }

    /// The thread of the same machine that made a task of `node` ready.
    fn waker(&self, node: NodeId, task: &TaskWaker) -> Option<(NodeId, Rc<Thread>)> {
        let thread = self.node(node, |n| n.thread.clone())?;
        let waker = task.woken_by().filter(|waker| *waker != node)?;
        let its = self.node(waker, |n| n.thread.clone().filter(|_| n.running))?;
        its.is_beside(&thread).then_some((waker, its))
    }

    /// Charges the node's thread with the work of waking another thread.
    fn has_woken(self: &Rc<Self>, node: NodeId, thread: Rc<Thread>, work: Duration) {
        thread.was_awake(self.now());
        let world = self.clone();
        self.exec.add(node, Box::pin(async move { thread.work(&world, work).await }));
    }

    /// A thread that slept continues with its ready tasks.
    fn wake_up(&self, node: NodeId) {
        let now = self.now();
        let parked = self.node(node, |n| {
            n.thread.iter().for_each(|thread| thread.is_awake(now));
            if n.paused { Vec::new() } else { std::mem::take(&mut n.parked) }
        });
        parked.into_iter().for_each(TaskWaker::requeue);
    }
}
