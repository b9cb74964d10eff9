//! Stores and peers of an older release, commit 0dccf35: bytes that it wrote and sent (`recorded/record.rs`).
//!
//! `MDT0000`, `OST0000` and `OST0001` are stores after a power cut. Of each of the files `identity`, `data` and `journal`:
//! its length (u64), its sectors with anything but zeros (offset u64, length u16, bytes; zeros follow), and 2^64-1.
//! `connect` is the frame of a Connect to OST0000, in version 1 of the protocol. `refusal` is the frame with which OST0000
//! answered one of version 2.

use std::{rc::Rc, time::Duration};

use bytes::Bytes;
use forebay_client::{Client, CommitLevel, LayoutSpec, MountOptions, OpenMode};
use forebay_env::{
    Address, Env, OpenDisk, SECTOR_BYTES,
    sim::{NodeId, Sim},
};
use forebay_fsck::{CheckOptions, FsckErrorKind, Quiet, RepairOptions};
use forebay_mds::{Mds, MdsOptions};
use forebay_oss::Oss;
use forebay_proto::{
    Encode, Errno, Fid, Incarnation, Reader, SessionId, TargetId, TargetKind, Transno, Uuid, crc,
    message::{ClusterMap, ConnectReply, FrameHeader, FrameKind, MapTarget, Op, PROTOCOL_VERSION, features},
};
use forebay_rpc::{ClientSession, Frame, FrameReader, PinBudget, RpcError, SessionOptions};
use forebay_store::{OpenOptions, Store, StoreErrorKind};
use forebay_target::TargetOptions;

use crate::scene::{caller, create};

const CONNECT: &[u8] = include_bytes!("recorded/connect");
const REFUSAL: &[u8] = include_bytes!("recorded/refusal");

/// Directory of a store on its node.
const STORE_DIR: &str = "/store";

/// More than the recovery window: the clients of the older release do not come back.
const RECOVERED: Duration = Duration::from_secs(30);

fn address(target: TargetId) -> Address {
    Address::Mem(target.to_string())
}

/// Every target with its recorded store.
fn recorded() -> [(TargetId, &'static [u8]); 3] {
    [
        (TargetId::mdt(0), include_bytes!("recorded/MDT0000")),
        (TargetId::ost(0), include_bytes!("recorded/OST0000")),
        (TargetId::ost(1), include_bytes!("recorded/OST0001")),
    ]
}

/// Writes a recorded store to a node.
async fn restore(env: &Env, recorded: &[u8]) {
    let mut r = Reader::new(recorded);
    for file in ["identity", "data", "journal"] {
        let path = format!("{STORE_DIR}/{file}");
        let bytes = r.u64().expect("the length of a file");
        let sectors: Vec<(u64, Vec<u8>)> = std::iter::from_fn(|| sector(&mut r)).collect();
        if file == "identity" {
            let mut contents = sectors.into_iter().flat_map(|(_, sector)| sector).collect::<Vec<u8>>();
            contents.truncate(bytes as usize);
            env.write_file(&path, &contents).expect("it is written");
            continue;
        }
        let create = OpenDisk { create_bytes: Some(bytes), ..OpenDisk::default() };
        let disk = env.open_disk(&path, create).await.expect("it is made");
        for (offset, sector) in sectors {
            disk.write(offset, vec![Bytes::from(sector)]).await.expect("it is written");
        }
        disk.flush().await.expect("it is flushed");
    }
    assert!(r.is_empty());
}

/// The next recorded sector of a file, and its offset.
fn sector(r: &mut Reader<'_>) -> Option<(u64, Vec<u8>)> {
    let offset = r.u64().expect("an offset");
    (offset != u64::MAX).then(|| {
        let length = u16::from_le_bytes(r.array().expect("a length"));
        let mut sector: Vec<u8> = (0..length).map(|_| r.u8().expect("a byte")).collect();
        sector.resize(SECTOR_BYTES, 0);
        (offset, sector)
    })
}

/// A node for each recorded store, with the store.
async fn restored(sim: &Sim) -> Vec<(TargetId, NodeId)> {
    let mut nodes = Vec::new();
    for (target, bytes) in recorded() {
        let node = sim.add_node(&target.to_string());
        restore(&sim.env(node), bytes).await;
        sim.crash(node);
        nodes.push((target, node));
    }
    nodes
}

fn boot(sim: &Sim, nodes: &[(TargetId, NodeId)]) {
    for (target, node) in nodes.iter().copied() {
        sim.start(node, move |env| serve(env, target));
    }
}

async fn serve(env: Env, target: TargetId) {
    let store = Store::open(&env, STORE_DIR, &OpenOptions::default()).await.expect("it opens");
    let cluster = store.identity().cluster;
    let listener = env.listen(&address(target)).await.expect("it listens");
    let served = match target.kind {
        TargetKind::Mdt => {
            let osts = [0, 1].map(|index| (index, vec![address(TargetId::ost(index))])).into();
            let map: Rc<dyn Fn() -> ClusterMap> = Rc::new(move || map(cluster));
            let target = TargetOptions { map: Some(map), ..TargetOptions::default() };
            let options = MdsOptions { target, ..MdsOptions::new(cluster, osts) };
            Mds::start(&env, store, options).await.expect("it starts").1
        }
        TargetKind::Ost => Oss::start(&env, store, TargetOptions::default()).await.expect("it starts").1,
    };
    served.serve(listener).await;
}

fn map(cluster: Uuid) -> ClusterMap {
    let target = |id: TargetId| MapTarget { id, uuid: Uuid::default(), addresses: vec![address(id).to_string()] };
    ClusterMap { cluster, epoch: 1, targets: recorded().map(|(id, _)| target(id)).into() }
}

async fn mount(sim: &Sim, name: &str) -> Client {
    let options = MountOptions { level: CommitLevel::Data, ..MountOptions::new(vec![address(TargetId::mdt(0))]) };
    Client::mount(&sim.env(sim.add_node(name)), options).await.expect("it mounts")
}

/// What the older release wrote.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 1000) as u8).collect()
}

async fn check_contents(client: &Client, path: &str, expected: &[u8]) {
    let found = client.read_file(&caller(), path).await.expect("it reads");
    assert!(found[..] == *expected, "{path}: {} bytes, expected {}", found.len(), expected.len());
}

async fn check_names(client: &Client) {
    for number in 0..20 {
        let name = format!("file{number}");
        let found = client.lookup(&caller(), Fid::ROOT, name.as_bytes()).await;
        assert_eq!(found.is_ok(), number >= 5, "{name}: {found:?}");
    }
    let gone = client.lookup(&caller(), Fid::ROOT, b"gone").await.map_err(|error| error.errno);
    assert_eq!(gone.err(), Some(Errno::ENOENT));
}

async fn check_attributes(client: &Client) -> Fid {
    let dir = client.lookup(&caller(), Fid::ROOT, b"dir").await.expect("it is there").fid;
    let spread = client.lookup(&caller(), dir, b"spread").await.expect("it is there");
    assert_eq!((spread.mode & 0o777, spread.size), (0o640, 120_000));
    let layout = client.get_layout(spread.fid).await.expect("told").0.expect("of a file");
    assert_eq!((layout.components[0].osts.len(), layout.generation), (2, 1));
    let color = client.getxattr(&caller(), spread.fid, b"user.color").await.expect("it has one");
    assert_eq!(&color[..], b"green");
    let way = client.lookup(&caller(), dir, b"way").await.expect("it is there").fid;
    assert_eq!(&client.readlink(way).await.expect("it leads on")[..], b"spread");
    let again = client.lookup(&caller(), Fid::ROOT, b"again").await.expect("it is there");
    assert_eq!((again.nlink, again.mode & 0o777), (2, 0o600));
    spread.fid
}

/// All servers stop; fsck reads the stores and finds nothing.
async fn check_stores(sim: &Sim, nodes: &[(TargetId, NodeId)]) {
    let mut reports = Vec::new();
    for (target, node) in nodes {
        sim.crash(*node);
        let options = CheckOptions { verify_data: true, ..CheckOptions::default() };
        let report = forebay_fsck::check(&sim.env(*node), STORE_DIR, options).await;
        reports.push(report.unwrap_or_else(|error| panic!("{target}: {error}")));
    }
    reports.push(forebay_fsck::check_cluster(&reports, forebay_fsck::ClusterOptions { quiet: Quiet::No }));
    for report in reports {
        assert!(report.is_clean(), "{}", report.to_text(forebay_fsck::Severity::Warning));
    }
}

/// older release: write, unlink, truncate, open |power, release| read, write |power| read |stop| fsck
#[test]
fn a_cluster_of_an_older_release_opens_and_goes_on() {
    let sim = Sim::new(1);
    sim.block_on(async {
        let nodes = restored(&sim).await;
        boot(&sim, &nodes);
        let client = mount(&sim, "first").await;
        let mut expected = pattern(120_000);
        check_contents(&client, "/dir/spread", &expected).await;
        check_contents(&client, "/dir/small", b"a few bytes").await;
        check_contents(&client, "/again", b"a few bytes").await;
        check_contents(&client, "/open", &pattern(5000)).await;
        check_contents(&client, "/cut", &pattern(20_000)).await;
        check_names(&client).await;
        let spread = check_attributes(&client).await;
        let file = client.open(&caller(), spread, OpenMode::READ_WRITE).await.expect("it opens");
        client.write(&file, 100_000, vec![255; 1000]).await.expect("it writes");
        expected[100_000..101_000].fill(255);
        let made = create(&client, b"made", LayoutSpec::inherit()).await;
        client.write(&made, 0, pattern(100_000)).await.expect("it writes");
        for file in [file, made] {
            client.fsync(&file, false).await.expect("synced");
            client.close(file).await.expect("closed");
        }
        client.unlink(&caller(), Fid::ROOT, b"again").await.expect("gone");
        client.unmount().await.expect("it ends");
        for (_, node) in &nodes {
            sim.power_cut(*node);
        }
        boot(&sim, &nodes);
        let client = mount(&sim, "second").await;
        check_contents(&client, "/dir/spread", &expected).await;
        check_contents(&client, "/dir/small", b"a few bytes").await;
        check_contents(&client, "/made", &pattern(100_000)).await;
        client.unmount().await.expect("it ends");
        sim.sleep(RECOVERED).await;
        check_stores(&sim, &nodes).await;
    });
}

#[test]
fn fsck_finds_nothing_in_the_stores_of_an_older_release() {
    let sim = Sim::new(2);
    sim.block_on(async { check_stores(&sim, &restored(&sim).await).await });
}

/// The older client says which versions met, and what to do: "install the same release on both".
#[test]
fn a_client_of_an_older_release_gets_a_frame_that_says_which_version_the_server_has() {
    let sim = Sim::new(3);
    sim.block_on(async {
        let nodes = restored(&sim).await;
        boot(&sim, &nodes);
        sim.sleep(RECOVERED).await;
        assert_eq!(CONNECT[..6], *b"FBF1\x01\0");
        let stream = sim.env(sim.add_node("client")).connect(&address(TargetId::ost(0))).await.expect("it is reached");
        let (mut read, mut write) = stream.split();
        write.write_all(&[Bytes::from_static(CONNECT)]).await.expect("it is sent");
        let mut header = [0; 128];
        read.read_exact(&mut header).await.expect("it answers");
        // All that the older client relies on.
        assert_eq!(header[..6], [&b"FBF1"[..], &PROTOCOL_VERSION.to_le_bytes()].concat()[..]);
        assert_eq!(header[120..], crc::crc64(&header[..120]).to_le_bytes());
        let error = FrameHeader::from_bytes(&header).expect("it can be read");
        assert_eq!(error.kind, FrameKind::Error);
        let mut body = vec![0; error.body_bytes as usize];
        read.read_exact(&mut body).await.expect("it says why");
        assert!(read.read_exact(&mut [0]).await.is_err(), "it closes the connection");
    });
}

/// A session of a client with a server that answers its Connect with these bytes.
async fn answered(sim: &Sim, answer: Vec<Bytes>) -> (ClientSession, Result<(), RpcError>) {
    let here = address(TargetId::ost(0));
    let env = sim.env(sim.add_node("server"));
    let mut listener = env.listen(&here).await.expect("it listens");
    let options = SessionOptions {
        cluster: Uuid::default(),
        target: TargetId::ost(0),
        resolve: Rc::new(vec![here]),
        client: Uuid([0x5a; 16]),
        description: "client".into(),
        pins: PinBudget::new(1 << 20),
    };
    let session = ClientSession::start(&sim.env(sim.add_node("client")), options);
    let accepted = listener.accept().await.expect("it connects");
    let (stream, _) = accepted.handshake(&env).await.expect("it is a plain stream");
    let (read, mut write) = stream.split();
    let mut reader = FrameReader::new(read);
    let header = reader.header().await.expect("it sends a Connect");
    reader.content(header).await.expect("it sends a Connect");
    write.write_all(&answer).await.expect("it is sent");
    let ready = session.ready().await;
    (session, ready)
}

#[test]
fn a_client_at_a_server_of_an_older_release_ends_and_says_which_versions_met() {
    let sim = Sim::new(4);
    sim.block_on(async {
        let (_, ready) = answered(&sim, vec![Bytes::from_static(REFUSAL)]).await;
        let words = ready.expect_err("it is refused").to_string();
        let both = format!("version 1 of the protocol, this side version {PROTOCOL_VERSION}; install the same release");
        assert!(words.contains(&both), "{words}");
    });
}

/// The first release of this version of the protocol knew no features.
#[test]
fn a_server_without_a_feature_is_understood_and_its_session_does_not_have_it() {
    for known in [0, features::ACCESS_TIMES, features::ALL] {
        let sim = Sim::new(5);
        sim.block_on(async {
            let reply = ConnectReply {
                session: SessionId(7),
                incarnation: Incarnation(1),
                cluster: Uuid([1; 16]),
                target_uuid: Uuid([2; 16]),
                features: known,
                slots: 4,
                recovering: false,
                window_ms: 0,
                last_committed: Transno(0),
            };
            let header = FrameHeader::new(FrameKind::Reply, Op::Connect as u16);
            let Frame { header, body, .. } = Frame::new(header, reply.to_bytes().into(), Vec::new());
            let (session, ready) = answered(&sim, vec![header.to_bytes().to_vec().into(), body]).await;
            ready.expect("it is up");
            for bit in [features::ACCESS_TIMES, features::LAYOUT_FENCES] {
                assert_eq!(session.has_feature(bit), known & bit != 0, "{known:#x}");
            }
        });
    }
}

/// A store that a newer release has written to.
#[test]
fn a_store_with_an_unknown_feature_is_read_or_left_alone_as_its_bits_say() {
    let sim = Sim::new(6);
    sim.block_on(async {
        let (target, node) = restored(&sim).await[1];
        let env = sim.env(node);
        let path = format!("{STORE_DIR}/identity");
        let of_then = env.read_file(&path).expect("it is there");
        // Compatible, read-only-compatible, incompatible.
        for (at, opens, checks) in [(16, true, true), (24, false, true), (32, false, false)] {
            let mut newer = of_then.clone();
            newer[at + 7] = 0x80;
            let sum = crc::crc64(&newer[..504]);
            newer[504..].copy_from_slice(&sum.to_le_bytes());
            env.write_file(&path, &newer).expect("it is written");
            match Store::open(&env, STORE_DIR, &OpenOptions::default()).await {
                Ok(store) => {
                    assert!(opens, "{at}");
                    store.close().await.expect("closed");
                }
                Err(error) => {
                    assert!(!opens && error.kind == StoreErrorKind::Unsupported, "{at}: {error}");
                    let words = [target.to_string(), "0x8000000000000000".into()];
                    assert!(words.iter().all(|word| error.message.contains(word)), "{error}");
                }
            }
            match forebay_fsck::check(&env, STORE_DIR, CheckOptions::default()).await {
                Ok(report) => assert!(checks && report.is_clean(), "{at}"),
                Err(error) => assert!(!checks && error.kind == FsckErrorKind::Unsupported, "{at}: {error}"),
            }
            match forebay_fsck::repair(&env, STORE_DIR, RepairOptions::default()).await {
                Ok(_) => assert!(opens, "{at}"),
                Err(error) => assert!(!opens && error.kind == FsckErrorKind::Unsupported, "{at}: {error}"),
            }
            assert_eq!(env.read_file(&path).expect("it is there"), newer);
        }
    });
}
