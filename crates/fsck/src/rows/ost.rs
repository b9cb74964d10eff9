//! Rows of an OST: objects (docs/format.md, "Rows of an OST").

use std::ops::Range;

use forebay_proto::{DecodeError, Reader, Transno};

const VERSION: u8 = 2;

/// An object's size and epochs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRow {
    /// End of its last byte.
    pub object_bytes: u64,
    /// The file's size, if it is kept here.
    pub file_bytes: u64,
    /// Raised by each truncate.
    pub truncate_epoch: u64,
    /// Transno of the last change.
    pub transno: Transno,
    /// Number of reserved bytes.
    pub aside_bytes: u64,
    /// Ranges that contain them.
    pub aside: Vec<Range<u64>>,
}

impl ObjectRow {
    /// Decodes a row's value.
    pub fn decode(value: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(value);
        if r.u8()? != VERSION {
            return Err(DecodeError::new("its version is not known here"));
        }
        let (object_bytes, file_bytes, truncate_epoch) = (r.u64()?, r.u64()?, r.u64()?);
        r.take(24)?; // bytes left by the last truncate, attribute epoch, modification time
        let transno = Transno(r.u64()?);
        let count = r.u8()?;
        let aside_bytes = if count == 0 { 0 } else { r.u64()? };
        let mut aside: Vec<Range<u64>> = Vec::new();
        for _ in 0..count {
            let range = r.u64()?..r.u64()?;
            if range.is_empty() || aside.last().is_some_and(|last| last.end >= range.start) {
                return Err(DecodeError::new("ranges that are set aside are not in order"));
            }
            aside.push(range);
        }
        Ok(Self { object_bytes, file_bytes, truncate_epoch, transno, aside_bytes, aside })
    }
}

impl ObjectRow {
    /// The value with other object bytes, file bytes and truncate epoch, and the transno of the last change. Everything
    /// else stays as it was, or is zero. For repair.
    pub fn rebuilt(before: Option<&[u8]>, sizes: [u64; 3], transno: Transno) -> Vec<u8> {
        let mut value = before.map_or_else(|| [&[VERSION][..], &[0; 57]].concat(), <[u8]>::to_vec);
        for (at, word) in [1, 9, 17].into_iter().zip(sizes).chain([(49, transno.0)]) {
            value[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        value
    }
}

/// Checks the row with the keys of capabilities.
pub fn check_capability_keys(key: &[u8], value: &[u8]) -> Result<(), DecodeError> {
    let mut r = Reader::new(value);
    if key.len() != 1 || r.u8()? != 1 {
        return Err(DecodeError::new("the row of the capability keys has a wrong key or version"));
    }
    // Those that count, and former ones.
    for _ in 0..2 {
        let mut list = r.prefixed()?;
        for _ in 0..list.u32()? {
            let mut one = list.prefixed()?;
            one.u32()?;
            if one.u32()? != 32 {
                return Err(DecodeError::new("a capability key has another length than 32 bytes"));
            }
            one.take(32)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_made_by_hand_is_read() {
        let mut value = vec![2u8];
        [1u64, 2, 3, 4, 5, u64::MAX, 7].iter().for_each(|word| value.extend(word.to_le_bytes()));
        value.push(1);
        [9u64, 10, 20].iter().for_each(|word| value.extend(word.to_le_bytes()));
        let (transno, aside) = (Transno(7), vec![Range { start: 10, end: 20 }]);
        let row = ObjectRow { object_bytes: 1, file_bytes: 2, truncate_epoch: 3, transno, aside_bytes: 9, aside };
        assert_eq!(ObjectRow::decode(&value), Ok(row.clone()));
        (0..value.len()).for_each(|end| assert!(ObjectRow::decode(&value[..end]).is_err()));
        let rebuilt = ObjectRow::rebuilt(Some(&value), [11, 12, 13], Transno(14));
        let expected = ObjectRow { object_bytes: 11, file_bytes: 12, truncate_epoch: 13, transno: Transno(14), ..row };
        assert_eq!(ObjectRow::decode(&rebuilt), Ok(expected));
        let new = ObjectRow::decode(&ObjectRow::rebuilt(None, [1, 2, 3], Transno(4))).unwrap();
        assert_eq!((new.object_bytes, new.file_bytes, new.truncate_epoch, new.aside), (1, 2, 3, vec![]));
    }

    #[test]
    fn rows_of_capability_keys_are_checked() {
        let key = [&36_u32.to_le_bytes()[..], &7_u32.to_le_bytes(), &32_u32.to_le_bytes(), &[1; 32]].concat();
        let key = [&((key.len() - 4) as u32).to_le_bytes()[..], &key[4..]].concat();
        let list = [&1_u32.to_le_bytes()[..], &key].concat();
        let list = [&(list.len() as u32).to_le_bytes()[..], &list].concat();
        let none = [4, 0, 0, 0, 0, 0, 0, 0];
        let row = [&[1][..], &list, &none].concat();
        assert_eq!(check_capability_keys(&[0x81], &row), Ok(()));
        (0..row.len()).for_each(|end| assert!(check_capability_keys(&[0x81], &row[..end]).is_err()));
        assert!(check_capability_keys(&[0x81, 0], &row).is_err());
    }
}
