//! A model of the table's users: a kernel with two pages, programs that store through a mapping, and programs that
//! write past it. Steps run in random orders.

use std::{collections::BTreeMap, ops::Range};

use super::table::{Kind, Table, Turn};

const PAGE: usize = 4;
const CELLS: usize = 2 * PAGE;
/// Each cell belongs to one program: these are stored to through the mapping, the others are written. The second write
/// crosses the page border.
const STORED: [usize; 3] = [0, 2, 5];
const WRITES: [Range<usize>; 3] = [1..2, 3..5, 6..7];

#[derive(Clone, Debug, PartialEq, Eq)]
enum Page {
    Absent,
    /// Being read; locked.
    Reading,
    There {
        cells: Vec<u32>,
        dirty: bool,
    },
    /// Being written back. `drops`: it is dropped afterwards.
    Writing {
        cells: Vec<u32>,
        drops: bool,
    },
}

/// The state of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Write {
    Idle,
    /// The kernel has dropped the pages, and is about to send the request.
    Invalidated,
    Asked(Turn),
    /// Applied; these pages still have to be dropped.
    Dropping(Turn, Vec<usize>, u64),
}

struct World {
    table: Table,
    server: Vec<u32>,
    pages: Vec<Page>,
    /// Reads of pages, and their replies once the bytes were read.
    reads: BTreeMap<usize, (Turn, Option<Vec<u32>>)>,
    backs: BTreeMap<usize, Turn>,
    writes: Vec<Write>,
    /// The value that each write writes.
    values: Vec<u32>,
    /// The values that programs have stored, and in `written` those of writes that had a reply.
    stored: Vec<u32>,
    written: Vec<u32>,
    next: u32,
    dice: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            table: Table::new(PAGE as u64),
            server: vec![0; CELLS],
            pages: vec![Page::Absent; 2],
            reads: BTreeMap::new(),
            backs: BTreeMap::new(),
            writes: vec![Write::Idle; WRITES.len()],
            values: vec![0; WRITES.len()],
            stored: vec![0; CELLS],
            written: vec![0; CELLS],
            next: 0,
            dice: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        (self.dice % bound as u64) as usize
    }

    fn step(&mut self, begins: bool) {
        match self.below(6) {
            0 if begins => self.touch(),
            1 => self.read(),
            2 => self.flush(begins),
            3 => self.write_back(),
            _ => self.write(begins),
        }
    }

    fn bytes(page: usize) -> Range<u64> {
        (page * PAGE) as u64..((page + 1) * PAGE) as u64
    }

    /// A program loads from and stores to the mapping.
    fn touch(&mut self) {
        let cell = STORED[self.below(STORED.len())];
        let page = cell / PAGE;
        match &mut self.pages[page] {
            Page::Absent => {
                let turn = self.table.begin(1, Kind::PageRead, &Self::bytes(page));
                self.reads.insert(page, (turn, None));
                self.pages[page] = Page::Reading;
            }
            Page::There { cells, dirty } => {
                for at in page * PAGE..(page + 1) * PAGE {
                    let (is, least) = (cells[at % PAGE], self.written[at].max(self.stored[at]));
                    assert!(is >= least, "cell {at} is {is} in the mapping, want {least}");
                }
                self.next += 1;
                (cells[cell % PAGE], self.stored[cell], *dirty) = (self.next, self.next, true);
            }
            Page::Reading | Page::Writing { .. } => {}
        }
    }

    /// Continues a read of a page.
    fn read(&mut self) {
        let page = self.below(2);
        match self.reads.get_mut(&page) {
            Some((turn, answer @ None)) if !self.table.is_blocked(*turn) => {
                self.table.read(*turn);
                *answer = Some(self.server[page * PAGE..(page + 1) * PAGE].to_vec());
                let turn = *turn;
                self.table.end(turn);
            }
            Some((_, Some(cells))) => {
                self.pages[page] = Page::There { cells: cells.clone(), dirty: false };
                self.reads.remove(&page);
            }
            _ => {}
        }
    }

    /// The kernel begins to write a page back.
    fn flush(&mut self, keeps: bool) {
        let page = self.below(2);
        self.begin_back(page, !keeps);
    }

    fn begin_back(&mut self, page: usize, drops: bool) {
        if let Page::There { cells, dirty: true } = &self.pages[page] {
            let turn = self.table.begin(1, Kind::PageWrite, &Self::bytes(page));
            self.backs.insert(page, turn);
            self.pages[page] = Page::Writing { cells: cells.clone(), drops };
        }
    }

    fn write_back(&mut self) {
        let page = self.below(2);
        let Some(turn) = self.backs.get(&page).copied().filter(|turn| !self.table.is_blocked(*turn)) else { return };
        let Page::Writing { cells, drops } = self.pages[page].clone() else { unreachable!("it is written back") };
        for part in self.table.own_parts(1, &Self::bytes(page)) {
            for at in part {
                self.server[at as usize] = cells[at as usize % PAGE];
            }
        }
        self.table.end(turn);
        self.backs.remove(&page);
        self.pages[page] = if drops { Page::Absent } else { Page::There { cells, dirty: false } };
    }

    /// Drops a page, unless a read or write-back of it is in flight. True: the page is absent now.
    fn drop_page(&mut self, page: usize) -> bool {
        match &self.pages[page] {
            Page::Absent => return true,
            Page::There { dirty: false, .. } => self.pages[page] = Page::Absent,
            Page::There { .. } => self.begin_back(page, true),
            Page::Reading | Page::Writing { .. } => {}
        }
        self.pages[page] == Page::Absent
    }

    /// Continues a write.
    fn write(&mut self, begins: bool) {
        let which = self.below(WRITES.len());
        let cells = WRITES[which].clone();
        let bytes = cells.start as u64..cells.end as u64;
        let pages = cells.start / PAGE..(cells.end - 1) / PAGE + 1;
        self.writes[which] = match self.writes[which].clone() {
            Write::Idle if begins && pages.clone().all(|page| self.drop_page(page)) => Write::Invalidated,
            Write::Invalidated => Write::Asked(self.table.begin(1, Kind::Change, &bytes)),
            Write::Asked(turn) if !self.table.is_blocked(turn) => {
                self.next += 1;
                self.values[which] = self.next;
                self.server[cells].fill(self.next);
                if self.table.applied(turn, bytes.clone(), &bytes) {
                    Write::Dropping(turn, pages.collect(), self.table.turn(1).number)
                } else {
                    self.answered(which)
                }
            }
            Write::Dropping(turn, mut left, number) => {
                left.retain(|page| !self.drop_page(*page));
                if left.is_empty() {
                    self.table.dropped(turn, number);
                    self.answered(which)
                } else {
                    Write::Dropping(turn, left, number)
                }
            }
            other => other,
        };
    }

    fn answered(&mut self, which: usize) -> Write {
        self.written[WRITES[which].clone()].fill(self.values[which]);
        Write::Idle
    }

    fn is_quiet(&self) -> bool {
        let pages = self.pages.iter().all(|page| matches!(page, Page::Absent | Page::There { dirty: false, .. }));
        pages && self.writes.iter().all(|write| matches!(write, Write::Idle | Write::Invalidated))
    }
}

#[test]
fn no_store_and_no_write_is_lost_and_mappings_show_what_was_written() {
    for seed in 0..400 {
        let mut world = World::new(seed);
        for _ in 0..400 {
            world.step(true);
        }
        let mut steps = 0;
        while !world.is_quiet() {
            world.step(false);
            steps += 1;
            assert!(steps < 10_000, "seed {seed}: somebody waits for ever");
        }
        for at in 0..CELLS {
            let want = if STORED.contains(&at) { world.stored[at] } else { world.written[at] };
            if STORED.contains(&at) || WRITES.iter().any(|cells| cells.contains(&at)) {
                assert_eq!(world.server[at], want, "seed {seed}: cell {at} is lost");
            }
        }
    }
}
