//! Ids of files, targets, sessions and transactions.

use std::{fmt, str::FromStr};

use crate::{Decode, DecodeError, Encode, Reader, Writer};

/// Bits of a fid's low word that count within one sequence.
pub const FID_SEQUENCE_BITS: u32 = 20;

/// The id of a file, directory or symbolic link: 128 bits, never reused.
///
/// `low` is unique in the cluster and is the file's `st_ino`: the sequence number (44 bits), then the number within the
/// sequence (20 bits). `high` names the MDT whose space the sequence came from; the rest of it is reserved.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Fid {
    /// MDT index (low 32 bits); the rest is zero and reserved.
    pub high: u64,
    /// Sequence number and number within it; the inode number.
    pub low: u64,
}

impl Fid {
    /// The root directory: sequence 0, number 1; FUSE's root inode number too.
    pub const ROOT: Fid = Fid { high: 0, low: 1 };

    /// The `number`th fid of `sequence`.
    pub fn new(mdt_index: u32, sequence: FidSequence, number: u32) -> Self {
        assert!(number < 1 << FID_SEQUENCE_BITS, "a sequence holds 2^20 fids");
        Self { high: u64::from(mdt_index), low: sequence.0 << FID_SEQUENCE_BITS | u64::from(number) }
    }

    /// The sequence it was taken from.
    pub fn sequence(self) -> FidSequence {
        FidSequence(self.low >> FID_SEQUENCE_BITS)
    }

    /// 16 bytes that sort in the order of fids: keys of tables begin with them.
    pub fn to_key(self) -> [u8; 16] {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&self.high.to_be_bytes());
        key[8..].copy_from_slice(&self.low.to_be_bytes());
        key
    }

    /// The inverse of [`Fid::to_key`]; `None` if `key` is shorter than 16 bytes.
    pub fn from_key(key: &[u8]) -> Option<Self> {
        let high = key.get(..8)?.try_into().ok()?;
        let low = key.get(8..16)?.try_into().ok()?;
        Some(Self { high: u64::from_be_bytes(high), low: u64::from_be_bytes(low) })
    }
}

impl fmt::Display for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:#x}:{:#x}]", self.high, self.low)
    }
}

impl fmt::Debug for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Encode for Fid {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.high);
        w.u64(self.low);
    }
}

impl Decode for Fid {
    const BYTES_MIN: usize = 16;

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { high: r.u64()?, low: r.u64()? })
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $inner:ty, $method:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
        pub struct $name(pub $inner);

        impl Encode for $name {
            fn encode(&self, w: &mut Writer) {
                w.$method(self.0);
            }
        }

        impl Decode for $name {
            const BYTES_MIN: usize = size_of::<$inner>();

            fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                r.$method().map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// A block of 2^20 fids, leased to an MDT or a client; the lease is durable before its first fid is used.
    FidSequence, u64, u64
}
number! {
    /// Counts the starts of a target's store; the high bits of its transnos.
    Incarnation, u32, u32
}
number! {
    /// A client's session with one target, unique per target and never reused.
    SessionId, u64, u64
}
number! {
    /// The number that a target gives to a modifying request: incarnation (24 bits), then a counter (40 bits). 0 =
    /// none.
    Transno, u64, u64
}

impl Transno {
    /// Bits of the counter.
    pub const COUNTER_BITS: u32 = 40;

    /// The transno of `incarnation` with number `counter`.
    pub fn new(incarnation: Incarnation, counter: u64) -> Self {
        assert!(incarnation.0 < 1 << 24 && counter < 1 << Self::COUNTER_BITS, "transnos are exhausted");
        Self(u64::from(incarnation.0) << Self::COUNTER_BITS | counter)
    }

    /// The incarnation that assigned it.
    pub fn incarnation(self) -> Incarnation {
        Incarnation((self.0 >> Self::COUNTER_BITS) as u32)
    }

    /// Its number within that incarnation.
    pub fn counter(self) -> u64 {
        self.0 & ((1 << Self::COUNTER_BITS) - 1)
    }
}

/// Chosen by the writer before it computes checksums; replay and compaction keep it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct WriteId {
    /// The low 64 bits of the writer's [`crate::ClientId`].
    pub client: u64,
    /// Counts that writer's writes, from 1. [`WriteId::RESERVED`] is set if it writes for an append reservation.
    pub sequence: u64,
}

impl WriteId {
    /// Bit of the sequence that marks a write for an append reservation (`WriteReserved`).
    pub const RESERVED: u64 = 1 << 63;

    /// The same id, marked as a write for an append reservation.
    pub fn reserved(self) -> Self {
        Self { sequence: self.sequence | Self::RESERVED, ..self }
    }

    /// Whether it marks a write for an append reservation.
    pub fn is_reserved(self) -> bool {
        self.sequence & Self::RESERVED != 0
    }
}

impl Encode for WriteId {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.client);
        w.u64(self.sequence);
    }
}

impl Decode for WriteId {
    const BYTES_MIN: usize = 16;

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { client: r.u64()?, sequence: r.u64()? })
    }
}

/// Metadata or object storage.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TargetKind {
    /// Metadata target.
    Mdt,
    /// Object storage target.
    Ost,
}

/// A target of the cluster: `MDT0000`, `OST0003` (index in hexadecimal, as Lustre writes it).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetId {
    /// Metadata or object storage.
    pub kind: TargetKind,
    /// Its number among its kind.
    pub index: u32,
}

impl TargetId {
    /// `MDT....`
    pub const fn mdt(index: u32) -> Self {
        Self { kind: TargetKind::Mdt, index }
    }

    /// `OST....`
    pub const fn ost(index: u32) -> Self {
        Self { kind: TargetKind::Ost, index }
    }
}

impl fmt::Display for TargetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            TargetKind::Mdt => "MDT",
            TargetKind::Ost => "OST",
        };
        write!(f, "{kind}{:04x}", self.index)
    }
}

impl fmt::Debug for TargetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for TargetId {
    type Err = DecodeError;
    fn from_str(text: &str) -> Result<Self, DecodeError> {
        let wrong = DecodeError::new("a target's name is MDT or OST and four hexadecimal digits, as in OST0003");
        let (kind, digits) = text.split_at_checked(3).ok_or(wrong)?;
        let kind = match kind {
            "MDT" => TargetKind::Mdt,
            "OST" => TargetKind::Ost,
            _ => return Err(wrong),
        };
        let index = u32::from_str_radix(digits, 16).map_err(|_| wrong)?;
        Ok(Self { kind, index })
    }
}

impl Encode for TargetId {
    fn encode(&self, w: &mut Writer) {
        w.u8(match self.kind {
            TargetKind::Mdt => 1,
            TargetKind::Ost => 2,
        });
        w.u32(self.index);
    }
}

impl Decode for TargetId {
    const BYTES_MIN: usize = 5;

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = match r.u8()? {
            1 => TargetKind::Mdt,
            2 => TargetKind::Ost,
            _ => return Err(DecodeError::new("target kind is neither MDT (1) nor OST (2)")),
        };
        Ok(Self { kind, index: r.u32()? })
    }
}
