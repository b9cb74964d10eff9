//! Thousands of TCP connections to a server with keys, which say nothing or half a word, while a node of the cluster goes
//! on.
//!
//! Alone in its program: it looks at the memory of all of it. The connections' own side takes none: a descriptor each.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // strangers are no shards

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use forebay_env::{Address, Env, Network, real, sync::oneshot};
use forebay_keys::{Authority, Keys, NodeKey, NodeName, Role, Validity};
use forebay_proto::{
    Encode, Uuid,
    message::{FrameHeader, FrameKind, Op, Status, StatusReply},
};
use forebay_rpc::{
    Frame, FrameReader, Latch, limits,
    server::{BulkGate, Connection, Handler, Request, serve},
};

/// Connections that are opened, as far as the system allows this program as many descriptors.
const STRANGERS: usize = 10_000;
/// Descriptors for all else: connections that the server holds, shards, standard streams.
const OTHER_DESCRIPTORS: usize = limits::HANDSHAKES + 600;
/// This many come at once, and then none for [`PAUSE`]: fewer than [`limits::HANDSHAKES`] while one handshake takes place,
/// also on a machine that does other things.
const BURST: usize = 8;
const PAUSE: Duration = Duration::from_millis(1);
/// Most memory that the server may take for them: it takes some 26 KiB for an unfinished
/// handshake. If it kept that for each connection, 10,000 of them would take 256 MiB.
const MEMORY_BYTES: u64 = 64 * 1024 * limits::HANDSHAKES as u64;
/// Below this no time counts as slow, whatever it is without strangers: a machine that runs other programs lets a thread
/// wait that long for its turn. A server that made nodes wait for strangers would take [`limits::GREETING_TIMEOUT`],
/// forty times as long.
const FLOOR: Duration = Duration::from_millis(250);

/// Replies to every request with an empty status.
struct Replying;

impl Handler for Replying {
    fn request(&self, connection: &Rc<Connection>, request: Request) {
        let mut header = FrameHeader::new(FrameKind::Reply, request.header.op);
        (header.slot, header.sequence) = (request.header.slot, request.header.sequence);
        connection.send(Frame::new(header, StatusReply { json: "{}".into() }.to_bytes().into(), Vec::new()));
    }

    fn disconnected(&self, _connection: &Rc<Connection>) {}
}

fn keys(authority: &Authority, role: Role, now: Duration) -> Network {
    let (key, name) =
        (NodeKey::make().expect("a key"), NodeName::new(authority.cluster(), role, "n1").expect("a name"));
    let certificate = authority.sign(&name, key.public_key(), Validity::of_a_node(now)).expect("signed");
    let root = authority.certificate(now.saturating_sub(Duration::from_secs(3600))).expect("a certificate");
    Network::Keys(Arc::new(Keys::new(&root, certificate, &key).expect("keys")))
}

/// What the node goes on with: nothing else, strangers connecting, the end.
const ALONE: u8 = 0;
const AMONG_STRANGERS: u8 = 1;
const OVER: u8 = 2;

/// How long requests of an open connection took, and new connections with one request; alone, and among strangers.
#[derive(Default)]
struct Times {
    requests: [Vec<Duration>; 2],
    connections: [Vec<Duration>; 2],
}

/// A node that sends a request every millisecond or two, and now and then connects anew.
async fn go_on(env: Env, server: Address, phase: Arc<AtomicU8>) -> Times {
    let (read, mut write) = env.connect(&server).await.expect("it is let in").split();
    let mut reader = FrameReader::new(read);
    let frame =
        Frame::new(FrameHeader::new(FrameKind::Request, Op::Status as u16), Status {}.to_bytes().into(), vec![]);
    let request = [frame.header.to_bytes().to_vec().into(), frame.body];
    let mut times = Times::default();
    for round in 0.. {
        let phase = phase.load(Ordering::SeqCst);
        if phase == OVER {
            break;
        }
        let began = env.now();
        write.write_all(&request).await.expect("the connection stays open");
        let header = reader.header().await.expect("a reply");
        reader.content(header).await.expect("whole");
        times.requests[usize::from(phase)].push(env.now().since(began));
        if round % 10 == 0 {
            let began = env.now();
            // As a session does: if so many came at once that it was displaced, it tries again.
            while forebay_rpc::ask(&env, std::slice::from_ref(&server), &Status {}).await.is_err() {}
            times.connections[usize::from(phase)].push(env.now().since(began));
        }
        env.sleep(Duration::from_millis(1)).await;
    }
    times
}

async fn run_server(env: Env, stop: oneshot::Receiver<()>, at: oneshot::Sender<Address>) {
    let listener = env.listen(&Address::Tcp("127.0.0.1:0".into())).await.expect("a port");
    at.send(listener.address()).expect("somebody asked");
    let latch = Rc::new(Latch::default());
    let raising = latch.clone();
    drop(env.spawn(async move {
        let _ = stop.await;
        raising.raise();
    }));
    serve(&env, listener, Rc::new(Replying), BulkGate::new(1 << 20), Rc::default(), latch).await;
}

/// How many strangers this program may have descriptors for, after it has raised its limit as far as it may.
fn strangers_allowed() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is there for the length of the call.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
    let wanted = (STRANGERS + OTHER_DESCRIPTORS) as libc::rlim_t;
    if limit.rlim_cur < wanted {
        limit.rlim_cur = wanted.min(limit.rlim_max);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    }
    STRANGERS.min((limit.rlim_cur as usize).saturating_sub(OTHER_DESCRIPTORS))
}

/// The most memory that this process has had so far.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux says it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it has the line");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib * 1024
}

/// The time that `percent` of them do not exceed.
fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort();
    times[(times.len() * percent).div_ceil(100) - 1]
}

/// The first half of the first message of TLS (RFC 8446, 4.1.2): it says that 200 bytes follow, and 100 do.
fn half_a_hello() -> Vec<u8> {
    let mut hello = vec![0x16, 3, 1, 0, 204, 1, 0, 0, 200, 3, 3];
    hello.resize(109, 7);
    hello
}

/// True if the server has closed the connection: what it has sent is read up to its end.
fn is_closed(stranger: &mut TcpStream, wait: Duration) -> bool {
    stranger.set_read_timeout(Some(wait)).expect("a time");
    loop {
        match stranger.read(&mut [0; 256]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return false,
            Err(_) => return true,
        }
    }
}

/// 10,000 strangers connect; every other one sends half a hello, and then nothing
///
/// The server keeps the newest `limits::HANDSHAKES`. That these are closed after `limits::GREETING_TIMEOUT` is shown on
/// simulated time, where it takes none (`tests/hostile`).
#[test]
fn half_open_connections_are_closed_take_bounded_memory_and_delay_no_node() {
    let strangers = strangers_allowed();
    if strangers < STRANGERS {
        println!("{strangers} strangers in place of {STRANGERS}: raise `ulimit -Hn`");
    }
    assert!(strangers > 2 * limits::HANDSHAKES, "too few descriptors to show anything: raise `ulimit -Hn`");
    real::run(|env| async move {
        let (authority, now) = (Authority::make(Uuid([9; 16])).expect("an authority"), env.unix_time().since_1970());
        let (ours, theirs) = (keys(&authority, Role::Mds, now), keys(&authority, Role::Client, now));
        let ((stop, stopped), (at, address)) = (oneshot::channel(), oneshot::channel());
        let served = env.spawn_shard("server", move |env| run_server(env.with_network(ours), stopped, at));
        let address = address.await.expect("it listens");
        let phase = Arc::new(AtomicU8::new(ALONE));
        let (of_node, to) = (phase.clone(), address.clone());
        let times = env.spawn_shard("node", move |env| go_on(env.with_network(theirs), to, of_node));
        env.sleep(Duration::from_secs(1)).await;
        let before = peak_bytes();
        phase.store(AMONG_STRANGERS, Ordering::SeqCst);
        let mut held = connect_strangers(&env, &address, strangers).await;
        env.sleep(Duration::from_millis(200)).await;
        phase.store(OVER, Ordering::SeqCst);
        let taken = peak_bytes() - before;
        let mut times = times.await.expect("the node went on");
        let kept = held.split_off(strangers - limits::HANDSHAKES - 1);
        for (number, stranger) in held.iter_mut().enumerate() {
            assert!(is_closed(stranger, Duration::from_secs(5)), "stranger {number} is still connected");
        }
        println!("{strangers} strangers took {} KiB", taken >> 10);
        assert!(taken <= MEMORY_BYTES, "{taken} bytes of memory for {strangers} strangers, at most {MEMORY_BYTES}");
        for (what, [alone, among]) in [("request", &mut times.requests), ("connection", &mut times.connections)] {
            for (phase, times) in [("alone", &mut *alone), ("among strangers", &mut *among)] {
                let [half, most] = [50, 99].map(|percent| percentile(times, percent));
                println!("{what} {phase}: {half:?}, p99 {most:?}, of {}", times.len());
            }
            let (alone, among) = (percentile(alone, 99), percentile(among, 99));
            assert!(among <= (2 * alone).max(FLOOR), "{what}: {among:?} among strangers, {alone:?} alone");
        }
        drop((kept, stop));
        served.await.expect("the server ended");
    });
}

async fn connect_strangers(env: &Env, server: &Address, count: usize) -> Vec<TcpStream> {
    let Address::Tcp(server) = server else { panic!("{server} is not TCP") };
    let (hello, mut held) = (half_a_hello(), Vec::new());
    for number in 0..count {
        let mut stranger = TcpStream::connect(server).expect("it listens");
        if number % 2 == 1 {
            // It may have been displaced already.
            let _ = stranger.write_all(&hello);
        }
        held.push(stranger);
        if number % BURST == BURST - 1 {
            env.sleep(PAUSE).await;
        }
    }
    held
}
