use std::{
    future::{pending, poll_fn},
    io::{Read, Write},
    time::Duration,
};

use bytes::Bytes;
use forebay_keys::{Authority, Keys, NodeKey, NodeName, Role, Validity};
use forebay_proto::Uuid;
use rustls::{ContentType, HandshakeKind, ServerConnection};

use super::*;
use crate::{
    Address, Env,
    net::{ReadHalf, ReadHalfInner, WriteHalf, WriteHalfInner},
    testing::on_both,
};

pub(super) const CLUSTER: Uuid = Uuid([3; 16]);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// An authority, and its certificate from a month ago.
pub(super) struct Cluster {
    authority: Authority,
    certificate: CertificateDer<'static>,
    pub(super) now: Duration,
}

impl Cluster {
    pub(super) fn new(env: &Env, cluster: Uuid) -> Self {
        let (authority, now) = (Authority::make(cluster).unwrap(), Duration::from_nanos(env.unix_time().0 as u64));
        let certificate = authority.certificate(now.saturating_sub(30 * DAY)).unwrap();
        Self { authority, certificate, now }
    }

    fn keys(&self, role: Role, name: &str, validity: Validity) -> Keys {
        let key = NodeKey::make().unwrap();
        let name = NodeName::new(self.authority.cluster(), role, name).unwrap();
        let certificate = self.authority.sign(&name, key.public_key(), validity).unwrap();
        Keys::new(&self.certificate, certificate, &key).unwrap()
    }

    fn valid(&self, role: Role, name: &str) -> Keys {
        self.keys(role, name, Validity { from: self.now.saturating_sub(DAY), to: self.now + DAY })
    }

    fn expired(&self, role: Role, name: &str) -> Keys {
        self.keys(role, name, Validity { from: self.now.saturating_sub(2 * DAY), to: self.now.saturating_sub(DAY) })
    }
}

pub(super) async fn streams(env: &Env, name: &str) -> (Stream, Stream) {
    let address: Address = match env.is_simulated() {
        true => format!("mem:{name}"),
        false => "tcp:127.0.0.1:0".into(),
    }
    .parse()
    .unwrap();
    let mut listener = env.listen(&address).await.unwrap();
    let (to, connecting) = (listener.address(), env.clone());
    let client = env.spawn(async move { connecting.connect(&to).await.unwrap() });
    let server = listener.accept().await.unwrap().stream;
    (client.await.unwrap(), server)
}

/// Both results of a handshake; the client's once it has read a byte, as the server may refuse it later.
async fn shake(env: &Env, client: &Keys, server: &Keys, now: Duration) -> [EnvResult<Secured>; 2] {
    let (near, far) = streams(env, "shake").await;
    let (config, name) = client.to_connect(now);
    let connecting = env.spawn(async move {
        let mut secured = connect(near, config, name).await?;
        secured.stream.read.read_exact(&mut [0]).await?;
        Ok(secured)
    });
    let mut accepted = accept(far, server.to_accept(now)).await;
    if let Ok(secured) = &mut accepted {
        secured.stream.write.write_all(&[Bytes::from_static(b"!")]).await.unwrap();
    }
    [connecting.await.unwrap(), accepted]
}

pub(super) async fn some(half: &mut ReadHalf, buf: &mut [u8]) -> EnvResult<usize> {
    poll_fn(|cx| half.poll_some(cx, buf)).await
}

pub(super) fn pattern(length: usize, seed: usize) -> Bytes {
    (0..length).map(|at| (at * 31 + at / 251 + seed) as u8).collect()
}

#[test]
fn both_sides_know_each_other_and_any_pieces_come_whole() {
    on_both(|env| async move {
        for protection in [Protection::Encrypted, Protection::Integrity] {
            any_pieces_come_whole(&env, protection).await;
        }
    });
}

async fn any_pieces_come_whole(env: &Env, protection: Protection) {
    let cluster = Cluster::new(env, CLUSTER);
    let (client, server) = two(&cluster, protection);
    let [near, far] = shake(env, &client, &server, cluster.now).await.map(Result::unwrap);
    assert_eq!(client.peer(Some(&near.certificates)).unwrap().name, *server.name());
    assert_eq!(server.peer(Some(&far.certificates)).unwrap().name, *client.name());
    let (mut near, mut far) = (near.stream, far.stream);
    let lengths = [1, 100, 4095, 4096, 16 << 10, (16 << 10) + 1, 200_000, 1 << 20, 0, 5];
    let parts: Vec<Bytes> = lengths.iter().enumerate().map(|(seed, length)| pattern(*length, seed)).collect();
    let all = parts.concat();
    let sending = env.spawn(async move {
        for batch in parts.chunks(3) {
            near.write.write_all(batch).await.unwrap();
        }
        let mut back = vec![0; 300_000];
        near.read.read_exact(&mut back).await.unwrap();
        back
    });
    let mut received = Vec::new();
    for length in [3, 10_000, 0, 16 << 10, 1, 900_000].into_iter().chain([usize::MAX]) {
        let length = length.min(all.len() - received.len());
        received.extend_from_slice(&far.read.read_aligned(length).await.unwrap());
    }
    assert!(received == all);
    far.write.write_all(&[pattern(300_000, 9)]).await.unwrap();
    assert!(sending.await.unwrap() == pattern(300_000, 9));
    let end = far.read.read_exact(&mut [0]).await.unwrap_err();
    assert_eq!(end.kind, EnvErrorKind::Disconnected);
}

/// Keys of a client and a server.
pub(super) fn two(cluster: &Cluster, protection: Protection) -> (Keys, Keys) {
    let (client, server) = (cluster.valid(Role::Client, "n1"), cluster.valid(Role::Ost, "s1"));
    match protection {
        Protection::Encrypted => (client, server),
        Protection::Integrity => (client.with_integrity_only(), server.with_integrity_only()),
    }
}

/// Two sides after their handshake.
pub(super) async fn pair(env: &Env, protection: Protection) -> [Stream; 2] {
    let cluster = Cluster::new(env, CLUSTER);
    let (client, server) = two(&cluster, protection);
    shake(env, &client, &server, cluster.now).await.map(|secured| secured.unwrap().stream)
}

pub(super) fn ends(stream: &mut Stream) -> (&mut TlsReadHalf, &mut TlsWriteHalf) {
    match (&mut stream.read.half, &mut stream.write.half) {
        (ReadHalfInner::Tls(read), WriteHalfInner::Tls(write)) => (read, write),
        _ => panic!("a plain stream"),
    }
}

/// Both sides send bulk data at once. Keys are updated on the way: see `RECORDS_PER_KEY`.
async fn exchange(env: &Env, sides: [Stream; 2]) {
    let both = sides.into_iter().enumerate().map(|(side, stream)| {
        let (mut read, mut write) = stream.split();
        drop(env.spawn(async move {
            for seed in 0..8 {
                write.write_all(&[pattern(200, seed), pattern(1 << 20, seed + side)]).await.unwrap();
            }
            pending::<()>().await;
        }));
        env.spawn(async move {
            for seed in 0..8 {
                let mut head = [0; 200];
                read.read_exact(&mut head).await.unwrap();
                assert!(head[..] == pattern(200, seed));
                assert!(read.read_aligned(1 << 20).await.unwrap()[..] == pattern(1 << 20, seed + 1 - side));
            }
        })
    });
    for side in both.collect::<Vec<_>>() {
        side.await.unwrap();
    }
}

#[test]
fn both_directions_carry_bulk_data_at_once_and_update_their_keys() {
    on_both(|env| async move {
        for protection in [Protection::Encrypted, Protection::Integrity] {
            let sides = pair(&env, protection).await;
            exchange(&env, sides).await;
        }
    });
}

/// Passes on what comes, in pieces of other lengths.
fn forward(env: &Env, mut from: ReadHalf, mut to: WriteHalf) {
    drop(env.spawn(async move {
        let mut buffer = vec![0; 70_000];
        for length in [1, 4, 5, 6, 700, 16_406, 16_407, 70_000].into_iter().cycle() {
            let Ok(n) = some(&mut from, &mut buffer[..length]).await else { return };
            to.write_all(&[Bytes::copy_from_slice(&buffer[..n])]).await.ok();
        }
    }));
}

#[test]
fn pieces_of_any_length_on_the_way_make_no_difference() {
    on_both(|env| async move {
        for protection in [Protection::Encrypted, Protection::Integrity] {
            let cluster = Cluster::new(&env, CLUSTER);
            let (client, server) = two(&cluster, protection);
            let (near, middle) = streams(&env, "near").await;
            let (other, far) = streams(&env, "far").await;
            let ((from_near, to_near), (from_far, to_far)) = (middle.split(), other.split());
            forward(&env, from_near, to_far);
            forward(&env, from_far, to_near);
            let (config, name) = client.to_connect(cluster.now);
            let connecting = env.spawn(connect(near, config, name));
            let far = accept(far, server.to_accept(cluster.now)).await.unwrap().stream;
            let near = connecting.await.unwrap().unwrap().stream;
            exchange(&env, [near, far]).await;
        }
    });
}

#[test]
fn an_idle_connection_holds_no_buffer() {
    on_both(|env| async move {
        let [mut near, mut far] = pair(&env, Protection::Encrypted).await;
        let sending = env.spawn(async move {
            near.write.write_all(&[pattern(3 << 20, 1)]).await.unwrap();
            assert!(ends(&mut near).1.out.is_none());
            near
        });
        drop(far.read.read_aligned(3 << 20).await.unwrap());
        let near = sending.await;
        let nothing = env.timeout(Duration::from_millis(20), far.read.read_exact(&mut [0])).await;
        assert!(nothing.is_err() && ends(&mut far).0.incoming.buffer.is_none());
        drop(near);
    });
}

/// The other side of a connection, by the buffered interface of `rustls`.
struct Peer {
    connection: ServerConnection,
    stream: Stream,
}

impl Peer {
    async fn flush(&mut self) {
        let mut records = Vec::new();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut records).unwrap();
        }
        self.stream.write.write_all(&[records.into()]).await.unwrap();
    }

    async fn fill(&mut self) {
        let mut buffer = vec![0; 4096];
        let n = some(&mut self.stream.read, &mut buffer).await.unwrap();
        let mut records = &buffer[..n];
        while !records.is_empty() {
            self.connection.read_tls(&mut records).unwrap();
            self.connection.process_new_packets().unwrap();
        }
    }

    async fn handshake(&mut self) {
        while self.connection.is_handshaking() {
            self.fill().await;
            self.flush().await;
        }
    }

    async fn echo(&mut self, bytes: usize) {
        let mut piece = vec![0; bytes];
        let mut filled = 0;
        while filled < bytes {
            match self.connection.reader().read(&mut piece[filled..]) {
                Ok(n) => filled += n,
                Err(_) => self.fill().await,
            }
        }
        self.connection.writer().write_all(&piece).unwrap();
        self.flush().await;
    }
}

#[test]
fn a_peer_that_is_rustls_understands_key_updates_and_tickets() {
    on_both(|env| async move {
        let cluster = Cluster::new(&env, CLUSTER);
        let (client, server) = (cluster.valid(Role::Client, "n1"), cluster.valid(Role::Ost, "s1"));
        for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let (near, stream) = streams(&env, "rustls").await;
            let connection = ServerConnection::new(server.to_accept(cluster.now)).unwrap();
            let mut peer = Peer { connection, stream };
            let echoing = env.spawn(async move {
                peer.handshake().await;
                for round in 0..200 {
                    // It requests an update from this side too.
                    if round % 30 == 7 {
                        peer.connection.refresh_traffic_keys().unwrap();
                    }
                    peer.echo(10_000).await;
                }
                peer
            });
            let (config, name) = client.to_connect(cluster.now);
            let mut near = connect(near, config, name).await.unwrap().stream;
            for round in 0..200 {
                near.write.write_all(&[pattern(10_000, round)]).await.unwrap();
                assert!(near.read.read_aligned(10_000).await.unwrap()[..] == pattern(10_000, round));
            }
            assert_eq!(echoing.await.unwrap().connection.handshake_kind(), Some(kind));
        }
    });
}

/// What this side reads of one record with `bytes` of a kind of content, and a record of data after it.
async fn after(env: &Env, content: ContentType, bytes: &[u8]) -> EnvResult<Vec<u8>> {
    let [mut near, mut far] = pair(env, Protection::Encrypted).await;
    let (_, write) = ends(&mut near);
    write.seal(content, bytes, false).unwrap();
    write.seal(ContentType::ApplicationData, b"data", false).unwrap();
    write.send().await.unwrap();
    let mut data = vec![0; 4];
    far.read.read_exact(&mut data).await.map(|()| data)
}

#[test]
fn content_of_other_kinds_is_understood_or_refused() {
    on_both(|env| async move {
        let (alert, handshake, padded) = (ContentType::Alert, ContentType::Handshake, ContentType::from(0));
        assert_eq!(after(&env, alert, &[1, 90]).await.unwrap(), b"data", "the peer's user has cancelled something");
        assert_eq!(after(&env, padded, &[b"dat\x17", &[0; 100][..]].concat()).await.unwrap(), b"datd", "padding");
        assert_eq!(after(&env, ContentType::ApplicationData, b"").await.unwrap(), b"data", "an empty record");
        let error = after(&env, alert, &[1, 0]).await.unwrap_err();
        assert_eq!(error.kind, EnvErrorKind::Disconnected, "{error}");
        let refused: [(&str, ContentType, &[u8]); 10] = [
            ("an alert", alert, &[2, 20]),
            ("half an alert", alert, &[1]),
            ("another kind", ContentType::ChangeCipherSpec, &[1]),
            ("no kind", padded, &[0; 16]),
            ("a ticket for a server", handshake, &[4, 0, 0, 1, 7]),
            ("an unknown message", handshake, &[99, 0, 0, 0]),
            ("a key update of an unknown kind", handshake, &[24, 0, 0, 1, 2]),
            ("a message behind a key update", handshake, &[24, 0, 0, 1, 0, 4]),
            ("a message of 16 MiB", handshake, &[4, 0xff, 0xff, 0xff]),
            ("data within a message", handshake, &[24, 0, 0]),
        ];
        for (what, content, bytes) in refused {
            let error = after(&env, content, bytes).await.expect_err(what);
            assert_eq!(error.kind, EnvErrorKind::Permission, "{what}: {error}");
        }
    });
}

#[test]
fn a_record_with_a_wrong_header_is_refused() {
    on_both(|env| async move {
        for (at, byte) in [(0, 22), (1, 2), (3, 0xff), (4, 0)] {
            let [mut near, mut far] = pair(&env, Protection::Encrypted).await;
            let (_, write) = ends(&mut near);
            write.seal(ContentType::ApplicationData, b"data", false).unwrap();
            write.out.as_mut().unwrap()[at] = byte;
            write.send().await.unwrap();
            let error = far.read.read_exact(&mut [0; 4]).await.unwrap_err();
            assert_eq!(error.kind, EnvErrorKind::Permission, "{at}: {error}");
        }
    });
}

#[test]
fn a_certificate_that_is_not_valid_now_or_not_of_this_cluster_is_refused() {
    on_both(|env| async move {
        let cluster = Cluster::new(&env, CLUSTER);
        let other = Cluster::new(&env, Uuid([4; 16]));
        let (client, server) = (cluster.valid(Role::Client, "n1"), cluster.valid(Role::Mds, "s1"));
        let cases = [
            (other.valid(Role::Client, "n1"), cluster.valid(Role::Mds, "s1"), cluster.now, "another cluster's client"),
            (cluster.valid(Role::Client, "n1"), other.valid(Role::Mds, "s1"), cluster.now, "another cluster's server"),
            (cluster.expired(Role::Client, "n1"), cluster.valid(Role::Mds, "s1"), cluster.now, "an expired client"),
            (cluster.valid(Role::Client, "n1"), cluster.expired(Role::Mds, "s1"), cluster.now, "an expired server"),
            (
                cluster.valid(Role::Client, "n1"),
                cluster.valid(Role::Client, "n2"),
                cluster.now,
                "a client that accepts",
            ),
            (client, server, cluster.now + 2 * DAY, "a clock that is two days ahead"),
        ];
        for (client, server, now, what) in cases {
            let [near, _] = shake(&env, &client, &server, now).await;
            let error = near.err().unwrap_or_else(|| panic!("{what} was accepted"));
            assert!(matches!(error.kind, EnvErrorKind::Permission | EnvErrorKind::Disconnected), "{what}: {error}");
        }
    });
}

#[test]
fn what_is_not_tls_is_refused_in_words_and_within_bounds() {
    on_both(|env| async move {
        let cluster = Cluster::new(&env, CLUSTER);
        let server = cluster.valid(Role::Mds, "s1");
        let mut hello = vec![0x16, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff];
        hello.resize(100_000, 7);
        // Data of a stream with integrity only, before any handshake.
        let clear = [&[CLEAR_RECORD, 0, 0, 0, 8][..], &[7; 8 + CLEAR_TRAILER]].concat();
        for bytes in [b"FRBY plain text of our own protocol".to_vec(), vec![0; 70_000], hello, clear] {
            let (near, far) = streams(&env, "plain").await;
            let sending = env.spawn(async move {
                let (mut read, mut write) = near.split();
                write.write_all(&[bytes.into()]).await.ok();
                // Until the other side has closed.
                while read.read_exact(&mut [0]).await.is_ok() {}
            });
            let error = accept(far, server.to_accept(cluster.now)).await.err().expect("it is refused");
            assert_eq!(error.kind, EnvErrorKind::Permission, "{error}");
            assert!(error.message.contains("TLS"), "{error}");
            sending.await;
        }
    });
}

#[test]
fn a_byte_that_was_changed_on_the_way_is_refused() {
    on_both(|env| async move {
        let cluster = Cluster::new(&env, CLUSTER);
        let (client, server) = (cluster.valid(Role::Client, "n1"), cluster.valid(Role::Ost, "s1"));
        let (near, middle) = streams(&env, "near").await;
        let (other, far) = streams(&env, "far").await;
        let (config, name) = client.to_connect(cluster.now);
        let ((mut from, mut back), (mut returned, mut to)) = (middle.split(), other.split());
        drop(env.spawn(async move {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(n) = some(&mut returned, &mut buffer).await {
                back.write_all(&[Bytes::copy_from_slice(&buffer[..n])]).await.ok();
            }
        }));
        drop(env.spawn(async move {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(n) = some(&mut from, &mut buffer).await {
                // Only the large record that follows the handshake.
                if n > 8000 {
                    buffer[n / 2] ^= 1;
                }
                to.write_all(&[Bytes::copy_from_slice(&buffer[..n])]).await.ok();
            }
        }));
        let sending = env.spawn(async move {
            let mut secured = connect(near, config, name).await.unwrap();
            secured.stream.read.read_exact(&mut [0]).await.unwrap();
            secured.stream.write.write_all(&[pattern(9000, 1)]).await.ok();
            secured
        });
        let mut accepted = accept(far, server.to_accept(cluster.now)).await.unwrap();
        accepted.stream.write.write_all(&[Bytes::from_static(b"!")]).await.unwrap();
        let error = accepted.stream.read.read_exact(&mut [0; 9000]).await.unwrap_err();
        assert_eq!(error.kind, EnvErrorKind::Permission, "{error}");
        drop(sending.await);
    });
}

/// The other side has sent a request before this side has finished its handshake, and both arrive in one piece.
#[test]
fn bytes_that_come_together_with_the_end_of_the_handshake_are_read() {
    on_both(|env| async move {
        for protection in [Protection::Encrypted, Protection::Integrity] {
            come_together(&env, protection).await;
        }
    });
}

async fn come_together(env: &Env, protection: Protection) {
    let cluster = Cluster::new(env, CLUSTER);
    let (client, server) = two(&cluster, protection);
    let (near, middle) = streams(env, "near").await;
    let (other, far) = streams(env, "far").await;
    let (config, name) = client.to_connect(cluster.now);
    let ((mut from, mut back), (mut returned, mut to)) = (middle.split(), other.split());
    drop(env.spawn(async move {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(n) = some(&mut returned, &mut buffer).await {
            back.write_all(&[Bytes::copy_from_slice(&buffer[..n])]).await.ok();
        }
    }));
    let sleeping = env.clone();
    drop(env.spawn(async move {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(n) = some(&mut from, &mut buffer).await {
            let mut piece = buffer[..n].to_vec();
            // Long enough for all that comes without an answer.
            sleeping.sleep(Duration::from_millis(100)).await;
            if let Ok(Ok(n)) = sleeping.timeout(Duration::from_millis(1), some(&mut from, &mut buffer)).await {
                piece.extend_from_slice(&buffer[..n]);
            }
            to.write_all(&[piece.into()]).await.ok();
        }
    }));
    let sending = env.spawn(async move {
        let mut secured = connect(near, config, name).await.unwrap();
        secured.stream.write.write_all(&[pattern(3000, 1)]).await.unwrap();
        secured.stream.read.read_exact(&mut [0]).await.unwrap();
    });
    let mut accepted = accept(far, server.to_accept(cluster.now)).await.unwrap();
    let mut request = vec![0; 3000];
    let reading = accepted.stream.read.read_exact(&mut request);
    env.timeout(Duration::from_secs(10), reading).await.expect("it has come").unwrap();
    assert!(request == pattern(3000, 1));
    accepted.stream.write.write_all(&[Bytes::from_static(b"!")]).await.unwrap();
    sending.await.unwrap();
}
