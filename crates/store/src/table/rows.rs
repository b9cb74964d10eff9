//! Rows of one page, sorted, in one flat piece of memory.
//!
//! The heap holds the prefix all keys share, then rows in the order they came, exactly as they stand in a page:
//! `suffix bytes u8, value bytes varint, suffix, value`. A slot per row, sorted by key, holds the row's offset and,
//! above it, the first four bytes of its suffix (its *head*). A search mostly reads slots, not rows.
//!
//! Invariant: every key is the prefix followed by the row's suffix; slots ascend strictly by key.
//! Invariant: `garbage` counts the heap's bytes that belong to no row; the rest is the page's body.

use bytes::Bytes;

use super::key::{Key, common_bytes};
use super::limits::{ASCENDING_PUTS, HEAP_STEP_BYTES, LEAF_BYTES, LEAF_FILL_PERCENT, VALUE_BYTES_MAX};
use super::row::{Slot, Span, push_lengths, row_bytes};

/// Approximate bytes that the allocator adds to each of the two allocations.
const ALLOCATION_BYTES: usize = 16;

/// Sorted rows. See the module.
#[derive(Clone, Default)]
pub(super) struct Rows {
    pub(super) slots: Vec<Slot>,
    heap: Vec<u8>,
    garbage: u32,
    last_insert: u32,
    ascending: u16,
    prefix_bytes: u8,
}

impl Rows {
    /// Rows as a decoded page holds them: `heap` is prefix and rows, `slots` point to the rows, in order.
    pub(super) fn from_page(prefix_bytes: u8, heap: Vec<u8>, slots: Vec<Slot>) -> Self {
        Self { slots, heap, prefix_bytes, ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Bytes of prefix and rows in a page.
    pub(super) fn body_bytes(&self) -> usize {
        self.heap.len() - self.garbage as usize
    }

    /// Bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.heap.capacity() + self.slots.capacity() * size_of::<Slot>() + 2 * ALLOCATION_BYTES
    }

    pub(super) fn prefix(&self) -> &[u8] {
        &self.heap[..self.prefix_bytes as usize]
    }

    pub(super) fn key(&self, index: usize) -> Key {
        Key::join(self.prefix(), self.suffix(index))
    }

    pub(super) fn suffix(&self, index: usize) -> &[u8] {
        self.suffix_of(self.slots[index])
    }

    pub(super) fn value(&self, index: usize) -> &[u8] {
        let span = self.span(index);
        &self.heap[span.value..span.end]
    }

    /// The row as it stands in a page.
    pub(super) fn row(&self, index: usize) -> &[u8] {
        let span = self.span(index);
        &self.heap[span.start..span.end]
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.locate(key).ok().map(|index| self.value(index))
    }

    /// Inserts or replaces a row. Returns its index and the value it had.
    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) -> (usize, Option<Bytes>) {
        assert!(value.len() <= VALUE_BYTES_MAX, "a value of {} bytes; at most {VALUE_BYTES_MAX}", value.len());
        match self.locate(key) {
            Ok(index) => {
                let old = Bytes::copy_from_slice(self.value(index));
                self.replace(index, value);
                (index, Some(old))
            }
            Err(index) => {
                self.insert(index, key, value);
                (index, None)
            }
        }
    }

    pub(super) fn insert(&mut self, index: usize, key: &[u8], value: &[u8]) {
        self.fit_prefix(key);
        let suffix = &key[self.prefix_bytes as usize..];
        self.make_room(row_bytes(suffix.len(), value.len()));
        let slot = Slot::new(suffix, self.heap.len());
        push_lengths(&mut self.heap, suffix.len(), value.len());
        self.heap.extend_from_slice(suffix);
        self.heap.extend_from_slice(value);
        if self.slots.len() == self.slots.capacity() {
            self.slots.reserve_exact(8 + self.slots.len() / 8);
        }
        self.slots.insert(index, slot);
        self.note_insert(index);
    }

    /// Gives row `index` another value, in place if it has the same length.
    pub(super) fn replace(&mut self, index: usize, value: &[u8]) {
        let span = self.span(index);
        if value.len() == span.end - span.value {
            self.heap[span.value..span.end].copy_from_slice(value);
            return;
        }
        let suffix = Key::new(self.suffix(index));
        self.make_room(row_bytes(suffix.len(), value.len()));
        self.garbage += span.bytes() as u32;
        self.slots[index] = Slot::new(&suffix, self.heap.len());
        push_lengths(&mut self.heap, suffix.len(), value.len());
        self.heap.extend_from_slice(&suffix);
        self.heap.extend_from_slice(value);
    }

    pub(super) fn remove(&mut self, index: usize) {
        self.garbage += self.span(index).bytes() as u32;
        self.slots.remove(index);
        if self.is_empty() {
            *self = Self::default();
        } else if self.garbage as usize > HEAP_STEP_BYTES.max(self.heap.len() / 2) {
            *self = self.copy(0..self.len());
        }
    }

    /// Where to cut after row `changed` made the page too large: the second part begins at the returned index.
    ///
    /// Ascending puts leave a nearly full page behind; others leave two halves.
    pub(super) fn split_point(&self, changed: usize) -> usize {
        let last = self.len() - 1;
        if changed == last {
            let tail_bytes = LEAF_BYTES * (100 - LEAF_FILL_PERCENT) / 100;
            let mut bytes = 0;
            let rows = (0..=last).rev().take_while(|&index| {
                bytes += self.span(index).bytes();
                bytes <= tail_bytes
            });
            return self.len() - rows.count().clamp(1, last);
        }
        if self.ascending >= ASCENDING_PUTS && self.last_insert as usize == changed {
            return changed + 1;
        }
        self.middle()
    }

    /// The cut that leaves two parts as equal in bytes as possible.
    fn middle(&self) -> usize {
        let total = self.body_bytes();
        let mut left = 0;
        let imbalance = |index: usize| {
            left += self.span(index).bytes();
            (left * 2).abs_diff(total)
        };
        let cuts = (0..self.len() - 1).map(imbalance).enumerate();
        cuts.min_by_key(|(_, size)| *size).map_or(1, |(index, _)| index + 1)
    }

    /// Splits off the rows from `at` on.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        let right = self.copy(at..self.len());
        *self = self.copy(0..at);
        right
    }

    /// Appends all rows of `right`, which lie above those of `self`.
    pub(super) fn absorb(&mut self, right: &Self) {
        if right.is_empty() {
            return;
        }
        if self.is_empty() {
            *self = right.clone();
            return;
        }
        let (first, last) = (self.key(0), right.key(right.len() - 1));
        let mut both = Self::with_prefix(&first[..common_bytes(&first, &last)]);
        both.append(self, 0..self.len());
        both.append(right, 0..right.len());
        *self = both;
    }

    /// A copy of some rows without garbage, with the longest prefix.
    fn copy(&self, range: std::ops::Range<usize>) -> Self {
        if range.is_empty() {
            return Self::default();
        }
        let (first, last) = (self.key(range.start), self.key(range.end - 1));
        let mut copy = Self::with_prefix(&first[..common_bytes(&first, &last)]);
        copy.append(self, range);
        copy
    }

    fn with_prefix(prefix: &[u8]) -> Self {
        Self { heap: prefix.to_vec(), prefix_bytes: prefix.len() as u8, ..Self::default() }
    }

    /// Appends rows of `from`, which have this one's prefix and lie above its rows.
    fn append(&mut self, from: &Self, range: std::ops::Range<usize>) {
        let (ours, theirs) = (self.prefix_bytes as usize, from.prefix_bytes as usize);
        let longer = theirs.saturating_sub(ours);
        let bytes: usize = range.clone().map(|index| from.span(index).bytes() + longer).sum();
        reserve_in_steps(&mut self.heap, bytes);
        self.slots.reserve_exact(range.len() + 8);
        for index in range {
            let start = self.heap.len();
            if ours == theirs {
                self.heap.extend_from_slice(from.row(index));
                self.slots.push(from.slots[index].moved_to(start));
                continue;
            }
            let moved = from.prefix().get(ours..).unwrap_or_default();
            let (suffix, value) = (&from.suffix(index)[ours.saturating_sub(theirs)..], from.value(index));
            push_lengths(&mut self.heap, moved.len() + suffix.len(), value.len());
            let begin = self.heap.len();
            self.heap.extend_from_slice(moved);
            self.heap.extend_from_slice(suffix);
            self.slots.push(Slot::new(&self.heap[begin..], start));
            self.heap.extend_from_slice(value);
        }
    }

    /// Shortens the prefix to what `key` shares.
    fn fit_prefix(&mut self, key: &[u8]) {
        if self.is_empty() {
            *self = Self::with_prefix(key);
            return;
        }
        let common = common_bytes(self.prefix(), key);
        if common < self.prefix_bytes as usize {
            self.rewrite(common);
        }
    }

    /// Makes space for another row: by dropping garbage if there is enough of it, else by growing.
    fn make_room(&mut self, bytes: usize) {
        if self.heap.capacity() - self.heap.len() >= bytes {
            return;
        }
        if self.garbage as usize >= bytes.max(self.body_bytes() / 8) {
            self.rewrite(self.prefix_bytes as usize);
        }
        reserve_in_steps(&mut self.heap, bytes);
    }

    /// Compacts the rows under a prefix of `prefix_bytes`, at most as long as now; keeps indices.
    fn rewrite(&mut self, prefix_bytes: usize) {
        let mut compact = Self::with_prefix(&self.prefix()[..prefix_bytes]);
        compact.append(self, 0..self.len());
        (compact.last_insert, compact.ascending) = (self.last_insert, self.ascending);
        *self = compact;
    }

    fn note_insert(&mut self, index: usize) {
        self.ascending = if index == self.last_insert as usize + 1 { self.ascending.saturating_add(1) } else { 0 };
        self.last_insert = index as u32;
    }

    fn span(&self, index: usize) -> Span {
        self.span_at(self.slots[index])
    }

    fn span_at(&self, slot: Slot) -> Span {
        Span::parse(&self.heap, slot.offset()).expect("slots point to whole rows")
    }

    pub(super) fn suffix_of(&self, slot: Slot) -> &[u8] {
        let span = self.span_at(slot);
        &self.heap[span.suffix..span.value]
    }
}

fn reserve_in_steps(heap: &mut Vec<u8>, bytes: usize) {
    let wanted = heap.len() + bytes;
    if wanted > heap.capacity() {
        let step = if wanted < HEAP_STEP_BYTES { HEAP_STEP_BYTES / 4 } else { HEAP_STEP_BYTES };
        heap.reserve_exact(wanted.next_multiple_of(step) - heap.len());
    }
}
