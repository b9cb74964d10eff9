//! A checked target: its report, and what a repair needs.

use crate::{Report, finding::Kind, format::identity::Identity, journal::JournalView, media::Media, slabs::Slabs};

/// How to repair a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fix {
    /// Set the inode's link count.
    Nlink(u32),
    /// Set the directory's entry count.
    Entries(u64),
    /// Set the row's value.
    Value(Vec<u8>),
    /// Delete the row.
    Delete,
}

/// A fix: the row, what to do, and the kind of finding that it repairs.
pub(crate) type KeyedFix = (Vec<u8>, Fix, Kind);

/// A checked target, with what repair needs.
pub(crate) struct Examined {
    pub(crate) report: Report,
    pub(crate) identity: Option<Identity>,
    pub(crate) identity_file: Vec<u8>,
    pub(crate) media: Option<Media>,
    pub(crate) slabs: Option<Slabs>,
    pub(crate) journal: Option<JournalView>,
    /// What repair can fix.
    pub(crate) fixes: Vec<KeyedFix>,
    /// The directory of the other copy.
    pub(crate) twin_dir: Option<String>,
}

impl Examined {
    /// Nothing is known yet.
    pub(crate) fn new(dir: &str, identity_file: Vec<u8>) -> Self {
        Self {
            report: Report { name: dir.to_owned(), ..Report::default() },
            identity: None,
            identity_file,
            media: None,
            slabs: None,
            journal: None,
            fixes: Vec::new(),
            twin_dir: None,
        }
    }
}
