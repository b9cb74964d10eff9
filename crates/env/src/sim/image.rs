//! The contents of a disk: sparse pages, shared until written.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;

/// Bytes of a page; writes come in multiples of it.
pub(crate) const PAGE_BYTES: usize = crate::SECTOR_BYTES;
/// The unit that a disk writes atomically.
pub(crate) const SECTOR_512: usize = 512;

/// A page of a hole.
static ZEROS: &[u8] = &[0; PAGE_BYTES];

/// The contents of a disk, sparse and cheap to clone: pages are shared until one of the images writes.
#[derive(Clone, PartialEq, Eq)]
pub struct DiskImage {
    bytes: u64,
    fingerprint: u64,
    blocks: Arc<BTreeMap<u64, Arc<Block>>>,
}

/// Adjacent pages; none: a hole. Images share whole blocks: an image that writes copies one, and the list of them.
type Block = [Option<Page>; BLOCK_PAGES as usize];
const BLOCK_PAGES: u64 = 32;

/// The bytes of a page, with their hash.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Page {
    hash: u64,
    bytes: Bytes,
}

/// A write: whole pages at a multiple of the page.
#[derive(Clone)]
pub(crate) struct StoredWrite {
    pub(crate) offset: u64,
    pub(crate) pages: Vec<Page>,
}

impl DiskImage {
    /// All zeros.
    pub fn zeroed(bytes: u64) -> Self {
        Self { bytes, fingerprint: 0, blocks: Arc::default() }
    }

    /// A hash of the contents, which is always at hand. Images of one size with the same contents have the same one.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The `len` bytes at `offset`, any alignment; beyond the end is a bug of the caller.
    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.read_into(offset, &mut bytes);
        bytes
    }

    /// Replaces the bytes at `offset`, any alignment; beyond the end is a bug of the caller.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= self.bytes, "a write ends beyond the disk");
        let mut done = 0;
        while done < bytes.len() {
            let (number, start) = place(offset + done as u64);
            let n = (PAGE_BYTES - start).min(bytes.len() - done);
            let mut page = self.page_bytes(number).to_vec();
            page[start..start + n].copy_from_slice(&bytes[done..done + n]);
            self.put_page(number, Page::new(page.into()));
            done += n;
        }
    }

    /// True if any of these pages holds nothing (or zeros).
    pub(crate) fn has_hole(&self, offset: u64, len: usize) -> bool {
        let (first, _) = place(offset);
        (first..first + (len / PAGE_BYTES) as u64).any(|number| self.page(number).is_none())
    }

    pub(crate) fn read_into(&self, offset: u64, buf: &mut [u8]) {
        assert!(offset + buf.len() as u64 <= self.bytes, "a read ends beyond the disk");
        let mut done = 0;
        while done < buf.len() {
            let (number, start) = place(offset + done as u64);
            let n = (PAGE_BYTES - start).min(buf.len() - done);
            match self.page(number) {
                Some(page) => buf[done..done + n].copy_from_slice(&page.bytes[start..start + n]),
                None => buf[done..done + n].fill(0),
            }
            done += n;
        }
    }

    pub(crate) fn apply(&mut self, write: &StoredWrite) {
        let (first, _) = place(write.offset);
        for (number, page) in (first..).zip(&write.pages) {
            self.put_page(number, page.clone());
        }
    }

    /// Applies only the 512-byte sectors that `keep` chooses; it is called once for each, in order.
    pub(crate) fn apply_sectors(&mut self, write: &StoredWrite, mut keep: impl FnMut() -> bool) {
        let (first, _) = place(write.offset);
        for (number, new) in (first..).zip(&write.pages) {
            let mut page = self.page_bytes(number).to_vec();
            for (old, new) in page.chunks_exact_mut(SECTOR_512).zip(new.bytes.chunks_exact(SECTOR_512)) {
                if keep() {
                    old.copy_from_slice(new);
                }
            }
            self.put_page(number, Page::new(page.into()));
        }
    }

    /// None: a hole.
    fn page(&self, number: u64) -> Option<&Page> {
        self.blocks.get(&(number / BLOCK_PAGES))?[(number % BLOCK_PAGES) as usize].as_ref()
    }

    fn page_bytes(&self, number: u64) -> &[u8] {
        self.page(number).map_or(ZEROS, |page| &page.bytes[..])
    }

    fn put_page(&mut self, number: u64, page: Page) {
        let part = page.part(number);
        let new = Some(page).filter(|page| !page.is_zeros());
        let is_hole = new.is_none();
        if is_hole && self.page(number).is_none() {
            return;
        }
        let (block, index) = (number / BLOCK_PAGES, (number % BLOCK_PAGES) as usize);
        let blocks = Arc::make_mut(&mut self.blocks);
        let pages = Arc::make_mut(blocks.entry(block).or_default());
        let old = std::mem::replace(&mut pages[index], new);
        if is_hole && pages.iter().all(Option::is_none) {
            blocks.remove(&block);
        }
        let old_part = old.map_or(0, |old| old.part(number));
        self.fingerprint = self.fingerprint.wrapping_sub(old_part).wrapping_add(part);
    }
}

impl Page {
    /// Pages of zeros share one page, so a payload of zeros takes no memory, however large it is.
    pub(crate) fn new(bytes: Bytes) -> Self {
        if bytes[..] == ZEROS[..] {
            return Self { hash: 0, bytes: Bytes::from_static(ZEROS) };
        }
        Self { hash: hash(&bytes), bytes }
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// A page of zeros is a hole.
    fn is_zeros(&self) -> bool {
        self.bytes.as_ptr() == ZEROS.as_ptr()
    }

    /// Its part of the fingerprint of an image that has it at this number.
    fn part(&self, number: u64) -> u64 {
        if self.is_zeros() {
            return 0;
        }
        let mixed = (self.hash ^ number.wrapping_mul(HASH_FACTOR)).wrapping_mul(HASH_FACTOR);
        mixed ^ mixed >> 32
    }
}

const HASH_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A hash of whole words. It is not the CRC-64 of the formats: the CRC of all blocks that end in their own CRC is the
/// same.
fn hash(bytes: &[u8]) -> u64 {
    const LANES: usize = 4;
    let mut lanes = [1u64, 2, 3, 4];
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(HASH_FACTOR).rotate_left(29);
    for words in bytes.chunks_exact(8 * LANES) {
        for (lane, word) in lanes.iter_mut().zip(words.chunks_exact(8)) {
            *lane = mix(*lane, u64::from_le_bytes(word.try_into().expect("eight bytes")));
        }
    }
    lanes.into_iter().fold(0, mix)
}

impl StoredWrite {
    /// The pages of `parts`; slices of them where a part is whole pages, else a copy.
    pub(crate) fn new(offset: u64, parts: Vec<Bytes>) -> Self {
        let parts = if parts.iter().all(|part| part.len().is_multiple_of(PAGE_BYTES)) {
            parts
        } else {
            vec![Bytes::from(parts.concat())]
        };
        let mut pages = Vec::with_capacity(parts.iter().map(|part| part.len() / PAGE_BYTES).sum());
        for part in parts {
            pages.extend((0..part.len()).step_by(PAGE_BYTES).map(|at| Page::new(part.slice(at..at + PAGE_BYTES))));
        }
        Self { offset, pages }
    }

    pub(crate) fn len(&self) -> usize {
        self.pages.len() * PAGE_BYTES
    }

    /// All of it, copied.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.pages.iter().map(|page| &page.bytes[..]).collect::<Vec<_>>().concat()
    }

    pub(crate) fn end(&self) -> u64 {
        self.offset + self.len() as u64
    }

    pub(crate) fn overlaps(&self, other: &StoredWrite) -> bool {
        self.offset < other.end() && other.offset < self.end()
    }
}

/// Number of the page that holds `offset`, and the position in it.
fn place(offset: u64) -> (u64, usize) {
    (offset / PAGE_BYTES as u64, (offset % PAGE_BYTES as u64) as usize)
}
