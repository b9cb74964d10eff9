//! Directories whose names are leased for changes.

use super::*;

const FLAGS: u32 = lease_flags::INODE | lease_flags::NAMES | lease_flags::ALONE;

fn file(number: u64) -> Attr {
    attr(Fid { high: 1, low: number }, mode::S_IFREG | 0o644, 1)
}

fn dir(nlink: u32) -> Attr {
    attr(DIR, mode::S_IFDIR | 0o755, nlink)
}

fn name(number: u64) -> Vec<u8> {
    format!("f{number}").into_bytes()
}

/// A directory that is ours to change.
fn ours() -> LeaseTable {
    let mut table = heard_at_first();
    let asked = table.ticket();
    table.learn_empty(asked, &entry_of(&dir(2)));
    table.learn_changes(asked, FLAGS, Fid::ROOT, Some(DIR));
    table
}

fn make(table: &mut LeaseTable, number: u64, nlink: u32) -> Ticket {
    let (dir, file) = (dir(nlink), file(number));
    table.answer(&EntryChange { dir: &dir, name: &name(number), fid: file.fid, made: Some(&file) })
}

#[test]
fn a_directory_with_more_names_than_are_kept_is_given_up_when_its_changes_have_come_to_pass() {
    let mut table = ours();
    let mut last = None;
    for number in 0..=limits::CACHED_NAMES as u64 {
        let begun = table.step(Time(0), |table| make(table, number, 2)).0;
        if let Some((before, begun)) = last.replace((number, begun)) {
            table.entry_applied(begun, (DIR, &name(before)), None, Transno(before + 1));
        }
    }
    assert_eq!(table.answers_for(DIR), None, "no more are answered");
    let (number, begun) = last.expect("some were made");
    table.step(Time(0), |table| table.entry_applied(begun, (DIR, &name(number)), None, Transno(number + 1)));
    assert_eq!(table.kept().1, 0);
    assert!(table.question(false).is_some_and(|question| question.returned.contains(&DIR)));
}

#[test]
fn names_that_were_made_and_taken_away_are_not_kept() {
    let mut table = ours();
    for number in 0..100 {
        let begun = make(&mut table, number, 2);
        table.entry_applied(begun, (DIR, &name(number)), None, Transno(2 * number + 1));
        let told = EntryChange { dir: &dir(2), name: &name(number), fid: file(number).fid, made: None };
        let begun = table.answer(&told);
        assert_eq!(table.name(DIR, &name(number)), Some(None));
        table.entry_applied(begun, (DIR, &name(number)), None, Transno(2 * number + 2));
        assert_eq!(table.name(DIR, &name(number)), Some(None), "all names are known");
    }
    assert_eq!(table.kept().1, 0);
}

#[test]
fn the_directory_is_as_it_was_told_until_nothing_is_under_way() {
    let mut table = ours();
    let (one, two) = (make(&mut table, 1, 3), make(&mut table, 2, 4));
    let before = table.ticket();
    // The second came first: the directory without the first.
    let seen = dir(3);
    table.entry_applied(two, (DIR, &name(2)), Some(&seen), Transno(5));
    table.learn(before, &entry_of(&seen));
    assert_eq!(table.entry(DIR).expect("it is kept").attr.nlink, 4);
    let seen = dir(4);
    table.entry_applied(one, (DIR, &name(1)), Some(&seen), Transno(6));
    assert_eq!(table.entry(DIR).expect("it is kept").attr, seen);
}

/// The MDT goes on to count it: a client that forgets it reports that.
#[test]
fn what_is_forgotten_is_given_back_also_where_the_mdt_did_not_hear_it_at_first() {
    let mut table = ours();
    let question = table.at(LEASE_CLIENT_TERM + SECOND).question(false).expect("it is to be given back");
    assert_eq!(question.returned, [DIR]);
    table.return_later(question.returned);
    table.heard(table.now);
    assert_eq!(table.question(false).map(|question| question.returned), Some(vec![DIR]));
    assert_eq!(table.question(false), None);
}

#[test]
fn while_its_attributes_change_nothing_is_answered_and_then_as_before() {
    let mut table = ours();
    let asked = table.ticket();
    let begun = make(&mut table, 1, 2);
    table.learn_changes(asked, lease_flags::ALONE, DIR, Some(file(1).fid));
    table.entry_applied(begun, (DIR, &name(1)), None, Transno(1));
    table.pause_answering(DIR);
    table.learn_changes(table.ticket(), lease_flags::PARENT_ENTRIES_WRITE, DIR, None);
    assert_eq!(table.answers_for(DIR), None, "nor if a reply to something else allows it");
    table.touch(DIR);
    table.resume_answering(DIR);
    assert_eq!(table.answers_for(DIR), None, "what it is like is not known");
    table.learn(table.ticket(), &entry_of(&attr(DIR, mode::S_IFDIR | 0o700, 2)));
    assert_eq!(table.answers_for(DIR).map(|dir| dir.mode), Some(mode::S_IFDIR | 0o700));
    assert!(table.alone(DIR, &name(1)).is_some(), "nobody else has seen its names");
}

#[test]
fn a_change_of_who_knows_what_pauses_all_and_one_that_is_abandoned_ends_it() {
    let mut table = ours();
    let asked = table.ticket();
    let begun = make(&mut table, 1, 2);
    table.learn_changes(asked, lease_flags::ALONE, DIR, Some(file(1).fid));
    table.entry_applied(begun, (DIR, &name(1)), None, Transno(1));
    table.learn_changes(table.ticket(), lease_flags::PARENT_ENTRIES_WRITE, DIR, None);
    let before = table.answers_for(DIR);
    assert!(before.is_some());
    table.pause_answering_all();
    table.pause_answering_all();
    table.resume_answering_all(true);
    assert_eq!(table.answers_for(DIR), None, "the other is under way");
    table.resume_answering_all(true);
    assert_eq!(table.answers_for(DIR), before);
    table.pause_answering_all();
    table.resume_answering_all(false);
    assert_eq!(table.answers_for(DIR), None, "it may be made yet");
    table.learn_changes(table.ticket(), lease_flags::PARENT_ENTRIES_WRITE, DIR, None);
    assert_eq!(table.answers_for(DIR).is_some(), before.is_some(), "the MDT allows it anew");
}

#[test]
fn another_link_by_somebody_else_is_not_overlooked() {
    let mut table = ours();
    let asked = table.ticket();
    let begun = make(&mut table, 1, 2);
    table.learn_changes(asked, lease_flags::ALONE, DIR, Some(file(1).fid));
    table.entry_applied(begun, (DIR, &name(1)), None, Transno(1));
    let lone = SoleLease { fid: file(1).fid, mode: file(1).mode, nlink: 1, uid: 0, commits: false };
    assert_eq!(table.alone(DIR, &name(1)), Some(lone));
    table.stop_answering(DIR);
    table.learn_changes(table.ticket(), lease_flags::PARENT_ENTRIES_WRITE, DIR, None);
    assert_eq!(table.alone(DIR, &name(1)), None, "somebody may have seen it since");
}
