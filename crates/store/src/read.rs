//! Verified reads.
//!
//! Plan from the index, read whole blocks from the device (neighbours in one read), verify, and only then cut.
//! If bytes do not match their checksums, the index lookup is repeated: the cleaner may have moved them meanwhile.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use forebay_env::{Bug, planted};
use forebay_proto::{
    Fid, crc,
    limits::{BLOCK_BYTES, FILE_BYTES},
};

use crate::{
    Segment, SegmentBody, StoreError, StoreResult,
    core::Core,
    extent::{self, Extent},
    limits,
    slab::Place,
    table::{MissingPage, Table},
    txn::decode_row,
};

/// One read of the device, for one or more extents.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DeviceRead {
    /// Where it begins.
    pub place: Place,
    /// How long it is.
    pub bytes: u64,
    /// Positions in the list of extents.
    pub extents: Vec<usize>,
}

impl Core {
    /// See [`crate::Store::read`].
    pub(crate) async fn read(&self, fid: Fid, ranges: &[Range<u64>]) -> StoreResult<Vec<Segment>> {
        self.read_with_row(fid, ranges, None).await.map(|(_, segments)| segments)
    }

    /// See [`crate::Store::read_with_row`].
    pub(crate) async fn read_with_row(
        &self,
        fid: Fid,
        ranges: &[Range<u64>],
        key: Option<&[u8]>,
    ) -> StoreResult<(Option<Bytes>, Vec<Segment>)> {
        if let Some(range) = ranges.iter().find(|range| range.start > range.end || range.end > FILE_BYTES) {
            return Err(StoreError::invalid(format!("object {fid}: a read of {range:?} is not possible")));
        }
        let mut tries = 0;
        let (mut row, mut wanted) = self.extents_within(fid, ranges, key).await?;
        loop {
            let error = match self.read_extents(fid, &wanted).await {
                Ok(segments) => return Ok((row, with_holes(segments, ranges))),
                Err(error) => error,
            };
            let now = self.extents_within(fid, ranges, key).await?;
            tries += 1;
            if now.1 == wanted || tries > limits::READ_RETRIES {
                self.stats.borrow_mut().read_corruptions += 1;
                return Err(error);
            }
            (row, wanted) = now;
        }
    }

    /// Loads the index of `range` of an object into memory; it stays until the caller's next await.
    pub(crate) async fn prefetch_extents(&self, fid: Fid, range: Range<u64>) -> StoreResult<()> {
        if self.options.cache_bytes.is_none() {
            self.load_range(&extent::key(fid, range.start), &extent::key(fid, range.end)).await?;
        }
        // An extent that reaches beyond the range gets a row at the range's end when the range is written or cut.
        let end = extent::key(fid, range.end);
        self.resident(|table| visit(table, fid, &range, |_, _| ()).and_then(|()| table.get(&end).map(drop))).await
    }

    /// Extents that overlap `range`, in order.
    pub(crate) async fn extents_of(&self, fid: Fid, range: &Range<u64>) -> StoreResult<Vec<Extent>> {
        let rows = self
            .resident(|table| {
                let mut rows = Vec::new();
                visit(table, fid, range, |offset, value| rows.push((offset, value.to_vec())))?;
                Ok(rows)
            })
            .await?;
        let mut extents = Vec::with_capacity(rows.len());
        for (offset, value) in rows {
            let extent = decode_row(fid, offset, &value)?;
            extents.extend((extent.end() > range.start && extent.offset < range.end).then_some(extent));
        }
        Ok(extents)
    }

    /// The parts of extents that lie in `ranges`, one range after another, and the row `key`: all as of one moment.
    async fn extents_within(
        &self,
        fid: Fid,
        ranges: &[Range<u64>],
        key: Option<&[u8]>,
    ) -> StoreResult<(Option<Bytes>, Vec<Extent>)> {
        let look = |table: &Table| {
            let row = key.map(|key| table.get(key)).transpose()?.flatten().map(Bytes::copy_from_slice);
            let mut found = Vec::new();
            for range in ranges {
                visit(table, fid, range, |offset, value| found.push((range, offset, value.to_vec())))?;
            }
            Ok((row, found))
        };
        self.check_running()?;
        let at_once = look(&self.table.borrow());
        let (row, found) = match at_once {
            Ok(found) => found,
            Err(_) => {
                // Load one range after the other first: a lookup of all ranges starts over for each page that it
                // misses.
                for range in ranges {
                    self.resident(|table| visit(table, fid, range, |_, _| ())).await?;
                }
                self.resident(look).await?
            }
        };
        let mut extents = Vec::with_capacity(found.len());
        for (range, offset, value) in found {
            let extent = decode_row(fid, offset, &value)?;
            if extent.end() > range.start && extent.offset < range.end {
                extents.push(extent.cut(extent.offset.max(range.start)..extent.end().min(range.end)));
            }
        }
        Ok((row, extents))
    }

    async fn read_extents(&self, fid: Fid, wanted: &[Extent]) -> StoreResult<Vec<Segment>> {
        let mut covers: Vec<Bytes> = vec![Bytes::new(); wanted.len()];
        for read in plan_reads(wanted, limits::READ_GAP_BYTES) {
            let part = |index: usize| {
                let at = (wanted[index].place.at - read.place.at) as usize;
                at..at + cover_bytes(&wanted[index]) as usize
            };
            let good = |bytes: &[u8]| read.extents.iter().all(|i| verify(fid, &wanted[*i], &bytes[part(*i)]).is_ok());
            let bytes = self.read_place(read.place, read.bytes, good).await?;
            read.extents.iter().for_each(|index| covers[*index] = bytes.slice(part(*index)));
        }
        let mut segments = Vec::with_capacity(wanted.len());
        for (extent, cover) in wanted.iter().zip(covers) {
            segments.push(match self.verified_segment(fid, extent, cover) {
                // Of what was read together, each copy may have a different part damaged.
                Err(_) if self.data.copies().len() > 1 => {
                    let good = |cover: &[u8]| verify(fid, extent, cover).is_ok();
                    let cover = self.read_place(extent.place, cover_bytes(extent), good).await?;
                    self.verified_segment(fid, extent, cover)?
                }
                segment => segment?,
            });
        }
        Ok(segments)
    }

    fn verified_segment(&self, fid: Fid, extent: &Extent, cover: Bytes) -> StoreResult<Segment> {
        verify(fid, extent, &cover)
            .map_err(|error| StoreError { message: format!("{}: {}", self.identity.target, error.message), ..error })?;
        let (bytes, sums) = cut_verified(fid, extent, cover);
        let body = SegmentBody::Data { bytes, write_id: extent.write_id, version: extent.version, sums };
        Ok(Segment { offset: extent.offset, length: extent.length, body })
    }
}

/// Calls `each` with the offset and value of every extent row that may overlap `range`.
fn visit(table: &Table, fid: Fid, range: &Range<u64>, mut each: impl FnMut(u64, &[u8])) -> Result<(), MissingPage> {
    let (from, to) = (extent::key(fid, range.start), extent::key(fid, range.end));
    if let Some(row) = table.last_before(&from)?
        && let Some((_, offset)) = extent::parse_key(&row.key).filter(|(owner, _)| *owner == fid)
    {
        each(offset, row.value);
    }
    for row in table.range(&from, &to) {
        let row = row?;
        if let Some((_, offset)) = extent::parse_key(&row.key) {
            each(offset, row.value);
        }
    }
    Ok(())
}

/// Bytes of an extent's cover.
pub(crate) fn cover_bytes(extent: &Extent) -> u64 {
    let cover = extent.cover();
    cover.end - cover.start
}

/// Plans one read for neighbours on the device: those less than `gap_bytes` apart.
pub(crate) fn plan_reads(extents: &[Extent], gap_bytes: u64) -> Vec<DeviceRead> {
    let mut order: Vec<usize> = (0..extents.len()).collect();
    order.sort_by_key(|index| extents[*index].place);
    let mut reads: Vec<DeviceRead> = Vec::new();
    for index in order {
        let (place, bytes) = (extents[index].place, cover_bytes(&extents[index]));
        let end = u64::from(place.at) + bytes;
        if let Some(last) = reads.last_mut()
            && (last.place.slab, last.place.epoch) == (place.slab, place.epoch)
            && u64::from(place.at) <= u64::from(last.place.at) + last.bytes + gap_bytes
            && end - u64::from(last.place.at) <= limits::READ_BYTES
        {
            last.bytes = last.bytes.max(end - u64::from(last.place.at));
            last.extents.push(index);
            continue;
        }
        reads.push(DeviceRead { place, bytes, extents: vec![index] });
    }
    reads
}

/// Checks every block of the extent's cover.
pub(crate) fn verify(fid: Fid, extent: &Extent, cover: &[u8]) -> StoreResult<()> {
    let start = extent.cover().start;
    for ((at, length), expected) in extent.cover_blocks().zip(&extent.sums) {
        let block = &cover[(at - start) as usize..(at - start + length) as usize];
        let got = crc::block_sum(fid, at, extent.write_id, block);
        if got != *expected && !planted(Bug::ReadSumSkipped) {
            let Place { slab, at: place, .. } = extent.place;
            return Err(StoreError::corrupt(format!(
                "object {fid}, block at {at} ({length} bytes; slab {slab}, byte {}): sum {got:#018x} instead of {expected:#018x}",
                u64::from(place) + at - start
            )));
        }
    }
    Ok(())
}

/// The extent's own bytes out of its verified cover, and their sums: stored ones for whole blocks, new ones for cut
/// blocks.
pub(crate) fn cut_verified(fid: Fid, extent: &Extent, cover: Bytes) -> (Bytes, Vec<u64>) {
    let bytes = cover.slice(extent.lead as usize..cover.len() - extent.tail as usize);
    let mut sums = extent.sums.clone();
    let blocks: Vec<_> = crc::blocks(extent.offset, extent.length, BLOCK_BYTES).collect();
    let resum = |index: usize| {
        let (at, length) = blocks[index];
        let from = (at - extent.offset) as usize;
        crc::block_sum(fid, at, extent.write_id, &bytes[from..from + length as usize])
    };
    if extent.lead > 0 {
        sums[0] = resum(0);
    }
    if extent.tail > 0 {
        let last = blocks.len() - 1;
        sums[last] = resum(last);
    }
    (bytes, sums)
}

/// `segments`, which lie in `ranges` (both in order), with holes where no segment covers a range.
fn with_holes(segments: Vec<Segment>, ranges: &[Range<u64>]) -> Vec<Segment> {
    let mut all = Vec::with_capacity(segments.len() * 2 + 1);
    let mut segments = segments.into_iter().peekable();
    let hole = |from: u64, to: u64| Segment { offset: from, length: to - from, body: SegmentBody::Hole };
    for range in ranges {
        let mut at = range.start;
        while let Some(segment) = segments.next_if(|segment| segment.offset < range.end) {
            if segment.offset > at {
                all.push(hole(at, segment.offset));
            }
            at = segment.offset + segment.length;
            all.push(segment);
        }
        if at < range.end {
            all.push(hole(at, range.end));
        }
    }
    all
}

impl Segment {
    /// Copies segments of one range into one buffer, holes as zeros. For tests and small reads.
    pub fn concat(segments: &[Segment]) -> Bytes {
        let mut whole = BytesMut::with_capacity(segments.iter().map(|s| s.length as usize).sum());
        for segment in segments {
            match &segment.body {
                SegmentBody::Data { bytes, .. } => whole.extend_from_slice(bytes),
                SegmentBody::Hole => whole.resize(whole.len() + segment.length as usize, 0),
            }
        }
        whole.freeze()
    }
}
