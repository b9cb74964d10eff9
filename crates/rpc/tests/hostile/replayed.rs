//! Somebody on the way sends again what a node has sent: nothing is executed twice, the connection is closed, and the log
//! says so in one line.

use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};

use bytes::Bytes;
use forebay_env::{
    Address, Env, Network, ReadHalf, Stream, WriteHalf,
    sim::Sim,
    sync::{mpsc, select},
};
use forebay_keys::{Authority, Role};
use forebay_proto::{
    Uuid,
    message::{FrameKind, Op, Ping, Status},
};
use forebay_rpc::{FrameError, FrameReader, Latch};

use super::{Counting, address, conversation, frame, keys, start_with};

/// Long enough for all that happens without waiting for anything.
const MOMENT: Duration = Duration::from_millis(10);
/// Longer than a refused connection waits for its log line.
const LOGGED: Duration = Duration::from_secs(2);

/// One direction of a connection, in the hands of somebody on the way.
struct Lane {
    /// What came so far.
    seen: Rc<RefCell<Vec<u8>>>,
    /// Goes on to the other side. Nothing more comes behind an empty one.
    queue: mpsc::UnboundedSender<Bytes>,
}

impl Lane {
    /// `closed` is raised once all is passed on that came before either side closed.
    fn new(env: &Env, mut from: ReadHalf, mut to: WriteHalf, closed: &Rc<Latch>) -> Self {
        let (seen, (queue, mut queued)) = (Rc::<RefCell<Vec<u8>>>::default(), mpsc::unbounded_channel());
        let (noted, passed, over) = (seen.clone(), queue.clone(), closed.clone());
        drop(env.spawn(async move {
            let mut byte = [0];
            loop {
                select! {
                    biased;
                    () = over.wait() => return,
                    read = from.read_exact(&mut byte) => if read.is_err() { break },
                }
                noted.borrow_mut().push(byte[0]);
                let _ = passed.send(Bytes::copy_from_slice(&byte));
            }
            let _ = passed.send(Bytes::new());
            over.wait().await;
        }));
        let over = closed.clone();
        drop(env.spawn(async move {
            while let Some(bytes) = queued.recv().await.filter(|bytes| !bytes.is_empty()) {
                if to.write_all(&[bytes]).await.is_err() {
                    break;
                }
            }
            over.raise();
        }));
        Self { seen, queue }
    }

    /// Sends again what came behind the first `before` bytes.
    fn repeat(&self, before: usize) {
        let again = self.seen.borrow()[before..].to_vec();
        assert!(!again.is_empty(), "nothing came");
        let _ = self.queue.send(again.into());
    }

    fn len(&self) -> usize {
        self.seen.borrow().len()
    }
}

/// The client's stream, and both directions as somebody on the way has them: to the server, and to the client.
async fn tapped(strangers: &Env, client: &Env) -> (Stream, [Lane; 2]) {
    let middle = Address::Mem("middle".into());
    let mut listener = strangers.listen(&middle).await.expect("the address is free");
    let connecting = client.clone();
    let connected = client.spawn(async move { connecting.connect(&middle).await.expect("it is let in") });
    let (near, _) = listener.accept().await.expect("it connects").handshake(strangers).await.expect("plain");
    let far = strangers.connect(&address()).await.expect("it listens");
    let ((from_client, to_client), (from_server, to_server)) = (near.split(), far.split());
    let closed = Rc::new(Latch::default());
    let to_server = Lane::new(strangers, from_client, to_server, &closed);
    let lanes = [to_server, Lane::new(strangers, from_server, to_client, &closed)];
    (connected.await.expect("it ran"), lanes)
}

/// A server, somebody without keys, and a node; encrypted or with integrity only.
struct Scene {
    sim: Sim,
    handler: Rc<Counting>,
    strangers: Env,
    node: Env,
}

impl Scene {
    fn new(seed: u64, integrity_only: bool) -> Self {
        let (sim, authority) = (Sim::new(seed), Authority::make(Uuid([9; 16])).expect("an authority"));
        let network = |role| match keys(&authority, role) {
            Network::Keys(keys) if integrity_only => {
                let keys = Arc::into_inner(keys).expect("nobody else has them");
                Network::Keys(Arc::new(keys.with_integrity_only()))
            }
            other => other,
        };
        let (strangers, handler, _) = start_with(&sim, 1 << 20, network(Role::Mds));
        let node = strangers.with_network(network(Role::Client));
        sim.take_log();
        Self { sim, handler, strangers, node }
    }

    /// How many requests the server has executed, and how many connections are over.
    fn counts(&self) -> (u64, u64) {
        (self.handler.requests.get(), self.handler.gone.get())
    }
}

/// With a session and without one.
#[test]
fn a_request_that_is_repeated_in_its_connection_is_executed_once_and_ends_it() {
    for (seed, integrity_only, op) in
        [(21, false, Op::Ping), (22, true, Op::Ping), (23, false, Op::Status), (24, true, Op::Status)]
    {
        let scene = Scene::new(seed, integrity_only);
        let parts = match op {
            Op::Ping => frame(op, &Ping { commit: false }, vec![]),
            _ => frame(op, &Status {}, vec![]),
        };
        scene.sim.block_on(async {
            let (stream, [to_server, _to_client]) = tapped(&scene.strangers, &scene.node).await;
            let (read, mut write) = stream.split();
            let mut reader = FrameReader::new(read);
            for request in 1..=3 {
                let before = to_server.len();
                write.write_all(&parts).await.expect("written");
                scene.node.sleep(MOMENT).await;
                assert_eq!(scene.counts(), (request, 0), "{op:?}");
                if request == 3 {
                    to_server.repeat(before);
                }
            }
            scene.node.sleep(MOMENT).await;
            assert_eq!(scene.counts(), (3, 1), "{op:?}: the repeated record");
            assert!(write.write_all(&parts).await.is_err() || scene.handler.requests.get() == 3);
            // Replies to what was sent once, the server's last words, and the end.
            let mut kinds = Vec::new();
            let end = loop {
                match reader.header().await {
                    Ok(header) => kinds.push(reader.content(header).await.expect("whole").header.kind),
                    Err(error) => break error,
                }
            };
            assert_eq!(kinds.pop(), Some(FrameKind::Error), "{end}");
            assert_eq!(kinds, vec![FrameKind::Reply; if op == Op::Status { 3 } else { 0 }]);
            assert!(matches!(end, FrameError::Disconnected(_)), "{end}");
            scene.node.sleep(LOGGED).await;
        });
        assert_eq!(scene.counts(), (3, 1));
        let log = scene.sim.take_log();
        assert!(
            log.len() == 1 && log[0].contains("client n1") && log[0].contains("TLS: cannot decrypt"),
            "{op:?}: {log:?}"
        );
    }
}

#[test]
fn a_reply_that_is_repeated_in_its_connection_ends_it() {
    for (seed, integrity_only) in [(25, false), (26, true)] {
        let scene = Scene::new(seed, integrity_only);
        scene.sim.block_on(async {
            let (stream, [_to_server, to_client]) = tapped(&scene.strangers, &scene.node).await;
            let (read, mut write) = stream.split();
            let mut reader = FrameReader::new(read);
            let before = to_client.len();
            write.write_all(&frame(Op::Status, &Status {}, vec![])).await.expect("written");
            let header = reader.header().await.expect("a reply");
            reader.content(header).await.expect("whole");
            to_client.repeat(before);
            let error = reader.header().await.expect_err("a second reply to one request");
            assert!(matches!(error, FrameError::Untrusted(_)), "{error}");
        });
        assert_eq!(scene.handler.requests.get(), 1);
    }
}

/// All that a node has sent, without what came before the first key, without the first records behind that, one byte at a time
#[test]
fn a_recorded_connection_that_is_sent_again_is_closed_with_one_log_line() {
    for (seed, integrity_only) in [(27, false), (28, true)] {
        let scene = Scene::new(seed, integrity_only);
        scene.sim.block_on(async {
            let strangers = &scene.strangers;
            let recorded = conversation(strangers, &scene.node).await;
            let served = scene.counts().0;
            assert_eq!(served, 1);
            let records = records(&recorded);
            assert!(records.len() >= 4, "{} records", records.len());
            strangers.sleep(LOGGED).await;
            scene.sim.take_log();
            for skipped in 0..records.len() {
                let (read, mut write) = strangers.connect(&address()).await.expect("it still listens").split();
                for piece in recorded[records[skipped]..].chunks(if skipped == 1 { 1 } else { recorded.len() }) {
                    // It may have been refused by now.
                    let _ = write.write_all(&[Bytes::copy_from_slice(piece)]).await;
                }
                drained(strangers, read).await;
                strangers.sleep(LOGGED).await;
                let log = scene.sim.take_log();
                assert!(log.len() == 1 && log[0].contains("refused"), "without {skipped} records: {log:?}");
                assert_eq!(scene.counts().0, served, "without {skipped} records");
            }
            // A flood of them takes one line a second.
            for _ in 0..500 {
                let (read, mut write) = strangers.connect(&address()).await.expect("it still listens").split();
                let _ = write.write_all(&[Bytes::copy_from_slice(&recorded)]).await;
                drained(strangers, read).await;
            }
            let flood = strangers.now();
            strangers.sleep(LOGGED).await;
            let log = scene.sim.take_log();
            assert!(log.len() <= 3 && log.iter().any(|line| line.contains("more connections were refused")), "{log:?}");
            assert_eq!(scene.counts().0, served, "at {flood:?}");
        });
    }
}

/// Where each record of TLS begins, up to the first clear one.
fn records(bytes: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 0;
    while let Some([kind, _, _, high, low]) = bytes.get(at..at + 5) {
        starts.push(at);
        if *kind == 0xf1 {
            break;
        }
        at += 5 + usize::from(u16::from_be_bytes([*high, *low]));
    }
    starts
}

/// Reads until the other side closes, which must not take long.
async fn drained(env: &Env, mut read: ReadHalf) {
    let end = async { while read.read_exact(&mut [0]).await.is_ok() {} };
    env.timeout(Duration::from_secs(1), end).await.expect("it is closed at once");
}
