//! Random operations, checkpoints at every step of them, evictions and failures, against a BTreeMap.

use std::collections::BTreeMap;

use super::device::{Chance, Device};
use crate::table::{PageLocation, Table};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

struct World {
    chance: Chance,
    device: Device,
    table: Table,
    model: Rows,
    /// The last durable checkpoint: its root and what the table held.
    durable: Option<(PageLocation, Rows)>,
    /// What the running checkpoint must hold, and its root when that is written.
    running: Option<(Rows, Option<PageLocation>)>,
    keys: u64,
    largest_value: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut chance = Chance(seed);
        let keys = [20, 500, 5_000, 100_000][chance.below(4) as usize];
        let largest_value = [10, 100, 400, 5_000][chance.below(4) as usize];
        let (device, table, model) = (Device::default(), Table::empty(), Rows::new());
        Self { chance, device, table, model, durable: None, running: None, keys, largest_value }
    }

    fn key(&mut self) -> Vec<u8> {
        let number = self.chance.below(self.keys);
        match number % 5 {
            0 => number.to_be_bytes().to_vec(),
            1 => format!("dir/{}/{}", number % 7, number).into_bytes(),
            2 => [&[0x20; 16], &number.to_be_bytes()[..]].concat(),
            3 => vec![number as u8; 1 + (number / 5 % 64) as usize],
            _ => [&[1], &(number / 50).to_be_bytes()[..], &number.to_be_bytes()[..]].concat(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let length = if self.chance.one_in(2_000) { 150_000 } else { self.largest_value };
        let length = self.chance.below(length) as usize;
        self.chance.bytes(length)
    }

    fn put(&mut self) {
        let (key, value) = (self.key(), self.value());
        let old = self.device.with(&mut self.table, |table| table.put(&key, &value));
        assert_eq!(old.map(|old| old.to_vec()), self.model.insert(key, value));
    }

    fn delete(&mut self, key: Vec<u8>) {
        let old = self.device.with(&mut self.table, |table| table.delete(&key));
        assert_eq!(old.map(|old| old.to_vec()), self.model.remove(&key));
    }

    fn delete_range(&mut self) {
        let from = self.key();
        let keys: Vec<_> = self.model.range(from..).take(300).map(|(key, _)| key.clone()).collect();
        keys.into_iter().for_each(|key| self.delete(key));
    }

    fn look(&mut self) {
        let key = self.key();
        let Self { device, table, model, .. } = self;
        let found = device.with(table, |table| table.get(&key).map(|value| value.map(<[u8]>::to_vec)));
        assert_eq!(found.as_ref(), model.get(&key));
        let row = |row: crate::table::Row<'_>| (row.key.to_vec(), row.value.to_vec());
        let next = device.with(table, |table| Ok(table.next_at_or_after(&key)?.map(row)));
        assert_eq!(next.as_ref().map(|(key, value)| (key, value)), model.range(key.clone()..).next());
        let before = device.with(table, |table| Ok(table.last_before(&key)?.map(row)));
        assert_eq!(before.as_ref().map(|(key, value)| (key, value)), model.range(..key).next_back());
    }

    fn scan(&mut self) {
        let (from, to) = (self.key(), self.key());
        for missing in self.table.missing_in(&from, &to, usize::MAX) {
            self.device.load(&mut self.table, missing);
        }
        assert!(self.table.missing_in(&from, &to, usize::MAX).is_empty());
        let rows = self.table.range(&from, &to).map(|row| row.map(|row| (row.key.to_vec(), row.value.to_vec())));
        let rows: Vec<_> = rows.collect::<Result<_, _>>().expect("what missing_in names is enough");
        let model = if from < to { self.model.range(from..to).collect() } else { vec![] };
        assert!(rows.iter().map(|(key, value)| (key, value)).eq(model));
    }

    fn step_checkpoint(&mut self) {
        let Some((rows, root)) = &mut self.running else {
            self.table.begin_checkpoint();
            self.running = Some((self.model.clone(), None));
            return;
        };
        if self.chance.one_in(40) {
            self.table.abandon_checkpoint();
            self.running = None;
            return;
        }
        if root.is_none() {
            *root = self.device.write_pages(&mut self.table, 1 + self.chance.below(20) as usize);
            return;
        }
        let Some((rows, Some(root))) = Some((std::mem::take(rows), *root)) else { unreachable!() };
        assert_eq!(self.device.all_rows(&mut self.device.open(&root)), rows, "the new checkpoint is exact");
        self.device.finish(&mut self.table);
        self.durable = Some((root, rows));
        self.running = None;
    }

    /// The last durable checkpoint can be read whole, whatever happened since.
    fn check_durable(&mut self) {
        if let Some((root, rows)) = &self.durable {
            assert_eq!(&self.device.all_rows(&mut self.device.open(root)), rows);
        }
    }

    /// Continues from the last durable checkpoint, as after a crash.
    fn crash(&mut self) {
        let Some((root, rows)) = self.durable.clone() else {
            return;
        };
        self.table = self.device.open(&root);
        let live = |(location, (id, _)): (&PageLocation, &(crate::table::PageId, bytes::Bytes))| {
            self.table.is_live(*id, location).then_some(*location)
        };
        let live: Vec<PageLocation> = self.device.pages.iter().filter_map(live).collect();
        self.device.pages.retain(|location, _| live.contains(location));
        (self.model, self.running) = (rows, None);
    }

    fn relocate_some(&mut self) {
        let (start, n) = (self.chance.below(self.device.pages.len().max(1) as u64) as usize, 5);
        let pages: Vec<_> = self.device.pages.iter().skip(start).take(n).map(|(at, (id, _))| (*id, *at)).collect();
        for (id, location) in pages {
            self.device.with(&mut self.table, |table| table.relocate(id, &location));
        }
    }

    fn step(&mut self, growing: bool) {
        match self.chance.below(1000) {
            0..3 => self.delete_range(),
            3..5 => self.check_durable(),
            5 => self.crash(),
            6..20 => self.relocate_some(),
            20..30 => drop(self.table.evict(self.table.resident_bytes() / 2)),
            30..130 => self.step_checkpoint(),
            130..200 => self.look(),
            200..210 => self.scan(),
            210..500 if growing => self.put(),
            210..500 => {
                let key = self.key();
                self.delete(key);
            }
            500..800 => self.put(),
            _ => {
                let key = self.key();
                self.delete(key);
            }
        }
    }
}

#[test]
fn a_table_is_a_map_through_checkpoints_crashes_and_evictions() {
    for seed in 0..60 {
        println!("seed {seed}");
        let mut world = World::new(seed);
        for step in 0..3_000 {
            world.step(step / 700 % 2 == 0);
        }
        assert_eq!(world.device.all_rows(&mut world.table), world.model, "seed {seed}");
        world.table.abandon_checkpoint();
        world.device.checkpoint(&mut world.table);
        assert_eq!(world.device.all_rows(&mut world.table), world.model, "seed {seed}");
        world.table.evict(0);
        assert_eq!((world.table.resident_bytes(), world.table.dirty_bytes()), (0, 0), "seed {seed}");
    }
}
