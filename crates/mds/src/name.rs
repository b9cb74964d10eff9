//! Names: which ones are allowed.

use forebay_proto::{Errno, limits};

/// Refuses a name that no entry can have: empty, with '/' or NUL, or too long. Accepts `.` and `..`.
pub fn check_any(name: &[u8]) -> Result<(), Errno> {
    if name.len() > limits::NAME_BYTES {
        return Err(Errno::ENAMETOOLONG);
    }
    if name.is_empty() {
        return Err(Errno::ENOENT);
    }
    if name.iter().any(|byte| matches!(byte, 0 | b'/')) { Err(Errno::EINVAL) } else { Ok(()) }
}

/// Refuses what [`check_any`] refuses, and `.` and `..` with the errno `dots`.
pub fn check(name: &[u8], dots: Errno) -> Result<(), Errno> {
    check_any(name)?;
    if is_dots(name) { Err(dots) } else { Ok(()) }
}

/// `.` or `..`.
pub fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_255_bytes_pass_and_longer_ones_do_not() {
        assert_eq!(check_any(&[b'x'; 255]), Ok(()));
        assert_eq!(check_any(&[b'x'; 256]), Err(Errno::ENAMETOOLONG));
    }

    #[test]
    fn slashes_zeros_and_nothing_are_no_names() {
        assert_eq!(check_any(b""), Err(Errno::ENOENT));
        assert_eq!(check_any(b"a/b"), Err(Errno::EINVAL));
        assert_eq!(check_any(b"a\0b"), Err(Errno::EINVAL));
    }

    #[test]
    fn dots_are_refused_as_the_operation_wants() {
        assert_eq!(check(b".", Errno::EEXIST), Err(Errno::EEXIST));
        assert_eq!(check(b"..", Errno::ENOTEMPTY), Err(Errno::ENOTEMPTY));
        assert_eq!(check(b"...", Errno::EEXIST), Ok(()));
    }
}
