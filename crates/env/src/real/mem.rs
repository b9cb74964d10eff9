//! Streams within the process: bytes cross shards as shared [`Bytes`] and are copied once, by the reader.
//!
//! Invariant: bytes written before a close can be read after it.

use std::{
    collections::{BTreeMap, VecDeque},
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::{Buf, Bytes};

use crate::{
    Address, EnvError, EnvErrorKind, EnvResult,
    limits::{ACCEPT_BACKLOG, STREAM_BYTES},
};

/// The listeners of the whole process, by name.
static LISTENERS: Mutex<BTreeMap<String, Arc<Listening>>> = Mutex::new(BTreeMap::new());

struct Listening {
    name: String,
    queue: Mutex<AcceptQueue>,
}

#[derive(Default)]
struct AcceptQueue {
    waiting: VecDeque<Arc<MemEnd>>,
    closed: bool,
    accepted: u64,
    waker: Option<Waker>,
}

pub(crate) struct MemListener(Arc<Listening>);

/// One end of a stream, shared by its two halves; dropping the last half closes it.
pub(crate) struct MemEnd {
    name: String,
    incoming: Arc<Mutex<Pipe>>,
    outgoing: Arc<Mutex<Pipe>>,
}

#[derive(Default)]
struct Pipe {
    parts: VecDeque<Bytes>,
    bytes: usize,
    writer_gone: bool,
    reader_gone: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

pub(super) fn listen(name: &str) -> EnvResult<MemListener> {
    let mut listeners = lock(&LISTENERS);
    if listeners.contains_key(name) {
        let message = format!("mem:{name} is already listened on in this process; choose another name");
        return Err(EnvError::new(EnvErrorKind::InUse, message));
    }
    let listening = Arc::new(Listening { name: name.to_string(), queue: Mutex::default() });
    listeners.insert(name.to_string(), listening.clone());
    Ok(MemListener(listening))
}

pub(super) fn connect(name: &str) -> EnvResult<Arc<MemEnd>> {
    let refused = |why: &str| EnvError::new(EnvErrorKind::Disconnected, format!("mem:{name}: {why}"));
    let listening = lock(&LISTENERS).get(name).cloned();
    let listening = listening.ok_or_else(|| refused("nobody in this process listens there; is the server up?"))?;
    let mut queue = lock(&listening.queue);
    if queue.closed || queue.waiting.len() >= ACCEPT_BACKLOG {
        return Err(refused("the server does not accept connections; is it overloaded?"));
    }
    let (there, back) = (Arc::new(Mutex::default()), Arc::new(Mutex::default()));
    let end = |incoming: &Arc<Mutex<Pipe>>, outgoing: &Arc<Mutex<Pipe>>| {
        Arc::new(MemEnd { name: name.to_string(), incoming: incoming.clone(), outgoing: outgoing.clone() })
    };
    queue.waiting.push_back(end(&there, &back));
    let waker = queue.waker.take();
    drop(queue);
    wake(waker);
    Ok(end(&back, &there))
}

impl MemListener {
    pub(super) fn address(&self) -> Address {
        Address::Mem(self.0.name.clone())
    }

    pub(super) async fn accept(&mut self) -> (Arc<MemEnd>, String) {
        poll_fn(|cx| {
            let mut queue = lock(&self.0.queue);
            if let Some(end) = queue.waiting.pop_front() {
                queue.accepted += 1;
                return Poll::Ready((end, format!("mem:{}#{}", self.0.name, queue.accepted)));
            }
            queue.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl Drop for MemListener {
    fn drop(&mut self) {
        lock(&LISTENERS).remove(&self.0.name);
        let mut queue = lock(&self.0.queue);
        queue.closed = true;
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(waiting);
    }
}

impl MemEnd {
    pub(super) async fn read_exact(&self, buf: &mut [u8]) -> EnvResult<()> {
        let (least, mut filled) = (buf.len(), 0);
        poll_fn(|cx| self.poll_read(cx, buf, least, &mut filled)).await.map(drop)
    }

    /// Reads into `buf` behind what is `filled`, until that is `least` at least.
    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
        least: usize,
        filled: &mut usize,
    ) -> Poll<EnvResult<usize>> {
        let mut pipe = lock(&self.incoming);
        *filled += pipe.copy_to(&mut buf[*filled..]);
        let writer = if pipe.bytes < STREAM_BYTES { pipe.writer.take() } else { None };
        let poll = if *filled >= least {
            Poll::Ready(Ok(*filled))
        } else if pipe.writer_gone {
            Poll::Ready(Err(self.closed()))
        } else {
            pipe.reader = Some(cx.waker().clone());
            Poll::Pending
        };
        drop(pipe);
        wake(writer);
        poll
    }

    pub(super) async fn write_all(&self, parts: &[Bytes]) -> EnvResult<()> {
        poll_fn(|cx| {
            let mut pipe = lock(&self.outgoing);
            if pipe.reader_gone {
                return Poll::Ready(Err(self.closed()));
            }
            if pipe.bytes >= STREAM_BYTES {
                pipe.writer = Some(cx.waker().clone());
                return Poll::Pending;
            }
            pipe.bytes += parts.iter().map(Bytes::len).sum::<usize>();
            pipe.parts.extend(parts.iter().filter(|part| !part.is_empty()).cloned());
            let reader = pipe.reader.take();
            drop(pipe);
            wake(reader);
            Poll::Ready(Ok(()))
        })
        .await
    }

    fn closed(&self) -> EnvError {
        EnvError::new(EnvErrorKind::Disconnected, format!("mem:{}: the other side went away", self.name))
    }
}

impl Drop for MemEnd {
    fn drop(&mut self) {
        let mut pipe = lock(&self.outgoing);
        pipe.writer_gone = true;
        let reader = pipe.reader.take();
        drop(pipe);
        wake(reader);
        let mut pipe = lock(&self.incoming);
        pipe.reader_gone = true;
        let parts = std::mem::take(&mut pipe.parts);
        let writer = pipe.writer.take();
        drop(pipe);
        drop(parts);
        wake(writer);
    }
}

impl Pipe {
    fn copy_to(&mut self, buf: &mut [u8]) -> usize {
        let mut filled = 0;
        while filled < buf.len() {
            let Some(first) = self.parts.front_mut() else { break };
            let n = first.len().min(buf.len() - filled);
            first.copy_to_slice(&mut buf[filled..filled + n]);
            filled += n;
            if first.is_empty() {
                self.parts.pop_front();
            }
        }
        self.bytes -= filled;
        filled
    }
}
