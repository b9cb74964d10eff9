//! The shell of the table: time, the kernel's hook, the guard of a pause.

use forebay_env::sim::Sim;
use forebay_proto::{limits::LEASE_CLIENT_TERM, message::lease_flags};

use super::*;

const FILE: Fid = Fid { high: 0, low: 8 };

fn file() -> Attr {
    let (truncate_epoch, attr_epoch, flags, rdev, size, mode, nlink) = (0, 0, 0, 0, 0, 0o100_644, 1);
    let (uid, gid, atime_ns, mtime_ns, ctime_ns, btime_ns) = (0, 0, 0, 0, 0, 0);
    Attr {
        fid: FILE,
        mode,
        nlink,
        uid,
        gid,
        rdev,
        size,
        atime_ns,
        mtime_ns,
        ctime_ns,
        btime_ns,
        truncate_epoch,
        attr_epoch,
        flags,
    }
}

/// The kernel believes the attributes of a leased file.
fn with(test: impl FnOnce(&Sim, &Rc<Leases>)) {
    let sim = Sim::new(1);
    let leases = Rc::new(Leases::new(&sim.env(sim.add_node("client"))));
    leases.heard(Time(0));
    leases.learn_attributes(leases.ticket(), &file());
    assert!(leases.attributes_for(&file()) > Duration::ZERO);
    test(&sim, &leases);
}

/// A hook that receives what `hears` allows, and records it.
fn hook(leases: &Leases, hears: bool) -> Rc<RefCell<Vec<Dropped>>> {
    let told = Rc::new(RefCell::new(Vec::new()));
    let notes = told.clone();
    leases.set_hook(Rc::new(move |dropped| {
        notes.borrow_mut().push(dropped);
        hears
    }));
    told
}

#[test]
fn what_the_kernel_did_not_hear_of_a_recall_goes_to_the_caller() {
    with(|_, leases| {
        let told = hook(leases, false);
        let unheard = leases.drop_recalled(&[FILE]);
        assert_eq!(*told.borrow(), [Dropped::Attributes(FILE)]);
        assert_eq!(unheard, [Dropped::Attributes(FILE)]);
        assert_eq!(leases.take_undelivered(), [], "only what was given up of our own accord is kept for later");
        hook(leases, true);
        assert_eq!(leases.tell(unheard), []);
    });
}

#[test]
fn what_the_kernel_did_not_hear_of_what_was_given_up_is_told_again_later() {
    with(|_, leases| {
        let told = hook(leases, false);
        leases.keep_within(0);
        assert_eq!(*told.borrow(), [Dropped::Attributes(FILE)]);
        assert_eq!(leases.take_undelivered(), [Dropped::Attributes(FILE)]);
        assert_eq!(leases.take_undelivered(), []);
    });
}

#[test]
fn without_a_hook_nobody_has_to_hear() {
    with(|_, leases| assert_eq!(leases.drop_recalled(&[FILE]), []));
}

#[test]
fn a_hook_may_ask_the_leases_and_sees_that_they_have_ended() {
    with(|_, leases| {
        let (seen, inside) = (Rc::new(Cell::new(None)), Rc::downgrade(leases));
        let notes = seen.clone();
        leases.set_hook(Rc::new(move |_| {
            let leases = inside.upgrade().expect("it is in use");
            // Also what needs the table for itself, and what ends leases in its turn.
            leases.touch(FILE);
            notes.set(Some(leases.is_leased(FILE) || !leases.drop_recalled(&[FILE]).is_empty()));
            true
        }));
        leases.drop_recalled(&[FILE]);
        assert_eq!(seen.get(), Some(false));
    });
}

#[test]
fn time_comes_from_the_environment() {
    with(|sim, leases| {
        sim.run_for(LEASE_CLIENT_TERM / 2);
        assert!(leases.is_leased(FILE));
        sim.run_for(LEASE_CLIENT_TERM / 2);
        assert!(!leases.is_leased(FILE));
    });
}

#[test]
fn open_writers_keep_the_client_listening() {
    with(|_, leases| {
        leases.keep_within(0);
        assert_eq!(leases.question().map(|question| question.returned), Some(vec![FILE]));
        assert_eq!(leases.question(), None);
        leases.writers.set(1);
        assert!(leases.question().is_some());
    });
}

#[test]
fn a_pause_that_is_over_changes_nothing_and_one_that_is_dropped_ends_all_answers() {
    with(|_, leases| {
        leases.learn_changes(leases.ticket(), lease_flags::PARENT_ENTRIES_WRITE, FILE, None);
        assert!(leases.answers_for(FILE).is_some());
        let (one, other) = (leases.pause_answering_all(), leases.pause_answering_all());
        one.over();
        assert_eq!(leases.answers_for(FILE), None, "the other is under way");
        other.over();
        assert!(leases.answers_for(FILE).is_some());
        drop(leases.pause_answering_all());
        assert_eq!(leases.answers_for(FILE), None, "the change may be made yet");
    });
}
