//! Values of the messages that every target understands.

use forebay_proto::{Incarnation, SessionId, TargetId, Transno, message::*};

use crate::sample::{Numbers, Samples};

pub fn add(samples: &mut Samples) {
    samples.exchange(vec![connect()], vec![connect_reply(true), connect_reply(false)]);
    samples.exchange(vec![Disconnect {}], vec![Empty {}]);
    samples.exchange(vec![Ping { commit: true }, Ping { commit: false }], vec![Empty {}]);
    samples.exchange(vec![ReplayDone {}], vec![Empty {}]);
    samples.exchange(vec![ReclaimDone {}], vec![Empty {}]);
    let mut n = Numbers::default();
    samples.exchange(
        vec![Sync { fid: Some(n.fid()) }, Sync { fid: None }],
        vec![SyncReply { incarnation: Incarnation(n.u32()) }],
    );
    samples.exchange(vec![Status {}], vec![StatusReply { json: "{\"state\": \"läuft\"}".into() }]);
    samples.exchange(vec![GetMap {}], vec![map()]);
    samples.exchange(vec![Fence { client: n.uuid() }], vec![Empty {}]);
    samples.exchange(vec![join_rail()], vec![Empty {}]);
}

fn join_rail() -> JoinRail {
    let mut n = Numbers::default();
    JoinRail {
        target: TargetId::ost(n.u32()),
        target_uuid: n.uuid(),
        session: SessionId(n.u64()),
        client: n.uuid(),
        connection: n.u64(),
    }
}

fn connect() -> Connect {
    let mut n = Numbers::default();
    Connect {
        cluster: n.uuid(),
        target: TargetId::mdt(n.u32()),
        client: n.uuid(),
        description: n.text(),
        features: n.u64(),
        session: SessionId(n.u64()),
        last_committed: Transno(n.u64()),
        granted_bytes: n.u64(),
    }
}

fn connect_reply(recovering: bool) -> ConnectReply {
    let mut n = Numbers::default();
    ConnectReply {
        cluster: n.uuid(),
        target_uuid: n.uuid(),
        incarnation: Incarnation(n.u32()),
        session: SessionId(n.u64()),
        slots: n.u16(),
        features: n.u64(),
        recovering,
        window_ms: n.u32(),
        last_committed: Transno(n.u64()),
    }
}

pub fn map() -> ClusterMap {
    let mut n = Numbers::default();
    let cluster = n.uuid();
    let epoch = n.u32();
    let mdt = MapTarget { id: TargetId::mdt(n.u32()), uuid: n.uuid(), addresses: vec![n.text(), n.text()] };
    let ost = MapTarget { id: TargetId::ost(n.u32()), uuid: n.uuid(), addresses: Vec::new() };
    ClusterMap { cluster, epoch, targets: vec![mdt, ost] }
}
