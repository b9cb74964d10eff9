//! Variable-length integers of row values: seven bits per byte, low bits first. Signed ones use zigzag encoding.

use forebay_proto::{DecodeError, Fid, Reader, Transno};

/// Decodes an integer of at most ten bytes.
pub fn get(r: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = r.u8()?;
        if shift == 63 && byte > 1 {
            break;
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(DecodeError::new("an integer is longer than 64 bits"))
}

/// Decodes an integer of 32 bits.
pub fn get_u32(r: &mut Reader<'_>) -> Result<u32, DecodeError> {
    u32::try_from(get(r)?).map_err(|_| DecodeError::new("an integer is longer than 32 bits"))
}

/// Decodes a signed integer.
pub fn get_signed(r: &mut Reader<'_>) -> Result<i64, DecodeError> {
    let raw = get(r)?;
    Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
}

/// Decodes a fid: high word, low word.
pub fn get_fid(r: &mut Reader<'_>) -> Result<Fid, DecodeError> {
    Ok(Fid { high: get(r)?, low: get(r)? })
}

/// Decodes a transno: incarnation, counter.
pub fn get_transno(r: &mut Reader<'_>) -> Result<Transno, DecodeError> {
    let (incarnation, counter) = (get(r)?, get(r)?);
    if incarnation >= 1 << (64 - Transno::COUNTER_BITS) || counter >= 1 << Transno::COUNTER_BITS {
        return Err(DecodeError::new("a transno is out of bounds"));
    }
    Ok(Transno(incarnation << Transno::COUNTER_BITS | counter))
}

/// Appends an integer.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_the_format_page_are_read() {
        let read = |bytes: &[u8]| get(&mut Reader::new(bytes));
        assert_eq!(read(&[0xac, 2]), Ok(300));
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]), Ok(u64::MAX));
        assert!(read(&[0xff; 10]).is_err() && read(&[0x80]).is_err() && read(&[0x80; 11]).is_err());
        assert_eq!(get_signed(&mut Reader::new(&[3])), Ok(-2));
        assert_eq!(get_transno(&mut Reader::new(&[3, 5])), Ok(Transno(3 << 40 | 5)));
    }

    #[test]
    fn integers_survive_their_bytes() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            put(&mut out, value);
            assert_eq!(get(&mut Reader::new(&out)), Ok(value));
        }
    }
}
