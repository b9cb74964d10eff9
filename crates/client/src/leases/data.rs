//! Leases on the data of files: what is written may be kept back (see `write_back` and `sharing`).

use forebay_env::{Bug, planted};
use forebay_proto::{Fid, message::DataRecall};

use super::{Leases, Node, State, Ticket};

/// What may be kept back of what is written to a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holds {
    /// Nothing.
    #[default]
    Nothing,
    /// What is written in the claimed pieces (see `sharing`).
    Ranges,
    /// All of it.
    All,
}

impl Leases {
    /// A reply to what was `asked` brought a lease on the data of a file.
    pub fn learn_data(&self, asked: Ticket, fid: Fid) {
        self.learn_of_data(asked, fid, Holds::All);
    }

    /// A reply to what was `asked` brought a share of it.
    pub fn learn_ranges(&self, asked: Ticket, fid: Fid) {
        self.learn_of_data(asked, fid, Holds::Ranges);
    }

    fn learn_of_data(&self, asked: Ticket, fid: Fid, brought: Holds) {
        let mut state = self.state.borrow_mut();
        let ended = |node: &Node| node.recalled.max(node.data_ended);
        let counts = state.nodes.get(&fid).map_or(state.forgotten, ended) <= asked.0;
        // Even if it does not count here: the MDT may ask it back, and has to be heard.
        let holds = state.data.entry(fid).or_default();
        if counts {
            *holds = brought.max(*holds);
        }
    }

    /// What is leased of the data of `fid`.
    pub fn holds(&self, fid: Fid) -> Holds {
        self.state.borrow().data.get(&fid).copied().unwrap_or_default()
    }

    /// The same, if the MDT was heard lately: it has not given it to somebody else.
    pub fn may_keep(&self, fid: Fid) -> Holds {
        if self.alive().is_some() { self.holds(fid) } else { Holds::Nothing }
    }

    /// The number of a lease on the inode of a file: nobody else may change its bytes as long as it is the same.
    pub fn data_is_ours(&self, fid: Fid) -> Option<u64> {
        self.alive()?;
        let mut state = self.state.borrow_mut();
        state.used = self.env.now();
        let node = state.nodes.get(&fid).filter(|node| node.leased || planted(Bug::BytesOutliveLease))?;
        Some(node.lease).filter(|_| node.lease > 0)
    }

    /// Truncate epoch and size of a file that nobody may write, as its attributes are kept.
    pub fn size_of(&self, fid: Fid) -> Option<(u64, u64)> {
        let state = self.state.borrow();
        let node = state.nodes.get(&fid).filter(|node| node.leased)?;
        node.entry.as_ref().map(|entry| (entry.attr.truncate_epoch, entry.attr.size))
    }

    /// Nothing more is kept back of `fid`, nor under what was asked for before. The MDT may count it as leased, and ask it back.
    pub fn give_up_ranges(&self, fid: Fid) {
        let mut state = self.state.borrow_mut();
        state.stop_keeping(fid);
        drop(state);
        self.bound();
    }

    /// The lease on the data of `fid` is over, also one that a reply to what was asked before may bring.
    pub fn end_data(&self, fid: Fid) {
        let mut state = self.state.borrow_mut();
        state.data.remove(&fid);
        state.sequence += 1;
        let number = state.sequence;
        let node = state.node(fid);
        (node.data_ended, node.written) = (number, None);
        drop(state);
        self.bound();
    }

    /// The MDT ended the session: all leases on data are over.
    pub fn lose_data(&self) {
        let mut state = self.state.borrow_mut();
        state.data.clear();
        state.flushed.clear();
        state.nodes.values_mut().for_each(|node| node.written = None);
    }

    /// The MDT wants a lease on data back: from now on nothing is kept back, nor under a lease that was asked for before.
    pub fn data_recalled(&self, recall: &DataRecall) {
        let mut state = self.state.borrow_mut();
        state.stop_keeping(recall.fid);
        drop(state);
        self.bound();
    }

    /// What was kept back when that was recalled has been sent.
    pub fn flushed(&self, recall: DataRecall) {
        self.state.borrow_mut().flushed.push(recall);
    }
}

impl State {
    /// Nothing more is kept back of `fid`, nor under a lease that was asked for before.
    fn stop_keeping(&mut self, fid: Fid) {
        self.sequence += 1;
        let number = self.sequence;
        let node = self.node(fid);
        (node.recalled, node.written) = (number, None);
        // It is asked on, until the last close: what is kept back may take its time, and the MDT may lease it again.
        if let Some(holds) = self.data.get_mut(&fid) {
            *holds = Holds::Nothing;
        }
    }
}
