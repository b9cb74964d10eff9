//! The value of the row with all extended attributes of an inode (docs/format-mdt.md).

use bytes::Bytes;
use forebay_proto::{DecodeError, Reader};

use crate::{
    acl::{self, Acl, Acls},
    varint,
};

const VERSION: u8 = 1;

/// Names and values, sorted by name.
pub type List = Vec<(Bytes, Bytes)>;

/// Where an attribute is in the list, or belongs.
pub fn find(list: &List, name: &[u8]) -> Result<usize, usize> {
    list.binary_search_by(|(at, _)| at[..].cmp(name))
}

/// The access control lists among the attributes.
pub fn acls(list: &List) -> Result<Acls, DecodeError> {
    let decode = |name: &[u8]| find(list, name).ok().map(|at| Acl::decode(&list[at].1)).transpose();
    Ok(Acls { access: decode(acl::ACCESS)?, default: decode(acl::DEFAULT)? })
}

/// Appends the row's value.
pub fn encode(list: &List, out: &mut Vec<u8>) {
    out.push(VERSION);
    for (name, value) in list {
        out.push(name.len() as u8);
        out.extend_from_slice(name);
        varint::put(out, value.len() as u64);
        out.extend_from_slice(value);
    }
}

/// Reads the row's value.
pub fn decode(row: &Bytes) -> Result<List, DecodeError> {
    let mut r = Reader::new(row);
    if r.u8()? != VERSION {
        return Err(DecodeError::new("extended attributes: a version this program does not know"));
    }
    let mut list = List::new();
    while !r.is_empty() {
        let length = usize::from(r.u8()?);
        let name = row.slice_ref(r.take(length)?);
        let length = usize::try_from(varint::get(&mut r)?).map_err(|_| DecodeError::new("a value is too long"))?;
        list.push((name, row.slice_ref(r.take(length)?)));
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The golden bytes of docs/format-mdt.md.
    #[test]
    fn attributes_have_the_bytes_of_the_format() {
        let list = vec![("user.a".into(), "xy".into()), ("user.b".into(), Bytes::new())];
        let mut out = Vec::new();
        encode(&list, &mut out);
        assert_eq!(out, b"\x01\x06user.a\x02xy\x06user.b\x00");
        assert_eq!(decode(&out.into()), Ok(list));
        assert!(decode(&Bytes::from_static(b"\x01\x06use")).is_err());
    }
}
