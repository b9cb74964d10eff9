//! Arithmetic of the ring: positions, the longest record, how transactions are cut.
//!
//! Invariant: a record never straddles the ring's end; a transaction is cut there, so nothing is wasted on padding.

use super::{
    Lsn,
    limits::{
        RECORD_BYTES_MAX, RECORD_RING_SHARE, RESERVE_BYTES_MAX, RESERVE_BYTES_MIN, RESERVE_RING_SHARE, RING_BYTES_MIN,
        RING_START, SECTOR,
    },
    record::{HEADER_BYTES, record_bytes},
};

/// A ring of a certain size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Geometry {
    ring_bytes: u64,
}

impl Geometry {
    /// `None` if a ring cannot have this size.
    pub(super) fn new(ring_bytes: u64) -> Option<Self> {
        let possible = (RING_BYTES_MIN..1 << 62).contains(&ring_bytes) && ring_bytes.is_multiple_of(SECTOR);
        possible.then_some(Self { ring_bytes })
    }

    /// The ring of a device; `None` if the device is too small.
    pub(super) fn of_device(device_bytes: u64) -> Option<Self> {
        Self::new(device_bytes.saturating_sub(RING_START) / SECTOR * SECTOR)
    }

    /// True for positions at which a record may begin.
    pub(super) fn is_lsn(lsn: Lsn) -> bool {
        lsn.0.is_multiple_of(SECTOR) && lsn.0 < 1 << 62
    }

    pub(super) fn ring_bytes(self) -> u64 {
        self.ring_bytes
    }

    /// The device this ring needs.
    pub(super) fn device_bytes(self) -> u64 {
        RING_START + self.ring_bytes
    }

    /// Longest record.
    pub(super) fn record_bytes_max(self) -> u64 {
        RECORD_BYTES_MAX.min(self.ring_bytes / RECORD_RING_SHARE / SECTOR * SECTOR)
    }

    /// Not available to transactions and attests: reserved for the records that restarts write before the next
    /// checkpoint.
    pub(super) fn reserve_bytes(self) -> u64 {
        let share = self.ring_bytes / RESERVE_RING_SHARE / SECTOR * SECTOR;
        share.clamp(RESERVE_BYTES_MIN, RESERVE_BYTES_MAX)
    }

    /// Offset in the ring.
    pub(super) fn ring_offset(self, lsn: Lsn) -> u64 {
        lsn.0 % self.ring_bytes
    }

    /// Offset on the device.
    pub(super) fn device_offset(self, lsn: Lsn) -> u64 {
        RING_START + self.ring_offset(lsn)
    }

    /// Payload that one record at `lsn` can carry.
    fn payload_max(self, lsn: Lsn) -> u64 {
        let to_ring_end = self.ring_bytes - self.ring_offset(lsn);
        self.record_bytes_max().min(to_ring_end) - HEADER_BYTES as u64
    }

    /// Cuts a transaction that begins at `lsn`: returns the payload bytes of each of its records, at least one.
    pub(super) fn cut(self, lsn: Lsn, payload_bytes: u64) -> Vec<u64> {
        let (mut at, mut rest, mut parts) = (lsn, payload_bytes, Vec::new());
        loop {
            let part = rest.min(self.payload_max(at));
            parts.push(part);
            rest -= part;
            if rest == 0 {
                return parts;
            }
            at.0 += record_bytes(part);
        }
    }

    /// Ring bytes of a transaction that begins at `lsn`.
    pub(super) fn transaction_bytes(self, lsn: Lsn, payload_bytes: u64) -> u64 {
        self.cut(lsn, payload_bytes).into_iter().map(record_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_cut_at_the_longest_record_and_at_the_rings_end() {
        let geometry = Geometry::new(64 * SECTOR).unwrap();
        let whole = 16 * SECTOR - 96;
        assert_eq!(geometry.cut(Lsn(0), 0), [0]);
        assert_eq!(geometry.cut(Lsn(0), whole), [whole]);
        assert_eq!(geometry.cut(Lsn(0), whole + 1), [whole, 1]);
        assert_eq!(geometry.cut(Lsn(63 * SECTOR), 5000), [SECTOR - 96, 1000]);
        assert_eq!(geometry.transaction_bytes(Lsn(63 * SECTOR), 5000), 2 * SECTOR);
    }

    #[test]
    fn impossible_rings_are_refused() {
        assert!(Geometry::new(15 * SECTOR).is_none());
        assert!(Geometry::new(16 * SECTOR + 512).is_none());
        assert!(Geometry::new(u64::MAX / SECTOR * SECTOR).is_none());
        assert_eq!(Geometry::of_device(18 * SECTOR + 512).unwrap().ring_bytes(), 16 * SECTOR);
        assert!(Geometry::of_device(0).is_none());
    }
}
