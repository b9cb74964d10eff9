//! Rows of every target: sessions, replies, fences (docs/format.md, "Rows of the target").

use forebay_proto::{ClientId, DecodeError, Reader, SessionId, Transno, Uuid};

const VERSION: u8 = 1;

/// A row of the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetRow {
    /// A session, and the target's generation when it began.
    Session {
        /// Its number.
        session: SessionId,
        /// The client's id.
        client: ClientId,
        /// The target's generation when it began.
        generation: u32,
    },
    /// The last reply of a slot.
    Reply {
        /// The session.
        session: SessionId,
        /// The slot.
        slot: u16,
        /// The request's transno.
        transno: Transno,
    },
    /// A fenced client.
    Fence {
        /// The client's id.
        client: ClientId,
        /// The fence's transno.
        transno: Transno,
    },
}

impl TargetRow {
    /// Decodes a row whose key begins with 0x10, 0x11 or 0x12.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Self, DecodeError> {
        let mut key = Reader::new(key);
        let mut value = Reader::new(value);
        let kind = key.u8()?;
        if value.u8()? != VERSION {
            return Err(DecodeError::new("its version is not known here"));
        }
        let mut body = value.prefixed()?;
        let row = match kind {
            0x10 => {
                let session = SessionId(u64::from_be_bytes(key.array()?));
                let client = Uuid(body.array()?);
                std::str::from_utf8(body.blob()?).map_err(|_| DecodeError::new("its description is not UTF-8"))?;
                body.i64()?;
                Self::Session { session, client, generation: body.u32()? }
            }
            0x11 => {
                let session = SessionId(u64::from_be_bytes(key.array()?));
                let slot = u16::from_be_bytes(key.array()?);
                body.u64()?;
                let transno = Transno(body.u64()?);
                body.u16()?;
                body.blob()?;
                Self::Reply { session, slot, transno }
            }
            _ => Self::Fence { client: Uuid(key.array()?), transno: Transno(body.u64()?) },
        };
        if key.is_empty() { Ok(row) } else { Err(DecodeError::new("its key has a wrong length")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_made_by_hand_are_read() {
        let key = [0x10, 0, 0, 0, 0, 0, 0, 0, 5];
        let mut value = vec![1, 34, 0, 0, 0];
        value.extend([9; 16]);
        value.extend(b"\x02\0\0\0ab");
        value.extend([3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0]);
        let session = TargetRow::Session { session: SessionId(5), client: Uuid([9; 16]), generation: 4 };
        assert_eq!(TargetRow::decode(&key, &value), Ok(session));
        let key = [0x11, 0, 0, 0, 0, 0, 0, 0, 5, 0, 9];
        let mut value = vec![1, 25, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 8, 0];
        value.extend(b"\x03\0\0\0xyz");
        let reply = TargetRow::Reply { session: SessionId(5), slot: 9, transno: Transno(7) };
        assert_eq!(TargetRow::decode(&key, &value), Ok(reply));
        (0..value.len()).for_each(|end| assert!(TargetRow::decode(&key, &value[..end]).is_err()));
        assert!(TargetRow::decode(&key[..10], &value).is_err());
    }
}
