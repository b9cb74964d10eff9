//! Finding a key among the rows of a page, mostly by the heads in their slots.

use super::row::head;
use super::rows::Rows;

/// The first step of a search from where it begins, in slots: a cache line of them.
const FIRST_STEP: usize = 8;

impl Rows {
    /// Where `key` is, or where it would be inserted.
    pub(super) fn locate(&self, key: &[u8]) -> Result<usize, usize> {
        let prefix = self.prefix();
        let Some(suffix) = key.strip_prefix(prefix) else {
            return Err(if key < prefix { 0 } else { self.len() });
        };
        let head = head(suffix);
        let first = self.first_at_or_above(head);
        let index = match self.slots.get(first + 1) {
            Some(next) if next.head() == head => first + self.count_below(first, head, suffix),
            _ => first,
        };
        match self.slots.get(index) {
            Some(slot) if slot.head() == head => match self.suffix_of(*slot).cmp(suffix) {
                std::cmp::Ordering::Equal => Ok(index),
                std::cmp::Ordering::Less => Err(index + 1),
                std::cmp::Ordering::Greater => Err(index),
            },
            _ => Err(index),
        }
    }

    /// The first slot whose head is not below `head`.
    ///
    /// Heads are mostly spread evenly (hashes, counters, offsets). So the search begins where the head would then be,
    /// and continues in doubling steps. Memory far from the caches costs more than arithmetic: this reads two lines of
    /// a leaf's slots, not four.
    fn first_at_or_above(&self, head: u32) -> usize {
        let slots = &self.slots[..];
        let (Some(first), Some(last)) = (slots.first(), slots.last()) else { return 0 };
        if head <= first.head() {
            return 0;
        }
        if head > last.head() {
            return slots.len();
        }
        // From here on: slots[below] is below head, slots[above] is not.
        let (mut below, mut above) = (0, slots.len() - 1);
        let share = (head - first.head()) as u64 * above as u64 / (last.head() - first.head()) as u64;
        let guess = share as usize;
        let mut step = FIRST_STEP;
        if slots[guess].head() < head {
            below = guess;
            while below + step < above {
                if slots[below + step].head() >= head {
                    above = below + step;
                    break;
                }
                below += step;
                step *= 2;
            }
        } else {
            above = guess;
            while below + step < above {
                if slots[above - step].head() < head {
                    below = above - step;
                    break;
                }
                above -= step;
                step *= 2;
            }
        }
        below + 1 + slots[below + 1..above].partition_point(|slot| slot.head() < head)
    }

    /// Among the rows from `first` on that share `head`: how many have a smaller suffix.
    fn count_below(&self, first: usize, head: u32, suffix: &[u8]) -> usize {
        self.slots[first..].partition_point(|slot| slot.head() == head && self.suffix_of(*slot) < suffix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys whose heads are even, skewed, or all the same.
    fn sets() -> Vec<Vec<Vec<u8>>> {
        let even = (0..900u32).map(|n| (n * 4_000_003).to_be_bytes().to_vec()).collect();
        let skewed = (0..31).flat_map(|bit| [1u32 << bit, (1 << bit) + 1]).map(|n| n.to_be_bytes().to_vec());
        let same = (0..300u32).map(|n| [b"same".as_slice(), &n.to_be_bytes()].concat());
        let mixed = same.clone().chain((0..90u8).map(|n| vec![b'a' + n % 26; 1 + n as usize / 26]));
        vec![even, skewed.collect(), same.collect(), mixed.collect(), vec![vec![]], vec![]]
    }

    #[test]
    fn every_key_is_found_where_a_sorted_list_has_it() {
        for mut keys in sets() {
            keys.sort();
            keys.dedup();
            let mut rows = Rows::default();
            keys.iter().for_each(|key| drop(rows.put(key, b"")));
            let others = keys.iter().flat_map(|key| [[key, &b"\0"[..]].concat(), key[..key.len() / 2].to_vec()]);
            for key in keys.iter().cloned().chain(others).chain([vec![0xff; 9]]) {
                assert_eq!(rows.locate(&key), keys.binary_search(&key), "{key:?}");
            }
        }
    }
}
