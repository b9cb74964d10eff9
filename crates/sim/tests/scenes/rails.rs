//! OSTs that clients reach by two networks: both are used together, and one that breaks costs no error.

use std::{cell::Cell, rc::Rc, time::Duration};

use forebay_client::{Caller, Client, CommitLevel, LayoutSpec, OpenFile, OpenMode};
use forebay_env::{
    Address,
    sim::{NodeId, Sim},
};
use forebay_keys::Role;
use forebay_proto::{Encode, Errno, ErrorReply, Fid, Incarnation, SessionId, TargetId, Uuid, message::*};
use forebay_rpc::{ClientSession, Frame, FrameReader, PinBudget, SessionOptions};
use forebay_sim::{Cluster, ClusterOptions};
use forebay_target::NetworkMetrics;

use crate::site::Site;

const OST: usize = 1;

fn caller() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new() }
}

fn bytes(seed: u64, count: usize) -> Vec<u8> {
    (0..count).map(|at| (seed.wrapping_mul(0x9E37_79B9) as usize + at * 7 + at / 4096) as u8).collect()
}

fn options() -> ClusterOptions {
    ClusterOptions { osts: 1, second_network: true, ..ClusterOptions::default() }
}

async fn site(sim: &Sim) -> (Cluster, NodeId, Client) {
    let cluster = Cluster::format(sim, options()).await;
    cluster.boot_all();
    let node = sim.add_node("client");
    let client = cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
    (cluster, node, client)
}

async fn make(client: &Client, name: &[u8]) -> OpenFile {
    let layout = LayoutSpec { stripe_count: 1, ..LayoutSpec::inherit() };
    let made = client.create(&caller(), Fid::ROOT, name, 0o644, OpenMode::READ_WRITE, layout).await;
    made.expect("it is made").1
}

fn networks(cluster: &Cluster) -> Vec<NetworkMetrics> {
    cluster.targets.borrow()[&OST].metrics().networks
}

/// write, read
///
/// Each of the two networks carries a third of the bytes at least, both ways, and the bytes are right.
#[test]
fn both_networks_of_an_ost_carry_its_data() {
    let sim = Sim::new(1);
    sim.block_on(async {
        let (cluster, node, client) = site(&sim).await;
        let file = make(&client, b"f").await;
        client.write(&file, 0, vec![1]).await.expect("it writes");
        client.fsync(&file, false).await.expect("synced");
        sim.sleep(Duration::from_secs(3)).await;
        let before = networks(&cluster);
        assert_eq!(before.len(), 2, "{before:?}");
        let content = bytes(1, 12 << 20);
        for (at, part) in content.chunks(1 << 20).enumerate() {
            client.write(&file, (at << 20) as u64, part.to_vec()).await.expect("it writes");
        }
        client.fsync(&file, false).await.expect("synced");
        let other = cluster.mount(sim.add_node("reader"), CommitLevel::Data).await.expect("it mounts");
        let read = other.read_file(&caller(), "f").await.expect("it reads");
        assert!(read[..] == content[..], "the bytes are wrong");
        let after = networks(&cluster);
        for (before, after) in before.iter().zip(&after) {
            let received = after.received_bytes - before.received_bytes;
            assert!(received > 4 << 20, "{} has brought {received} bytes of 12 MiB", after.address);
        }
        assert!(after.iter().all(|network| network.sent_bytes > 1 << 20), "{after:?}");
        assert_eq!(client.stats().evictions, 0);
        sim.crash(node);
    });
}

/// write |one stream breaks, again and again| write, read
///
/// One of the two streams breaks while writes are under way, 60 times. No write fails, and every byte is right.
#[test]
fn a_network_that_breaks_fails_no_write() {
    let sim = Sim::new(2);
    sim.block_on(async {
        let (cluster, node, client) = site(&sim).await;
        let file = make(&client, b"f").await;
        let server = cluster.servers[OST].node;
        let (own, is_over) = (sim.clone(), Rc::new(Cell::new(false)));
        let over = is_over.clone();
        drop(sim.env(sim.add_node("saboteur")).spawn(async move {
            for _ in 0..60 {
                own.sleep(Duration::from_millis(50 + own.random_below(400))).await;
                own.reset_one_connection(node, server);
            }
            over.set(true);
        }));
        let content = bytes(2, 3 << 20);
        let mut rounds = 0;
        while !is_over.get() {
            for (at, part) in content.chunks(100_000).enumerate() {
                client.write(&file, (at * 100_000) as u64, part.to_vec()).await.expect("it writes");
            }
            client.fsync(&file, false).await.expect("synced");
            let read = client.read(&file, 0, content.len()).await.expect("it reads");
            assert!(read[..] == content[..], "the bytes are wrong");
            rounds += 1;
            sim.sleep(Duration::from_millis(100)).await;
        }
        assert!(rounds > 10, "{rounds}");
        let networks = networks(&cluster);
        assert!(networks.iter().all(|network| network.received_bytes > 4 << 20), "{networks:?}");
        assert_eq!(client.stats().evictions, 0);
    });
}

/// |second address is nobody's| write |server comes with both| write
///
/// The second network of the OST does not work: the client goes on by the first. Once it works the client uses it.
#[test]
fn a_network_that_does_not_work_is_left_out_until_it_does() {
    let sim = Sim::new(3);
    sim.block_on(async {
        let mut cluster = Cluster::format(&sim, options()).await;
        let works = cluster.servers[OST].second.replace(Address::Mem("listens-at-another".into()));
        cluster.boot_all();
        let client = cluster.mount(sim.add_node("client"), CommitLevel::Data).await.expect("it mounts");
        let file = make(&client, b"f").await;
        client.write(&file, 0, bytes(3, 1 << 20)).await.expect("it writes");
        client.fsync(&file, false).await.expect("synced");
        assert_eq!(networks(&cluster)[1].received_bytes, 0);
        sim.power_cut(cluster.servers[OST].node);
        cluster.servers[OST].second = works;
        cluster.boot(OST);
        client.write(&file, 1 << 20, bytes(4, 1 << 20)).await.expect("it writes");
        client.fsync(&file, false).await.expect("synced");
        sim.sleep(Duration::from_secs(60)).await;
        client.write(&file, 0, bytes(5, 4 << 20)).await.expect("it writes");
        client.fsync(&file, false).await.expect("synced");
        let networks = networks(&cluster);
        assert!(networks.iter().all(|network| network.received_bytes > 1 << 20), "{networks:?}");
    });
}

/// What a stream gets that asks to become one more of the session's.
async fn asks(sim: &Sim, node: NodeId, address: &Address, join: JoinRail) -> Result<(), Errno> {
    let env = sim.env(node);
    let stream = env.connect(address).await.expect("it connects");
    let (read, mut write) = stream.split();
    let mut header = FrameHeader::new(FrameKind::Request, Op::JoinRail as u16);
    (header.slot, header.sequence, header.session) = (forebay_rpc::limits::CONTROL_SLOT, 1, join.session);
    header.incarnation = Incarnation(1);
    let frame = Frame::new(header, join.to_bytes().into(), Vec::new());
    write.write_all(&[frame.header.to_bytes().to_vec().into(), frame.body]).await.expect("it is sent");
    let mut reader = FrameReader::new(read);
    let header = reader.header().await.expect("a reply");
    let received = reader.content(header).await.expect("a reply");
    match received.header.kind {
        FrameKind::Reply => Ok(()),
        _ => Err(<ErrorReply as forebay_proto::Decode>::from_bytes(&received.body).expect("an error").errno),
    }
}

/// A node that knows another node's session and the number of its client wants its replies.
#[test]
fn a_stream_of_another_node_is_not_taken_for_one_of_the_sessions() {
    let sim = Sim::new(4);
    sim.block_on(async {
        let site =
            Site::with(&sim, ClusterOptions { osts: 2, second_network: true, ..ClusterOptions::default() }).await;
        let ost = site.cluster.servers[OST].clone();
        let id = Uuid([0x5a; 16]);
        let (owner, thief) = (site.node(Role::Client, "n1"), site.node(Role::Client, "n2"));
        let addresses = vec![ost.address.clone(), ost.second.clone().expect("a second")];
        let options = SessionOptions {
            cluster: Uuid::default(),
            target: ost.target,
            resolve: Rc::new(addresses.clone()),
            client: id,
            description: "client".into(),
            pins: PinBudget::new(1 << 20),
        };
        let owners = ClientSession::start(&sim.env(owner), options);
        owners.ready().await.expect("it is its own");
        sim.sleep(Duration::from_secs(3)).await;
        assert_eq!(owners.stats().rails.iter().filter(|rail| rail.is_open).count(), 2);
        let status = site.cluster.targets.borrow()[&OST].status_json();
        let of_client = status.split(&format!("\"client\":\"{id}\"")).nth(1).expect("it is listed");
        let number = of_client.split("\"session\":").nth(1).expect("a session");
        let number: u64 =
            number.chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect("a number");
        let target_uuid = status.split("\"uuid\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a uuid");
        let asked = JoinRail {
            target: ost.target,
            target_uuid: target_uuid.parse().expect("a uuid"),
            session: SessionId(number),
            client: id,
            connection: 0,
        };
        let others = [
            JoinRail { session: SessionId(number + 1), ..asked.clone() },
            JoinRail { client: Uuid([0x5b; 16]), ..asked.clone() },
            JoinRail { target: TargetId::ost(1), ..asked.clone() },
            JoinRail { target_uuid: Uuid([1; 16]), ..asked.clone() },
            // Of an earlier connection.
            asked.clone(),
        ];
        for address in &addresses {
            assert_eq!(asks(&sim, thief, address, asked.clone()).await, Err(Errno::WRONG_PEER));
            for other in &others {
                assert_eq!(asks(&sim, owner, address, other.clone()).await, Err(Errno::WRONG_PEER), "{other:?}");
            }
        }
        owners.ready().await.expect("the owner goes on");
        assert_eq!(owners.stats().connects, 1);
    });
}
