//! Where an object has bytes and where it has holes, from the index alone.

use std::ops::Range;

use forebay_proto::{Fid, limits::FILE_BYTES};

use crate::{
    Store, StoreResult,
    core::Core,
    extent,
    table::{MissingPage, Table},
    txn::decode_row,
};

impl Store {
    /// Ranges of `fid` that hold bytes, in order; adjacent ones are merged. At most `limit` extents are read, from the
    /// one that covers or follows `from`; a range that begins earlier is cut at `from`. The second value is `None` if
    /// nothing follows, else the offset to continue from.
    pub async fn data_ranges(&self, fid: Fid, from: u64, limit: usize) -> StoreResult<(Vec<Range<u64>>, Option<u64>)> {
        self.core().data_ranges(fid, from, limit).await
    }
}

impl Core {
    async fn data_ranges(&self, fid: Fid, from: u64, limit: usize) -> StoreResult<(Vec<Range<u64>>, Option<u64>)> {
        let rows = self.resident(|table| rows(table, fid, from, limit)).await?;
        let next = if rows.len() < limit { None } else { rows.last().map(|(offset, _)| *offset) };
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut at = from;
        for (offset, value) in rows {
            let extent = decode_row(fid, offset, &value)?;
            let (start, end) = (extent.offset.max(from), extent.end());
            if end <= from {
                continue;
            }
            at = end;
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        Ok((ranges, next.map(|_| at)))
    }
}

/// The extent that may cover `from`, and those after it.
fn rows(table: &Table, fid: Fid, from: u64, limit: usize) -> Result<Vec<(u64, Vec<u8>)>, MissingPage> {
    let (first, end) = (extent::key(fid, from), extent::key(fid, FILE_BYTES));
    let mut rows = Vec::new();
    if let Some(row) = table.last_before(&first)?
        && let Some((_, offset)) = extent::parse_key(&row.key).filter(|(owner, _)| *owner == fid)
    {
        rows.push((offset, row.value.to_vec()));
    }
    for row in table.range(&first, &end) {
        if rows.len() >= limit {
            break;
        }
        let row = row?;
        if let Some((_, offset)) = extent::parse_key(&row.key) {
            rows.push((offset, row.value.to_vec()));
        }
    }
    Ok(rows)
}
