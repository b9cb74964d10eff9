//! Messages about the cluster itself: which nodes it has, how others join, and who is banned. The MGS (MDT0000's server)
//! executes them. They need no session, and all but [`Join`] need a certificate, or a Unix socket of the server's user.
//!
//! Roles are words (`mds`, `ost`, `client`, `router`, `admin`). Public keys are Ed25519, 32 bytes.

use bytes::Bytes;

use super::MapTarget;
use crate::{TargetId, Uuid, wire_struct};

wire_struct! {
    /// A node that nobody talks to any more.
    pub struct Ban {
        /// Its role and name, for those without a known key and for logs.
        pub role: String,
        /// Its name.
        pub name: String,
        /// Its public key. Empty: every node of that role and name is banned.
        pub key: Bytes,
    }
}

wire_struct! {
    /// Asks who is banned.
    pub struct GetBans {}
}

wire_struct! {
    /// Who is banned.
    pub struct Bans {
        /// Epoch of the map that they belong to.
        pub epoch: u32,
        /// All bans.
        pub bans: Vec<Ban>,
    }
}

wire_struct! {
    /// Tells an OST who is banned (from the MDT).
    pub struct SetBans {
        /// The bans.
        pub bans: Bans,
    }
}

wire_struct! {
    /// Makes a token, with which one host can join.
    pub struct NewToken {
        /// What the host will be.
        pub role: String,
        /// How long it may be used, in seconds.
        pub ttl_s: u64,
    }
}

wire_struct! {
    /// The token's parts.
    pub struct NewTokenReply {
        /// The cluster.
        pub cluster: Uuid,
        /// Public key of the cluster's authority: by it the joining host knows the MGS.
        pub authority: Bytes,
        /// The secret, 16 bytes. The MGS keeps only its hash.
        pub secret: Bytes,
    }
}

wire_struct! {
    /// Makes the sender a node of the cluster. Sent again with the same secret and key, it has the same reply.
    pub struct Join {
        /// The token's secret.
        pub secret: Bytes,
        /// The host's name in the cluster.
        pub name: String,
        /// Its public key.
        pub key: Bytes,
        /// How many OSTs it is going to serve.
        pub osts: u32,
        /// Its Unix time.
        pub unix_ns: i64,
    }
}

wire_struct! {
    /// The sender is a node now.
    pub struct JoinReply {
        /// The cluster.
        pub cluster: Uuid,
        /// Its role.
        pub role: String,
        /// Its certificate (DER).
        pub certificate: Bytes,
        /// The authority's certificate (DER).
        pub authority: Bytes,
        /// Indices of its OSTs.
        pub osts: Vec<u32>,
    }
}

wire_struct! {
    /// Tells where a node's targets can be reached.
    pub struct Register {
        /// Targets of the sender.
        pub targets: Vec<MapTarget>,
    }
}

wire_struct! {
    /// Asks for all nodes.
    pub struct ListNodes {}
}

wire_struct! {
    /// A node.
    pub struct NodeInfo {
        /// Its role.
        pub role: String,
        /// Its name.
        pub name: String,
        /// When it joined, Unix time.
        pub joined_ns: i64,
        /// When its certificate ends, Unix time.
        pub expires_ns: i64,
        /// True if it is banned.
        pub banned: bool,
        /// Its targets.
        pub targets: Vec<TargetId>,
    }
}

wire_struct! {
    /// A token that nobody has used.
    pub struct TokenInfo {
        /// What its user will be.
        pub role: String,
        /// When it ends, Unix time.
        pub expires_ns: i64,
    }
}

wire_struct! {
    /// The nodes that joined, and who may still join.
    pub struct ListNodesReply {
        /// Epoch of the map.
        pub epoch: u32,
        /// Nodes, ordered by name.
        pub nodes: Vec<NodeInfo>,
        /// Bans of nodes that did not join with a token, or were removed.
        pub bans: Vec<Ban>,
        /// Tokens that can be used.
        pub tokens: Vec<TokenInfo>,
    }
}

wire_struct! {
    /// Bans a node, or ends its ban.
    pub struct BanNode {
        /// Its role; empty if the name tells.
        pub role: String,
        /// Its name.
        pub name: String,
        /// True to end the ban.
        pub lift: bool,
    }
}

wire_struct! {
    /// Removes a node: its key is banned, and its name is free.
    pub struct RemoveNode {
        /// Its role; empty if the name tells.
        pub role: String,
        /// Its name.
        pub name: String,
    }
}
