//! Leases on the data of files: writes may be buffered (see `write_back` and `byte_ranges`).

use forebay_env::{Bug, planted};
use forebay_proto::{Fid, message::DataRecall};

use super::{Holds, LeaseTable, Ticket};

impl LeaseTable {
    /// The reply to the request `asked` granted a data-write lease, or a byte-range write lease.
    pub fn learn_data(&mut self, asked: Ticket, fid: Fid, brought: Holds) {
        let counts = self.ended(fid) <= asked.0;
        // Even if it does not count here: the MDT may recall it, so its recalls have to be received.
        let holds = self.data.entry(fid).or_default();
        if counts {
            *holds = brought.max(*holds);
        }
    }

    /// What is leased of the data of `fid`.
    pub fn holds(&self, fid: Fid) -> Holds {
        self.data.get(&fid).copied().unwrap_or_default()
    }

    /// The same, if the MDT has replied recently: it has not granted it to another client.
    pub fn may_keep(&mut self, fid: Fid) -> Holds {
        self.alive().map_or(Holds::Nothing, |_| self.holds(fid))
    }

    /// The number of a lease on the inode of a file: nobody else may change its bytes as long as it is the same.
    pub fn data_is_ours(&mut self, fid: Fid) -> Option<u64> {
        self.wanted()?;
        let node = self.nodes.get(&fid).filter(|node| node.leased || planted(Bug::BytesOutliveLease))?;
        Some(node.lease).filter(|number| *number > 0)
    }

    /// Truncate epoch and size of a file that nobody may write, as its attributes are kept.
    pub fn size_of(&self, fid: Fid) -> Option<(u64, u64)> {
        let entry = self.leased(fid)?.entry.as_ref()?;
        Some((entry.attr.truncate_epoch, entry.attr.size))
    }

    /// Nothing more is buffered for `fid`, nor under a lease that was requested before: a claim ends, or the MDT recalls
    /// the lease. It may count it as leased until then, and recall it.
    pub fn give_up_ranges(&mut self, fid: Fid) {
        let number = self.next();
        let node = self.node(fid);
        (node.recalled, node.written) = (number, None);
        // The client polls for recalls until the last close: buffered writes may take time to send, and the MDT may
        // lease it again.
        if let Some(holds) = self.data.get_mut(&fid) {
            *holds = Holds::Nothing;
        }
    }

    /// The lease on the data of `fid` is over, also one that a reply to an earlier request may bring.
    pub fn end_data(&mut self, fid: Fid) {
        self.data.remove(&fid);
        let number = self.next();
        let node = self.node(fid);
        (node.data_ended, node.written) = (number, None);
    }

    /// The MDT ended the session: all leases on data are over.
    pub fn lose_data(&mut self) {
        self.data.clear();
        self.to_tell.flushed.clear();
        self.nodes.values_mut().for_each(|node| node.written = None);
    }

    /// What was buffered when that was recalled has been sent.
    pub fn flushed(&mut self, recall: DataRecall) {
        self.to_tell.flushed.push(recall);
    }
}
