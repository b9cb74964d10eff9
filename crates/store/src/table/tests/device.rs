//! A device in memory for pages, a small source of randomness, and a table that reads the pages it misses.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_proto::crc::crc64;

use crate::table::{MissingPage, PageId, PageLocation, Table};

/// splitmix64.
pub struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

/// Pages written, by location.
#[derive(Default)]
pub struct Device {
    pub pages: BTreeMap<PageLocation, (PageId, Bytes)>,
    next: u64,
}

impl Device {
    pub fn write(&mut self, id: PageId, bytes: Bytes) -> PageLocation {
        self.next += 1;
        let location = PageLocation {
            slab: (self.next / 10) as u32,
            epoch: self.next / 7,
            offset: (self.next % 10) as u32 * 4096,
            bytes: bytes.len() as u32,
            sum: crc64(&bytes),
        };
        self.pages.insert(location, (id, bytes));
        location
    }

    pub fn load(&self, table: &mut Table, missing: MissingPage) {
        let (id, bytes) = self.pages.get(&missing.location).expect("a page the table refers to was freed");
        assert_eq!(*id, missing.page);
        assert!(table.install(missing.page, &missing.location, bytes).unwrap());
    }

    /// Runs `operation` until no page is missing.
    pub fn with<R>(&self, table: &mut Table, mut operation: impl FnMut(&mut Table) -> Result<R, MissingPage>) -> R {
        loop {
            match operation(table) {
                Ok(result) => return result,
                Err(missing) => self.load(table, missing),
            }
        }
    }

    pub fn open(&self, root: &PageLocation) -> Table {
        let mut table = Table::from_root(&self.pages[root].1, *root).unwrap();
        table.needs().into_iter().for_each(|missing| self.load(&mut table, missing));
        table
    }

    pub fn all_rows(&self, table: &mut Table) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.with(table, |table| {
            table.range(b"", &[0xff; 64]).map(|row| row.map(|row| (row.key.to_vec(), row.value.to_vec()))).collect()
        })
    }

    /// Writes the pages that are handed out. Returns the root's location, once it is written.
    pub fn write_pages(&mut self, table: &mut Table, at_most: usize) -> Option<PageLocation> {
        let pages: Vec<_> = std::iter::from_fn(|| table.next_page()).take(at_most).collect();
        let mut root = None;
        for (id, bytes) in pages {
            let location = self.write(id, bytes);
            table.page_written(id, location);
            root = (id == PageId::ROOT).then_some(location);
        }
        root
    }

    pub fn finish(&mut self, table: &mut Table) {
        for freed in table.finish_checkpoint() {
            assert!(!table.is_live(PageId::ROOT, &freed));
            self.pages.remove(&freed).expect("a freed page was written, and is freed once");
        }
    }

    /// A whole checkpoint; returns the root.
    pub fn checkpoint(&mut self, table: &mut Table) -> PageLocation {
        table.begin_checkpoint();
        let root = loop {
            if let Some(root) = self.write_pages(table, usize::MAX) {
                break root;
            }
        };
        self.finish(table);
        root
    }
}
