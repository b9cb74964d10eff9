//! The payload of a journal transaction: what a group of transactions changed, in order.
//!
//! Physical redo: keys with their new values. Redoing it twice has the same result as redoing it once.

use forebay_proto::{DecodeError, Reader, Transno, Writer};

const VERSION: u8 = 1;
const PUT: u8 = 1;
const DELETE: u8 = 2;
const TRANSNO: u8 = 3;

/// One step of redo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step<'a> {
    /// The row has this value.
    Put(&'a [u8], &'a [u8]),
    /// The row is gone.
    Delete(&'a [u8]),
    /// The transaction that ends here contains this transno.
    Transno(Transno),
}

/// Collects the changes of a group.
#[derive(Default)]
pub(crate) struct Redo {
    bytes: Writer,
}

impl Redo {
    /// Appends a step.
    pub(crate) fn push(&mut self, step: Step<'_>) {
        if self.bytes.is_empty() {
            self.bytes.u8(VERSION);
        }
        match step {
            Step::Put(key, value) => {
                self.bytes.u8(PUT);
                self.bytes.u8(key.len() as u8);
                self.bytes.bytes(key);
                self.bytes.blob(value);
            }
            Step::Delete(key) => {
                self.bytes.u8(DELETE);
                self.bytes.u8(key.len() as u8);
                self.bytes.bytes(key);
            }
            Step::Transno(transno) => {
                self.bytes.u8(TRANSNO);
                self.bytes.u64(transno.0);
            }
        }
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The payload.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes.into_vec()
    }
}

/// Bytes a row's step takes.
pub(crate) fn step_bytes(key: &[u8], value: Option<&[u8]>) -> usize {
    2 + key.len() + value.map_or(0, |value| 4 + value.len())
}

/// The steps of a payload. Errors name the field.
pub(crate) fn steps(payload: &[u8]) -> Result<Vec<Step<'_>>, DecodeError> {
    let mut r = Reader::new(payload);
    if r.u8()? != VERSION {
        return Err(DecodeError::new("journal payload: a version not known here"));
    }
    let mut steps = Vec::new();
    while !r.is_empty() {
        steps.push(match r.u8()? {
            PUT => {
                let length = r.u8()? as usize;
                Step::Put(r.take(length)?, r.blob()?)
            }
            DELETE => {
                let length = r.u8()? as usize;
                Step::Delete(r.take(length)?)
            }
            TRANSNO => Step::Transno(Transno(r.u64()?)),
            _ => return Err(DecodeError::new("journal payload: a step not known here")),
        });
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_survive_their_bytes() {
        let all = [Step::Put(b"k", b"value"), Step::Delete(b"other"), Step::Transno(Transno(7))];
        let mut redo = Redo::default();
        all.iter().for_each(|step| redo.push(*step));
        let bytes = redo.into_bytes();
        assert_eq!(steps(&bytes).unwrap(), all);
        assert_eq!(bytes[..12], *b"\x01\x01\x01k\x05\0\0\0valu");
        assert_eq!(bytes.len(), 1 + step_bytes(b"k", Some(b"value")) + step_bytes(b"other", None) + 9);
    }

    #[test]
    fn every_cut_and_unknown_step_is_refused_or_shorter() {
        let mut redo = Redo::default();
        redo.push(Step::Put(b"key", b"value"));
        let bytes = redo.into_bytes();
        for end in 2..bytes.len() {
            assert!(steps(&bytes[..end]).is_err());
        }
        assert!(steps(&[1, 9]).is_err() && steps(&[2]).is_err() && steps(&[]).is_err());
    }
}
