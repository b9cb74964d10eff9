//! `xtask sensitivity`: how much the laboratory's results change with each assumption in machines/spider.toml.
//!
//! Every parameter whose source is an assumption runs with half and with twice its value (a zero one with other
//! values), everything else unchanged. The table is written into docs/laboratory.md.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use clap::Args;
use serde_json::Value;

use crate::figures::{
    Outcome,
    document::Document,
    forebay::{self, Forebay, root},
    machine::built_of,
    process::output,
    summary::{commands, table},
};

/// Move each assumption of machines/spider.toml, and write how far the results move with it
#[derive(Args)]
pub struct Plan {
    /// These parameters only (tier.depth)
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Print the table, and leave docs/laboratory.md as it is
    #[arg(long)]
    print: bool,
    /// A machine of two OSTs, for a moment: to see that it works; with --print only
    #[arg(long, requires = "print")]
    quick: bool,
    /// A forebay that is built already
    #[arg(long, value_name = "FOREBAY")]
    program: Option<PathBuf>,
}

const MACHINE: &str = "machines/spider.toml";
/// Enough threads for every mode to be near its best, few enough that a point takes seconds.
const FLAGS: [&str; 5] = ["sim", "spider", "--threads=128", "--gtc-steps=0", "--window=3s"];
/// The same for --quick.
const QUICK: &[&str] = &[
    "sim",
    "spider",
    "--threads=2",
    "--gtc-steps=0",
    "--window=100ms",
    "--set=servers.nodes=1",
    "--set=servers.osts_per_node=2",
    "--set=clients.nodes=2",
];
const MODES: &str = "sync-internal,external-sas,external-ssd,async-internal,default";
/// The mode that uses the parameters of a section; other modes do not.
const MODE_OF: [(&str, &str); 2] = [("sas.", "external-sas"), ("ssd.", "external-ssd")];
/// Rows of the laboratory to show, and the column that each is in.
const SHOWN: [(&str, &str, &str); 7] = [
    ("sync-internal, IOR", "sync-internal", "paper_mode"),
    ("default, IOR", "sync-internal", "default"),
    ("sync-internal", "sync-internal-obdfilter", "paper_mode"),
    ("external-sas", "external-sas", "paper_mode"),
    ("external-ssd", "external-ssd", "paper_mode"),
    ("async-internal", "async-internal", "paper_mode"),
    ("default", "async-internal", "default"),
];
/// Further values for parameters whose half and double are not meaningful.
const TRIED: [(&str, &[f64]); 12] = [
    ("tier.elevator", &[1.0]),
    ("sas.tier.elevator", &[1.0]),
    ("tier.cache_mib", &[64.0]),
    ("sas.tier.cache_mib", &[64.0]),
    ("tier.flush_ms", &[4.0]),
    ("sas.tier.flush_ms", &[4.0]),
    ("tier.stripe_kib", &[0.0, 512.0]),
    ("sas.tier.stripe_kib", &[0.0, 512.0]),
    ("tier.depth", &[1.0, 4.0, 8.0]),
    ("journal.distance", &[0.02, 0.33]),
    // Seek times grow with the distance, and the longest is 7.5 ms.
    ("sas.tier.seek_average_ms", &[1.9, 7.4]),
    ("sas.tier.seek_full_ms", &[3.9, 15.0]),
];

/// A parameter whose source is an assumption.
struct Assumption {
    name: String,
    value: f64,
}

/// An assumption and its new value. `None`: everything is unchanged.
type Moved<'a> = Option<(&'a Assumption, f64)>;

/// Runs all of them, two at a time.
pub fn run(plan: &Plan) -> Outcome {
    let forebay = plan.program.as_deref().map_or_else(forebay::build, |path| Ok(Forebay::at(path)))?;
    let text = std::fs::read_to_string(root().join(MACHINE)).map_err(|error| format!("{MACHINE}: {error}"))?;
    let mut assumptions = assumptions(&text)?;
    if let Some(unknown) = plan.only.iter().find(|only| assumptions.iter().all(|one| one.name != **only)) {
        return Err(format!("--only {unknown}: {MACHINE} has no such assumption"));
    }
    assumptions.retain(|one| plan.only.is_empty() || plan.only.contains(&one.name));
    let mut all: Vec<Moved<'_>> = vec![None];
    all.extend(assumptions.iter().flat_map(|one| tried(one).into_iter().map(move |to| Some((one, to)))));
    let flags = if plan.quick { QUICK } else { &FLAGS };
    let results = run_all(&forebay, flags, &all)?;
    let rows: Vec<Vec<String>> =
        all.iter().zip(&results).map(|(moved, cells)| row(moved, cells, &results[0])).collect();
    let heads: Vec<&str> = ["changed"].into_iter().chain(SHOWN.map(|(head, ..)| head)).collect();
    let typed = [
        "cargo run --release -p xtask -- sensitivity".to_owned(),
        format!("forebay {} --modes={MODES} --set NAME=VALUE", FLAGS.join(" ")),
    ];
    let tables = format!("Of commit {}.\n\n{}\n{}", built_of(), table(&heads, &rows), commands(&typed));
    if plan.print {
        println!("{tables}");
        return Ok(());
    }
    let mut document = Document::load("docs/laboratory.md")?;
    document.set("sensitivity", &tables)?;
    document.save()
}

/// The parameters of the machine that are assumptions, in the order of its sections.
fn assumptions(text: &str) -> Outcome<Vec<Assumption>> {
    let machine: toml::Table = text.parse().map_err(|error| format!("{MACHINE}: {error}"))?;
    let mut found = Vec::new();
    collect("", &machine, &mut found);
    match found.is_empty() {
        true => Err(format!("{MACHINE} has no assumption")),
        false => Ok(found),
    }
}

fn collect(prefix: &str, table: &toml::Table, found: &mut Vec<Assumption>) {
    for (key, value) in table {
        let Some(inner) = value.as_table() else { continue };
        let name = format!("{prefix}{key}");
        match (inner.get("value"), inner.get("source").and_then(toml::Value::as_str)) {
            (Some(value), Some(source)) if source.starts_with("assumption") => {
                let number = value.as_float().or(value.as_integer().map(|whole| whole as f64));
                found.extend(number.map(|value| Assumption { name, value }));
            }
            (Some(_), _) => {}
            (None, _) => collect(&format!("{name}."), inner, found),
        }
    }
}

fn tried(one: &Assumption) -> Vec<f64> {
    match TRIED.iter().find(|(name, _)| *name == one.name) {
        Some((_, values)) => values.to_vec(),
        None => vec![one.value / 2.0, one.value * 2.0],
    }
}

fn run_all(forebay: &Forebay, flags: &[&str], all: &[Moved<'_>]) -> Outcome<Vec<Vec<Option<f64>>>> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || -> Outcome {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(moved) = all.get(number) else { return Ok(()) };
            eprintln!("   {} of {}: {}", number + 1, all.len(), name(moved));
            let cells = run_one(forebay, flags, moved)?;
            done.lock().expect("nobody panics with it").insert(number, cells);
        }
    };
    std::thread::scope(|scope| {
        let threads = [scope.spawn(work), scope.spawn(work)];
        threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })?;
    Ok(done.into_inner().expect("nobody panics with it").into_values().collect())
}

fn run_one(forebay: &Forebay, flags: &[&str], moved: &Moved<'_>) -> Outcome<Vec<Option<f64>>> {
    let mut command = forebay.command(flags);
    let name = moved.map_or("", |(one, _)| &one.name);
    let modes = MODE_OF.iter().find(|(section, _)| name.starts_with(section)).map_or(MODES, |(_, mode)| mode);
    command.arg("--json").arg(format!("--modes={modes}")).current_dir(root());
    if let Some((one, to)) = moved {
        command.arg("--set").arg(format!("{}={to}", one.name));
    }
    let said: Value = serde_json::from_str(&output(&mut command)?).map_err(|error| format!("sim spider: {error}"))?;
    let rows = said["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let cell = |(_, name, column): (&str, &str, &str)| {
        let row =
            rows.iter().find(|one| one["name"] == name).ok_or(format!("sim spider has no row {name} any more"))?;
        Ok(row[column].as_f64())
    };
    SHOWN.into_iter().map(cell).collect()
}

fn name(moved: &Moved<'_>) -> String {
    match moved {
        None => "nothing".to_owned(),
        Some((one, to)) => format!("`{}` {} to {}", one.name, short(one.value), short(*to)),
    }
}

fn short(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Values that changed by a twentieth or more are bold.
fn row(moved: &Moved<'_>, cells: &[Option<f64>], usual: &[Option<f64>]) -> Vec<String> {
    let shown = cells.iter().zip(usual).map(|(cell, usual)| match (cell, usual) {
        (Some(cell), Some(usual)) if (cell - usual).abs() >= usual.abs() / 20.0 => format!("**{cell:.1}**"),
        (Some(cell), _) => format!("{cell:.1}"),
        (None, _) => "-".to_owned(),
    });
    [name(moved)].into_iter().chain(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assumptions_are_found_in_all_sections_and_others_are_not() {
        let text = std::fs::read_to_string(root().join(MACHINE)).expect("it is there");
        let found = assumptions(&text).expect("it has some");
        assert_eq!(found.len(), text.matches("source = \"assumption").count());
        let depth = found.iter().find(|one| one.name == "sas.tier.depth").expect("one of a section in a section");
        assert_eq!(tried(depth), [1.0, 4.0]);
        assert!(TRIED.iter().all(|(name, _)| found.iter().any(|one| one.name == *name)), "one is none any more");
    }

    #[test]
    fn values_that_moved_are_set_in_bold() {
        let one = Assumption { name: "tier.depth".into(), value: 2.0 };
        let cells = row(&Some((&one, 4.0)), &[Some(104.0), Some(105.0), None], &[Some(100.0), Some(100.0), Some(1.0)]);
        assert_eq!(cells, ["`tier.depth` 2 to 4", "104.0", "**105.0**", "-"]);
    }
}
