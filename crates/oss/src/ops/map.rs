//! MapObject: where the next bytes are, the next hole, or how many bytes there are, with those that room is set aside for.

use std::slice;

use forebay_proto::{
    Errno, ErrorReply,
    message::{MapObject, MapReply, map_what},
};
use forebay_target::{Answer, Context, store_error};

use crate::{Oss, limits};

/// Looks through the object's index, a stretch after another.
pub async fn run(oss: &Oss, ctx: &Context, request: MapObject) -> Result<Answer, ErrorReply> {
    let row = oss.admissible(ctx, &request.object).await?;
    let (mut from, mut used) = (request.offset, row.map_or(0, |row| row.aside.bytes()));
    loop {
        let ranges = oss.store().data_ranges(request.object.fid, from, limits::MAP_EXTENTS).await;
        let (ranges, next) = ranges.map_err(store_error)?;
        let found = match request.what {
            map_what::DATA => ranges.first().map(|range| range.start),
            // What follows the last range is a hole, unless the next stretch begins where it ends.
            map_what::HOLE => first_hole(&ranges, from).filter(|hole| next != Some(*hole)),
            map_what::USED => {
                used += ranges.iter().map(|range| range.end - range.start).sum::<u64>();
                None
            }
            _ => return Err(Errno::EINVAL.into()),
        };
        let bytes = match (found, next) {
            (Some(bytes), _) => Some(bytes),
            (None, Some(next)) if next > from => {
                from = next;
                None
            }
            _ if request.what == map_what::USED => Some(used),
            _ => Some(u64::MAX),
        };
        if let Some(bytes) = bytes {
            oss.all_told(ctx, request.object.fid, slice::from_ref(&(request.offset..u64::MAX))).await?;
            return Ok(Answer::read(&MapReply { bytes }));
        }
        oss.env().yield_now().await;
    }
}

/// The first byte at or after `from` that no range holds.
fn first_hole(ranges: &[std::ops::Range<u64>], from: u64) -> Option<u64> {
    match ranges.first() {
        Some(first) if first.start == from => Some(first.end),
        _ => Some(from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_begins_where_the_bytes_end_or_at_once() {
        let ranges = [10..20, 30..40];
        assert_eq!(first_hole(&ranges, 10), Some(20));
        assert_eq!(first_hole(&ranges, 5), Some(5));
        assert_eq!(first_hole(&[], 7), Some(7));
    }
}
