//! Parses a target's journal as docs/format.md describes it, for tests that damage a particular place.

use std::{fs, path::Path};

const SECTOR: usize = 4096;
const RING_START: u64 = 8192;

/// The content of a journal from its checkpoint on.
pub struct Journal {
    pub bytes: Vec<u8>,
    pub records: Vec<Record>,
    /// Device offset behind the last record.
    pub end: usize,
}

/// One record.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// Offset on the device.
    pub offset: usize,
    pub bytes: usize,
    pub is_transaction: bool,
    pub lsn: u64,
    /// Everything before this lsn was durable when the record was built.
    pub durable: u64,
}

impl Journal {
    /// Reads the journal in `path`, of a target that is not served.
    pub fn read(path: &Path) -> Self {
        let bytes = fs::read(path).expect("a journal");
        let seq = |slot: usize| number(&bytes, slot * SECTOR + 40);
        let anchor = if seq(1) > seq(0) { SECTOR } else { 0 };
        assert_eq!(&bytes[anchor + 8..anchor + 16], b"FBanchor");
        let (ring, mut lsn) = (number(&bytes, anchor + 56), number(&bytes, anchor + 72));
        let mut previous = number(&bytes, anchor + 80);
        let mut records = Vec::new();
        let end = loop {
            let offset = (RING_START + lsn % ring) as usize;
            let at = |field: usize| number(&bytes, offset + field);
            if &bytes[offset + 8..offset + 12] != b"FBjr" || at(32) != lsn || at(48) != previous {
                break offset;
            }
            let length = (at(40) & 0xffff_ffff) as usize;
            let is_transaction = bytes[offset + 14] == 1;
            records.push(Record { offset, bytes: length, is_transaction, lsn, durable: at(56) });
            (previous, lsn) = (at(0), lsn + length as u64);
        };
        Self { bytes, records, end }
    }

    /// The bytes with one bit flipped in the byte at `offset`.
    pub fn flipped(&self, offset: usize) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes[offset] ^= 0x10;
        bytes
    }

    /// The bytes with `others` at `offset`.
    pub fn with(&self, offset: usize, others: &[u8]) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes[offset..offset + others.len()].copy_from_slice(others);
        bytes
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
