//! Tables of text.

/// Columns of words.
pub fn columns(rows: &[Vec<String>]) -> Vec<String> {
    arrange(rows, |_| false)
}

/// Columns of a table; the first is words, the others are numbers.
pub fn align(rows: &[Vec<String>]) -> Vec<String> {
    arrange(rows, |column| column > 0)
}

fn arrange(rows: &[Vec<String>], is_number: fn(usize) -> bool) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|c| c.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if is_number(column) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}
