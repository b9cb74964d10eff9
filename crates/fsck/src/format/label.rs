//! Labels of the copies of a mirrored target (docs/format.md, "A mirrored target").

use forebay_proto::{DecodeError, Reader, Uuid, crc::crc64};

use super::word64;
use crate::limits::SECTOR;

const MAGIC: &[u8; 8] = b"FBmirror";
const VERSION: u32 = 1;

/// The state of a copy, or of its mate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has everything.
    Member,
    /// It is being filled.
    Syncing,
    /// Prepared and still worthless.
    New,
    /// Left behind.
    Out,
}

/// One label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The target.
    pub target: Uuid,
    /// 1: data, 2: journal.
    pub part: u32,
    /// Sequence number of the copy's labels.
    pub seq: u64,
    /// Raised when the set of members changes.
    pub epoch: u64,
    /// The id of this copy.
    pub copy: u64,
    /// The id of the other copy.
    pub mate: u64,
    /// The state of this copy.
    pub standing: Standing,
    /// The state of the other copy.
    pub mate_standing: Standing,
    /// Bytes that a syncing copy has.
    pub position: u64,
    /// Size of the part.
    pub bytes: u64,
}

/// The newer label in the two sectors behind a part of `bytes` bytes. `None` if neither is intact.
pub fn decode(sectors: &[u8], bytes: u64) -> Option<Label> {
    let labels = sectors.chunks_exact(SECTOR as usize).zip([1, 0]).filter_map(|(sector, parity)| {
        let label = decode_sector(sector)?;
        (label.seq % 2 == parity && label.bytes == bytes).then_some(label)
    });
    labels.max_by_key(|label| label.seq)
}

fn decode_sector(sector: &[u8]) -> Option<Label> {
    if sector.get(8..16)? != MAGIC || crc64(&sector[8..]) != word64(sector, 0) {
        return None;
    }
    fields(&sector[16..]).ok()
}

fn fields(body: &[u8]) -> Result<Label, DecodeError> {
    let mut r = Reader::new(body);
    if r.u32()? != VERSION {
        return Err(DecodeError::new("version"));
    }
    let part = r.u32()?;
    let target = Uuid(r.array()?);
    let (seq, epoch, copy, mate) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
    let (standing, mate_standing) = (standing(r.u32()?)?, standing(r.u32()?)?);
    let (position, bytes) = (r.u64()?, r.u64()?);
    Ok(Label { target, part, seq, epoch, copy, mate, standing, mate_standing, position, bytes })
}

fn standing(number: u32) -> Result<Standing, DecodeError> {
    match number {
        1 => Ok(Standing::Member),
        2 => Ok(Standing::Syncing),
        3 => Ok(Standing::New),
        4 => Ok(Standing::Out),
        _ => Err(DecodeError::new("standing")),
    }
}
