//! The bytes of one file: the last write to each range, and what may be there instead after a crash of client and
//! server.

use std::collections::{BTreeMap, BTreeSet};

/// Identifies a write. 0: never written, so zeros.
pub type WriteTag = u64;

/// Stands for unreadable bytes: any content is accepted.
const UNKNOWN: WriteTag = WriteTag::MAX;

/// The eight bytes of write `tag` at file offset `8 * number`.
fn word(tag: WriteTag, number: u64) -> [u8; 8] {
    if tag == 0 {
        return [0; 8];
    }
    let mut word = (tag ^ number.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word ^= word >> 29;
    word.wrapping_mul(0xbf58_476d_1ce4_e5b9).to_le_bytes()
}

/// The byte of write `tag` at file offset `offset`.
pub fn tag_byte(tag: WriteTag, offset: u64) -> u8 {
    word(tag, offset >> 3)[(offset & 7) as usize]
}

/// The bytes of write `tag` at `[offset, offset + length)`.
pub fn fill(tag: WriteTag, offset: u64, length: usize) -> Vec<u8> {
    let (skipped, first) = ((offset & 7) as usize, offset >> 3);
    let mut bytes = Vec::with_capacity(skipped + length + 8);
    for number in first..first + ((skipped + length) as u64).div_ceil(8) {
        bytes.extend_from_slice(&word(tag, number));
    }
    bytes.truncate(skipped + length);
    bytes.drain(..skipped);
    bytes
}

/// One file's bytes.
///
/// Invariant: `ranges` maps the start of each range to its history, oldest first, current last. The first range starts
/// at 0. A range ends where the next begins; the last one is unbounded.
#[derive(Clone, Debug)]
pub struct FileModel {
    ranges: BTreeMap<u64, Vec<WriteTag>>,
    /// Sizes since the last sync, current last.
    sizes: Vec<u64>,
    /// Writes that were refused with ENOSPC, or failed. Their bytes beyond the end of the file may show when the file
    /// grows.
    refused: BTreeSet<WriteTag>,
    /// A size was lost, and no truncate since then rules out that bytes beyond the present size reappear.
    lost_size: bool,
}

impl Default for FileModel {
    fn default() -> Self {
        Self { ranges: [(0, vec![0])].into(), sizes: vec![0], refused: BTreeSet::new(), lost_size: false }
    }
}

impl FileModel {
    /// The current size.
    pub fn size(&self) -> u64 {
        *self.sizes.last().expect("there is always a size")
    }

    /// The largest size that may come back.
    pub fn longest(&self) -> u64 {
        self.sizes.iter().copied().max().unwrap_or(0)
    }

    /// Enters an acknowledged write.
    pub fn write(&mut self, offset: u64, length: u64, tag: WriteTag) {
        self.replace(offset, offset + length, |history| history.push(tag));
        self.set_size(self.size().max(offset + length));
    }

    /// Enters a write that was sent and may have been executed, in full or in part.
    pub fn maybe_write(&mut self, offset: u64, length: u64, tag: WriteTag) {
        self.replace(offset, offset + length, |history| {
            let current = history.len() - 1;
            history.insert(current, tag);
        });
        let current = self.sizes.len() - 1;
        let size = self.size();
        // Any prefix of a write over several targets may have raised the size: a later read shows it.
        self.sizes.insert(current, size.max(offset + length));
    }

    /// Marks a write that was refused or failed, in full or in part. Its bytes may lie beyond the end of the file.
    pub fn refuse(&mut self, tag: WriteTag) {
        self.refused.insert(tag);
    }

    /// Enters a hole punch.
    pub fn punch(&mut self, offset: u64, length: u64) {
        // The punch may remove a refused write's bytes beyond the end of the file up to this offset, in the middle of a
        // block.
        self.split(offset);
        self.split(offset + length);
        let end = (offset + length).min(self.size());
        if offset < end {
            self.replace(offset, end, |history| history.push(0));
        }
    }

    /// Enters an acknowledged truncate.
    pub fn truncate(&mut self, size: u64) {
        self.lost_size = false;
        self.replace(size, u64::MAX, |history| history.push(0));
        self.set_size(size);
    }

    /// The bytes cannot be read, so it is unknown which of the possible contents they have.
    pub fn forget(&mut self, offset: u64, length: u64) {
        self.replace(offset, offset + length, |history| {
            if history.len() > 1 {
                *history = vec![UNKNOWN];
            }
        });
    }

    /// Everything current is durable: no earlier state can come back.
    pub fn sync(&mut self) {
        for history in self.ranges.values_mut() {
            let before = history.len() - 1;
            let mut number = 0;
            // A refused write may still lie beyond the end.
            history.retain(|tag| {
                number += 1;
                number > before || self.refused.contains(tag)
            });
        }
        self.sizes.drain(..self.sizes.len() - 1);
    }

    /// Compares bytes read at `offset` with the model. With `loose` any state in the history is accepted, and becomes
    /// current.
    /// Errors: the first wrong byte, with what was expected and found.
    pub fn check(&mut self, offset: u64, bytes: &[u8], loose: bool) -> Result<(), String> {
        let end = offset + bytes.len() as u64;
        self.split(offset);
        self.split(end);
        let starts: Vec<u64> = self.ranges.range(offset..end).map(|(start, _)| *start).collect();
        for (number, start) in starts.iter().enumerate() {
            let stop = starts.get(number + 1).copied().unwrap_or(end);
            let part = &bytes[(start - offset) as usize..(stop - offset) as usize];
            let history = self.ranges.get_mut(start).expect("just listed");
            // Blocks of a write survive or vanish separately, so each 64 KiB of the file may come from another write.
            let chosen = find(history, &self.refused, loose, *start, part);
            let in_doubt = loose || history.iter().any(|tag| self.refused.contains(tag));
            match chosen {
                Some(tag) if loose => *history = vec![tag],
                Some(_) => {}
                None if in_doubt && stop - start > 1 => self.check_piecewise(*start, part, loose)?,
                None => return Err(mismatch(&history.clone(), *start, part)),
            }
        }
        Ok(())
    }

    /// The whole file was read after write `tag` was refused or cut short. What was read becomes current, if the
    /// history allows it. Unless `loose`, that means the current contents plus parts of the write. It is not more
    /// durable than before: earlier states may still come back, but of `tag` only what was read.
    pub fn look(&mut self, size: u64, bytes: &[u8], tag: WriteTag, loose: bool) -> Result<(), String> {
        let (ranges, mut sizes) = (self.ranges.clone(), self.sizes.clone());
        if !loose && size < self.size() {
            return Err(format!("size is {size} after a write that was refused, it was {}", self.size()));
        }
        if !loose {
            self.check(0, bytes, false)?;
        }
        self.check_size(size, true)?;
        self.check(0, bytes, true)?;
        for (start, history) in self.ranges.range_mut(..bytes.len() as u64) {
            let seen = *history.last().expect("a history is not empty");
            let (_, before) = ranges.range(..=start).next_back().expect("the first range starts at 0");
            *history = before.iter().copied().filter(|one| *one != seen && *one != tag).chain([seen]).collect();
        }
        // The last but one is the size that the complete write would have given.
        sizes.remove(sizes.len().saturating_sub(2));
        sizes.retain(|one| *one != size);
        sizes.push(size);
        self.sizes = sizes;
        Ok(())
    }

    /// Checks a range whose blocks come from different writes: splits it at every 4 KiB and checks each piece.
    fn check_piecewise(&mut self, start: u64, part: &[u8], loose: bool) -> Result<(), String> {
        const PIECE: u64 = 4096;
        let end = start + part.len() as u64;
        let mut at = start;
        while at < end {
            let stop = ((at / PIECE + 1) * PIECE).min(end);
            self.split(at);
            self.split(stop);
            let piece = &part[(at - start) as usize..(stop - start) as usize];
            let history = self.ranges.get_mut(&at).expect("just split there");
            match find(history, &self.refused, loose, at, piece) {
                Some(tag) if loose => *history = vec![tag],
                Some(_) => {}
                None => return Err(mismatch(history, at, piece)),
            }
            at = stop;
        }
        Ok(())
    }

    /// Checks a size that was read; `loose` as in [`FileModel::check`].
    pub fn check_size(&mut self, seen: u64, loose: bool) -> Result<(), String> {
        self.lost_size |= loose && self.longest() > seen;
        if loose && self.sizes.contains(&seen) {
            self.sizes = vec![seen];
            return Ok(());
        }
        // A write in several requests may have raised the size by some of them only.
        let most = self.sizes.iter().copied().max().unwrap_or(0);
        if loose && self.sizes.len() > 1 && seen <= most {
            self.sizes = vec![seen];
            return Ok(());
        }
        if seen == self.size() {
            Ok(())
        } else {
            Err(format!("size is {seen}, expected {:?} (current last)", self.sizes))
        }
    }

    /// True if bytes beyond the size may reappear (P3). A truncate rules that out.
    pub fn has_lost_size(&self) -> bool {
        self.lost_size
    }

    /// True if there is only one possible state, so that another model can be compared.
    pub fn is_settled(&self) -> bool {
        self.sizes.len() == 1 && self.ranges.values().all(|history| history.len() == 1)
    }

    fn set_size(&mut self, size: u64) {
        if size != self.size() {
            self.sizes.push(size);
        }
    }

    fn replace(&mut self, start: u64, end: u64, change: impl Fn(&mut Vec<WriteTag>)) {
        self.split(start);
        self.split(end);
        self.ranges.range_mut(start..end).for_each(|(_, history)| change(history));
    }

    fn split(&mut self, at: u64) {
        if at == u64::MAX || self.ranges.contains_key(&at) {
            return;
        }
        let history = self.ranges.range(..at).next_back().expect("the first range starts at 0").1.clone();
        self.ranges.insert(at, history);
    }
}

/// The latest write in the history that these bytes match: the current one, a refused one, or with `loose` any.
fn find(history: &[WriteTag], refused: &BTreeSet<WriteTag>, loose: bool, start: u64, bytes: &[u8]) -> Option<WriteTag> {
    let current = history.len() - 1;
    let candidates =
        history.iter().enumerate().rev().filter(|(number, tag)| loose || *number == current || refused.contains(tag));
    candidates.map(|(_, tag)| *tag).find(|tag| first_difference(*tag, start, bytes).is_none())
}

fn first_difference(tag: WriteTag, start: u64, bytes: &[u8]) -> Option<usize> {
    if tag == UNKNOWN {
        return None;
    }
    let differs = |from: usize, bytes: &[u8]| {
        let byte = bytes.iter().enumerate().position(|(i, byte)| *byte != tag_byte(tag, start + (from + i) as u64));
        byte.map(|at| from + at)
    };
    // Compare whole words where possible: most bytes are in one.
    let (head, rest) = bytes.split_at((start.wrapping_neg() as usize & 7).min(bytes.len()));
    let first = (start + head.len() as u64) >> 3;
    let (words, tail) = rest.as_chunks::<8>();
    let wrong = (first..).zip(words).position(|(number, found)| *found != word(tag, number));
    let whole = head.len() + words.len() * 8;
    differs(0, head)
        .or_else(|| wrong.and_then(|at| differs(head.len() + at * 8, &words[at])))
        .or_else(|| differs(whole, tail))
}

fn mismatch(history: &[WriteTag], start: u64, part: &[u8]) -> String {
    let current = *history.last().expect("a history is not empty");
    let at = first_difference(current, start, part).unwrap_or(0);
    format!(
        "byte {} is {:#04x}, expected {:#04x} of write {current:#x} (history {history:x?}, range {start}..{})",
        start + at as u64,
        part[at],
        tag_byte(current, start + at as u64),
        start + part.len() as u64,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn current_bytes_are_accepted_and_others_are_not() {
        let mut file = FileModel::default();
        file.write(10, 100, 1);
        file.write(50, 10, 2);
        let mut bytes = vec![0; 10];
        bytes.extend(fill(1, 10, 40));
        bytes.extend(fill(2, 50, 10));
        bytes.extend(fill(1, 60, 50));
        assert_eq!(file.check(0, &bytes, false), Ok(()));
        assert_eq!(file.check_size(110, false), Ok(()));
        bytes[55] ^= 1;
        assert!(file.check(0, &bytes, false).is_err());
        assert!(file.check_size(109, false).is_err());
    }

    #[test]
    fn bytes_seen_after_a_refused_write_are_current_but_not_durable() {
        let mut file = FileModel::default();
        file.write(0, 8192, 1);
        file.sync();
        file.write(4096, 4096, 3);
        file.maybe_write(0, 16_384, 5);
        file.refuse(5);
        let seen = [fill(5, 0, 4096), fill(3, 4096, 4096)].concat();
        assert!(file.clone().look(8192, &fill(7, 0, 8192), 5, true).is_err(), "nobody wrote that");
        let older = [fill(5, 0, 4096), fill(1, 4096, 4096)].concat();
        assert!(file.clone().look(8192, &older, 5, false).is_err(), "write 3 was acknowledged");
        assert_eq!(file.clone().look(8192, &older, 5, true), Ok(()));
        assert!(file.clone().look(4096, &seen[..4096], 5, false).is_err(), "so was its size");
        assert_eq!(file.look(8192, &seen, 5, false), Ok(()));
        assert!(file.clone().check_size(4096, true).is_err(), "that was synced");
        assert_eq!(file.check(0, &seen, false), Ok(()));
        assert!(file.check(4096, &fill(1, 4096, 4096), false).is_err(), "nothing crashed");
        assert!(file.check(4096, &fill(5, 4096, 4096), true).is_err(), "refused, and seen not to be there");
        assert_eq!(file.clone().check(0, &fill(1, 0, 8192), true), Ok(()), "lost with the servers");
        file.sync();
        assert!(file.check(0, &fill(1, 0, 8192), true).is_err(), "durable");
        assert_eq!(file.check(0, &seen, true), Ok(()));
    }

    #[test]
    fn any_byte_that_differs_is_found_wherever_it_lies() {
        for (tag, start) in [(5, 0), (5, 3), (0, 7), (9, 16), (1 << 60, 13)] {
            for length in 0..40 {
                let bytes = fill(tag, start, length);
                assert!(bytes.iter().enumerate().all(|(i, byte)| *byte == tag_byte(tag, start + i as u64)));
                assert_eq!((bytes.len(), first_difference(tag, start, &bytes)), (length, None));
                for at in 0..length {
                    let mut bytes = bytes.clone();
                    bytes[at..].iter_mut().step_by(5).for_each(|byte| *byte ^= 0x10);
                    assert_eq!(first_difference(tag, start, &bytes), Some(at), "{tag} {start} {length}");
                }
            }
        }
    }

    #[test]
    fn unsynced_writes_may_be_undone_only_by_a_double_crash() {
        let mut file = FileModel::default();
        file.write(0, 8, 1);
        file.sync();
        file.write(0, 8, 2);
        assert!(file.check(0, &fill(1, 0, 8), false).is_err());
        assert_eq!(file.check(0, &fill(1, 0, 8), true), Ok(()));
        assert!(file.check(0, &fill(2, 0, 8), true).is_err(), "what was seen once stays");
        assert!(file.is_settled());
    }

    #[test]
    fn zeros_where_synced_bytes_were_are_never_accepted() {
        let mut file = FileModel::default();
        file.write(0, 8, 1);
        file.sync();
        assert!(file.check(0, &[0; 8], true).is_err());
    }

    #[test]
    fn bytes_unreadable_after_a_double_crash_may_read_as_anything_unless_synced() {
        let mut file = FileModel::default();
        file.write(0, 8, 1);
        file.sync();
        file.forget(0, 8);
        assert!(file.check(0, &[0; 8], true).is_err(), "there is but one possibility");
        file.write(0, 4, 2);
        file.forget(0, 8);
        assert_eq!(file.check(0, &[7, 7, 7, 7], false), Ok(()));
        assert!(file.check(4, &[7, 7, 7, 7], false).is_err());
        file.write(0, 4, 3);
        assert!(file.check(0, &[7; 4], false).is_err(), "what is written is known again");
    }

    #[test]
    fn of_a_write_that_was_refused_any_block_may_show_and_of_others_none() {
        let mut file = FileModel::default();
        file.write(0, 100, 1);
        file.maybe_write(100, 8092, 2);
        file.write(0, 100, 3);
        file.truncate(8192);
        let mut bytes = fill(3, 0, 100);
        bytes.extend(fill(2, 100, 3996));
        bytes.extend([0; 4096]);
        assert!(file.clone().check(0, &bytes, false).is_err(), "nobody said that it was refused");
        file.refuse(2);
        file.sync();
        assert_eq!(file.check(0, &bytes, false), Ok(()));
        assert!(file.check(0, &fill(1, 0, 100), false).is_err());
    }

    #[test]
    fn a_hole_punched_beyond_the_end_may_take_a_part_of_what_a_refused_write_left_there() {
        let mut file = FileModel::default();
        file.maybe_write(0, 8192, 1);
        file.refuse(1);
        assert_eq!(file.check_size(0, true), Ok(()));
        file.punch(0, 1000);
        file.write(8192, 8, 2);
        let mut bytes = vec![0; 1000];
        bytes.extend(fill(1, 1000, 7192));
        bytes.extend(fill(2, 8192, 8));
        assert_eq!(file.check(0, &bytes, false), Ok(()));
        bytes[1000] = 0;
        assert!(file.check(0, &bytes, false).is_err(), "a block is of one write or another");
    }

    #[test]
    fn a_truncate_leaves_zeros_beyond_it() {
        let mut file = FileModel::default();
        file.write(0, 100, 1);
        file.truncate(40);
        file.truncate(60);
        let mut bytes = fill(1, 0, 40);
        bytes.extend([0; 20]);
        assert_eq!(file.check(0, &bytes, false), Ok(()));
        assert_eq!(file.size(), 60);
    }
}
