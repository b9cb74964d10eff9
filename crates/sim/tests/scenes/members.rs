//! Hosts that join a cluster with a token, what whoever has no certificate may ask for, and bans.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use forebay_client::{Client, LayoutSpec, OpenFile, OpenMode};
use forebay_env::{Network, sim::Sim};
use forebay_keys::{Authority, Keys, NodeKey, Role};
use forebay_proto::{Errno, Fid, TargetId, Uuid, message::*};

use crate::{scene::caller, site::Site};

const UUID: Uuid = Uuid([1; 16]);

async fn make(client: &Client, name: &[u8], ost: u32) -> OpenFile {
    let layout = LayoutSpec { stripe_index: ost, stripe_count: 1, ..LayoutSpec::inherit() };
    let made = client.create(&caller(), Fid::ROOT, name, 0o644, OpenMode::READ_WRITE, layout).await;
    made.expect("it is made").1
}

fn bytes() -> Bytes {
    (0..400_000_u32).map(|at| (at * 37 + at / 241) as u8).collect()
}

/// token, join, register, write there |power, MDT| read, the same token again
#[test]
fn a_host_that_joins_with_a_token_takes_files_and_is_a_member_after_power_cuts() {
    let sim = Sim::new(1);
    sim.block_on(async {
        let mut site = Site::of(&sim).await;
        let admin = site.node(Role::Admin, "admin");
        let client = site.mount(site.node(Role::Client, "n1")).await;
        let token = site.token(admin, "ost", "").await;
        let host = site.newcomer("h2", &token);
        let key = NodeKey::make().expect("a key");
        let join = site.join_request(host, "h2", &token, &key);
        let joined = site.ask(host, &join).await.expect("it joins");
        assert_eq!((joined.role.as_str(), &joined.osts[..]), ("ost", &[2][..]));
        assert_eq!(site.ask(host, &join).await.expect("the reply was lost").osts, [2]);
        let (root, own) = (joined.authority.to_vec().into(), joined.certificate.to_vec().into());
        let keys = Arc::new(Keys::new(&root, own, &key).expect("keys"));
        site.sim.set_network(host, Network::Keys(keys.clone()));
        let number = site.cluster.add_server(host, TargetId::ost(2)).await;
        site.cluster.boot(number);
        let targets =
            vec![MapTarget { id: TargetId::ost(2), uuid: Uuid([8; 16]), addresses: vec!["mem:OST0002".into()] }];
        let map = site.ask(host, &Register { targets: targets.clone() }).await.expect("it is its own");
        assert_eq!((map.targets.len(), map.epoch), (4, 2));
        // The client learns of the new map by a reply, and of the OST by the layout.
        site.sim.sleep(Duration::from_secs(8)).await;
        let file = make(&client, b"f", 2).await;
        client.write(&file, 0, bytes()).await.expect("it writes");
        client.fsync(&file, false).await.expect("synced");
        for server in [0, number] {
            site.sim.power_cut(site.cluster.servers[server].node);
            if server == 0 {
                site.boot(0);
            } else {
                site.cluster.boot(server);
            }
            site.sim.sleep(Duration::from_secs(3)).await;
        }
        let reader = site.mount(site.node(Role::Client, "n2")).await;
        assert!(reader.read_file(&caller(), "f").await.expect("it reads")[..] == bytes()[..]);
        let thief = site.newcomer("h3", &token);
        let stolen = site.join_request(thief, "h3", &token, &NodeKey::make().expect("a key"));
        let refused = site.ask(thief, &stolen).await.expect_err("a token serves once");
        assert!(refused.message.contains("ost h2 has joined with this token"), "{refused}");
        let nodes = site.ask(admin, &ListNodes {}).await.expect("an admin").nodes;
        assert_eq!((nodes.len(), nodes[0].name.as_str(), &nodes[0].targets[..]), (1, "h2", &[TargetId::ost(2)][..]));
    });
}

#[test]
fn whoever_has_no_certificate_may_only_join_and_only_an_admin_changes_who_is_in() {
    let sim = Sim::new(2);
    sim.block_on(async {
        let site = Site::of(&sim).await;
        let token = site.token(site.node(Role::Admin, "admin"), "ost", "").await;
        let stranger = site.newcomer("stranger", &token);
        let new_token = NewToken { role: "admin".into(), ttl_s: 60, tenant: String::new() };
        let ban = BanNode { role: "client".into(), name: "n1".into(), lift: false };
        let set_bans = SetBans { bans: Bans { epoch: 9, bans: Vec::new() } };
        for refused in [
            site.ask(stranger, &Status {}).await.map(drop),
            site.ask(stranger, &GetMap {}).await.map(drop),
            site.ask(stranger, &GetBans {}).await.map(drop),
            site.ask(stranger, &new_token).await.map(drop),
            site.ask(stranger, &ban).await.map(drop),
            site.ask(stranger, &Register { targets: Vec::new() }).await.map(drop),
        ] {
            let refused = refused.expect_err("a stranger");
            assert!(refused.errno == Errno::EPERM && refused.message.contains("no certificate"), "{refused}");
        }
        let guess = NewTokenReply { secret: vec![7; 16].into(), ..token.clone() };
        let guessed = site.join_request(stranger, "h2", &guess, &NodeKey::make().expect("a key"));
        assert_eq!(site.ask(stranger, &guessed).await.expect_err("a guess").errno, Errno::EACCES);
        for (role, name) in [(Role::Client, "n1"), (Role::Ost, "server1")] {
            let node = site.node(role, name);
            for refused in [
                site.ask(node, &new_token).await.map(drop),
                site.ask(node, &ban).await.map(drop),
                site.ask(node, &RemoveNode { role: String::new(), name: "n1".into() }).await.map(drop),
                site.ask(node, &set_bans).await.map(drop),
            ] {
                assert_eq!(refused.expect_err("not an admin").errno, Errno::EPERM, "{role}");
            }
        }
        // The MGS itself keeps to its cluster: a token of another one leads nowhere.
        let other = Authority::make(UUID).expect("an authority");
        let forged = NewTokenReply { authority: other.public_key().0.to_vec().into(), ..token };
        let lured = site.newcomer("lured", &forged);
        let request = site.join_request(lured, "h4", &forged, &NodeKey::make().expect("a key"));
        let refused = site.ask(lured, &request).await.expect_err("another authority");
        assert_eq!(refused.errno, Errno::EPROTO, "{refused}");
    });
}

/// write, ban |power, OST| read, write: nothing; lift: read
#[test]
fn a_banned_node_is_cut_off_within_seconds_on_open_connections_too_and_others_go_on() {
    let sim = Sim::new(3);
    sim.block_on(async {
        let site = Site::of(&sim).await;
        let admin = site.node(Role::Admin, "admin");
        let (banned, other) = (site.node(Role::Client, "n1"), site.node(Role::Client, "n2"));
        let (client, friend) = (site.mount(banned).await, site.mount(other).await);
        for (of, name) in [(&client, b"a"), (&friend, b"b")] {
            let file = make(of, name, 1).await;
            of.write(&file, 0, bytes()).await.expect("it writes");
            of.fsync(&file, false).await.expect("synced");
        }
        let file = make(&client, b"c", 1).await;
        let ban = |lift| BanNode { role: "client".into(), name: "n1".into(), lift };
        site.ask(admin, &ban(false)).await.expect("an admin");
        site.sim.sleep(Duration::from_secs(4)).await;
        // The MDT has heard it, and the OST: neither answers.
        let env = site.sim.env(banned);
        let written = env.timeout(Duration::from_secs(10), client.write(&file, 0, bytes())).await;
        assert!(!matches!(written, Ok(Ok(_))), "a banned node has written");
        let listed = env.timeout(Duration::from_secs(10), client.lookup(&caller(), Fid::ROOT, b"b")).await;
        assert!(!matches!(listed, Ok(Ok(_))), "a banned node has seen a name");
        assert!(friend.read_file(&caller(), "b").await.expect("it reads")[..] == bytes()[..]);
        // A new process of the OST hears it from the MDT.
        site.sim.power_cut(site.cluster.servers[2].node);
        site.boot(2);
        site.sim.sleep(Duration::from_secs(8)).await;
        let asked = forebay_rpc::ask(&env, &[site.cluster.servers[2].address.clone()], &Status {}).await;
        assert!(asked.is_err(), "the OST answers a banned node");
        site.ask(admin, &ban(true)).await.expect("an admin");
        site.sim.sleep(Duration::from_secs(8)).await;
        let reader = site.mount(site.node(Role::Client, "n3")).await;
        assert!(reader.read_file(&caller(), "a").await.expect("it reads")[..] == bytes()[..]);
        let again = site.mount(site.node(Role::Client, "n1")).await;
        assert!(again.read_file(&caller(), "b").await.expect("it reads")[..] == bytes()[..]);
    });
}
