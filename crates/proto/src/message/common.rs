//! Messages every target understands: sessions, recovery, sync, status.

use crate::{ClientId, Fid, Incarnation, SessionId, TargetId, Transno, Uuid, wire_struct};

wire_struct! {
    /// A reply without content.
    pub struct Empty {}
}

/// Bits of [`Connect::features`].
pub mod features {
    /// [`super::set_attr::ACCESSED`].
    pub const ACCESS_TIMES: u64 = 1;
    /// All that this program understands.
    pub const ALL: u64 = ACCESS_TIMES;
}

wire_struct! {
    /// Begins a session, or resumes it after a lost connection or a restart of the target.
    pub struct Connect {
        /// The cluster the client belongs to; zero if it does not know yet.
        pub cluster: Uuid,
        /// The target it means to reach; a server refuses when it serves another.
        pub target: TargetId,
        /// The client, new at each start of its process.
        pub client: ClientId,
        /// What the client is: `mount host:/path`, `MDT0000`, ... for status and logs.
        pub description: String,
        /// Feature bits the client understands.
        pub features: u64,
        /// The session to resume; 0 for a new one.
        pub session: SessionId,
        /// Highest `last_committed` the client has seen from this target.
        pub last_committed: Transno,
        /// What the client keeps back counts on so much of what the target granted the session: after a restart it is granted again.
        pub granted_bytes: u64,
    }
}

wire_struct! {
    /// The session begins or goes on.
    pub struct ConnectReply {
        /// The cluster.
        pub cluster: Uuid,
        /// The target's own uuid.
        pub target_uuid: Uuid,
        /// The target's incarnation; a change since the last connect means that it restarted: replay.
        pub incarnation: Incarnation,
        /// The session; if it is not the one asked for, the old one is unknown (evicted).
        pub session: SessionId,
        /// Slots of the session.
        pub slots: u16,
        /// Feature bits both sides understand.
        pub features: u64,
        /// True while the target recovers: send replays, `ReplayDone`, reclaims, `ReclaimDone`, then resend.
        pub recovering: bool,
        /// How long recovery lasts at most, in milliseconds.
        pub window_ms: u32,
        /// Highest durable transno: what is at or below it needs no replay.
        pub last_committed: Transno,
    }
}

wire_struct! {
    /// Ends a session for good.
    pub struct Disconnect {}
}

wire_struct! {
    /// Asks for `last_committed` (in the reply's header) and keeps the session alive.
    pub struct Ping {
        /// Also close the running transaction now.
        pub commit: bool,
    }
}

wire_struct! {
    /// This session has replayed all it had.
    pub struct ReplayDone {}
}

wire_struct! {
    /// This session has reclaimed all it held.
    pub struct ReclaimDone {}
}

wire_struct! {
    /// Replied when everything applied before it is committed.
    pub struct Sync {
        /// Only what concerns this file; `None` = everything.
        pub fid: Option<Fid>,
    }
}

wire_struct! {
    /// Everything asked for is durable.
    pub struct SyncReply {
        /// The incarnation in which it was made durable.
        pub incarnation: Incarnation,
    }
}

wire_struct! {
    /// Asks for the target's state.
    pub struct Status {}
}

wire_struct! {
    /// The target's state.
    pub struct StatusReply {
        /// A JSON object with the keys that `forebay status --json` shows of a target.
        pub json: String,
    }
}

wire_struct! {
    /// Asks for the cluster's map.
    pub struct GetMap {}
}

wire_struct! {
    /// One target of the cluster's map.
    pub struct MapTarget {
        /// Its name.
        pub id: TargetId,
        /// Its uuid; zero while it was never started.
        pub uuid: Uuid,
        /// Where it can be reached, best first (`unix:...`, `tcp:HOST:PORT`, `mem:...`).
        pub addresses: Vec<String>,
    }
}

wire_struct! {
    /// The cluster's map.
    pub struct ClusterMap {
        /// The cluster.
        pub cluster: Uuid,
        /// Raised at each change of the map.
        pub epoch: u32,
        /// All targets, ordered.
        pub targets: Vec<MapTarget>,
    }
}

wire_struct! {
    /// Ends `client`'s session on this target and refuses whatever it sends later (from an MDT, before it lets go of what
    /// the client held).
    pub struct Fence {
        /// Whom to fence.
        pub client: ClientId,
    }
}
