//! `xtask laboratory`: runs the papers' experiments for docs/laboratory.md, stores the program's output in
//! docs/laboratory/, and writes the page's tables from it.
//!
//! Invariant: the page's tables match the stored results. A test compares them, so that neither is changed alone.

mod spider;
mod wall;

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use crate::figures::{
    Outcome,
    document::Document,
    forebay::{self, Forebay, root},
    machine::built_of,
    process::output,
};

/// The page.
const PAGE: &str = "docs/laboratory.md";
/// Directory of the stored results.
const RESULTS: &str = "docs/laboratory";
const SPIDER: [&str; 2] = ["sim", "spider"];
/// With --quick: two OSTs, for a short time.
const QUICK: [&str; 6] = [
    "--threads=2",
    "--window=100ms",
    "--gtc-steps=1",
    "--set=servers.nodes=1",
    "--set=servers.osts_per_node=2",
    "--set=clients.nodes=2",
];

/// Run the experiments of docs/laboratory.md, keep what they print, and write the page's tables
#[derive(Args)]
pub struct Plan {
    /// These experiments only
    #[arg(long, value_delimiter = ',', value_parser = ["spider", "wall"], value_name = "NAME")]
    only: Vec<String>,
    /// Run nothing: write the page's tables from what is kept
    #[arg(long)]
    page: bool,
    /// Of wall, these numbers of tasks only; the others stay as they were run last
    #[arg(long, value_delimiter = ',', default_values_t = wall::TASKS, value_name = "N,N,...")]
    tasks: Vec<u32>,
    /// Files of all tasks together in wall
    #[arg(long, default_value_t = 300_000, value_name = "N")]
    files: u32,
    /// Print the tables and keep nothing; spider on a machine of two OSTs, for a moment
    #[arg(long, conflicts_with = "page")]
    quick: bool,
    /// A forebay that is built already
    #[arg(long, value_name = "FOREBAY")]
    program: Option<PathBuf>,
}

/// Runs what was requested, then writes the page.
pub fn run(plan: &Plan) -> Outcome {
    let wants = |name: &str| !plan.page && (plan.only.is_empty() || plan.only.iter().any(|only| only == name));
    let kept = root().join(RESULTS);
    if !plan.page {
        let forebay = plan.program.as_deref().map_or_else(forebay::build, |path| Ok(Forebay::at(path)))?;
        if wants("spider") {
            let words = if plan.quick { &[&SPIDER[..], &QUICK].concat() } else { &SPIDER[..] };
            let spider = told(&forebay, words)?;
            match plan.quick {
                true => print(spider_tables(&spider)?),
                false => keep(&kept, "spider", &spider)?,
            }
        }
        let mut wall = if plan.quick { json!([]) } else { load(&kept, "wall")? };
        for tasks in plan.tasks.iter().filter(|_| wants("wall")) {
            let (tasks, files) = (tasks.to_string(), plan.files.to_string());
            wall = wall::with(wall, told(&forebay, &["sim", "wall", "--tasks", &tasks, "--files", &files])?)?;
            // Store each result, so that a later failure loses nothing.
            if !plan.quick {
                keep(&kept, "wall", &wall)?;
            }
        }
        if plan.quick {
            if wants("wall") {
                print(wall_tables(&wall)?);
            }
            return Ok(());
        }
    }
    let mut document = Document::load(PAGE)?;
    tables(&kept)?.into_iter().try_for_each(|(name, tables)| document.set(name, &tables))?;
    document.save()
}

/// Tables with the names of their markers.
type Tables = Vec<(&'static str, String)>;

/// All tables between the page's markers.
fn tables(kept: &Path) -> Outcome<Tables> {
    Ok([spider_tables(&load(kept, "spider")?)?, wall_tables(&load(kept, "wall")?)?].concat())
}

fn spider_tables(spider: &Value) -> Outcome<Tables> {
    Ok(vec![
        ("spider", spider::rows(spider)?),
        ("spider-heads", spider::heads(spider)?),
        ("spider-gtc", spider::gtc(spider)?),
    ])
}

fn wall_tables(wall: &Value) -> Outcome<Tables> {
    Ok(vec![("wall", wall::rates(wall)?), ("wall-ratios", wall::ratios(wall)?), ("wall-busy", wall::busy(wall)?)])
}

fn print(tables: Tables) {
    tables.into_iter().for_each(|(_, tables)| println!("{tables}"));
}

/// The output of `forebay WORDS --json`, with the command and the commit.
fn told(forebay: &Forebay, words: &[&str]) -> Outcome<Value> {
    let shown = format!("forebay {}", words.join(" "));
    eprintln!("   {shown}");
    let said = output(forebay.command(words).arg("--json").current_dir(root()))?;
    let result: Value = serde_json::from_str(&said).map_err(|error| format!("{shown}: {error}"))?;
    Ok(json!({ "command": shown, "commit": built_of(), "result": result }))
}

fn path(kept: &Path, name: &str) -> PathBuf {
    kept.join(format!("{name}.json"))
}

fn load(kept: &Path, name: &str) -> Outcome<Value> {
    let path = path(kept, name);
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

fn keep(kept: &Path, name: &str, result: &Value) -> Outcome {
    let path = path(kept, name);
    let text = serde_json::to_string_pretty(result).map_err(|error| error.to_string())?;
    std::fs::write(&path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))
}

/// A list in a result.
fn list<'a>(result: &'a Value, name: &str) -> Outcome<&'a Vec<Value>> {
    result[name].as_array().ok_or_else(|| format!("the result has no {name}"))
}

/// A text in a result.
fn text<'a>(result: &'a Value, name: &str) -> Outcome<&'a str> {
    result[name].as_str().ok_or_else(|| format!("the result has no {name}: {result}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_tables_are_what_the_kept_results_say() {
        let page = std::fs::read_to_string(root().join(PAGE)).expect("the page");
        for (name, tables) in tables(&root().join(RESULTS)).expect("the kept results") {
            let mut document = Document::load(PAGE).expect("the page");
            document.set(name, &tables).expect("a marker for each");
            assert!(document.text() == page, "{name}: `cargo run --release -p xtask -- laboratory --page` writes it");
        }
    }
}
