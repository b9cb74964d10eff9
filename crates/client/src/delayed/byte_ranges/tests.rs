//! Claims of clients that write to one file.

use super::*;
use crate::{tasks::Counted, testing::Dice};

const RECORD: u64 = 10;

fn at(ms: u64) -> Time {
    Time(0) + Duration::from_millis(ms)
}

/// A call that sees more than what could be claimed is under way.
fn outside(sharing: &Rc<Sharing>) -> Counted<Sharing> {
    Counted::new(sharing, |sharing| &sharing.outside)
}

/// A handle that has written one record in so many, from `first` on, `writes` times; what it writes next.
fn strided(sharing: &Sharing, handle: u64, first: u64, of: u64, writes: u64, now: Time) -> u64 {
    let offset = |number: u64| (first + number * of) * RECORD;
    (0..writes).for_each(|number| sharing.note(handle, offset(number), RECORD, now));
    offset(writes)
}

/// One client's view of the file, and what it does with it.
#[derive(Default)]
struct Client {
    sharing: Rc<Sharing>,
    /// It writes one record in `of`, from `next` on.
    next: u64,
    of: u64,
    /// The MDT has its claim, and whether it has granted it.
    at_mdt: Vec<Pieces>,
    granted: bool,
    writing: Vec<(Writing, u64, u64)>,
    outside: Vec<Counted<Sharing>>,
    buffered: Vec<(u64, u64)>,
}

/// The MDT grants what is claimed where every client has claims, and none may meet.
fn decide(clients: &mut [Client]) {
    let meets = |a: &Client, b: &Client| a.at_mdt.iter().any(|one| b.at_mdt.iter().any(|other| one.may_meet(other)));
    let apart = (0..clients.len()).all(|a| (0..a).all(|b| !meets(&clients[a], &clients[b])));
    let all = clients.iter().all(|client| !client.at_mdt.is_empty());
    clients.iter_mut().for_each(|client| client.granted = all && apart);
}

/// A client takes its claim back: all that others have buffered is sent first.
fn see_all(clients: &mut [Client], of: usize, now: Time) {
    let outside = outside(&clients[of].sharing);
    if clients[of].sharing.is_bound() {
        clients[of].sharing.end(now);
        clients.iter_mut().for_each(|client| client.buffered.clear());
        clients[of].at_mdt.clear();
        clients[of].sharing.claimed.borrow_mut().clear();
    }
    clients[of].outside.push(outside);
}

/// A client writes: at the next place of its own, or anywhere.
fn write(clients: &mut [Client], of: usize, dice: &mut Dice, now: Time) {
    let client = &mut clients[of];
    let offset = if dice.one_in(25) { dice.below(2000) } else { client.next };
    client.next = client.next.max(offset) + client.of * RECORD;
    client.sharing.note(1, offset, RECORD, now);
    if client.sharing.is_bound() && client.granted && client.sharing.covers(offset, RECORD) {
        client.buffered.push((offset, offset + RECORD));
        return;
    }
    if client.sharing.is_bound() && !client.sharing.covers(offset, RECORD) {
        see_all(clients, of, now);
        clients[of].outside.pop();
    }
    let writing = Writing::new(&clients[of].sharing, offset, offset + RECORD);
    clients[of].writing.push((writing, offset, RECORD));
    let is_free = !clients[of].sharing.is_bound();
    if clients[of].sharing.bind(1, now) && is_free {
        clients[of].at_mdt = clients[of].sharing.claimed.borrow().clone();
    }
}

#[test]
fn no_two_clients_buffer_bytes_of_one_place_whatever_they_write() {
    let mut buffered = 0;
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let count = 2 + dice.below(3);
        let mut clients: Vec<Client> = (0..count)
            .map(|number| Client {
                // Some write where others do.
                next: if dice.one_in(8) { 0 } else { number * RECORD },
                of: if dice.one_in(8) { count + 1 } else { count },
                ..Client::default()
            })
            .collect();
        for step in 0..150 {
            let (of, now) = (dice.below(count) as usize, at(step));
            match dice.below(20) {
                0 => see_all(&mut clients, of, now),
                1..4 => drop(clients[of].outside.pop()),
                4..8 => drop(clients[of].writing.pop()),
                _ => write(&mut clients, of, &mut dice, now),
            }
            decide(&mut clients);
            for (number, client) in clients.iter().enumerate() {
                let inside = |(_, offset, length): &(Writing, u64, u64)| client.sharing.covers(*offset, *length);
                let is_bound = client.sharing.is_bound();
                assert!(!is_bound || client.writing.iter().all(inside), "seed {seed}: {number} writes outside");
                assert!(!is_bound || client.outside.is_empty(), "seed {seed}: {number} sees more than it has claimed");
                let others = clients[..number].iter().flat_map(|other| &other.buffered);
                let meets = |(start, end): (u64, u64)| others.clone().any(|(from, to)| *from < end && start < *to);
                assert!(!client.buffered.iter().any(|range| meets(*range)), "seed {seed}: {number} and another");
                buffered += client.buffered.len();
            }
        }
    }
    assert!(buffered > 2000, "{buffered}");
}

#[test]
fn a_client_is_not_bound_while_it_does_something_else_with_the_file() {
    let sharing = Rc::new(Sharing::default());
    strided(&sharing, 1, 0, 2, 4, at(0));
    let (first, second) = (outside(&sharing), outside(&sharing));
    assert!(!sharing.bind(1, at(0)) && !sharing.is_bound());
    drop(first);
    assert!(!sharing.bind(1, at(0)), "one of the two goes on");
    drop(second);
    assert!(sharing.bind(1, at(0)) && sharing.is_bound());
}

#[test]
fn a_client_is_not_bound_while_a_write_is_under_way_outside_of_what_it_would_claim() {
    let sharing = Rc::new(Sharing::default());
    let next = strided(&sharing, 1, 0, 2, 4, at(0));
    let inside = Writing::new(&sharing, next, next + RECORD);
    let outside = Writing::new(&sharing, next + 1, next + 1 + RECORD);
    assert!(!sharing.bind(1, at(0)));
    drop(outside);
    assert!(sharing.bind(1, at(0)), "what is left lies in the claimed pieces");
    drop(inside);
    assert!(sharing.covers(next, RECORD) && sharing.covers(next + 200 * RECORD, RECORD));
    assert!(!sharing.covers(next + RECORD, RECORD) && !sharing.covers(next, RECORD + 1));
}

#[test]
fn a_client_that_is_bound_stays_bound_to_what_it_claimed_first() {
    let sharing = Rc::new(Sharing::default());
    strided(&sharing, 1, 0, 2, 4, at(0));
    assert!(sharing.bind(1, at(0)));
    let claimed = sharing.claimed.borrow().clone();
    // What it does next changes nothing of that before the claim is taken back.
    strided(&sharing, 1, 1000, 7, 5, at(1));
    let _outside = outside(&sharing);
    assert!(sharing.bind(1, at(1)) && *sharing.claimed.borrow() == claimed);
    sharing.claimed.borrow_mut().clear();
    assert!(!sharing.is_bound() && !sharing.covers(0, RECORD));
}

#[test]
fn a_claim_has_the_pieces_of_every_handle_that_writes() {
    let sharing = Rc::new(Sharing::default());
    strided(&sharing, 1, 0, 3, 4, at(0));
    sharing.note(2, RECORD, RECORD, at(0));
    assert!(!sharing.bind(2, at(0)), "what is written through the second one is not known");
    strided(&sharing, 2, 1, 3, 4, at(0));
    assert!(sharing.bind(2, at(0)));
    let claimed = sharing.claimed.borrow().clone();
    assert_eq!(claimed.len(), 2);
    assert!(sharing.covers(300 * RECORD, RECORD) && sharing.covers(301 * RECORD, RECORD));
    assert!(!sharing.covers(302 * RECORD, RECORD));
    assert!(!sharing.covers(300 * RECORD, 2 * RECORD), "it lies in pieces of two handles");
}

#[test]
fn handles_that_have_ended_or_have_not_written_for_long_are_not_waited_for() {
    let begun = at(0);
    let fresh = || {
        let sharing = Rc::new(Sharing::default());
        sharing.note(2, 5, 3, begun);
        sharing
    };
    let sharing = fresh();
    strided(&sharing, 1, 0, 2, 4, begun);
    assert!(!sharing.bind(2, begun));
    sharing.leave(2);
    assert!(sharing.bind(1, begun), "the other handle has ended");
    let sharing = fresh();
    let late = begun + limits::TRACK_TERM;
    strided(&sharing, 1, 0, 2, 4, late);
    assert!(sharing.bind(2, late), "it has not written for long");
    let sharing = fresh();
    let soon = begun + (limits::TRACK_TERM - Duration::from_nanos(1));
    strided(&sharing, 1, 0, 2, 4, soon);
    assert!(!sharing.bind(2, soon), "it may go on");
}

#[test]
fn handles_that_have_not_written_yet_have_a_moment_to_begin() {
    let sharing = Rc::new(Sharing::default());
    strided(&sharing, 1, 0, 2, 4, at(0));
    assert!(!sharing.bind(2, at(0)));
    assert!(!sharing.bind(2, at(0) + (limits::TRACK_WAIT - Duration::from_nanos(1))));
    assert!(sharing.bind(2, at(0) + limits::TRACK_WAIT));
}

#[test]
fn no_more_handles_are_claimed_for_than_a_claim_may_have_pieces() {
    for (handles, is_bound) in [(CLAIM_PIECES as u64, true), (CLAIM_PIECES as u64 + 1, false)] {
        let sharing = Rc::new(Sharing::default());
        for handle in 0..handles {
            strided(&sharing, handle, handle, 50, 4, at(0));
        }
        assert_eq!(sharing.bind(handles as usize, at(0)), is_bound, "{handles}");
    }
    assert!(!Sharing::default().bind(0, at(0)), "nobody has written");
}

#[test]
fn a_share_that_ends_again_and_again_is_claimed_ever_later_until_it_was_calm() {
    let sharing = Sharing::default();
    let mut now = at(100_000);
    let mut pauses = Vec::new();
    for _ in 0..7 {
        sharing.poll.set(limits::CLAIM_POLL_MOST);
        sharing.end(now);
        assert_eq!(sharing.poll.get(), limits::CLAIM_POLL);
        pauses.push(sharing.next.get().since(now));
        now = sharing.next.get();
    }
    let seconds: Vec<u64> = pauses.iter().map(Duration::as_secs).collect();
    assert_eq!(seconds, [1, 2, 4, 8, 16, 16, 16], "the first one was calm");
    let calm = now + limits::CLAIM_PAUSE_MOST * limits::CLAIM_CALM;
    sharing.end(calm);
    assert_eq!(sharing.next.get().since(calm), limits::CLAIM_PAUSE);
}

#[test]
fn a_restart_of_the_mdt_is_remembered_until_the_claim_is_told_again() {
    let sharing = Sharing::default();
    assert!(!sharing.forgotten.get());
    sharing.forget();
    assert!(sharing.forgotten.get() && !sharing.is_bound());
}
