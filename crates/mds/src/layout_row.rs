//! Layouts in the rows of inodes (docs/format-mdt.md).
//!
//! Invariant: a plain layout, which most files have, takes one byte each for generation, stripe size, stripe count and
//! OST.

use forebay_proto::{
    Component, DecodeError, FOR_EVER, Layout, Reader, limits,
    message::{ComponentSpec, LayoutSpec},
};

use crate::varint;

/// In the place of the stripe size: a layout that is not plain follows.
const COMPOSITE: u64 = 0;

/// Appends a file's layout.
pub fn encode(layout: &Layout, out: &mut Vec<u8>) {
    varint::put(out, layout.generation.into());
    if let Some(plain) = as_plain(layout) {
        varint::put(out, units(plain));
        return put_numbers(out, &plain.osts);
    }
    varint::put(out, COMPOSITE);
    out.push(layout.objects.is_some().into());
    layout.objects.iter().for_each(|fid| varint::put_fid(out, *fid));
    put_numbers(out, &layout.former);
    varint::put(out, layout.components.len() as u64);
    for component in &layout.components {
        put_end(out, component.end);
        varint::put(out, units(component));
        varint::put(out, component.stripe_count.into());
        put_wish(out, component.stripe_index, &component.pool);
        put_numbers(out, &component.osts);
    }
}

/// The only component of a plain layout; `None` for any other layout.
fn as_plain(layout: &Layout) -> Option<&Component> {
    let [only] = &layout.components[..] else { return None };
    let usual = only.stripe_count == only.osts.len() as u32 && only.stripe_index == u32::MAX && only.pool.is_empty();
    (usual && layout.objects.is_none() && layout.former.is_empty()).then_some(only)
}

fn units(component: &Component) -> u64 {
    (component.stripe_bytes / limits::STRIPE_BYTES_MIN).into()
}

/// Reads a file's layout.
pub fn decode(r: &mut Reader<'_>) -> Result<Layout, DecodeError> {
    let generation = varint::get_u32(r)?;
    let units = varint::get_u32(r)?;
    if u64::from(units) != COMPOSITE {
        let layout = Layout::plain(generation, bytes(units)?, get_numbers(r)?);
        layout.validate()?;
        return Ok(layout);
    }
    let objects = match r.u8()? {
        0 => None,
        1 => Some(varint::get_fid(r)?),
        _ => return Err(DecodeError::new("layout: neither objects of its own nor another's")),
    };
    let former = get_numbers(r)?;
    let count = varint::get(r)? as usize;
    if count > limits::COMPONENTS {
        return Err(DecodeError::new("layout: more components than there can be"));
    }
    let mut components: Vec<Component> = Vec::new();
    for _ in 0..count {
        let start = components.last().map_or(0, |last| last.end);
        let (end, stripe_bytes, stripe_count) = (get_end(r)?, bytes(varint::get_u32(r)?)?, varint::get_u32(r)?);
        let (stripe_index, pool) = get_wish(r)?;
        components.push(Component {
            start,
            end,
            stripe_bytes,
            stripe_count,
            stripe_index,
            pool,
            osts: get_numbers(r)?,
        });
    }
    let layout = Layout { generation, objects, components, former };
    layout.validate()?;
    Ok(layout)
}

/// Appends a directory's default layout.
pub fn encode_spec(spec: &LayoutSpec, out: &mut Vec<u8>) {
    varint::put(out, spec.stripe_count.into());
    varint::put(out, spec.stripe_bytes.into());
    put_wish(out, spec.stripe_index, &spec.pool);
    varint::put(out, spec.components.len() as u64);
    for component in &spec.components {
        put_end(out, component.end);
        varint::put(out, component.stripe_count.into());
        varint::put(out, component.stripe_bytes.into());
        put_wish(out, component.stripe_index, &component.pool);
    }
}

/// Reads a directory's default layout.
pub fn decode_spec(r: &mut Reader<'_>) -> Result<LayoutSpec, DecodeError> {
    let (stripe_count, stripe_bytes) = (varint::get_u32(r)?, varint::get_u32(r)?);
    let (stripe_index, pool) = get_wish(r)?;
    let count = varint::get(r)? as usize;
    if count > limits::COMPONENTS {
        return Err(DecodeError::new("default layout: more components than there can be"));
    }
    let mut components = Vec::new();
    for _ in 0..count {
        let (end, stripe_count, stripe_bytes) = (get_end(r)?, varint::get_u32(r)?, varint::get_u32(r)?);
        let (stripe_index, pool) = get_wish(r)?;
        components.push(ComponentSpec { end, stripe_count, stripe_bytes, stripe_index, pool });
    }
    Ok(LayoutSpec { stripe_count, stripe_bytes, stripe_index, pool, components })
}

/// A component without an end is stored as 0: no component ends there.
fn put_end(out: &mut Vec<u8>, end: u64) {
    varint::put(out, if end == FOR_EVER { 0 } else { end });
}

fn get_end(r: &mut Reader<'_>) -> Result<u64, DecodeError> {
    Ok(match varint::get(r)? {
        0 => FOR_EVER,
        end => end,
    })
}

/// First OST (0 = any, otherwise its index plus 1) and pool.
fn put_wish(out: &mut Vec<u8>, stripe_index: u32, pool: &str) {
    varint::put(out, stripe_index.wrapping_add(1).into());
    varint::put(out, pool.len() as u64);
    out.extend_from_slice(pool.as_bytes());
}

fn get_wish(r: &mut Reader<'_>) -> Result<(u32, String), DecodeError> {
    let stripe_index = varint::get_u32(r)?.wrapping_sub(1);
    let length = varint::get(r)? as usize;
    let pool = std::str::from_utf8(r.take(length)?).map_err(|_| DecodeError::new("a pool's name is not UTF-8"))?;
    Ok((stripe_index, pool.into()))
}

fn put_numbers(out: &mut Vec<u8>, numbers: &[u32]) {
    varint::put(out, numbers.len() as u64);
    numbers.iter().for_each(|number| varint::put(out, (*number).into()));
}

fn get_numbers(r: &mut Reader<'_>) -> Result<Vec<u32>, DecodeError> {
    let count = varint::get(r)? as usize;
    if count > limits::STRIPES {
        return Err(DecodeError::new("layout: more stripes than there can be"));
    }
    (0..count).map(|_| varint::get_u32(r)).collect()
}

fn bytes(units: u32) -> Result<u32, DecodeError> {
    units.checked_mul(limits::STRIPE_BYTES_MIN).ok_or(DecodeError::new("layout: the stripe size is out of bounds"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_proto::Fid;

    fn composite() -> Layout {
        let part = |start, end, pool: &str, osts: &[u32]| Component {
            start,
            end,
            pool: pool.into(),
            stripe_index: 3,
            stripe_count: 7,
            ..Component::plain(1 << 20, osts.to_vec())
        };
        let components = vec![part(0, 64 << 20, "flash", &[3]), part(64 << 20, FOR_EVER, "", &[])];
        Layout { generation: 5, objects: Some(Fid { high: 0, low: 0x10_0003 }), components, former: vec![9] }
    }

    fn round_trip(layout: &Layout) -> Vec<u8> {
        let mut out = Vec::new();
        encode(layout, &mut out);
        assert_eq!(decode(&mut Reader::new(&out)).as_ref(), Ok(layout));
        (0..out.len()).for_each(|len| assert!(decode(&mut Reader::new(&out[..len])).is_err()));
        out
    }

    #[test]
    fn every_layout_survives_its_bytes() {
        round_trip(&composite());
        round_trip(&Layout { objects: None, former: Vec::new(), ..composite() });
        let mut pooled = Layout::plain(1, 1 << 20, vec![1, 2]);
        pooled.components[0].pool = "p".into();
        round_trip(&pooled);
    }

    /// The golden bytes of docs/format-mdt.md.
    #[test]
    fn layouts_have_the_bytes_of_the_format() {
        assert_eq!(round_trip(&Layout::plain(1, 1 << 20, vec![2])), [1, 16, 1, 2]);
        let expected = b"\x05\x00\x01\x00\x83\x80\x40\x01\x09\x02\x80\x80\x80\x20\x10\x07\x04\x05flash\x01\x03\x00\x10\x07\x04\x00\x00";
        assert_eq!(round_trip(&composite()), expected);
    }

    #[test]
    fn a_default_layout_survives_its_bytes() {
        let part = |end| ComponentSpec { end, stripe_count: 4, stripe_bytes: 0, stripe_index: 1, pool: "p".into() };
        let plain = LayoutSpec { stripe_count: u32::MAX, stripe_bytes: 1 << 20, ..LayoutSpec::inherit() };
        let composite = LayoutSpec { components: vec![part(1 << 20), part(FOR_EVER)], ..LayoutSpec::inherit() };
        for spec in [plain, composite] {
            let mut out = Vec::new();
            encode_spec(&spec, &mut out);
            assert_eq!(decode_spec(&mut Reader::new(&out)), Ok(spec));
            (0..out.len()).for_each(|len| assert!(decode_spec(&mut Reader::new(&out[..len])).is_err()));
        }
    }
}
