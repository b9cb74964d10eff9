//! What the rebuild found: the rows that change, and the bytes that may be missing.

use std::ops::Range;

use forebay_proto::Fid;

use crate::journal::Overlay;

/// The rows that change, and what may be missing.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) rows: Overlay,
    pub(super) doubts: Vec<Doubt>,
    pub(super) objects: u64,
    /// Number of objects that lack bytes which the MDT knows of.
    pub(super) lacking: u64,
    /// Bytes written since the checkpoint that were found.
    pub(super) found_bytes: u64,
}

/// Bytes of an object that the rebuild cannot guarantee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// The bytes are there and do not match their sums: reads fail.
    Rotten(Fid, Range<u64>),
    /// The bytes existed and are nowhere: reads fail.
    Lost(Fid, Range<u64>),
    /// The bytes are older than a write that is incomplete.
    Older(Fid, Range<u64>),
    /// The object ends before a write that is incomplete.
    Ended(Fid, Range<u64>),
    /// The file was open, and may have more bytes than were found.
    Size(Fid),
}

impl Doubt {
    /// The object.
    pub(super) fn object(&self) -> Fid {
        match self {
            Self::Rotten(fid, _) | Self::Lost(fid, _) | Self::Older(fid, _) | Self::Ended(fid, _) | Self::Size(fid) => {
                *fid
            }
        }
    }

    /// The line for the list of what may be missing.
    pub(super) fn in_words(&self) -> String {
        let bytes = |range: &Range<u64>, rest: &str| format!("bytes {} to {} {rest}", range.start, range.end);
        match self {
            Self::Rotten(_, range) => bytes(range, "lie there and do not match their sums: reads of them fail"),
            Self::Lost(_, range) => {
                bytes(range, "are lost: the file has them and they are nowhere; reads of them fail")
            }
            Self::Older(_, range) => bytes(
                range,
                "are older than the last write to them, which is not whole: either the target ended before it was synced, or what \
                 it wrote is lost",
            ),
            Self::Ended(_, range) => bytes(
                range,
                "were written, are not whole, and are left out: either the target ended before they were synced, or they are lost",
            ),
            Self::Size(_) => "the file was open, and may have had more bytes than are found".to_owned(),
        }
    }
}
