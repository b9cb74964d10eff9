//! The row of an object: size, times, epochs.
//!
//! Key: `0x80`, fid (16 bytes, big-endian). Value: see [`ObjectRow::to_bytes`] and docs/format.md.
//!
//! Invariant: an object has a row from its first write, raise, append or truncate until its destroy.
//! Invariant: `file_bytes` only grows within a truncate epoch.

use bytes::Bytes;
use forebay_proto::{DecodeError, Fid, FidSequence, Reader, Transno, Writer, message::NEVER};

use crate::reserved::ReservedRanges;

/// First byte of an object's key.
const SPACE: u8 = 0x80;
const VERSION: u8 = 2;

/// Size, times and epochs of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectRow {
    /// End of the object's last byte.
    pub object_bytes: u64,
    /// The file's size, if this target is its home; else 0.
    pub file_bytes: u64,
    /// Raised by each truncate of the file.
    pub truncate_epoch: u64,
    /// Bytes of the object that the last truncate left: replays of older writes are clipped to it.
    pub truncated_bytes: u64,
    /// Raised by each utimens of the file.
    pub attr_epoch: u64,
    /// Time of the last write that counts.
    pub mtime_ns: i64,
    /// Transno of the last change.
    pub transno: Transno,
    /// Space reserved by fallocate.
    pub aside: ReservedRanges,
    /// Newest generation of append reservations that wrote bytes in this truncate epoch; 0: none did. Bytes of older
    /// generations are refused (see [`crate::reservations`]).
    pub reservation_generation: u64,
}

/// Key of an object's row.
pub fn key(fid: Fid) -> [u8; 17] {
    let mut key = [SPACE; 17];
    key[1..].copy_from_slice(&fid.to_key());
    key
}

/// The fid of a row's key.
pub fn fid_of(key: &[u8]) -> Option<Fid> {
    let (space, fid) = key.split_first()?;
    (*space == SPACE).then(|| Fid::from_key(fid)).flatten()
}

/// The first key at or after the first fid of `sequence`.
pub fn sequence_start(sequence: FidSequence) -> [u8; 17] {
    let low = sequence.0.saturating_mul(1 << forebay_proto::ids::FID_SEQUENCE_BITS);
    key(Fid { high: 0, low })
}

impl ObjectRow {
    /// Version (1 byte), seven words of 8 bytes in the order of the fields, the reserved ranges, and the reservation
    /// generation if it is not 0.
    pub fn to_bytes(&self) -> Bytes {
        let mut w = Writer::default();
        w.u8(VERSION);
        w.u64(self.object_bytes);
        w.u64(self.file_bytes);
        w.u64(self.truncate_epoch);
        w.u64(self.truncated_bytes);
        w.u64(self.attr_epoch);
        w.i64(self.mtime_ns);
        w.u64(self.transno.0);
        self.aside.encode(&mut w);
        if self.reservation_generation > 0 {
            w.u64(self.reservation_generation);
        }
        w.into_vec().into()
    }

    /// Reads a row's value.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        if r.u8()? != VERSION {
            return Err(DecodeError::new("object row: a version this program does not know"));
        }
        Ok(Self {
            object_bytes: r.u64()?,
            file_bytes: r.u64()?,
            truncate_epoch: r.u64()?,
            truncated_bytes: r.u64()?,
            attr_epoch: r.u64()?,
            mtime_ns: r.i64()?,
            transno: Transno(r.u64()?),
            aside: ReservedRanges::decode(&mut r)?,
            reservation_generation: if r.is_empty() { 0 } else { r.u64()? },
        })
    }

    /// Applies the time of a change that was made under these epochs. An attribute epoch newer than the object's sets
    /// the time. A change of an older attribute epoch counts like one of the current epoch: its writer does not know
    /// yet that another client has set the time. The exception is a replay from before the last truncate, which does
    /// not count.
    ///
    /// Within an epoch each change moves the time forward, also while a clock that was set back catches up. Otherwise
    /// programs that compare times (`make`, `rsync`) would miss the change. The latest time of a file's objects is the
    /// file's.
    pub fn touch(&mut self, truncate_epoch: u64, attr_epoch: u64, now_ns: i64) {
        if attr_epoch > self.attr_epoch {
            (self.attr_epoch, self.mtime_ns) = (attr_epoch, now_ns);
        } else if attr_epoch == self.attr_epoch || truncate_epoch >= self.truncate_epoch {
            self.mtime_ns = now_ns.max(self.mtime_ns.saturating_add(1));
        }
    }

    /// A client has set the file's time, which is in the inode. The times of earlier writes do not count any more.
    pub fn begin_attr_epoch(&mut self, attr_epoch: u64) {
        if self.attr_epoch < attr_epoch {
            (self.attr_epoch, self.mtime_ns) = (attr_epoch, NEVER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_bytes_are_golden() {
        let row = ObjectRow {
            object_bytes: 1,
            file_bytes: 2,
            truncate_epoch: 3,
            truncated_bytes: 4,
            attr_epoch: 5,
            mtime_ns: -1,
            transno: Transno(7),
            aside: ReservedRanges::default(),
            reservation_generation: 0,
        };
        let mut expected = vec![2u8];
        for word in [1u64, 2, 3, 4, 5, u64::MAX, 7] {
            expected.extend_from_slice(&word.to_le_bytes());
        }
        expected.push(0);
        assert_eq!(row.to_bytes(), expected);
        assert_eq!(ObjectRow::from_bytes(&expected), Ok(row.clone()));
        assert!(ObjectRow::from_bytes(&expected[..20]).is_err());
        let placed = ObjectRow { reservation_generation: 8, ..row };
        expected.extend_from_slice(&8u64.to_le_bytes());
        assert_eq!(placed.to_bytes(), expected);
        assert_eq!(ObjectRow::from_bytes(&expected), Ok(placed));
        assert!(ObjectRow::from_bytes(&expected[..expected.len() - 1]).is_err());
    }

    #[test]
    fn keys_are_ordered_as_fids_and_find_their_way_back() {
        let (a, b) = (Fid { high: 0, low: 255 }, Fid { high: 0, low: 256 });
        assert!(key(a) < key(b));
        assert_eq!(fid_of(&key(b)), Some(b));
        assert_eq!(fid_of(&[0x11; 17]), None);
    }

    #[test]
    fn a_newer_epoch_sets_the_time_be_it_earlier() {
        let mut row = ObjectRow { attr_epoch: 2, mtime_ns: 100, ..ObjectRow::default() };
        row.touch(0, 3, 50);
        assert_eq!((row.attr_epoch, row.mtime_ns), (3, 50));
    }

    #[test]
    fn a_write_of_an_older_attribute_epoch_moves_a_set_time_and_a_write_before_a_truncate_does_not() {
        let mut row = ObjectRow { truncate_epoch: 7, attr_epoch: 1, mtime_ns: 100, ..ObjectRow::default() };
        row.begin_attr_epoch(2);
        row.begin_attr_epoch(1);
        assert_eq!((row.attr_epoch, row.mtime_ns), (2, NEVER));
        row.touch(6, 1, 500);
        assert_eq!(row.mtime_ns, NEVER);
        row.touch(7, 1, 200);
        assert_eq!((row.attr_epoch, row.mtime_ns), (2, 200));
        row.begin_attr_epoch(2);
        row.touch(7, 0, 150);
        assert_eq!((row.attr_epoch, row.mtime_ns), (2, 201));
    }

    #[test]
    fn each_change_of_an_epoch_moves_the_time_also_where_the_clock_was_set_back() {
        let mut row = ObjectRow { attr_epoch: 2, mtime_ns: 200, ..ObjectRow::default() };
        for (now_ns, told) in [(150, 201), (150, 202), (202, 203), (500, 500)] {
            row.touch(0, 2, now_ns);
            assert_eq!(row.mtime_ns, told);
        }
        // The time of a truncate or of a utimens is in the inode: the first write after it takes the clock's.
        row.mtime_ns = NEVER;
        row.touch(0, 2, 50);
        assert_eq!(row.mtime_ns, 50);
    }
}
