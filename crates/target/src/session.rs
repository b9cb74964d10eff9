//! A client's session with this target: slots with their replies, and the order in which replies leave.
//!
//! Invariant: replies to modifying requests leave in transno order, each when its commit level is reached.
//! Invariant: a reply that shows an own change leaves after the reply to that change.
//! Exception: a change that is committed, and waits for other servers before its reply, delays no other reply. Nothing
//! shown or replied meanwhile can be lost with it, and its own reply is stored in its row.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};

use bytes::Bytes;
use forebay_env::{Bug, PeerIdentity, Time, planted};
use forebay_proto::{
    ClientId, ErrorReply, SessionId, Transno, limits as proto_limits,
    message::{Capability, CommitLevel, FrameKind},
};
use forebay_rpc::server::Connection;
use forebay_store::CommitPoint;

use crate::{pinned::Pinned, rows::ReplyRow};

/// State of a slot's last request.
#[derive(Clone, Debug, Default)]
pub enum Standing {
    /// No reply is cached: a resend is executed again.
    #[default]
    Open,
    /// In execution.
    Running,
    /// Applied: a resend is answered with this reply.
    Applied(CachedReply),
}

/// The cached reply to a change.
#[derive(Clone, Debug)]
pub struct CachedReply {
    pub transno: Transno,
    /// See [`forebay_proto::message::FrameHeader::time_ns`]; 0 in a reply loaded after a restart, which no replay
    /// follows.
    pub time_ns: i64,
    pub op: u16,
    pub body: Bytes,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    sequence: u64,
    standing: Standing,
    /// Number of the connection on which its reply was sent last; 0: none.
    sent: u64,
}

/// What to do with a request that came in a slot.
#[derive(Debug)]
pub enum Begin {
    /// Execute it.
    Execute,
    /// Its reply is on its way, or it is in execution: nothing to do.
    UnderWay,
    /// Answer it with the cached reply.
    Again(CachedReply),
    /// A newer request has taken the slot: the sender does not wait for this one any more.
    Outdated,
    /// No such slot.
    NoSlot,
}

/// A reply, ready to be framed.
#[derive(Clone, Debug)]
pub struct Reply {
    pub kind: FrameKind,
    pub flags: u8,
    pub op: u16,
    pub slot: u16,
    pub sequence: u64,
    pub level: CommitLevel,
    pub transno: Transno,
    /// See [`forebay_proto::message::FrameHeader::time_ns`].
    pub time_ns: i64,
    /// Given with the reply (to Open and Create, by an MDT).
    pub capability: Capability,
    pub body: Bytes,
    pub bulk: Vec<Bytes>,
}

/// A change whose reply has not left.
struct Outgoing {
    transno: Transno,
    /// True once the change is applied. Before that it is in the apply queue, and its request counts as running.
    applied: bool,
    reply: Option<Reply>,
    /// It is committed and its reply will take long: later replies do not wait for it.
    may_be_passed: bool,
    /// Replies that show the change.
    behind: Vec<Reply>,
}

/// A client's session.
pub struct Session {
    pub id: SessionId,
    pub client: ClientId,
    pub description: String,
    pub created_ns: i64,
    /// Commit point of its row, until that is durable.
    pub created: Cell<Option<CommitPoint>>,
    pub connection: RefCell<Option<Rc<Connection>>>,
    /// The other side of its last connection; none has come since the restart.
    pub peer: RefCell<Option<PeerIdentity>>,
    /// How many connections it has had.
    pub connections: Cell<u64>,
    pub last_seen: Cell<Time>,
    /// No request of the session is executed any more.
    pub ended: Cell<bool>,
    /// Highest transno replayed in this incarnation.
    pub replayed: Cell<Transno>,
    /// Replays that failed, with their errors.
    pub failed: RefCell<BTreeMap<Transno, ErrorReply>>,
    /// Bytes that its client pins for this target.
    pub pinned: Pinned,
    slots: RefCell<Vec<Slot>>,
    outgoing: RefCell<VecDeque<Outgoing>>,
}

impl Session {
    pub fn new(id: SessionId, client: ClientId, description: String, created_ns: i64, now: Time) -> Rc<Self> {
        Rc::new(Self {
            id,
            client,
            description,
            created_ns,
            created: Cell::new(None),
            connection: RefCell::new(None),
            peer: RefCell::default(),
            connections: Cell::new(0),
            last_seen: Cell::new(now),
            ended: Cell::new(false),
            replayed: Cell::new(Transno(0)),
            failed: RefCell::default(),
            pinned: Pinned::default(),
            slots: RefCell::default(),
            outgoing: RefCell::default(),
        })
    }

    /// Loads a committed reply after a restart.
    pub fn load(&self, slot: u16, row: ReplyRow) {
        let standing = Standing::Applied(CachedReply { transno: row.transno, time_ns: 0, op: row.op, body: row.body });
        *self.slot(slot).expect("rows are written for slots that exist") =
            Slot { sequence: row.sequence, standing, sent: 0 };
    }

    fn slot(&self, slot: u16) -> Option<std::cell::RefMut<'_, Slot>> {
        if slot >= proto_limits::SLOTS {
            return None;
        }
        let mut slots = self.slots.borrow_mut();
        if slots.len() <= usize::from(slot) {
            slots.resize_with(usize::from(slot) + 1, Slot::default);
        }
        Some(std::cell::RefMut::map(slots, |s| &mut s[usize::from(slot)]))
    }

    /// Slots that may have a reply row.
    pub fn slots_used(&self) -> u16 {
        self.slots.borrow().len() as u16
    }

    /// True if the client has the reply to its request of `sequence`, the change `transno`: it has used the slot again.
    /// Also true if that change was not made.
    pub fn has_reply_received(&self, slot: u16, sequence: u64, transno: Transno) -> bool {
        let is_it = |standing: &Standing| matches!(standing, Standing::Applied(kept) if kept.transno == transno);
        self.slot(slot).is_none_or(|slot| slot.sequence > sequence || !is_it(&slot.standing))
    }

    /// True if the request of `sequence` was executed, or a later one came in its slot.
    pub fn has_done(&self, slot: u16, sequence: u64) -> bool {
        let is_applied = |slot: &Slot| slot.sequence == sequence && matches!(slot.standing, Standing::Applied(_));
        self.slot(slot).is_none_or(|slot| slot.sequence > sequence || is_applied(&slot))
    }

    /// As [`Session::has_reply_received`], or the reply is on its way, as far as the target knows.
    pub fn has_replied(&self, slot: u16, sequence: u64, transno: Transno) -> bool {
        let sent = self.slot(slot).map_or(0, |slot| slot.sent);
        let is_on_its_way = self.is_connected() && sent == self.connections.get();
        !self.is_outgoing(transno) && (is_on_its_way || self.has_reply_received(slot, sequence, transno))
    }

    /// The reply to the request of `sequence` was sent on the current connection.
    pub fn sent(&self, slot: u16, sequence: u64) {
        let connection = self.connections.get();
        if let Some(mut slot) = self.slot(slot).filter(|slot| slot.sequence == sequence) {
            slot.sent = connection;
        }
    }

    /// A request of `sequence` came in `slot`.
    pub fn begin(&self, slot: u16, sequence: u64) -> Begin {
        let Some(mut slot) = self.slot(slot) else { return Begin::NoSlot };
        if sequence < slot.sequence {
            return Begin::Outdated;
        }
        if sequence == slot.sequence {
            match &slot.standing {
                Standing::Open => {}
                Standing::Running => return Begin::UnderWay,
                Standing::Applied(kept) if self.is_outgoing(kept.transno) => return Begin::UnderWay,
                Standing::Applied(_) if planted(Bug::ReplyCacheDropped) => {}
                Standing::Applied(kept) => return Begin::Again(kept.clone()),
            }
        }
        *slot = Slot { sequence, standing: Standing::Running, sent: 0 };
        Begin::Execute
    }

    /// A request ended without a change: a resend is executed again.
    pub fn reopen(&self, slot: u16, sequence: u64) {
        if let Some(mut slot) = self.slot(slot)
            && slot.sequence == sequence
            && matches!(slot.standing, Standing::Running)
        {
            slot.standing = Standing::Open;
        }
    }

    /// Whether the reply of `sequence` may replace the slot's row. A replay's reply may be older than that row.
    pub fn may_keep(&self, slot: u16, sequence: u64) -> bool {
        self.slot(slot).is_some_and(|s| sequence >= s.sequence)
    }

    /// The request's change was applied with its reply row.
    pub fn applied(&self, slot: u16, sequence: u64, kept: CachedReply) {
        if let Some(mut slot) = self.slot(slot)
            && sequence >= slot.sequence
        {
            // The reply may have been sent before the change was applied.
            let sent = if slot.sequence == sequence { slot.sent } else { 0 };
            *slot = Slot { sequence, standing: Standing::Applied(kept), sent };
        }
    }

    /// A change is in the apply queue: replies to later changes wait for its reply.
    pub fn admitted(&self, transno: Transno) {
        self.expect(transno, false);
    }

    /// A change was applied without the apply queue. From now on, replies that show `transno` wait for the reply to it.
    pub fn expect_reply(&self, transno: Transno) {
        self.expect(transno, true);
    }

    fn expect(&self, transno: Transno, applied: bool) {
        let (reply, may_be_passed, behind) = (None, false, Vec::new());
        self.outgoing.borrow_mut().push_back(Outgoing { transno, applied, reply, may_be_passed, behind });
    }

    /// A queued change was applied. From now on, replies that show `transno` wait for the reply to it, if that has not
    /// left.
    pub fn applied_in_turn(&self, transno: Transno) {
        if let Some(entry) = self.outgoing.borrow_mut().iter_mut().find(|o| o.transno == transno) {
            entry.applied = true;
        }
    }

    /// A queued change left the queue without being applied: no reply waits for it. See [`Session::leaving`].
    pub fn given_up(&self, transno: Transno) {
        self.outgoing.borrow_mut().retain(|o| o.transno != transno || o.applied);
    }

    fn is_outgoing(&self, transno: Transno) -> bool {
        self.outgoing.borrow().iter().any(|o| o.transno == transno)
    }

    /// The reply to `transno` is ready, except for its commit level. See [`Session::leaving`].
    pub fn ready(&self, transno: Transno, reply: Reply) {
        let mut outgoing = self.outgoing.borrow_mut();
        if let Some(entry) = outgoing.iter_mut().find(|o| o.transno == transno) {
            entry.reply = Some(reply);
        }
    }

    /// Queues a reply behind the reply to `transno`. Returns it if the reply to `transno` has left.
    pub fn queue_after(&self, transno: Transno, reply: Reply) -> Option<Reply> {
        let mut outgoing = self.outgoing.borrow_mut();
        match outgoing.iter_mut().rev().find(|o| o.transno <= transno) {
            Some(entry) => {
                entry.behind.push(reply);
                None
            }
            None => Some(reply),
        }
    }

    /// The change `transno` is committed, but its reply waits for other servers: later replies do not wait for it.
    pub fn unblock_later(&self, transno: Transno) {
        if let Some(entry) = self.outgoing.borrow_mut().iter_mut().find(|o| o.transno == transno) {
            entry.may_be_passed = true;
        }
    }

    /// Takes the replies that may leave now, in order.
    pub fn leaving(&self, last_committed: Transno) -> Vec<Reply> {
        let mut outgoing = self.outgoing.borrow_mut();
        let (mut leaving, mut at) = (Vec::new(), 0);
        while let Some(next) = outgoing.get_mut(at) {
            match &next.reply {
                Some(reply)
                    if reply.level != CommitLevel::Commit
                        || next.transno <= last_committed
                        || planted(Bug::CommitLevelIgnored) =>
                {
                    let next = outgoing.remove(at).expect("it was looked at");
                    leaving.extend(next.reply);
                    leaving.extend(next.behind);
                }
                None if next.may_be_passed => {
                    leaving.append(&mut next.behind);
                    at += 1;
                }
                _ => break,
            }
        }
        leaving
    }

    /// True if a reply waits for a commit.
    pub fn waits_for_commit(&self) -> bool {
        self.outgoing.borrow().iter().any(|o| o.reply.as_ref().is_some_and(|r| r.level == CommitLevel::Commit))
    }

    /// Number of requests in execution, or whose reply has not left.
    pub fn under_way(&self) -> usize {
        let running = self.slots.borrow().iter().filter(|s| matches!(s.standing, Standing::Running)).count();
        running + self.outgoing.borrow().iter().filter(|outgoing| outgoing.applied).count()
    }

    /// The client for logs: its own words, and who it is as far as the connection shows.
    pub fn described(&self) -> String {
        match &*self.peer.borrow() {
            Some(peer) => format!("{}, {peer}", self.description),
            None => self.description.clone(),
        }
    }

    /// Detaches the session from its connection, and returns the connection.
    pub fn disconnect(&self) -> Option<Rc<Connection>> {
        self.connection.borrow_mut().take()
    }

    /// True if the session is bound to `connection`.
    pub fn is_bound_to(&self, connection: &Rc<Connection>) -> bool {
        self.connection.borrow().as_ref().is_some_and(|c| Rc::ptr_eq(c, connection))
    }

    /// True while it has a connection.
    pub fn is_connected(&self) -> bool {
        self.connection.borrow().is_some()
    }

    /// What protects its connection, if it has one.
    pub fn protection(&self) -> Option<&'static str> {
        self.peer.borrow().as_ref().filter(|_| self.is_connected()).map(PeerIdentity::protection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Rc<Session> {
        Session::new(SessionId(1), ClientId::default(), "test".into(), 0, Time(0))
    }

    fn kept(transno: u64) -> CachedReply {
        CachedReply { transno: Transno(transno), time_ns: 70, op: 36, body: Bytes::from_static(b"reply") }
    }

    fn reply(sequence: u64, level: CommitLevel) -> Reply {
        let (transno, body, bulk) = (Transno(sequence), Bytes::new(), vec![]);
        let capability = Capability::NONE;
        Reply {
            kind: FrameKind::Reply,
            flags: 0,
            op: 1,
            slot: 0,
            sequence,
            level,
            transno,
            time_ns: 0,
            capability,
            body,
            bulk,
        }
    }

    fn sequences(replies: &[Reply]) -> Vec<u64> {
        replies.iter().map(|r| r.sequence).collect()
    }

    #[test]
    fn a_request_is_executed_once_and_answered_again() {
        let session = session();
        assert!(matches!(session.begin(2, 1), Begin::Execute));
        assert!(matches!(session.begin(2, 1), Begin::UnderWay));
        session.applied(2, 1, kept(7));
        assert!(matches!(
            session.begin(2, 1),
            Begin::Again(CachedReply { transno: Transno(7), time_ns: 70, op: 36, .. })
        ));
        assert!(matches!(session.begin(2, 2), Begin::Execute));
        assert!(matches!(session.begin(2, 1), Begin::Outdated));
        session.reopen(2, 2);
        assert!(matches!(session.begin(2, 2), Begin::Execute), "a read is just executed again");
        assert!(matches!(session.begin(proto_limits::SLOTS, 1), Begin::NoSlot));
    }

    #[test]
    fn replies_leave_in_transno_order_and_wait_for_their_level() {
        let session = session();
        (5..8).for_each(|t| session.expect_reply(Transno(t)));
        session.ready(Transno(6), reply(6, CommitLevel::Data));
        assert!(session.leaving(Transno(0)).is_empty(), "5 is not ready");
        session.ready(Transno(5), reply(5, CommitLevel::Commit));
        assert!(session.leaving(Transno(4)).is_empty(), "5 is not committed");
        assert_eq!(sequences(&session.leaving(Transno(5))), [5, 6]);
        session.ready(Transno(7), reply(7, CommitLevel::Data));
        assert_eq!(sequences(&session.leaving(Transno(5))), [7]);
    }

    #[test]
    fn an_early_reply_waits_for_the_replies_of_smaller_transnos() {
        let session = session();
        (5..9).for_each(|t| session.admitted(Transno(t)));
        session.ready(Transno(7), reply(7, CommitLevel::Memory));
        assert!(session.leaving(Transno(0)).is_empty(), "5 and 6 stand in line");
        session.given_up(Transno(5));
        session.applied_in_turn(Transno(6));
        session.given_up(Transno(6));
        assert!(session.leaving(Transno(0)).is_empty(), "6 was applied, its reply is not ready");
        session.ready(Transno(6), reply(6, CommitLevel::Data));
        assert_eq!(sequences(&session.leaving(Transno(0))), [6, 7]);
        assert_eq!(session.under_way(), 0, "8 counts where it runs");
    }

    #[test]
    fn a_committed_change_whose_reply_takes_long_holds_up_nobody() {
        let session = session();
        (5..8).for_each(|t| session.expect_reply(Transno(t)));
        session.ready(Transno(6), reply(6, CommitLevel::Data));
        assert!(session.queue_after(Transno(5), reply(100, CommitLevel::Data)).is_none());
        assert!(session.leaving(Transno(5)).is_empty(), "it was not said that 5 may be passed");
        session.unblock_later(Transno(5));
        assert_eq!(sequences(&session.leaving(Transno(5))), [100, 6]);
        assert!(session.queue_after(Transno(5), reply(101, CommitLevel::Data)).is_none());
        session.ready(Transno(7), reply(7, CommitLevel::Commit));
        assert_eq!(sequences(&session.leaving(Transno(6))), [101], "7 is not committed");
        session.ready(Transno(5), reply(5, CommitLevel::Data));
        assert_eq!(sequences(&session.leaving(Transno(7))), [5, 7]);
    }

    #[test]
    fn a_reply_that_shows_a_change_leaves_after_the_reply_of_its_writer() {
        let session = session();
        session.expect_reply(Transno(5));
        assert!(session.queue_after(Transno(5), reply(100, CommitLevel::Data)).is_none());
        session.ready(Transno(5), reply(5, CommitLevel::Data));
        assert_eq!(sequences(&session.leaving(Transno(0))), [5, 100]);
        assert!(session.queue_after(Transno(5), reply(101, CommitLevel::Data)).is_some(), "it has left");
    }

    #[test]
    fn a_reply_counts_once_it_has_left_on_the_current_connection() {
        let session = session();
        assert!(matches!(session.begin(2, 1), Begin::Execute));
        session.expect_reply(Transno(7));
        session.applied(2, 1, kept(7));
        assert!(!session.has_replied(2, 1, Transno(7)) && !session.has_reply_received(2, 1, Transno(7)));
        assert!(session.has_done(2, 1) && !session.has_done(2, 2));
        session.ready(Transno(7), reply(1, CommitLevel::Data));
        assert_eq!(session.leaving(Transno(0)).len(), 1);
        session.connections.set(1);
        session.sent(2, 1);
        assert!(!session.has_replied(2, 1, Transno(7)), "it is not connected");
        assert!(session.has_replied(2, 1, Transno(6)), "that was not made");
        assert!(matches!(session.begin(2, 2), Begin::Execute));
        assert!(session.has_replied(2, 1, Transno(7)) && session.has_reply_received(2, 1, Transno(7)));
    }

    #[test]
    fn an_older_replay_does_not_take_the_row_of_a_newer_reply() {
        let session = session();
        session.load(0, ReplyRow { sequence: 9, transno: Transno(50), op: 1, body: Bytes::new() });
        assert!(!session.may_keep(0, 8) && session.may_keep(0, 10));
        session.applied(0, 8, kept(49));
        assert!(matches!(session.begin(0, 9), Begin::Again(CachedReply { transno: Transno(50), .. })));
    }
}
