//! The data that workers write: each word of eight bytes contains its file, its write and its offset.
//!
//! Invariant: no two writes, files or offsets share a word, and no word is zero. So bytes of another file or offset, or
//! of two writes in one block, cannot pass as right ones.

use std::ops::Range;

use crate::figures::Outcome;

/// Size of a word. All writes consist of whole words.
pub const WORD: u64 = 8;
/// Numbers of writes, and offsets in words, are below this.
const PLACES: u64 = 1 << 22;
/// Most files of one worker.
pub const FILES: u64 = 1 << 14;

/// The number of a file, from its worker and its number within the worker.
pub fn file_of(worker: u64, number: u64) -> u32 {
    assert!(worker < 64 && (1..FILES).contains(&number), "worker {worker} has no file {number}");
    (worker * FILES + number) as u32
}

/// Fills the bytes of write `seq` to a file at offset `start`.
pub fn fill(bytes: &mut [u8], file: u32, seq: u32, start: u64) {
    let head = u64::from(file) << 44 | (u64::from(seq) << 22);
    for (number, word) in bytes.chunks_exact_mut(WORD as usize).enumerate() {
        word.copy_from_slice(&(head | (start / WORD + number as u64)).to_le_bytes());
    }
}

/// Checks that a write can have this number and end at this offset.
pub fn check(seq: u32, end: u64) -> Outcome {
    let fits = u64::from(seq) < PLACES && end / WORD < PLACES;
    if fits { Ok(()) } else { Err(format!("write {seq} up to {end} has no stamp: run for a shorter time")) }
}

/// The writes that a file's bytes come from; adjacent parts of one write are merged, 0 stands for a hole. Errors: a
/// word of another file or offset.
pub fn writes(bytes: &[u8], file: u32) -> Outcome<Vec<(Range<u64>, u32)>> {
    let mut found: Vec<(Range<u64>, u32)> = Vec::new();
    if !(bytes.len() as u64).is_multiple_of(WORD) {
        return Err(format!("it has {} bytes, and everything is written in words of {WORD}", bytes.len()));
    }
    for (number, word) in bytes.chunks_exact(WORD as usize).enumerate() {
        let (at, word) = (number as u64, u64::from_le_bytes(word.try_into().expect("eight bytes")));
        let seq = (word >> 22 & (PLACES - 1)) as u32;
        if word != 0 && (word >> 44 != u64::from(file) || word & (PLACES - 1) != at || seq == 0) {
            return Err(format!(
                "at {} lies a word of file {}, write {seq}, offset {}, and this is file {file}",
                at * WORD,
                word >> 44,
                (word & (PLACES - 1)) * WORD,
            ));
        }
        match found.last_mut() {
            Some((range, last)) if *last == seq => range.end += WORD,
            _ => found.push((at * WORD..(at + 1) * WORD, seq)),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_tell_their_writes_and_strangers_are_found() {
        let mut bytes = vec![0; 100 * 8];
        fill(&mut bytes[80..240], 7, 3, 80);
        fill(&mut bytes[160..320], 7, 4, 160);
        let found = writes(&bytes, 7).expect("ours");
        assert_eq!(found, [(0..80, 0), (80..160, 3), (160..320, 4), (320..800, 0)]);
        assert!(writes(&bytes, 8).expect_err("another file").contains("file 7"));
        bytes.copy_within(80..88, 400);
        assert!(writes(&bytes, 7).expect_err("another place").contains("at 400"));
        assert!(writes(&bytes[..9], 7).is_err());
    }
}
