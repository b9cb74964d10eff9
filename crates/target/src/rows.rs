//! The target's rows in the store's table: sessions, replies, fences. Bytes: docs/format.md, "Rows of the target".
//!
//! Every value begins with a version byte. A row that cannot be read is an error of the target, never skipped.

use bytes::Bytes;
use forebay_proto::{ClientId, Decode, DecodeError, Encode, Reader, SessionId, Transno, Writer, wire_struct};

const SESSION: u8 = 0x10;
const REPLY: u8 = 0x11;
const FENCE: u8 = 0x12;
const VERSION: u8 = 1;

wire_struct! {
    /// A session.
    pub struct SessionRow {
        /// Its client.
        pub client: ClientId,
        /// The client's description of itself.
        pub description: String,
        /// When it began, nanoseconds since 1970; for people.
        pub created_ns: i64,
        /// Generation of the target at that time; sessions of an older one are void.
        pub generation: u32,
    }
}

wire_struct! {
    /// The last reply of a slot.
    pub struct ReplyRow {
        /// The request's sequence in its slot.
        pub sequence: u64,
        /// Its transno.
        pub transno: Transno,
        /// Its operation.
        pub op: u16,
        /// The reply's body.
        pub body: Bytes,
    }
}

wire_struct! {
    /// A fenced client.
    pub struct FenceRow {
        /// The fence's transno.
        pub transno: Transno,
    }
}

/// Key of a session.
pub fn session_key(session: SessionId) -> [u8; 9] {
    let mut key = [SESSION; 9];
    key[1..].copy_from_slice(&session.0.to_be_bytes());
    key
}

/// Key of a slot's reply.
pub fn reply_key(session: SessionId, slot: u16) -> [u8; 11] {
    let mut key = [REPLY; 11];
    key[1..9].copy_from_slice(&session.0.to_be_bytes());
    key[9..].copy_from_slice(&slot.to_be_bytes());
    key
}

/// Key of a fence.
pub fn fence_key(client: ClientId) -> [u8; 17] {
    let mut key = [FENCE; 17];
    key[1..].copy_from_slice(&client.0);
    key
}

/// One row of the target, by its key.
pub enum Row {
    Session(SessionId, SessionRow),
    Reply(SessionId, u16, ReplyRow),
    Fence(ClientId, FenceRow),
}

/// First key of the target's rows, and the first after them.
pub const RANGE: ([u8; 1], [u8; 1]) = ([SESSION], [FENCE + 1]);

impl Row {
    /// Reads a row.
    pub fn read(key: &[u8], value: &[u8]) -> Result<Self, DecodeError> {
        let mut key = Reader::new(key);
        Ok(match key.u8()? {
            SESSION => Self::Session(SessionId(u64::from_be_bytes(key.array()?)), read_value(value)?),
            REPLY => {
                let session = SessionId(u64::from_be_bytes(key.array()?));
                Self::Reply(session, u16::from_be_bytes(key.array()?), read_value(value)?)
            }
            FENCE => Self::Fence(ClientId::decode(&mut key)?, read_value(value)?),
            _ => return Err(DecodeError::new("not a row of the target")),
        })
    }
}

fn read_value<T: Decode>(value: &[u8]) -> Result<T, DecodeError> {
    let mut r = Reader::new(value);
    match r.u8()? {
        VERSION => T::decode(&mut r),
        _ => Err(DecodeError::new("a row of a newer version")),
    }
}

/// A row's value.
pub fn value(row: &impl Encode) -> Bytes {
    let mut w = Writer::default();
    w.u8(VERSION);
    row.encode(&mut w);
    w.into_vec().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn row_bytes_are_golden() {
        let session =
            SessionRow { client: ClientId::from_random(1, 2), description: "ab".into(), created_ns: 3, generation: 4 };
        assert_eq!(hex(&session_key(SessionId(5))), "100000000000000005");
        assert_eq!(
            hex(&value(&session)),
            concat!(
                "01",
                "22000000",
                "00000000000000010000000000000002",
                "020000006162",
                "0300000000000000",
                "04000000"
            )
        );
        let reply = ReplyRow { sequence: 6, transno: Transno(7), op: 8, body: Bytes::from_static(b"xyz") };
        assert_eq!(hex(&reply_key(SessionId(5), 9)), "1100000000000000050009");
        assert_eq!(
            hex(&value(&reply)),
            concat!("01", "19000000", "0600000000000000", "0700000000000000", "0800", "0300000078797a")
        );
        assert_eq!(hex(&fence_key(session.client)), "1200000000000000010000000000000002");
        assert_eq!(hex(&value(&FenceRow { transno: Transno(10) })), "01080000000a00000000000000");
    }

    #[test]
    fn rows_survive_their_bytes_and_newer_ones_are_refused() {
        let row = value(&FenceRow { transno: Transno(1) });
        assert!(matches!(Row::read(&fence_key(ClientId::default()), &row), Ok(Row::Fence(..))));
        let mut newer = row.to_vec();
        newer[0] = 2;
        assert!(Row::read(&fence_key(ClientId::default()), &newer).is_err());
    }
}
