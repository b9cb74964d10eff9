//! The vocabulary that all parts of Forebay share: ids, layouts, checksums, messages and their codec, errors.
//!
//! No I/O, no clock, no chance: everything here is a pure function of its arguments.

pub mod codec;
pub mod crc;
pub mod error;
pub mod histogram;
pub mod ids;
pub mod layout;
pub mod limits;
pub mod locks;
pub mod message;
mod pieces;
mod sizes;
pub mod uuid;

pub use codec::{Decode, DecodeError, Encode, Reader, Writer};
pub use error::{Errno, ErrorReply};
pub use histogram::Histogram;
pub use ids::{Fid, FidSequence, Incarnation, SessionId, TargetId, TargetKind, Transno, WriteId};
pub use layout::{Component, FOR_EVER, Layout, LayoutKind, StripePiece};
pub use locks::LockList;
pub use sizes::parse_size;
pub use uuid::{ClientId, Uuid};
