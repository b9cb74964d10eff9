//! After a restart of the target: replay in transno order, reclaim, then resend, then new calls.
//!
//! Driven by replies; no task of its own. Replays are sent in a bounded window, in transno order.

use std::collections::VecDeque;

use forebay_proto::{
    ErrorReply, TargetKind, Transno,
    message::{FrameHeader, Reclaim, ReclaimDone, ReplayDone, frame_flags},
};

use super::{
    SessionState,
    inner::{Control, Inner, Recovery},
};
use crate::{RpcError, limits};

impl Inner {
    /// The target is recovering: begins, or begins anew on a new connection.
    pub fn begin_recovery(&self) {
        self.state.borrow_mut().recovery = Recovery::default();
        self.set_phase(SessionState::Recovering);
        self.replay_next();
    }

    /// Fills the window of replays; once all are replied to, sends ReplayDone.
    fn replay_next(&self) {
        while self.send_replay() {}
        let done = {
            let mut state = self.state.borrow_mut();
            let done = state.recovery.in_flight.is_empty() && !state.recovery.done_sent;
            state.recovery.done_sent |= done;
            done
        };
        if done {
            self.send_control(&ReplayDone {}, Control::ReplayDone);
        }
    }

    fn send_replay(&self) -> bool {
        let mut state = self.state.borrow_mut();
        let in_flight = &state.recovery.in_flight;
        let bytes: u64 = in_flight.iter().map(|(_, bytes)| bytes).sum();
        if in_flight.len() >= limits::REPLAYS_IN_FLIGHT || bytes >= limits::REPLAY_BYTES_IN_FLIGHT {
            return false;
        }
        let Some((transno, entry)) = state.replay.next_to_replay(state.recovery.sent_up_to, state.incarnation) else {
            return false;
        };
        let header = FrameHeader { flags: frame_flags::REPLAY, transno, ..entry.header.clone() };
        let (body, bulk) = (entry.body.clone(), entry.bulk.clone());
        let bytes = (body.len() + bulk.iter().map(|b| b.len()).sum::<usize>()) as u64;
        state.recovery.sent_up_to = transno;
        state.recovery.in_flight.push_back((transno, bytes));
        state.stats.replays += 1;
        state.send(&self.env, header, body, bulk)
    }

    /// A replay was executed, or failed.
    pub fn replay_replied(&self, transno: Transno, error: Option<ErrorReply>) {
        let failed = {
            let mut state = self.state.borrow_mut();
            state.recovery.in_flight.retain(|(t, _)| *t != transno);
            let incarnation = state.incarnation;
            match &error {
                None => {
                    state.replay.replayed(transno, incarnation);
                    None
                }
                Some(_) => state.replay.remove(transno),
            }
        };
        if let (Some(entry), Some(error)) = (failed, error) {
            let reason = format!("the replay of {transno} failed: {error}");
            self.log(&reason);
            self.state.borrow_mut().losses.push((transno, transno, reason.clone()));
            self.report_lost(&reason, entry.fids.into_iter().flatten().collect(), 1, false);
            self.release(vec![(transno, entry)], &Err(RpcError::Evicted(reason)));
        }
        if self.phase() == SessionState::Recovering {
            self.replay_next();
        }
    }

    /// All replays of all clients are done: reclaims handles, one request after another, then sends ReclaimDone.
    pub fn reclaim_next(&self) {
        if !self.state.borrow().recovery.reclaiming {
            let reclaims = self.what_to_reclaim();
            let mut state = self.state.borrow_mut();
            (state.recovery.reclaims, state.recovery.reclaiming) = (reclaims, true);
        }
        let next = self.state.borrow_mut().recovery.reclaims.pop_front();
        match next {
            Some(reclaim) => self.send_control(&reclaim, Control::Reclaim),
            None => self.send_control(&ReclaimDone {}, Control::ReclaimDone),
        }
    }

    /// Handles, then locks, then directories, in requests that fit in a frame.
    fn what_to_reclaim(&self) -> VecDeque<Reclaim> {
        let hook = self.reclaim.borrow().clone();
        let Some(hook) = hook.filter(|_| self.options.target.kind == TargetKind::Mdt) else { return VecDeque::new() };
        let held = hook();
        let handles = held.handles.chunks(limits::RECLAIM_HANDLES);
        let handles = handles.map(|handles| Reclaim { handles: handles.to_vec(), ..Reclaim::default() });
        let locks = held.locks.chunks(limits::RECLAIM_LOCKS);
        let locks = locks.map(|locks| Reclaim { locks: locks.to_vec(), ..Reclaim::default() });
        // At most as many as there are slots.
        let directories = (!held.directories.is_empty()).then_some(held.directories);
        let directories = directories.into_iter().map(|directories| Reclaim { directories, ..Reclaim::default() });
        handles.chain(locks).chain(directories).collect()
    }

    /// Calls are served: first those without a reply, in the order in which they were made.
    pub fn go_up(&self) {
        self.set_phase(SessionState::Up);
        self.state.borrow_mut().complaint.clear();
        for (slot, sequence) in self.slots.in_order() {
            let again = self.slots.with(slot, sequence, |pending| {
                if pending.sent {
                    pending.header.flags |= frame_flags::RESEND;
                }
                pending.sent
            });
            self.state.borrow_mut().stats.resends += u64::from(again == Some(true));
            self.send_pending(slot, sequence);
        }
        self.attention.notify_one();
        if !self.state.borrow().commit_waiters.is_empty() {
            self.commit_soon();
        }
    }
}
