//! Rows of the cluster's members (docs/format-mdt.md, kind 0x2d).

use bytes::Bytes;
use forebay_keys::PublicKey;
use forebay_proto::{
    Decode, DecodeError, Encode, Fid, TargetId, TargetKind, Uuid,
    message::{IdMaps, TenantInfo},
    wire_struct,
};

use crate::keys::{self, Key};

/// Of the values.
pub const VERSION: u8 = 1;
/// Of a tenant with id maps. A program that knows none must not take it for one without.
pub const VERSION_MAPPED: u8 = 2;

const CHANGES: u8 = 0;
const NODE: u8 = 1;
const TOKEN: u8 = 2;
const TARGET: u8 = 3;
const BAN: u8 = 4;
const SIGNING: u8 = 5;
const TENANT: u8 = 6;
const TENANCY: u8 = 7;

wire_struct! {
    /// A node that joined.
    pub struct NodeRow {
        pub role: String,
        pub name: String,
        /// Unix time.
        pub joined_ns: i64,
        /// End of its certificate, Unix time.
        pub expires_ns: i64,
        /// Hash of the secret of its token.
        pub token: Bytes,
    }
}

wire_struct! {
    /// A token that nobody has used.
    pub struct TokenRow {
        /// What its user will be.
        pub role: String,
        /// Unix time.
        pub expires_ns: i64,
    }
}

wire_struct! {
    /// A target that a node brought.
    pub struct TargetRow {
        /// The node's public key.
        pub node: Bytes,
        /// Zero until it has registered.
        pub uuid: Uuid,
        /// Empty until it has registered.
        pub addresses: Vec<String>,
    }
}

wire_struct! {
    /// How capabilities are signed.
    pub struct SigningRow {
        /// The master key.
        pub master: Bytes,
        /// Number of the key in use.
        pub number: u32,
        /// Since when, Unix time.
        pub since_ns: i64,
    }
}

wire_struct! {
    /// A tenant, by the project of its inodes. A project is never used again: its files may be there.
    pub struct TenantRow {
        /// Its highest directory.
        pub root: Fid,
        /// False once it is removed.
        pub exists: bool,
        pub tenant: TenantInfo,
        /// Not in a row of version 1.
        pub maps: IdMaps,
    }
}

wire_struct! {
    /// A tenant without id maps.
    pub struct PlainTenantRow {
        pub root: Fid,
        pub exists: bool,
        pub tenant: TenantInfo,
    }
}

impl TenantRow {
    /// The row's value. Without id maps it is one that older programs know.
    pub fn value(&self) -> Vec<u8> {
        let plain = || {
            let Self { root, exists, tenant, .. } = self.clone();
            PlainTenantRow { root, exists, tenant }.to_bytes()
        };
        let (version, content) =
            if self.maps.is_empty() { (VERSION, plain()) } else { (VERSION_MAPPED, self.to_bytes()) };
        [&[version][..], &content].concat()
    }

    /// The row of this value.
    pub fn of_value(value: &[u8]) -> Result<Self, DecodeError> {
        if let Some((&VERSION_MAPPED, content)) = value.split_first() {
            return Self::from_bytes(content);
        }
        let PlainTenantRow { root, exists, tenant } = PlainTenantRow::from_bytes(content(value)?)?;
        Ok(Self { root, exists, tenant, maps: IdMaps::default() })
    }
}

/// What a row is about.
pub enum Row {
    /// How often the map has changed (u32).
    Changes,
    /// A [`NodeRow`], by its public key.
    Node(PublicKey),
    /// A [`TokenRow`], by the hash of its secret.
    Token([u8; 32]),
    /// A [`TargetRow`].
    Target(TargetId),
    /// A [`forebay_proto::message::Ban`], by the key that is banned, or the hash of role and name.
    Ban(Vec<u8>),
    /// A [`SigningRow`].
    Signing,
    /// A [`TenantRow`], by its project.
    Tenant(u32),
    /// The project (u32) of a node, by its public key, or of a token, by the hash of its secret.
    Tenancy([u8; 32]),
}

pub fn changes() -> Key {
    keys::member(CHANGES, &[])
}

pub fn node(key: &PublicKey) -> Key {
    keys::member(NODE, &key.0)
}

pub fn token(hash: &[u8; 32]) -> Key {
    keys::member(TOKEN, hash)
}

pub fn target(id: TargetId) -> Key {
    let kind = match id.kind {
        TargetKind::Mdt => 1,
        TargetKind::Ost => 2,
    };
    let mut bytes = vec![kind];
    bytes.extend_from_slice(&id.index.to_be_bytes());
    keys::member(TARGET, &bytes)
}

pub fn ban(key: &[u8]) -> Key {
    keys::member(BAN, key)
}

pub fn signing() -> Key {
    keys::member(SIGNING, &[])
}

pub fn tenant(project: u32) -> Key {
    keys::member(TENANT, &project.to_be_bytes())
}

pub fn tenancy(key_or_hash: &[u8; 32]) -> Key {
    keys::member(TENANCY, key_or_hash)
}

/// A value without its version.
pub fn content(value: &[u8]) -> Result<&[u8], DecodeError> {
    match value.split_first() {
        Some((&VERSION, content)) => Ok(content),
        _ => Err(DecodeError::new("a member's row has a version this program does not know")),
    }
}

/// What the row under `key` is about.
pub fn parse(key: &[u8]) -> Result<Row, DecodeError> {
    const WRONG: DecodeError = DecodeError::new("the key of a member's row is wrong");
    let (what, id) = key.get(1..).and_then(<[u8]>::split_first).ok_or(WRONG)?;
    let hash = || id.try_into().map_err(|_| WRONG);
    Ok(match (*what, id) {
        (CHANGES, []) => Row::Changes,
        (NODE, _) => Row::Node(PublicKey(hash()?)),
        (TOKEN, _) => Row::Token(hash()?),
        (TARGET, [kind @ (1 | 2), index @ ..]) => {
            let index = u32::from_be_bytes(index.try_into().map_err(|_| WRONG)?);
            Row::Target(if *kind == 1 { TargetId::mdt(index) } else { TargetId::ost(index) })
        }
        (BAN, _) => Row::Ban(hash()?.to_vec()),
        (SIGNING, []) => Row::Signing,
        (TENANT, _) => Row::Tenant(u32::from_be_bytes(id.try_into().map_err(|_| WRONG)?)),
        (TENANCY, _) => Row::Tenancy(hash()?),
        _ => return Err(WRONG),
    })
}

#[cfg(test)]
mod tests {
    use forebay_proto::message::IdMap;

    use super::*;

    /// A program from before id maps refuses the second, and reads the first.
    #[test]
    fn a_tenants_row_has_version_2_only_with_id_maps() {
        let tenant = TenantInfo {
            name: "a".into(),
            path: "/a".into(),
            users: Vec::new(),
            groups: Vec::new(),
            squash_uid: 1,
            squash_gid: 2,
            flags: 3,
            expires_ns: 4,
        };
        let plain = TenantRow { root: Fid { high: 0, low: 9 }, exists: true, tenant, maps: IdMaps::default() };
        let value = plain.value();
        let old = PlainTenantRow { root: plain.root, exists: true, tenant: plain.tenant.clone() };
        assert_eq!(value, [&[1][..], &old.to_bytes()].concat());
        assert_eq!(TenantRow::of_value(&value), Ok(plain.clone()));
        let users = vec![IdMap { host: 1000, fs: 70_000, count: 5 }];
        let mapped = TenantRow { maps: IdMaps { users, groups: Vec::new() }, ..plain };
        let value = mapped.value();
        assert_eq!((value[0], TenantRow::of_value(&value)), (2, Ok(mapped)));
        assert!(content(&value).is_err() && TenantRow::of_value(&[3]).is_err() && TenantRow::of_value(&[]).is_err());
    }

    /// The golden bytes of docs/format-mdt.md.
    #[test]
    fn rows_of_members_have_the_bytes_of_the_format() {
        assert_eq!(format!("{:?}", changes()), "2d00");
        assert_eq!(format!("{:?}", target(TargetId::ost(0x102))), "2d030200000102");
        assert_eq!(node(&PublicKey([7; 32])).as_ref(), [&[0x2d, 1][..], &[7; 32]].concat());
        assert_eq!(token(&[8; 32]).as_ref(), [&[0x2d, 2][..], &[8; 32]].concat());
        assert_eq!(ban(&[9; 32]).as_ref(), [&[0x2d, 4][..], &[9; 32]].concat());
        let row = TokenRow { role: "ost".into(), expires_ns: 5 };
        assert_eq!(row.to_bytes(), b"\x0f\0\0\0\x03\0\0\0ost\x05\0\0\0\0\0\0\0");
        assert!(content(&[2]).is_err() && content(&[]).is_err());
        assert_eq!(format!("{:?}", signing()), "2d05");
        assert_eq!(format!("{:?}", tenant(0x102)), "2d0600000102");
        assert_eq!(tenancy(&[9; 32]).as_ref(), [&[0x2d, 7][..], &[9; 32]].concat());
        assert!(parse(&[0x2d]).is_err() && parse(&[0x2d, 8]).is_err() && parse(&[0x2d, 1, 7]).is_err());
    }
}
