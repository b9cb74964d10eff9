use std::{collections::BTreeSet, sync::Arc, time::Duration};

use forebay_keys::Keys;
use rustls::{ClientConfig, pki_types::ServerName};

use super::{super::tests::*, *};
use crate::{
    Env, EnvErrorKind,
    net::{ReadHalf, WriteHalf},
    testing::on_both,
    tls::{Protection, accept, connect},
};

/// Passes on what comes, and keeps a copy.
async fn tap(mut from: ReadHalf, mut to: WriteHalf) -> Vec<u8> {
    let (mut seen, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    while let Ok(n) = some(&mut from, &mut buffer).await {
        seen.extend_from_slice(&buffer[..n]);
        to.write_all(&[Bytes::copy_from_slice(&buffer[..n])]).await.ok();
    }
    seen
}

/// What passes between two sides while one sends `bytes`, and the other says when it has received them.
async fn on_the_wire(env: &Env, client: Protection, server: Protection, bytes: &Bytes) -> Vec<u8> {
    let cluster = Cluster::new(env, CLUSTER);
    let (client, server) = (two(&cluster, client).0, two(&cluster, server).1);
    sent(env, client.to_connect(cluster.now), (&server, cluster.now), bytes).await
}

/// The same where both sides allow integrity only, and the client has a secret to send.
async fn secret_on_the_wire(env: &Env, bytes: &Bytes) -> Vec<u8> {
    let cluster = Cluster::new(env, CLUSTER);
    let (client, server) = two(&cluster, Protection::Integrity);
    sent(env, client.to_connect_encrypted(cluster.now), (&server, cluster.now), bytes).await
}

async fn sent(
    env: &Env,
    (config, name): (Arc<ClientConfig>, ServerName<'static>),
    (server, now): (&Keys, Duration),
    bytes: &Bytes,
) -> Vec<u8> {
    let (near, middle) = streams(env, "near").await;
    let (other, far) = streams(env, "far").await;
    let ((from_near, to_near), (from_far, to_far)) = (middle.split(), other.split());
    drop(env.spawn(tap(from_far, to_near)));
    let wire = env.spawn(tap(from_near, to_far));
    let sent = bytes.clone();
    let sending = env.spawn(async move {
        let mut stream = connect(near, config, name).await.unwrap().stream;
        stream.write.write_all(&[sent]).await.unwrap();
        // Until the other side has it all.
        stream.read.read_exact(&mut [0]).await.unwrap();
    });
    let mut stream = accept(far, server.to_accept(now)).await.unwrap().stream;
    let mut received = vec![0; bytes.len()];
    stream.read.read_exact(&mut received).await.unwrap();
    assert!(received == *bytes);
    stream.write.write_all(&[Bytes::from_static(b"!")]).await.unwrap();
    sending.await.unwrap();
    wire.await.unwrap()
}

#[test]
fn data_is_clear_only_where_both_sides_allow_it() {
    on_both(|env| async move {
        use Protection::{Encrypted, Integrity};
        let bytes = pattern(40_000, 7);
        let shows = |wire: Vec<u8>| wire.windows(1000).any(|part| part == &bytes[..1000]);
        assert!(shows(on_the_wire(&env, Integrity, Integrity, &bytes).await));
        assert!(!shows(secret_on_the_wire(&env, &bytes).await), "both sides allow it, and this is a secret");
        for (client, server) in [(Integrity, Encrypted), (Encrypted, Integrity), (Encrypted, Encrypted)] {
            assert!(!shows(on_the_wire(&env, client, server, &bytes).await), "{client:?} and {server:?}");
        }
    });
}

/// The bytes of one write of `content`, which is not sent.
fn records(write: &mut TlsWriteHalf, content: &Bytes) -> Vec<u8> {
    let mut out = Clear::default();
    write.put_clear(content.clone(), &mut out).unwrap();
    out.end();
    out.parts.concat()
}

/// What a reader gets that asks for `asked` bytes and is sent `bytes`, made with the sender's keys.
async fn receive(env: &Env, asked: usize, bytes: impl FnOnce(&mut TlsWriteHalf) -> Vec<u8>) -> EnvResult<Vec<u8>> {
    let [mut near, mut far] = pair(env, Protection::Integrity).await;
    let (_, write) = ends(&mut near);
    let bytes = bytes(write);
    write.inner.write_all(&[bytes.into()]).await.unwrap();
    let mut received = vec![0; asked];
    far.read.read_exact(&mut received).await.map(|()| received)
}

#[test]
fn every_byte_of_a_clear_record_is_checked() {
    on_both(|env| async move {
        let content = pattern(6000, 3);
        let length = RECORD_HEADER + content.len() + CLEAR_TRAILER;
        let good = receive(&env, content.len(), |write| records(write, &content)).await.unwrap();
        assert!(good == content);
        // All of header and trailer, and some of the content; the reader has room for all of it, or for a part.
        let within = [RECORD_HEADER, RECORD_HEADER + 3000, RECORD_HEADER + 5999];
        for at in (0..RECORD_HEADER).chain(within).chain(length - CLEAR_TRAILER..length) {
            for asked in [content.len(), 10] {
                let error = receive(&env, asked, |write| {
                    let mut bytes = records(write, &content);
                    bytes[at] ^= 1;
                    // A longer length needs more bytes, to be found wrong.
                    bytes.resize(bytes.len() + TLS_CLEAR_BYTES, 0);
                    bytes
                })
                .await
                .expect_err("it was changed");
                assert_eq!(error.kind, EnvErrorKind::Permission, "byte {at}, {asked} asked for: {error}");
            }
        }
    });
}

#[test]
fn records_that_are_repeated_left_out_or_exchanged_are_refused() {
    on_both(|env| async move {
        let (a, b) = (pattern(5000, 1), pattern(5000, 2));
        let three = |write: &mut TlsWriteHalf| [records(write, &a), records(write, &b), records(write, &a)];
        for order in [[0, 0, 1], [1, 0, 2], [0, 2, 1], [1, 2, 2]] {
            let error = receive(&env, 15_000, |write| {
                let three = three(write);
                order.map(|which| three[which].clone()).concat()
            })
            .await
            .expect_err("an order of its own");
            assert_eq!(error.kind, EnvErrorKind::Permission, "{order:?}: {error}");
        }
        let good = receive(&env, 15_000, |write| three(write).concat()).await.unwrap();
        assert!(good == [&a[..], &b, &a].concat());
    });
}

#[test]
fn sealed_data_and_clear_data_are_each_refused_where_the_other_was_agreed_on() {
    on_both(|env| async move {
        let [mut near, mut far] = pair(&env, Protection::Integrity).await;
        let (_, write) = ends(&mut near);
        write.seal(ContentType::ApplicationData, b"data", false).unwrap();
        write.send().await.unwrap();
        let error = far.read.read_exact(&mut [0; 4]).await.unwrap_err();
        assert_eq!(error.kind, EnvErrorKind::Permission, "{error}");

        let [mut near, mut far] = pair(&env, Protection::Encrypted).await;
        let (_, write) = ends(&mut near);
        assert!(write.put_clear(Bytes::from_static(b"data"), &mut Clear::default()).is_err(), "it has no key for that");
        write.inner.write_all(&[vec![CLEAR_RECORD, 0, 0, 0, 4, 1, 2, 3, 4].into()]).await.unwrap();
        let error = far.read.read_exact(&mut [0; 4]).await.unwrap_err();
        assert_eq!(error.kind, EnvErrorKind::Permission, "{error}");
    });
}

/// Two records with one nonce would let a listener forge others: with equal content they would be equal.
#[test]
fn no_two_records_of_a_stream_are_equal() {
    on_both(|env| async move {
        let content = pattern(100, 1);
        for protection in [Protection::Integrity, Protection::Encrypted] {
            let [mut near, _far] = pair(&env, protection).await;
            let (_, write) = ends(&mut near);
            let made: BTreeSet<Vec<u8>> = (0..200)
                .map(|_| match protection {
                    Protection::Integrity => records(write, &content),
                    Protection::Encrypted => {
                        write.seal(ContentType::ApplicationData, &content, false).unwrap();
                        write.taken()
                    }
                })
                .collect();
            assert_eq!(made.len(), 200, "{protection:?}");
        }
    });
}

#[test]
fn an_idle_stream_with_integrity_only_holds_no_buffer() {
    on_both(|env| async move {
        let [mut near, mut far] = pair(&env, Protection::Integrity).await;
        near.write.write_all(&[pattern(100_000, 1)]).await.unwrap();
        for part in [10, 99_990] {
            drop(far.read.read_aligned(part).await.unwrap());
        }
        let (read, _) = ends(&mut far);
        assert!(read.incoming.buffer.is_none() && read.rest.is_empty());
    });
}
