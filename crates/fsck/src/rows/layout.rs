//! Layouts in the rows of an MDT (docs/format-mdt.md).

use forebay_proto::{Component, DecodeError, FOR_EVER, Layout, Reader, limits};

use crate::format::varint;

/// Decodes a file's layout. The first component has an OST, the home.
pub fn decode(r: &mut Reader<'_>) -> Result<Layout, DecodeError> {
    let generation = varint::get_u32(r)?;
    let stripe_units = varint::get_u32(r)?;
    if stripe_units != 0 {
        let stripe_bytes = bytes_of(stripe_units)?;
        let osts = numbers(r)?;
        if osts.is_empty() {
            return Err(DecodeError::new("its stripe count is impossible"));
        }
        return Ok(Layout::plain(generation, stripe_bytes, osts));
    }
    let objects = match r.u8()? {
        0 => None,
        1 => Some(varint::get_fid(r)?),
        _ => return Err(DecodeError::new("whose objects it has is not known here")),
    };
    let former = numbers(r)?;
    let count = varint::get(r)?;
    if count == 0 || count > limits::COMPONENTS as u64 {
        return Err(DecodeError::new("its number of components is impossible"));
    }
    let mut components = Vec::new();
    let mut last_end = 0;
    for number in 1..=count {
        let end = varint::get(r)?;
        if (end == 0) != (number == count) || (end != 0 && end <= last_end) {
            return Err(DecodeError::new("the ends of its components do not ascend"));
        }
        let start = std::mem::replace(&mut last_end, end);
        let stripe_bytes = bytes_of(varint::get_u32(r)?)?;
        varint::get_u32(r)?; // stripes asked for
        wish(r)?;
        let osts = numbers(r)?;
        if number == 1 && osts.is_empty() {
            return Err(DecodeError::new("its first component has no OST"));
        }
        let end = if end == 0 { FOR_EVER } else { end };
        components.push(Component { start, end, ..Component::plain(stripe_bytes, osts) });
    }
    Ok(Layout { generation, objects, components, former })
}

fn bytes_of(units: u32) -> Result<u32, DecodeError> {
    let bytes = units.checked_mul(limits::STRIPE_BYTES_MIN).filter(|bytes| *bytes > 0);
    bytes.ok_or(DecodeError::new("its stripe size is impossible"))
}

/// Decodes a directory's default layout.
pub fn decode_default(r: &mut Reader<'_>) -> Result<(), DecodeError> {
    for _ in 0..2 {
        varint::get_u32(r)?;
    }
    wish(r)?;
    let count = varint::get(r)?;
    if count > limits::COMPONENTS as u64 {
        return Err(DecodeError::new("its number of components is impossible"));
    }
    for _ in 0..count {
        varint::get(r)?; // end
        for _ in 0..2 {
            varint::get_u32(r)?;
        }
        wish(r)?;
    }
    Ok(())
}

/// Skips the wanted first OST and pool.
fn wish(r: &mut Reader<'_>) -> Result<(), DecodeError> {
    varint::get_u32(r)?;
    let length = varint::get(r)?;
    check_pool(r.take(usize::try_from(length).unwrap_or(usize::MAX))?)
}

/// Checks the name of a pool.
pub fn check_pool(name: &[u8]) -> Result<(), DecodeError> {
    std::str::from_utf8(name).map(drop).map_err(|_| DecodeError::new("its pool's name is not UTF-8"))
}

fn numbers(r: &mut Reader<'_>) -> Result<Vec<u32>, DecodeError> {
    let count = varint::get(r)?;
    if count > limits::STRIPES as u64 {
        return Err(DecodeError::new("its stripe count is impossible"));
    }
    (0..count).map(|_| varint::get_u32(r)).collect()
}

/// Skips a list of numbers.
pub fn skip_numbers(r: &mut Reader<'_>) -> Result<(), DecodeError> {
    for _ in 0..varint::get(r)? {
        varint::get_u32(r)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use forebay_proto::Fid;

    use super::*;

    /// The examples in docs/format-mdt.md.
    #[test]
    fn the_golden_layouts_are_read() {
        assert_eq!(decode(&mut Reader::new(&[1, 16, 1, 2])), Ok(Layout::plain(1, 1 << 20, vec![2])));
        let composite = b"\x05\x00\x01\x00\x83\x80\x40\x01\x09\x02\x80\x80\x80\x20\x10\x07\x04\x05flash\x01\x03\x00\x10\x07\x04\x00\x00";
        let layout = decode(&mut Reader::new(composite)).unwrap();
        assert_eq!(
            (layout.objects, layout.osts(), layout.home()),
            (Some(Fid { high: 0, low: 0x10_0003 }), vec![3, 9], 3)
        );
        let ends: Vec<u64> = layout.components.iter().map(|component| component.end).collect();
        assert_eq!((layout.components[0].stripe_bytes, ends), (1 << 20, vec![64 << 20, FOR_EVER]));
        assert_eq!(layout.object_ends(5 << 20), [(3, 5 << 20), (9, 0)]);
        (0..composite.len()).for_each(|len| assert!(decode(&mut Reader::new(&composite[..len])).is_err()));
    }
}
