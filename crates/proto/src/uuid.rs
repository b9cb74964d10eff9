//! 128 random bits that name a cluster, a target or a client.

use std::{fmt, str::FromStr};

use crate::{Decode, DecodeError, Encode, Incarnation, Reader, Writer};

/// Identifies a cluster, a target or a client. Made of random bits by code that has an `Env`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

/// A client instance (a mount, a library, a server acting as a client), new at each start of its process.
pub type ClientId = Uuid;

/// First bytes of the uuids that [`Uuid::of_life`] makes.
const LIFE: [u8; 4] = *b"FBsv";

impl Uuid {
    /// From two random words.
    pub fn from_random(high: u64, low: u64) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&high.to_be_bytes());
        bytes[8..].copy_from_slice(&low.to_be_bytes());
        Self(bytes)
    }

    /// The client uuid of a server that is a client of others, for the life that began with `incarnation`. A later life
    /// replaces the earlier ones.
    pub fn of_life(server: u32, incarnation: Incarnation) -> Self {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&LIFE);
        bytes[4..8].copy_from_slice(&server.to_be_bytes());
        bytes[12..].copy_from_slice(&incarnation.0.to_be_bytes());
        Self(bytes)
    }

    /// The last eight bytes, as a number.
    pub fn low(&self) -> u64 {
        u64::from_be_bytes(self.0[8..].try_into().expect("a uuid has 16 bytes"))
    }

    /// True for a life of a server.
    pub fn is_life(&self) -> bool {
        self.0[..4] == LIFE
    }

    /// True if both are lives of one server, and this is the later one.
    pub fn is_later_life(&self, other: &Self) -> bool {
        self.0[..4] == LIFE && self.0[..12] == other.0[..12] && self.0[12..] > other.0[12..]
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Uuid {
    type Err = DecodeError;
    fn from_str(text: &str) -> Result<Self, DecodeError> {
        let digits: Vec<u8> = text
            .bytes()
            .filter(|b| *b != b'-')
            .map(|b| (b as char).to_digit(16).map(|d| d as u8).ok_or(DecodeError::new("uuid: not a hexadecimal digit")))
            .collect::<Result<_, _>>()?;
        if digits.len() != 32 {
            return Err(DecodeError::new("uuid: 32 hexadecimal digits expected"));
        }
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        Ok(Self(bytes))
    }
}

impl Encode for Uuid {
    fn encode(&self, w: &mut Writer) {
        w.bytes(&self.0);
    }
}

impl Decode for Uuid {
    const BYTES_MIN: usize = 16;

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self(r.array()?))
    }
}
