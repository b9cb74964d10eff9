//! Reads: all stripes at once, every block verified, holes as zeros, cut at the end of the file.
//!
//! Where the file ends is the home's to tell (the OST of stripe 0 of the first component). A range that ends within what is known (see `size`) needs no question; of
//! one that goes beyond, bytes of other OSTs are read only *after* the size was asked for: else a write that both
//! lands and raises the size in between would be read as zeros.

use std::{collections::BTreeMap, ops::Range, rc::Rc, slice};

use bytes::Bytes;
use forebay_env::Boxed;
use forebay_proto::{
    Errno,
    message::{GetObject, Piece, ReadObject, ReadPieces, ReadReply},
};
use forebay_rpc::Call;

use crate::{
    Client, ClientError, ClientResult, OpenFile,
    errors::Trouble,
    file::{FileState, Snapshot},
    io::assemble::{BadReply, file_bytes, object_bytes},
    io::plan::{ObjectRange, plan},
    limits,
    tasks::try_all,
};

/// A request's bytes, and the file's size if the home told it.
struct Part {
    bytes: Vec<Bytes>,
    file_bytes: u64,
    settled: bool,
}

/// Bytes of the file.
pub(crate) struct Read {
    /// One after another.
    pub parts: Vec<Bytes>,
    /// All of them are committed.
    pub settled: bool,
}

impl Client {
    /// Reads `[offset, offset + length)`, cut at the end of the file; holes come as zeros; parts one after another.
    ///
    /// That it was read [`Client::accessed`] notes. Every byte was verified against the sums its writer made; EIO if a target has no intact copy.
    pub fn read_parts<'a>(
        &'a self,
        file: &'a OpenFile,
        offset: u64,
        length: usize,
    ) -> Boxed<'a, ClientResult<Vec<Bytes>>> {
        Box::pin(async move {
            file.check_read()?;
            let instance = self.inner.instance();
            let end = offset.saturating_add(length.min(limits::CALL_BYTES) as u64);
            let _outside = self.flush_writes_before_read(file, offset, end).await?;
            let state = file.state();
            let parts = match self.read_inline(file, offset, end).await? {
                Some(parts) => parts,
                None => match self.read_kept(file, &(offset..end)).await {
                    Some(parts) => parts,
                    None => self.fresh(state, async || self.read_once(state, offset, end).await).await?.parts,
                },
            };
            if instance != self.inner.instance() {
                // A lock under which it was begun may be another's by now.
                file.check_read()?;
            }
            self.inner.counters.read(parts.iter().map(Bytes::len).sum());
            Ok(parts)
        })
    }

    /// As [`Client::read_parts`], in one piece (copied only if there are several parts), and as a program reads: its access time moves.
    pub fn read<'a>(&'a self, file: &'a OpenFile, offset: u64, length: usize) -> Boxed<'a, ClientResult<Bytes>> {
        Box::pin(async move {
            let mut parts = self.read_parts(file, offset, length).await?;
            self.accessed(file);
            Ok(match parts.len() {
                0 => Bytes::new(),
                1 => parts.remove(0),
                _ => parts.concat().into(),
            })
        })
    }

    /// One attempt, under the epoch and layout of now.
    pub(crate) async fn read_once(&self, file: &Rc<FileState>, offset: u64, end: u64) -> Result<Read, Trouble> {
        let mut reads = self.read_ranges_once(file, slice::from_ref(&(offset..end))).await?;
        Ok(reads.remove(0))
    }

    /// The same of several ranges, in order and apart: few requests, each of what lies on one OST. The reads are in their order.
    pub(crate) async fn read_ranges_once(
        &self,
        file: &Rc<FileState>,
        ranges: &[Range<u64>],
    ) -> Result<Vec<Read>, Trouble> {
        let mut at = file.snapshot();
        let (first, last) = (ranges.first().map_or(0, |range| range.start), ranges.last().map_or(0, |range| range.end));
        let unknown = last > at.seen && !at.layout.is_at_home(first, last.saturating_sub(first));
        let size = if unknown { self.ask_size(file, &at).await? } else { u64::MAX };
        let ranges: Vec<Range<u64>> =
            ranges.iter().map(|range| range.start..range.end.min(size).max(range.start)).collect();
        let length = |range: &Range<u64>| range.end - range.start;
        if let Some(bare) = ranges.iter().find(|range| at.layout.first_gap(range.start, length(range)).is_some()) {
            at = self.with_osts(file, at, bare.start, length(bare)).await?;
        }
        let most = self.inner.options.max_rpc_bytes.into();
        let plans: Vec<Vec<ObjectRange>> =
            ranges.iter().map(|range| plan(&at.layout, range.start, length(range), most)).collect();
        let planned = plans.concat();
        let groups = together(&planned, most);
        let reads = groups.iter().map(|group| {
            let requests: Vec<ObjectRange> = group.iter().map(|index| planned[*index].clone()).collect();
            let (client, file, at) = (self.clone(), file.clone(), at.clone());
            async move { client.read_object(&file, &at, &requests).await }
        });
        let read = try_all(self.env(), reads).await?;
        let mut parts: Vec<(usize, Part)> = groups.into_iter().flatten().zip(read.into_iter().flatten()).collect();
        parts.sort_by_key(|(index, _)| *index);
        let mut parts = parts.into_iter().map(|(_, part)| part);
        let of_range = |(range, requests): (&Range<u64>, &Vec<ObjectRange>)| {
            put_together(&at, range, requests, parts.by_ref().take(requests.len()).collect())
        };
        Ok(ranges.iter().zip(&plans).map(of_range).collect())
    }

    /// `at` with a layout that was asked for just now, if as far as is known a part of the range has no OSTs: others may have
    /// written there since. What has none then is a hole.
    pub(crate) async fn with_osts(
        &self,
        file: &FileState,
        at: Snapshot,
        offset: u64,
        length: u64,
    ) -> Result<Snapshot, Trouble> {
        if at.layout.first_gap(offset, length).is_none() {
            return Ok(at);
        }
        self.refresh(file).await?;
        let now = file.snapshot();
        if now.object.truncate_epoch == at.object.truncate_epoch {
            Ok(now.of_instance(at.instance))
        } else {
            Err(Trouble::Stale(Errno::STALE_EPOCH.into()))
        }
    }

    /// Asks the home for the file's size.
    async fn ask_size(&self, file: &FileState, at: &Snapshot) -> Result<u64, Trouble> {
        let request = GetObject { object: at.object.clone() };
        let size = self.ost(at.layout.home(), &request, Call::default()).await?.reply.file_bytes;
        file.size.borrow_mut().see(at.object.truncate_epoch, size);
        Ok(size.max(at.seen))
    }

    /// One request for some ranges of one object; asked again if its bytes arrive damaged: they may have been damaged on the way.
    async fn read_object(
        &self,
        file: &FileState,
        at: &Snapshot,
        requests: &[ObjectRange],
    ) -> Result<Vec<Part>, Trouble> {
        let ost = requests[0].ost;
        let mut bad = BadReply::Malformed("it was not asked");
        for _ in 0..limits::READ_ATTEMPTS {
            let (peer, instance) = (self.inner.peers.ost(ost).await?, self.inner.instance());
            let called = match requests {
                [one] => {
                    let (object, length) = (at.object.clone(), one.length as u32);
                    peer.data_call(&ReadObject { object, offset: one.offset, length }, Call::default()).await
                }
                several => {
                    let piece = |one: &ObjectRange| Piece { offset: one.offset, length: one.length as u32 };
                    let (object, pieces) = (at.object.clone(), several.iter().map(piece).collect());
                    peer.data_call(&ReadPieces { object, pieces }, Call::default()).await
                }
            };
            let called = match called {
                Err(error) if self.is_of_former_session(instance, &error) => {
                    bad = BadReply::Malformed("its session was ended");
                    continue;
                }
                called => called?,
            };
            let ReadReply { file_bytes, settled, .. } = called.reply;
            match object_bytes(at.object.fid, requests, &called.reply, called.bulk) {
                Ok(bytes) => {
                    file.size.borrow_mut().see(at.object.truncate_epoch, file_bytes);
                    return Ok(bytes.into_iter().map(|bytes| Part { bytes, file_bytes, settled }).collect());
                }
                Err(why) => bad = why,
            }
            self.env().log(&format!("client: {}", describe(file, ost, &bad)));
        }
        Err(ClientError::new(Errno::EIO, describe(file, ost, &bad)).into())
    }
}

/// Which of `planned` (positions in it) go in one request each: in the order of their object, apart, and no more than a
/// request may have. Pure.
fn together(planned: &[ObjectRange], most: u64) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    // The group of each OST that is not full, and its bytes.
    let mut open: BTreeMap<u32, (usize, u64)> = BTreeMap::new();
    for (index, request) in planned.iter().enumerate() {
        if let Some((group, bytes)) = open.get_mut(&request.ost) {
            let last = groups[*group].last().map(|last| &planned[*last]);
            let follows = last.is_some_and(|last| last.offset + last.length <= request.offset);
            if follows && *bytes + request.length <= most && groups[*group].len() < limits::READ_PIECES {
                *bytes += request.length;
                groups[*group].push(index);
                continue;
            }
        }
        open.insert(request.ost, (groups.len(), request.length));
        groups.push(vec![index]);
    }
    groups
}

/// What was read of one range, of which `requests` were asked.
fn put_together(at: &Snapshot, range: &Range<u64>, requests: &[ObjectRange], parts: Vec<Part>) -> Read {
    if range.is_empty() {
        return Read { parts: Vec::new(), settled: false };
    }
    let end = end_of_file(at, requests, &parts, range.end);
    let settled = parts.iter().all(|part| part.settled);
    let replies = requests.iter().zip(parts).map(|(request, part)| (request, part.bytes)).collect();
    let bytes = end.saturating_sub(range.start);
    Read { parts: file_bytes(replies, &at.layout.gaps(range.start, bytes), bytes), settled }
}

/// Where the bytes read end: a reply of the home that tells a size within its own range has seen the end. Pure.
fn end_of_file(at: &Snapshot, requests: &[ObjectRange], parts: &[Part], end: u64) -> u64 {
    let told = requests.iter().zip(parts).filter(|(request, _)| request.ost == at.layout.home());
    let sizes = told.map(|(request, part)| (request.file_end(), part.file_bytes.max(at.seen)));
    sizes.filter(|(file_end, size)| size < file_end).map(|(_, size)| size).fold(end, u64::min)
}

fn describe(file: &FileState, ost: u32, bad: &BadReply) -> String {
    match bad {
        BadReply::Damaged { offset } => format!(
            "OST{:04x} returned damaged bytes of {} at object offset {offset}: its checksum does not match; scrub the target",
            ost, file.fid
        ),
        BadReply::Malformed(why) => format!("OST{:04x} misread a read of {}: {why}", ost, file.fid),
    }
}

#[cfg(test)]
mod tests {
    use forebay_proto::{Fid, Layout, message::ObjectRef};

    use super::*;

    fn snapshot(osts: Vec<u32>, seen: u64) -> Snapshot {
        let object = ObjectRef { fid: Fid { high: 0, low: 9 }, layout_generation: 1, truncate_epoch: 1 };
        let layout = Layout::plain(1, 64 << 10, osts);
        let (is_buffered, instance) = Default::default();
        Snapshot { layout: layout.into(), object, attr_epoch: 1, seen, is_buffered, instance }
    }

    fn end(at: &Snapshot, range: (u64, u64), sizes: &[u64]) -> u64 {
        let requests = plan(&at.layout, range.0, range.1 - range.0, 64 << 10);
        let parts: Vec<Part> =
            sizes.iter().map(|size| Part { bytes: Vec::new(), file_bytes: *size, settled: true }).collect();
        end_of_file(at, &requests, &parts, range.1)
    }

    /// Records of programs in turn: each OST is asked once for what it has of them.
    #[test]
    fn ranges_far_apart_are_asked_for_together_and_each_byte_once() {
        let layout = Layout::plain(4, 1 << 20, vec![3, 1, 4, 2]);
        let records = (0..200).map(|i| (i * 188_032, 47_008));
        let planned: Vec<ObjectRange> = records.flat_map(|(at, length)| plan(&layout, at, length, 1 << 20)).collect();
        let groups = together(&planned, 1 << 20);
        let mut all: Vec<usize> = groups.concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..planned.len()));
        for group in &groups {
            let of: Vec<&ObjectRange> = group.iter().map(|index| &planned[*index]).collect();
            assert!(of.iter().all(|range| range.ost == of[0].ost));
            assert!(of.windows(2).all(|two| two[0].offset + two[0].length <= two[1].offset));
            assert!(of.iter().map(|range| range.length).sum::<u64>() <= 1 << 20);
        }
        assert!(groups.len() <= 200 * 47_008 / (1 << 20) + 2 * 4, "{}", groups.len());
    }

    #[test]
    fn a_read_ends_where_the_first_reply_saw_the_end() {
        let at = snapshot(vec![0], 0);
        assert_eq!(end(&at, (0, 200_000), &[300_000; 4]), 200_000);
        assert_eq!(end(&at, (0, 200_000), &[100_000; 4]), 100_000);
        // The file grew while it was read: bytes after the first end seen are not known to be whole.
        assert_eq!(end(&at, (0, 200_000), &[65_000, 300_000, 300_000, 300_000]), 65_000);
    }

    #[test]
    fn what_is_known_of_the_size_counts_where_the_target_never_heard_of_it() {
        assert_eq!(end(&snapshot(vec![0], 150_000), (0, 200_000), &[0; 4]), 150_000);
        assert_eq!(end(&snapshot(vec![0, 1], 131_072), (0, 131_072), &[0, 0]), 131_072);
    }
}
