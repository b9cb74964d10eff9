//! Compact integers of row values: LEB128, zigzag for signed ones.
//!
//! Invariant: a reader takes at most 10 bytes for one integer and refuses bits beyond the 64th.

use forebay_proto::{DecodeError, Fid, Reader, Transno};

/// Appends `value`.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed `value`; small magnitudes stay short.
pub fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Appends a fid: high word, low word.
pub fn put_fid(out: &mut Vec<u8>, fid: Fid) {
    put(out, fid.high);
    put(out, fid.low);
}

/// Appends a transno as incarnation and counter: together shorter than the number itself.
pub fn put_transno(out: &mut Vec<u8>, transno: Transno) {
    put(out, transno.0 >> Transno::COUNTER_BITS);
    put(out, transno.0 & ((1 << Transno::COUNTER_BITS) - 1));
}

/// Reads one integer.
pub fn get(r: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let mut value = 0;
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

/// Reads an integer that fits in 32 bits.
pub fn get_u32(r: &mut Reader<'_>) -> Result<u32, DecodeError> {
    u32::try_from(get(r)?).map_err(|_| DecodeError::new("an integer is longer than 32 bits"))
}

/// Reads a signed integer.
pub fn get_signed(r: &mut Reader<'_>) -> Result<i64, DecodeError> {
    let raw = get(r)?;
    Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
}

/// Reads a fid.
pub fn get_fid(r: &mut Reader<'_>) -> Result<Fid, DecodeError> {
    Ok(Fid { high: get(r)?, low: get(r)? })
}

/// Reads a transno.
pub fn get_transno(r: &mut Reader<'_>) -> Result<Transno, DecodeError> {
    let (incarnation, counter) = (get(r)?, get(r)?);
    if incarnation >> 24 != 0 || counter >> Transno::COUNTER_BITS != 0 {
        return Err(DecodeError::new("a transno is out of bounds"));
    }
    Ok(Transno(incarnation << Transno::COUNTER_BITS | counter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_come_back() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), 1 << 62, u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put(&mut out, value);
            put_signed(&mut out, value as i64);
            let mut r = Reader::new(&out);
            assert_eq!(get(&mut r), Ok(value));
            assert_eq!(get_signed(&mut r), Ok(value as i64));
            assert!(r.is_empty());
        }
    }

    #[test]
    fn an_endless_integer_is_refused() {
        assert!(get(&mut Reader::new(&[0xff; 20])).is_err());
        assert!(get(&mut Reader::new(&[0x80])).is_err());
    }
}
