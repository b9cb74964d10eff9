//! The line at the end of each file: appends whose bytes go to other OSTs, or come in several requests.
//!
//! Each has a place, and the file ends before the first of them until that one is filled. Places follow each other, so that
//! clients fill theirs side by side; they become part of the file in their order. Where one is given up, or its client is gone
//! or takes too long, all places of the line are void, and whoever had one asks again: nothing is left between.
//!
//! Invariant: what is visible ends where the first place begins; an append that is at home (`ops/append.rs`) takes its turn too.
//! Invariant: a place that was void is never filled, and OSTs refuse bytes for it as soon as they have some of a later
//! generation (`ObjectRow::place_generation`), and the home as soon as an append lies there: whoever is late writes over no append.
//! Not here: writes at offsets of their own, and truncates of other OSTs; a file may become longer by a write behind its places.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    time::Duration,
};

use forebay_env::{Bug, Time, planted, sync::Notify};
use forebay_proto::{ErrorReply, Fid, Incarnation, SessionId};
use forebay_target::Context;

use crate::{Oss, limits};

/// A place in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its name; no other ever has it.
    pub number: u64,
    /// See the module.
    pub generation: u64,
    /// First byte of the file.
    pub offset: u64,
    length: u64,
    /// The file has to be so long when it is its turn: appends before it that are under way will have made it so.
    base: u64,
    session: SessionId,
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its own; the file has to be so long.
    First(u64),
    /// That of another, for as long as until then.
    Behind(Time),
    /// It is void.
    Void,
}

struct Line {
    truncate_epoch: u64,
    generation: u64,
    places: VecDeque<Place>,
    first_since: Time,
}

/// Where a place may begin.
#[derive(Clone, Copy)]
pub struct End {
    /// The file ends there.
    pub visible: u64,
    /// It will, when what is under way is made.
    pub growing: u64,
}

/// All lines.
#[derive(Default)]
pub struct Lines {
    lines: Rc<RefCell<BTreeMap<Fid, Line>>>,
    generation: Rc<Cell<u64>>,
    last: Cell<u64>,
    /// Some line has moved.
    moved: Rc<Notify>,
}

impl Lines {
    /// Names and generations are newer than those of every earlier incarnation.
    pub fn begin(&self, incarnation: Incarnation) {
        let first = u64::from(incarnation.0) << 32;
        self.generation.set(first + 1);
        self.last.set(first);
    }

    /// Gives the next place of a line. (`None`: in whatever truncate epoch it is.)
    pub fn join(
        &self,
        (fid, truncate_epoch): (Fid, Option<u64>),
        session: SessionId,
        end: End,
        length: u64,
        now: Time,
    ) -> Place {
        let is_other = |line: &Line| truncate_epoch.is_some_and(|epoch| epoch != line.truncate_epoch);
        let is_over = |line: &Line| is_other(line) || line.places.len() >= limits::PLACES_OPEN;
        if self.lines.borrow().get(&fid).is_some_and(is_over) {
            self.void(fid);
        }
        self.last.set(self.last.get() + 1);
        let (number, generation) = (self.last.get(), self.generation.get());
        let mut lines = self.lines.borrow_mut();
        let truncate_epoch = truncate_epoch.unwrap_or(0);
        let new = Line { truncate_epoch, generation, places: VecDeque::new(), first_since: now };
        let line = lines.entry(fid).or_insert(new);
        let tail = line.places.back().map_or(0, |last| last.offset + last.length);
        let offset = end.visible.max(end.growing).max(tail);
        let base = if offset > end.visible.max(tail) { offset } else { 0 };
        let place = Place { number, generation: line.generation, offset, length, base, session };
        line.places.push_back(place);
        place
    }

    /// Where a place stands.
    pub fn standing(&self, fid: Fid, number: u64) -> Standing {
        let lines = self.lines.borrow();
        let Some(line) = lines.get(&fid) else { return Standing::Void };
        match line.places.front() {
            Some(first) if first.number == number => Standing::First(first.base),
            Some(first) if line.places.iter().any(|place| place.number == number) => {
                Standing::Behind(line.first_since + patience(first.length))
            }
            _ => Standing::Void,
        }
    }

    /// Nobody stands there.
    pub fn is_empty(&self, fid: Fid) -> bool {
        !self.lines.borrow().contains_key(&fid)
    }

    /// Where the last place ends; 0 if there is none.
    pub fn end(&self, fid: Fid) -> u64 {
        let lines = self.lines.borrow();
        lines.get(&fid).and_then(|line| line.places.back()).map_or(0, |last| last.offset + last.length)
    }

    /// What an append at the home gives its object as the generation of its bytes: none of a place that is void by now is so high, and
    /// none of one that is open is higher.
    pub fn fence(&self, fid: Fid) -> u64 {
        if planted(Bug::AppendsDoNotFence) {
            return 0;
        }
        self.lines.borrow().get(&fid).map_or(self.generation.get(), |line| line.generation)
    }

    /// The first has been made part of the file.
    pub fn filled(&self, fid: Fid, number: u64, now: Time) {
        let mut lines = self.lines.borrow_mut();
        let Some(line) = lines.get_mut(&fid) else { return };
        if line.places.front().is_some_and(|first| first.number == number) {
            line.places.pop_front();
            line.first_since = now;
        }
        if line.places.is_empty() {
            lines.remove(&fid);
        }
        drop(lines);
        self.moved.notify_waiters();
    }

    /// A place is given up, and with it all others of the line.
    pub fn give_up(&self, fid: Fid, number: u64) {
        if self.standing(fid, number) != Standing::Void {
            self.void(fid);
        }
    }

    /// All places of a line are void.
    pub fn void(&self, fid: Fid) {
        void(&self.lines, &self.generation, &self.moved, fid);
    }

    /// The places of a session are given up.
    pub fn end_session(&self, session: SessionId) {
        let has_it = |(_, line): &(&Fid, &Line)| line.places.iter().any(|place| place.session == session);
        let of_it: Vec<Fid> = self.lines.borrow().iter().filter(has_it).map(|(fid, _)| *fid).collect();
        of_it.into_iter().for_each(|fid| self.void(fid));
    }
}

/// How long an append of `length` bytes may be the first in line while others wait.
fn patience(length: u64) -> Duration {
    limits::PLACE_PATIENCE + Duration::from_micros(length * 1_000_000 / limits::PLACE_BYTES_PER_SECOND)
}

fn void(lines: &RefCell<BTreeMap<Fid, Line>>, generation: &Cell<u64>, moved: &Notify, fid: Fid) {
    if lines.borrow_mut().remove(&fid).is_some() {
        generation.set(generation.get() + 1);
        moved.notify_waiters();
    }
}

/// A request that is first in line, until it is dropped. Unless it was [`Turn::done`], those behind it have to ask again.
pub(crate) struct Turn {
    fid: Fid,
    number: u64,
    /// The file has to be so long.
    pub base: u64,
    lines: Rc<RefCell<BTreeMap<Fid, Line>>>,
    generation: Rc<Cell<u64>>,
    moved: Rc<Notify>,
}

impl Turn {
    /// Still its own: nobody behind it has lost patience.
    pub fn is_own(&self, oss: &Oss) -> bool {
        matches!(oss.lines.standing(self.fid, self.number), Standing::First(_))
    }

    /// Its bytes are part of the file.
    pub fn done(self, oss: &Oss) {
        oss.lines.filled(self.fid, self.number, oss.env().now());
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let is_there = self
            .lines
            .borrow()
            .get(&self.fid)
            .is_some_and(|line| line.places.iter().any(|it| it.number == self.number));
        if is_there {
            void(&self.lines, &self.generation, &self.moved, self.fid);
        }
    }
}

impl Oss {
    /// Waits until a place is the first in line. `None`: it is void.
    pub(crate) async fn turn_of(&self, ctx: &Context, fid: Fid, number: u64) -> Option<Turn> {
        loop {
            let moved = self.lines.moved.notified();
            let until = match self.lines.standing(fid, number) {
                Standing::Void => return None,
                Standing::First(base) => {
                    let Lines { lines, generation, moved, .. } = &self.lines;
                    let (lines, generation, moved) = (lines.clone(), generation.clone(), moved.clone());
                    return Some(Turn { fid, number, base, lines, generation, moved });
                }
                Standing::Behind(until) => until,
            };
            let left = until.since(self.env().now());
            if left.is_zero() || ctx.has_ended() {
                self.lines.void(fid);
            } else {
                let _ = self.env().timeout(left, moved).await;
            }
        }
    }

    /// If there is a line at the end of the file, stands in it with an append of `length` bytes, until it is the first. `None`: there
    /// is none.
    pub(crate) async fn turn(
        &self,
        ctx: &Context,
        (fid, truncate_epoch): (Fid, Option<u64>),
        length: u64,
    ) -> Result<Option<Turn>, ErrorReply> {
        while !self.lines.is_empty(fid) {
            let row = self.load_applied(fid).await?.unwrap_or_default();
            if self.lines.is_empty(fid) {
                break;
            }
            let end = End { visible: row.file_bytes, growing: self.growing.end(fid) };
            let place = self.lines.join((fid, truncate_epoch), ctx.session(), end, length, self.env().now());
            if let Some(turn) = self.turn_of(ctx, fid, place.number).await {
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

    fn lines() -> Lines {
        let lines = Lines::default();
        lines.begin(Incarnation(3));
        lines
    }

    fn join(lines: &Lines, session: u64, visible: u64, length: u64) -> Place {
        lines.join((F, Some(1)), SessionId(session), End { visible, growing: 0 }, length, Time(0))
    }

    #[test]
    fn places_follow_each_other_and_are_filled_in_order() {
        let lines = lines();
        let [a, b] = [join(&lines, 1, 100, 10), join(&lines, 2, 100, 20)];
        assert_eq!((a.offset, b.offset, lines.end(F)), (100, 110, 130));
        assert_eq!(a.generation, b.generation);
        assert_eq!(lines.standing(F, a.number), Standing::First(0));
        assert_eq!(lines.standing(F, b.number), Standing::Behind(Time(0) + patience(10)));
        lines.filled(F, b.number, Time(1));
        assert_eq!(lines.standing(F, a.number), Standing::First(0), "b was not the first");
        lines.filled(F, a.number, Time(1));
        assert_eq!(lines.standing(F, b.number), Standing::First(0));
        lines.filled(F, b.number, Time(2));
        assert!(lines.is_empty(F));
    }

    #[test]
    fn a_place_that_is_given_up_voids_the_line_and_the_next_begins_where_the_file_ends() {
        let lines = lines();
        let [a, b, c] = [1, 2, 3].map(|session| join(&lines, session, 100, 10));
        lines.give_up(F, b.number);
        let void = |place: &Place| lines.standing(F, place.number) == Standing::Void;
        assert!([a, b, c].iter().all(void));
        let d = join(&lines, 3, 100, 10);
        assert_eq!(d.offset, 100);
        assert!(d.generation > a.generation && d.number > c.number);
        lines.end_session(SessionId(4));
        assert!(!void(&d));
        lines.end_session(SessionId(3));
        assert!(void(&d) && lines.is_empty(F));
    }

    #[test]
    fn a_truncate_and_a_restart_make_names_and_generations_anew() {
        let lines = lines();
        let a = join(&lines, 1, 100, 10);
        let cut = lines.join((F, Some(2)), SessionId(1), End { visible: 0, growing: 0 }, 10, Time(0));
        assert_eq!((cut.offset, lines.standing(F, a.number)), (0, Standing::Void));
        let later = Lines::default();
        later.begin(Incarnation(4));
        let b = join(&later, 1, 100, 10);
        assert!(b.generation > cut.generation && b.number > cut.number);
    }

    #[test]
    fn a_place_behind_an_append_that_is_under_way_needs_it() {
        let lines = lines();
        let a = lines.join((F, Some(1)), SessionId(1), End { visible: 100, growing: 150 }, 10, Time(0));
        assert_eq!((a.offset, lines.standing(F, a.number)), (150, Standing::First(150)));
    }
}
