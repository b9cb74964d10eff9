//! Every intact record of the ring, wherever it lies and whatever lap or incarnation it is of.
//!
//! Invariant: a record counts only in the place that its lsn gives it.
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
#[derive(Debug, Default)]
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
    /// Looks at `window`, which lies at ring offset `at`, sector by sector, passing over the inside of intact records.
    ///
    /// Returns how far it came: all of a window that reaches the ring's end, else as far as a record may begin that lies
    /// whole in the window. The caller continues from there.
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

    /// Looks at one place; returns how many bytes it has explained.
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
