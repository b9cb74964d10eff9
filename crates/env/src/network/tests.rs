use std::time::Duration;

use bytes::Bytes;
use forebay_keys::{Authority, KeyResult, NodeKey, Role, Validity};
use forebay_proto::Uuid;

use super::*;
use crate::{real, testing::on_both};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn keys(env: &Env, authority: &Authority, role: Role, name: &str) -> Network {
    let now = env.unix_time().since_1970();
    let make = || -> KeyResult<Keys> {
        let (key, node) = (NodeKey::make()?, NodeName::new(authority.cluster(), role, name)?);
        let validity = Validity { from: now.saturating_sub(DAY), to: now + DAY };
        let certificate = authority.sign(&node, key.public_key(), validity)?;
        Keys::new(&authority.certificate(now.saturating_sub(DAY))?, certificate, &key)
    };
    Network::Keys(Arc::new(make().expect("keys")))
}

fn address(env: &Env, name: &str) -> Address {
    match env.is_simulated() {
        true => Address::Mem(name.into()),
        false => Address::Tcp("127.0.0.1:0".into()),
    }
}

/// What a client gets that connects and reads one byte, and what the server says of it.
async fn meet(env: &Env, client: Network, server: Network, name: &str) -> (EnvResult<Stream>, EnvResult<PeerIdentity>) {
    let (near, far) = (env.with_network(client), env.with_network(server));
    let mut listener = far.listen(&address(env, name)).await.expect("it listens");
    let to = listener.address();
    let connecting = env.spawn(async move {
        let mut stream = near.connect(&to).await?;
        stream.read.read_exact(&mut [0]).await?;
        Ok(stream)
    });
    let accepted = listener.accept().await.expect("it is reached");
    let peer = match accepted.handshake(&far).await {
        Ok((mut stream, peer)) => {
            // The other side may have gone.
            let _ = stream.write.write_all(&[Bytes::from_static(b"!")]).await;
            Ok(peer)
        }
        Err(error) => Err(error),
    };
    (connecting.await.expect("it ends"), peer)
}

#[test]
fn both_sides_learn_the_name_in_the_others_certificate() {
    on_both(|env| async move {
        let authority = Authority::make(Uuid([1; 16])).expect("an authority");
        let (client, server) = (keys(&env, &authority, Role::Client, "n1"), keys(&env, &authority, Role::Ost, "s1"));
        let (stream, peer) = meet(&env, client, server, "names").await;
        let stream = stream.expect("it is served");
        let node = stream.node().expect("it has a certificate");
        assert_eq!((node.role, node.name()), (Role::Ost, "s1"));
        let Ok(PeerIdentity::Node { node, address, .. }) = peer else { panic!("{peer:?}") };
        assert_eq!((node.role, node.name()), (Role::Client, "n1"));
        assert!(!address.is_empty());
    });
}

#[test]
fn who_has_no_key_of_the_cluster_gets_nothing_and_one_clear_line_says_why() {
    on_both(|env| async move {
        let ours = Authority::make(Uuid([1; 16])).expect("an authority");
        let theirs = Authority::make(Uuid([2; 16])).expect("an authority");
        let server = || keys(&env, &ours, Role::Mds, "s1");
        let plain = || Network::InsecureLoopback;
        let client = || keys(&env, &ours, Role::Client, "n1");
        for (near, far, line) in [
            (keys(&env, &theirs, Role::Client, "n1"), server(), "another cluster"),
            (client(), keys(&env, &theirs, Role::Mds, "s1"), "another cluster"),
            (client(), keys(&env, &ours, Role::Client, "n2"), "not a server's"),
        ] {
            let (stream, peer) = meet(&env, near, far, "strangers").await;
            let error = stream.err().expect("it is refused");
            assert!(matches!(error.kind, EnvErrorKind::Permission | EnvErrorKind::Disconnected), "{error}");
            let said = format!("{error} | {}", peer.err().map_or(String::new(), |error| error.to_string()));
            assert!(said.contains(line), "{line}: {said}");
        }
        // A client without keys sends nothing by itself, and the server's first message is TLS.
        let (near, far) = (env.with_network(plain()), env.with_network(server()));
        let mut listener = far.listen(&address(&env, "plain")).await.expect("it listens");
        let mut stream = near.connect(&listener.address()).await.expect("connected");
        stream.write.write_all(&[Bytes::from_static(b"FBF1 and a request in plain text")]).await.expect("sent");
        let accepted = listener.accept().await.expect("it is reached");
        let error = accepted.handshake(&far).await.err().expect("it is refused");
        assert!(error.message.contains("does not speak TLS"), "{error}");
        let mut answer = [0; 7];
        let answered = stream.read.read_exact(&mut answer).await;
        assert!(answered.is_err() || answer[0] == 0x15, "an alert, and nothing else: {answer:?}");
    });
}

#[test]
fn tcp_without_keys_is_refused_and_insecure_loopback_stays_on_this_machine() {
    real::run(async |env| {
        let loopback: Address = "tcp:127.0.0.1:0".parse().expect("an address");
        let anywhere: Address = "tcp:0.0.0.0:0".parse().expect("an address");
        for address in [&loopback, &anywhere] {
            let error = env.listen(address).await.err().expect("there are no keys");
            assert!(error.kind == EnvErrorKind::Permission && error.message.contains("--keys"), "{error}");
            assert_eq!(env.connect(address).await.err().expect("there are no keys").kind, EnvErrorKind::Permission);
        }
        let insecure = env.with_network(Network::InsecureLoopback);
        let listener = insecure.listen(&loopback).await.expect("it listens");
        assert!(insecure.connect(&listener.address()).await.is_ok_and(|stream| stream.node().is_none()));
        let error = insecure.listen(&anywhere).await.err().expect("others could connect");
        assert!(error.message.contains("not an address of this machine"), "{error}");
        // A shard that this one starts has the same connections.
        let address = listener.address();
        let reached = insecure.spawn_shard("other", async move |env| env.connect(&address).await.is_ok()).await;
        assert_eq!(reached.ok(), Some(true));
    });
}

#[test]
fn a_certificate_that_is_refused_is_refused_in_words_that_say_what_to_do() {
    on_both(|env| async move {
        let (ours, made_again) = (Authority::make(Uuid([1; 16])), Authority::make(Uuid([1; 16])));
        let (ours, made_again) = (ours.expect("an authority"), made_again.expect("an authority"));
        let client = || keys(&env, &ours, Role::Client, "n1");
        for (server, near, far) in [
            (
                keys(&env, &made_again, Role::Mds, "s1"),
                "another authority with the name of this cluster's",
                "another cluster",
            ),
            (
                keys(&env, &ours, Role::Admin, "n2"),
                "other side's key is not a server's",
                "this side's key is not a server's",
            ),
        ] {
            let (stream, peer) = meet(&env, client(), server, "words").await;
            let (error, refusal) = (stream.err().expect("it is refused"), peer.expect_err("it is told so"));
            assert!(error.message.contains(near) && error.message.contains("forebay keys for"), "{near}: {error}");
            assert!(refusal.message.contains(far), "{far}: {refusal}");
            assert_eq!((error.kind, refusal.kind), (EnvErrorKind::Permission, EnvErrorKind::Permission));
        }
    });
}
