//! Scans the ring for every intact record, of whatever lap or incarnation.
//!
//! Invariant: a record counts only at the offset that its lsn gives it.
//! Not here: which of them matter (see `judge`).

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Lsn, Owner,
    geometry::Geometry,
    limits::SECTOR,
    record::{BadRecord, RecordHeader, decode},
};

/// A record of ours that is not whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Broken {
    pub lsn: Lsn,
    pub incarnation: forebay_proto::Incarnation,
    pub what: &'static str,
}

/// What a ring holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Scan {
    /// Intact records by ring offset.
    pub intact: BTreeMap<u64, RecordHeader>,
    /// Records that began here once but are torn, damaged or overwritten in part, by ring offset.
    pub broken: BTreeMap<u64, Broken>,
    /// The version of a record by a newer program, if there is one.
    pub newer: Option<u16>,
    /// Ring offsets of sectors that could not be read; they count as bad records.
    pub unreadable: BTreeSet<u64>,
}

impl Scan {
    /// Merges the scans of two copies of a ring. Where both have a record, the later one counts: the other may be of
    /// the previous lap.
    pub(super) fn merge(mut self, other: Self) -> Self {
        for (at, header) in other.intact {
            let kept = self.intact.entry(at).or_insert(header);
            if kept.lsn < header.lsn {
                *kept = header;
            }
        }
        self.broken.extend(other.broken);
        self.broken.retain(|at, broken| self.intact.get(at).is_none_or(|intact| intact.lsn < broken.lsn));
        self.unreadable.retain(|at| other.unreadable.contains(at));
        self.newer = self.newer.max(other.newer);
        self
    }

    /// Scans `window`, which lies at ring offset `at`, sector by sector, skipping the inside of intact records.
    ///
    /// Returns how far it got. If the window reaches the ring's end, that is all of it; else as far as a record that
    /// begins there lies whole in the window. The caller continues from there.
    pub(super) fn look(&mut self, owner: &Owner, geometry: Geometry, at: u64, window: &[u8]) -> u64 {
        let window_bytes = window.len() as u64;
        assert!(window_bytes >= geometry.record_bytes_max() || at + window_bytes >= geometry.ring_bytes());
        let to_ring_end = at + window_bytes >= geometry.ring_bytes();
        let stop = if to_ring_end {
            window_bytes
        } else {
            (window_bytes + SECTOR).saturating_sub(geometry.record_bytes_max())
        };
        let mut done = 0;
        while done < stop {
            let length = self.look_at(owner, geometry, at + done, &window[done as usize..]);
            done += length;
        }
        done
    }

    /// Examines one position; returns how many bytes it has dealt with.
    fn look_at(&mut self, owner: &Owner, geometry: Geometry, at: u64, bytes: &[u8]) -> u64 {
        match decode(owner, geometry.record_bytes_max(), bytes) {
            Ok(header) if geometry.ring_offset(header.lsn) == at => {
                self.intact.insert(at, header);
                return u64::from(header.record_bytes);
            }
            Ok(_) | Err(BadRecord::NotOurs) => {}
            Err(BadRecord::Broken { lsn, incarnation, what }) => {
                if Geometry::is_lsn(lsn) && geometry.ring_offset(lsn) == at {
                    self.broken.insert(at, Broken { lsn, incarnation, what });
                }
            }
            Err(BadRecord::Newer { version }) => self.newer = Some(version),
        }
        SECTOR
    }
}

#[cfg(test)]
mod tests {
    use forebay_proto::{Incarnation, Uuid};

    use super::{super::record::RecordType, *};

    const OWNER: Owner = Owner { target: Uuid([1; 16]), generation: 1, salt: 1 };

    fn record(sector: u64, payload: &[u8]) -> Vec<u8> {
        let mut header = RecordHeader {
            record_type: RecordType::Transaction { last: true },
            incarnation: Incarnation(1),
            lsn: Lsn(sector * SECTOR),
            record_bytes: 0,
            payload_bytes: 0,
            prev_sum: 0,
            durable: Lsn(0),
            anchor_seq: 1,
            sum: 0,
        };
        header.encode(&OWNER, payload).to_vec()
    }

    fn ring(records: &[(u64, Vec<u8>)]) -> (Geometry, Vec<u8>) {
        let mut ring = vec![0; 64 * SECTOR as usize];
        for (sector, record) in records {
            let at = (sector * SECTOR) as usize;
            ring[at..at + record.len()].copy_from_slice(record);
        }
        (Geometry::new(64 * SECTOR).unwrap(), ring)
    }

    fn places(scan: &Scan) -> Vec<u64> {
        scan.intact.keys().map(|at| at / SECTOR).collect()
    }

    #[test]
    fn a_record_counts_only_where_its_lsn_puts_it_in_whatever_lap() {
        let (geometry, ring) = ring(&[(1, record(1, b"")), (5, record(69, b"")), (7, record(8, b""))]);
        let mut scan = Scan::default();
        scan.look(&OWNER, geometry, 0, &ring);
        assert_eq!(places(&scan), [1, 5]);
    }

    #[test]
    fn the_inside_of_an_intact_record_is_passed_over_and_that_of_a_broken_one_is_not() {
        let nested = [vec![0; SECTOR as usize - 96], record(2, b"")].concat();
        let mut scan = Scan::default();
        let (geometry, mut ring) = ring(&[(1, record(1, &nested))]);
        scan.look(&OWNER, geometry, 0, &ring);
        assert_eq!(places(&scan), [1]);
        ring[SECTOR as usize + 200] ^= 1;
        let mut scan = Scan::default();
        scan.look(&OWNER, geometry, 0, &ring);
        assert_eq!((places(&scan), scan.broken[&SECTOR].lsn), (vec![2], Lsn(SECTOR)));
    }

    #[test]
    fn windows_of_any_size_find_the_same_as_one() {
        let records: Vec<(u64, Vec<u8>)> = [(0, 60_000), (15, 1), (16, 65_440), (33, 5000), (48, 65_440)]
            .map(|(sector, length)| (sector, record(sector, &vec![7; length])))
            .into();
        let (geometry, ring) = ring(&records);
        for window_sectors in 16..=64 {
            let (mut scan, mut at) = (Scan::default(), 0);
            while at < ring.len() as u64 {
                let end = (at + window_sectors * SECTOR).min(ring.len() as u64);
                at += scan.look(&OWNER, geometry, at, &ring[at as usize..end as usize]);
            }
            assert_eq!(places(&scan), [0, 15, 16, 33, 48], "{window_sectors}");
            assert!(scan.broken.is_empty());
        }
    }
}
