//! Modelled devices: merging of waiting requests, the cost of shared heads, caches and ports.

use std::time::Duration;

use bytes::Bytes;

use crate::{
    Disk, Env, OpenDisk,
    sim::{
        BulkJournal, ControllerCache, Heads, JournalShape, Medium, NodeId, Placement, Port, QueueOrder, Sim, Solid,
        Tier, TierModel,
    },
};

const MIB: u64 = 1 << 20;

fn ms(value: f64) -> Duration {
    Duration::from_secs_f64(value / 1e3)
}

/// 10 ms for a MiB, 10 ms for a revolution, seeks of 5 ms, 1 ms between writes.
fn heads() -> TierModel {
    let heads = Heads {
        bytes_per_s: 100 * MIB,
        seek_track: ms(5.0),
        seek_average: ms(5.0),
        seek_full: ms(5.0),
        revolution: ms(10.0),
        write_turnaround: ms(1.0),
        write_settle: ms(1.0),
        stripe_bytes: MIB,
    };
    TierModel {
        bytes: 1 << 40,
        medium: Medium::Heads(heads),
        depth: 2,
        command_bytes: MIB,
        order: QueueOrder::Arrival,
        cache: None,
        flush: Duration::ZERO,
    }
}

fn disk_on(sim: &Sim, node: NodeId, path: &str, placement: &Placement) -> (Env, Disk) {
    sim.place_disk(node, path, placement);
    let env = sim.env(node);
    let options = OpenDisk { create_bytes: Some(1 << 30), ..OpenDisk::default() };
    let disk = sim.block_on(env.open_disk(path, options)).expect("a disk");
    (env, disk)
}

fn on(tier: &Tier, base: u64) -> Placement {
    Placement { tier: tier.clone(), port: None, base, shape: None, bulk_journal: None }
}

fn zeros(bytes: u64) -> Vec<Bytes> {
    vec![Bytes::from(vec![0; bytes as usize])]
}

/// Writes pieces concurrently; returns how long all of them take.
fn at_once(sim: &Sim, disk: &Disk, pieces: &[(u64, u64)]) -> Duration {
    let begin = sim.now();
    let writes: Vec<_> = pieces.iter().map(|(at, bytes)| disk.write(*at, zeros(*bytes))).collect();
    sim.block_on(async {
        for write in writes {
            write.await.expect("written");
        }
    });
    sim.now().since(begin)
}

#[test]
fn waiting_writes_that_follow_each_other_become_whole_stripes() {
    let sim = Sim::new(1);
    let (node, tier) = (sim.add_node("a"), Tier::new(&sim, heads(), 0));
    let (_, disk) = disk_on(&sim, node, "d", &on(&tier, 0));
    // Two whole stripes are in progress; the halves of the third meet in the queue.
    let half = MIB / 2;
    let took = at_once(&sim, &disk, &[(0, MIB), (MIB, MIB), (2 * MIB, half), (2 * MIB + half, half)]);
    let stats = tier.stats();
    assert_eq!((stats.commands, stats.partial_commands), (3, 0));
    assert!(took < ms(55.0), "{took:?}");
    // Alone, a half reads the rest back, and waits a revolution.
    at_once(&sim, &disk, &[(3 * MIB, half)]);
    assert_eq!(tier.stats().since(&stats).read_modify_write, ms(10.0));
}

#[test]
fn disks_of_one_tier_move_the_same_heads() {
    let sim = Sim::new(2);
    let (node, tier) = (sim.add_node("a"), Tier::new(&sim, heads(), 0));
    let (_, data) = disk_on(&sim, node, "data", &on(&tier, 1 << 39));
    let (_, journal) = disk_on(&sim, node, "journal", &on(&tier, 0));
    for number in 0..4 {
        at_once(&sim, &data, &[(number * MIB, MIB)]);
        at_once(&sim, &journal, &[(number * MIB, MIB)]);
    }
    assert_eq!(tier.stats().seek, ms(5.0) * 8);
    let alone = Tier::new(&sim, heads(), 1);
    let (_, other) = disk_on(&sim, node, "other", &on(&alone, 0));
    for number in 0..4 {
        at_once(&sim, &other, &[(number * MIB, MIB)]);
    }
    assert_eq!(alone.stats().seek, Duration::ZERO, "it stood there, and follows itself");
}

#[test]
fn a_port_is_shared_and_a_shape_makes_two_writes_of_a_durable_one() {
    let sim = Sim::new(3);
    let node = sim.add_node("a");
    let port = Port::new(100 * MIB, ms(0.5));
    let solid = Solid {
        read_bytes_per_s: 1 << 40,
        write_bytes_per_s: 1 << 40,
        request: Duration::from_nanos(1),
        latency_read: ms(0.1),
        latency_write: ms(0.1),
    };
    let model = TierModel { medium: Medium::Solid(solid), ..heads() };
    let disks: Vec<Disk> = (0..2)
        .map(|n| {
            let tier = Tier::new(&sim, model.clone(), n);
            let placement = Placement { port: Some(port.clone()), ..on(&tier, 0) };
            disk_on(&sim, node, &format!("d{n}"), &placement).1
        })
        .collect();
    let begin = sim.now();
    let writes: Vec<_> = disks.iter().map(|disk| disk.write(0, zeros(MIB))).collect();
    sim.block_on(async {
        for write in writes {
            write.await.expect("written");
        }
    });
    let took = sim.now().since(begin);
    assert!(took > ms(21.0) && took < ms(21.3), "two MiB through one port, there, and back: {took:?}");

    let tier = Tier::new(&sim, model, 9);
    let shape = JournalShape { least_bytes: 16 << 10, record_bytes: 4 << 10 };
    let (_, journal) = disk_on(&sim, node, "j", &Placement { shape: Some(shape), ..on(&tier, 0) });
    sim.block_on(journal.write_durable(0, zeros(4096))).expect("durable");
    assert_eq!((tier.stats().commands, tier.stats().bytes), (2, 20 << 10));
}

#[test]
fn a_journal_of_data_writes_everything_twice() {
    let sim = Sim::new(5);
    let (node, tier) = (sim.add_node("a"), Tier::new(&sim, heads(), 0));
    let bulk_journal = Some(BulkJournal::new(1 << 38, 3 * MIB));
    let (_, disk) = disk_on(&sim, node, "d", &Placement { bulk_journal, ..on(&tier, 0) });
    at_once(&sim, &disk, &[(0, MIB), (MIB, MIB)]);
    assert_eq!(tier.stats().bytes, 4 * MIB);
}

#[test]
fn a_cache_completes_writes_before_the_heads_do_until_it_is_full() {
    let sim = Sim::new(4);
    let cache = Some(ControllerCache { bytes: 2 * MIB, latency: ms(0.1) });
    let model = TierModel { cache, order: QueueOrder::Elevator, ..heads() };
    let (node, tier) = (sim.add_node("a"), Tier::new(&sim, model, 0));
    let (_, disk) = disk_on(&sim, node, "d", &on(&tier, 0));
    assert!(at_once(&sim, &disk, &[(0, MIB), (MIB, MIB)]) < ms(0.2));
    assert!(at_once(&sim, &disk, &[(2 * MIB, MIB)]) > ms(9.0), "it waits for room");
}

#[test]
fn two_runs_of_a_seed_give_the_same_device_times() {
    let run = |seed| {
        let sim = Sim::new(seed);
        let (node, tier) = (sim.add_node("a"), Tier::new(&sim, heads(), 0));
        let (_, disk) = disk_on(&sim, node, "d", &on(&tier, 0));
        for number in 0..20 {
            at_once(&sim, &disk, &[(number * 37 % 20 * MIB, MIB)]);
        }
        (sim.now(), sim.trace_hash())
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
