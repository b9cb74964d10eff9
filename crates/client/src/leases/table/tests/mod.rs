//! What is cached under leases, and until when.

mod entries;
mod pairs;
mod random;
mod world;

use forebay_proto::{
    limits::NAME_BYTES,
    message::{AwaitRecalls, attr_flags},
};

use super::*;
use crate::mode;

const DIR: Fid = Fid { high: 0, low: 7 };
const FILE: Fid = Fid { high: 0, low: 8 };
const SECOND: Duration = Duration::from_secs(1);
const BOTH: u32 = lease_flags::INODE | lease_flags::PARENT;

/// Attributes of an inode, of which only its number and what kind it is counts.
fn attr(fid: Fid, mode: u32, nlink: u32) -> Attr {
    let (truncate_epoch, attr_epoch, flags, rdev, size) = (0, 0, 0, 0, 0);
    let (uid, gid, atime_ns, mtime_ns, ctime_ns, btime_ns) = (0, 0, 0, 0, 0, 0);
    Attr {
        fid,
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

fn entry(fid: Fid) -> EntryReply {
    EntryReply { leases: BOTH, ..entry_of(&attr(fid, mode::S_IFREG | 0o644, 1)) }
}

/// A table whose MDT replied at its beginning.
fn heard_at_first() -> LeaseTable {
    let mut table = LeaseTable::default();
    table.heard(Time(0));
    table
}

impl LeaseTable {
    /// The next calls are made at this time.
    fn at(&mut self, since_start: Duration) -> &mut Self {
        self.now = Time(0) + since_start;
        self
    }

    /// What a lookup of `a` in `DIR` brought that was sent at `asked`.
    fn found(&mut self, asked: Ticket) {
        self.learn(asked, &entry(FILE));
        self.learn_name(asked, DIR, b"a", BOTH, Some(FILE));
    }

    /// The same of one that was sent now.
    fn found_now(&mut self) {
        self.found(self.ticket());
    }

    /// A step that learns of an inode.
    fn learn_one(&mut self, low: u64) {
        self.step(Time(0), |table| table.learn(table.ticket(), &entry(Fid { high: 1, low })));
    }

    /// A recall that the kernel receives at once.
    fn recalled(&mut self, fids: &[Fid], sequence: u64) {
        self.drop_recalled(fids);
        self.acknowledge(sequence);
    }
}

#[test]
fn what_was_found_is_kept_and_what_is_absent_too() {
    let mut table = heard_at_first();
    table.found_now();
    table.learn_name(table.ticket(), DIR, b"b", BOTH, None);
    assert_eq!(table.name(DIR, b"a"), Some(Some(entry(FILE))));
    assert_eq!(table.name(DIR, b"b"), Some(None));
    assert_eq!(table.name(DIR, b"c"), None);
    assert!(table.attributes_for(&entry(FILE).attr) > Duration::ZERO);
    assert!(table.name_for(DIR, b"a", Some(FILE)) > Duration::ZERO);
    assert!(table.name_for(DIR, b"b", None) > Duration::ZERO);
    assert_eq!(table.name_for(DIR, b"a", None), Duration::ZERO);
}

#[test]
fn a_recall_ends_it_also_for_replies_to_what_was_asked_before() {
    let mut table = heard_at_first();
    let asked = table.ticket();
    table.found(asked);
    table.recalled(&[DIR, FILE], 3);
    assert_eq!(table.name(DIR, b"a"), None);
    table.found(asked);
    assert_eq!((table.name(DIR, b"a"), table.entry(FILE)), (None, None));
    assert_eq!(table.name_for(DIR, b"a", Some(FILE)), Duration::ZERO);
    table.found_now();
    assert_eq!(table.question(false).map(|question| question.acknowledged), Some(3));
}

#[test]
fn that_the_last_lease_went_is_said_too() {
    let mut table = heard_at_first();
    table.found_now();
    table.recalled(&[DIR, FILE], 3);
    let question = table.question(false).expect("somebody waits for it");
    assert_eq!(question.acknowledged, 3);
    assert_eq!(table.question(false), Some(question.clone()), "it was not heard");
    table.answered(&question);
    assert_eq!(table.question(false), None);
}

#[test]
fn who_was_told_hears_of_the_recall_and_nobody_else() {
    let mut table = heard_at_first();
    table.found_now();
    table.drop_recalled(&[DIR]);
    assert_eq!(table.effects, Effects::default());
    table.attributes_for(&entry(FILE).attr);
    table.drop_recalled(&[FILE]);
    table.found_now();
    table.name_for(DIR, b"a", Some(FILE));
    table.lost();
    let ended = vec![Dropped::Attributes(FILE), Dropped::Names];
    assert_eq!(table.effects, Effects { ended, given_up: Vec::new() });
}

#[test]
fn a_kernel_that_took_its_answer_late_hears_of_a_recall_too() {
    let mut table = heard_at_first();
    table.found_now();
    let told = table.name_for(DIR, b"a", Some(FILE));
    table.at(SECOND).heard(Time(0) + SECOND);
    table.at(told + Duration::from_millis(1)).drop_recalled(&[DIR]);
    assert_eq!(table.effects.ended, [Dropped::Names]);
}

#[test]
fn own_changes_are_known_when_they_have_ended_and_until_then_the_mdt_is_asked() {
    let mut table = heard_at_first();
    table.found_now();
    let before = table.ticket();
    let change = table.name_changes(DIR, b"a");
    assert_eq!((table.name(DIR, b"a"), table.entry(FILE)), (None, None));
    table.found(before);
    assert_eq!(table.name(DIR, b"a"), None, "it was asked before the change");
    table.name_changed(change, DIR, b"a", Some(None));
    assert_eq!(table.name(DIR, b"a"), Some(None));
    table.found(before);
    assert_eq!(table.name(DIR, b"a"), Some(None));
}

#[test]
fn of_two_changes_of_one_name_at_a_time_nobody_knows_the_last() {
    let mut table = heard_at_first();
    table.found_now();
    let (one, two) = (table.name_changes(DIR, b"a"), table.name_changes(DIR, b"a"));
    table.name_changed(two, DIR, b"a", Some(None));
    table.name_changed(one, DIR, b"a", Some(Some(FILE)));
    assert_eq!(table.name(DIR, b"a"), None);
}

#[test]
fn a_change_without_a_lease_leaves_nothing_that_an_older_question_could_bring_back() {
    let mut table = heard_at_first();
    let before = table.ticket();
    let change = table.name_changes(DIR, b"a");
    table.name_changed(change, DIR, b"a", Some(None));
    table.found(before);
    assert_eq!(table.name(DIR, b"a"), None);
    assert_eq!(table.kept().1, 0);
}

#[test]
fn names_of_a_new_directory_are_known_to_be_absent() {
    let mut table = heard_at_first();
    table.learn_empty(table.ticket(), &entry(DIR));
    assert_eq!(table.name(DIR, b"x"), Some(None));
    let too_long = [b'x'; NAME_BYTES + 1];
    assert_eq!((table.name(DIR, &too_long[1..]), table.name(DIR, &too_long)), (Some(None), None));
    let change = table.name_changes(DIR, b"x");
    assert_eq!(table.name(DIR, b"x"), None);
    table.name_changed(change, DIR, b"x", None);
    assert_eq!((table.name(DIR, b"x"), table.name(DIR, b"y")), (None, Some(None)));
    table.recalled(&[DIR], 1);
    assert_eq!(table.name(DIR, b"y"), None);
}

#[test]
fn nothing_is_kept_when_the_mdt_has_not_been_heard_for_too_long() {
    let mut table = heard_at_first();
    let asked = table.ticket();
    table.found(asked);
    let name_for = table.at(LEASE_CLIENT_TERM).name_for(DIR, b"a", Some(FILE));
    assert_eq!((table.entry(FILE), name_for), (None, Duration::ZERO));
    table.heard(table.now);
    table.found(asked);
    assert_eq!(table.entry(FILE), None, "it was asked before");
}

#[test]
fn what_nobody_wants_is_given_back() {
    let mut table = heard_at_first();
    table.found_now();
    for seconds in 1..=limits::CACHE_IDLE.as_secs() as u32 {
        assert!(!table.give_up_idle(), "it was wanted lately");
        table.at(SECOND * seconds).heard(Time(0) + SECOND * seconds);
    }
    assert!(table.give_up_idle());
    let question = table.question(false).expect("leases are to be returned");
    assert_eq!(question.returned, [DIR, FILE]);
    assert_eq!(table.question(false), None);
}

#[test]
fn where_memory_is_short_fewer_are_kept() {
    let mut table = heard_at_first();
    let learn = |table: &mut LeaseTable, from: u64| (from..from + 100).for_each(|low| table.learn_one(low));
    learn(&mut table, 0);
    table.step(Time(0), |table| table.keep_within(40 * limits::CACHED_INODE_BYTES));
    assert_eq!(table.kept().0, 40);
    assert_eq!(table.question(false).map(|question| question.returned.len()), Some(60));
    learn(&mut table, 100);
    assert_eq!(table.kept().0, 40);
    table.keep_within(u64::MAX);
    learn(&mut table, 200);
    assert_eq!(table.kept().0, 140);
}

#[test]
fn the_table_is_bounded() {
    let mut table = heard_at_first();
    (0..limits::CACHED_INODES as u64 + 10).for_each(|low| table.learn_one(low));
    assert_eq!(table.kept().0, limits::CACHED_INODES as u64);
    assert_eq!(table.question(false).map(|question| question.returned.len()), Some(10));
}

/// MKDIR is sent; the directory is recalled, and leased again by a lookup; then the reply to MKDIR arrives.
#[test]
fn a_new_directory_that_was_recalled_before_its_reply_came_is_not_believed_to_be_empty() {
    let mut table = heard_at_first();
    let asked = table.ticket();
    table.drop_recalled(&[DIR]);
    table.learn(table.ticket(), &entry(DIR));
    table.learn_empty(asked, &entry(DIR));
    assert_eq!(table.name(DIR, b"made by another client"), None);
    let asked = table.ticket();
    table.learn_empty(asked, &entry(DIR));
    assert_eq!(table.name(DIR, b"made by another client"), Some(None), "nothing happened since that was asked");
}
