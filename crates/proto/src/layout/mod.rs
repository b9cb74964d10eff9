//! How a file's bytes map to objects.
//!
//! A layout is a list of components over `[start, end)`, each striped round-robin over OSTs of its own. All objects of
//! one file carry the same fid, and are distinguished by the OST that they lie on. Components that share an OST share
//! the object: each uses only object offsets within its own `[start, end)` (see `component`).
//!
//! Invariant: the components follow each other from byte 0 to [`FOR_EVER`]. The first has OSTs, and the first of those
//! (the *home*) keeps the file's size.
//! Invariant: a component without OSTs has never been written: it is a hole until the MDT chooses OSTs for it.

mod component;

pub use component::{Component, StripePiece};

use crate::{Decode, DecodeError, Encode, Fid, Reader, Writer, limits};

/// The end of the last component.
pub const FOR_EVER: u64 = u64::MAX;

/// What a layout maps bytes by. One kind so far. The client's plan and [`Layout::home`] ask for the kind;
/// all else assumes stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutKind<'a> {
    /// Components, each striped round-robin over OSTs of its own.
    Striped(&'a [Component]),
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Raised whenever the layout changes.
    pub generation: u32,
    /// The fid of the objects, if it is not the file's own: they belonged to another file until the two exchanged
    /// objects.
    pub objects: Option<Fid>,
    /// In order.
    pub components: Vec<Component>,
    /// OSTs that no component names any more: their objects are empty, and refuse clients that have an older layout.
    pub former: Vec<u32>,
}

impl Layout {
    /// One component for all of the file.
    pub fn plain(generation: u32, stripe_bytes: u32, osts: Vec<u32>) -> Self {
        Self { generation, objects: None, components: vec![Component::plain(stripe_bytes, osts)], former: Vec::new() }
    }

    /// Checks the invariants.
    pub fn validate(&self) -> Result<(), DecodeError> {
        let (Some(first), Some(last)) = (self.components.first(), self.components.last()) else {
            return Err(DecodeError::new("layout: it has no component"));
        };
        if self.components.len() > limits::COMPONENTS || self.former.len() > limits::STRIPES {
            return Err(DecodeError::new("layout: more components or former OSTs than there can be"));
        }
        if first.start != 0 || last.end != FOR_EVER || !first.has_osts() {
            return Err(DecodeError::new("layout: it does not cover all of the file from a first object on"));
        }
        if self.components.windows(2).any(|pair| pair[0].end != pair[1].start) {
            return Err(DecodeError::new("layout: its components do not follow each other"));
        }
        self.components.iter().try_for_each(Component::validate)
    }

    /// How it maps bytes to objects.
    pub fn kind(&self) -> LayoutKind<'_> {
        LayoutKind::Striped(&self.components)
    }

    /// The OST that keeps the file's size, and decides where an append lies.
    pub fn home(&self) -> u32 {
        match self.kind() {
            LayoutKind::Striped(components) => components[0].osts[0],
        }
    }

    /// The fid under which the OSTs know the objects of `file`.
    pub fn objects_of(&self, file: Fid) -> Fid {
        self.objects.unwrap_or(file)
    }

    /// Every OST that may have an object, each once, the home first.
    pub fn osts(&self) -> Vec<u32> {
        let all = self.components.iter().flat_map(|component| &component.osts).chain(&self.former);
        let mut osts = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        all.filter(|ost| seen.insert(**ost)).for_each(|ost| osts.push(*ost));
        osts
    }

    /// Position of the component that `offset` lies in.
    pub fn component_at(&self, offset: u64) -> usize {
        self.components.partition_point(|component| component.end <= offset).min(self.components.len() - 1)
    }

    /// The components that overlap `[offset, offset + length)`, with their positions.
    pub fn touched(&self, offset: u64, length: u64) -> impl Iterator<Item = (usize, &Component)> {
        let end = offset.saturating_add(length);
        let first = self.component_at(offset);
        let components = self.components.iter().enumerate().skip(first);
        components.take_while(move |(_, component)| length > 0 && component.start < end)
    }

    /// Cuts `[offset, offset + length)` at stripe boundaries, in file order, without the parts that have no OSTs.
    /// Pieces that are adjacent in the same object (stripe count 1) are merged.
    pub fn pieces(&self, offset: u64, length: u64) -> Vec<StripePiece> {
        let mut pieces = Vec::new();
        for (number, component) in self.touched(offset, length).filter(|(_, component)| component.has_osts()) {
            component.add_pieces(number, offset, length, &mut pieces);
        }
        pieces
    }

    /// The first part of `[offset, offset + length)` that has no OSTs: start and length.
    pub fn first_gap(&self, offset: u64, length: u64) -> Option<(u64, u64)> {
        self.gaps(offset, length).into_iter().next()
    }

    /// The parts of `[offset, offset + length)` that have no OSTs: start and length of each.
    pub fn gaps(&self, offset: u64, length: u64) -> Vec<(u64, u64)> {
        let end = offset.saturating_add(length);
        let bare = self.touched(offset, length).filter(|(_, component)| !component.has_osts());
        bare.map(|(_, component)| (component.start.max(offset), component.end.min(end)))
            .map(|(from, to)| (from, to - from))
            .collect()
    }

    /// True if all of `[offset, offset + length)` lies in the home's object.
    pub fn is_at_home(&self, offset: u64, length: u64) -> bool {
        let home = self.home();
        self.touched(offset, length).all(|(_, component)| component.osts == [home])
    }

    /// End of each OST's object when the file is `file_bytes` long.
    pub fn object_ends(&self, file_bytes: u64) -> Vec<(u32, u64)> {
        let mut ends: Vec<(u32, u64)> = self.osts().into_iter().map(|ost| (ost, 0)).collect();
        let at: std::collections::BTreeMap<u32, usize> =
            ends.iter().enumerate().map(|(at, (ost, _))| (*ost, at)).collect();
        for component in &self.components {
            for (stripe, ost) in component.osts.iter().enumerate() {
                let end = &mut ends[at[ost]].1;
                *end = (*end).max(component.object_end(stripe, file_bytes));
            }
        }
        ends
    }
}

/// The number of [`LayoutKind::Striped`] on the wire and on disk.
const STRIPED: u8 = 1;

impl Encode for Layout {
    fn encode(&self, w: &mut Writer) {
        w.prefixed(|w| {
            w.u8(STRIPED);
            w.u32(self.generation);
            self.objects.encode(w);
            self.components.encode(w);
            self.former.encode(w);
        });
    }
}

impl Decode for Layout {
    const BYTES_MIN: usize = 4 + 1 + 4 + 1 + 4 + 4;

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut body = r.prefixed()?;
        if body.u8()? != STRIPED {
            return Err(DecodeError::new("layout: a kind this version does not know"));
        }
        let layout = Self {
            generation: body.u32()?,
            objects: Option::decode(&mut body)?,
            components: Vec::decode(&mut body)?,
            former: Vec::decode(&mut body)?,
        };
        layout.validate()?;
        Ok(layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(count: u32) -> Layout {
        Layout::plain(1, 64 << 10, (10..10 + count).collect())
    }

    /// 192 KiB on one OST, about 1.1 MiB without OSTs, then three OSTs, one of them the first again.
    pub(super) fn composite() -> Layout {
        let part = |start, end, osts: &[u32]| Component { start, end, ..Component::plain(64 << 10, osts.to_vec()) };
        let components =
            vec![part(0, 192 << 10, &[5]), part(192 << 10, 1_300_000, &[]), part(1_300_000, FOR_EVER, &[7, 5, 6])];
        Layout { components, ..layout(1) }
    }

    #[test]
    fn pieces_cover_the_range_once_and_map_back() {
        for (layout, offset) in [(layout(3), 100_000), (composite(), 1_290_000), (composite(), 100)] {
            let pieces = layout.pieces(offset, 500_000);
            let mut at = offset;
            let mut gaps = layout.gaps(offset, 500_000).into_iter();
            for piece in &pieces {
                if piece.file_offset != at {
                    let (start, length) = gaps.next().unwrap();
                    assert_eq!((start, start + length), (at, piece.file_offset));
                    at = piece.file_offset;
                }
                let component = &layout.components[piece.component];
                assert_eq!(component.file_offset(piece.stripe, piece.object_offset), at);
                assert_eq!(piece.ost, component.osts[piece.stripe]);
                at += piece.length;
            }
            assert_eq!(at + gaps.next().map_or(0, |(_, length)| length), offset + 500_000);
        }
    }

    #[test]
    fn components_that_share_an_object_never_share_its_bytes() {
        let layout = composite();
        let mut used: Vec<(u32, u64, u64)> =
            layout.pieces(0, 3 << 20).iter().map(|piece| (piece.ost, piece.object_offset, piece.length)).collect();
        used.sort_unstable();
        for pair in used.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
            assert!(pair[0].1 + pair[0].2 <= pair[1].1, "{pair:?}");
        }
        for piece in layout.pieces(0, 3 << 20) {
            let component = &layout.components[piece.component];
            assert!((component.start..component.end).contains(&piece.object_offset), "{piece:?}");
        }
    }

    #[test]
    fn objects_end_where_the_last_byte_of_the_file_in_them_lies() {
        for layout in [layout(4), composite()] {
            for bytes in [0, 1, 65_536, 65_537, 196_608, 262_145, 1_000_000, 1_300_001, 1_400_000, 2_000_000] {
                for (ost, end) in layout.object_ends(bytes) {
                    let pieces = layout.pieces(0, bytes);
                    let own = pieces.iter().filter(|piece| piece.ost == ost);
                    assert_eq!(own.map(|piece| piece.object_offset + piece.length).max().unwrap_or(0), end, "{bytes}");
                }
            }
        }
    }

    #[test]
    fn a_range_in_the_first_stripe_lies_at_the_home_alone() {
        let layout = composite();
        assert!(layout.is_at_home(0, 192 << 10) && !layout.is_at_home(0, 200 << 10));
        assert!(!layout.is_at_home(2 << 20, 1));
        assert_eq!((layout.home(), layout.osts()), (5, vec![5, 7, 6]));
        assert_eq!(layout.first_gap(0, 1 << 40), Some((192 << 10, 1_300_000 - (192 << 10))));
        assert_eq!((layout.component_at(u64::MAX), layout.component_at(196_608)), (2, 1));
    }

    #[test]
    fn a_layout_survives_its_bytes_and_a_bad_one_is_refused() {
        for good in [layout(2), composite(), Layout { objects: Some(Fid::ROOT), former: vec![9], ..composite() }] {
            assert_eq!(Layout::from_bytes(&good.to_bytes()), Ok(good.clone()));
        }
        let bad = |change: fn(&mut Layout)| {
            let mut layout = composite();
            change(&mut layout);
            assert!(Layout::from_bytes(&layout.to_bytes()).is_err(), "{layout:?}");
        };
        bad(|layout| layout.components[0].stripe_bytes = 1000);
        bad(|layout| layout.components[2].osts = vec![3, 4, 3]);
        bad(|layout| layout.components[0].osts.clear());
        bad(|layout| layout.components[1].start += 1);
        bad(|layout| layout.components[2].end = 1 << 50);
        bad(|layout| layout.components.clear());
    }
}
