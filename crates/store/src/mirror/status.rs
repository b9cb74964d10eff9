//! Status of a mirrored part.

use forebay_env::DiskRequests;

use super::mirror::{Mirror, Role};

/// Status of a mirrored store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorStatus {
    /// Data, then journal.
    pub parts: Vec<PartStatus>,
}

/// One part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartStatus {
    /// "data" or "journal".
    pub part: &'static str,
    /// Its copies.
    pub copies: Vec<CopyStatus>,
    /// Locations where one copy was bad and was repaired from the other, since the start.
    pub mended: u64,
    /// Locations of one copy that could not be repaired: replace the device soon.
    pub bad_places: u64,
}

/// One copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyStatus {
    /// Where it lies.
    pub path: String,
    /// Its state.
    pub state: CopyState,
}

/// State of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyState {
    /// It holds everything.
    InSync,
    /// It is being filled.
    Resync {
        /// Bytes that it has already.
        done_bytes: u64,
        /// Bytes in all.
        total_bytes: u64,
    },
    /// It is lost.
    Lost {
        /// Why.
        reason: String,
    },
}

impl MirrorStatus {
    /// True unless every copy of every part holds everything.
    pub fn is_degraded(&self) -> bool {
        self.parts.iter().flat_map(|part| &part.copies).any(|copy| copy.state != CopyState::InSync)
    }
}

impl Mirror {
    /// Requests to the disk of each copy in use.
    pub(crate) fn requests(&self) -> Vec<(usize, DiskRequests)> {
        let state = self.state.borrow();
        let disks = state.copies.iter().enumerate();
        disks.filter_map(|(copy, of)| Some((copy, of.disk.as_ref()?.requests()))).collect()
    }

    pub(crate) fn status(&self) -> PartStatus {
        let state = self.state.borrow();
        let copy = |number: usize| {
            let of = &state.copies[number];
            let state = match of.role {
                Role::Member => CopyState::InSync,
                Role::Syncing => CopyState::Resync { done_bytes: state.copied, total_bytes: self.owner.bytes },
                Role::Out => CopyState::Lost { reason: of.reason.clone() },
            };
            CopyStatus { path: self.dirs.path(number, self.owner.part), state }
        };
        let bad_places = state.copies.iter().map(|copy| copy.bad_places.len() as u64).sum();
        let (part, mended) = (self.owner.part.name(), state.mended);
        PartStatus { part, copies: vec![copy(0), copy(1)], mended, bad_places }
    }
}
