//! What a scope covers. Every pair of operations: `pairs`; random sequences: `sequences`.

mod pairs;
mod sequences;

use super::*;

fn fid(low: u64) -> Fid {
    Fid { high: 0, low }
}

fn entry(directory: u64, name: &'static str, of: u64) -> EntryOp {
    EntryOp { directory: fid(directory), name: Bytes::from_static(name.as_bytes()), fid: fid(of) }
}

/// Directory 1 has the entries `a` (directory 2) and `b` (file 3); directory 2 the entry `c` (file 4). Files 3 and 4 have SETATTRs.
fn filled() -> (DelayedQueue, [OpNumber; 3]) {
    let mut queue = DelayedQueue::default();
    let numbers = [entry(1, "a", 2), entry(1, "b", 3), entry(2, "c", 4)].map(|op| queue.add_entry(op));
    [3, 4].map(fid).into_iter().for_each(|fid| queue.add_set_attr(fid));
    (queue, numbers)
}

/// Each scope, with the entries (by number of the fixture) and the files with SETATTRs that it covers.
const COVERED: &[(Scope<'static>, &[usize], &[u64])] = &[
    (Scope::All, &[0, 1, 2], &[3, 4]),
    (Scope::AllEntries, &[0, 1, 2], &[]),
    (Scope::Inode(Fid { high: 0, low: 1 }), &[0, 1], &[3, 4]),
    (Scope::Inode(Fid { high: 0, low: 2 }), &[0, 2], &[3, 4]),
    (Scope::Inode(Fid { high: 0, low: 9 }), &[], &[3, 4]),
    (Scope::Entries(Fid { high: 0, low: 1 }), &[0, 1], &[]),
    (Scope::Entries(Fid { high: 0, low: 3 }), &[1], &[]),
    (Scope::Entries(Fid { high: 0, low: 4 }), &[2], &[]),
    (Scope::Entry(Fid { high: 0, low: 1 }, b"a"), &[0], &[]),
    (Scope::Entry(Fid { high: 0, low: 1 }, b"x"), &[], &[]),
    (Scope::Entry(Fid { high: 0, low: 1 }, b".."), &[0, 1], &[]),
    (Scope::Entry(Fid { high: 0, low: 2 }, b"x"), &[0], &[]),
    (Scope::Entry(Fid { high: 0, low: 2 }, b"c"), &[0, 2], &[]),
    (Scope::SetAttrs, &[], &[3, 4]),
    (Scope::SetAttr(Fid { high: 0, low: 3 }), &[], &[3]),
    (Scope::SetAttr(Fid { high: 0, low: 2 }), &[], &[]),
];

#[test]
fn a_scope_is_clear_when_exactly_the_operations_that_it_covers_have_ended() {
    for (scope, entries, set_attrs) in COVERED {
        let (mut queue, numbers) = filled();
        let mark = queue.mark();
        let mut left = entries.len() + set_attrs.len();
        // What it does not cover ends first, and changes nothing.
        let others = (0..numbers.len()).filter(|at| !entries.contains(at));
        others.for_each(|at| queue.end_entry(numbers[at]));
        [3, 4].iter().filter(|of| !set_attrs.contains(of)).for_each(|of| queue.end_set_attr(fid(*of)));
        for at in *entries {
            assert!(queue.has(*scope) && queue.has_until(*scope, mark), "{scope:?}, {left} left");
            queue.end_entry(numbers[*at]);
            left -= 1;
        }
        for of in *set_attrs {
            assert!(queue.has(*scope) && queue.set_attrs_until(*scope, mark).contains(&fid(*of)), "{scope:?}");
            queue.end_set_attr(fid(*of));
            left -= 1;
        }
        assert!(left == 0 && !queue.has(*scope) && !queue.has_until(*scope, mark), "{scope:?}");
    }
}

#[test]
fn a_flush_does_not_wait_for_operations_that_come_after_its_mark() {
    for (scope, ..) in COVERED {
        let mut queue = DelayedQueue::default();
        let mark = queue.mark();
        queue.add_entry(entry(1, "a", 2));
        queue.add_set_attr(fid(3));
        assert!(!queue.has_until(*scope, mark), "{scope:?}");
    }
    let (mut queue, _) = filled();
    let mark = queue.mark();
    queue.end_set_attr(fid(3));
    queue.add_set_attr(fid(3));
    assert!(!queue.has_until(Scope::SetAttr(fid(3)), mark), "that is another SETATTR of the file");
    assert_eq!(queue.set_attrs_until(Scope::SetAttrs, mark), [fid(4)]);
}

#[test]
fn the_parts_of_a_scope_cover_what_it_covers_with_set_attrs_last() {
    for (scope, entries, set_attrs) in COVERED {
        let parts: Vec<Scope<'_>> = scope.parts().into_iter().flatten().collect();
        let (queue, numbers) = filled();
        let covered = |at: &usize| parts.iter().any(|part| part.covers_entry(&queue.entries[&numbers[*at]]));
        assert_eq!((0..3).filter(covered).collect::<Vec<_>>(), *entries, "{scope:?}");
        let files = |of: &u64| parts.iter().any(|part| part.covers_set_attr(fid(*of)));
        assert_eq!([3, 4].into_iter().filter(files).collect::<Vec<_>>(), *set_attrs, "{scope:?}");
        if let [first, _] = parts[..] {
            assert!(first.has_entries() && !first.covers_set_attr(fid(3)), "{scope:?}");
        }
    }
}

#[test]
fn only_the_scope_of_closes_waits_for_a_close_and_for_nothing_else() {
    let mut queue = DelayedQueue::default();
    let number = queue.add_close();
    let mark = queue.mark();
    let later = queue.add_close();
    assert!(COVERED.iter().all(|(scope, ..)| !queue.has(*scope)));
    assert!(queue.has_until(Scope::Closes, mark));
    queue.end_close(number);
    assert!(!queue.has_until(Scope::Closes, mark) && queue.has(Scope::Closes));
    queue.end_close(later);
    assert!(!queue.has(Scope::Closes) && !filled().0.has(Scope::Closes));
}

#[test]
fn entries_are_listed_in_their_order_with_the_inodes_that_they_concern() {
    let (queue, _) = filled();
    let names: Vec<_> = queue.entries().map(|op| op.name.clone()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(queue.inodes(), [1, 2, 3, 4].map(fid).into());
    assert!(queue.has_entry(fid(1), b"b") && !queue.has_entry(fid(2), b"b"));
}

#[test]
#[should_panic = "has a SETATTR in the queue"]
fn a_file_has_one_set_attr_in_the_queue() {
    let mut queue = DelayedQueue::default();
    queue.add_set_attr(fid(1));
    queue.add_set_attr(fid(1));
}
