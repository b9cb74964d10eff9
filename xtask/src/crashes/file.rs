//! The possible contents of one file.
//!
//! While its mount lives, a file has what was written last. After the mount's death, each block (64 KiB,
//! docs/promises.md P3) of each uncertain write is there entirely or not at all. Everything certain is there.

use std::ops::Range;

use super::{image::Image, stamp};
use crate::figures::Outcome;

/// Writes are split at multiples of this.
const BLOCK: u64 = 64 << 10;

/// A write since the last time when everything was certain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Its number.
    pub seq: u32,
    /// The range that it writes.
    pub range: Range<u64>,
    /// True if its acknowledgement means that it is durable.
    pub synced: bool,
    /// True if it must be there.
    pub certain: bool,
    /// When it was acknowledged (CLOCK_MONOTONIC, ms).
    pub acked_ms: Option<u64>,
}

/// The worker's model of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileModel {
    /// Length of one write.
    pub record: u64,
    /// True if it grows only by O_APPEND.
    pub append: bool,
    /// Its inode number, once known.
    pub ino: Option<u64>,
    /// The certain contents.
    pub base: Image,
    /// The writes since then, in order.
    pub writes: Vec<Write>,
    /// The contents while its mount lives.
    pub now: Image,
}

impl FileModel {
    /// Enters a write that is about to begin.
    pub fn begin(&mut self, write: Write) {
        self.now.write(write.range.clone(), write.seq);
        self.writes.push(write);
    }

    /// Makes everything certain.
    pub fn settle(&mut self) {
        self.base = self.now.clone();
        self.writes.clear();
    }

    /// Checks bytes that were read at `at` while the mount lives.
    pub fn check_read(&self, file: u32, at: u64, bytes: &[u8]) -> Outcome {
        // A stamp contains the file offset, so fill the bytes before `at` with a hole.
        let mut whole = vec![0; at as usize];
        whole.extend_from_slice(bytes);
        let (end, found) = (at + bytes.len() as u64, Image::of(&stamp::writes(&whole, file)?, 0));
        let (found, expected) = (found.within(at..end), self.now.within(at..end));
        if found == expected { Ok(()) } else { Err(differ(&expected, &found)) }
    }

    /// Checks what the mount's death left. Returns the new contents.
    pub fn check_left(&self, file: u32, bytes: &[u8]) -> Outcome<Image> {
        let size = bytes.len() as u64;
        self.check_size(size)?;
        let found = Image::of(&stamp::writes(bytes, file)?, size);
        let mut at = 0;
        while at < size {
            let end = (at + BLOCK).min(size);
            self.check_block(at..end, &found).map_err(|error| format!("block at {at}: {error}"))?;
            at = end;
        }
        Ok(found)
    }

    /// Checks the size that a mount's death left.
    pub fn check_size(&self, size: u64) -> Outcome {
        let certain = self.writes.iter().filter(|write| write.certain).map(|write| write.range.end);
        let least = certain.chain([self.base.size]).max().unwrap_or(0);
        let of_write = |write: &Write| {
            let within = write.range.contains(&size) && size.is_multiple_of(BLOCK);
            write.range.end == size || within
        };
        if size == least || (size > least && self.writes.iter().any(of_write)) {
            return Ok(());
        }
        Err(format!("it has {size} bytes; {least} are certain, {} were written", self.now.size))
    }

    fn check_block(&self, block: Range<u64>, found: &Image) -> Outcome {
        let seen = found.within(block.clone());
        let mut expected = self.base.clone();
        for write in &self.writes {
            let part = write.range.start.max(block.start)..write.range.end.min(block.end);
            let kept = write.certain || seen.iter().any(|(_, seq)| *seq == write.seq);
            if part.start < part.end && kept {
                expected.put(part, write.seq);
            }
        }
        let expected = expected.within(block);
        if expected == seen { Ok(()) } else { Err(differ(&expected, &seen)) }
    }
}

fn differ(expected: &[(Range<u64>, u32)], found: &[(Range<u64>, u32)]) -> String {
    let show = |runs: &[(Range<u64>, u32)]| {
        let shown: Vec<String> = runs.iter().take(8).map(|(range, seq)| format!("{range:?} of write {seq}")).collect();
        format!("{}{}", shown.join(", "), if runs.len() > 8 { ", ..." } else { "" })
    };
    format!("expected {}; found {}", show(expected), show(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: u32 = 5;

    fn write(seq: u32, range: Range<u64>, certain: bool) -> Write {
        Write { seq, range, synced: certain, certain, acked_ms: Some(0) }
    }

    fn bytes(parts: &[(Range<u64>, u32)], size: u64) -> Vec<u8> {
        let mut bytes = vec![0; size as usize];
        for (range, seq) in parts {
            stamp::fill(&mut bytes[range.start as usize..range.end as usize], FILE, *seq, range.start);
        }
        bytes
    }

    fn model() -> FileModel {
        let mut model = FileModel { record: 4096, ..FileModel::default() };
        model.begin(write(1, 0..2 * BLOCK, false));
        model.settle();
        model.begin(write(2, BLOCK - 80..BLOCK + 80, false));
        model.begin(write(3, 0..80, true));
        model.begin(write(4, 2 * BLOCK..2 * BLOCK + 800, false));
        model
    }

    #[test]
    fn blocks_of_writes_are_there_or_not_and_what_is_certain_is_there() {
        let model = model();
        let (size, base) = (2 * BLOCK, (0..2 * BLOCK, 1));
        let good = |parts: &[(Range<u64>, u32)], size| {
            let image = model.check_left(FILE, &bytes(parts, size)).expect("allowed");
            assert_eq!(image.size, size);
        };
        good(&[base.clone(), (0..80, 3)], size);
        good(&[base.clone(), (0..80, 3), (BLOCK - 80..BLOCK, 2)], size);
        good(&[base.clone(), (0..80, 3), (BLOCK..BLOCK + 80, 2)], size + 800);
        let bad = |parts: &[(Range<u64>, u32)], size, words: &str| {
            let error = model.check_left(FILE, &bytes(parts, size)).expect_err("not allowed");
            assert!(error.contains(words), "{error}");
        };
        bad(std::slice::from_ref(&base), size, "expected 0..80 of write 3");
        bad(&[base.clone(), (0..80, 3), (BLOCK..BLOCK + 40, 2)], size, "block at 65536");
        bad(&[base.clone(), (0..80, 3), (8000..8080, 9)], size, "write 9");
        bad(&[(0..size - 800, 1), (0..80, 3)], size - 800, "are certain");
        bad(&[(0..size - 8, 1), (0..80, 3)], size, "of write 0");
        bad(&[base, (0..80, 3)], size + 400, "were written");
    }

    #[test]
    fn the_model_of_a_live_file_requires_the_last_written_bytes() {
        let model = model();
        let whole = bytes(&model.now.runs().collect::<Vec<_>>(), model.now.size);
        model.check_read(FILE, 0, &whole).expect("all");
        model.check_read(FILE, 80, &whole[80..4096]).expect("a part");
        let old = bytes(&[(0..2 * BLOCK, 1)], 2 * BLOCK);
        assert!(model.check_read(FILE, 0, &old[..4096]).is_err(), "a write was lost");
    }
}
