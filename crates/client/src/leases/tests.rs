//! What is told under leases, and when no more.

use super::*;
use forebay_env::sim::Sim;

const DIR: Fid = Fid { high: 0, low: 7 };
const FILE: Fid = Fid { high: 0, low: 8 };
const BOTH: u32 = lease_flags::INODE | lease_flags::PARENT;

fn entry(fid: Fid) -> EntryReply {
    let attr = Attr {
        fid,
        mode: 0o100_644,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        atime_ns: 0,
        mtime_ns: 0,
        ctime_ns: 0,
        btime_ns: 0,
        truncate_epoch: 0,
        attr_epoch: 0,
        flags: 0,
    };
    EntryReply { attr, layout: None, default_layout: None, leases: BOTH, parent: None }
}

/// What a lookup of `a` in `DIR` brought that was asked at `asked`.
fn found(leases: &Leases, asked: Ticket) {
    leases.learn(asked, &entry(FILE));
    leases.learn_name(asked, DIR, b"a", BOTH, Some(FILE));
}

fn with(test: impl FnOnce(&Sim, &Leases)) {
    let sim = Sim::new(1);
    let leases = Leases::new(&sim.env(sim.add_node("client")));
    leases.heard(Time(0));
    test(&sim, &leases);
}

#[test]
fn what_was_found_is_kept_and_what_is_absent_too() {
    with(|_, leases| {
        found(leases, leases.ticket());
        leases.learn_name(leases.ticket(), DIR, b"b", BOTH, None);
        assert_eq!(leases.name(DIR, b"a"), Some(Some(entry(FILE))));
        assert_eq!(leases.name(DIR, b"b"), Some(None));
        assert_eq!(leases.name(DIR, b"c"), None);
        assert!(leases.attributes_for(&entry(FILE).attr) > Duration::ZERO);
        assert!(leases.name_for(DIR, b"a", Some(FILE)) > Duration::ZERO);
        assert!(leases.name_for(DIR, b"b", None) > Duration::ZERO);
        assert_eq!(leases.name_for(DIR, b"a", None), Duration::ZERO);
    });
}

#[test]
fn a_recall_ends_it_also_for_replies_to_what_was_asked_before() {
    with(|_, leases| {
        let asked = leases.ticket();
        found(leases, asked);
        leases.recalled(&[DIR, FILE], 3);
        assert_eq!(leases.name(DIR, b"a"), None);
        found(leases, asked);
        assert_eq!((leases.name(DIR, b"a"), leases.entry(FILE)), (None, None));
        assert_eq!(leases.name_for(DIR, b"a", Some(FILE)), Duration::ZERO);
        found(leases, leases.ticket());
        assert_eq!(leases.question().map(|question| question.acknowledged), Some(3));
    });
}

#[test]
fn that_the_last_lease_went_is_said_too() {
    with(|_, leases| {
        found(leases, leases.ticket());
        leases.recalled(&[DIR, FILE], 3);
        let question = leases.question().expect("somebody waits for it");
        assert_eq!(question.acknowledged, 3);
        assert_eq!(leases.question(), Some(question.clone()), "it was not heard");
        leases.answered(&question);
        assert_eq!(leases.question(), None);
    });
}

#[test]
fn who_was_told_hears_of_the_recall_and_nobody_else() {
    with(|_, leases| {
        let heard = Rc::new(RefCell::new(Vec::new()));
        let hook = heard.clone();
        leases.set_hook(Rc::new(move |dropped| {
            hook.borrow_mut().push(dropped);
            true
        }));
        found(leases, leases.ticket());
        leases.recalled(&[DIR], 1);
        assert!(heard.borrow().is_empty());
        leases.attributes_for(&entry(FILE).attr);
        leases.recalled(&[FILE], 2);
        found(leases, leases.ticket());
        leases.name_for(DIR, b"a", Some(FILE));
        leases.lost();
        assert_eq!(*heard.borrow(), [Dropped::Attributes(FILE), Dropped::Names]);
    });
}

#[test]
fn a_kernel_that_took_its_answer_late_hears_of_a_recall_too() {
    with(|sim, leases| {
        let heard = Rc::new(Cell::new(0));
        let hook = heard.clone();
        leases.set_hook(Rc::new(move |_| {
            hook.set(hook.get() + 1);
            true
        }));
        found(leases, leases.ticket());
        let told = leases.name_for(DIR, b"a", Some(FILE));
        sim.run_for(Duration::from_millis(1000));
        leases.heard(sim.now());
        sim.run_for(told - Duration::from_millis(999));
        leases.recalled(&[DIR], 1);
        assert_eq!(heard.get(), 1);
    });
}

#[test]
fn own_changes_are_known_when_they_have_ended_and_until_then_the_mdt_is_asked() {
    with(|_, leases| {
        found(leases, leases.ticket());
        let before = leases.ticket();
        let change = leases.name_changes(DIR, b"a");
        assert_eq!((leases.name(DIR, b"a"), leases.entry(FILE)), (None, None));
        found(leases, before);
        assert_eq!(leases.name(DIR, b"a"), None, "it was asked before the change");
        leases.name_changed(change, DIR, b"a", Some(None));
        assert_eq!(leases.name(DIR, b"a"), Some(None));
        found(leases, before);
        assert_eq!(leases.name(DIR, b"a"), Some(None));
    });
}

#[test]
fn of_two_changes_of_one_name_at_a_time_nobody_knows_the_last() {
    with(|_, leases| {
        found(leases, leases.ticket());
        let (one, two) = (leases.name_changes(DIR, b"a"), leases.name_changes(DIR, b"a"));
        leases.name_changed(two, DIR, b"a", Some(None));
        leases.name_changed(one, DIR, b"a", Some(Some(FILE)));
        assert_eq!(leases.name(DIR, b"a"), None);
    });
}

#[test]
fn a_change_without_a_lease_leaves_nothing_that_an_older_question_could_bring_back() {
    with(|_, leases| {
        let before = leases.ticket();
        let change = leases.name_changes(DIR, b"a");
        leases.name_changed(change, DIR, b"a", Some(None));
        found(leases, before);
        assert_eq!(leases.name(DIR, b"a"), None);
        assert_eq!(leases.kept().1, 0);
    });
}

#[test]
fn names_of_a_new_directory_are_known_to_be_absent() {
    with(|_, leases| {
        leases.learn_empty(leases.ticket(), &entry(DIR));
        assert_eq!(leases.name(DIR, b"x"), Some(None));
        let too_long = [b'x'; NAME_BYTES + 1];
        assert_eq!((leases.name(DIR, &too_long[1..]), leases.name(DIR, &too_long)), (Some(None), None));
        let change = leases.name_changes(DIR, b"x");
        assert_eq!(leases.name(DIR, b"x"), None);
        leases.name_changed(change, DIR, b"x", None);
        assert_eq!((leases.name(DIR, b"x"), leases.name(DIR, b"y")), (None, Some(None)));
        leases.recalled(&[DIR], 1);
        assert_eq!(leases.name(DIR, b"y"), None);
    });
}

#[test]
fn nothing_is_kept_when_the_mdt_has_not_been_heard_for_too_long() {
    with(|sim, leases| {
        let asked = leases.ticket();
        found(leases, asked);
        sim.run_for(LEASE_CLIENT_TERM);
        let name_for = leases.name_for(DIR, b"a", Some(FILE));
        assert_eq!((leases.entry(FILE), name_for), (None, Duration::ZERO));
        leases.heard(leases.env.now());
        found(leases, asked);
        assert_eq!(leases.entry(FILE), None, "it was asked before");
    });
}

#[test]
fn what_nobody_wants_is_given_back() {
    with(|sim, leases| {
        found(leases, leases.ticket());
        let end = leases.env.now() + limits::CACHE_IDLE;
        while leases.env.now() < end {
            sim.run_for(Duration::from_secs(1));
            leases.heard(leases.env.now());
        }
        leases.give_up_idle();
        let question = leases.question().expect("leases are to be returned");
        assert_eq!(question.returned, [DIR, FILE]);
        assert_eq!(leases.question(), None);
    });
}

#[test]
fn where_memory_is_short_fewer_are_kept() {
    with(|_, leases| {
        let learn = |from: u64| {
            (from..from + 100).for_each(|low| leases.learn(leases.ticket(), &entry(Fid { high: 1, low })));
        };
        learn(0);
        leases.keep_within(40 * limits::CACHED_INODE_BYTES);
        assert_eq!(leases.kept().0, 40);
        assert_eq!(leases.question().map(|question| question.returned.len()), Some(60));
        learn(100);
        assert_eq!(leases.kept().0, 40);
        leases.keep_within(u64::MAX);
        learn(200);
        assert_eq!(leases.kept().0, 140);
    });
}

#[test]
fn the_table_is_bounded() {
    with(|_, leases| {
        for low in 0..limits::CACHED_INODES as u64 + 10 {
            leases.learn(leases.ticket(), &entry(Fid { high: 1, low }));
        }
        assert_eq!(leases.kept().0, limits::CACHED_INODES as u64);
        assert_eq!(leases.question().map(|question| question.returned.len()), Some(10));
    });
}
