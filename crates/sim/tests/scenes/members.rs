//! Hosts that join a cluster with a token, what whoever has no certificate may ask for, and bans.

use std::{cell::Cell, rc::Rc, sync::Arc, time::Duration};

use bytes::Bytes;
use forebay_client::{Client, LayoutSpec, OpenFile, OpenMode};
use forebay_env::{Network, sim::Sim};
use forebay_keys::{Authority, Keys, NodeKey, NodeName, Role, Validity};
use forebay_proto::{Errno, Fid, TargetId, Uuid, message::*};
use forebay_sim::ClusterOptions;

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

/// join; five lives of a certificate; |MGS| away when the next is due, and back; a ban
#[test]
fn nodes_renew_their_certificates_and_others_are_refused_once_theirs_have_expired() {
    let sim = Sim::new(4);
    sim.block_on(async {
        let life = Duration::from_secs(180);
        let site = Site::with(&sim, ClusterOptions { certificate_life: life, ..ClusterOptions::default() }).await;
        let admin = site.node(Role::Admin, "admin");
        let own = site.mount(site.node(Role::Client, "n1")).await;
        own.mkdir(&caller(), Fid::ROOT, b"t", 0o777).await.expect("a directory");
        own.sync_all().await.expect("synced");
        let (users, groups) = (Vec::new(), Vec::new());
        let (name, path) = ("t".into(), "/t".into());
        let tenant = TenantInfo { name, path, users, groups, squash_uid: 9, squash_gid: 9, flags: 0, expires_ns: 0 };
        site.ask(admin, &NewTenant { tenant }).await.expect("an admin");
        let (kept, lazy) = (site.join_for(admin, "t", "kept").await, site.join_for(admin, "t", "lazy").await);
        let env = site.sim.env(kept);
        let (saved, renewing) = (Rc::new(Cell::new(0)), env.clone());
        let (counted, mgs) = (saved.clone(), vec![site.cluster.servers[0].address.clone()]);
        env.begin(async move {
            let save = |certificate: &[u8]| {
                assert!(!certificate.is_empty());
                counted.set(counted.get() + 1);
                Ok(())
            };
            forebay_rpc::keep_renewed(&renewing, mgs, save).await;
        });
        let (client, idle) = (site.mount(kept).await, site.mount(lazy).await);
        site.sim.sleep(5 * life).await;
        assert!((6..=9).contains(&saved.get()), "renewed {} times in five lives", saved.get());
        // A connection that lives goes on, and no new one begins.
        idle.mkdir(&caller(), idle.root(), b"d", 0o755).await.expect("its connection is from before");
        let refused =
            forebay_rpc::ask(&site.sim.env(lazy), &[site.cluster.servers[0].address.clone()], &GetMap {}).await;
        let refused = refused.expect_err("its certificate has expired").to_string();
        assert!(refused.contains("client lazy has expired") && refused.contains("new keys"), "{refused}");
        let nodes = site.ask(admin, &ListNodes {}).await.expect("an admin").nodes;
        let now_ns = site.sim.env(admin).unix_time().0;
        let left = |name: &str| nodes.iter().find(|node| node.name == name).expect("a node").expires_ns - now_ns;
        assert!(left("kept") > 0 && left("lazy") < 0 && nodes.iter().all(|node| node.tenant == "t"));
        // New connections with the new certificate, also after the MGS was away when that was due.
        let before = saved.get();
        while saved.get() == before {
            site.sim.sleep(Duration::from_secs(1)).await;
        }
        let before = saved.get();
        site.sim.sleep(life * 2 / 3 - Duration::from_secs(5)).await;
        site.sim.power_cut(site.cluster.servers[0].node);
        site.sim.sleep(Duration::from_secs(25)).await;
        site.boot(0);
        site.sim.sleep(Duration::from_secs(30)).await;
        assert_eq!(saved.get(), before + 1, "it was renewed once the MGS was back");
        for server in [1, 2] {
            site.sim.power_cut(site.cluster.servers[server].node);
            site.boot(server);
        }
        let user = caller();
        let made = client.mkdir(&user, client.root(), b"later", 0o755);
        env.timeout(Duration::from_secs(30), made).await.expect("in time").expect("it goes on");
        let early = site.ask(kept, &Renew {}).await.expect_err("it holds for long");
        assert_eq!(early.errno, Errno::EAGAIN);
        let ban = BanNode { role: "client".into(), name: "kept".into(), lift: false };
        site.ask(admin, &ban).await.expect("an admin");
        let banned = forebay_rpc::ask(&env, &[site.cluster.servers[0].address.clone()], &Renew {}).await;
        assert!(banned.is_err(), "a banned node renews");
    });
}

/// The clock of the joining host is behind by two days: the cluster's certificates are not valid yet for it.
#[test]
fn a_host_whose_clock_is_wrong_by_days_is_told_to_set_it() {
    let sim = Sim::new(5);
    sim.block_on(async {
        let site = Site::of(&sim).await;
        let admin = site.node(Role::Admin, "admin");
        let token = site.token(admin, "ost", "").await;
        let day_ns = 24 * 3600 * 1_000_000_000_i64;
        // A server with a certificate as `forebay up` makes it.
        let now = site.sim.env(admin).unix_time().since_1970();
        let (key, node) = (NodeKey::make().expect("a key"), NodeName::new(UUID, Role::Mds, "fresh").expect("a name"));
        let signed = site.authority.sign(&node, key.public_key(), Validity::of_a_node(now)).expect("signed");
        let root = site.authority.certificate(now.saturating_sub(Duration::from_secs(86_400))).expect("a root");
        site.sim.power_cut(site.cluster.servers[0].node);
        let keys = Keys::new(&root, signed, &key).expect("keys");
        site.sim.set_network(site.cluster.servers[0].node, Network::Keys(Arc::new(keys)));
        site.cluster.boot(0);
        site.sim.sleep(Duration::from_secs(25)).await;
        for (name, by_ns, words) in [
            ("slow", -2 * day_ns, "not valid yet"),
            ("behind", -day_ns / 2, "minutes behind"),
            ("ahead", day_ns, "minutes ahead of"),
            ("far", 5000 * day_ns, "has expired"),
        ] {
            let host = site.newcomer(name, &token);
            site.sim.clock_jump(host, by_ns);
            let request = site.join_request(host, name, &token, &NodeKey::make().expect("a key"));
            let refused = site.ask(host, &request).await.expect_err("its clock is wrong");
            assert!(refused.message.contains(words), "{name}: {refused}");
            assert!(refused.message.contains("set") && refused.message.contains("chrony"), "{name}: {refused}");
        }
        let host = site.newcomer("right", &token);
        let request = site.join_request(host, "right", &token, &NodeKey::make().expect("a key"));
        site.ask(host, &request).await.expect("the token is still good");
    });
}

/// fill, token, ban |power, MDT| write, delete, token
///
/// A client fills the MDT. No host can join then, and the admin is told why. The client can be banned nevertheless, and is after a
/// power cut. Once there is space, hosts join.
#[test]
fn a_full_metadata_target_takes_no_host_and_bans_whoever_has_filled_it() {
    let sim = Sim::new(9);
    sim.block_on(async {
        let slab = 256 << 10;
        let options = ClusterOptions { mdt_bytes: 17 * slab, mdt_slab_bytes: slab, ..ClusterOptions::default() };
        let site = Site::with(&sim, options).await;
        let admin = site.node(Role::Admin, "admin");
        let owner = site.mount(site.node(Role::Client, "owner")).await;
        let client = site.mount(site.node(Role::Client, "n1")).await;
        let mut made = 0;
        let refused = loop {
            match client.mkdir(&caller(), Fid::ROOT, format!("d{made}{}", "x".repeat(200)).as_bytes(), 0o755).await {
                Ok(_) => made += 1,
                Err(error) => break error.errno,
            }
            assert!(made < 100_000, "it takes directories without end");
        };
        assert_eq!(refused, Errno::ENOSPC);
        let new_token = NewToken { role: "ost".into(), ttl_s: 3600, tenant: String::new() };
        let error = site.ask(admin, &new_token).await.expect_err("it is full");
        assert!(error.errno == Errno::ENOSPC && error.message.contains("delete files"), "{error}");
        let ban = BanNode { role: "client".into(), name: "n1".into(), lift: false };
        site.ask(admin, &ban).await.expect("a ban needs no space");
        site.sim.power_cut(site.cluster.servers[0].node);
        site.boot(0);
        let who = caller();
        let write = client.mkdir(&who, Fid::ROOT, b"late", 0o755);
        let written = site.sim.env(admin).timeout(Duration::from_secs(10), write).await;
        assert!(!matches!(written, Ok(Ok(_))), "a banned client has written");
        for number in 0..made {
            let name = format!("d{number}{}", "x".repeat(200));
            owner.rmdir(&caller(), Fid::ROOT, name.as_bytes()).await.expect("it is deleted");
        }
        owner.sync_all().await.expect("synced");
        site.ask(admin, &new_token).await.expect("there is space again");
        let write = client.mkdir(&who, Fid::ROOT, b"later", 0o755);
        let written = site.sim.env(admin).timeout(Duration::from_secs(10), write).await;
        assert!(!matches!(written, Ok(Ok(_))), "a banned client has written");
        let bans = site.ask(admin, &ListNodes {}).await.expect("a list").bans;
        assert!(bans.iter().any(|ban| ban.name == "n1"), "the ban is forgotten");
    });
}
