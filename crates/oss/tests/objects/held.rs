//! Commit level `memory`: a write is replied to when the target holds it. Only the clock shows the difference.

use forebay_env::sim::{DiskModel, Fault};
use forebay_proto::message::Sync;

use super::*;

/// How long the device takes for a write.
const SLOW: Duration = Duration::from_millis(200);

/// A target on a slow device, with an object.
async fn slow_world(world: &World) {
    world.write(0, 0, &pattern(7, 1000)).await.expect("it is written");
    let model = DiskModel { latency_write: SLOW, ..DiskModel::default() };
    world.sim.set_disk_model(world.server, "/ost/data", model);
}

/// Writes, and checks that the reply did not wait for the device.
async fn hold(world: &World, offset: u64, bytes: &[u8]) {
    let begun = world.sim.now();
    world.write_at(CommitLevel::Memory, 0, offset, bytes).await.expect("it is answered");
    assert!(world.sim.now().since(begun) < SLOW / 4, "it waited for the device");
}

#[test]
fn a_write_is_answered_before_the_device_has_it_and_shown_when_it_has() {
    let world = World::new(40);
    world.run(async {
        slow_world(&world).await;
        let begun = world.sim.now();
        hold(&world, 0, &pattern(1, 100_000)).await;
        hold(&world, 50_000, &pattern(2, 100_000)).await;
        assert_eq!(world.glimpse(0).await.unwrap().file_bytes, 150_000);
        assert!(world.sim.now().since(begun) >= SLOW, "what a glimpse shows was applied");
        hold(&world, 100_000, &pattern(3, 10)).await;
        let bytes = world.read(0, 0, 150_000).await.unwrap();
        assert_eq!(&bytes[..50_000], &pattern(1, 100_000)[..50_000]);
        assert_eq!(&bytes[50_000..100_000], &pattern(2, 100_000)[..50_000]);
        assert_eq!(&bytes[100_000..100_010], &pattern(3, 10)[..]);
        assert_eq!(&bytes[100_010..], &pattern(2, 100_000)[50_010..]);
        let begun = world.sim.now();
        world.write(0, 0, b"data").await.expect("it is written");
        assert!(world.sim.now().since(begun) >= SLOW, "at level data it is the device that is waited for");
    });
}

/// write | sync |XX|
#[test]
fn a_sync_counts_what_was_answered_and_is_not_applied() {
    for fid in [Some(FID), None] {
        let world = World::new(41);
        world.run(async {
            slow_world(&world).await;
            hold(&world, 0, &pattern(1, 100_000)).await;
            world.session.call(&Sync { fid }, Call::level(CommitLevel::Data)).await.expect("it syncs");
            // No client is left that could replay it.
            world.sim.crash(world.client);
            world.sim.power_cut(world.server);
            world.sim.sleep(Duration::from_millis(5)).await;
            world.boot();
            let other = connect(&world.sim, world.sim.add_node("other"), 2);
            assert_eq!(world.read_by(&other, 0, 0, 100_000).await.unwrap(), pattern(1, 100_000));
        });
    }
}

/// write |X| replay
#[test]
fn a_write_acknowledged_early_survives_a_server_crash_by_replay() {
    for seed in 42..52 {
        let world = World::new(seed);
        world.run(async {
            slow_world(&world).await;
            for at in 0..5 {
                hold(&world, at * 30_000, &pattern(at as u8, 60_000)).await;
            }
            world.sim.sleep(SLOW * (seed as u32 % 4) / 2).await;
            world.sim.power_cut(world.server);
            world.sim.sleep(Duration::from_millis(5)).await;
            world.boot();
            let bytes = world.read(0, 0, 180_000).await.unwrap();
            for at in 0..5 {
                assert_eq!(&bytes[at * 30_000..][..30_000], &pattern(at as u8, 60_000)[..30_000], "seed {seed}");
            }
        });
    }
}

/// write | client goes, or dies
#[test]
fn a_write_acknowledged_early_is_applied_when_its_client_is_gone() {
    for seed in 60..64 {
        let world = World::new(seed);
        world.run(async {
            slow_world(&world).await;
            hold(&world, 0, &pattern(1, 100_000)).await;
            let node = world.sim.add_node("other");
            match seed % 2 {
                0 => world.session.close().await,
                _ => world.sim.crash(world.client),
            }
            let other = connect(&world.sim, node, 2);
            assert_eq!(world.read_by(&other, 0, 0, 100_000).await.unwrap(), pattern(1, 100_000), "seed {seed}");
        });
    }
}

/// write | destroy, truncate
#[test]
fn a_destroy_and_a_truncate_find_what_was_answered() {
    let world = World::new(70);
    world.run(async {
        slow_world(&world).await;
        hold(&world, 0, &pattern(1, 100_000)).await;
        world.truncate(1, 10).await;
        assert_eq!(world.read(1, 0, 100).await.unwrap()[..10], pattern(1, 10)[..]);
        assert_eq!(world.glimpse(1).await.unwrap().file_bytes, 10);
        // Older than the truncate.
        let late = world.write_at(CommitLevel::Memory, 0, 0, b"late").await;
        assert_eq!(late.unwrap_err().errno(), Errno::STALE_EPOCH);
        world.write_at(CommitLevel::Memory, 1, 50_000, &pattern(2, 100)).await.expect("it is answered");
        let destroy = Destroy { fids: vec![FID] };
        world.session.call(&destroy, Call::level(CommitLevel::Commit)).await.expect("it is destroyed");
        world.sim.sleep(SLOW * 4).await;
        let (from, to) = (forebay_proto::FidSequence(0), forebay_proto::FidSequence(1 << 30));
        let list = ListObjects { from, to, after: Fid::default(), limit: 10 };
        let listed = world.session.call(&list, Call::level(CommitLevel::Data)).await.unwrap().reply;
        assert!(listed.fids.is_empty(), "it came back");
    });
}

/// truncate | write
#[test]
fn a_write_behind_a_truncate_is_not_acknowledged_early() {
    let world = World::new(71);
    world.run(async {
        slow_world(&world).await;
        world.write(0, 0, &pattern(1, 100_000)).await.expect("it is written");
        // The truncate's own turn comes behind this write's.
        let held = world.write_at(CommitLevel::Memory, 0, 200_000, b"held");
        let cut = world.truncate(1, 1000);
        let late = async {
            world.sim.sleep(SLOW / 2).await;
            world.write_at(CommitLevel::Memory, 0, 500, &pattern(3, 10)).await
        };
        let ((held, ()), late) = both(both(held, cut), late).await;
        held.expect("it is answered");
        let bytes = world.read(1, 0, 1000).await.unwrap();
        // Whichever came first: the acknowledged bytes are there.
        match late {
            Ok(_) => assert_eq!(&bytes[500..510], &pattern(3, 10)[..]),
            Err(error) => {
                assert_eq!(error.errno(), Errno::STALE_EPOCH);
                assert_eq!(&bytes[500..510], &pattern(1, 1000)[500..510]);
            }
        }
        assert!(world.metrics().evictions == 0);
    });
}

/// write | the device has no room behind it | its client is told, and nobody else
#[test]
fn failed_apply_after_early_reply_evicts_the_session() {
    let world = World::new(72);
    world.run(async {
        slow_world(&world).await;
        hold(&world, 0, &pattern(1, 1000)).await;
        world.sim.sleep(SLOW * 2).await;
        let other = connect(&world.sim, world.sim.add_node("other"), 2);
        assert_eq!(world.read_by(&other, 0, 0, 1000).await.unwrap(), pattern(1, 1000));
        let told: Rc<RefCell<Vec<Vec<Fid>>>> = Rc::default();
        let losses = told.clone();
        world.session.set_lost(move |lost| losses.borrow_mut().push(lost.fids));
        world.sim.disk_fault(world.server, "/ost/data", Fault::NoRoom);
        // More than is left in the open slab.
        hold(&world, 0, &pattern(2, 1000 << 10)).await;
        assert_eq!(world.read_by(&other, 0, 0, 1000).await.unwrap(), pattern(1, 1000), "it was never seen");
        world.sim.sleep(Duration::from_secs(5)).await;
        assert_eq!((world.metrics().evictions, &told.borrow()[..]), (1, &[vec![FID]][..]));
        assert_eq!(world.read_by(&other, 0, 0, 1000).await.unwrap(), pattern(1, 1000));
    });
}
