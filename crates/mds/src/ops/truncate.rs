//! Changes of size, and of the layout of files that have objects: the epoch, and the log row from which the OSTs are driven.
//!
//! Invariant: epoch, size and log row are one transaction; it is committed before any OST hears of it, and the request
//! is replied after all OSTs have, also where the reply is a kept one that is asked for again (`Service::settled`). So it is
//! never replayed, and whoever dies, the row drives it to the end.

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
    /// What is to be done.
    pub purpose: Purpose,
}

/// Why OSTs are told of a new truncate epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The file has a new size.
    Cut {
        /// In bytes.
        size: u64,
    },
    /// Nothing is cut, but nobody writes under the old epoch any more: then what lies behind the end of the file is given
    /// OSTs other than these, which are full.
    Extend {
        /// By index.
        full: Vec<u32>,
    },
    /// As before; then an empty file is given another layout.
    Relayout {
        /// What was asked for.
        spec: LayoutSpec,
    },
    /// The file has this size from now on, and its bytes, which lay with the MDT, are written to its home.
    Outline {
        /// In bytes.
        size: u64,
    },
    /// As before; then the file and its copy exchange their objects.
    Exchange {
        /// The copy.
        other: Fid,
    },
    /// The file was given a modification time, and others than who gave it have it open for writing: what they write from now on
    /// moves the time, though they have not heard of it. The truncate epoch stays.
    SetTime,
}

impl TruncateLog {
    /// The attribute epoch that OSTs are told. The time at which bytes that lay with the MDT are written out is no time of the
    /// file: they are written under the epoch before.
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
            // Who else has it open asks the OSTs, under the epoch that it knows: only a new one makes it look again. Being told
            // the epoch makes objects.
            inode.written = true;
            self.log_truncate(fid, inode, Purpose::Cut { size });
        }
        Ok(())
    }

    /// Logs that the OSTs of a file are to be told of its attribute epoch, unless they are told of a truncate with it.
    pub fn log_set_time(&mut self, fid: Fid, inode: &Inode) {
        if self.effects.truncate != Some(fid) {
            self.log_truncate(fid, inode, Purpose::SetTime);
        }
    }

    /// Logs that the OSTs of a file are to be told of its epochs.
    pub fn log_truncate(&mut self, fid: Fid, inode: &Inode, purpose: Purpose) {
        let log = TruncateLog { truncate_epoch: inode.truncate_epoch, attr_epoch: inode.attr_epoch, purpose };
        self.put_with(keys::truncate(fid), |out| log.encode(out));
        self.effects.truncate = Some(fid);
        self.effects.opens.push(OpenChange::Told { fid });
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
