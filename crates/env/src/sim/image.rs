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
    pages: Arc<BTreeMap<u64, Bytes>>,
}

/// A write: whole pages at a multiple of the page.
#[derive(Clone)]
pub(crate) struct StoredWrite {
    pub(crate) offset: u64,
    pub(crate) pages: Vec<Bytes>,
}

impl DiskImage {
    /// All zeros.
    pub fn zeroed(bytes: u64) -> Self {
        Self { bytes, pages: Arc::default() }
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
            let mut page = self.page(number).to_vec();
            page[start..start + n].copy_from_slice(&bytes[done..done + n]);
            self.put_page(number, page.into());
            done += n;
        }
    }

    /// True if any of these pages holds nothing (or zeros).
    pub(crate) fn has_hole(&self, offset: u64, len: usize) -> bool {
        let (first, _) = place(offset);
        (first..first + (len / PAGE_BYTES) as u64).any(|number| !self.pages.contains_key(&number))
    }

    pub(crate) fn read_into(&self, offset: u64, buf: &mut [u8]) {
        assert!(offset + buf.len() as u64 <= self.bytes, "a read ends beyond the disk");
        let mut done = 0;
        while done < buf.len() {
            let (number, start) = place(offset + done as u64);
            let n = (PAGE_BYTES - start).min(buf.len() - done);
            match self.pages.get(&number) {
                Some(page) => buf[done..done + n].copy_from_slice(&page[start..start + n]),
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
            let mut page = self.page(number).to_vec();
            for (old, new) in page.chunks_exact_mut(SECTOR_512).zip(new.chunks_exact(SECTOR_512)) {
                if keep() {
                    old.copy_from_slice(new);
                }
            }
            self.put_page(number, page.into());
        }
    }

    fn page(&self, number: u64) -> Bytes {
        self.pages.get(&number).cloned().unwrap_or(Bytes::from_static(ZEROS))
    }

    fn put_page(&mut self, number: u64, page: Bytes) {
        let pages = Arc::make_mut(&mut self.pages);
        // A page of zeros is a hole.
        if page.as_ptr() == ZEROS.as_ptr() || page[..] == ZEROS[..] {
            pages.remove(&number);
        } else {
            pages.insert(number, page);
        }
    }
}

impl StoredWrite {
    /// The pages of `parts`; slices of them where a part is whole pages, else a copy.
    pub(crate) fn new(offset: u64, parts: Vec<Bytes>) -> Self {
        let parts = if parts.iter().all(|part| part.len().is_multiple_of(PAGE_BYTES)) {
            parts
        } else {
            vec![Bytes::from(parts.concat())]
        };
        // Pages of zeros share one page, so a payload of zeros takes no memory, however large it is.
        let page = |page: Bytes| if page[..] == ZEROS[..] { Bytes::from_static(ZEROS) } else { page };
        let slices = |part: &Bytes| (0..part.len() / PAGE_BYTES).map(|i| i * PAGE_BYTES).collect::<Vec<_>>();
        let pages =
            parts.iter().flat_map(|part| slices(part).into_iter().map(|at| page(part.slice(at..at + PAGE_BYTES))));
        Self { offset, pages: pages.collect() }
    }

    pub(crate) fn len(&self) -> usize {
        self.pages.len() * PAGE_BYTES
    }

    /// All of it, copied.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.pages.concat()
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
