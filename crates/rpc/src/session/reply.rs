//! Received frames: replies to slots, to replays, to control requests.

use bytes::Bytes;
use forebay_env::{Bug, planted};
use forebay_proto::{
    Decode, Errno, ErrorReply, SessionId, Transno,
    message::{Class, FrameKind, Op, frame_flags},
};

use super::{
    SessionState,
    inner::{Control, Inner},
    replay::Entry,
    slots::Pending,
};
use crate::{RpcError, frame::Received, limits};

/// What to do with the connection after a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Read the next frame.
    GoOn,
    /// Reconnect at once.
    Reconnect,
    /// Reconnect after a while: the target reports that it cannot serve.
    Stopped,
}

impl Inner {
    /// Handles one frame of the accepted connection.
    pub fn receive(&self, received: Received) -> Verdict {
        let header = &received.header;
        let ours = {
            let mut state = self.state.borrow_mut();
            state.received_at = self.env.now();
            header.session == state.session && header.incarnation == state.incarnation
        };
        let error = (header.kind == FrameKind::Error)
            .then(|| ErrorReply::from_bytes(&received.body).unwrap_or_else(ErrorReply::from));
        match &error {
            Some(error) if error.errno == Errno::EVICTED => {
                self.evicted(&error.message);
                return Verdict::Reconnect;
            }
            Some(error) if error.errno == Errno::STOPPED => {
                self.complain(&error.to_string());
                return Verdict::Stopped;
            }
            _ if !ours => {
                self.log(&format!(
                    "a reply of session {} in incarnation {} came; connecting anew",
                    header.session, header.incarnation
                ));
                return Verdict::Reconnect;
            }
            _ => {}
        }
        if header.credits > 0 {
            self.slots.set_credits(header.credits);
        }
        let last_committed = header.last_committed;
        let verdict = match (header.slot, header.flags & frame_flags::REPLAY != 0) {
            (_, true) => {
                self.replay_replied(header.transno, error);
                Verdict::GoOn
            }
            (limits::CONTROL_SLOT, _) => {
                let sequence = header.sequence;
                self.control_replied(sequence, received.body, error)
            }
            _ => {
                self.slot_replied(received, error);
                Verdict::GoOn
            }
        };
        // After the reply was added to the replay list: it may be committed already.
        self.note_committed(last_committed);
        // A waiter's change may have been applied after the commit that the last ping asked for.
        if self.pins.is_short() || !self.state.borrow().commit_waiters.is_empty() {
            self.commit_soon();
        }
        verdict
    }

    fn slot_replied(&self, received: Received, error: Option<ErrorReply>) {
        let (slot, sequence) = (received.header.slot, received.header.sequence);
        if error.as_ref().is_some_and(|e| e.errno == Errno::RECOVERING) {
            return self.send_again_later(slot, sequence);
        }
        // A second reply to a resent request whose first reply arrived after all: no call waits.
        let Some(pending) = self.slots.take(slot, sequence) else { return };
        let transno = received.header.transno;
        self.state.borrow_mut().stats.replies += 1;
        let Pending { mut header, op, body, bulk, pin, fids, waiter, .. } = pending;
        let modified = error.is_none() && op.class() == Class::Modify && transno > Transno(0);
        if modified && !planted(Bug::NothingKeptForReplay) {
            let mut state = self.state.borrow_mut();
            let incarnation = state.incarnation;
            header.time_ns = received.header.time_ns;
            let entry = Entry { header, body, bulk, pin, fids, incarnation };
            state.replay.insert(transno, Entry::of(op, entry, &received.body));
            drop(state);
            self.attention.notify_one();
        }
        let _ = waiter.send(error.map_or(Ok(received), |e| Err(RpcError::Reply(e))));
    }

    fn send_again_later(&self, slot: u16, sequence: u64) {
        let this = self.strong();
        self.env.spawn(async move {
            this.env.sleep(limits::RECOVERING_PAUSE).await;
            this.send_pending(slot, sequence);
        });
    }

    fn control_replied(&self, sequence: u64, body: Bytes, error: Option<ErrorReply>) -> Verdict {
        let control = {
            let mut state = self.state.borrow_mut();
            let control = state.controls.remove(&sequence);
            if let Some(Control::Ping { commit }) = control {
                state.ping_sent_at = None;
                state.commit_ping &= !commit;
            }
            control
        };
        if let Some(Control::Call(waiter)) = control {
            let _ = waiter.send(error.map_or(Ok(body), |error| Err(RpcError::Reply(error))));
            return Verdict::GoOn;
        }
        if let Some(error) = error {
            self.log(&format!("{control:?} was refused: {error}; connecting anew"));
            // The state that the client reclaims is not there any more, and a retry would not find it either.
            if matches!(control, Some(Control::Reclaim)) && error.errno == Errno::ESTALE {
                self.evicted(&error.message);
            }
            return Verdict::Reconnect;
        }
        match control {
            Some(Control::ReplayDone) => self.reclaim_next(),
            Some(Control::Reclaim) => self.reclaim_next(),
            Some(Control::ReclaimDone) => self.go_up(),
            Some(Control::Disconnect | Control::Ping { .. } | Control::Call(_)) | None => {}
        }
        self.changed.notify_waiters();
        Verdict::GoOn
    }

    /// The target ended the session: uncommitted changes are lost. The next Connect begins a new session.
    pub fn evicted(&self, reason: &str) {
        self.log(&format!("the target ended this session: {reason}"));
        self.state.borrow_mut().session = SessionId(0);
        self.lose(reason);
    }

    /// Reports everything that is not known to be committed as lost.
    pub fn lose(&self, reason: &str) {
        let error = RpcError::Evicted(reason.to_owned());
        let entries = {
            let mut state = self.state.borrow_mut();
            state.stats.evictions += 1;
            let entries = state.replay.take_all();
            if let (Some((first, _)), Some((last, _))) = (entries.first(), entries.last()) {
                state.losses.push((*first, *last, reason.to_owned()));
                if state.losses.len() > limits::LOSSES {
                    state.losses.remove(0);
                }
            }
            entries
        };
        // The new session cannot tell whether these were executed. Plain reads are sent again.
        let failing = self.take_all(|p| p.sent && (p.op.class() == Class::Modify || p.op == Op::Sync));
        let unsent = self.take_all(|p| p.is_bound);
        let of_each = entries.iter().map(|(_, entry)| entry.fids).chain(failing.iter().map(|pending| pending.fids));
        let fids = of_each.flatten().flatten().collect();
        self.report_lost(reason, fids, (entries.len() + failing.len()) as u64, true);
        self.release(entries, &Err(error.clone()));
        for pending in failing.into_iter().chain(unsent) {
            let _ = pending.waiter.send(Err(error.clone()));
        }
    }

    /// Takes these requests out of their slots, in the order of the calls.
    fn take_all(&self, which: impl Fn(&Pending) -> bool) -> Vec<Pending> {
        let is_it = |(slot, sequence): &(u16, u64)| self.slots.with(*slot, *sequence, |p| which(p)) == Some(true);
        let found: Vec<_> = self.slots.in_order().into_iter().filter(is_it).collect();
        found.into_iter().filter_map(|(slot, sequence)| self.slots.take(slot, sequence)).collect()
    }

    /// Logs a problem once, until another one occurs.
    pub fn complain(&self, words: &str) {
        let mut state = self.state.borrow_mut();
        if state.complaint != words {
            state.complaint = words.to_owned();
            drop(state);
            self.log(words);
            self.changed.notify_waiters();
        }
    }

    pub fn is_up(&self) -> bool {
        self.phase() == SessionState::Up
    }
}
