//! The table as recovery would produce it: the checkpoint's pages, read one leaf at a time, with the journal's redo on
//! top.
//!
//! Invariant: rows come in the order of their keys, each once. An unreadable page is reported and skipped.

use std::ops::Bound;

use bytes::Bytes;

use crate::{
    FsckResult,
    finding::{Device, Finding, Kind, Place},
    format::{
        Location,
        identity::Identity,
        page::{self, Child, PageKind},
    },
    journal::Overlay,
    limits,
    media::Media,
    slabs::Slabs,
};

/// What a walk of the table needs.
pub(crate) struct Source<'a> {
    pub(crate) media: &'a Media,
    pub(crate) identity: &'a Identity,
    pub(crate) slabs: &'a Slabs,
    pub(crate) overlay: &'a Overlay,
    pub(crate) root: Option<Location>,
}

/// A row: its value at the checkpoint, and its current value.
pub(crate) struct TableRow {
    pub(crate) key: Vec<u8>,
    pub(crate) base: Option<Bytes>,
    pub(crate) live: Option<Bytes>,
}

/// A page that the walk visited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LivePage {
    pub(crate) page: u64,
    pub(crate) location: Location,
}

/// A child page with the range of keys that it may hold.
struct Bounded {
    child: Child,
    from: Vec<u8>,
    to: Option<Vec<u8>>,
}

/// A walk over all rows.
pub(crate) struct Walk<'a> {
    source: &'a Source<'a>,
    pub(crate) findings: Vec<Finding>,
    /// Pages visited; the caller takes them.
    pub(crate) pages: Vec<LivePage>,
    /// True if a page could not be read.
    pub(crate) incomplete: bool,
    seen: PageSet,
    inner: std::vec::IntoIter<Bounded>,
    leaves: std::vec::IntoIter<Bounded>,
    rows: std::iter::Peekable<std::vec::IntoIter<page::Row>>,
    changed: Option<Vec<u8>>,
}

impl<'a> Walk<'a> {
    /// Starts at the root.
    pub(crate) async fn begin(source: &'a Source<'a>) -> FsckResult<Self> {
        let mut walk = Self {
            source,
            findings: Vec::new(),
            pages: Vec::new(),
            incomplete: false,
            seen: PageSet::default(),
            inner: Vec::new().into_iter(),
            leaves: Vec::new().into_iter(),
            rows: Vec::new().into_iter().peekable(),
            changed: None,
        };
        if let Some(location) = source.root {
            let root = Child { separator: Vec::new(), page: 0, location };
            let root = Bounded { child: root, from: Vec::new(), to: None };
            walk.inner = walk.children(PageKind::Root, root).await?.into_iter();
        }
        Ok(walk)
    }

    /// The next row in key order.
    pub(crate) async fn next(&mut self) -> FsckResult<Option<TableRow>> {
        self.fill().await?;
        let overlay = self.source.overlay;
        let from = self.changed.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let changed = overlay.range::<Vec<u8>, _>((from, Bound::Unbounded)).next();
        let base_key = self.rows.peek().map(|(key, _)| key.clone());
        let takes_base = match (&base_key, changed) {
            (None, None) => return Ok(None),
            (Some(base), Some((key, _))) => base <= key,
            (base, _) => base.is_some(),
        };
        let takes_change = changed.filter(|(key, _)| !takes_base || base_key.as_ref() == Some(key));
        let takes_change = takes_change.map(|(key, value)| (key.clone(), value.clone()));
        let base = if takes_base { self.rows.next() } else { None };
        if let Some((key, live)) = takes_change {
            self.changed = Some(key.clone());
            return Ok(Some(TableRow { key, base: base.map(|(_, value)| value), live }));
        }
        Ok(base.map(|(key, value)| TableRow { key, base: Some(value.clone()), live: Some(value) }))
    }

    /// Reads leaves until there is a row, or no leaf is left.
    async fn fill(&mut self) -> FsckResult<()> {
        while self.rows.peek().is_none() {
            if let Some(leaf) = self.leaves.next() {
                self.rows = self.leaf(leaf).await?.into_iter().peekable();
            } else if let Some(inner) = self.inner.next() {
                self.leaves = self.children(PageKind::Inner, inner).await?.into_iter();
            } else {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn leaf(&mut self, leaf: Bounded) -> FsckResult<Vec<page::Row>> {
        let Some(bytes) = self.page_bytes(&leaf.child, "leaf").await? else { return Ok(Vec::new()) };
        let rows = match page::decode_leaf(leaf.child.page, leaf.child.location.sum, &bytes) {
            Ok(rows) => rows,
            Err(what) => return Ok(self.lost(&leaf.child, "leaf", what)),
        };
        let outside = rows.iter().filter(|(key, _)| !leaf.may_hold(key)).count();
        if outside > 0 {
            let words = format!("{outside} rows of page {} lie outside of the keys it is listed for", leaf.child.page);
            self.findings.push(Finding::error(Kind::PageOrder, self.place(&leaf.child), words));
        }
        Ok(rows.into_iter().filter(|(key, _)| leaf.may_hold(key)).collect())
    }

    async fn children(&mut self, kind: PageKind, parent: Bounded) -> FsckResult<Vec<Bounded>> {
        let name = if kind == PageKind::Root { "root" } else { "inner" };
        let Some(bytes) = self.page_bytes(&parent.child, name).await? else { return Ok(Vec::new()) };
        let children = match page::decode_branch(kind, parent.child.page, parent.child.location.sum, &bytes) {
            Ok(children) => children,
            Err(what) => return Ok(self.lost(&parent.child, name, what)),
        };
        if children[1..].iter().any(|child| child.separator <= parent.from || !parent.may_hold(&child.separator)) {
            let words = format!("separators of page {} lie outside of the keys it is listed for", parent.child.page);
            self.findings.push(Finding::error(Kind::PageOrder, self.place(&parent.child), words));
        }
        let ends: Vec<_> = children[1..].iter().map(|child| Some(child.separator.clone())).collect();
        let ends = ends.into_iter().chain([parent.to.clone()]);
        let bounded = children.into_iter().zip(ends).enumerate().map(|(index, (child, to))| {
            let from = if index == 0 { parent.from.clone() } else { child.separator.clone() };
            Bounded { child, from, to }
        });
        Ok(bounded.collect())
    }

    /// The page's bytes, if its location is possible and readable.
    async fn page_bytes(&mut self, child: &Child, name: &str) -> FsckResult<Option<Bytes>> {
        let Child { page, location, .. } = child;
        if !self.seen.insert(*page) {
            let words = format!("page {page} is listed twice");
            self.findings.push(Finding::error(Kind::PageOrder, self.place(child), words));
            self.incomplete = true;
            return Ok(None);
        }
        if let Err(what) = check_place(self.source, location) {
            self.lost::<()>(child, name, &what);
            return Ok(None);
        }
        if self.source.slabs.epoch(location.slab) != Some(location.epoch) {
            let words = format!("page {page} lies in slab {}, which is not in the opening it names", location.slab);
            let got = describe_epoch(self.source.slabs, location.slab);
            let finding = Finding::error(Kind::SlabHeader, self.place(child), words);
            self.findings.push(finding.with(format!("epoch {}", location.epoch), got));
        }
        self.pages.push(LivePage { page: *page, location: *location });
        let offset = self.source.identity.device_offset(location.slab, location.at);
        match self.source.media.read(Device::Data, offset, location.bytes).await? {
            Ok(bytes) => Ok(Some(bytes)),
            Err(words) => {
                self.lost::<()>(child, name, &words);
                Ok(None)
            }
        }
    }

    fn lost<T>(&mut self, child: &Child, name: &str, what: &str) -> Vec<T> {
        self.incomplete = true;
        let words = format!("{name} page {} cannot be used: {what}", child.page);
        self.findings.push(Finding::error(Kind::Page, self.place(child), words));
        Vec::new()
    }

    fn place(&self, child: &Child) -> Place {
        place_of(self.source.identity, &child.location)
    }
}

impl Bounded {
    fn may_hold(&self, key: &[u8]) -> bool {
        key >= self.from.as_slice() && self.to.as_ref().is_none_or(|to| key < to.as_slice())
    }
}

/// The device offset of a location.
pub(crate) fn place_of(identity: &Identity, location: &Location) -> Place {
    let slab = location.slab.min(identity.slab_count());
    Place::Device(Device::Data, identity.device_offset(slab, location.at.min(identity.slab_bytes)))
}

/// Describes what is at a slab's beginning.
pub(crate) fn describe_epoch(slabs: &Slabs, slab: u32) -> String {
    use crate::format::device::Header;
    match slabs.states.get(slab as usize) {
        Some(Header::Intact(header)) => format!("epoch {}", header.epoch),
        Some(Header::Blank) => "a slab that was never opened".into(),
        Some(Header::Foreign(uuid)) => format!("a slab of target {uuid}"),
        Some(Header::Damaged(what)) => format!("a damaged header: {what}"),
        None => "no such slab".into(),
    }
}

/// A location must be in a slab, behind its header.
pub(crate) fn check_place(source: &Source<'_>, location: &Location) -> Result<(), String> {
    if location.slab >= source.identity.slab_count() {
        return Err(format!("slab {} does not exist", location.slab));
    }
    let end = location.at.checked_add(location.bytes);
    let within = location.at >= limits::SECTOR && end.is_some_and(|end| end <= source.identity.slab_bytes);
    if !within || location.bytes == 0 || location.bytes > limits::ROOT_BYTES {
        return Err(format!("{} bytes at {} do not lie in a slab", location.bytes, location.at));
    }
    Ok(())
}

/// The set of page numbers visited.
#[derive(Default)]
struct PageSet(Vec<u64>);

impl PageSet {
    /// Inserts a page; true if it is new.
    fn insert(&mut self, page: u64) -> bool {
        let (word, bit) = ((page.min(limits::PAGES) / 64) as usize, page % 64);
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        let new = self.0[word] >> bit & 1 == 0;
        self.0[word] |= 1 << bit;
        new
    }
}
