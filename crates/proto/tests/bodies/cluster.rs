//! Values of the messages about the cluster's nodes.

use forebay_proto::{TargetId, message::*};

use crate::sample::{Numbers, Samples};

pub fn add(samples: &mut Samples) {
    samples.exchange(vec![GetBans {}], vec![bans()]);
    samples.exchange(vec![SetBans { bans: bans() }], vec![Empty {}]);
    let mut n = Numbers::default();
    samples.exchange(
        vec![NewToken { role: n.text(), ttl_s: n.u64(), tenant: n.text() }],
        vec![NewTokenReply { cluster: n.uuid(), authority: n.name(), secret: n.name() }],
    );
    let mut n = Numbers::default();
    let join = Join { secret: n.name(), name: n.text(), key: n.name(), osts: n.u32(), unix_ns: n.i64() };
    let reply = JoinReply {
        cluster: n.uuid(),
        role: n.text(),
        certificate: n.name(),
        authority: n.name(),
        osts: vec![n.u32(), n.u32()],
    };
    samples.exchange(vec![join], vec![reply]);
    let mut n = Numbers::default();
    let target = MapTarget { id: TargetId::ost(n.u32()), uuid: n.uuid(), addresses: vec![n.text()] };
    samples.exchange(vec![Register { targets: vec![target] }], vec![super::common::map()]);
    samples.exchange(vec![ListNodes {}], vec![nodes()]);
    let mut n = Numbers::default();
    samples.exchange(vec![BanNode { role: n.text(), name: n.text(), lift: true }], vec![Empty {}]);
    samples.exchange(vec![RemoveNode { role: n.text(), name: n.text() }], vec![Empty {}]);
    samples.exchange(vec![NewTenant { tenant: tenant() }], vec![Empty {}]);
    samples.exchange(vec![ListTenants {}], vec![ListTenantsReply { tenants: vec![tenant()] }]);
    let mut n = Numbers::default();
    samples.exchange(vec![RemoveTenant { name: n.text() }], vec![Empty {}]);
    let root = RootReply { root: n.fid(), tenant: Some(tenant()) };
    samples.exchange(vec![GetRoot {}], vec![root]);
    samples.exchange(vec![NewMappedTenant { tenant: tenant(), maps: maps() }], vec![Empty {}]);
    let mapped = TenantMaps { name: n.text(), maps: maps() };
    samples.exchange(vec![ListIdMaps {}], vec![ListIdMapsReply { tenants: vec![mapped] }]);
    samples.exchange(vec![Renew {}], vec![RenewReply { certificate: n.name() }]);
}

fn tenant() -> TenantInfo {
    let mut n = Numbers::default();
    let mut range = || IdRange { first: n.u32(), last: n.u32() };
    let (users, groups) = (vec![range(), range()], vec![range()]);
    TenantInfo {
        name: n.text(),
        path: n.text(),
        users,
        groups,
        squash_uid: n.u32(),
        squash_gid: n.u32(),
        flags: n.u32(),
        expires_ns: n.i64(),
    }
}

fn maps() -> IdMaps {
    let mut n = Numbers::default();
    let mut map = || IdMap { host: n.u32(), fs: n.u32(), count: n.u32() };
    IdMaps { users: vec![map(), map()], groups: vec![map()] }
}

fn ban(n: &mut Numbers) -> Ban {
    Ban { role: n.text(), name: n.text(), key: n.name() }
}

fn bans() -> Bans {
    let mut n = Numbers::default();
    Bans { epoch: n.u32(), bans: vec![ban(&mut n), ban(&mut n)] }
}

fn nodes() -> ListNodesReply {
    let mut n = Numbers::default();
    let node = NodeInfo {
        role: n.text(),
        name: n.text(),
        joined_ns: n.i64(),
        expires_ns: n.i64(),
        banned: true,
        targets: vec![TargetId::ost(n.u32())],
        tenant: n.text(),
    };
    let token = TokenInfo { role: n.text(), expires_ns: n.i64(), tenant: n.text() };
    ListNodesReply { epoch: n.u32(), nodes: vec![node], bans: vec![ban(&mut n)], tokens: vec![token] }
}
