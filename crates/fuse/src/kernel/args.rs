//! Decodes the arguments of a request, in the order in which the kernel wrote them.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

/// A request whose arguments do not fit its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Reads arguments in the machine's byte order.
pub(super) struct Args<'a>(pub &'a [u8]);

impl<'a> Args<'a> {
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_ne_bytes(self.bytes(4)?.try_into().expect("four bytes")))
    }

    pub fn i32(&mut self) -> Result<i32, Malformed> {
        Ok(self.u32()? as i32)
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_ne_bytes(self.bytes(8)?.try_into().expect("eight bytes")))
    }

    pub fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(self.u64()? as i64)
    }

    pub fn skip(&mut self, count: usize) -> Result<(), Malformed> {
        self.bytes(count).map(drop)
    }

    /// A name that ends with a zero byte.
    pub fn name(&mut self) -> Result<&'a OsStr, Malformed> {
        let length = self.0.iter().position(|byte| *byte == 0).ok_or(Malformed)?;
        let name = self.bytes(length)?;
        self.skip(1)?;
        Ok(OsStr::from_bytes(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_in_order_and_never_beyond_the_request() {
        let mut bytes = 7u32.to_ne_bytes().to_vec();
        bytes.extend((-3i64).to_ne_bytes());
        bytes.extend(b"one\0two\0rest");
        let mut args = Args(&bytes);
        assert_eq!((args.u32(), args.i64()), (Ok(7), Ok(-3)));
        assert_eq!((args.name(), args.name()), (Ok(OsStr::new("one")), Ok(OsStr::new("two"))));
        assert_eq!(args.name(), Err(Malformed), "no zero byte");
        assert_eq!(args.bytes(5), Err(Malformed));
        assert_eq!(args.bytes(4), Ok(&b"rest"[..]));
        assert_eq!(args.u32(), Err(Malformed));
    }
}
