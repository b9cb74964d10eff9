//! The server's state in memory beside the table. All of it can be loaded from the rows again, except the locks, which
//! clients reclaim.
//!
//! Invariant: it changes only right after the transaction that changes the rows was applied.

use std::collections::{BTreeMap, BTreeSet};

use forebay_proto::{ClientId, Fid, FidSequence, SessionId, message::LayoutSpec};

use crate::{leases::Leases, limits, lock_table::Locks, opens::Opens, placement::Placement};

/// See the module.
pub struct Memory {
    /// Index of the MDT: the high word of its fids.
    pub mdt_index: u32,
    /// The source of directories' hash keys.
    pub secret: u64,
    /// Default stripe count and stripe size.
    pub default_layout: LayoutSpec,
    /// Open handles.
    pub opens: Opens,
    /// Advisory locks.
    pub locks: Locks,
    /// Tables of weights.
    pub placement: Placement,
    /// A new table is being committed; creates wait.
    pub placing: bool,
    /// OSTs that reported lately that they are (nearly) full: files do not grow onto them.
    pub full: BTreeSet<u32>,
    /// Those of them with hardly any space left.
    pub exhausted: BTreeSet<u32>,
    /// The leases that clients hold on inodes, data and entries.
    pub leases: Leases,
    /// The client of each leased fid sequence.
    pub sequences: BTreeMap<FidSequence, ClientId>,
    /// The next sequence to lease.
    pub next_sequence: u64,
    /// Files with a truncate in progress on the OSTs.
    pub truncating: BTreeSet<Fid>,
    /// Those whose truncate is stuck, because an OST cannot do its part. It is retried. Meanwhile requests for
    /// attributes get what the MDT knows, and requests for content get an error.
    pub stuck: BTreeSet<Fid>,
    /// Number of inodes.
    pub inodes: u64,
}

impl Memory {
    /// `session` has closed a handle of `fid`. Without a writing handle it has nothing buffered; without any handle it
    /// has no range claim. True if a data lease ended.
    pub fn left(&mut self, session: SessionId, fid: Fid) -> bool {
        if !self.leases.data.has(session, fid) && !self.leases.claims.has(session, fid) {
            return false;
        }
        let (handles, writers) = self.opens.of_file(session, fid);
        if handles == 0 {
            self.leases.claims.end(session, fid);
        }
        writers == 0 && self.leases.data.end(session, fid)
    }

    /// True while a truncate of `fid` is in progress and not stuck: requests for the file wait for its end.
    pub fn is_cut(&self, fid: Fid) -> bool {
        self.truncating.contains(&fid) && !self.stuck.contains(&fid)
    }

    /// The memory of an MDT without files.
    pub fn new(mdt_index: u32, secret: u64) -> Self {
        Self {
            mdt_index,
            secret,
            default_layout: LayoutSpec { stripe_count: 1, stripe_bytes: limits::STRIPE_BYTES, ..LayoutSpec::inherit() },
            opens: Opens::default(),
            locks: Locks::default(),
            placement: Placement::default(),
            placing: false,
            full: BTreeSet::new(),
            exhausted: BTreeSet::new(),
            leases: Leases::default(),
            sequences: BTreeMap::new(),
            // Sequence 0 holds the root. The index keeps the sequences of several MDTs, and so st_ino, apart.
            next_sequence: u64::from(mdt_index) << 32 | 1,
            truncating: BTreeSet::new(),
            stuck: BTreeSet::new(),
            inodes: 0,
        }
    }
}
