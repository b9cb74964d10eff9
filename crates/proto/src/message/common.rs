//! Messages that every target understands: sessions, recovery, sync, status.

use crate::{ClientId, Fid, Incarnation, SessionId, TargetId, Transno, Uuid, wire_struct};

wire_struct! {
    /// A reply without content.
    pub struct Empty {}
}

/// Bits of [`Connect::features`].
pub mod features {
    /// Understands [`super::set_attr::ACCESSED`].
    pub const ACCESS_TIMES: u64 = 1;
    /// Understands [`super::FenceLayout`].
    pub const LAYOUT_FENCES: u64 = 2;
    /// Understands [`super::JoinRail`], and counts its frames ([`super::FrameHeader::order`]).
    pub const RAILS: u64 = 4;
    /// All features that this program understands.
    pub const ALL: u64 = ACCESS_TIMES | LAYOUT_FENCES | RAILS;
}

wire_struct! {
    /// Begins a session, or resumes it after a lost connection or a restart of the target.
    pub struct Connect {
        /// The cluster the client belongs to; zero if it does not know yet.
        pub cluster: Uuid,
        /// The target it means to reach; a server of another target refuses.
        pub target: TargetId,
        /// The client, new at each start of its process.
        pub client: ClientId,
        /// Description of the client (`mount host:/path`, `MDT0000`, ...), for status and logs.
        pub description: String,
        /// Feature bits the client understands.
        pub features: u64,
        /// The session to resume; 0 for a new one.
        pub session: SessionId,
        /// Highest `last_committed` the client has seen from this target.
        pub last_committed: Transno,
        /// Granted space that the client's delayed writes rely on: after a restart the target grants it again.
        pub granted_bytes: u64,
    }
}

wire_struct! {
    /// Makes the stream one more of the connection that the session has now ([`features::RAILS`]). The first request of a stream; after its
    /// reply the stream carries frames of that connection, both ways.
    pub struct JoinRail {
        /// The target.
        pub target: TargetId,
        /// The target's own uuid.
        pub target_uuid: Uuid,
        /// The session.
        pub session: SessionId,
        /// Whose it is.
        pub client: ClientId,
        /// The connection: the sequence of the frame with its Connect.
        pub connection: u64,
    }
}

wire_struct! {
    /// The session begins or resumes.
    pub struct ConnectReply {
        /// The cluster.
        pub cluster: Uuid,
        /// The target's own uuid.
        pub target_uuid: Uuid,
        /// The target's incarnation; a change since the last connect means that it restarted: replay.
        pub incarnation: Incarnation,
        /// The session. If it is not the one asked for, the target does not know that one any more (evicted).
        pub session: SessionId,
        /// Slots of the session.
        pub slots: u16,
        /// Feature bits both sides understand.
        pub features: u64,
        /// True while the target recovers: send replays, `ReplayDone`, reclaims, `ReclaimDone`, then resend.
        pub recovering: bool,
        /// How long recovery lasts at most, in milliseconds.
        pub window_ms: u32,
        /// Highest durable transno: requests at or below it need no replay.
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
    /// This session has no more replays.
    pub struct ReplayDone {}
}

wire_struct! {
    /// This session has reclaimed all that it held.
    pub struct ReclaimDone {}
}

wire_struct! {
    /// Replied when everything applied before it is committed.
    pub struct Sync {
        /// Wait only for changes of this file; `None` = all changes.
        pub fid: Option<Fid>,
    }
}

wire_struct! {
    /// The requested changes are durable.
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
        /// A JSON object with the keys that `forebay status --json` shows for a target.
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
        /// Its uuid; zero until its first start.
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
    /// Ends `client`'s session on this target and refuses its later requests. An MDT sends it before it releases what
    /// the client held.
    pub struct Fence {
        /// The client to fence.
        pub client: ClientId,
    }
}
