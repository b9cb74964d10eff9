//! Where a file has data and where it has holes, compared with a table of bytes; over several stripes, through restarts
//! of OSTs.

use std::time::Duration;

use forebay_client::{Allocate, Client, CommitLevel, LayoutSpec, OpenFile, OpenMode, SetAttributes};
use forebay_env::sim::Sim;
use forebay_proto::{Errno, FOR_EVER, Fid, limits::HOLE_BYTES, message::ComponentSpec};
use forebay_sim::{Cluster, ClusterOptions};

use crate::scene::{caller, striped};

const FILE_BYTES: usize = 700_000;

/// Compares the results of lseek with the table. A block with at least one written byte is data.
async fn compare(client: &Client, file: &OpenFile, table: &[bool], offset: usize, seed: u64) {
    let blocks: Vec<bool> = table.chunks(HOLE_BYTES as usize).map(|block| block.contains(&true)).collect();
    let is_there = |at: &usize| blocks[*at / HOLE_BYTES as usize];
    let next = |there: bool| (offset..table.len()).find(|at| is_there(at) == there).map(|at| at as u64);
    let beyond = offset >= table.len();
    let data = client.seek_data(file, offset as u64).await.map_err(|error| error.errno);
    assert_eq!(data, next(true).ok_or(Errno::ENXIO), "seed {seed}: data from {offset} of {}", table.len());
    let hole = client.seek_hole(file, offset as u64).await.map_err(|error| error.errno);
    let expected = if beyond { Err(Errno::ENXIO) } else { Ok(next(false).unwrap_or(table.len() as u64)) };
    assert_eq!(hole, expected, "seed {seed}: hole from {offset} of {}", table.len());
}

async fn used(client: &Client, fid: Fid) -> u64 {
    let attr = client.getattr(fid, None).await.expect("it is there");
    client.used_bytes(&attr).await.expect("the OSTs tell")
}

/// A client writes, punches and truncates a file at random while OSTs crash and restart. lseek and the used bytes match
/// a table of what it did. Another client sees the same number of used bytes.
#[test]
fn seek_and_used_bytes_are_what_was_written_and_not_punched_or_cut() {
    for seed in 0..20 {
        let sim = Sim::new(seed);
        let cluster = sim.block_on(Cluster::format(&sim, ClusterOptions::default()));
        cluster.boot_all();
        let node = sim.add_node("client");
        sim.block_on(async {
            let client = cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
            let stripes = 1 + (seed % 3) as u32;
            let plain = striped(stripes);
            let part = |end, stripe_count| ComponentSpec {
                end,
                stripe_count,
                stripe_bytes: 64 << 10,
                stripe_index: u32::MAX,
                pool: String::new(),
            };
            let components = vec![part(192 << 10, 1), part(448 << 10, 2), part(FOR_EVER, stripes)];
            let layout = if seed % 2 == 0 { plain } else { LayoutSpec { components, ..LayoutSpec::inherit() } };
            let made = client.create(&caller(), Fid::ROOT, b"f", 0o644, OpenMode::READ_WRITE, layout).await;
            let (attr, file) = made.expect("it is made");
            let mut table: Vec<bool> = Vec::new();
            for step in 0..40 {
                let offset = sim.random_below(FILE_BYTES as u64) as usize;
                let length = 1 + sim.random_below([100, 70_000, 200_000][sim.random_below(3) as usize]) as usize;
                let end = offset + length;
                match sim.random_below(6) {
                    0..=2 => {
                        client.write(&file, offset as u64, vec![1; length]).await.expect("it writes");
                        table.resize(table.len().max(end), false);
                        table[offset..end].fill(true);
                    }
                    3 => {
                        let punched = client.fallocate(&file, offset as u64, length as u64, Allocate::Punch).await;
                        punched.expect("it punches");
                        let cut = |at: usize| at.min(table.len());
                        let range = cut(offset)..cut(end);
                        table[range].fill(false);
                    }
                    4 => {
                        let size = SetAttributes { size: Some(offset as u64), ..Default::default() };
                        client.setattr(&caller(), attr.fid, size, Some(&file)).await.expect("it cuts");
                        table.resize(offset, false);
                    }
                    _ => {
                        let ost = 1 + (step % 3) as usize;
                        sim.crash(cluster.servers[ost].node);
                        cluster.boot_all();
                    }
                }
                compare(&client, &file, &table, sim.random_below(FILE_BYTES as u64) as usize, seed).await;
            }
            compare(&client, &file, &table, 0, seed).await;
            let expected = table.iter().filter(|there| **there).count() as u64;
            assert_eq!(used(&client, attr.fid).await, expected, "seed {seed}");
            client.close(file).await.expect("it closes");
            // The other client learns of it from the MDT.
            let other = cluster.mount(sim.add_node("other"), CommitLevel::Data).await.expect("it mounts");
            assert_eq!(used(&other, attr.fid).await, expected, "seed {seed}, another client");
        });
        sim.run_for(Duration::from_millis(1));
    }
}

/// allocate, write, punch, truncate |X| (OSTs)
///
/// A client writes, reserves, zeroes, punches and truncates a file at random while OSTs crash and restart. Reserved
/// bytes count as used once, together with written ones, until they are punched or truncated.
#[test]
fn room_that_is_set_aside_counts_once_with_what_is_written_until_it_is_punched_or_cut() {
    for seed in 0..20 {
        let sim = Sim::new(seed);
        let cluster = sim.block_on(Cluster::format(&sim, ClusterOptions::default()));
        cluster.boot_all();
        let node = sim.add_node("client");
        sim.block_on(async {
            let client = cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
            let stripes = 1 + (seed % 3) as u32;
            let layout = striped(stripes);
            let made = client.create(&caller(), Fid::ROOT, b"f", 0o644, OpenMode::READ_WRITE, layout).await;
            let (attr, file) = made.expect("it is made");
            // Bytes that are written or reserved, also beyond the end of the file.
            let (mut taken, mut size) = (vec![false; 2 * FILE_BYTES], 0);
            for step in 0..40 {
                let offset = sim.random_below(FILE_BYTES as u64) as usize;
                let length = 1 + sim.random_below([100, 70_000, 200_000][sim.random_below(3) as usize]) as usize;
                let end = offset + length;
                let how = match sim.random_below(8) {
                    0 | 1 => {
                        client.write(&file, offset as u64, vec![1; length]).await.expect("it writes");
                        size = size.max(end);
                        taken[offset..end].fill(true);
                        None
                    }
                    2 => Some((Allocate::Punch, false)),
                    3 => Some((Allocate::Zero { keep_size: true }, true)),
                    4 => Some((Allocate::Reserve { keep_size: true }, true)),
                    5 => {
                        size = size.max(end);
                        Some((Allocate::Reserve { keep_size: false }, true))
                    }
                    6 => {
                        let cut = SetAttributes { size: Some(offset as u64), ..Default::default() };
                        client.setattr(&caller(), attr.fid, cut, Some(&file)).await.expect("it cuts");
                        size = offset;
                        taken[offset..].fill(false);
                        None
                    }
                    _ => {
                        sim.crash(cluster.servers[1 + (step % 3) as usize].node);
                        cluster.boot_all();
                        None
                    }
                };
                if let Some((how, takes)) = how {
                    client.fallocate(&file, offset as u64, length as u64, how).await.expect("it allocates");
                    taken[offset..end].fill(takes);
                }
                let expected = taken.iter().filter(|taken| **taken).count() as u64;
                assert_eq!(used(&client, attr.fid).await, expected, "seed {seed}, step {step}");
                let told = client.getattr(attr.fid, Some(&file)).await.expect("it is there");
                assert_eq!(told.size, size as u64, "seed {seed}, step {step}");
            }
            client.close(file).await.expect("it closes");
        });
        sim.run_for(Duration::from_millis(1));
    }
}

/// A client writes single bytes that are far apart, up to the largest offset. It punches, truncates and removes such
/// files: all of it takes less than 30 s, as the OSTs step over the bytes that are there and not over the offsets.
#[test]
fn sparse_files_are_punched_truncated_and_removed_in_steps_over_written_bytes_only() {
    let sim = Sim::new(1);
    let cluster = sim.block_on(Cluster::format(&sim, ClusterOptions::default()));
    cluster.boot_all();
    let node = sim.add_node("client");
    sim.block_on(async {
        let client = cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
        let far = forebay_proto::limits::FILE_BYTES - 1;
        let layout = striped(2);
        let env = sim.env(node);
        let begun = env.now();
        for round in 0..3 {
            let made = client.create(&caller(), Fid::ROOT, b"f", 0o644, OpenMode::READ_WRITE, layout.clone()).await;
            let (attr, file) = made.expect("it is made");
            for at in [0, 1 << 40, far] {
                client.write(&file, at, vec![7u8]).await.expect("it writes");
            }
            match round {
                0 => {
                    client.fallocate(&file, 0, far + 1, Allocate::Punch).await.expect("it punches");
                    assert_eq!(used(&client, attr.fid).await, 0);
                    assert_eq!(client.seek_data(&file, 0).await.map_err(|error| error.errno), Err(Errno::ENXIO));
                }
                1 => {
                    let cut = SetAttributes { size: Some(2), ..SetAttributes::default() };
                    client.setattr(&caller(), attr.fid, cut, Some(&file)).await.expect("it cuts");
                    assert_eq!(client.read(&file, 0, 10).await.expect("it reads")[..], [7, 0]);
                }
                _ => {}
            }
            client.close(file).await.expect("closed");
            client.unlink(&caller(), Fid::ROOT, b"f").await.expect("gone");
        }
        client.sync_all().await.expect("synced");
        assert!(env.now().since(begun) < Duration::from_secs(30), "it took steps of nothing");
    });
}

/// A client writes 20,000 bytes that are 1 MiB apart, then punches all but the first. One request cannot remove that
/// many extents, so the client sends several.
#[test]
fn a_hole_with_more_in_it_than_one_step_takes_is_made_in_several() {
    let sim = Sim::new(2);
    let cluster = sim.block_on(Cluster::format(&sim, ClusterOptions::default()));
    cluster.boot_all();
    let node = sim.add_node("client");
    sim.block_on(async {
        let client = cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
        let made = client.create(&caller(), Fid::ROOT, b"f", 0o644, OpenMode::READ_WRITE, LayoutSpec::inherit()).await;
        let (attr, file) = made.expect("it is made");
        for number in 0..20_000u64 {
            client.write(&file, number << 20, vec![1u8]).await.expect("it writes");
            if number % 500 == 0 {
                client.fsync(&file, false).await.expect("synced");
            }
        }
        client.fallocate(&file, 1, 1 << 50, Allocate::Punch).await.expect("it punches");
        assert_eq!(used(&client, attr.fid).await, 1);
        assert_eq!(client.read(&file, 0, 1).await.expect("it reads")[..], [1]);
    });
}
