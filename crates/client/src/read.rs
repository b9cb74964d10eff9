//! Reads: all stripes at once, every block verified, holes as zeros, cut at the end of the file.
//!
//! Where the file ends is the home's to tell (the OST of stripe 0 of the first component). A range that ends within what is known (see `size`) needs no question; of
//! one that goes beyond, bytes of other OSTs are read only *after* the size was asked for: else a write that both
//! lands and raises the size in between would be read as zeros.

use std::rc::Rc;

use bytes::Bytes;
use forebay_env::Boxed;
use forebay_proto::{
    Errno,
    message::{GetObject, ReadObject, ReadReply},
};
use forebay_rpc::Call;

use crate::{
    Client, ClientError, ClientResult, OpenFile,
    assemble::{BadReply, file_bytes, object_bytes},
    errors::Trouble,
    file::{FileState, Snapshot},
    limits,
    plan::{ObjectRange, plan},
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
    /// Every byte was verified against the sums its writer made; EIO if a target has no intact copy.
    pub fn read_parts<'a>(
        &'a self,
        file: &'a OpenFile,
        offset: u64,
        length: usize,
    ) -> Boxed<'a, ClientResult<Vec<Bytes>>> {
        Box::pin(async move {
            file.check_read()?;
            let end = offset.saturating_add(length.min(limits::CALL_BYTES) as u64);
            let _outside = self.send_kept_before_read(file, offset, end).await?;
            let state = file.state();
            let parts = match self.read_inline(file, offset, end).await? {
                Some(parts) => parts,
                None => match self.read_kept(file, &(offset..end)).await {
                    Some(parts) => parts,
                    None => self.fresh(state, async || self.read_once(state, offset, end).await).await?.parts,
                },
            };
            self.inner.counters.read(parts.iter().map(Bytes::len).sum());
            Ok(parts)
        })
    }

    /// As [`Client::read_parts`], in one piece (copied only if there are several parts).
    pub fn read<'a>(&'a self, file: &'a OpenFile, offset: u64, length: usize) -> Boxed<'a, ClientResult<Bytes>> {
        Box::pin(async move {
            let mut parts = self.read_parts(file, offset, length).await?;
            Ok(match parts.len() {
                0 => Bytes::new(),
                1 => parts.remove(0),
                _ => parts.concat().into(),
            })
        })
    }

    /// One attempt, under the epoch and layout of now.
    pub(crate) async fn read_once(&self, file: &Rc<FileState>, offset: u64, end: u64) -> Result<Read, Trouble> {
        let at = file.snapshot();
        let end = if end > at.seen && !at.layout.is_at_home(offset, end.saturating_sub(offset)) {
            end.min(self.ask_size(file, &at).await?)
        } else {
            end
        };
        if end <= offset {
            return Ok(Read { parts: Vec::new(), settled: false });
        }
        let at = self.with_osts(file, at, offset, end - offset).await?;
        let requests = plan(&at.layout, offset, end - offset, self.inner.options.max_rpc_bytes.into());
        let reads = requests.iter().map(|request| {
            let (client, file, at, request) = (self.clone(), file.clone(), at.clone(), request.clone());
            async move { client.read_object(&file, &at, &request).await }
        });
        let parts = try_all(self.env(), reads).await?;
        let end = end_of_file(&at, &requests, &parts, end);
        let settled = parts.iter().all(|part| part.settled);
        let replies = requests.iter().zip(parts).map(|(request, part)| (request, part.bytes)).collect();
        let holes = at.layout.gaps(offset, end.saturating_sub(offset));
        Ok(Read { parts: file_bytes(replies, &holes, end.saturating_sub(offset)), settled })
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
            Ok(now)
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

    /// One request; asked again if its bytes arrive damaged: they may have been damaged on the way.
    async fn read_object(&self, file: &FileState, at: &Snapshot, request: &ObjectRange) -> Result<Part, Trouble> {
        let message = ReadObject { object: at.object.clone(), offset: request.offset, length: request.length as u32 };
        let peer = self.inner.peers.ost(request.ost).await?;
        let mut bad = BadReply::Malformed("it was not asked");
        for _ in 0..limits::READ_ATTEMPTS {
            let called = peer.data_call(&message, Call::default()).await?;
            match object_bytes(at.object.fid, request, &called.reply, called.bulk) {
                Ok(bytes) => {
                    file.size.borrow_mut().see(at.object.truncate_epoch, called.reply.file_bytes);
                    let ReadReply { file_bytes, settled, .. } = called.reply;
                    return Ok(Part { bytes, file_bytes, settled });
                }
                Err(why) => bad = why,
            }
            self.env().log(&format!("client: {}", describe(file, request, &bad)));
        }
        Err(ClientError::new(Errno::EIO, describe(file, request, &bad)).into())
    }
}

/// Where the bytes read end: a reply of the home that tells a size within its own range has seen the end. Pure.
fn end_of_file(at: &Snapshot, requests: &[ObjectRange], parts: &[Part], end: u64) -> u64 {
    let told = requests.iter().zip(parts).filter(|(request, _)| request.ost == at.layout.home());
    let sizes = told.map(|(request, part)| (request.file_end(), part.file_bytes.max(at.seen)));
    sizes.filter(|(file_end, size)| size < file_end).map(|(_, size)| size).fold(end, u64::min)
}

fn describe(file: &FileState, request: &ObjectRange, bad: &BadReply) -> String {
    match bad {
        BadReply::Damaged { offset } => format!(
            "OST{:04x} returned damaged bytes of {} at object offset {offset}: its checksum does not match; scrub the target",
            request.ost, file.fid
        ),
        BadReply::Malformed(why) => format!("OST{:04x} misread a read of {}: {why}", request.ost, file.fid),
    }
}

#[cfg(test)]
mod tests {
    use forebay_proto::{Fid, Layout, message::ObjectRef};

    use super::*;

    fn snapshot(osts: Vec<u32>, seen: u64) -> Snapshot {
        let object = ObjectRef { fid: Fid { high: 0, low: 9 }, layout_generation: 1, truncate_epoch: 1 };
        let layout = Layout::plain(1, 64 << 10, osts);
        Snapshot { layout: layout.into(), object, attr_epoch: 1, seen }
    }

    fn end(at: &Snapshot, range: (u64, u64), sizes: &[u64]) -> u64 {
        let requests = plan(&at.layout, range.0, range.1 - range.0, 64 << 10);
        let parts: Vec<Part> =
            sizes.iter().map(|size| Part { bytes: Vec::new(), file_bytes: *size, settled: true }).collect();
        end_of_file(at, &requests, &parts, range.1)
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
