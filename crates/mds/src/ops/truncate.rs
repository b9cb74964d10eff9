//! Changes of size: the epoch, and the log row from which the OSTs are driven.
//!
//! Invariant: epoch, size and log row are one transaction; it is committed before any OST hears of it, and the request
//! is replied after all OSTs have, also where the reply is a kept one that is asked for again (`Service::settled`). So it is
//! never replayed, and whoever dies, the row drives it to the end.

use forebay_proto::{DecodeError, Errno, Fid, Layout, Reader, limits};

use crate::{
    halt::Step,
    inode::{Body, Inode},
    keys, perm,
    tx::Tx,
    varint,
};

const VERSION: u8 = 1;

/// A truncate to be driven to the OSTs: the value of its row. The layout is the inode's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TruncateLog {
    /// The new truncate epoch.
    pub truncate_epoch: u64,
    /// The new attribute epoch.
    pub attr_epoch: u64,
    /// The file's new size.
    pub size: u64,
}

impl TruncateLog {
    /// Appends the row's value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        varint::put(out, self.truncate_epoch);
        varint::put(out, self.attr_epoch);
        varint::put(out, self.size);
    }

    /// Reads a row's value.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        if r.u8()? != VERSION {
            return Err(DecodeError::new("truncate: a version this program does not know"));
        }
        Ok(Self { truncate_epoch: varint::get(&mut r)?, attr_epoch: varint::get(&mut r)?, size: varint::get(&mut r)? })
    }

    /// What stripe `stripe`'s target is told: bytes left of the object, and the file's size where it is kept.
    pub fn of_stripe(&self, layout: &Layout, stripe: usize) -> (u64, u64) {
        (layout.object_bytes(stripe, self.size), if stripe == 0 { self.size } else { u64::MAX })
    }
}

impl Tx<'_> {
    /// Gives the file a new size (its row is not yet written); logs it if it may have objects. `caller_is_root`: the set-id
    /// bits of a file that others cut go.
    pub fn resize(&mut self, fid: Fid, inode: &mut Inode, size: u64, caller_is_root: bool) -> Step<()> {
        if size > limits::FILE_BYTES {
            return Err(Errno::EFBIG.into());
        }
        let Body::File(_) = inode.body else {
            return Err(if inode.is_dir() { Errno::EISDIR } else { Errno::EINVAL }.into());
        };
        // Who wrote may have died with the size: then the OSTs have bytes of which nobody here knows.
        let nothing_there = size == 0 && inode.size == 0 && !inode.written;
        // Cut to nothing it has no holes any more; made longer it has one.
        let has_writer = self.memory.opens.has_writer(fid);
        inode.sparse = size != 0 && (inode.sparse || has_writer || size > inode.size);
        inode.size = size;
        inode.mtime_ns = self.origin.now_ns;
        inode.ctime_ns = self.origin.now_ns;
        inode.mtime_set = true;
        if !caller_is_root {
            inode.mode = perm::drop_set_ids(inode.mode);
        }
        if nothing_there {
            inode.attr_epoch += 1;
            return Ok(());
        }
        inode.truncate_epoch += 1;
        inode.attr_epoch += 1;
        if inode.written {
            let log = TruncateLog { truncate_epoch: inode.truncate_epoch, attr_epoch: inode.attr_epoch, size };
            self.put_with(keys::truncate(fid), |out| log.encode(out));
            self.effects.truncate = Some(fid);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The golden bytes of docs/format-mdt.md.
    #[test]
    fn truncates_have_the_bytes_of_the_format() {
        let log = TruncateLog { truncate_epoch: 3, attr_epoch: 4, size: 300 };
        let mut out = Vec::new();
        log.encode(&mut out);
        assert_eq!(out, [1, 3, 4, 0xac, 2]);
        assert_eq!(TruncateLog::decode(&out), Ok(log));
    }

    #[test]
    fn each_stripe_is_told_what_is_left_of_it_and_the_first_the_size() {
        let layout = Layout { generation: 1, stripe_bytes: 64 << 10, osts: vec![4, 5] };
        let log = TruncateLog { truncate_epoch: 1, attr_epoch: 1, size: 100_000 };
        assert_eq!(log.of_stripe(&layout, 0), (65_536, 100_000));
        assert_eq!(log.of_stripe(&layout, 1), (34_464, u64::MAX));
    }
}
