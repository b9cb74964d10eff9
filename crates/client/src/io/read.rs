//! Reads: all OSTs at once, every block verified, holes as zeros, cut at the end of the file.
//!
//! The home decides where the file ends. A range that ends within what is known (see `size`) needs no request. If a
//! range goes beyond, bytes of other OSTs are read only *after* the size was requested: else a write that both lands
//! and raises the size in between would be read as zeros.

use std::{iter, ops::Range, rc::Rc, slice};

use bytes::Bytes;
use forebay_env::Boxed;
use forebay_proto::{
    Errno,
    message::{GetObject, ReadObject, ReadPieces, ReadReply},
};
use forebay_rpc::{Call, Called, RpcError};

use crate::{
    Client, ClientError, ClientResult, OpenFile,
    errors::Trouble,
    file::FileState,
    io::assemble::{BadReply, RangeBytes, Read, ReadPiece, object_bytes, put_together},
    io::plan::{ObjectRange, ObjectRequest, RequestLimits, plan},
    io::snapshot::Snapshot,
    limits,
    session::peers::Peer,
    tasks::try_all,
};

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
        let size = self.size_for(file, &at, ranges).await?;
        let ranges: Vec<Range<u64>> =
            ranges.iter().map(|range| range.start..range.end.min(size).max(range.start)).collect();
        let length = |range: &Range<u64>| range.end - range.start;
        if let Some(bare) = ranges.iter().find(|range| at.layout.first_gap(range.start, length(range)).is_some()) {
            at = self.with_osts(file, at, bare.start, length(bare)).await?;
        }
        let limits = RequestLimits { bytes: self.inner.options.max_rpc_bytes.into(), pieces: limits::READ_PIECES };
        let requests = plan(&at.layout, ranges.iter().cloned(), limits);
        let mut pieces = self.read_planned(file, &at, requests).await?.into_iter().peekable();
        let read = |range: &Range<u64>| {
            let of_range = iter::from_fn(|| pieces.next_if(|piece| piece.range.start < range.end));
            put_together(range, of_range.collect())
        };
        Ok(ranges.iter().map(read).collect())
    }

    /// Sends what was planned; what was read, in the order of the file.
    async fn read_planned(
        &self,
        file: &Rc<FileState>,
        at: &Snapshot,
        requests: Vec<ObjectRequest>,
    ) -> Result<Vec<ReadPiece>, Trouble> {
        let reads = requests.into_iter().map(|request| {
            let (client, file, at) = (self.clone(), file.clone(), at.clone());
            async move { client.read_object(&file, &at, &request).await }
        });
        let mut pieces: Vec<ReadPiece> = try_all(self.env(), reads).await?.into_iter().flatten().collect();
        pieces.sort_by_key(|piece| piece.range.start);
        Ok(pieces)
    }

    /// `at` with a layout that was fetched just now, if as far as is known a part of the range has no OSTs: others may
    /// have written there since. What has none then is a hole.
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

    /// How long the file is, if that has to be fetched before `ranges` are read; else the largest number.
    async fn size_for(&self, file: &FileState, at: &Snapshot, ranges: &[Range<u64>]) -> Result<u64, Trouble> {
        let (first, last) = (ranges.first().map_or(0, |range| range.start), ranges.last().map_or(0, |range| range.end));
        if last <= at.seen || at.layout.is_at_home(first, last.saturating_sub(first)) {
            return Ok(u64::MAX);
        }
        let request = GetObject { object: at.object.clone() };
        let size = self.ost(at.layout.home(), &request, Call::default()).await?.reply.file_bytes;
        file.size.borrow_mut().see(at.object.truncate_epoch, size);
        Ok(size.max(at.seen))
    }

    /// One request; sent again if its bytes arrive damaged: they may have been damaged on the way.
    async fn read_object(
        &self,
        file: &FileState,
        at: &Snapshot,
        request: &ObjectRequest,
    ) -> Result<Vec<ReadPiece>, Trouble> {
        let mut bad = BadReply::Malformed("it was not asked");
        for _ in 0..limits::READ_ATTEMPTS {
            let (peer, instance) = (self.inner.peers.ost(request.ost).await?, self.inner.instance());
            let called = match ask(&peer, at, &request.pieces).await {
                Err(error) if self.is_of_former_session(instance, &error) => {
                    bad = BadReply::Malformed("its session was ended");
                    continue;
                }
                called => called?,
            };
            match object_bytes(at.object.fid, &request.pieces, &called.reply, called.bulk) {
                Ok(bytes) => {
                    file.size.borrow_mut().see(at.object.truncate_epoch, called.reply.file_bytes);
                    return Ok(replied(at, request.ost, &called.reply, bytes));
                }
                Err(why) => bad = why,
            }
            self.env().log(&format!("client: {}", describe(file, request.ost, &bad)));
        }
        Err(ClientError::new(Errno::EIO, describe(file, request.ost, &bad)).into())
    }
}

/// Sends a request, in the words for one piece if it has only one.
async fn ask(peer: &Peer, at: &Snapshot, pieces: &[ObjectRange]) -> Result<Called<ReadReply>, RpcError> {
    let object = at.object.clone();
    match pieces {
        [one] => {
            let (offset, length) = (one.offset, one.length as u32);
            peer.data_call(&ReadObject { object, offset, length }, Call::default()).await
        }
        several => {
            let pieces = several.iter().map(ObjectRange::piece).collect();
            peer.data_call(&ReadPieces { object, pieces }, Call::default()).await
        }
    }
}

/// What a request has read. The home's reply has the file's length, if that is more than what is known. Pure.
fn replied(at: &Snapshot, ost: u32, reply: &ReadReply, bytes: Vec<RangeBytes>) -> Vec<ReadPiece> {
    let is_home = ost == at.layout.home();
    let (file_bytes, settled) = (if is_home { reply.file_bytes.max(at.seen) } else { u64::MAX }, reply.settled);
    let piece = |(range, parts)| ReadPiece { range, parts, file_bytes, settled };
    bytes.into_iter().map(piece).collect()
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

    /// What `file_bytes` of replies mean for the size, for a read of a range of a file of which `seen` bytes are known.
    fn told(osts: Vec<u32>, seen: u64, range: Range<u64>, file_bytes: u64) -> Vec<u64> {
        let object = ObjectRef { fid: Fid { high: 0, low: 9 }, layout_generation: 1, truncate_epoch: 1 };
        let layout = Layout::plain(1, 64 << 10, osts);
        let (is_buffered, instance) = Default::default();
        let at = Snapshot { layout: layout.into(), object, attr_epoch: 1, seen, is_buffered, instance };
        let reply = ReadReply { segments: Vec::new(), file_bytes, settled: true };
        let bytes = |request: &ObjectRequest| request.ranges().map(|range| (range.clone(), Vec::new())).collect();
        let requests = plan(&at.layout, [range], RequestLimits { bytes: 64 << 10, pieces: 1 });
        let pieces = requests.iter().flat_map(|request| replied(&at, request.ost, &reply, bytes(request)));
        pieces.map(|piece| piece.file_bytes).collect()
    }

    #[test]
    fn what_is_known_of_the_size_counts_where_the_home_never_heard_of_it() {
        assert_eq!(told(vec![0], 150_000, 0..65_536, 0), [150_000]);
        assert_eq!(told(vec![0], 150_000, 0..65_536, 200_000), [200_000]);
    }

    #[test]
    fn only_the_home_tells_the_size() {
        assert_eq!(told(vec![0, 1], 70_000, 0..131_072, 100_000), [100_000, u64::MAX]);
    }
}
