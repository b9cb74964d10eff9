//! Who is at the other side of an accepted connection.

use std::fmt;

use forebay_keys::{NodeName, PublicKey};

/// Who is at the other side of an accepted connection, as far as the environment knows without asking that side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerIdentity {
    /// A process on this machine, through a Unix socket. The kernel vouches for it (SO_PEERCRED).
    Process {
        /// Effective user when it connected.
        uid: u32,
        /// Effective group when it connected.
        gid: u32,
        /// Its number, if the kernel gives one: 0 is a process of another container.
        pid: Option<i32>,
    },
    /// A node of the cluster, by the certificate that it has shown.
    Node {
        /// Its name.
        node: NodeName,
        /// Its public key.
        key: PublicKey,
        /// Where it connected from. For logs.
        address: String,
        /// False if the connection's data is clear, and protected against change only.
        encrypted: bool,
    },
    /// Somebody without a certificate, at a listener for anybody. The address is for logs.
    Stranger(String),
    /// A machine of the simulator, or a stream within this process, by name.
    Named(String),
    /// Nobody vouches for it (TCP without keys; a Unix socket whose kernel does not tell). The address is for logs.
    Unknown(String),
}

impl PeerIdentity {
    /// What protects the data of its connection, in words of `forebay status`.
    pub fn protection(&self) -> &'static str {
        match self {
            Self::Node { encrypted: true, .. } | Self::Stranger(_) => "encrypted",
            Self::Node { encrypted: false, .. } => "integrity only",
            Self::Process { .. } | Self::Named(_) => "local",
            Self::Unknown(_) => "none",
        }
    }
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { uid, gid, pid: Some(pid) } => write!(f, "unix:uid={uid},gid={gid},pid={pid}"),
            Self::Process { uid, gid, pid: None } => write!(f, "unix:uid={uid},gid={gid}"),
            Self::Node { node, address, .. } => write!(f, "{node} at {address}"),
            Self::Stranger(name) | Self::Named(name) | Self::Unknown(name) => f.write_str(name),
        }
    }
}
