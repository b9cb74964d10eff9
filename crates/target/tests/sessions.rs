//! One client and one target: calls, commit levels, refusals, requests outside of a session.

use std::time::Duration;

use crate::toy::*;
use bytes::Bytes;
use forebay_proto::{
    ClientId, Errno, Incarnation, TargetId, Transno, Uuid,
    message::{CommitLevel, GetMap, Status, Sync},
};
use forebay_rpc::{Call, ClientSession, PinBudget, RpcError, SessionOptions, SessionState};

#[test]
fn a_call_is_executed_and_its_change_committed_later() {
    let world = World::new(1, Setup::default());
    let client = world.client("a");
    world.sim.block_on(async {
        client.session.ready().await.unwrap();
        assert_eq!(client.session.state(), SessionState::Up);
        let called = client.add(1).await.unwrap();
        assert_eq!((called.reply.file_bytes, called.transno), (0, Transno::new(client.session.incarnation(), 1)));
        assert!(client.session.pinned_bytes() > 0, "it is kept until it is committed");
        client.session.committed(called.transno).await.unwrap();
        assert_eq!(client.session.pinned_bytes(), 0);
        assert!(client.session.last_committed() >= called.transno);
        assert_eq!(client.get(1).await.unwrap(), 1);
    });
}

#[test]
fn uncommitted_pins_are_released_without_anybody_asking() {
    let world = World::new(2, Setup { commit_interval: Duration::from_millis(100), ..Setup::default() });
    let client = world.client("a");
    world.sim.block_on(async {
        client.add(1).await.unwrap();
        assert!(client.session.pinned_bytes() > 0);
    });
    world.sim.run_for(Duration::from_secs(3));
    assert_eq!(client.session.pinned_bytes(), 0, "a ping brought the news");
    assert!(client.session.stats().pings > 0);
}

#[test]
fn a_call_at_commit_level_is_durable_when_it_returns() {
    let world = World::new(3, Setup { commit_interval: Duration::from_secs(3600), ..Setup::default() });
    let client = world.client("a");
    world.sim.block_on(async {
        client.add_with(1, Call::level(CommitLevel::Commit)).await.unwrap();
        assert_eq!(client.session.pinned_bytes(), 0);
    });
    world.sim.crash(client.node);
    world.power_cut();
    world.start_server();
    let other = world.client("b");
    world.sim.block_on(async { assert_eq!(other.get(1).await.unwrap(), 1) });
}

#[test]
fn many_calls_at_once_share_slots_and_all_are_replied() {
    for tickets in [false, true] {
        let world = World::new(4, Setup { tickets, dawdle: Duration::from_micros(300), ..Setup::default() });
        let (client, seen) = (world.client("a"), Seen::default());
        let tasks = adders(&client, 1, 2, 200, 4, &seen);
        world.sim.block_on(async {
            for task in tasks {
                task.await.expect("no panic");
            }
            assert_eq!(client.get(1).await.unwrap() + client.get(2).await.unwrap(), 800);
        });
        seen.check("many calls");
    }
}

#[test]
fn a_small_pin_budget_slows_a_writer_down_and_never_stops_it() {
    let setup = Setup { tickets: true, commit_interval: Duration::from_secs(3600), ..Setup::default() };
    let world = World::new(5, setup);
    let node = world.sim.add_node("a");
    let client = Client::start(&world.sim.env(node), node, "a", PinBudget::new(256 << 10));
    world.sim.block_on(async {
        for i in 0..64u64 {
            client.write(1, i * 65536, Bytes::from(vec![i as u8; 65536])).await.unwrap();
            assert!(client.session.pinned_bytes() <= 256 << 10);
        }
    });
}

#[test]
fn sync_returns_when_everything_before_it_is_committed() {
    let world = World::new(6, Setup { commit_interval: Duration::from_secs(3600), ..Setup::default() });
    let client = world.client("a");
    world.sim.block_on(async {
        let called = client.add(1).await.unwrap();
        let synced = client.session.call(&Sync { fid: None }, Call::default()).await.unwrap();
        assert_eq!(synced.reply.incarnation, Incarnation(called.transno.incarnation().0));
        assert!(client.session.last_committed() >= called.transno);
    });
}

#[test]
fn a_change_of_another_session_is_shown_only_when_it_is_committed() {
    let world = World::new(7, Setup { commit_interval: Duration::from_secs(3600), ..Setup::default() });
    let (a, b) = (world.client("a"), world.client("b"));
    world.sim.block_on(async {
        let called = a.add(1).await.unwrap();
        assert!(world.target().store().last_committed() < called.transno);
        assert_eq!(a.get(1).await.unwrap(), 1, "the own session sees it at once");
        assert!(world.target().store().last_committed() < called.transno);
        assert_eq!(b.get(1).await.unwrap(), 1);
        assert!(world.target().store().last_committed() >= called.transno);
    });
}

#[test]
fn a_dropped_call_is_still_executed_once_and_its_slot_used_again() {
    let world = World::new(8, Setup { dawdle: Duration::from_millis(5), ..Setup::default() });
    let client = world.client("a");
    world.sim.block_on(async {
        client.session.ready().await.unwrap();
        for _ in 0..100 {
            let given_up = client.env.timeout(Duration::from_millis(1), client.add(1)).await;
            assert!(given_up.is_err());
        }
        while client.session.stats().in_flight > 0 {
            client.env.sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(client.get(1).await.unwrap(), 100);
    });
}

#[test]
fn a_wrong_peer_is_refused_with_words_that_say_so() {
    let world = World::new(9, Setup::default());
    let node = world.sim.add_node("a");
    let env = world.sim.env(node);
    let base = options(ClientId::from_random(1, 1), "a", PinBudget::new(1 << 20));
    let wrong_target = SessionOptions { target: TargetId::ost(9), ..base.clone() };
    let wrong_cluster = SessionOptions { cluster: Uuid([9; 16]), ..base };
    world.sim.block_on(async {
        for (options, word) in [(wrong_target, "this is OST0003, not OST0009"), (wrong_cluster, "belongs to cluster")] {
            let session = ClientSession::start(&env, options);
            let Err(RpcError::Refused(why)) = session.ready().await else { panic!("it is refused") };
            assert!(why.contains(word), "{why}");
            let error = session.call(&Sync { fid: None }, Call::default()).await.unwrap_err();
            assert_eq!(error, RpcError::Refused(why));
        }
    });
}

#[test]
fn status_and_map_are_answered_without_a_session() {
    let world = World::new(10, Setup::default());
    let client = world.client("the client's name");
    world.sim.block_on(async {
        client.add(1).await.unwrap();
        let status = forebay_rpc::ask(&client.env, &[address()], &Status {}).await.unwrap();
        let json: serde_json::Value = serde_json::from_str(&status.json).unwrap();
        assert_eq!(json["name"], "OST0003");
        assert_eq!(json["kind"], "ost");
        assert_eq!(json["state"], "serving");
        assert_eq!(json["sessions"], 1);
        assert_eq!(json["clients"][0]["description"], "the client's name");
        assert_eq!(json["toy"], true);
        let map = forebay_rpc::ask(&client.env, &[address()], &GetMap {}).await.unwrap();
        assert_eq!((map.cluster, map.epoch), (CLUSTER, 5));
    });
}

#[test]
fn ask_reports_a_stopped_server_and_a_call_waits_for_it() {
    let world = World::new(11, Setup::default());
    world.sim.run_for(Duration::from_millis(100));
    world.kill_server();
    let client = world.client("a");
    world.sim.block_on(async {
        let error = forebay_rpc::ask(&client.env, &[address()], &Status {}).await.unwrap_err();
        assert!(matches!(error, RpcError::Unreachable(_)), "{error}");
        assert!(client.env.timeout(Duration::from_secs(30), client.add(1)).await.is_err(), "it waits");
    });
    world.start_server();
    world.sim.block_on(async { assert_eq!(client.add(1).await.unwrap().reply.file_bytes, 0, "given up before sent") });
}

#[test]
fn close_commits_says_goodbye_and_leaves_no_session() {
    let world = World::new(12, Setup { commit_interval: Duration::from_secs(3600), ..Setup::default() });
    let client = world.client("a");
    world.sim.block_on(async {
        let called = client.add(1).await.unwrap();
        client.session.close().await;
        assert!(world.target().store().last_committed() >= called.transno);
        assert!(world.target().sessions().is_empty());
        assert_eq!(*world.toy().ended.borrow(), [(client.id, false)]);
        assert_eq!(client.add(1).await.unwrap_err(), RpcError::Closed);
    });
    world.power_cut();
    world.start_server();
    world.sim.run_for(Duration::from_millis(500));
    assert!(world.toy().recovered.get(), "no session, no window");
}

/// the target has not answered yet | close returns at once
#[test]
fn close_of_a_session_that_never_began_does_not_wait() {
    let world = World::new(16, Setup::default());
    world.sim.run_for(Duration::from_millis(100));
    world.kill_server();
    let client = world.client("a");
    world.sim.block_on(async {
        let begun = world.sim.now();
        client.session.close().await;
        let waited = world.sim.now().since(begun);
        assert!(waited < Duration::from_secs(1), "{waited:?}");
        assert_eq!(client.add(1).await.unwrap_err(), RpcError::Closed);
    });
}

#[test]
fn an_error_reply_changes_nothing_and_is_passed_on() {
    let world = World::new(13, Setup::default());
    let client = world.client("a");
    world.sim.block_on(async {
        let request = forebay_proto::message::MdtStatFs {};
        let error = client.session.call(&request, Call::default()).await.unwrap_err();
        assert_eq!(error.errno(), Errno::EOPNOTSUPP);
        assert_eq!(client.session.pinned_bytes(), 0);
    });
}

#[test]
fn pinned_bytes_of_clients_are_known_and_end_with_the_commit() {
    let world = World::new(14, Setup { tickets: true, commit_interval: Duration::from_secs(3600), ..Setup::default() });
    let (one, other) = (world.client("one"), world.client("other"));
    world.sim.block_on(async {
        // The commit of a new session also commits all earlier changes.
        one.session.ready().await.unwrap();
        other.session.ready().await.unwrap();
        let mut last = Transno(0);
        for i in 0..10u64 {
            last = one.write(1, i * 65536, Bytes::from(vec![7; 65536])).await.unwrap().transno;
        }
        other.add(2).await.unwrap();
        let pinned = world.target().metrics().pinned_bytes;
        assert!((655_360..700_000).contains(&pinned), "{pinned}");
        assert!(pinned <= one.session.pinned_bytes() + other.session.pinned_bytes(), "a client keeps a little more");
        let status = forebay_rpc::ask(&one.env, &[address()], &Status {}).await.unwrap();
        let status: serde_json::Value = serde_json::from_str(&status.json).unwrap();
        let of = |name: &str| {
            let clients = status["clients"].as_array().unwrap();
            clients.iter().find(|client| client["description"] == name).unwrap()["pinned_bytes"].as_u64().unwrap()
        };
        assert!(of("one") >= 655_360 && (1..1000).contains(&of("other")), "{status}");
        assert_eq!(of("one") + of("other"), pinned);
        one.session.committed(last).await.unwrap();
        other.session.commit_soon();
        world.sim.env(one.node).sleep(Duration::from_secs(1)).await;
        assert_eq!(world.target().metrics().pinned_bytes, 0);
    });
}
