//! Streams: two pipes between two ends.
//!
//! Invariant: a pipe delivers its messages in the order of writing, or breaks; at most one delivery of a pipe is
//! scheduled at any time.
//! Invariant: an end that broke stays broken; its unread data is lost.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::{Buf, Bytes};

use super::{
    NodeId,
    executor::{Event, TimerKey},
    trace::Kind,
    world::World,
};
use crate::{EnvError, EnvErrorKind, EnvResult, Stream, limits::STREAM_BYTES, net};

/// Two ends; end `i` writes to `pipes[i]` and reads from the other.
pub(crate) struct Connection {
    pub(crate) id: u64,
    pub(crate) nodes: [NodeId; 2],
    pub(crate) pipes: [Rc<Pipe>; 2],
    dropped: [Cell<bool>; 2],
}

/// One direction of a connection.
pub(crate) struct Pipe {
    pub(crate) connection: u64,
    /// The end that writes.
    pub(crate) end: usize,
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    state: RefCell<PipeState>,
}

#[derive(Default)]
struct PipeState {
    in_flight: VecDeque<Message>,
    delivery: Option<TimerKey>,
    /// Set while a cut delays the first message; the number distinguishes this stall from later ones.
    stall: Option<u64>,
    last_arrival: u64,
    arrived: VecDeque<Bytes>,
    /// Bytes in flight, or arrived and not read.
    unread_bytes: usize,
    ended: bool,
    reader_broken: bool,
    writer_broken: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

struct Message {
    arrival: u64,
    content: Content,
}

pub(crate) enum Content {
    Data(Vec<Bytes>),
    /// The writer closed; earlier data can still be read.
    Fin,
    /// The writer's end broke; so does the reader's.
    Reset,
}

impl Connection {
    pub(crate) fn new(id: u64, nodes: [NodeId; 2]) -> Rc<Self> {
        let pipe = |end: usize| {
            let [from, to] = [nodes[end], nodes[1 - end]];
            Rc::new(Pipe { connection: id, end, from, to, state: RefCell::default() })
        };
        let pipes = [pipe(0), pipe(1)];
        Rc::new(Self { id, nodes, pipes, dropped: Default::default() })
    }

    /// Breaks one end at once: it can neither read nor write any more.
    pub(crate) fn break_end(&self, world: &World, end: usize) {
        world.note(Kind::Break, self.nodes[end], self.id, end as u64);
        self.pipes[end].break_writer();
        self.pipes[1 - end].break_reader(world);
    }

    pub(crate) fn break_both(&self, world: &World) {
        self.break_end(world, 0);
        self.break_end(world, 1);
    }

    /// The effect of a crash of the node at `end`. By chance, the data that it sent still arrives and the stream ends,
    /// or all of it is lost and the stream breaks. Either takes the link's time.
    pub(crate) fn crash_end(&self, world: &Rc<World>, end: usize) {
        if self.nodes[0] == self.nodes[1] {
            return self.break_both(world);
        }
        let pipe = &self.pipes[end];
        let lost = world.chance.chance(0.5);
        if lost {
            pipe.drop_in_flight(world);
        }
        if !pipe.state.borrow().writer_broken {
            world.send(pipe, if lost { Content::Reset } else { Content::Fin }, 0);
        }
        self.break_end(world, end);
    }
}

impl Pipe {
    fn break_writer(&self) {
        let mut state = self.state.borrow_mut();
        state.writer_broken = true;
        let writer = state.writer.take();
        drop(state);
        wake(writer);
    }

    fn break_reader(&self, world: &World) {
        self.drop_in_flight(world);
        let mut state = self.state.borrow_mut();
        state.reader_broken = true;
        let arrived = std::mem::take(&mut state.arrived);
        state.unread_bytes = 0;
        let reader = state.reader.take();
        drop(state);
        drop(arrived);
        wake(reader);
    }

    fn drop_in_flight(&self, world: &World) {
        let mut state = self.state.borrow_mut();
        let lost = std::mem::take(&mut state.in_flight);
        state.unread_bytes -= lost.iter().map(|message| message.content.len()).sum::<usize>();
        state.stall = None;
        let delivery = state.delivery.take();
        let writer = state.writer.take();
        drop(state);
        delivery.into_iter().for_each(|key| world.exec.cancel(key));
        drop(lost);
        wake(writer);
    }

    /// Restarts a stalled pipe at `time`.
    pub(crate) fn unstall(self: &Rc<Self>, world: &World, time: u64) {
        let mut state = self.state.borrow_mut();
        if state.stall.take().is_some() {
            state.delivery = Some(world.exec.at(time, Event::Deliver(self.clone())));
        }
    }

    pub(crate) fn is_stalled_as(&self, stall: u64) -> bool {
        self.state.borrow().stall == Some(stall)
    }
}

impl Content {
    fn len(&self) -> usize {
        match self {
            Self::Data(parts) => parts.iter().map(Bytes::len).sum(),
            Self::Fin | Self::Reset => 0,
        }
    }
}

impl World {
    /// Sends one message down a pipe.
    pub(crate) fn send(&self, pipe: &Rc<Pipe>, content: Content, len: usize) {
        let arrival = self.network.borrow_mut().links.arrival(pipe.from, pipe.to, self.now(), len, &self.chance);
        let mut state = pipe.state.borrow_mut();
        let arrival = arrival.max(state.last_arrival);
        self.note(Kind::Send, pipe.from, len as u64, arrival);
        state.last_arrival = arrival;
        state.unread_bytes += len;
        state.in_flight.push_back(Message { arrival, content });
        if state.delivery.is_none() && state.stall.is_none() {
            state.delivery = Some(self.exec.at(arrival, Event::Deliver(pipe.clone())));
        }
    }

    /// The first message in flight arrives, unless the link is cut.
    pub(crate) fn deliver(self: &Rc<Self>, pipe: &Rc<Pipe>) {
        let mut state = pipe.state.borrow_mut();
        state.delivery = None;
        if self.network.borrow().links.is_cut(pipe.from, pipe.to) {
            drop(state);
            return self.stall(pipe);
        }
        let Some(message) = state.in_flight.pop_front() else { return };
        if let Some(next) = state.in_flight.front() {
            state.delivery = Some(self.exec.at(next.arrival, Event::Deliver(pipe.clone())));
        }
        self.note(Kind::Deliver, pipe.to, message.content.len() as u64, 0);
        match message.content {
            Content::Data(parts) if state.reader_broken => {
                state.unread_bytes -= parts.iter().map(Bytes::len).sum::<usize>();
                let writer = state.writer.take();
                drop(state);
                wake(writer);
            }
            Content::Data(parts) => {
                self.heard(pipe.to, parts.iter().map(Bytes::len).sum());
                state.arrived.extend(parts.into_iter().filter(|part| !part.is_empty()));
                let reader = state.reader.take();
                drop(state);
                wake(reader);
            }
            Content::Fin => {
                state.ended = true;
                let reader = state.reader.take();
                drop(state);
                wake(reader);
                if let Some(connection) = self.connection(pipe.connection) {
                    connection.pipes[1 - pipe.end].break_writer();
                }
            }
            Content::Reset => {
                drop(state);
                if let Some(connection) = self.connection(pipe.connection) {
                    connection.break_end(self, 1 - pipe.end);
                }
            }
        }
    }

    /// A message has arrived at a node.
    pub(crate) fn heard(&self, node: NodeId, bytes: usize) {
        let now = self.now();
        self.node(node, |n| n.thread.iter().for_each(|thread| thread.heard(now, bytes)));
    }

    /// Stalls a pipe while its link is cut, and breaks its connection if that lasts too long.
    fn stall(self: &Rc<Self>, pipe: &Rc<Pipe>) {
        let timeout = self.network.borrow().links.idle_timeout;
        let deadline = self.now().saturating_add(super::executor::nanos(timeout));
        let weak = Rc::downgrade(pipe);
        let stall = self.next_stall();
        pipe.state.borrow_mut().stall = Some(stall);
        let give_up = move |world: &Rc<World>| {
            let Some(pipe) = weak.upgrade().filter(|pipe| pipe.is_stalled_as(stall)) else { return };
            if let Some(connection) = world.connection(pipe.connection) {
                connection.break_both(world);
            }
        };
        self.exec.at(deadline, Event::Call(Box::new(give_up)));
    }
}

/// One end of a connection, shared by its two halves; dropping the last half closes it.
pub(crate) struct ConnectionEnd {
    world: Rc<World>,
    connection: Rc<Connection>,
    end: usize,
}

pub(crate) struct SimReadHalf(Rc<ConnectionEnd>);

pub(crate) struct SimWriteHalf(Rc<ConnectionEnd>);

/// The stream of one end.
pub(crate) fn stream(world: &Rc<World>, connection: &Rc<Connection>, end: usize) -> Stream {
    let end = Rc::new(ConnectionEnd { world: world.clone(), connection: connection.clone(), end });
    Stream {
        read: net::ReadHalf::new(net::ReadHalfInner::Sim(SimReadHalf(end.clone()))),
        write: net::WriteHalf::new(net::WriteHalfInner::Sim(SimWriteHalf(end))),
        node: None,
    }
}

impl SimReadHalf {
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        let [here, there] = self.0.connection.nodes;
        let network = self.0.world.network.borrow();
        Some(network.links.get(here, there).latency + network.links.get(there, here).latency)
    }

    pub(crate) async fn read_exact(&mut self, buf: &mut [u8]) -> EnvResult<()> {
        let (least, mut filled) = (buf.len(), 0);
        poll_fn(|cx| self.poll_read(cx, buf, least, &mut filled)).await.map(drop)
    }

    pub(crate) fn poll_some(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<EnvResult<usize>> {
        self.poll_read(cx, buf, 1, &mut 0)
    }

    /// Reads into `buf` behind what is `filled`, until that is `least` at least.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
        least: usize,
        filled: &mut usize,
    ) -> Poll<EnvResult<usize>> {
        let pipe = &self.0.connection.pipes[1 - self.0.end];
        let mut state = pipe.state.borrow_mut();
        while *filled < buf.len() {
            let Some(first) = state.arrived.front_mut() else { break };
            let n = first.len().min(buf.len() - *filled);
            first.copy_to_slice(&mut buf[*filled..*filled + n]);
            *filled += n;
            if first.is_empty() {
                state.arrived.pop_front();
            }
            state.unread_bytes -= n;
        }
        let writer = if state.unread_bytes < STREAM_BYTES { state.writer.take() } else { None };
        let poll = if *filled >= least {
            Poll::Ready(Ok(*filled))
        } else if state.ended || state.reader_broken {
            Poll::Ready(Err(self.0.disconnected()))
        } else {
            state.reader = Some(cx.waker().clone());
            Poll::Pending
        };
        drop(state);
        wake(writer);
        poll
    }
}

impl SimWriteHalf {
    pub(crate) async fn write_all(&mut self, parts: &[Bytes]) -> EnvResult<()> {
        let pipe = &self.0.connection.pipes[self.0.end];
        let len = parts.iter().map(Bytes::len).sum();
        poll_fn(|cx| {
            let mut state = pipe.state.borrow_mut();
            if state.writer_broken {
                return Poll::Ready(Err(self.0.disconnected()));
            }
            if state.unread_bytes < STREAM_BYTES {
                return Poll::Ready(Ok(()));
            }
            state.writer = Some(cx.waker().clone());
            Poll::Pending
        })
        .await?;
        if len > 0 {
            self.0.world.send(pipe, Content::Data(parts.to_vec()), len);
        }
        Ok(())
    }
}

impl ConnectionEnd {
    fn disconnected(&self) -> EnvError {
        let [here, there] = [self.end, 1 - self.end].map(|end| self.world.node_name(self.connection.nodes[end]));
        EnvError::new(EnvErrorKind::Disconnected, format!("the connection from {here} to {there} is closed"))
    }
}

impl Drop for ConnectionEnd {
    fn drop(&mut self) {
        let connection = &self.connection;
        connection.dropped[self.end].set(true);
        let pipe = &connection.pipes[self.end];
        if !pipe.state.borrow().writer_broken && !self.world.is_closed() {
            self.world.send(pipe, Content::Fin, 0);
        }
        pipe.break_writer();
        connection.pipes[1 - self.end].break_reader(&self.world);
        if connection.dropped[1 - self.end].get() {
            self.world.forget_connection(connection.id);
        }
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
