//! Long values: cut in rows of a few KiB, so that no row is near the size of a leaf.
//!
//! Piece `n` has the key of the value and one byte `n`; piece 0 begins with a version and the length of the whole.

use forebay_proto::{DecodeError, Reader};

use crate::{
    halt::{Step, corrupt},
    limits,
    tx::Tx,
    varint,
};

const VERSION: u8 = 1;

/// The value of `key`, put together.
pub fn get(tx: &Tx<'_>, key: &[u8]) -> Step<Option<Vec<u8>>> {
    let Some((length, mut value)) = head(tx, key)? else { return Ok(None) };
    let mut number = 0;
    while value.len() < length {
        number += 1;
        let piece = tx.row(&piece_key(key, number))?;
        let piece = piece.ok_or_else(|| corrupt(key, DecodeError::new("a piece of a long value is missing")))?;
        value.extend_from_slice(&piece);
    }
    Ok(Some(value))
}

/// Replaces the value of `key`.
pub fn put(tx: &mut Tx<'_>, key: &[u8], value: &[u8]) -> Step<()> {
    delete(tx, key)?;
    let (first, mut rest) = value.split_at(value.len().min(limits::PIECE_BYTES));
    tx.put_with(piece_key(key, 0), |out| {
        out.push(VERSION);
        varint::put(out, value.len() as u64);
        out.extend_from_slice(first);
    });
    let mut number = 0;
    while !rest.is_empty() {
        number += 1;
        let (piece, more) = rest.split_at(rest.len().min(limits::PIECE_BYTES));
        tx.put(piece_key(key, number), piece);
        rest = more;
    }
    Ok(())
}

/// Removes the value of `key`, if there is one.
pub fn delete(tx: &mut Tx<'_>, key: &[u8]) -> Step<()> {
    let Some((length, _)) = head(tx, key)? else { return Ok(()) };
    (0..count(length)).for_each(|number| tx.delete(piece_key(key, number)));
    Ok(())
}

/// Length of the whole, and the bytes of piece 0.
fn head(tx: &Tx<'_>, key: &[u8]) -> Step<Option<(usize, Vec<u8>)>> {
    let Some(row) = tx.row(&piece_key(key, 0))? else { return Ok(None) };
    let mut r = Reader::new(&row);
    let mut read = || {
        if r.u8()? != VERSION {
            return Err(DecodeError::new("a long value of a version this program does not know"));
        }
        let length = varint::get(&mut r)? as usize;
        if length > limits::PIECE_BYTES * usize::from(u8::MAX) {
            return Err(DecodeError::new("a long value is longer than it can be"));
        }
        Ok((length, r.take(r.remaining())?.to_vec()))
    };
    read().map(Some).map_err(|error| corrupt(key, error))
}

fn count(length: usize) -> u8 {
    length.div_ceil(limits::PIECE_BYTES).max(1) as u8
}

fn piece_key(key: &[u8], number: u8) -> Vec<u8> {
    let mut piece = Vec::with_capacity(key.len() + 1);
    piece.extend_from_slice(key);
    piece.push(number);
    piece
}
