//! Tables of `forebay sim spider`.

use serde_json::Value;

use super::{list, text};
use crate::figures::{Outcome, summary::table};

/// Our rows beside the paper's.
pub fn rows(kept: &Value) -> Outcome<String> {
    let cell = |value: &Value| value.as_f64().map_or("-".to_owned(), |value| format!("{value:.1}"));
    let row = |row: &Value| {
        let numbers = ["published", "paper_mode", "default"].map(|column| cell(&row[column]));
        Ok([text(row, "name")?.to_owned(), text(row, "unit")?.to_owned()].into_iter().chain(numbers).collect())
    };
    let rows = list(&kept["result"], "rows")?.iter().map(row).collect::<Outcome<Vec<Vec<String>>>>()?;
    let heads = ["row", "unit", "published", "paper mode", "default"];
    Ok(format!("`{}` at {}.\n\n{}", text(kept, "command")?, text(kept, "commit")?, table(&heads, &rows)))
}

/// How the tiers' heads spent their time.
pub fn heads(kept: &Value) -> Outcome<String> {
    let mut rows = printed(&kept["result"], "mechanisms")?;
    let heads = [
        "mode, threads",
        "MB/s",
        "seek",
        "rotate",
        "turn",
        "rmw",
        "transfer",
        "idle",
        "writes/commit",
        "small commands",
        "partial stripes",
    ];
    expect_columns(&rows, heads.len())?;
    rows.remove(0);
    Ok(table(&heads, &rows))
}

/// The results of each run of the program like GTC.
pub fn gtc(kept: &Value) -> Outcome<String> {
    let mut rows = printed(&kept["result"], "gtc")?;
    let heads = ["mode", "cores", "computing", "writing", "of the time", "MB/s", "commands below 128 KiB"];
    expect_columns(&rows, heads.len())?;
    rows.remove(0);
    Ok(table(&heads, &rows))
}

/// A table that the program has formatted. Its first row has the column heads for a terminal.
fn printed(result: &Value, name: &str) -> Outcome<Vec<Vec<String>>> {
    let cells = |row: &Value| {
        let cells = row.as_array().into_iter().flatten().map(|cell| cell.as_str().unwrap_or_default().to_owned());
        cells.collect()
    };
    Ok(list(result, name)?.iter().map(cells).collect())
}

fn expect_columns(rows: &[Vec<String>], columns: usize) -> Outcome {
    match rows.first().is_some_and(|heads| heads.len() == columns) {
        true => Ok(()),
        false => Err(format!("sim spider prints other columns than the {columns} of the page")),
    }
}
