//! Bringing pages into memory.

use forebay_proto::crc::crc64;

use super::codec::{PageKind, decode_branch, decode_leaf};
use super::frames::{Body, Frames};
use super::page::{CorruptPage, MissingPage, PageId, PageLocation};
use super::tree::Table;

impl Table {
    /// The table of a durable checkpoint. [`Table::needs`] says which inner pages to install before anything else.
    pub fn from_root(bytes: &[u8], location: PageLocation) -> Result<Self, CorruptPage> {
        verify(PageId::ROOT, bytes, &location)?;
        let (root, children) = decode_branch(PageKind::Root, PageId::ROOT, bytes)?;
        let mut frames = Frames::new();
        frames.set_location(PageId::ROOT, location);
        for child in &children {
            if !frames.claim(child.page, Body::InnerOut, child.location, PageId::ROOT) {
                return Err(CorruptPage { page: PageId::ROOT, reason: "it lists a page twice" });
            }
        }
        Ok(Self::with_root(root, frames, children.len()))
    }

    /// Inner pages yet to be installed, in key order.
    pub fn needs(&self) -> Vec<MissingPage> {
        self.root.children().filter_map(|id| self.frames.inner(id).err()).collect()
    }

    /// Brings a page into memory. Returns false, and does nothing, if it is there already or has moved. The bytes are
    /// then useless, and the operation that missed the page must be tried again.
    pub fn install(&mut self, id: PageId, location: &PageLocation, bytes: &[u8]) -> Result<bool, CorruptPage> {
        let Some(frame) = self.frames.get(id).filter(|frame| frame.location == Some(*location)) else {
            return Ok(false);
        };
        match frame.body {
            Body::LeafOut => {
                verify(id, bytes, location)?;
                self.frames.set_body(id, Body::Leaf(decode_leaf(id, bytes)?));
            }
            Body::InnerOut => {
                verify(id, bytes, location)?;
                self.install_inner(id, bytes)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn install_inner(&mut self, id: PageId, bytes: &[u8]) -> Result<(), CorruptPage> {
        let (branch, children) = decode_branch(PageKind::Inner, id, bytes)?;
        for child in &children {
            if !self.frames.claim(child.page, Body::LeafOut, child.location, id) {
                return Err(CorruptPage { page: id, reason: "it lists a page that is listed elsewhere" });
            }
        }
        self.frames.set_body(id, Body::Inner(branch));
        self.inners_out -= 1;
        if self.inners_out == 0 {
            self.frames.collect_free();
        }
        Ok(())
    }

    /// The pages that hold these keys and are not in memory, each once.
    pub fn missing_for<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Vec<MissingPage> {
        let missing = |key: K| self.descend(key.as_ref()).and_then(|path| self.frames.leaf(path.leaf).map(drop)).err();
        let mut pages: Vec<MissingPage> = keys.into_iter().filter_map(missing).collect();
        pages.sort_unstable();
        pages.dedup();
        pages
    }

    /// The pages that hold keys of `[from, to)` and are not in memory: at most `limit`, in key order.
    pub fn missing_in(&self, from: &[u8], to: &[u8], limit: usize) -> Vec<MissingPage> {
        self.leaves_of(from, to)
            .filter_map(|leaf| leaf.and_then(|id| self.frames.leaf(id).map(drop)).err())
            .take(limit)
            .collect()
    }
}

fn verify(page: PageId, bytes: &[u8], location: &PageLocation) -> Result<(), CorruptPage> {
    if bytes.len() != location.bytes as usize {
        return Err(CorruptPage { page, reason: "its length differs from what its parent says" });
    }
    if crc64(bytes) != location.sum {
        return Err(CorruptPage { page, reason: "its sum differs from what its parent says" });
    }
    Ok(())
}
