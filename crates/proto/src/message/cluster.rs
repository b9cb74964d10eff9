//! Messages about the cluster itself: which nodes it has, how others join, and who is banned. The MGS (MDT0000's server)
//! executes them. They need no session, and all but [`Join`] need a certificate, or a Unix socket of the server's user.
//!
//! Roles are words (`mds`, `ost`, `client`, `router`, `admin`). Public keys are Ed25519, 32 bytes.

use bytes::Bytes;

use super::{Caller, MapTarget};
use crate::{Fid, TargetId, Uuid, wire_struct};

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
        /// The tenant of the client that uses it; empty: none.
        pub tenant: String,
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
        /// Its tenant; empty: none.
        pub tenant: String,
    }
}

wire_struct! {
    /// A token that nobody has used.
    pub struct TokenInfo {
        /// What its user will be.
        pub role: String,
        /// When it ends, Unix time.
        pub expires_ns: i64,
        /// The tenant of the client that uses it; empty: none.
        pub tenant: String,
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

/// Bits of [`TenantInfo::flags`].
pub mod tenant_flags {
    /// Its nodes change nothing.
    pub const READ_ONLY: u32 = 1;
    /// User 0 of its nodes stays user 0, within the subtree.
    pub const ROOT: u32 = 2;
    /// Of a [`super::RootReply`]: ids are those of the node, and [`super::UNMAPPED_ID`] stands for any that it does not
    /// have.
    pub const MAPPED: u32 = 4;
}

wire_struct! {
    /// User or group ids, both ends included.
    pub struct IdRange {
        /// First.
        pub first: u32,
        /// Last.
        pub last: u32,
    }
}

wire_struct! {
    /// A tenant: what the nodes that joined for it may do.
    pub struct TenantInfo {
        /// Its name.
        pub name: String,
        /// Path of its subtree; for people, as the directory may be renamed.
        pub path: String,
        /// Users that its nodes may act as; empty: all but 0.
        pub users: Vec<IdRange>,
        /// Groups that they may act as; empty: all but 0.
        pub groups: Vec<IdRange>,
        /// Who everybody else is.
        pub squash_uid: u32,
        /// The group of everybody else.
        pub squash_gid: u32,
        /// [`tenant_flags`].
        pub flags: u32,
        /// When its nodes lose their access, Unix time; 0: never.
        pub expires_ns: i64,
    }
}

impl TenantInfo {
    /// Whether its nodes may act as this user.
    pub fn allows_user(&self, uid: u32) -> bool {
        self.allows(&self.users, uid)
    }

    /// Whether its nodes may act as this group.
    pub fn allows_group(&self, gid: u32) -> bool {
        self.allows(&self.groups, gid)
    }

    /// User and group 0 are allowed only by [`tenant_flags::ROOT`], whatever the ranges are.
    fn allows(&self, ranges: &[IdRange], id: u32) -> bool {
        match id {
            0 => self.flags & tenant_flags::ROOT != 0,
            _ => ranges.is_empty() || ranges.iter().any(|range| (range.first..=range.last).contains(&id)),
        }
    }

    /// True if user 0 of its nodes is anybody to what this user owns.
    pub fn guards(&self, owner: u32) -> bool {
        let has = |flag| self.flags & flag != 0;
        // Where ids are mapped, others than those who were squashed are shown as the same owner.
        let is_squashed = owner == self.squash_uid && !has(tenant_flags::MAPPED);
        !has(tenant_flags::ROOT) && !self.allows_user(owner) && !is_squashed
    }

    /// Who owns what `caller` makes, and who it is where another user acts than those allowed.
    pub fn squash(&self, caller: &Caller) -> Caller {
        if !self.allows_user(caller.uid) {
            return Caller { uid: self.squash_uid, gid: self.squash_gid, groups: Vec::new() };
        }
        let gid = if self.allows_group(caller.gid) { caller.gid } else { self.squash_gid };
        let groups = caller.groups.iter().copied().filter(|gid| self.allows_group(*gid)).collect();
        Caller { uid: caller.uid, gid, groups }
    }
}

wire_struct! {
    /// Makes a tenant. Its subtree is a directory without entries.
    pub struct NewTenant {
        /// The tenant.
        pub tenant: TenantInfo,
    }
}

wire_struct! {
    /// Asks for all tenants.
    pub struct ListTenants {}
}

wire_struct! {
    /// The tenants, ordered by name.
    pub struct ListTenantsReply {
        /// All of them.
        pub tenants: Vec<TenantInfo>,
    }
}

wire_struct! {
    /// Removes a tenant that has no nodes. Its files stay.
    pub struct RemoveTenant {
        /// Its name.
        pub name: String,
    }
}

wire_struct! {
    /// Asks to sign the sender's key for another term. Name, role and tenant stay.
    pub struct Renew {}
}

wire_struct! {
    /// The sender's next certificate.
    pub struct RenewReply {
        /// The certificate, DER.
        pub certificate: Bytes,
    }
}

wire_struct! {
    /// Asks where the sender's root is.
    pub struct GetRoot {}
}

wire_struct! {
    /// The sender's root.
    pub struct RootReply {
        /// The directory.
        pub root: Fid,
        /// The sender's tenant, if it has one. Its ids are those of the node.
        pub tenant: Option<TenantInfo>,
    }
}
