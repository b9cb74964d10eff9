//! A transaction's payload (docs/format.md, "Payload of a transaction"): rows with their new values, in order.

use forebay_proto::{DecodeError, Reader, Transno, Writer};

use crate::limits;

const VERSION: u8 = 1;

/// One step of redo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Sets the row to this value.
    Put(&'a [u8], &'a [u8]),
    /// Deletes the row.
    Delete(&'a [u8]),
    /// The transaction contains this transno.
    Transno(Transno),
}

/// Decodes the steps of a payload.
pub fn decode(payload: &[u8]) -> Result<Vec<Step<'_>>, DecodeError> {
    let mut r = Reader::new(payload);
    if r.u8()? != VERSION {
        return Err(DecodeError::new("its version is not known here"));
    }
    let mut steps = Vec::new();
    while !r.is_empty() {
        steps.push(match r.u8()? {
            1 => {
                let key = key(&mut r)?;
                let value = r.blob()?;
                if value.len() > limits::VALUE_BYTES {
                    return Err(DecodeError::new("a value is too long"));
                }
                Step::Put(key, value)
            }
            2 => Step::Delete(key(&mut r)?),
            3 => Step::Transno(Transno(r.u64()?)),
            _ => return Err(DecodeError::new("a step is of a kind not known here")),
        });
    }
    Ok(steps)
}

fn key<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let length = usize::from(r.u8()?);
    if length > limits::KEY_BYTES {
        return Err(DecodeError::new("a key is too long"));
    }
    r.take(length)
}

/// Encodes these steps; for repair.
pub fn encode(steps: &[Step<'_>]) -> Vec<u8> {
    let mut w = Writer::default();
    w.u8(VERSION);
    for step in steps {
        match step {
            Step::Put(key, value) => {
                w.u8(1);
                w.u8(key.len() as u8);
                w.bytes(key);
                w.blob(value);
            }
            Step::Delete(key) => {
                w.u8(2);
                w.u8(key.len() as u8);
                w.bytes(key);
            }
            Step::Transno(transno) => {
                w.u8(3);
                w.u64(transno.0);
            }
        }
    }
    w.into_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_made_by_hand_is_read() {
        let bytes = b"\x01\x01\x01k\x05\0\0\0value\x02\x02ab\x03\x07\0\0\0\0\0\0\0";
        let steps = [Step::Put(b"k", b"value"), Step::Delete(b"ab"), Step::Transno(Transno(7))];
        assert_eq!(decode(bytes).unwrap(), steps);
        assert_eq!(encode(&steps), bytes);
    }

    #[test]
    fn cut_wild_and_newer_payloads_are_refused() {
        let whole = b"\x01\x01\x01k\x05\0\0\0value";
        (2..whole.len()).for_each(|end| assert!(decode(&whole[..end]).is_err()));
        assert!(decode(&[]).is_err() && decode(&[2]).is_err() && decode(&[1, 9]).is_err());
        assert!(decode(&[&[1, 2, 65][..], &[0; 65]].concat()).is_err());
    }
}
