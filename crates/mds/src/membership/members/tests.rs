use super::*;

const CLUSTER: Uuid = Uuid([3; 16]);
const NOW_NS: i64 = 1_800_000_000_000_000_000;
const SECOND: i64 = 1_000_000_000;
const SECRET: [u8; 16] = [5; 16];

/// The members, and their rows as a store would have them.
#[derive(Default)]
struct World {
    members: Members,
    rows: BTreeMap<Key, Vec<u8>>,
}

impl World {
    fn commit(&mut self, edits: Edits) {
        for (key, value) in self.members.rows_of(edits) {
            self.members.row(key.as_ref(), value.as_deref()).expect("a row");
            match value {
                Some(value) => drop(self.rows.insert(key, value)),
                None => drop(self.rows.remove(&key)),
            }
        }
        let mut again = Members::default();
        self.rows.iter().for_each(|(key, value)| again.row(key.as_ref(), Some(value)).expect("a row"));
        assert_eq!(format!("{again:?}"), format!("{:?}", self.members), "a restart finds the same");
    }

    fn token(&mut self, role: &str, secret: &[u8; 16]) {
        let edits = self.members.new_token(&of(role, 60), secret_hash(secret), NOW_NS);
        self.commit(edits.expect("a token"));
    }

    fn join(&mut self, request: &Join, now_ns: i64) -> Result<Joining, ErrorReply> {
        let described = BTreeSet::from([TargetId::mdt(0), TargetId::ost(0), TargetId::ost(1)]);
        let joining = self.members.join(request, CLUSTER, &described, (now_ns, now_ns + 1000))?;
        let Joining { edits, role, osts } = joining;
        self.commit(edits);
        Ok(Joining { edits: Edits::default(), role, osts })
    }

    fn map(&self) -> ClusterMap {
        let target = |id| MapTarget { id, uuid: Uuid::default(), addresses: vec!["tcp:10.0.0.1:1".into()] };
        let targets = [TargetId::mdt(0), TargetId::ost(0), TargetId::ost(1)].map(target).to_vec();
        self.members.map(ClusterMap { cluster: CLUSTER, epoch: 1, targets })
    }

    fn bans(&self) -> Vec<Ban> {
        self.members.bans(1).bans
    }
}

fn of(role: &str, ttl_s: u64) -> NewToken {
    NewToken { role: role.into(), ttl_s, tenant: String::new() }
}

fn host(name: &str, number: u8, osts: u32) -> Join {
    let (secret, key) = (SECRET.to_vec().into(), vec![number; 32].into());
    Join { secret, name: name.into(), key, osts, unix_ns: NOW_NS }
}

fn refused<T: std::fmt::Debug>(result: Result<T, ErrorReply>, words: &str) {
    let error = result.expect_err(words);
    assert!(error.message.contains(words), "{error}");
}

#[test]
fn a_host_joins_once_with_a_token_and_its_osts_are_on_the_map_when_they_have_registered() {
    let mut world = World::default();
    world.token("ost", &SECRET);
    assert_eq!(world.map().epoch, 1);
    let joining = world.join(&host("h2", 2, 2), NOW_NS).expect("it joins");
    assert_eq!((joining.role, &joining.osts[..]), (Role::Ost, &[2, 3][..]));
    assert_eq!(world.join(&host("h2", 2, 2), NOW_NS).expect("the reply was lost").osts, [2, 3]);
    refused(world.join(&host("h3", 3, 1), NOW_NS), "ost h2 has joined with this token");
    assert_eq!((world.map().epoch, world.map().targets.len()), (1, 3), "nobody can reach them yet");
    let listed = |index, address: &str| MapTarget {
        id: TargetId::ost(index),
        uuid: Uuid([9; 16]),
        addresses: vec![address.into()],
    };
    let key = PublicKey([2; 32]);
    let both = [listed(2, "tcp:10.0.0.2:1"), listed(3, "tcp:10.0.0.2:2")];
    world.commit(world.members.register(&key, &both).expect("its own"));
    assert_eq!((world.map().epoch, world.map().targets.len()), (2, 5));
    assert_eq!(world.members.register(&key, &both), Ok(Edits::default()), "nothing is new");
    world.commit(world.members.register(&key, &[listed(3, "tcp:10.0.0.9:2")]).expect("it has moved"));
    assert_eq!((world.map().epoch, &world.map().targets[4].addresses[..]), (3, &["tcp:10.0.0.9:2".to_owned()][..]));
    refused(world.members.register(&PublicKey([3; 32]), &both), "is not a target of this node");
    refused(world.members.register(&key, &[listed(0, "tcp:10.0.0.2:1")]), "is not a target of this node");
    let anew = MapTarget { uuid: Uuid([8; 16]), ..listed(2, "tcp:10.0.0.2:1") };
    refused(world.members.register(&key, &[anew]), "formatted anew");
    refused(world.members.register(&key, &[listed(2, "here")]), "1 to 16 addresses");
    refused(world.members.remove("", "h2"), "files may lie on OST0002");
}

#[test]
fn whoever_may_not_join_is_told_why() {
    let mut world = World::default();
    refused(world.join(&host("h2", 2, 1), NOW_NS), "does not know this token");
    world.token("ost", &SECRET);
    refused(world.join(&host("h2", 2, 1), NOW_NS + 61 * SECOND), "the token has ended");
    refused(world.join(&host("h2", 2, 0), NOW_NS), "give --osts");
    refused(world.join(&host("h 2", 2, 1), NOW_NS), "cannot be a node's name");
    refused(world.join(&host("h2", 2, 2000), NOW_NS), "at most 2000 OSTs");
    let day = 24 * 3600 * SECOND;
    refused(world.join(&Join { unix_ns: NOW_NS + day, ..host("h2", 2, 1) }, NOW_NS), "1440 minutes ahead of");
    refused(world.join(&Join { unix_ns: NOW_NS - day, ..host("h2", 2, 1) }, NOW_NS), "1440 minutes behind");
    refused(world.join(&Join { key: vec![2; 31].into(), ..host("h2", 2, 1) }, NOW_NS), "32 bytes");
    world.join(&host("h2", 2, 1), NOW_NS).expect("it joins");
    world.token("client", &[6; 16]);
    let client = |name: &str, number| Join { secret: vec![6; 16].into(), ..host(name, number, 0) };
    refused(world.join(&Join { osts: 1, ..client("c1", 4) }, NOW_NS), "leave --osts out");
    refused(world.join(&client("c1", 2), NOW_NS), "joined as ost h2 before");
    world.join(&client("h2", 4), NOW_NS).expect("the same name in another role");
    world.token("ost", &[7; 16]);
    let double = Join { secret: vec![7; 16].into(), ..host("h2", 5, 1) };
    refused(world.join(&double, NOW_NS), "has ost h2 already");
}

#[test]
fn tokens_are_for_roles_that_can_join_and_end() {
    let mut world = World::default();
    for role in ["mds", "router"] {
        refused(world.members.new_token(&of(role, 60), [0; 32], NOW_NS), "no host joins as");
    }
    refused(world.members.new_token(&of("king", 60), [0; 32], NOW_NS), "not a role");
    for ttl in [0, 31 * 24 * 3600] {
        refused(world.members.new_token(&of("ost", ttl), [0; 32], NOW_NS), "30 days");
    }
    for number in 0..limits::TOKENS as u32 {
        let mut hash = [0; 32];
        hash[..4].copy_from_slice(&number.to_le_bytes());
        let edits = world.members.new_token(&of("ost", 60), hash, NOW_NS).expect("a token");
        edits.rows.iter().for_each(|(key, value)| {
            world.members.row(key.as_ref(), value.as_deref()).expect("a row");
        });
    }
    refused(world.members.new_token(&of("ost", 60), [1; 32], NOW_NS), "1000 tokens");
    world.members.new_token(&of("ost", 60), [1; 32], NOW_NS + 61 * SECOND).expect("those have ended");
    assert_eq!(world.members.list(1, NOW_NS).tokens.len(), 1000);
    assert_eq!(world.members.list(1, NOW_NS + 61 * SECOND).tokens.len(), 0);
}

#[test]
fn a_ban_meets_the_key_of_a_node_and_a_removed_node_stays_out_while_its_name_is_free() {
    let mut world = World::default();
    world.token("client", &SECRET);
    world.join(&host("c1", 2, 0), NOW_NS).expect("it joins");
    refused(world.members.ban(CLUSTER, "", "c2", false), "no node called c2");
    refused(world.members.ban(CLUSTER, "", "c1", true), "no node called c1 is banned");
    world.commit(world.members.ban(CLUSTER, "", "c1", false).expect("banned"));
    assert_eq!((world.bans()[0].key.len(), world.map().epoch), (32, 2));
    assert!(world.members.list(2, NOW_NS).nodes[0].banned);
    world.commit(world.members.ban(CLUSTER, "client", "c1", true).expect("lifted"));
    assert_eq!((world.bans(), world.map().epoch), (vec![], 3));
    // By name alone, as for keys that were made by hand.
    world.commit(world.members.ban(CLUSTER, "ost", "by-hand", false).expect("banned"));
    assert_eq!((world.bans()[0].key.len(), world.bans()[0].role.as_str()), (0, "ost"));
    world.commit(world.members.ban(CLUSTER, "", "by-hand", true).expect("lifted"));
    world.commit(world.members.remove("", "c1").expect("removed"));
    assert_eq!((world.bans()[0].name.as_str(), world.bans()[0].key.len()), ("c1", 32));
    refused(world.members.ban(CLUSTER, "", "c1", true), "was removed from the cluster");
    let list = world.members.list(4, NOW_NS);
    assert_eq!((list.nodes.len(), list.bans.len()), (0, 1));
    world.token("client", &[6; 16]);
    let again = Join { secret: vec![6; 16].into(), ..host("c1", 3, 0) };
    world.join(&again, NOW_NS).expect("the name is free");
    assert!(!world.members.list(4, NOW_NS).nodes[0].banned);
}

#[test]
fn a_name_of_two_roles_needs_the_role() {
    let mut world = World::default();
    world.token("client", &SECRET);
    world.join(&host("h", 2, 0), NOW_NS).expect("it joins");
    world.token("admin", &[6; 16]);
    world.join(&Join { secret: vec![6; 16].into(), ..host("h", 3, 0) }, NOW_NS).expect("it joins");
    refused(world.members.remove("", "h"), "give --role");
    world.commit(world.members.remove("admin", "h").expect("removed"));
    assert_eq!(world.members.list(1, NOW_NS).nodes[0].role, "client");
}

#[test]
fn a_renewed_node_is_listed_with_its_new_end_and_keys_made_by_hand_have_no_row() {
    let mut world = World::default();
    world.token("ost", &SECRET);
    world.join(&host("h2", 2, 1), NOW_NS).expect("it joins");
    let before = world.members.list(1, NOW_NS).nodes[0].clone();
    world.commit(world.members.renew(&PublicKey([2; 32]), before.expires_ns + SECOND));
    let after = world.members.list(1, NOW_NS).nodes[0].clone();
    assert_eq!(after, NodeInfo { expires_ns: before.expires_ns + SECOND, ..before });
    assert_eq!(world.members.renew(&PublicKey([9; 32]), 5), Edits::default());
    assert_eq!(world.map().epoch, 1, "the map is the same");
}
