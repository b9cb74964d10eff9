//! A key of the table, held inline.

use std::fmt;
use std::ops::Deref;

use super::limits::KEY_BYTES_MAX;

/// A key: up to [`KEY_BYTES_MAX`] bytes, compared as unsigned bytes, no allocation.
#[derive(Clone, Copy)]
pub struct Key {
    bytes: [u8; KEY_BYTES_MAX],
    length: u8,
}

impl Key {
    /// The key of these bytes. Panics when they are too many: callers build keys from fixed parts.
    pub fn new(bytes: &[u8]) -> Self {
        Self::join(bytes, &[])
    }

    /// The key `head` followed by `tail`.
    pub(super) fn join(head: &[u8], tail: &[u8]) -> Self {
        let length = head.len() + tail.len();
        assert!(length <= KEY_BYTES_MAX, "a key of {length} bytes; at most {KEY_BYTES_MAX} are allowed");
        let mut bytes = [0; KEY_BYTES_MAX];
        bytes[..head.len()].copy_from_slice(head);
        bytes[head.len()..length].copy_from_slice(tail);
        Self { bytes, length: length as u8 }
    }

    /// The shortest key above `left` and not above `right`. Needs `left < right`.
    pub(super) fn between(left: &[u8], right: &[u8]) -> Self {
        debug_assert!(left < right);
        Self::new(&right[..common_bytes(left, right) + 1])
    }
}

/// How many leading bytes two keys share.
pub(super) fn common_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

impl Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length as usize]
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_is_the_shortest_key_that_tells_two_apart() {
        assert_eq!(&*Key::between(b"abcd", b"abxyz"), b"abx");
        assert_eq!(&*Key::between(b"ab", b"abc"), b"abc");
        assert_eq!(&*Key::between(b"", b"xyz"), b"x");
    }

    #[test]
    fn keys_compare_as_their_bytes() {
        assert!(Key::new(b"a") < Key::new(b"a\0"));
        assert!(Key::new(b"\xff") > Key::new(b"a\0"));
        assert_eq!(Key::join(b"ab", b"c"), Key::new(b"abc"));
    }
}
