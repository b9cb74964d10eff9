//! Every ordered pair of delayed operations, on targets in every relation: what each request waits for, in which order they end,
//! and what stays when one of them is lost.

use std::collections::BTreeMap;

use forebay_env::Time;

use super::{super::*, fid};
use crate::delayed::buffered::{BufferedWrites, Sending};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Create, mkdir or symlink.
    Make,
    /// Unlink or rmdir.
    Remove,
    SetAttr,
    Write,
    Close,
}

const KINDS: [Kind; 5] = [Kind::Make, Kind::Remove, Kind::SetAttr, Kind::Write, Kind::Close];

/// An inode and the entry that leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Target {
    directory: u64,
    name: &'static str,
    inode: u64,
}

const FILE: Target = Target { directory: 1, name: "file", inode: 2 };
const NEIGHBOUR: Target = Target { directory: 1, name: "neighbour", inode: 3 };
const SUBDIRECTORY: Target = Target { directory: 1, name: "subdirectory", inode: 4 };
const CHILD: Target = Target { directory: 4, name: "child", inode: 5 };
const UNRELATED: Target = Target { directory: 6, name: "unrelated", inode: 7 };
const TARGETS: [Target; 5] = [FILE, NEIGHBOUR, SUBDIRECTORY, CHILD, UNRELATED];

/// The same file, files of one directory, parent and child, child and parent, unrelated ones.
const RELATIONS: [(Target, Target); 5] =
    [(FILE, FILE), (FILE, NEIGHBOUR), (SUBDIRECTORY, CHILD), (CHILD, SUBDIRECTORY), (FILE, UNRELATED)];

/// One delayed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Operation {
    kind: Kind,
    on: Target,
}

impl Operation {
    fn is_entry(self) -> bool {
        matches!(self.kind, Kind::Make | Kind::Remove)
    }

    /// As it is added to the queue.
    fn entry(self) -> EntryOp {
        let Target { directory, name, inode } = self.on;
        EntryOp { directory: fid(directory), name: name.into(), fid: fid(inode) }
    }
}

/// What a request asks for, in words: who waits for what follows from the tree, not from the scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    /// `sync`.
    Everything,
    /// Attributes of an inode.
    Attributes(Target),
    /// A change of names anywhere, such as a rename.
    AnyNames,
    /// A change of an inode whose attributes it does not show.
    Names(Target),
    /// A lookup of an entry in its directory.
    Lookup(Target),
    /// A lookup of a name in a directory in which nothing has that name.
    LookupOfAnother(Target),
    /// A listing of what a directory has.
    List(Target),
    AnyAttributes,
    /// A write to a file, whose time is to stay after it.
    TimeOf(Target),
    /// The space of removed files.
    Space,
}

impl Request {
    fn of(target: Target) -> [Self; 6] {
        [
            Self::Attributes(target),
            Self::Names(target),
            Self::Lookup(target),
            Self::LookupOfAnother(target),
            Self::List(target),
            Self::TimeOf(target),
        ]
    }

    fn all() -> Vec<Self> {
        let anywhere = [Self::Everything, Self::AnyNames, Self::AnyAttributes, Self::Space];
        anywhere.into_iter().chain(TARGETS.into_iter().flat_map(Self::of)).collect()
    }

    fn scope(self) -> Scope<'static> {
        match self {
            Self::Everything => Scope::All,
            Self::Attributes(on) => Scope::Inode(fid(on.inode)),
            Self::AnyNames => Scope::AllEntries,
            Self::Names(on) => Scope::Entries(fid(on.inode)),
            Self::Lookup(on) => Scope::Entry(fid(on.directory), on.name.as_bytes()),
            Self::LookupOfAnother(on) => Scope::Entry(fid(on.directory), b"another"),
            Self::List(on) => Scope::Entry(fid(on.inode), b"."),
            Self::AnyAttributes => Scope::SetAttrs,
            Self::TimeOf(on) => Scope::SetAttr(fid(on.inode)),
            Self::Space => Scope::Closes,
        }
    }

    /// Whether it is sent after `operation` was executed.
    fn waits_for(self, operation: Operation) -> bool {
        let Operation { kind, on } = operation;
        match (self, kind) {
            // Buffered writes are flushed by file, and only a request for space waits for closes.
            (_, Kind::Write) => false,
            (request, Kind::Close) => request == Self::Space,
            (Self::Everything | Self::Attributes(_) | Self::AnyAttributes, Kind::SetAttr) => true,
            (Self::TimeOf(file), Kind::SetAttr) => file == on,
            (_, Kind::SetAttr) => false,
            (Self::Everything | Self::AnyNames, _) => true,
            // The inode that it leads to, and the directory, whose times and links it changes.
            (Self::Attributes(inode) | Self::Names(inode), _) => inode == on || is_in(on, inode),
            // Without its directory there is no entry.
            (Self::Lookup(entry), _) => entry == on || is_in(entry, on),
            (Self::LookupOfAnother(entry), _) => is_in(entry, on),
            (Self::List(directory), _) => directory == on || is_in(on, directory),
            (Self::AnyAttributes | Self::TimeOf(_) | Self::Space, _) => false,
        }
    }
}

/// Of the targets only `CHILD` has another one as its directory.
fn is_in(child: Target, directory: Target) -> bool {
    (child, directory) == (CHILD, SUBDIRECTORY)
}

/// What a client has delayed: the queue, and buffered writes by file.
#[derive(Default)]
struct Delayed {
    queue: DelayedQueue,
    numbers: BTreeMap<usize, OpNumber>,
    buffered: BTreeMap<Fid, BufferedWrites<usize>>,
}

impl Delayed {
    /// The client acknowledges it.
    fn acknowledge(&mut self, at: usize, operation: Operation) {
        let file = fid(operation.on.inode);
        match operation.kind {
            Kind::Make | Kind::Remove => drop(self.numbers.insert(at, self.queue.add_entry(operation.entry()))),
            Kind::SetAttr => self.queue.add_set_attr(file),
            Kind::Close => drop(self.numbers.insert(at, self.queue.add_close())),
            Kind::Write => {
                let buffered = self.buffered.entry(file).or_insert_with(|| BufferedWrites::new(64));
                buffered.parts.insert(10 * at as u64, vec![7; 10].into(), Time(0));
                let runs = buffered.parts.take_all();
                let ranges = runs.iter().map(|run| (run.offset, run.end())).collect();
                buffered.sending.insert(at as u64, Sending { ranges, pieces: 1 });
            }
        }
    }

    /// A server has replied to it, or it is lost.
    fn end(&mut self, at: usize, operation: Operation) {
        let file = fid(operation.on.inode);
        match operation.kind {
            Kind::Make | Kind::Remove => self.queue.end_entry(self.numbers[&at]),
            Kind::SetAttr => self.queue.end_set_attr(file),
            Kind::Close => self.queue.end_close(self.numbers[&at]),
            Kind::Write => {
                let buffered = self.buffered.get_mut(&file).expect("it is buffered");
                buffered.sending.remove(&(at as u64)).expect("it is on its way");
            }
        }
    }

    fn has_writes(&self, of: Target) -> bool {
        self.buffered.get(&fid(of.inode)).is_some_and(|buffered| !buffered.is_clean())
    }
}

/// Every pair but two SETATTRs of one file: the second joins the first.
fn pairs() -> Vec<[Operation; 2]> {
    let kinds = KINDS.into_iter().flat_map(|first| KINDS.into_iter().map(move |second| (first, second)));
    let pairs = kinds.flat_map(|(first, second)| {
        RELATIONS.map(|(a, b)| [Operation { kind: first, on: a }, Operation { kind: second, on: b }])
    });
    let is_joined = |[a, b]: &[Operation; 2]| a.kind == Kind::SetAttr && a == b;
    pairs.filter(|pair| !is_joined(pair)).collect()
}

/// What every request waits for is what is in `left`, and every buffered write of a file is flushed with the file.
fn check(delayed: &Delayed, left: &[Operation], about: &str) {
    for request in Request::all() {
        let expected = left.iter().any(|operation| request.waits_for(*operation));
        assert_eq!(delayed.queue.has(request.scope()), expected, "{request:?} with {left:?} delayed, {about}");
    }
    for target in TARGETS {
        let expected = left.contains(&Operation { kind: Kind::Write, on: target });
        assert_eq!(delayed.has_writes(target), expected, "flush of {target:?} with {left:?} delayed, {about}");
    }
}

#[test]
fn a_request_waits_for_exactly_those_of_two_operations_that_it_depends_on() {
    let pairs = pairs();
    assert_eq!(pairs.len(), 5 * 5 * 5 - 1);
    for pair in pairs {
        let mut delayed = Delayed::default();
        check(&delayed, &[], "before");
        delayed.acknowledge(0, pair[0]);
        check(&delayed, &pair[..1], "one was acknowledged");
        delayed.acknowledge(1, pair[1]);
        check(&delayed, &pair, "both were acknowledged");
    }
}

#[test]
fn what_ends_first_of_two_operations_leaves_the_other_whether_it_was_executed_or_lost() {
    for pair in pairs() {
        for order in [[0, 1], [1, 0]] {
            let mut delayed = Delayed::default();
            pair.into_iter().enumerate().for_each(|(at, operation)| delayed.acknowledge(at, operation));
            let [first, second] = order;
            delayed.end(first, pair[first]);
            check(&delayed, &pair[second..=second], &format!("{first} of {pair:?} has ended"));
            delayed.end(second, pair[second]);
            check(&delayed, &[], &format!("both of {pair:?} have ended"));
        }
    }
}

#[test]
fn an_operation_that_ends_twice_takes_nothing_else_along() {
    // Its reply may come after the client gave it up as lost.
    for pair in pairs().into_iter().filter(|pair| pair.iter().all(|operation| operation.kind != Kind::Write)) {
        let mut delayed = Delayed::default();
        delayed.acknowledge(0, pair[0]);
        delayed.end(0, pair[0]);
        delayed.acknowledge(1, pair[1]);
        delayed.end(0, pair[0]);
        let is_replaced = pair[0].kind == Kind::SetAttr && pair[0] == pair[1];
        check(&delayed, if is_replaced { &[] } else { &pair[1..] }, &format!("{pair:?}, the first ended twice"));
    }
}

#[test]
fn a_flush_that_began_before_or_between_two_operations_waits_only_for_what_was_there() {
    for pair in pairs() {
        let mut delayed = Delayed::default();
        let mut marks = vec![delayed.queue.mark()];
        for (at, operation) in pair.into_iter().enumerate() {
            delayed.acknowledge(at, operation);
            marks.push(delayed.queue.mark());
        }
        for request in Request::all() {
            for (there, mark) in marks.iter().enumerate() {
                let expected = pair[..there].iter().any(|operation| request.waits_for(*operation));
                let has = delayed.queue.has_until(request.scope(), *mark);
                assert_eq!(has, expected, "{request:?} of after {there} operations of {pair:?}");
            }
        }
        // With the first one gone, a flush of before the second waits for nothing.
        delayed.end(0, pair[0]);
        for request in Request::all() {
            assert!(!delayed.queue.has_until(request.scope(), marks[1]), "{request:?}, {pair:?}");
            let expected = request.waits_for(pair[1]);
            assert_eq!(delayed.queue.has_until(request.scope(), marks[2]), expected, "{request:?}, {pair:?}");
        }
    }
}

/// Flushes `scope` as the client does, part by part: the MDT executes changes of entries in their order, and SETATTRs that were
/// asked for. Returns what has ended, in that order; `meanwhile` happens before each end.
fn flush(queue: &mut DelayedQueue, scope: Scope<'_>, mut meanwhile: impl FnMut(&mut DelayedQueue)) -> Vec<Fid> {
    let mut ended = Vec::new();
    for part in scope.parts().into_iter().flatten() {
        let mark = queue.mark();
        while queue.has_until(part, mark) {
            assert!(ended.len() < 100, "{scope:?} does not end");
            meanwhile(queue);
            let set_attrs = queue.set_attrs_until(part, mark);
            let entry = queue.entries.iter().find(|(_, op)| part.covers_entry(op));
            if let Some((number, op)) = entry.map(|(number, op)| (*number, op.fid)) {
                queue.end_entry(number);
                ended.push(op);
            } else {
                assert!(!set_attrs.is_empty(), "{part:?} waits for what nobody starts");
                set_attrs.iter().for_each(|file| queue.end_set_attr(*file));
                ended.extend(set_attrs);
            }
        }
    }
    ended
}

#[test]
fn changes_of_entries_end_in_their_order_and_set_attrs_after_them() {
    for pair in pairs().into_iter().filter(|pair| pair.iter().all(|op| op.is_entry() || op.kind == Kind::SetAttr)) {
        for request in Request::all() {
            let mut delayed = Delayed::default();
            pair.into_iter().enumerate().for_each(|(at, operation)| delayed.acknowledge(at, operation));
            let (waited_for, stay): (Vec<_>, Vec<_>) = pair.into_iter().partition(|op| request.waits_for(*op));
            let (entries, set_attrs): (Vec<_>, Vec<_>) = waited_for.into_iter().partition(|op| op.is_entry());
            let mut files: Vec<Fid> = set_attrs.iter().map(|op| fid(op.on.inode)).collect();
            files.sort();
            let expected: Vec<Fid> = entries.iter().map(|op| fid(op.on.inode)).chain(files).collect();
            let ended = flush(&mut delayed.queue, request.scope(), |_| ());
            assert_eq!(ended, expected, "{request:?} with {pair:?}");
            check(&delayed, &stay, &format!("{request:?} was flushed of {pair:?}"));
        }
    }
}

#[test]
fn a_flush_ends_however_many_operations_follow_it() {
    for request in Request::all().into_iter().filter(|request| *request != Request::Space) {
        for (one, other) in RELATIONS {
            let mut queue = DelayedQueue::default();
            queue.add_entry(Operation { kind: Kind::Make, on: one }.entry());
            queue.add_set_attr(fid(other.inode));
            let mut added = 0;
            let ended = flush(&mut queue, request.scope(), |queue| {
                added += 1;
                for on in TARGETS {
                    queue.add_entry(Operation { kind: Kind::Remove, on }.entry());
                }
                // Of other files than those that have one.
                queue.add_set_attr(fid(1000 + added));
            });
            assert!(ended.len() <= 3, "{request:?} waited for {ended:?}");
            assert!(queue.entries().len() as u64 >= 5 * added, "{request:?}: what followed stays");
        }
    }
}

#[test]
fn after_every_delayed_operation_was_lost_nobody_waits_and_numbers_still_rise() {
    for pair in pairs() {
        let mut delayed = Delayed::default();
        pair.into_iter().enumerate().for_each(|(at, operation)| delayed.acknowledge(at, operation));
        let before = delayed.queue.mark();
        // The MDT has ended the session.
        delayed.queue.set_attrs().into_iter().for_each(|file| delayed.queue.end_set_attr(file));
        for (at, operation) in pair.into_iter().enumerate().filter(|(_, operation)| operation.kind != Kind::SetAttr) {
            delayed.end(at, operation);
        }
        check(&delayed, &[], &format!("all of {pair:?} is lost"));
        assert_eq!((delayed.queue.entries().len(), delayed.queue.set_attrs()), (0, Vec::new()), "{pair:?}");
        let next = delayed.queue.add_close();
        assert!(next > before, "{pair:?}: a number is used twice");
        assert!(!delayed.queue.has_until(Scope::Closes, before), "{pair:?}: a flush of before the loss");
    }
}

#[test]
fn a_second_set_attr_of_a_file_waits_until_the_first_has_ended() {
    let mut queue = DelayedQueue::default();
    for _ in 0..3 {
        assert!(!queue.has(Scope::SetAttr(fid(2))));
        queue.add_set_attr(fid(2));
        assert!(queue.has(Scope::SetAttr(fid(2))) && !queue.has(Scope::SetAttr(fid(3))));
        assert_eq!(queue.set_attrs(), [fid(2)]);
        queue.end_set_attr(fid(2));
    }
}
