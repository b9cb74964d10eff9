//! Bytes that identify their position: which file, which offset, which repetition.
//!
//! Every 8-byte word of a stamped file encodes (file, repetition, word number). The code is multiplied by an odd
//! constant, so that any flipped bit changes the word visibly. Neighbouring words differ by the constant, so filling a
//! buffer is one addition per word. Multiplying by the inverse decodes a stamp, so a wrong word shows where its bytes
//! belong.

use std::fmt;

const FILE_BITS: u32 = 14;
const REPETITION_BITS: u32 = 10;
const WORD_BITS: u32 = 40;
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
const INVERSE: u64 = inverse(ODD);

/// Newton's iteration: each step doubles the correct low bits.
const fn inverse(odd: u64) -> u64 {
    let mut x = odd;
    let mut step = 0;
    while step < 6 {
        x = x.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(x)));
        step += 1;
    }
    x
}

/// The file and repetition of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Number of the file in the run, modulo 2^14.
    pub file: u32,
    /// Repetition, from 0, modulo 2^10.
    pub repetition: u32,
}

/// The first byte that differs from the expected one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongByte {
    /// Its offset in the file.
    pub offset: u64,
    /// The expected byte.
    pub expected: u8,
    /// The byte found.
    pub got: u8,
    /// What the byte's word decodes to, if it is whole and zero or a stamp.
    pub looks_like: String,
}

impl Stamp {
    /// Fills `buffer` with the bytes of `[offset, offset + buffer.len())`.
    pub fn fill(self, buffer: &mut [u8], offset: u64) {
        let skip = (offset % 8) as usize;
        let mut word = self.word(offset / 8);
        let mut rest = buffer;
        if skip > 0 {
            let (head, tail) = rest.split_at_mut(rest.len().min(8 - skip));
            head.copy_from_slice(&word.to_le_bytes()[skip..skip + head.len()]);
            word = word.wrapping_add(ODD);
            rest = tail;
        }
        let (words, tail) = rest.as_chunks_mut::<8>();
        for place in words {
            *place = word.to_le_bytes();
            word = word.wrapping_add(ODD);
        }
        tail.copy_from_slice(&word.to_le_bytes()[..tail.len()]);
    }

    /// Compares `buffer`, read at `offset`, with what [`Stamp::fill`] puts there; `scratch` is as long as `buffer`.
    pub fn check(self, buffer: &[u8], offset: u64, scratch: &mut [u8]) -> Result<(), WrongByte> {
        let scratch = &mut scratch[..buffer.len()];
        self.fill(scratch, offset);
        if buffer == scratch {
            return Ok(());
        }
        let wrong = buffer.iter().zip(scratch.iter()).position(|(got, expected)| got != expected);
        let wrong = wrong.expect("unequal slices of one length differ somewhere");
        let at = offset + wrong as u64;
        let (expected, got) = (scratch[wrong], buffer[wrong]);
        Err(WrongByte { offset: at, expected, got, looks_like: looks_like(buffer, offset, at) })
    }

    fn word(self, number: u64) -> u64 {
        let file = u64::from(self.file) % (1 << FILE_BITS);
        let repetition = u64::from(self.repetition) % (1 << REPETITION_BITS);
        let number = number % (1 << WORD_BITS);
        // one more, so that no word of any stamp is zero
        let packed = (file << REPETITION_BITS | repetition) << WORD_BITS | number;
        packed.wrapping_add(1).wrapping_mul(ODD)
    }
}

fn looks_like(buffer: &[u8], offset: u64, wrong: u64) -> String {
    let start = (wrong / 8 * 8).checked_sub(offset).map(|start| start as usize);
    let word = start.and_then(|start| buffer.get(start..start + 8)).and_then(|bytes| bytes.try_into().ok());
    let Some(word) = word.map(u64::from_le_bytes) else { return "part of a word".into() };
    if word == 0 {
        return "zeros".into();
    }
    let packed = word.wrapping_mul(INVERSE).wrapping_sub(1);
    let (number, file) = (packed % (1 << WORD_BITS), packed >> (WORD_BITS + REPETITION_BITS));
    let repetition = packed >> WORD_BITS & ((1 << REPETITION_BITS) - 1);
    if file < 1 << 10 && repetition < 1 << 8 && number < 1 << 37 {
        format!("the bytes of file {file}, repetition {}, offset {}", repetition + 1, number * 8)
    } else {
        "no stamp of this bench (was the file written with stamps? see --stamp)".into()
    }
}

impl fmt::Display for WrongByte {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, expected, got, looks_like } = self;
        write!(f, "byte {offset} is {got:#04x} instead of {expected:#04x}; the word there looks like {looks_like}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { file: 3, repetition: 1 };

    fn filled(stamp: Stamp, offset: u64, length: usize) -> Vec<u8> {
        let mut buffer = vec![0; length];
        stamp.fill(&mut buffer, offset);
        buffer
    }

    #[test]
    fn any_cut_of_a_file_has_the_bytes_of_the_whole() {
        let whole = filled(STAMP, 0, 4096);
        for (offset, length) in [(0, 8), (1, 7), (3, 2), (5, 100), (8, 16), (4000, 96), (7, 1), (13, 0)] {
            assert_eq!(filled(STAMP, offset, length), whole[offset as usize..][..length], "{length} at {offset}");
        }
    }

    #[test]
    fn a_flipped_bit_is_found_at_its_offset() {
        for wrong in [0, 1, 7, 8, 47_007] {
            let mut buffer = filled(STAMP, 94_016, 47_008);
            buffer[wrong] ^= 0x10;
            let found = STAMP.check(&buffer, 94_016, &mut vec![0; 47_008]).expect_err("one bit is wrong");
            assert_eq!((found.offset, found.got ^ found.expected), (94_016 + wrong as u64, 0x10));
        }
    }

    #[test]
    fn right_bytes_pass_and_leave_no_complaint() {
        assert_eq!(STAMP.check(&filled(STAMP, 5, 1001), 5, &mut vec![0; 2000]), Ok(()));
    }

    #[test]
    fn bytes_of_another_place_say_where_they_come_from() {
        let cases = [
            (filled(Stamp { file: 2, repetition: 0 }, 1 << 20, 64), "file 2, repetition 1, offset 1048576"),
            (filled(Stamp { file: 3, repetition: 0 }, 0, 64), "file 3, repetition 1, offset 0"),
            (filled(STAMP, 4096, 64), "file 3, repetition 2, offset 4096"),
            (vec![0; 64], "zeros"),
            (vec![0xab; 64], "no stamp"),
        ];
        for (buffer, words) in cases {
            let found = STAMP.check(&buffer, 0, &mut [0; 64]).expect_err(words);
            assert!(found.to_string().contains(words), "{found}");
        }
    }
}
