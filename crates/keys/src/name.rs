//! The name in a certificate: `forebay://CLUSTER/ROLE/NAME`.

use std::{fmt, str::FromStr};

use forebay_proto::{TargetKind, Uuid};

use crate::{KeyError, KeyResult};

/// Longest name of a node, as of a DNS label.
const NAME_BYTES: usize = 63;

/// What a node is in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Serves metadata targets.
    Mds,
    /// Serves object storage targets.
    Ost,
    /// Mounts the file system.
    Client,
    /// Forwards between networks.
    Router,
    /// Changes the cluster.
    Admin,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 5] = [Self::Mds, Self::Ost, Self::Client, Self::Router, Self::Admin];

    /// Its word in certificates, tokens and on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Mds => "mds",
            Self::Ost => "ost",
            Self::Client => "client",
            Self::Router => "router",
            Self::Admin => "admin",
        }
    }

    /// True if such a node may serve targets of this kind. A host's servers share one certificate, so an MDS may serve
    /// OSTs too.
    pub fn may_serve(self, kind: TargetKind) -> bool {
        match kind {
            TargetKind::Mdt => self == Self::Mds,
            TargetKind::Ost => matches!(self, Self::Mds | Self::Ost),
        }
    }

    /// True if others connect to such a node.
    pub fn is_server(self) -> bool {
        matches!(self, Self::Mds | Self::Ost | Self::Router)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Role {
    type Err = KeyError;

    fn from_str(word: &str) -> KeyResult<Self> {
        Self::ALL.into_iter().find(|role| role.word() == word).ok_or_else(|| {
            let words = Self::ALL.map(Self::word).join(", ");
            KeyError::new(format!("'{word}' is not a role; the roles are {words}"))
        })
    }
}

/// Who a node is: the content of its certificate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName {
    /// The cluster whose authority signed it.
    pub cluster: Uuid,
    /// What the node is there.
    pub role: Role,
    /// Its name there: letters, digits, `-` and `.`, at most 63.
    name: String,
}

impl NodeName {
    /// Errors: the name holds other characters than a host's name may.
    pub fn new(cluster: Uuid, role: Role, name: &str) -> KeyResult<Self> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
        if name.is_empty() || name.len() > NAME_BYTES || !name.bytes().all(fits) {
            return Err(KeyError::new(format!(
                "'{}' cannot be a node's name; use 1 to {NAME_BYTES} letters, digits, '-' and '.'",
                name.escape_debug()
            )));
        }
        Ok(Self { cluster, role, name: name.into() })
    }

    /// Its name in the cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// As the certificate has it.
    pub fn to_uri(&self) -> String {
        format!("forebay://{}/{}/{}", self.cluster, self.role, self.name)
    }

    /// Errors: the URI is not a node's name.
    pub fn from_uri(uri: &str) -> KeyResult<Self> {
        let wrong = || KeyError::new(format!("'{}' is not the name of a node", uri.escape_debug()));
        let mut parts = uri.strip_prefix("forebay://").ok_or_else(wrong)?.split('/');
        let (Some(cluster), Some(role), Some(name), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        Self::new(cluster.parse().map_err(|_| wrong())?, role.parse()?, name)
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.role, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: Uuid = Uuid([7; 16]);

    #[test]
    fn a_name_comes_back_from_its_uri() {
        for role in Role::ALL {
            let name = NodeName::new(CLUSTER, role, "node-17.rack2").unwrap();
            assert_eq!(NodeName::from_uri(&name.to_uri()), Ok(name));
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let long = "x".repeat(NAME_BYTES + 1);
        for name in ["", "a/b", "a b", "n\u{f6}de", "a\0", &long] {
            assert!(NodeName::new(CLUSTER, Role::Client, name).is_err(), "{name:?}");
        }
        let cluster = CLUSTER.to_string();
        for uri in [
            String::new(),
            "https://example.org/".into(),
            format!("forebay://{cluster}/client"),
            format!("forebay://{cluster}/client/a/b"),
            format!("forebay://{cluster}/root/a"),
            format!("forebay://{cluster}/Client/a"),
            "forebay://7/client/a".into(),
        ] {
            assert!(NodeName::from_uri(&uri).is_err(), "{uri:?}");
        }
    }
}
