//! Values to encode, of every type of body, and the numbers that they are made of.

use std::{any::type_name, collections::BTreeMap, fmt::Debug};

use bytes::Bytes;
use forebay_proto::{
    Decode, DecodeError, Encode, ErrorReply, Fid, Uuid, WriteId,
    message::{Op, Operation},
};

use crate::{cluster, common, mds, oss};

/// A value's bytes, and its type's decoder.
pub struct Sample {
    pub bytes: Vec<u8>,
    /// The value, as `{:?}` prints it.
    pub words: String,
    pub decoder: Decoder,
}

/// Reads a body; returns the value as text, and its bytes when it is encoded again. Checks that these give the same
/// value.
pub type Decoder = fn(&[u8]) -> Result<Again, DecodeError>;

/// A decoded value as text, and its bytes when it is encoded again.
pub struct Again {
    pub words: String,
    pub bytes: Vec<u8>,
}

/// Samples by their names in the golden file: the type, with a number from the second value of a type on.
#[derive(Default)]
pub struct Samples {
    pub bodies: BTreeMap<String, Sample>,
    /// Operations, with the names of their requests and replies.
    pub operations: Vec<(Op, &'static str, &'static str)>,
}

impl Samples {
    /// Every operation's request and reply, and the error reply.
    pub fn all() -> Self {
        let mut samples = Self::default();
        common::add(&mut samples);
        cluster::add(&mut samples);
        mds::add(&mut samples);
        oss::add(&mut samples);
        samples.bodies("ErrorReply", vec![ErrorReply::new(forebay_proto::Errno(0x0403_0201), "what happened")]);
        samples
    }

    /// One operation: values of its request, and of its reply.
    pub fn exchange<O: Operation>(&mut self, requests: Vec<O>, replies: Vec<O::Reply>) {
        let (request, reply) = (short_name::<O>(), short_name::<O::Reply>());
        self.operations.push((O::OP, request, reply));
        self.bodies(request, requests);
        self.bodies(reply, replies);
    }

    fn bodies<T: Encode + Decode + Debug + PartialEq>(&mut self, name: &str, values: Vec<T>) {
        assert!(!values.is_empty(), "{name} has no value");
        for (number, value) in (1..).zip(values) {
            let name = if number == 1 { name.to_owned() } else { format!("{name} {number}") };
            let (bytes, words) = (value.to_bytes(), format!("{value:?}"));
            let sample = Sample { bytes: bytes.clone(), words, decoder: again::<T> };
            let before = self.bodies.insert(name.clone(), sample);
            assert!(before.is_none_or(|b| b.bytes == bytes), "{name} has two values");
        }
    }
}

fn short_name<T>() -> &'static str {
    type_name::<T>().rsplit("::").next().expect("a type has a name")
}

fn again<T: Encode + Decode + Debug + PartialEq>(bytes: &[u8]) -> Result<Again, DecodeError> {
    let value = crate::counted::within_proportion(bytes.len(), || T::from_bytes(bytes))?;
    let written = value.to_bytes();
    assert_eq!(T::from_bytes(&written).as_ref(), Ok(&value), "bytes of what was decoded are decoded to another value");
    assert!(written.len() <= bytes.len(), "{} bytes became a value of {}: {value:?}", bytes.len(), written.len());
    Ok(Again { words: format!("{value:?}"), bytes: written })
}

/// Values without zeros and duplicates, whose bytes all differ: the first byte is the value's number.
#[derive(Default)]
pub struct Numbers(u8);

impl Numbers {
    fn next(&mut self) -> u8 {
        self.0 += 1;
        assert!(self.0 < 0xa0, "a sample has fewer fields");
        self.0
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.next(), 0xe2])
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes([self.next(), 0xa2, 0xa3, 0xa4])
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes([self.next(), 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8])
    }

    /// Negative.
    pub fn i64(&mut self) -> i64 {
        i64::from_le_bytes([self.next(), 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7, 0xc8])
    }

    pub fn uuid(&mut self) -> Uuid {
        let mut bytes = std::array::from_fn(|i| 0xd1 + i as u8);
        bytes[0] = self.next();
        Uuid(bytes)
    }

    pub fn fid(&mut self) -> Fid {
        Fid { high: self.u64(), low: self.u64() }
    }

    pub fn write_id(&mut self) -> WriteId {
        WriteId { client: self.u64(), sequence: self.u64() }
    }

    pub fn text(&mut self) -> String {
        format!("text {}", self.next())
    }

    /// Not UTF-8.
    pub fn name(&mut self) -> Bytes {
        Bytes::from([b"name \xff ".as_slice(), &[self.next()]].concat())
    }
}
