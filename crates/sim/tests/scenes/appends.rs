//! Appends and truncates of several clients: a record lies at the end, never behind a hole that nobody left.

use std::{cell::Cell, rc::Rc, time::Duration};

use forebay_client::{Caller, Client, CommitLevel, LayoutSpec, OpenFile, OpenMode, SetAttributes};
use forebay_env::sim::Sim;
use forebay_proto::Fid;
use forebay_sim::{Cluster, ClusterOptions};

const RECORD_BYTES: usize = 3000;

fn caller() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new() }
}

async fn open(client: &Client) -> OpenFile {
    let layout = LayoutSpec { stripe_count: 1, stripe_bytes: 64 << 10, ..LayoutSpec::inherit() };
    let opened = client.create(&caller(), Fid::ROOT, b"log", 0o644, OpenMode::READ_WRITE, layout).await;
    opened.expect("the file opens").1
}

/// append, truncate to nothing between its reservation and its write | at the beginning, not where the end was
#[test]
fn an_append_that_a_truncate_overtakes_lies_at_the_new_end() {
    for seed in 0..40 {
        let sim = Sim::new(seed);
        let cluster = Rc::new(sim.block_on(Cluster::format(&sim, ClusterOptions::default())));
        cluster.boot_all();
        let done = Rc::new(Cell::new(0));
        for number in 0..3u64 {
            let node = sim.add_node(&format!("client{number}"));
            let (cluster, done) = (cluster.clone(), done.clone());
            sim.start(node, move |env| async move {
                let client = cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
                let file = open(&client).await;
                for _ in 0..40 {
                    env.sleep(Duration::from_micros(env.random_u64() % 800)).await;
                    if number == 0 {
                        let nothing = SetAttributes { size: Some(0), ..SetAttributes::default() };
                        client.setattr(&caller(), file.fid(), nothing, None).await.expect("it cuts");
                    } else {
                        client.append(&file, vec![number as u8; RECORD_BYTES]).await.expect("it appends");
                    }
                }
                done.set(done.get() + 1);
            });
        }
        while done.get() < 3 {
            sim.run_for(Duration::from_millis(10));
        }
        let node = sim.add_node("auditor");
        sim.block_on(async {
            let client = cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
            let bytes = client.read(&open(&client).await, 0, 1 << 20).await.expect("it reads");
            for (number, record) in bytes.chunks(RECORD_BYTES).enumerate() {
                let is_whole = record.len() == RECORD_BYTES && record.iter().all(|byte| *byte == record[0]);
                assert!(is_whole && record[0] != 0, "seed {seed}: record {number} is {:?}", &record[..8]);
            }
        });
    }
}
