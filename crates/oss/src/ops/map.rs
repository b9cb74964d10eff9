//! MapObject: where the next data or the next hole is, or how many bytes are used, reserved space included.
//!
//! Holes are reported in whole blocks of [`HOLE_BYTES`], as local file systems do. Programs derive the block size from
//! the holes that they find, and take the rest of a block behind data for data.

use std::{ops::Range, slice};

use forebay_proto::{
    Errno,
    limits::HOLE_BYTES,
    message::{MapObject, MapReply, map_what},
};
use forebay_target::{Answer, Attempt, Context};

use crate::{Oss, limits};

/// Reads the object's index in steps.
pub async fn run(oss: &Oss, ctx: &Context, request: MapObject) -> Attempt<Answer> {
    let row = oss.admissible(ctx, &request.object).await?;
    let (fid, mut used) = (request.object.fid, row.map_or(0, |row| row.aside.bytes()));
    let mut hole = block_of(request.offset);
    let mut from = if request.what == map_what::USED { request.offset } else { hole };
    loop {
        let (ranges, next) = oss.store().data_ranges(fid, from, limits::MAP_EXTENTS).await?;
        let next = next.filter(|next| *next > from);
        let found = match request.what {
            map_what::DATA => first_data(&ranges).or(next.is_none().then_some(u64::MAX)),
            map_what::HOLE => match first_hole(&ranges, hole) {
                Ok(found) => Some(found),
                Err(from) => {
                    hole = from;
                    next.is_none().then_some(hole)
                }
            },
            map_what::USED => {
                used += ranges.iter().map(|range| range.end - range.start).sum::<u64>();
                next.is_none().then_some(used)
            }
            _ => return Err(Errno::EINVAL.into()),
        };
        match (found, next) {
            (None, Some(next)) => from = next,
            (found, _) => {
                oss.reads_acknowledged(ctx, fid, slice::from_ref(&(request.offset..u64::MAX))).await?;
                let found = found.unwrap_or(u64::MAX);
                let bytes = if request.what == map_what::USED { found } else { found.max(request.offset) };
                return Ok(Answer::read(&MapReply { bytes }));
            }
        }
        oss.env().yield_now().await;
    }
}

/// The first byte of the block that has the byte at `offset`.
fn block_of(offset: u64) -> u64 {
    offset - offset % HOLE_BYTES
}

/// The first byte of the first block that has any data.
fn first_data(ranges: &[Range<u64>]) -> Option<u64> {
    ranges.first().map(|range| block_of(range.start))
}

/// The first byte of the first empty block from `hole` on, if a range follows it. Otherwise an error with where the
/// search continues after these ranges.
fn first_hole(ranges: &[Range<u64>], mut hole: u64) -> Result<u64, u64> {
    for range in ranges {
        if block_of(range.start) > hole {
            return Ok(hole);
        }
        hole = hole.max(range.end.next_multiple_of(HOLE_BYTES));
    }
    Err(hole)
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: u64 = HOLE_BYTES;

    #[test]
    fn a_hole_begins_with_the_first_block_that_has_no_bytes() {
        assert_eq!(first_hole(&[10..20, 3 * B..3 * B + 1], 0), Ok(B));
        assert_eq!(first_hole(&[10..20, B + 5..B + 6, 3 * B..3 * B + 1], 0), Ok(2 * B));
        let one = 2 * B..4 * B;
        assert_eq!(first_hole(std::slice::from_ref(&one), 0), Ok(0));
        assert_eq!(first_hole(&[10..B, B..B + 1], 0), Err(2 * B));
        assert_eq!(first_hole(&[], 7 * B), Err(7 * B));
    }

    #[test]
    fn a_block_with_a_byte_is_data() {
        assert_eq!(first_data(&[3 * B + 7..3 * B + 8, 9 * B..10 * B]), Some(3 * B));
        assert_eq!(first_data(&[]), None);
    }
}
