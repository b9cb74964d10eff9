//! Rows of an OST: objects (docs/format.md, "Rows of an OST").

use forebay_proto::{DecodeError, Reader, Transno};

const VERSION: u8 = 1;

/// An object's size and epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectRow {
    /// End of its last byte.
    pub object_bytes: u64,
    /// The file's size, where it is kept.
    pub file_bytes: u64,
    /// Raised by each truncate.
    pub truncate_epoch: u64,
    /// Last change.
    pub transno: Transno,
}

impl ObjectRow {
    /// Reads a row's value.
    pub fn decode(value: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(value);
        if r.u8()? != VERSION {
            return Err(DecodeError::new("its version is not known here"));
        }
        let (object_bytes, file_bytes, truncate_epoch) = (r.u64()?, r.u64()?, r.u64()?);
        r.take(24)?; // bytes left by the last truncate, attribute epoch, modification time
        Ok(Self { object_bytes, file_bytes, truncate_epoch, transno: Transno(r.u64()?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_made_by_hand_is_read() {
        let mut value = vec![1u8];
        [1u64, 2, 3, 4, 5, u64::MAX, 7].iter().for_each(|word| value.extend(word.to_le_bytes()));
        let row = ObjectRow { object_bytes: 1, file_bytes: 2, truncate_epoch: 3, transno: Transno(7) };
        assert_eq!(ObjectRow::decode(&value), Ok(row));
        (0..value.len()).for_each(|end| assert!(ObjectRow::decode(&value[..end]).is_err()));
    }
}
