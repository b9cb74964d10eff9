//! Append reservations: a queue at the end of each file, for appends whose bytes go to other OSTs or come in several
//! requests.
//!
//! The home gives each such append a reservation: an offset behind all earlier ones. Clients write their bytes side by
//! side. They become part of the file in the order of the queue: the file ends before the first reservation until that
//! one is completed. If a reservation is given up, or its client is gone or exceeds the timeout, all reservations of
//! the queue are cancelled. Their clients reserve again, so no hole is left.
//!
//! Invariant: the visible file ends where the first reservation begins. An append in the home's object
//! (`ops/append.rs`) takes its turn too.
//! Invariant: a cancelled reservation is never completed. OSTs refuse its bytes once they have bytes of a later
//! generation (`ObjectRow::reservation_generation`), and the home does once it has a later append: late bytes overwrite
//! no append.
//! Not here: writes at explicit offsets, and truncates of other OSTs. A file may grow by a write behind its
//! reservations.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    time::Duration,
};

use forebay_env::{Bug, Time, planted, sync::Notify};
use forebay_proto::{Fid, Incarnation, SessionId};
use forebay_target::{Attempt, Context};

use crate::{Oss, limits};

/// One append's reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendReservation {
    /// Its number, never used for another reservation.
    pub number: u64,
    /// See the module.
    pub generation: u64,
    /// Where it begins in the file.
    pub offset: u64,
    length: u64,
    /// Smallest size of the file when it is this reservation's turn: appends ahead of it that are under way make it so
    /// long.
    base: u64,
    session: SessionId,
}

/// Where a reservation is in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// First; the file has to be at least this long.
    First(u64),
    /// Behind another reservation, which times out at this time.
    Behind(Time),
    /// Cancelled.
    Cancelled,
}

struct Queue {
    truncate_epoch: u64,
    generation: u64,
    reservations: VecDeque<AppendReservation>,
    first_since: Time,
}

/// The end of a file, for the choice of a reservation's offset.
#[derive(Clone, Copy)]
pub struct End {
    /// The size that clients see.
    pub visible: u64,
    /// The size once all admitted changes are applied.
    pub growing: u64,
}

/// All queues.
#[derive(Default)]
pub struct AppendReservations {
    queues: Rc<RefCell<BTreeMap<Fid, Queue>>>,
    generation: Rc<Cell<u64>>,
    last: Cell<u64>,
    /// Notified when a queue has advanced.
    advanced: Rc<Notify>,
}

impl AppendReservations {
    /// Numbers and generations are newer than those of every earlier incarnation.
    pub fn begin(&self, incarnation: Incarnation) {
        let first = u64::from(incarnation.0) << 32;
        self.generation.set(first + 1);
        self.last.set(first);
    }

    /// Gives the next reservation. `truncate_epoch`: `None` accepts the queue's, whatever it is.
    pub fn join(
        &self,
        (fid, truncate_epoch): (Fid, Option<u64>),
        session: SessionId,
        end: End,
        length: u64,
        now: Time,
    ) -> AppendReservation {
        let is_other = |queue: &Queue| truncate_epoch.is_some_and(|epoch| epoch != queue.truncate_epoch);
        let is_over = |queue: &Queue| is_other(queue) || queue.reservations.len() >= limits::RESERVATIONS_OPEN;
        if self.queues.borrow().get(&fid).is_some_and(is_over) {
            self.cancel(fid);
        }
        self.last.set(self.last.get() + 1);
        let (number, generation) = (self.last.get(), self.generation.get());
        let mut queues = self.queues.borrow_mut();
        let truncate_epoch = truncate_epoch.unwrap_or(0);
        let new = Queue { truncate_epoch, generation, reservations: VecDeque::new(), first_since: now };
        let queue = queues.entry(fid).or_insert(new);
        let tail = queue.reservations.back().map_or(0, |last| last.offset + last.length);
        let offset = end.visible.max(end.growing).max(tail);
        let base = if offset > end.visible.max(tail) { offset } else { 0 };
        let reservation = AppendReservation { number, generation: queue.generation, offset, length, base, session };
        queue.reservations.push_back(reservation);
        reservation
    }

    /// Where a reservation is in its queue.
    pub fn position(&self, fid: Fid, number: u64) -> Position {
        let queues = self.queues.borrow();
        let Some(queue) = queues.get(&fid) else { return Position::Cancelled };
        match queue.reservations.front() {
            Some(first) if first.number == number => Position::First(first.base),
            Some(first) if queue.reservations.iter().any(|reservation| reservation.number == number) => {
                Position::Behind(queue.first_since + timeout(first.length))
            }
            _ => Position::Cancelled,
        }
    }

    /// Whether the file has no reservations.
    pub fn is_empty(&self, fid: Fid) -> bool {
        !self.queues.borrow().contains_key(&fid)
    }

    /// Where the last reservation ends; 0 if there is none.
    pub fn end(&self, fid: Fid) -> u64 {
        let queues = self.queues.borrow();
        queues.get(&fid).and_then(|queue| queue.reservations.back()).map_or(0, |last| last.offset + last.length)
    }

    /// Generation for the bytes of an append at the home: above that of every cancelled reservation, not above that of
    /// an open one.
    pub fn fence(&self, fid: Fid) -> u64 {
        if planted(Bug::AppendsDoNotFence) {
            return 0;
        }
        self.queues.borrow().get(&fid).map_or(self.generation.get(), |queue| queue.generation)
    }

    /// The first reservation is complete: its bytes are part of the file.
    pub fn filled(&self, fid: Fid, number: u64, now: Time) {
        let mut queues = self.queues.borrow_mut();
        let Some(queue) = queues.get_mut(&fid) else { return };
        if queue.reservations.front().is_some_and(|first| first.number == number) {
            queue.reservations.pop_front();
            queue.first_since = now;
        }
        if queue.reservations.is_empty() {
            queues.remove(&fid);
        }
        drop(queues);
        self.advanced.notify_waiters();
    }

    /// The client gives a reservation up: all reservations of its queue are cancelled.
    pub fn give_up(&self, fid: Fid, number: u64) {
        if self.position(fid, number) != Position::Cancelled {
            self.cancel(fid);
        }
    }

    /// Cancels all reservations of a queue.
    pub fn cancel(&self, fid: Fid) {
        cancel(&self.queues, &self.generation, &self.advanced, fid);
    }

    /// The session has ended: its reservations are given up.
    pub fn end_session(&self, session: SessionId) {
        let has_it =
            |(_, queue): &(&Fid, &Queue)| queue.reservations.iter().any(|reservation| reservation.session == session);
        let of_it: Vec<Fid> = self.queues.borrow().iter().filter(has_it).map(|(fid, _)| *fid).collect();
        of_it.into_iter().for_each(|fid| self.cancel(fid));
    }
}

/// How long an append of `length` bytes may be first in the queue while others wait.
fn timeout(length: u64) -> Duration {
    limits::RESERVATION_TIMEOUT + Duration::from_micros(length * 1_000_000 / limits::RESERVATION_BYTES_PER_SECOND)
}

fn cancel(queues: &RefCell<BTreeMap<Fid, Queue>>, generation: &Cell<u64>, advanced: &Notify, fid: Fid) {
    if queues.borrow_mut().remove(&fid).is_some() {
        generation.set(generation.get() + 1);
        advanced.notify_waiters();
    }
}

/// A request that is first in the queue, until it is dropped. Unless [`Turn::done`] was called, the drop cancels the
/// queue.
pub(crate) struct Turn {
    fid: Fid,
    number: u64,
    /// The file has to be at least this long.
    pub base: u64,
    queues: Rc<RefCell<BTreeMap<Fid, Queue>>>,
    generation: Rc<Cell<u64>>,
    advanced: Rc<Notify>,
}

impl Turn {
    /// Whether the request still is first: no request behind it has timed out waiting.
    pub fn is_own(&self, oss: &Oss) -> bool {
        matches!(oss.reservations.position(self.fid, self.number), Position::First(_))
    }

    /// Its bytes are part of the file.
    pub fn done(self, oss: &Oss) {
        oss.reservations.filled(self.fid, self.number, oss.env().now());
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let is_there = self
            .queues
            .borrow()
            .get(&self.fid)
            .is_some_and(|queue| queue.reservations.iter().any(|it| it.number == self.number));
        if is_there {
            cancel(&self.queues, &self.generation, &self.advanced, self.fid);
        }
    }
}

impl Oss {
    /// Waits until a reservation is first in its queue. `None`: it is cancelled.
    pub(crate) async fn turn_of(&self, ctx: &Context, fid: Fid, number: u64) -> Option<Turn> {
        loop {
            let advanced = self.reservations.advanced.notified();
            let until = match self.reservations.position(fid, number) {
                Position::Cancelled => return None,
                Position::First(base) => {
                    let AppendReservations { queues, generation, advanced, .. } = &self.reservations;
                    let (queues, generation, advanced) = (queues.clone(), generation.clone(), advanced.clone());
                    return Some(Turn { fid, number, base, queues, generation, advanced });
                }
                Position::Behind(until) => until,
            };
            let left = until.since(self.env().now());
            if left.is_zero() || ctx.has_ended() {
                self.reservations.cancel(fid);
            } else {
                let _ = self.env().timeout(left, advanced).await;
            }
        }
    }

    /// If there is a queue at the end of the file, joins it with an append of `length` bytes and waits until that is
    /// first. `None`: there is no queue.
    pub(crate) async fn turn(
        &self,
        ctx: &Context,
        (fid, truncate_epoch): (Fid, Option<u64>),
        length: u64,
    ) -> Attempt<Option<Turn>> {
        while !self.reservations.is_empty(fid) {
            let row = self.load_applied(fid).await?.unwrap_or_default();
            if self.reservations.is_empty(fid) {
                break;
            }
            let end = End { visible: row.file_bytes, growing: self.growing.end(fid) };
            let reservation =
                self.reservations.join((fid, truncate_epoch), ctx.session(), end, length, self.env().now());
            if let Some(turn) = self.turn_of(ctx, fid, reservation.number).await {
                return Ok(Some(turn));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: Fid = Fid { high: 0, low: 5 };

    fn queues() -> AppendReservations {
        let queues = AppendReservations::default();
        queues.begin(Incarnation(3));
        queues
    }

    fn join(queues: &AppendReservations, session: u64, visible: u64, length: u64) -> AppendReservation {
        queues.join((F, Some(1)), SessionId(session), End { visible, growing: 0 }, length, Time(0))
    }

    #[test]
    fn append_reservations_follow_each_other_and_are_filled_in_order() {
        let queues = queues();
        let [a, b] = [join(&queues, 1, 100, 10), join(&queues, 2, 100, 20)];
        assert_eq!((a.offset, b.offset, queues.end(F)), (100, 110, 130));
        assert_eq!(a.generation, b.generation);
        assert_eq!(queues.position(F, a.number), Position::First(0));
        assert_eq!(queues.position(F, b.number), Position::Behind(Time(0) + timeout(10)));
        queues.filled(F, b.number, Time(1));
        assert_eq!(queues.position(F, a.number), Position::First(0), "b was not the first");
        queues.filled(F, a.number, Time(1));
        assert_eq!(queues.position(F, b.number), Position::First(0));
        queues.filled(F, b.number, Time(2));
        assert!(queues.is_empty(F));
    }

    #[test]
    fn giving_up_a_reservation_cancels_the_queue_and_frees_its_offset() {
        let queues = queues();
        let [a, b, c] = [1, 2, 3].map(|session| join(&queues, session, 100, 10));
        queues.give_up(F, b.number);
        let cancel = |reservation: &AppendReservation| queues.position(F, reservation.number) == Position::Cancelled;
        assert!([a, b, c].iter().all(cancel));
        let d = join(&queues, 3, 100, 10);
        assert_eq!(d.offset, 100);
        assert!(d.generation > a.generation && d.number > c.number);
        queues.end_session(SessionId(4));
        assert!(!cancel(&d));
        queues.end_session(SessionId(3));
        assert!(cancel(&d) && queues.is_empty(F));
    }

    #[test]
    fn a_truncate_and_a_restart_make_names_and_generations_anew() {
        let queues = queues();
        let a = join(&queues, 1, 100, 10);
        let cut = queues.join((F, Some(2)), SessionId(1), End { visible: 0, growing: 0 }, 10, Time(0));
        assert_eq!((cut.offset, queues.position(F, a.number)), (0, Position::Cancelled));
        let later = AppendReservations::default();
        later.begin(Incarnation(4));
        let b = join(&later, 1, 100, 10);
        assert!(b.generation > cut.generation && b.number > cut.number);
    }

    #[test]
    fn an_append_behind_one_in_progress_is_placed_at_its_end() {
        let queues = queues();
        let a = queues.join((F, Some(1)), SessionId(1), End { visible: 100, growing: 150 }, 10, Time(0));
        assert_eq!((a.offset, queues.position(F, a.number)), (150, Position::First(150)));
    }
}
