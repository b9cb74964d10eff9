//! Recorded the other files of this directory. It is no part of the build: it is for commit 0dccf35, where it stood in
//! `crates/sim/examples`, and `cargo run -p forebay-sim --example record -- DIRECTORY` ran it. `../older_release.rs` says
//! what the files have.
#![allow(clippy::disallowed_methods, missing_docs)]

use std::time::Duration;

use forebay_client::{Caller, Client, CommitLevel, LayoutSpec, OpenFile, OpenMode, SetAttributes};
use forebay_env::{Address, Env, OpenDisk, ReadHalf, sim::Sim};
use forebay_proto::{Fid, TargetId, Uuid, crc};
use forebay_rpc::{ClientSession, PinBudget, SessionOptions};
use forebay_sim::{Cluster, ClusterOptions};

/// Of a frame: its header, and where that has the length of the body.
const HEADER: usize = 128;
const BODY_BYTES: std::ops::Range<usize> = 92..96;

fn caller() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new() }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 1000) as u8).collect()
}

fn main() {
    let directory = std::env::args().nth(1).unwrap();
    let save = |name: &str, bytes: &[u8]| std::fs::write(format!("{directory}/{name}"), bytes).unwrap();
    let sim = Sim::new(7);
    sim.block_on(async {
        let options = ClusterOptions {
            osts: 2,
            ost_bytes: 8 << 20,
            mdt_bytes: 8 << 20,
            slab_bytes: 256 << 10,
            mdt_slab_bytes: 256 << 10,
            journal_bytes: 512 << 10,
            ..ClusterOptions::default()
        };
        let cluster = Cluster::format(&sim, options).await;
        cluster.boot_all();
        let node = sim.add_node("client");
        let client = cluster.mount(node, CommitLevel::Data).await.unwrap();
        fill(&client).await;
        // A checkpoint, and more after it.
        sim.sleep(Duration::from_secs(20)).await;
        let open = change(&client).await;
        let mut connect = connect(&sim).await;
        save("connect", &connect);
        // The same in version 2 of the protocol, and what this release answers.
        connect[4] = 2;
        let sum = crc::crc64(&connect[..HEADER - 8]);
        connect[HEADER - 8..HEADER].copy_from_slice(&sum.to_le_bytes());
        let stream = sim.env(node).connect(&cluster.servers[1].address).await.unwrap();
        let (mut read, mut write) = stream.split();
        write.write_all(&[connect.into()]).await.unwrap();
        save("refusal", &frame(&mut read).await);
        for server in &cluster.servers {
            sim.power_cut(server.node);
        }
        for server in &cluster.servers {
            save(&server.target.to_string(), &contents(&sim.env(server.node)).await);
        }
        drop(open);
    });
}

async fn create(client: &Client, parent: Fid, name: &str, mode: u32, layout: LayoutSpec, bytes: &[u8]) -> OpenFile {
    let made = client.create(&caller(), parent, name.as_bytes(), mode, OpenMode::READ_WRITE, layout).await;
    let file = made.unwrap().1;
    let mut at = 0;
    while at < bytes.len() {
        at += client.write(&file, at as u64, bytes[at..].to_vec()).await.unwrap();
    }
    file
}

async fn fill(client: &Client) {
    let plain = LayoutSpec::inherit;
    let dir = client.mkdir(&caller(), Fid::ROOT, b"dir", 0o755).await.unwrap().fid;
    let both = LayoutSpec { stripe_count: 2, stripe_bytes: 64 << 10, ..plain() };
    let spread = create(client, dir, "spread", 0o640, both, &pattern(120_000)).await;
    client.setxattr(&caller(), spread.fid(), b"user.color", b"green", 0).await.unwrap();
    client.fsync(&spread, false).await.unwrap();
    client.close(spread).await.unwrap();
    let small = create(client, dir, "small", 0o600, plain(), b"a few bytes").await;
    client.link(&caller(), small.fid(), Fid::ROOT, b"again").await.unwrap();
    client.close(small).await.unwrap();
    client.symlink(&caller(), dir, b"way", b"spread").await.unwrap();
    for number in 0..20 {
        let file = create(client, Fid::ROOT, &format!("file{number}"), 0o644, plain(), b"").await;
        client.close(file).await.unwrap();
    }
    client.sync_all().await.unwrap();
}

/// Files that stay open until the power is cut. One has no name any more.
async fn change(client: &Client) -> [OpenFile; 2] {
    for number in 0..5 {
        client.unlink(&caller(), Fid::ROOT, format!("file{number}").as_bytes()).await.unwrap();
    }
    let cut = create(client, Fid::ROOT, "cut", 0o644, LayoutSpec::inherit(), &pattern(40_000)).await;
    let half = SetAttributes { size: Some(20_000), ..SetAttributes::default() };
    client.setattr(&caller(), cut.fid(), half, None).await.unwrap();
    client.close(cut).await.unwrap();
    let open = create(client, Fid::ROOT, "open", 0o644, LayoutSpec::inherit(), &pattern(5000)).await;
    let gone = create(client, Fid::ROOT, "gone", 0o644, LayoutSpec::inherit(), &pattern(20_000)).await;
    client.unlink(&caller(), Fid::ROOT, b"gone").await.unwrap();
    for file in [&open, &gone] {
        client.fsync(file, false).await.unwrap();
    }
    client.sync_all().await.unwrap();
    [open, gone]
}

/// The Connect of a client, as a server receives it.
async fn connect(sim: &Sim) -> Vec<u8> {
    let tap = Address::Mem("tap".into());
    let mut listener = sim.env(sim.add_node("tap")).listen(&tap).await.unwrap();
    let options = SessionOptions {
        cluster: Uuid::default(),
        target: TargetId::ost(0),
        addresses: vec![tap],
        client: Uuid([0x5a; 16]),
        description: "client of 0dccf35".into(),
        pins: PinBudget::new(1 << 20),
    };
    let _session = ClientSession::start(&sim.env(sim.add_node("tapped")), options);
    let (mut read, _write) = listener.accept().await.unwrap().0.split();
    frame(&mut read).await
}

async fn frame(read: &mut ReadHalf) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    read.read_exact(&mut bytes).await.unwrap();
    let body = u32::from_le_bytes(bytes[BODY_BYTES].try_into().unwrap()) as usize;
    bytes.resize(HEADER + body, 0);
    read.read_exact(&mut bytes[HEADER..]).await.unwrap();
    bytes
}

/// The files of a store. Sectors of zeros, and zeros at the end of a sector, are left out.
async fn contents(env: &Env) -> Vec<u8> {
    let mut out = Vec::new();
    for file in ["identity", "data", "journal"] {
        let bytes = match file {
            "identity" => env.read_file("/store/identity").unwrap(),
            _ => {
                let open = OpenDisk { read_only: true, ..OpenDisk::default() };
                let disk = env.open_disk(&format!("/store/{file}"), open).await.unwrap();
                disk.read(0, disk.info().bytes as usize).await.unwrap().to_vec()
            }
        };
        out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        for (number, sector) in bytes.chunks(4096).enumerate() {
            let at = number as u64 * 4096;
            let Some(last) = sector.iter().rposition(|byte| *byte != 0) else { continue };
            out.extend_from_slice(&at.to_le_bytes());
            out.extend_from_slice(&(last as u16 + 1).to_le_bytes());
            out.extend_from_slice(&sector[..=last]);
        }
        out.extend_from_slice(&u64::MAX.to_le_bytes());
    }
    out
}
