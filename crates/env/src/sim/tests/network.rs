use std::time::Duration;

use bytes::Bytes;

use crate::{
    Address, Env, EnvErrorKind, Stream,
    sim::{Link, NodeId, Sim},
};

const MS: Duration = Duration::from_millis(1);

fn address() -> Address {
    "tcp:server:7".parse().unwrap()
}

/// Two nodes and a stream between them.
fn pair(sim: &Sim) -> (NodeId, NodeId, Stream, Stream) {
    let (a, b) = (sim.add_node("client"), sim.add_node("server"));
    let (env_a, env_b) = (sim.env(a), sim.env(b));
    let (client, server) = sim.block_on(connect(&env_a, &env_b));
    (a, b, client, server)
}

async fn connect(client: &Env, server: &Env) -> (Stream, Stream) {
    let mut listener = server.listen(&address()).await.unwrap();
    let stream = client.connect(&listener.address()).await.unwrap();
    (stream, listener.accept().await.unwrap().stream)
}

fn is_disconnected<T>(result: crate::EnvResult<T>) -> bool {
    result.err().is_some_and(|error| error.kind == EnvErrorKind::Disconnected)
}

#[test]
fn bytes_arrive_in_order_whatever_jitter_and_loss_do() {
    let sim = Sim::new(3);
    sim.set_default_link(Link { jitter: MS * 5, loss: 0.1, ..Link::default() });
    let (_, _, client, server) = pair(&sim);
    let (_client_read, mut write) = client.split();
    let (mut read, _server_write) = server.split();
    sim.block_on(async {
        for i in 0..200u8 {
            write.write_all(&[vec![i].into(), vec![i; 2].into()]).await.unwrap();
        }
        let mut bytes = [0; 600];
        read.read_exact(&mut bytes).await.unwrap();
        assert!(bytes.iter().enumerate().all(|(i, byte)| usize::from(*byte) == i / 3));
    });
}

#[test]
fn a_message_takes_its_share_of_the_rate_and_the_latency() {
    let sim = Sim::new(1);
    sim.set_default_link(Link { latency: MS, jitter: Duration::ZERO, bytes_per_s: Some(1_000_000), loss: 0.0 });
    let (_, _, client, server) = pair(&sim);
    let start = sim.now();
    sim.block_on(async {
        let (_r, mut write) = client.split();
        let (mut read, _w) = server.split();
        write.write_all(&[vec![0; 10_000].into()]).await.unwrap();
        write.write_all(&[vec![0; 10_000].into()]).await.unwrap();
        read.read_exact(&mut [0; 20_000]).await.unwrap();
    });
    assert_eq!(sim.now().since(start), MS * 21);
}

#[test]
fn a_writer_waits_for_a_reader_that_is_slow() {
    let sim = Sim::new(1);
    let (_, _, client, server) = pair(&sim);
    let (_r, mut write) = client.split();
    let (mut read, _w) = server.split();
    let env = sim.env(sim.add_node("clock"));
    sim.block_on(async {
        let mib = [Bytes::from(vec![0; 1 << 20])];
        for _ in 0..4 {
            write.write_all(&mib).await.unwrap();
        }
        assert!(env.timeout(MS * 1000, write.write_all(&mib)).await.is_err());
        read.read_exact(&mut vec![0; 1 << 20]).await.unwrap();
        write.write_all(&mib).await.unwrap();
    });
}

#[test]
fn connecting_to_an_address_without_listener_fails_after_the_latency_of_the_link() {
    let sim = Sim::new(1);
    let env = sim.env(sim.add_node("client"));
    assert!(is_disconnected(sim.block_on(env.connect(&address()))));
    assert!(sim.now().0 > 0);
}

#[test]
fn an_address_has_one_listener_and_is_free_again_afterwards() {
    let sim = Sim::new(1);
    let env = sim.env(sim.add_node("server"));
    sim.block_on(async {
        let listener = env.listen(&address()).await.unwrap();
        assert_eq!(env.listen(&address()).await.err().unwrap().kind, EnvErrorKind::InUse);
        drop(listener);
        env.listen(&address()).await.unwrap();
        let any: Address = "tcp:server:0".parse().unwrap();
        let listeners = [env.listen(&any).await.unwrap(), env.listen(&any).await.unwrap()];
        assert_ne!(listeners[0].address(), listeners[1].address());
    });
}

#[test]
fn bytes_written_before_a_close_can_be_read_after_the_close() {
    let sim = Sim::new(1);
    let (_, _, client, server) = pair(&sim);
    sim.block_on(async {
        let (read, mut write) = client.split();
        drop(read);
        write.write_all(&[Bytes::from_static(b"last words")]).await.unwrap();
        drop(write);
        let (mut read, mut write) = server.split();
        let mut bytes = [0; 10];
        read.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"last words");
        assert!(is_disconnected(read.read_exact(&mut bytes).await));
        assert!(is_disconnected(write.write_all(&[Bytes::from_static(b"?")]).await));
    });
}

/// read |X|
#[test]
fn a_crash_disconnects_the_peer_and_closes_the_listener() {
    for seed in 0..20 {
        let sim = Sim::new(seed);
        let (client_node, server_node) = (sim.add_node("client"), sim.add_node("server"));
        sim.start(server_node, |env| async move {
            let mut listener = env.listen(&address()).await.unwrap();
            let stream = listener.accept().await.unwrap().stream;
            std::future::pending::<()>().await;
            drop(stream);
        });
        let env = sim.env(client_node);
        sim.block_on(async {
            let mut stream = env.connect(&address()).await.unwrap();
            sim.crash(server_node);
            assert!(is_disconnected(stream.read.read_exact(&mut [0]).await), "seed {seed}");
            assert!(is_disconnected(stream.write.write_all(&[Bytes::from_static(b"x")]).await), "seed {seed}");
            assert!(is_disconnected(env.connect(&address()).await), "seed {seed}");
        });
    }
}

#[test]
fn a_cut_delays_and_a_long_cut_resets() {
    let sim = Sim::new(1);
    let (a, b, client, server) = pair(&sim);
    let (_r, mut write) = client.split();
    let (mut read, _w) = server.split();
    let env = sim.env(sim.add_node("clock"));
    sim.block_on(async {
        sim.cut(a, b);
        write.write_all(&[Bytes::from_static(b"x")]).await.unwrap();
        assert!(env.timeout(MS * 5000, async { env.sleep(MS * 5000).await }).await.is_ok());
        sim.heal(a, b);
        read.read_exact(&mut [0]).await.unwrap();
        sim.cut_both(a, b);
        write.write_all(&[Bytes::from_static(b"y")]).await.unwrap();
        let cut_at = sim.now();
        assert!(is_disconnected(read.read_exact(&mut [0]).await));
        assert!(sim.now().since(cut_at) >= Duration::from_secs(10));
        assert!(is_disconnected(write.write_all(&[Bytes::from_static(b"z")]).await));
        assert!(is_disconnected(sim.env(a).connect(&address()).await));
    });
}

#[test]
fn a_reset_breaks_both_ends() {
    let sim = Sim::new(1);
    let (a, b, client, server) = pair(&sim);
    sim.block_on(async {
        let (mut client_read, _cw) = client.split();
        let (_sr, mut server_write) = server.split();
        sim.reset_connections(b, a);
        assert!(is_disconnected(client_read.read_exact(&mut [0]).await));
        assert!(is_disconnected(server_write.write_all(&[Bytes::from_static(b"z")]).await));
    });
}
