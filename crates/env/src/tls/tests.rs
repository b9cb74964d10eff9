use std::time::Duration;

use forebay_keys::{Authority, Keys, NodeKey, NodeName, Role, Validity};
use forebay_proto::Uuid;

use super::*;
use crate::{Address, Env, testing::on_both};

const CLUSTER: Uuid = Uuid([3; 16]);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// An authority, and its certificate from a month ago.
struct Cluster {
    authority: Authority,
    certificate: CertificateDer<'static>,
    now: Duration,
}

impl Cluster {
    fn new(env: &Env, cluster: Uuid) -> Self {
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

async fn streams(env: &Env, name: &str) -> (Stream, Stream) {
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

async fn some(half: &mut ReadHalf, buf: &mut [u8]) -> EnvResult<usize> {
    poll_fn(|cx| half.poll_some(cx, buf)).await
}

fn pattern(length: usize, seed: usize) -> Bytes {
    (0..length).map(|at| (at * 31 + at / 251 + seed) as u8).collect()
}

#[test]
fn both_sides_know_each_other_and_any_pieces_come_whole() {
    on_both(|env| async move {
        let cluster = Cluster::new(&env, CLUSTER);
        let (client, server) = (cluster.valid(Role::Client, "n1"), cluster.valid(Role::Ost, "s1"));
        let [near, far] = shake(&env, &client, &server, cluster.now).await.map(Result::unwrap);
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
        for bytes in [b"FRBY plain text of our own protocol".to_vec(), vec![0; 70_000], hello] {
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
    });
}
