//! Cells: the units of data in histories. Each cell names the operation that wrote it and its index in what that
//! operation wrote.
//!
//! Layout: bytes 0 to 4 hold the tag of the operation (never 0), bytes 4 to 8 the index of the cell, the rest a pattern
//! derived from both. A cell that was never written is all zeros. Any other content is torn.

/// One cell: the writer's tag in the upper half, the index in what it wrote in the lower half. 0: never written.
pub type Cell = u64;

/// The cell with index `index` in what operation `tag` writes.
pub fn cell(tag: u32, index: u32) -> Cell {
    assert!(tag != 0, "tag 0 means nobody");
    u64::from(tag) << 32 | u64::from(index)
}

/// The bytes of `count` cells of `cell_bytes` each, as operation `tag` writes them.
pub fn bytes(tag: u32, count: u32, cell_bytes: usize) -> Vec<u8> {
    assert!(cell_bytes >= 8, "a cell has room for its name");
    let mut all = Vec::with_capacity(count as usize * cell_bytes);
    for index in 0..count {
        all.extend(tag.to_le_bytes());
        all.extend(index.to_le_bytes());
        all.extend((8..cell_bytes).map(|at| byte(tag, index, at)));
    }
    all
}

/// Byte `at` of a cell, behind its name.
fn byte(tag: u32, index: u32, at: usize) -> u8 {
    (tag.wrapping_mul(31) ^ index.wrapping_mul(7)).wrapping_add(at as u32) as u8 | 1
}

/// Decodes what was read into cells. Errors: bytes that no operation wrote, or an incomplete cell at the end.
pub fn cells(bytes: &[u8], cell_bytes: usize) -> Result<Vec<Cell>, String> {
    if !bytes.len().is_multiple_of(cell_bytes) {
        return Err(format!("{} bytes were read; everything is written in cells of {cell_bytes}", bytes.len()));
    }
    bytes.chunks(cell_bytes).enumerate().map(|(number, chunk)| read(chunk).ok_or_else(|| torn(number, chunk))).collect()
}

fn read(chunk: &[u8]) -> Option<Cell> {
    let word = |at: usize| Some(u32::from_le_bytes(chunk.get(at..at + 4)?.try_into().ok()?));
    let (tag, index) = (word(0)?, word(4)?);
    // Every byte is looked at, as simulated histories read much.
    let rest = (8..).zip(&chunk[8..]);
    if tag == 0 {
        let is_empty = index == 0 && rest.fold(0, |all, (_, found)| all | *found) == 0;
        return is_empty.then_some(0);
    }
    let wrong = rest.fold(0, |wrong, (at, found)| wrong | (*found ^ byte(tag, index, at)));
    (wrong == 0).then(|| cell(tag, index))
}

fn torn(number: usize, chunk: &[u8]) -> String {
    let zeros = chunk.iter().filter(|byte| **byte == 0).count();
    format!(
        "cell {number} of what was read is torn: it begins {:02x?}, {zeros} of {} bytes are 0",
        &chunk[..8],
        chunk.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_read_as_they_were_written() {
        for cell_bytes in [8, 64, 1000] {
            let mut file = bytes(7, 3, cell_bytes);
            file.extend(vec![0; cell_bytes]);
            assert_eq!(cells(&file, cell_bytes), Ok(vec![cell(7, 0), cell(7, 1), cell(7, 2), 0]));
        }
    }

    #[test]
    fn a_torn_cell_is_rejected() {
        for at in 0..64 {
            let mut file = bytes(7, 1, 64);
            file[at] ^= 0x40;
            assert_ne!(cells(&file, 64), Ok(vec![cell(7, 0)]), "byte {at}");
            // A flipped byte in the tag may name another operation: only damage behind the first eight bytes must be
            // detected.
            assert!(at < 8 || cells(&file, 64).is_err(), "byte {at}");
        }
        let mut half = bytes(9, 1, 64);
        half[32..].fill(0);
        assert!(cells(&half, 64).is_err() && cells(&half[..63], 64).is_err());
    }
}
