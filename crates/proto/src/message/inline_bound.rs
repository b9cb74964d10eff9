//! Inline bounds of directories and files, and their encoding in attributes, rows and extended attributes.

use super::{Attr, attr_flags};
use crate::{limits::INLINE_BYTES, sizes::parse_size};

/// The extended attribute that gives a file or directory an inline bound of its own: [`InlineBound::name`].
pub const INLINE_XATTR: &[u8] = b"user.forebay.inline";

/// Largest file that is kept inline at the MDT: whole KiB, [`INLINE_BYTES`] at most. 0: none is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineBound {
    kib: u8,
}

impl InlineBound {
    /// `None`: it is above [`INLINE_BYTES`], or not whole KiB.
    pub const fn new(bytes: u64) -> Option<Self> {
        let fits = bytes <= INLINE_BYTES as u64 && bytes.is_multiple_of(1024);
        if fits { Some(Self { kib: (bytes / 1024) as u8 }) } else { None }
    }

    /// In bytes.
    pub const fn bytes(self) -> usize {
        self.kib as usize * 1024
    }

    /// The bound as it is shown to users; they may write it as any size.
    pub fn name(self) -> String {
        if self.kib == 0 { "0".into() } else { format!("{}KiB", self.kib) }
    }

    /// Parses a size. `None`: it is not a valid bound.
    pub fn named(size: &str) -> Option<Self> {
        parse_size(size).and_then(Self::new)
    }

    /// Its code in attributes and in an inode's row, where 0 means no bound: its KiB plus one.
    pub const fn code(self) -> u8 {
        self.kib + 1
    }

    /// The bound with this code.
    pub fn from_code(code: u8) -> Option<Self> {
        code.checked_sub(1).and_then(|kib| Self::new(u64::from(kib) * 1024))
    }
}

/// Lowest bit of [`attr_flags::INLINE_BOUND`].
const SHIFT: u32 = attr_flags::INLINE_BOUND.trailing_zeros();

/// [`Attr::inline_bound`] as encoded in [`Attr::flags`]: 0 is none, else its code.
pub fn inline_bound_flags(bound: Option<InlineBound>) -> u32 {
    bound.map_or(0, |bound| u32::from(bound.code()) << SHIFT)
}

impl Attr {
    /// The inode's own inline bound; none: the mount's applies.
    pub fn inline_bound(&self) -> Option<InlineBound> {
        InlineBound::from_code(((self.flags & attr_flags::INLINE_BOUND) >> SHIFT) as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fid;

    fn all() -> impl Iterator<Item = InlineBound> {
        (0..=16).map(|kib| InlineBound::new(kib << 10).expect("it is one"))
    }

    #[test]
    fn names_and_codes_lead_back_to_their_bound() {
        for (kib, bound) in all().enumerate() {
            assert_eq!((bound.bytes(), usize::from(bound.code())), (kib << 10, kib + 1));
            assert_eq!(InlineBound::named(&bound.name()), Some(bound));
            assert_eq!(InlineBound::from_code(bound.code()), Some(bound));
        }
        assert_eq!([0, 18, 31, 255].map(InlineBound::from_code), [None; 4]);
    }

    #[test]
    fn a_bound_is_any_size_of_whole_kib_up_to_16() {
        for (size, name) in [("0", "0"), ("0KiB", "0"), ("1024", "1KiB"), ("3k", "3KiB"), ("16384", "16KiB")] {
            assert_eq!(InlineBound::named(size).map(InlineBound::name).as_deref(), Some(name), "{size}");
        }
        for wrong in ["", "512", "1000", "4KB", "17KiB", "1M", "inherit", "4KiB ", "4KiB\0", "-1", "99999999999G"] {
            assert_eq!(InlineBound::named(wrong), None, "{wrong:?}");
        }
    }

    /// The bits of docs/protocol.md.
    #[test]
    fn attributes_carry_a_bound_beside_their_other_flags() {
        let attr = |flags| Attr {
            fid: Fid::ROOT,
            mode: 0,
            nlink: 0,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            atime_ns: 0,
            mtime_ns: 0,
            ctime_ns: 0,
            btime_ns: 0,
            truncate_epoch: 0,
            attr_epoch: 0,
            flags,
        };
        let [none, four, most] = [0, 4 << 10, 16 << 10].map(InlineBound::new);
        for (bound, bits) in [(None, 0), (none, 256), (four, 1280), (most, 4352)] {
            assert_eq!(inline_bound_flags(bound), bits);
            for others in [0, 255, !attr_flags::INLINE_BOUND] {
                assert_eq!(attr(bits | others).inline_bound(), bound);
            }
        }
    }
}
