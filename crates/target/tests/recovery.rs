//! Crashes, lost and repeated replies, recovery over several clients, evictions: requests run exactly once, in order,
//! and nothing is lost silently.

use std::time::Duration;

use crate::toy::*;
use bytes::Bytes;
use forebay_env::sim::DiskModel;
use forebay_proto::{
    Errno,
    message::{CommitLevel, Fence},
};
use forebay_rpc::{Call, RpcError, SessionState};
use forebay_target::TargetState;

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Runs until all tasks are done, which must not take longer than a minute of virtual time.
fn finish(world: &World, tasks: Vec<forebay_env::Task<()>>, what: &str) {
    let node = world.sim.add_node("watch");
    let env = world.sim.env(node);
    world.sim.block_on(async {
        for task in tasks {
            let done = env.timeout(Duration::from_secs(60), task).await;
            assert!(matches!(done, Ok(Some(()))), "{what}: a task did not finish");
        }
    });
}

/// add |reset| reply
#[test]
fn lost_connections_repeat_no_request_and_lose_none() {
    for seed in 0..20 {
        let tickets = seed % 2 == 1;
        let world = World::new(seed, Setup { tickets, dawdle: Duration::from_micros(200), ..Setup::default() });
        let (a, b, seen) = (world.client("a"), world.client("b"), Seen::default());
        let mut tasks = adders(&a, 1, 9, 8, 50, &seen);
        tasks.extend(adders(&b, 2, 9, 8, 50, &seen));
        for _ in 0..30 {
            world.sim.run_for(Duration::from_micros(500 + world.sim.random_below(3000)));
            let victim = if world.sim.chance(0.5) { a.node } else { b.node };
            world.sim.reset_connections(world.server, victim);
        }
        finish(&world, tasks, &format!("seed {seed}"));
        let (sent, came) = (a.session.stats().resends + b.session.stats().resends, world.target().metrics().resends);
        assert!(sent > 0, "seed {seed}: nothing was resent");
        assert!(0 < came && came <= sent, "seed {seed}: {came} of {sent} are counted");
        seen.check(&format!("seed {seed}"));
        assert_eq!(seen.count(), 800);
    }
}

/// add |SIGKILL, power| replay, resend
#[test]
fn two_clients_through_many_crashes_have_every_request_executed_exactly_once() {
    let mut replays = 0;
    for seed in 0..24 {
        let setup = Setup {
            tickets: seed % 2 == 1,
            dawdle: Duration::from_micros(100 * (seed % 3)),
            commit_interval: millis(20),
            ..Setup::default()
        };
        let world = World::new(seed, setup);
        let (mut a, mut b, seen) = (world.client("a"), world.client("b"), Seen::default());
        (a.commits_often, b.commits_often) = (seed % 3 == 0, seed % 6 == 0);
        let mut tasks = adders(&a, 1, 9, 6, 60, &seen);
        tasks.extend(adders(&b, 2, 9, 6, 60, &seen));
        for _ in 0..6 {
            world.sim.run_for(millis(5 + world.sim.random_below(60)));
            if world.sim.chance(0.5) {
                world.kill_server()
            } else {
                world.power_cut()
            }
            world.sim.run_for(millis(world.sim.random_below(50)));
            world.start_server();
        }
        finish(&world, tasks, &format!("seed {seed}"));
        seen.check(&format!("seed {seed}"));
        assert_eq!(seen.count(), 720, "seed {seed}");
        assert!(a.lost.borrow().is_empty() && b.lost.borrow().is_empty(), "seed {seed}: {:?}", a.lost.borrow());
        replays += a.session.stats().replays + b.session.stats().replays;
    }
    assert!(replays > 100, "only {replays} replays: the crashes came too early or too late");
}

/// add |power at every moment of a short history| replay
#[test]
fn a_crash_at_any_moment_is_survived() {
    for tickets in [false, true] {
        for step in 0..120 {
            let what = format!("tickets {tickets}, crash after {step} steps of 53 us");
            let setup =
                Setup { tickets, dawdle: Duration::from_micros(150), commit_interval: millis(1), ..Setup::default() };
            let world = World::new(77, setup);
            let (mut a, b, seen) = (world.client("a"), world.client("b"), Seen::default());
            a.commits_often = true;
            let mut tasks = adders(&a, 1, 9, 2, 8, &seen);
            tasks.extend(adders(&b, 2, 9, 2, 8, &seen));
            world.sim.block_on(async { a.session.ready().await.unwrap() });
            world.sim.run_for(Duration::from_micros(53) * step);
            world.power_cut();
            world.start_server();
            finish(&world, tasks, &what);
            seen.check(&what);
        }
    }
}

/// write |power| replay with bulk
#[test]
fn replied_writes_come_back_with_their_bytes() {
    let setup = Setup { tickets: true, commit_interval: Duration::from_secs(3600), ..Setup::default() };
    let world = World::new(5, setup);
    let client = world.client("a");
    world.sim.block_on(async {
        for i in 0..40u8 {
            client.write(1, u64::from(i) * 65536, Bytes::from(vec![i; 65536])).await.unwrap();
        }
        // Overlaps: the order of transnos decides.
        client.write(1, 1000, Bytes::from(vec![0xaa; 100])).await.unwrap();
        client.write(1, 1050, Bytes::from(vec![0xbb; 100])).await.unwrap();
    });
    world.power_cut();
    world.start_server();
    world.sim.block_on(async {
        client.add(2).await.unwrap();
        assert!(client.session.stats().replays >= 42);
        assert_eq!(world.target().metrics().replays, 42, "all were lost, and each came once");
        let segments = world.target().store().read(fid(1), 0..40 * 65536).await.unwrap();
        let mut bytes = Vec::new();
        for segment in segments {
            let forebay_store::SegmentBody::Data { bytes: data, .. } = segment.body else { panic!("a hole") };
            bytes.extend_from_slice(&data);
        }
        assert_eq!(bytes.len(), 40 * 65536);
        for (at, byte) in bytes.iter().enumerate() {
            let expected = match at {
                1000..1050 => 0xaa,
                1050..1150 => 0xbb,
                _ => (at / 65536) as u8,
            };
            assert_eq!(*byte, expected, "at {at}");
        }
    });
}

/// add |power, the client is away| window ends
#[test]
fn a_client_that_misses_the_window_is_evicted_and_notified_of_what_it_lost() {
    let setup = Setup { commit_interval: Duration::from_secs(3600), ..Setup::default() };
    let world = World::new(6, setup);
    let (a, b) = (world.client("a"), world.client("b"));
    world.sim.block_on(async {
        a.add(1).await.unwrap();
        b.add(2).await.unwrap();
    });
    world.sim.pause(b.node);
    world.power_cut();
    world.start_server();
    world.sim.block_on(async {
        assert_eq!(a.add(1).await.unwrap().reply.file_bytes, 1, "a's change was replayed");
        assert_eq!(a.get(2).await.unwrap(), 0, "b's is lost");
    });
    assert_eq!(*world.toy().ended.borrow(), [(b.id, true)]);
    world.sim.resume(b.node);
    world.sim.block_on(async {
        assert_eq!(b.add(2).await.unwrap().reply.file_bytes, 0, "a new session begins");
        let lost = b.lost.borrow();
        assert_eq!((lost.len(), &lost[0].fids[..]), (1, &[fid(2)][..]));
        assert!(lost[0].reason.contains("recovery window"), "{}", lost[0].reason);
    });
}

/// add |power, the client is away| the server stops again, the window ends |power| the client is back
#[test]
fn a_server_that_stops_before_anybody_could_come_evicts_nobody() {
    let world = World::new(8, Setup { window: millis(700), ..Setup::default() });
    let a = world.client("a");
    world.sim.block_on(async { a.add(1).await.unwrap() });
    world.sim.pause(a.node);
    world.power_cut();
    world.start_server();
    world.sim.block_on(async {
        world.sim.sleep(millis(300)).await;
        let target = world.target();
        target.close().await;
        // The rest of the process takes longer to stop.
        world.sim.sleep(millis(2000)).await;
    });
    world.power_cut();
    world.start_server();
    world.sim.resume(a.node);
    world.sim.block_on(async {
        assert_eq!(a.add(1).await.unwrap().reply.file_bytes, 1);
        assert!(a.lost.borrow().is_empty());
    });
}

/// add |power, the client dies| window ends
#[test]
fn a_dead_client_delays_the_others_by_the_window_and_no_longer() {
    let world = World::new(7, Setup { window: millis(700), ..Setup::default() });
    let (a, b) = (world.client("a"), world.client("b"));
    world.sim.block_on(async {
        a.add(1).await.unwrap();
        b.add(2).await.unwrap();
    });
    world.sim.crash(b.node);
    world.power_cut();
    let restart = world.sim.now();
    world.start_server();
    world.sim.block_on(async { a.add(1).await.unwrap() });
    let waited = world.sim.now().since(restart);
    assert!(waited >= millis(700) && waited < millis(1200), "{waited:?}");
}

/// add |power, the server that is a client dies, and is started anew
#[test]
fn recovery_skips_earlier_instance_of_a_server() {
    let world = World::new(9, Setup { window: Duration::from_secs(30), ..Setup::default() });
    let (a, former) = (world.client("a"), world.life(3));
    world.sim.block_on(async {
        a.add(1).await.unwrap();
        former.add(2).await.unwrap();
    });
    world.sim.pause(former.node);
    world.power_cut();
    let restart = world.sim.now();
    world.start_server();
    let next = world.life(4);
    world.sim.block_on(async {
        a.add(1).await.unwrap();
        next.add(2).await.unwrap();
    });
    assert!(world.sim.now().since(restart) < millis(1500), "{:?}", world.sim.now().since(restart));
    assert_eq!(*world.toy().ended.borrow(), [(former.id, true)]);
    world.sim.resume(former.node);
    let env = world.sim.env(former.node);
    world.sim.block_on(async {
        let late = env.timeout(Duration::from_secs(5), former.add(2)).await;
        assert!(!matches!(late, Ok(Ok(_))), "a life that is over acts no more");
    });
    world.sim.block_on(async { assert_eq!(next.add(2).await.unwrap().reply.file_bytes, 1) });
}

/// adds |power| replays, |resets| replays again
#[test]
fn connections_that_break_during_the_replays_lose_none() {
    for seed in 0..16 {
        let setup = Setup {
            tickets: seed % 2 == 1,
            dawdle: millis(30),
            commit_interval: Duration::from_secs(3600),
            window: Duration::from_secs(20),
            ..Setup::default()
        };
        let world = World::new(seed, setup);
        let (a, seen) = (world.client("a"), Seen::default());
        finish(&world, adders(&a, 1, 9, 8, 20, &seen), "before the crash");
        for _ in 0..2 {
            world.power_cut();
            world.start_server();
            for _ in 0..10 {
                world.sim.run_for(millis(20 + world.sim.random_below(150)));
                world.sim.reset_connections(world.server, a.node);
            }
            world.sim.run_for(Duration::from_secs(10));
            assert_eq!(world.target().state(), TargetState::Serving, "seed {seed}");
            assert!(a.lost.borrow().is_empty(), "seed {seed}: {:?}", a.lost.borrow());
            let sums = world.sim.block_on(async { (a.get(1).await.unwrap(), a.get(9).await.unwrap()) });
            assert_eq!(sums, (120, 40), "seed {seed}");
        }
    }
}

/// adds |power| replays of the server's former life wait for those of a |it is started anew, a comes
#[test]
fn a_former_life_is_evicted_while_its_replays_wait() {
    let mut lost = 0;
    for seed in 0..12 {
        let setup = Setup {
            tickets: seed % 2 == 1,
            commit_interval: Duration::from_secs(3600),
            window: Duration::from_secs(30),
            ..Setup::default()
        };
        let world = World::new(seed, setup);
        let (a, former) = (world.client("a"), world.life(3));
        world.sim.block_on(async {
            for _ in 0..3 {
                a.add(1).await.unwrap();
                former.add(2).await.unwrap();
            }
        });
        world.sim.pause(a.node);
        world.power_cut();
        let slow = DiskModel { latency_flush: millis(300), ..DiskModel::default() };
        for disk in world.sim.disks(world.server) {
            world.sim.set_disk_model(world.server, &disk, slow);
        }
        world.start_server();
        world.sim.run_for(Duration::from_secs(5));
        world.sim.resume(a.node);
        world.sim.run_for(millis(seed * 40));
        let next = world.life(4);
        world.sim.run_for(Duration::from_secs(5));
        assert_eq!(world.target().state(), TargetState::Serving, "seed {seed}: {}", world.target().status_json());
        world.sim.block_on(async {
            assert_eq!(a.get(1).await.unwrap(), 3, "seed {seed}: who was there loses nothing");
            lost += 3 - next.get(2).await.unwrap();
        });
        assert!(a.lost.borrow().is_empty() && world.toy().ended.borrow().contains(&(former.id, true)), "seed {seed}");
    }
    assert!(lost > 0, "each time the former life had replayed all before it was evicted");
}

#[test]
fn recovery_ends_at_once_when_everybody_is_back() {
    let world = World::new(8, Setup::default());
    let (a, b) = (world.client("a"), world.client("b"));
    world.sim.block_on(async {
        a.add(1).await.unwrap();
        b.add(2).await.unwrap();
    });
    world.power_cut();
    let restart = world.sim.now();
    world.start_server();
    world.sim.block_on(async { a.add(1).await.unwrap() });
    assert!(world.sim.now().since(restart) < millis(1000), "{:?}", world.sim.now().since(restart));
}

/// add |power| replay |power| replay
#[test]
fn a_second_crash_during_recovery_loses_nothing() {
    for seed in 0..30 {
        let what = format!("seed {seed}");
        let setup = Setup { tickets: seed % 2 == 1, commit_interval: millis(2), ..Setup::default() };
        let world = World::new(seed, setup);
        let (a, b, seen) = (world.client("a"), world.client("b"), Seen::default());
        let mut tasks = adders(&a, 1, 9, 8, 20, &seen);
        tasks.extend(adders(&b, 2, 9, 8, 20, &seen));
        world.sim.run_for(millis(6));
        world.power_cut();
        world.start_server();
        for _ in 0..4 {
            world.sim.run_for(Duration::from_micros(world.sim.random_below(40_000)));
            world.power_cut();
            world.start_server();
        }
        finish(&world, tasks, &what);
        seen.check(&what);
        assert!(a.lost.borrow().is_empty() && b.lost.borrow().is_empty(), "{what}");
    }
}

/// add |fence| add
#[test]
fn a_fenced_client_can_neither_go_on_nor_come_back() {
    for tickets in [false, true] {
        let setup = Setup { tickets, commit_interval: Duration::from_secs(3600), ..Setup::default() };
        let world = World::new(9, setup);
        let (a, mds) = (world.client("a"), world.client("MDT0000"));
        world.sim.block_on(async {
            a.add(1).await.unwrap();
            mds.session.call(&Fence { client: a.id }, Call::level(CommitLevel::Commit)).await.unwrap();
            assert_eq!(world.target().sessions().len(), 1);
            let error = a.add(1).await.unwrap_err();
            assert!(matches!(error, RpcError::Refused(_) | RpcError::Evicted(_)), "{error}");
            a.env.sleep(millis(500)).await;
            assert_eq!(a.session.state(), SessionState::Refused);
            assert_eq!(a.add(1).await.unwrap_err().errno(), Errno::EIO, "it was let in before");
            assert_eq!(mds.get(1).await.unwrap(), 1, "what was applied before the fence stays");
        });
        world.power_cut();
        world.start_server();
        world.sim.run_for(Duration::from_secs(3));
        let again = forebay_rpc::ClientSession::start(&a.env, options(a.id, "a", forebay_rpc::PinBudget::new(1 << 20)));
        world.sim.block_on(async {
            assert!(matches!(again.ready().await, Err(RpcError::Refused(_))), "the fence is durable");
        });
    }
}

/// add |pause for longer than the session's timeout| late resend
#[test]
fn a_client_that_was_away_too_long_is_evicted_and_its_late_requests_refused() {
    let setup = Setup { session_timeout: Duration::from_secs(20), ..Setup::default() };
    let world = World::new(10, setup);
    let (a, b) = (world.client("a"), world.client("b"));
    world.sim.block_on(async {
        a.add(1).await.unwrap();
        b.add(1).await.unwrap();
    });
    world.sim.cut_both(world.server, a.node);
    let late = {
        let a = a.clone();
        a.env.clone().spawn(async move { a.add(1).await })
    };
    world.sim.run_for(Duration::from_secs(40));
    assert_eq!(world.target().sessions().len(), 1, "b pings, a cannot");
    world.sim.heal_all();
    world.sim.block_on(async {
        let error = late.await.expect("no panic").unwrap_err();
        assert!(matches!(error, RpcError::Evicted(_)), "{error}");
        assert_eq!(error.errno(), Errno::EIO);
        assert_eq!(b.get(1).await.unwrap(), 2, "the late request had no effect");
        assert_eq!(a.add(1).await.unwrap().reply.file_bytes, 2);
    });
}

/// commit |the device goes back in time| connect
#[test]
fn a_target_that_lost_commits_serves_nobody() {
    let setup = Setup { commit_interval: millis(5), ..Setup::default() };
    let world = World::new(11, setup);
    let client = world.client("a");
    world.sim.block_on(async {
        let called = client.add(1).await.unwrap();
        client.session.committed(called.transno).await.unwrap();
    });
    let disks = world.sim.disks(world.server);
    let images: Vec<_> = disks.iter().map(|d| world.sim.disk_image(world.server, d)).collect();
    world.sim.block_on(async {
        let called = client.add(1).await.unwrap();
        client.session.committed(called.transno).await.unwrap();
    });
    world.power_cut();
    for (disk, image) in disks.iter().zip(images) {
        world.sim.set_disk_image(world.server, disk, image);
    }
    world.start_server();
    world.sim.run_for(Duration::from_secs(5));
    assert_eq!(world.target().state(), TargetState::Stopped);
    assert_eq!(client.session.state(), SessionState::Stopped);
}

#[test]
fn a_target_whose_store_failed_acknowledges_nothing() {
    let world = World::new(12, Setup { commit_interval: millis(10), ..Setup::default() });
    let client = world.client("a");
    world.sim.block_on(async { client.add(1).await.unwrap() });
    for disk in world.sim.disks(world.server) {
        world.sim.disk_fault(world.server, &disk, forebay_env::sim::Fault::FlushFails);
    }
    let committed = {
        let client = client.clone();
        client.env.clone().spawn(async move { client.add_with(1, Call::level(CommitLevel::Commit)).await })
    };
    world.sim.run_for(Duration::from_secs(3));
    assert_eq!(world.target().state(), TargetState::Stopped);
    world.power_cut();
    for disk in world.sim.disks(world.server) {
        world.sim.clear_disk_faults(world.server, &disk);
    }
    world.start_server();
    world.sim.block_on(async {
        committed.await.expect("no panic").expect("it waited until the target was back");
        assert_eq!(client.get(1).await.unwrap(), 2);
    });
}

/// add, admitted |fence| its change
#[test]
fn a_request_under_way_when_its_client_is_fenced_changes_nothing() {
    for tickets in [false, true] {
        let world = World::new(14, Setup { tickets, dawdle: millis(50), ..Setup::default() });
        let (a, mds) = (world.client("a"), world.client("MDT0000"));
        world.sim.block_on(async {
            a.session.ready().await.unwrap();
            mds.session.ready().await.unwrap();
            let late = {
                let a = a.clone();
                a.env.clone().spawn(async move { a.add(1).await })
            };
            a.env.sleep(millis(10)).await;
            mds.session.call(&Fence { client: a.id }, Call::level(CommitLevel::Commit)).await.unwrap();
            let fenced = mds.get(1).await.unwrap();
            // With tickets the request was first in line: the fence waited for it.
            assert_eq!(fenced, u64::from(tickets), "tickets {tickets}");
            let replied = late.await.expect("no panic").is_ok();
            assert!(!replied || fenced == 1, "a reply without an effect");
            mds.env.sleep(millis(200)).await;
            assert_eq!(mds.get(1).await.unwrap(), fenced, "nothing is changed after the fence's reply");
        });
    }
}

/// add |power, one client is away| window ends, the others go on |power| the client is back
#[test]
fn an_eviction_during_recovery_survives_the_next_crash() {
    let world = World::new(15, Setup { commit_interval: millis(5), ..Setup::default() });
    let (a, b) = (world.client("a"), world.client("b"));
    world.sim.block_on(async {
        b.add(2).await.unwrap();
        a.add(1).await.unwrap();
    });
    world.sim.pause(b.node);
    world.power_cut();
    world.start_server();
    world.sim.block_on(async { a.add_with(1, Call::level(CommitLevel::Commit)).await.unwrap() });
    world.power_cut();
    world.sim.resume(b.node);
    world.start_server();
    world.sim.block_on(async {
        b.add(2).await.unwrap();
        a.add(1).await.unwrap();
        assert_eq!(b.session.stats().evictions, 1, "what it missed it has missed");
        assert_eq!(world.target().sessions().len(), 2);
    });
}
