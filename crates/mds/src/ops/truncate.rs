//! Changes of size, and of the layout of files that have objects: the epoch, and the log row that drives the OSTs.
//!
//! Invariant: epoch, size and log row are one transaction. It is committed before any OST is notified. The request is
//! replied after all OSTs have replied, and so is a resend that is answered with the cached reply (`Service::settled`).
//! So it is never replayed, and after any crash the row drives it to completion.

use forebay_proto::{DecodeError, Errno, Fid, Reader, limits, message::LayoutSpec};

use crate::{
    halt::Step,
    inode::{Body, Inode},
    keys, layout_row,
    opens::OpenChange,
    perm,
    tx::Tx,
    varint,
};

const VERSION: u8 = 2;

/// A change of a file to be driven to its OSTs: the value of its row. The layout is the inode's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TruncateLog {
    /// The new truncate epoch.
    pub truncate_epoch: u64,
    /// The attribute epoch.
    pub attr_epoch: u64,
    /// Why the OSTs are notified.
    pub purpose: Purpose,
}

/// Why OSTs are sent a file's epochs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The file has a new size.
    Cut {
        /// In bytes.
        size: u64,
    },
    /// Nothing is cut, but no client writes under the old epoch any more. What lies behind the end of the file then
    /// gets OSTs other than these, which are full.
    Extend {
        /// OST indices.
        full: Vec<u32>,
    },
    /// As before; then an empty file gets another layout.
    Relayout {
        /// The requested layout.
        spec: LayoutSpec,
    },
    /// The file has this size from now on, and its inline bytes are written to its home.
    Outline {
        /// In bytes.
        size: u64,
    },
    /// As before; then the file and its copy exchange their objects.
    Exchange {
        /// The copy.
        other: Fid,
    },
    /// The file got a modification time while other sessions have it open for writing. What they write from now on
    /// moves the time, though they do not know of it. The truncate epoch stays.
    SetTime,
}

impl TruncateLog {
    /// The attribute epoch that is sent to the OSTs. The time at which inline bytes are written out must not become the
    /// file's time, so they are written under the previous epoch.
    pub fn attr_epoch_at_osts(&self) -> u64 {
        self.attr_epoch.saturating_sub(u64::from(matches!(self.purpose, Purpose::Outline { .. })))
    }

    /// Appends the row's value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        varint::put(out, self.truncate_epoch);
        varint::put(out, self.attr_epoch);
        match &self.purpose {
            Purpose::Cut { size } => {
                out.push(0);
                varint::put(out, *size);
            }
            Purpose::Extend { full } => {
                out.push(1);
                varint::put(out, full.len() as u64);
                full.iter().for_each(|ost| varint::put(out, (*ost).into()));
            }
            Purpose::Relayout { spec } => {
                out.push(2);
                layout_row::encode_spec(spec, out);
            }
            Purpose::Exchange { other } => {
                out.push(3);
                varint::put_fid(out, *other);
            }
            Purpose::Outline { size } => {
                out.push(4);
                varint::put(out, *size);
            }
            Purpose::SetTime => out.push(5),
        }
    }

    /// Reads a row's value.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        if r.u8()? != VERSION {
            return Err(DecodeError::new("truncate: a version this program does not know"));
        }
        let (truncate_epoch, attr_epoch) = (varint::get(&mut r)?, varint::get(&mut r)?);
        let purpose = match r.u8()? {
            0 => Purpose::Cut { size: varint::get(&mut r)? },
            1 => {
                let count = varint::get(&mut r)?;
                Purpose::Extend { full: (0..count).map(|_| varint::get_u32(&mut r)).collect::<Result<_, _>>()? }
            }
            2 => Purpose::Relayout { spec: layout_row::decode_spec(&mut r)? },
            3 => Purpose::Exchange { other: varint::get_fid(&mut r)? },
            4 => Purpose::Outline { size: varint::get(&mut r)? },
            5 => Purpose::SetTime,
            _ => return Err(DecodeError::new("truncate: a purpose this program does not know")),
        };
        Ok(Self { truncate_epoch, attr_epoch, purpose })
    }
}

impl Tx<'_> {
    /// Sets the size of the file (its row is not yet written), and logs it if the file may have objects.
    /// `caller_is_root`: if false, the file loses its set-id bits.
    pub fn resize(&mut self, fid: Fid, inode: &mut Inode, size: u64, caller_is_root: bool) -> Step<()> {
        if size > limits::FILE_BYTES {
            return Err(Errno::EFBIG.into());
        }
        let Body::File(_) = inode.body else {
            return Err(if inode.is_dir() { Errno::EISDIR } else { Errno::EINVAL }.into());
        };
        // A writer may have died before it reported the size: then the OSTs have bytes that the MDT does not know of.
        let nothing_there = size == 0 && inode.size == 0 && !inode.written;
        // A file cut to nothing has no holes any more; an extended one has a hole.
        let has_writer = self.memory.opens.has_writer(fid);
        inode.sparse = size != 0 && (inode.sparse || has_writer || size > inode.size);
        let was_inline = inode.inline;
        if was_inline {
            self.resize_inline(fid, inode, size)?;
        }
        inode.size = size;
        inode.mtime_ns = self.origin.now_ns;
        inode.changed_at(self.origin.now_ns);
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
        if was_inline && size > 0 {
            if size > limits::INLINE_BYTES as u64 {
                self.log_truncate(fid, inode, Purpose::Outline { size });
            }
        } else if inode.written || self.memory.opens.is_open_elsewhere(fid, self.origin.session) {
            // Other sessions with the file open use the OSTs under the epoch that they know: only a new one makes them look
            // again. Notifying an OST of the epoch creates an object there.
            inode.written = true;
            self.log_truncate(fid, inode, Purpose::Cut { size });
        }
        Ok(())
    }

    /// Logs that the OSTs of a file are to be sent its attribute epoch, unless a truncate carries it.
    pub fn log_set_time(&mut self, fid: Fid, inode: &Inode) {
        if self.effects.truncate != Some(fid) {
            self.log_truncate(fid, inode, Purpose::SetTime);
        }
    }

    /// Logs that the OSTs of a file are to be sent its epochs.
    pub fn log_truncate(&mut self, fid: Fid, inode: &Inode, purpose: Purpose) {
        let log = TruncateLog { truncate_epoch: inode.truncate_epoch, attr_epoch: inode.attr_epoch, purpose };
        self.put_with(keys::truncate(fid), |out| log.encode(out));
        self.effects.truncate = Some(fid);
        self.effects.opens.push(OpenChange::OstsNotified { fid });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden(purpose: Purpose, bytes: &[u8]) {
        let log = TruncateLog { truncate_epoch: 3, attr_epoch: 4, purpose };
        let mut out = Vec::new();
        log.encode(&mut out);
        assert_eq!(out, bytes);
        assert_eq!(TruncateLog::decode(&out), Ok(log));
        (0..out.len()).for_each(|len| assert!(TruncateLog::decode(&out[..len]).is_err()));
    }

    /// The golden bytes of docs/format-mdt.md.
    #[test]
    fn truncates_have_the_bytes_of_the_format() {
        golden(Purpose::Cut { size: 300 }, &[2, 3, 4, 0, 0xac, 2]);
        golden(Purpose::Extend { full: vec![7, 300] }, &[2, 3, 4, 1, 2, 7, 0xac, 2]);
        let spec = LayoutSpec { stripe_count: 5, ..LayoutSpec::inherit() };
        golden(Purpose::Relayout { spec }, &[2, 3, 4, 2, 5, 0, 0, 0, 0]);
        golden(Purpose::Exchange { other: Fid { high: 0, low: 300 } }, &[2, 3, 4, 3, 0, 0xac, 2]);
        golden(Purpose::Outline { size: 300 }, &[2, 3, 4, 4, 0xac, 2]);
        golden(Purpose::SetTime, &[2, 3, 4, 5]);
    }
}
