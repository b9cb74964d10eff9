//! The replay list: modifying requests that were replied to and are not committed yet, with their bulk.
//!
//! Invariant: comparison with last_committed releases an entry only in the incarnation that executed it last; so, after
//! a restart, only once it was replayed. (At the reconnect itself the target names what it recovered. That is a prefix
//! of the old history, and releases entries too.)

use std::{collections::BTreeMap, ops::Bound};

use bytes::Bytes;
use forebay_env::{Bug, planted};
use forebay_proto::{
    Decode, Encode, Fid, Incarnation, Transno,
    message::{AppendObject, AppendReply, CompleteAppend, CompleteReply, FrameHeader, Op},
};

use crate::pins::Pin;

/// A replied, uncommitted request.
pub(super) struct Entry {
    /// As it was sent.
    pub header: FrameHeader,
    pub body: Bytes,
    pub bulk: Vec<Bytes>,
    /// Keeps its bytes counted in the budget.
    pub pin: Option<Pin>,
    /// See `Call::fid` and `Call::directory`.
    pub fids: [Option<Fid>; 2],
    /// The incarnation that executed it last.
    pub incarnation: Incarnation,
}

impl Entry {
    /// The entry to replay for a request that was replied to with `reply`. The replay of an append names the offset
    /// that the append got, as earlier bytes may be missing when it is replayed. It also lists the earlier appends
    /// whose clients may not have their replies.
    pub fn of(op: Op, entry: Self, reply: &[u8]) -> Self {
        let body = match op {
            Op::Append => placed(&entry.body, reply),
            Op::CompleteAppend => filled(&entry.body, reply),
            _ => None,
        };
        match body {
            Some(body) => Self { body, ..entry },
            None => entry,
        }
    }
}

fn placed(body: &[u8], reply: &[u8]) -> Option<Bytes> {
    let (request, reply) = (AppendObject::from_bytes(body).ok()?, AppendReply::from_bytes(reply).ok()?);
    let AppendReply { file_offset, before, .. } = reply;
    Some(AppendObject { file_offset, before, ..request }.to_bytes().into())
}

fn filled(body: &[u8], reply: &[u8]) -> Option<Bytes> {
    let (request, reply) = (CompleteAppend::from_bytes(body).ok()?, CompleteReply::from_bytes(reply).ok()?);
    Some(CompleteAppend { before: reply.before, ..request }.to_bytes().into())
}

/// Replied, uncommitted requests in the order of their transnos.
#[derive(Default)]
pub(super) struct ReplayList {
    entries: BTreeMap<Transno, Entry>,
    pinned_bytes: u64,
}

impl ReplayList {
    pub fn insert(&mut self, transno: Transno, entry: Entry) {
        self.pinned_bytes += entry.pin.as_ref().map_or(0, Pin::bytes);
        if let Some(old) = self.entries.insert(transno, entry) {
            self.forget(&old);
        }
    }

    pub fn remove(&mut self, transno: Transno) -> Option<Entry> {
        let entry = self.entries.remove(&transno)?;
        self.forget(&entry);
        Some(entry)
    }

    /// Removes the entries that `incarnation` executed up to `last_committed`.
    pub fn take_committed(&mut self, last_committed: Transno, incarnation: Incarnation) -> Vec<(Transno, Entry)> {
        let any = planted(Bug::ReplayListMixesIncarnations);
        self.take_while(|transno, entry| transno <= last_committed && (any || entry.incarnation == incarnation))
    }

    /// At a reconnect: removes the entries that the target has recovered.
    pub fn take_recovered(&mut self, recovered: Transno) -> Vec<(Transno, Entry)> {
        self.take_while(|transno, _| transno <= recovered)
    }

    /// Removes all entries: the session was ended.
    pub fn take_all(&mut self) -> Vec<(Transno, Entry)> {
        self.take_while(|_, _| true)
    }

    fn take_while(&mut self, mut which: impl FnMut(Transno, &Entry) -> bool) -> Vec<(Transno, Entry)> {
        let mut taken = Vec::new();
        while let Some(first) = self.entries.first_entry()
            && which(*first.key(), first.get())
        {
            let (transno, entry) = first.remove_entry();
            self.forget(&entry);
            taken.push((transno, entry));
        }
        taken
    }

    /// The first entry after `after` that `incarnation` has not executed.
    pub fn next_to_replay(&self, after: Transno, incarnation: Incarnation) -> Option<(Transno, &Entry)> {
        self.entries
            .range((Bound::Excluded(after), Bound::Unbounded))
            .find(|(_, entry)| entry.incarnation != incarnation)
            .map(|(transno, entry)| (*transno, entry))
    }

    /// The target of `incarnation` has executed the request again. False if it is not in the list.
    pub fn replayed(&mut self, transno: Transno, incarnation: Incarnation) -> bool {
        self.entries.get_mut(&transno).map(|entry| entry.incarnation = incarnation).is_some()
    }

    pub fn contains(&self, transno: Transno) -> bool {
        self.entries.contains_key(&transno)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes
    }

    fn forget(&mut self, entry: &Entry) {
        self.pinned_bytes -= entry.pin.as_ref().map_or(0, Pin::bytes);
    }
}

#[cfg(test)]
mod tests {
    use forebay_proto::message::FrameKind;

    use super::*;

    fn list(entries: &[(u32, u64)]) -> ReplayList {
        let mut list = ReplayList::default();
        for &(incarnation, counter) in entries {
            let incarnation = Incarnation(incarnation);
            let header = FrameHeader::new(FrameKind::Request, 1);
            let entry = Entry { header, body: Bytes::new(), bulk: vec![], pin: None, fids: [None; 2], incarnation };
            list.insert(Transno::new(incarnation, counter), entry);
        }
        list
    }

    fn transno(incarnation: u32, counter: u64) -> Transno {
        Transno::new(Incarnation(incarnation), counter)
    }

    #[test]
    fn an_old_incarnation_is_not_released_by_a_newer_last_committed() {
        let mut list = list(&[(1, 5), (1, 6)]);
        assert!(list.take_committed(transno(2, 1), Incarnation(2)).is_empty());
        assert!(list.replayed(transno(1, 5), Incarnation(2)));
        let released = list.take_committed(transno(2, 1), Incarnation(2));
        assert_eq!(released.len(), 1, "only the replayed one");
        assert!(list.contains(transno(1, 6)));
    }

    #[test]
    fn replays_come_in_order_and_skip_what_this_incarnation_executed() {
        let mut list = list(&[(1, 7), (1, 5), (1, 6)]);
        list.replayed(transno(1, 6), Incarnation(2));
        let (first, _) = list.next_to_replay(Transno(0), Incarnation(2)).unwrap();
        let (second, _) = list.next_to_replay(first, Incarnation(2)).unwrap();
        assert_eq!((first, second), (transno(1, 5), transno(1, 7)));
        assert!(list.next_to_replay(second, Incarnation(2)).is_none());
    }

    #[test]
    fn requests_that_the_server_recovered_leave_the_replay_list() {
        let mut list = list(&[(1, 5), (1, 6), (1, 9)]);
        assert_eq!(list.take_recovered(transno(1, 6)).len(), 2);
        assert_eq!(list.len(), 1);
    }
}
