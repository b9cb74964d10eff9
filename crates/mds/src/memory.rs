//! What the server keeps in memory beside the table: all of it can be read from the rows again, but the locks, which
//! clients bring back.
//!
//! Invariant: changed only right after the transaction that changes the rows was applied.

use std::collections::{BTreeMap, BTreeSet};

use forebay_proto::{ClientId, Fid, FidSequence, SessionId, message::LayoutSpec};

use crate::{leases::Leases, limits, locks::Locks, opens::Opens, placement::Placement};

/// See the module.
pub struct Memory {
    /// Index of the MDT: the high word of its fids.
    pub mdt_index: u32,
    /// Where the hash keys of directories come from.
    pub secret: u64,
    /// Stripes and stripe size where nobody says otherwise.
    pub default_layout: LayoutSpec,
    /// Open handles.
    pub opens: Opens,
    /// Advisory locks.
    pub locks: Locks,
    /// Tables of weights.
    pub placement: Placement,
    /// A new table is being committed; creates wait.
    pub placing: bool,
    /// OSTs that said lately that they are (nearly) full: files do not grow onto them.
    pub full: BTreeSet<u32>,
    /// Those of them with hardly anything left.
    pub exhausted: BTreeSet<u32>,
    /// What clients keep of inodes and names.
    pub kept: Leases,
    /// Whose each leased sequence is.
    pub leases: BTreeMap<FidSequence, ClientId>,
    /// The next sequence to lease.
    pub next_sequence: u64,
    /// Files whose truncate is on its way to the OSTs.
    pub truncating: BTreeSet<Fid>,
    /// Those of them that do not come to an end: an OST cannot do its part. It is tried again; whoever looks at such a file sees
    /// what the MDT knows, whoever wants its content gets an error.
    pub stuck: BTreeSet<Fid>,
    /// Inodes there are.
    pub inodes: u64,
}

impl Memory {
    /// `session` has closed a handle of `fid`. Without one that writes it has nothing to keep back, without any no claim. True
    /// if a lease on the data ended.
    pub fn left(&mut self, session: SessionId, fid: Fid) -> bool {
        if !self.kept.data.has(session, fid) && !self.kept.claims.has(session, fid) {
            return false;
        }
        let (handles, writers) = self.opens.of_file(session, fid);
        if handles == 0 {
            self.kept.claims.end(session, fid);
        }
        writers == 0 && self.kept.data.end(session, fid)
    }

    /// A truncate of `fid` is under way, and whoever wants the file waits for its end.
    pub fn is_cut(&self, fid: Fid) -> bool {
        self.truncating.contains(&fid) && !self.stuck.contains(&fid)
    }

    /// Of an MDT without files.
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
            kept: Leases::default(),
            leases: BTreeMap::new(),
            // Sequence 0 holds the root. The index keeps the sequences of several MDTs, and so st_ino, apart.
            next_sequence: u64::from(mdt_index) << 32 | 1,
            truncating: BTreeSet::new(),
            stuck: BTreeSet::new(),
            inodes: 0,
        }
    }
}
