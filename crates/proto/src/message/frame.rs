//! The fixed header in front of every frame.

use super::{Capability, CommitLevel};
use crate::{DecodeError, Errno, Incarnation, Reader, SessionId, Transno, Writer, crc, limits};

/// Bytes of a frame's header.
pub const FRAME_HEADER_BYTES: usize = 128;
/// The version of the protocol.
pub const PROTOCOL_VERSION: u16 = 2;
/// "FBF1"
const MAGIC: u32 = u32::from_le_bytes(*b"FBF1");

/// Request, reply or error reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Body: the operation's request.
    Request,
    /// Body: the operation's reply.
    Reply,
    /// Body: an [`crate::ErrorReply`].
    Error,
}

/// Bits of [`FrameHeader::flags`].
pub mod frame_flags {
    /// A replay: `transno` is the one the target gave before it crashed.
    pub const REPLAY: u8 = 1;
    /// The same request was sent before on this slot; no reply came.
    pub const RESEND: u8 = 2;
}

/// The header of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Request, reply or error.
    pub kind: FrameKind,
    /// See [`frame_flags`].
    pub flags: u8,
    /// Operation number ([`super::Op`]); kept as a number, so that an unknown one gets an error reply.
    pub op: u16,
    /// Slot of the session; replies carry their request's.
    pub slot: u16,
    /// When the reply may leave.
    pub level: CommitLevel,
    /// The target's incarnation, as the sender knows it; 0 before it is known.
    pub incarnation: Incarnation,
    /// The session; 0 before it is known.
    pub session: SessionId,
    /// Counts the requests of the slot, from 1.
    pub sequence: u64,
    /// Reply: the transno assigned to the request (0 for reads). Replay: the original transno.
    pub transno: Transno,
    /// Reply: highest durable transno of the target.
    pub last_committed: Transno,
    /// Epoch of the cluster's map the sender knows.
    pub map_epoch: u32,
    /// Reply: how many requests the session may have in flight; 0 in requests.
    pub credits: u16,
    /// With [`super::features::RAILS`]: counts the frames of this direction after the Connect, from 1; they are handled in this order,
    /// whichever stream they come by. Else 0.
    pub order: u64,
    /// The job on whose behalf the request is made, for statistics; 0 = unknown.
    pub job: u64,
    /// Request to an OST: the MDT's word that the sender may use the object; all zero where none is needed.
    pub capability: Capability,
    /// Bytes of the body that follows the header.
    pub body_bytes: u32,
    /// CRC-64/NVME of the body.
    pub body_sum: u64,
    /// Bytes of bulk that follow the body. Bulk is covered by the block sums in the body.
    pub bulk_bytes: u32,
    /// Reply: the server's Unix time of the change, as the changed files show it; 0 if no time was taken. Replay: the
    /// original time.
    pub time_ns: i64,
}

impl FrameHeader {
    /// A header with `kind` and `op`, and all else zero. Framing fills in the fields of body and bulk.
    pub fn new(kind: FrameKind, op: u16) -> Self {
        Self {
            kind,
            flags: 0,
            op,
            slot: 0,
            level: CommitLevel::Data,
            incarnation: Incarnation(0),
            session: SessionId(0),
            sequence: 0,
            transno: Transno(0),
            last_committed: Transno(0),
            map_epoch: 0,
            credits: 0,
            order: 0,
            job: 0,
            capability: Capability::NONE,
            body_bytes: 0,
            body_sum: 0,
            bulk_bytes: 0,
            time_ns: 0,
        }
    }

    /// The header's 128 bytes.
    pub fn to_bytes(&self) -> [u8; FRAME_HEADER_BYTES] {
        let mut w = Writer::with_capacity(FRAME_HEADER_BYTES);
        w.u32(MAGIC);
        w.u16(PROTOCOL_VERSION);
        w.u8(match self.kind {
            FrameKind::Request => 1,
            FrameKind::Reply => 2,
            FrameKind::Error => 3,
        });
        w.u8(self.flags);
        w.u16(FRAME_HEADER_BYTES as u16);
        w.u16(self.slot);
        w.u32(self.incarnation.0);
        w.u64(self.session.0);
        w.u64(self.sequence);
        w.u64(self.transno.0);
        w.u64(self.last_committed.0);
        w.u32(self.map_epoch);
        w.u16(self.credits);
        w.u16(self.op);
        w.u64(self.order);
        w.u64(self.job);
        w.bytes(&self.capability.tag);
        w.u8(self.level.number());
        w.u8(self.capability.rights);
        w.bytes(&[0; 2]);
        w.u32(self.body_bytes);
        w.u64(self.body_sum);
        w.u32(self.bulk_bytes);
        w.i64(self.time_ns);
        w.u32(self.capability.key);
        let sum = crc::crc64(&w.as_slice()[..FRAME_HEADER_BYTES - 8]);
        w.u64(sum);
        w.into_vec().try_into().expect("the fields above are 128 bytes")
    }

    /// Reads and checks a header: magic, version, checksum, lengths.
    pub fn from_bytes(bytes: &[u8; FRAME_HEADER_BYTES]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        if r.u32()? != MAGIC {
            return Err(DecodeError::new("frame: this is not Forebay's protocol (wrong magic)"));
        }
        if r.u16()? != PROTOCOL_VERSION {
            return Err(DecodeError::new("frame: the other side speaks another version of the protocol"));
        }
        let (content, sum) = bytes.split_at(FRAME_HEADER_BYTES - 8);
        if Reader::new(sum).u64()? != crc::crc64(content) {
            return Err(DecodeError::new("frame: header checksum does not match"));
        }
        let kind = match r.u8()? {
            1 => FrameKind::Request,
            2 => FrameKind::Reply,
            3 => FrameKind::Error,
            _ => return Err(DecodeError::new("frame: unknown kind")),
        };
        let flags = r.u8()?;
        if usize::from(r.u16()?) != FRAME_HEADER_BYTES {
            return Err(DecodeError::new("frame: header length is not 128"));
        }
        let mut header = Self::new(kind, 0);
        header.flags = flags;
        header.slot = r.u16()?;
        header.incarnation = Incarnation(r.u32()?);
        header.session = SessionId(r.u64()?);
        header.sequence = r.u64()?;
        header.transno = Transno(r.u64()?);
        header.last_committed = Transno(r.u64()?);
        header.map_epoch = r.u32()?;
        header.credits = r.u16()?;
        header.op = r.u16()?;
        header.order = r.u64()?;
        header.job = r.u64()?;
        header.capability.tag = r.array()?;
        header.level = CommitLevel::from_number(r.u8()?).ok_or(DecodeError::new("frame: unknown commit level"))?;
        header.capability.rights = r.u8()?;
        r.take(2)?;
        header.body_bytes = r.u32()?;
        header.body_sum = r.u64()?;
        header.bulk_bytes = r.u32()?;
        header.time_ns = r.i64()?;
        header.capability.key = r.u32()?;
        if header.body_bytes as usize > limits::BODY_BYTES || header.bulk_bytes as usize > limits::BULK_BYTES {
            return Err(DecodeError::new("frame: body or bulk is longer than the protocol allows"));
        }
        Ok(header)
    }

    /// Checks a received body against the header.
    pub fn check_body(&self, body: &[u8]) -> Result<(), crate::ErrorReply> {
        if crc::crc64(body) != self.body_sum {
            return Err(crate::ErrorReply::new(Errno::EPROTO, "frame: body checksum does not match"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> FrameHeader {
        FrameHeader {
            flags: frame_flags::RESEND,
            slot: 3,
            level: CommitLevel::Commit,
            incarnation: Incarnation(7),
            session: SessionId(9),
            sequence: 11,
            transno: Transno(13),
            last_committed: Transno(12),
            map_epoch: 2,
            credits: 64,
            body_bytes: 5,
            body_sum: 0x0102_0304_0506_0708,
            bulk_bytes: 4096,
            ..FrameHeader::new(FrameKind::Reply, 128)
        }
    }

    #[test]
    fn header_bytes_are_golden() {
        let hex: String = header().to_bytes().iter().map(|b| format!("{b:02x}")).collect();
        let expected = concat!(
            "46424631",
            "0200",
            "02",
            "02",
            "8000",
            "0300",
            "07000000",
            "0900000000000000",
            "0b00000000000000",
            "0d00000000000000",
            "0c00000000000000",
            "02000000",
            "4000",
            "8000",
            "0000000000000000",
            "0000000000000000",
            "00000000000000000000000000000000",
            "02",
            "000000",
            "05000000",
            "0807060504030201",
            "00100000",
            "000000000000000000000000",
        );
        assert_eq!(&hex[..240], expected);
        assert_eq!(FrameHeader::from_bytes(&header().to_bytes()), Ok(header()));
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_noticed() {
        let good = header().to_bytes();
        for bit in 0..FRAME_HEADER_BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(FrameHeader::from_bytes(&bad).is_err(), "bit {bit}");
        }
    }
}
