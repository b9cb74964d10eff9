//! Capabilities: the MDT's signed word that a node may use the objects of a file. OSTs ask for it from nodes that are not
//! servers (docs/decisions/0050).
//!
//! Not here: how one is signed and checked (`keys::capability`).

use bytes::Bytes;

use super::{ObjectRef, Op};
use crate::{Decode, Fid, Reader, wire_struct};

/// Bits of [`Capability::rights`].
pub mod rights {
    /// Size, times and holes. Whoever may read or write has this too.
    pub const STAT: u8 = 1;
    /// Bytes.
    pub const READ: u8 = 2;
    /// Changes of bytes and size.
    pub const WRITE: u8 = 4;
    /// All of them.
    pub const ALL: u8 = STAT | READ | WRITE;
}

/// The MDT's signed word that a node may use the objects of a file. It goes in the header of requests to OSTs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capability {
    /// Number of the key that it is signed with. It ends with that key.
    pub key: u32,
    /// What it allows: [`rights`].
    pub rights: u8,
    /// Keyed hash of the node's public key, the object and the rights.
    pub tag: [u8; 16],
}

impl Capability {
    /// None.
    pub const NONE: Self = Self { key: 0, rights: 0, tag: [0; 16] };

    /// True if it allows what needs `needed` (one bit of [`rights`]).
    pub fn allows(&self, needed: u8) -> bool {
        self.rights & needed != 0 || needed == rights::STAT && self.rights != 0
    }
}

/// What a request to an OST needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// A session.
    Session,
    /// A capability for the object, with this right.
    Capability(u8),
    /// The sender is a server.
    Server,
}

impl Op {
    /// What a request of this operation to an OST needs.
    pub fn needs(self) -> Needs {
        match self {
            Self::Read | Self::ReadPieces => Needs::Capability(rights::READ),
            Self::GetObject | Self::MapObject | Self::WatchSize => Needs::Capability(rights::STAT),
            Self::Write
            | Self::WritePieces
            | Self::RaiseSize
            | Self::Punch
            | Self::Allocate
            | Self::Append
            | Self::ReserveAppend
            | Self::WriteReserved
            | Self::CompleteAppend
            | Self::RemoveWritten => Needs::Capability(rights::WRITE),
            Self::OstStatFs | Self::OstLatency | Self::Grant => Needs::Session,
            _ => Needs::Server,
        }
    }
}

/// The object that a request is about, from its body; `None` if that cannot be read. For operations that need a
/// capability.
pub fn object_of(op: Op, body: &[u8]) -> Option<Fid> {
    // Each of these messages begins with its length and its object. WriteReserved begins with a write, which has a
    // length of its own.
    let before = if op == Op::WriteReserved { 8 } else { 4 };
    ObjectRef::decode(&mut Reader::new(body.get(before..)?)).ok().map(|object| object.fid)
}

wire_struct! {
    /// Asks for a capability.
    pub struct Authorize {
        /// The fid of a file's objects, as the sender knows its layout. No file has such objects (any more): ESTALE.
        pub object: Fid,
        /// The sender's public key. It counts over a Unix socket; over TLS the certificate's does.
        pub node: Bytes,
    }
}

wire_struct! {
    /// A capability with all rights that the sender has: it has the file open, or holds a lease on its data. A node
    /// without a tenant has all.
    pub struct AuthorizeReply {
        /// See [`Capability`].
        pub key: u32,
        /// [`rights`].
        pub rights: u32,
        /// 16 bytes.
        pub tag: Bytes,
    }
}

impl From<Capability> for AuthorizeReply {
    fn from(of: Capability) -> Self {
        Self { key: of.key, rights: of.rights.into(), tag: Bytes::copy_from_slice(&of.tag) }
    }
}

impl AuthorizeReply {
    /// The capability; `None` if it is malformed.
    pub fn capability(&self) -> Option<Capability> {
        let tag = self.tag[..].try_into().ok()?;
        Some(Capability { key: self.key, rights: u8::try_from(self.rights).ok()?, tag })
    }
}

wire_struct! {
    /// A key with which capabilities are signed.
    pub struct NumberedKey {
        /// Its number.
        pub number: u32,
        /// 32 bytes.
        pub secret: Bytes,
    }
}

wire_struct! {
    /// The keys that count from now on; no others do.
    pub struct SetCapabilityKeys {
        /// Oldest first.
        pub keys: Vec<NumberedKey>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Encode, WriteId,
        message::{ReadObject, WatchSize, WriteObject, WriteReserved},
    };

    #[test]
    fn the_object_of_a_request_is_found_in_its_body() {
        let fid = Fid { high: 7, low: 9 };
        let object = ObjectRef { fid, layout_generation: 1, truncate_epoch: 2 };
        let write = WriteObject {
            object: object.clone(),
            offset: 3,
            length: 4,
            write_id: WriteId::default(),
            sums: vec![5],
            file_bytes: 6,
            attr_epoch: 7,
            granted_bytes: 8,
        };
        assert_eq!(object_of(Op::Write, &write.to_bytes()), Some(fid));
        let reserved = WriteReserved { write, generation: 1 };
        assert_eq!(object_of(Op::WriteReserved, &reserved.to_bytes()), Some(fid));
        let read = ReadObject { object: object.clone(), offset: 1, length: 1 };
        assert_eq!(object_of(Op::Read, &read.to_bytes()), Some(fid));
        let watch = WatchSize { object, known_bytes: 1, waits: false, ends: false };
        assert_eq!(object_of(Op::WatchSize, &watch.to_bytes()), Some(fid));
        assert_eq!(object_of(Op::Read, b"abc"), None);
    }

    #[test]
    fn who_may_read_or_write_may_stat_and_nothing_else_follows() {
        let of = |rights| Capability { rights, ..Capability::NONE };
        assert!(of(rights::READ).allows(rights::STAT) && of(rights::WRITE).allows(rights::STAT));
        assert!(!of(rights::READ).allows(rights::WRITE) && !of(rights::WRITE).allows(rights::READ));
        assert!(!of(rights::STAT).allows(rights::READ) && !Capability::NONE.allows(rights::STAT));
    }
}
