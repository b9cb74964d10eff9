//! Bounds-checked encoding and decoding of values.
//!
//! Little-endian. Structures of messages are length-prefixed ([`wire_struct!`]), so that an old reader skips a new
//! tail; features are negotiated at connect. A decoder never trusts a length: it allocates in proportion to the bytes
//! at hand.

use std::fmt;

use bytes::Bytes;

/// Malformed bytes; `what` names the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// Which field, and what is wrong with it.
    pub what: &'static str,
}

impl DecodeError {
    /// Names the field and what is wrong with it.
    pub const fn new(what: &'static str) -> Self {
        Self { what }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }
}

impl std::error::Error for DecodeError {}

/// A value that can be encoded.
pub trait Encode {
    /// Appends the value's bytes.
    fn encode(&self, w: &mut Writer);

    /// The value's bytes alone.
    fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(128);
        self.encode(&mut w);
        w.into_vec()
    }
}

/// A value that can be decoded from untrusted bytes.
pub trait Decode: Sized {
    /// Fewest bytes that any value takes; at least 1. A list's length is checked against it before memory is allocated.
    const BYTES_MIN: usize;

    /// Reads one value and moves past it.
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError>;

    /// Reads one value that takes up all of `bytes`.
    fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let value = Self::decode(&mut r)?;
        if !r.is_empty() {
            return Err(DecodeError::new("bytes follow the value"));
        }
        Ok(value)
    }
}

/// Collects bytes.
#[derive(Default)]
pub struct Writer {
    buf: Vec<u8>,
}

macro_rules! write_int {
    ($($name:ident)*) => {
        $(
            /// Appends the integer, little-endian.
            pub fn $name(&mut self, value: $name) {
                self.buf.extend_from_slice(&value.to_le_bytes());
            }
        )*
    };
}

impl Writer {
    write_int!(u8 u16 u32 u64 i64);

    /// With capacity for `bytes`, so that short messages are not moved while they grow.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { buf: Vec::with_capacity(bytes) }
    }

    /// Appends raw bytes without a length.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// Appends a length (u32) and the bytes.
    pub fn blob(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).expect("a blob is shorter than 4 GiB"));
        self.bytes(bytes);
    }

    /// Appends the output of `body`, preceded by its length (u32).
    pub fn prefixed(&mut self, body: impl FnOnce(&mut Writer)) {
        let at = self.buf.len();
        self.u32(0);
        body(self);
        let length = u32::try_from(self.buf.len() - at - 4).expect("a structure is shorter than 4 GiB");
        self.buf[at..at + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// True if nothing was written.
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// The bytes written so far.
    pub fn as_slice(&self) -> &[u8] {
        &self.buf
    }

    /// The bytes written.
    pub fn into_vec(self) -> Vec<u8> {
        self.buf
    }
}

/// Reads bytes from the front of a slice.
#[derive(Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

macro_rules! read_int {
    ($($name:ident)*) => {
        $(
            /// Reads the integer, little-endian.
            pub fn $name(&mut self) -> Result<$name, DecodeError> {
                self.array().map($name::from_le_bytes)
            }
        )*
    };
}

impl<'a> Reader<'a> {
    /// Reads from the front of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    read_int!(u8 u16 u32 u64 i64);

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(DecodeError::new("ends too early"))?;
        self.rest = rest;
        Ok(head)
    }

    /// The next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        Ok(self.take(N)?.try_into().expect("take returns the length asked for"))
    }

    /// A length (u32) and as many bytes.
    pub fn blob(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.u32()? as usize;
        self.take(length)
    }

    /// A reader of the next length-prefixed structure only.
    pub fn prefixed(&mut self) -> Result<Reader<'a>, DecodeError> {
        self.blob().map(Reader::new)
    }

    /// Bytes left.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// True if nothing is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

macro_rules! codec_int {
    ($($name:ident)*) => {
        $(
            impl Encode for $name {
                fn encode(&self, w: &mut Writer) {
                    w.$name(*self);
                }
            }

            impl Decode for $name {
                const BYTES_MIN: usize = size_of::<$name>();

                fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                    r.$name()
                }
            }
        )*
    };
}

codec_int!(u8 u16 u32 u64 i64);

impl Encode for bool {
    fn encode(&self, w: &mut Writer) {
        w.u8(u8::from(*self));
    }
}

impl Decode for bool {
    const BYTES_MIN: usize = 1;

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match r.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::new("a boolean is neither 0 nor 1")),
        }
    }
}

impl Encode for String {
    fn encode(&self, w: &mut Writer) {
        w.blob(self.as_bytes());
    }
}

impl Decode for String {
    const BYTES_MIN: usize = 4;

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        String::from_utf8(r.blob()?.to_vec()).map_err(|_| DecodeError::new("a text is not UTF-8"))
    }
}

impl Encode for Bytes {
    fn encode(&self, w: &mut Writer) {
        w.blob(self);
    }
}

impl Decode for Bytes {
    const BYTES_MIN: usize = 4;

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.blob().map(Bytes::copy_from_slice)
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, w: &mut Writer) {
        w.u32(u32::try_from(self.len()).expect("a list has fewer than 2^32 members"));
        self.iter().for_each(|item| item.encode(w));
    }
}

impl<T: Decode> Decode for Vec<T> {
    const BYTES_MIN: usize = 4;

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = r.u32()? as usize;
        if count > r.remaining() / T::BYTES_MIN {
            return Err(DecodeError::new("a list claims more members than there are bytes for"));
        }
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(T::decode(r)?);
        }
        Ok(items)
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, w: &mut Writer) {
        self.is_some().encode(w);
        if let Some(value) = self {
            value.encode(w);
        }
    }
}

impl<T: Decode> Decode for Option<T> {
    const BYTES_MIN: usize = 1;

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(if bool::decode(r)? { Some(T::decode(r)?) } else { None })
    }
}

/// Declares a structure with its codec: length-prefixed, fields in order. Bytes after the known fields are skipped.
#[macro_export]
macro_rules! wire_struct {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$fmeta:meta])* pub $field:ident : $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name { $($(#[$fmeta])* pub $field: $type,)* }

        impl $crate::Encode for $name {
            fn encode(&self, w: &mut $crate::Writer) {
                w.prefixed(|_w| { $($crate::Encode::encode(&self.$field, _w);)* });
            }
        }

        impl $crate::Decode for $name {
            const BYTES_MIN: usize = 4 $(+ <$type as $crate::Decode>::BYTES_MIN)*;

            fn decode(r: &mut $crate::Reader<'_>) -> Result<Self, $crate::DecodeError> {
                let mut _body = r.prefixed()?;
                Ok(Self { $($field: $crate::Decode::decode(&mut _body)?,)* })
            }
        }
    };
}
