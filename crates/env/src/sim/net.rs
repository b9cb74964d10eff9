//! Listeners by address, and how connections are made.
//!
//! Addresses of all kinds are plain names in one registry.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
    time::Duration,
};

use super::{
    NodeId,
    executor::{Sleep, nanos},
    link::Links,
    stream::{self, Connection},
    world::World,
};
use crate::{
    Address, EnvError, EnvErrorKind, EnvResult, PeerIdentity, Stream, limits::ACCEPT_BACKLOG, net::ListenerHalf,
};

/// Interval at which a connection attempt over a cut link is retried.
const CONNECT_RETRY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Network {
    pub(crate) links: Links,
    listeners: BTreeMap<String, Rc<ListenerState>>,
    connections: BTreeMap<u64, Rc<Connection>>,
    next_connection: u64,
    next_stall: u64,
    next_port: u16,
}

struct ListenerState {
    node: NodeId,
    address: Address,
    queue: RefCell<AcceptQueue>,
}

#[derive(Default)]
struct AcceptQueue {
    waiting: VecDeque<(Stream, PeerIdentity)>,
    closed: bool,
    waker: Option<Waker>,
}

pub(crate) struct SimListener {
    world: Rc<World>,
    state: Rc<ListenerState>,
}

impl World {
    pub(crate) fn listen(self: &Rc<Self>, node: NodeId, address: &Address) -> EnvResult<ListenerHalf> {
        let mut network = self.network.borrow_mut();
        let address = network.with_port(address);
        let name = address.to_string();
        if let Some(other) = network.listeners.get(&name) {
            let other = self.node_name(other.node);
            let message = format!("{other} already listens on {name}; stop it or choose another address");
            return Err(EnvError::new(EnvErrorKind::InUse, message));
        }
        let state = Rc::new(ListenerState { node, address, queue: RefCell::default() });
        network.listeners.insert(name, state.clone());
        Ok(ListenerHalf::Sim(SimListener { world: self.clone(), state }))
    }

    /// Requests a connection: the request takes the link's time there, the reply takes the link's time back.
    pub(crate) async fn connect(self: &Rc<Self>, node: NodeId, address: &Address) -> EnvResult<Stream> {
        let name = address.to_string();
        let listener_node = self.network.borrow().listeners.get(&name).map(|listener| listener.node);
        let Some(server) = listener_node else {
            let latency = self.network.borrow().links.to_nowhere().latency;
            Sleep::new(self, latency).await;
            return Err(refused(&name));
        };
        self.wait_for_passage(node, server, &name).await?;
        let arrival = self.message_arrival(node, server);
        Sleep::until(self, arrival).await;
        let Some(connection) = self.offer_connection(node, server, &name) else {
            let arrival = self.message_arrival(server, node);
            Sleep::until(self, arrival).await;
            return Err(refused(&name));
        };
        let stream = stream::stream(self, &connection, 0);
        let arrival = self.message_arrival(server, node);
        Sleep::until(self, arrival).await;
        Ok(stream)
    }

    fn message_arrival(&self, from: NodeId, to: NodeId) -> u64 {
        self.network.borrow_mut().links.arrival(from, to, self.now(), 0, &self.chance)
    }

    async fn wait_for_passage(self: &Rc<Self>, from: NodeId, to: NodeId, name: &str) -> EnvResult<()> {
        let give_up = self.now().saturating_add(nanos(self.network.borrow().links.idle_timeout));
        loop {
            let cut = {
                let links = &self.network.borrow().links;
                links.is_cut(from, to) || links.is_cut(to, from)
            };
            if !cut {
                return Ok(());
            }
            if self.now() >= give_up {
                let message = format!("no answer from {name}; is the network to it whole?");
                return Err(EnvError::new(EnvErrorKind::Disconnected, message));
            }
            Sleep::until(self, give_up.min(self.now().saturating_add(nanos(CONNECT_RETRY)))).await;
        }
    }

    /// Puts a new connection into the accept queue; `None` if no listener is there or the queue is full.
    fn offer_connection(self: &Rc<Self>, client: NodeId, server: NodeId, name: &str) -> Option<Rc<Connection>> {
        let mut network = self.network.borrow_mut();
        let listener = network.listeners.get(name).filter(|listener| listener.node == server)?.clone();
        if listener.queue.borrow().waiting.len() >= ACCEPT_BACKLOG {
            return None;
        }
        network.next_connection += 1;
        let connection = Connection::new(network.next_connection, [client, server]);
        network.connections.insert(connection.id, connection.clone());
        drop(network);
        let peer = PeerIdentity::Named(format!("{}#{}", self.node_name(client), connection.id));
        let mut queue = listener.queue.borrow_mut();
        queue.waiting.push_back((stream::stream(self, &connection, 1), peer));
        let waker = queue.waker.take();
        drop(queue);
        waker.into_iter().for_each(Waker::wake);
        Some(connection)
    }

    pub(crate) fn connection(&self, id: u64) -> Option<Rc<Connection>> {
        self.network.borrow().connections.get(&id).cloned()
    }

    pub(crate) fn forget_connection(&self, id: u64) {
        let connection = self.network.borrow_mut().connections.remove(&id);
        drop(connection);
    }

    pub(crate) fn next_stall(&self) -> u64 {
        let mut network = self.network.borrow_mut();
        network.next_stall += 1;
        network.next_stall
    }

    fn connections_where(&self, matches: impl Fn([NodeId; 2]) -> bool) -> Vec<Rc<Connection>> {
        self.network.borrow().connections.values().filter(|c| matches(c.nodes)).cloned().collect()
    }

    /// Breaks every stream between `a` and `b`.
    pub(crate) fn reset_connections(&self, a: NodeId, b: NodeId) {
        for connection in self.connections_where(|nodes| nodes == [a, b] || nodes == [b, a]) {
            connection.break_both(self);
        }
    }

    pub(crate) fn reset_one_connection(&self, a: NodeId, b: NodeId) {
        let between = self.connections_where(|nodes| nodes == [a, b] || nodes == [b, a]);
        if !between.is_empty() {
            between[self.test_chance.below(between.len() as u64) as usize].break_both(self);
        }
    }

    /// Restarts stalled pipes whose links are no longer cut.
    pub(crate) fn unstall_pipes(&self) {
        for connection in self.connections_where(|_| true) {
            for pipe in &connection.pipes {
                let (is_cut, latency) = {
                    let links = &self.network.borrow().links;
                    (links.is_cut(pipe.from, pipe.to), links.get(pipe.from, pipe.to).latency)
                };
                if !is_cut {
                    pipe.unstall(self, self.now().saturating_add(nanos(latency)));
                }
            }
        }
    }

    /// Closes the listeners of a crashed node and ends its connections.
    pub(crate) fn crash_network(self: &Rc<Self>, node: NodeId) {
        for connection in self.connections_where(|nodes| nodes.contains(&node)) {
            connection.crash_end(self, usize::from(connection.nodes[0] != node));
        }
        self.close_listeners(|listener| listener.node == node);
    }

    pub(crate) fn close_network(&self) {
        self.close_listeners(|_| true);
        let connections = std::mem::take(&mut self.network.borrow_mut().connections);
        drop(connections);
    }

    fn close_listeners(&self, doomed: impl Fn(&ListenerState) -> bool) {
        let mut network = self.network.borrow_mut();
        let names = network.listeners.iter().filter(|(_, l)| doomed(l)).map(|(name, _)| name.clone());
        let names: Vec<_> = names.collect();
        let closed: Vec<_> = names.into_iter().filter_map(|name| network.listeners.remove(&name)).collect();
        drop(network);
        for listener in closed {
            listener.close();
        }
    }
}

impl Network {
    fn with_port(&mut self, address: &Address) -> Address {
        match address {
            Address::Tcp(text) => match text.strip_suffix(":0") {
                Some(host) => {
                    self.next_port += 1;
                    Address::Tcp(format!("{host}:{}", 40_000 + u32::from(self.next_port)))
                }
                None => address.clone(),
            },
            _ => address.clone(),
        }
    }
}

impl ListenerState {
    fn close(&self) {
        let mut queue = self.queue.borrow_mut();
        queue.closed = true;
        let waiting = std::mem::take(&mut queue.waiting);
        let waker = queue.waker.take();
        drop(queue);
        drop(waiting);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl SimListener {
    pub(crate) fn address(&self) -> Address {
        self.state.address.clone()
    }

    pub(crate) async fn accept(&mut self) -> EnvResult<(Stream, PeerIdentity)> {
        poll_fn(|cx| {
            let mut queue = self.state.queue.borrow_mut();
            if let Some(waiting) = queue.waiting.pop_front() {
                return Poll::Ready(Ok(waiting));
            }
            if queue.closed {
                let message = format!("the machine that listened on {} is down", self.state.address);
                return Poll::Ready(Err(EnvError::new(EnvErrorKind::Disconnected, message)));
            }
            queue.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        self.world.close_listeners(|listener| std::ptr::eq(listener, &*self.state));
    }
}

fn refused(name: &str) -> EnvError {
    EnvError::new(EnvErrorKind::Disconnected, format!("nobody listens on {name}; is the server up?"))
}
