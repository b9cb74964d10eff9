//! Random sequences of delayed operations against a list of them.

use super::{super::*, fid};
use crate::testing::Dice;

const NAMES: [&[u8]; 5] = [b"a", b"b", b"c", b".", b".."];

/// What the list knows of one operation.
#[derive(Clone, Debug)]
enum Listed {
    Entry(OpNumber, EntryOp),
    SetAttr(OpNumber, Fid),
    Close(OpNumber),
}

impl Listed {
    fn is_until(&self, mark: OpNumber) -> bool {
        let (Self::Entry(number, _) | Self::SetAttr(number, _) | Self::Close(number)) = self;
        *number <= mark
    }

    fn is_in(&self, scope: Scope<'_>) -> bool {
        match (self, scope) {
            (Self::Close(_), scope) => scope == Scope::Closes,
            (Self::SetAttr(..), Scope::All | Scope::Inode(_) | Scope::SetAttrs) => true,
            (Self::SetAttr(_, file), Scope::SetAttr(of)) => *file == of,
            (Self::Entry(..), Scope::All | Scope::AllEntries) => true,
            (Self::Entry(_, op), Scope::Inode(of) | Scope::Entries(of)) => [op.directory, op.fid].contains(&of),
            (Self::Entry(_, op), Scope::Entry(directory, name)) => {
                let is_named = name.starts_with(b".") || op.name == name;
                op.fid == directory || (op.directory == directory && is_named)
            }
            _ => false,
        }
    }
}

/// A queue and the list of what is in it.
#[derive(Default)]
struct Both {
    queue: DelayedQueue,
    list: Vec<Listed>,
    marks: Vec<OpNumber>,
}

impl Both {
    fn step(&mut self, dice: &mut Dice) {
        match dice.below(8) {
            0..3 => {
                let name = Bytes::from_static(NAMES[dice.below(3) as usize]);
                let op = EntryOp { directory: some_fid(dice), name, fid: some_fid(dice) };
                self.list.push(Listed::Entry(self.queue.add_entry(op.clone()), op));
            }
            3 => {
                let file = some_fid(dice);
                if !self.list.iter().any(|op| matches!(op, Listed::SetAttr(_, of) if *of == file)) {
                    self.queue.add_set_attr(file);
                    self.list.push(Listed::SetAttr(self.queue.mark(), file));
                }
            }
            4 => self.list.push(Listed::Close(self.queue.add_close())),
            5 => self.marks.push(self.queue.mark()),
            _ if self.list.is_empty() => {}
            _ => match self.list.remove(dice.below(self.list.len() as u64) as usize) {
                Listed::Entry(number, _) => self.queue.end_entry(number),
                Listed::SetAttr(_, file) => self.queue.end_set_attr(file),
                Listed::Close(number) => self.queue.end_close(number),
            },
        }
    }

    fn compare(&self, dice: &mut Dice, seed: u64) {
        let (file, name) = (some_fid(dice), NAMES[dice.below(5) as usize]);
        let scopes = [
            Scope::All,
            Scope::Inode(file),
            Scope::AllEntries,
            Scope::Entries(file),
            Scope::Entry(file, name),
            Scope::SetAttrs,
            Scope::SetAttr(file),
            Scope::Closes,
        ];
        let mark = match self.marks.len() as u64 {
            0 => OpNumber::default(),
            many => self.marks[dice.below(many) as usize],
        };
        for scope in scopes {
            let (queue, list) = (&self.queue, &self.list);
            assert_eq!(queue.has(scope), list.iter().any(|op| op.is_in(scope)), "seed {seed}: {scope:?}");
            let until = list.iter().filter(|op| op.is_until(mark) && op.is_in(scope));
            assert_eq!(
                queue.has_until(scope, mark),
                until.clone().next().is_some(),
                "seed {seed}: {scope:?}, {mark:?}"
            );
            let mut files: Vec<Fid> = until
                .filter_map(|op| match op {
                    Listed::SetAttr(_, file) => Some(*file),
                    _ => None,
                })
                .collect();
            files.sort();
            assert_eq!(queue.set_attrs_until(scope, mark), files, "seed {seed}: {scope:?}, {mark:?}");
        }
        let entries = || {
            self.list.iter().filter_map(|op| match op {
                Listed::Entry(_, op) => Some(op),
                _ => None,
            })
        };
        assert!(self.queue.entries().eq(entries()), "seed {seed}: entries are listed in their order");
        let inodes: BTreeSet<Fid> = entries().flat_map(|op| [op.fid, op.directory]).collect();
        assert_eq!(self.queue.inodes(), inodes, "seed {seed}");
        let has_entry = entries().any(|op| (op.directory, &op.name[..]) == (file, name));
        assert_eq!(self.queue.has_entry(file, name), has_entry, "seed {seed}");
    }
}

fn some_fid(dice: &mut Dice) -> Fid {
    fid(1 + dice.below(6))
}

#[test]
fn the_queue_has_what_a_list_of_all_operations_that_have_not_ended_has() {
    for seed in 0..150 {
        let (mut dice, mut both) = (Dice::new(seed), Both::default());
        for _ in 0..80 {
            both.step(&mut dice);
            both.compare(&mut dice, seed);
        }
    }
}

#[test]
fn no_two_operations_have_one_number_and_each_is_higher_than_all_before() {
    for seed in 0..50 {
        let (mut dice, mut queue) = (Dice::new(seed), DelayedQueue::default());
        let mut last = queue.mark();
        for low in 0..100 {
            match dice.below(3) {
                0 => drop(queue.add_entry(EntryOp { directory: fid(1), name: Bytes::new(), fid: fid(low) })),
                1 => queue.add_set_attr(fid(low)),
                _ => drop(queue.add_close()),
            }
            assert!(queue.mark() > last, "seed {seed}");
            last = queue.mark();
            // What ends gives no number back.
            if dice.one_in(2) {
                queue.end_entry(last);
                queue.end_set_attr(fid(low));
                queue.end_close(last);
                assert_eq!(queue.mark(), last, "seed {seed}");
            }
        }
    }
}
