use std::{collections::BTreeSet, time::Duration};

use forebay_keys::secret_hash;
use forebay_proto::{
    TargetId, Uuid,
    message::{IdMap, IdRange, Join, NewToken},
};

use super::*;

const CLUSTER: Uuid = Uuid([3; 16]);
const NOW_NS: i64 = 1_800_000_000_000_000_000;
const ROOT: Fid = Fid { high: 0, low: 77 };
const LIFE: Duration = Duration::from_secs(3600);

fn commit(members: &mut Members, edits: Edits) {
    for (key, value) in members.rows_of(edits) {
        members.row(key.as_ref(), value.as_deref()).expect("a row");
    }
}

fn tenant(name: &str) -> TenantInfo {
    TenantInfo { name: name.into(), path: "/a".into(), ..nobody() }
}

fn add(members: &mut Members, name: &str) -> u32 {
    let project = members.next_project(&tenant(name)).expect("a project");
    let edits = members.new_tenant(project, (ROOT, true), (&tenant(name), &IdMaps::default()));
    commit(members, edits);
    project
}

fn token(members: &mut Members, role: &str, tenant: &str) -> Result<[u8; 16], ErrorReply> {
    let secret = [members.list(1, NOW_NS).nodes.len() as u8; 16];
    let request = NewToken { role: role.into(), ttl_s: 60, tenant: tenant.into() };
    let edits = members.new_token(&request, secret_hash(&secret), NOW_NS)?;
    commit(members, edits);
    Ok(secret)
}

fn join(members: &mut Members, secret: [u8; 16], number: u8) -> PublicKey {
    let (secret, key) = (secret.to_vec().into(), vec![number; 32].into());
    let request = Join { secret, name: format!("n{number}"), key, osts: 0, unix_ns: NOW_NS };
    let described = BTreeSet::from([TargetId::mdt(0)]);
    let joining = members.join(&request, CLUSTER, &described, (NOW_NS, NOW_NS + 1)).expect("it joins");
    commit(members, joining.edits);
    PublicKey([number; 32])
}

#[test]
fn a_node_has_the_tenant_of_its_token_until_it_is_removed() {
    let mut members = Members::default();
    let (one, two) = (add(&mut members, "one"), add(&mut members, "two"));
    assert_ne!(one, two);
    let secret = token(&mut members, "client", "two").expect("a token");
    assert_eq!(members.list(1, NOW_NS).tokens[0].tenant, "two");
    let node = join(&mut members, secret, 5);
    let of = members.tenant_of(&node).expect("it has one");
    assert_eq!((of.project, of.root, of.info.name.as_str()), (two, ROOT, "two"));
    assert_eq!(members.list(1, NOW_NS).nodes[0].tenant, "two");
    let free = token(&mut members, "client", "").expect("a token");
    let own = join(&mut members, free, 6);
    assert_eq!(members.tenant_of(&own), None, "one of the admin's own");
    assert_eq!(members.remove_tenant("two").expect_err("it has a node").errno, Errno::EBUSY);
    let edits = members.remove("client", "n5").expect("it serves nothing");
    commit(&mut members, edits);
    let edits = members.remove_tenant("two").expect("it has no nodes");
    commit(&mut members, edits);
    assert_eq!(members.list_tenants().tenants.len(), 1);
    assert_eq!(add(&mut members, "two"), two + 1, "files of the former may be there");
}

#[test]
fn id_maps_stay_with_their_tenant_until_it_is_removed() {
    let mut members = Members::default();
    add(&mut members, "plain");
    let project = members.next_project(&tenant("mapped")).expect("a project");
    let maps = IdMaps { users: vec![IdMap { host: 1, fs: 1000, count: 5 }], groups: Vec::new() };
    let edits = members.new_tenant(project, (ROOT, true), (&tenant("mapped"), &maps));
    commit(&mut members, edits);
    let listed = |members: &Members| members.list_id_maps().tenants;
    assert_eq!(listed(&members), [TenantMaps { name: "mapped".into(), maps: maps.clone() }]);
    let secret = token(&mut members, "client", "mapped").expect("a token");
    let node = join(&mut members, secret, 5);
    assert_eq!(*members.tenant_of(&node).expect("it has one").maps, maps);
    assert!(members.remove_tenant("mapped").is_err(), "it has a node");
    let edits = members.remove("client", "n5").expect("it serves nothing");
    commit(&mut members, edits);
    let edits = members.remove_tenant("mapped").expect("it has no nodes");
    commit(&mut members, edits);
    assert!(listed(&members).is_empty());
}

#[test]
fn only_clients_have_a_tenant_and_it_must_exist() {
    let mut members = Members::default();
    add(&mut members, "one");
    assert!(token(&mut members, "ost", "one").expect_err("a server").message.contains("serves all tenants"));
    assert_eq!(token(&mut members, "client", "none").expect_err("no such tenant").errno, Errno::ENOENT);
    assert_eq!(members.next_project(&tenant("one")).expect_err("it is there").errno, Errno::EEXIST);
    let long = "a".repeat(33);
    for wrong in ["", "A", "a b", "a/b", long.as_str()] {
        assert_eq!(members.next_project(&tenant(wrong)).expect_err("a wrong name").errno, Errno::EINVAL, "{wrong}");
    }
    let to_root = TenantInfo { squash_uid: 0, ..tenant("b") };
    let backwards = TenantInfo { users: vec![IdRange { first: 2, last: 1 }], ..tenant("b") };
    assert!([to_root, backwards].iter().all(|tenant| members.next_project(tenant).is_err()));
}

#[test]
fn the_key_of_capabilities_changes_with_time_and_osts_take_the_one_before_and_after() {
    let mut members = Members::default();
    assert!(members.signing_key().is_none() && members.signing_keys().is_none());
    let first = members.next_signing(NOW_NS, LIFE).expect("the first");
    commit(&mut members, first);
    let numbers = |members: &Members| members.signing_keys().expect("keys").map(|key| key.number());
    assert_eq!((members.signing_key().expect("a key").number(), numbers(&members)), (2, [1, 2, 3]));
    let life_ns = LIFE.as_nanos() as i64;
    assert!(members.next_signing(NOW_NS + life_ns - 1, LIFE).is_none());
    for (now_ns, expected) in [(NOW_NS + life_ns, [2, 3, 4]), (NOW_NS - life_ns, [3, 4, 5])] {
        let before = members.signing_keys().expect("keys");
        let next = members.next_signing(now_ns, LIFE).expect("it is time, or the clock has jumped");
        commit(&mut members, next);
        assert_eq!(numbers(&members), expected);
        assert_eq!(members.signing_keys().expect("keys")[0], before[1]);
    }
}
