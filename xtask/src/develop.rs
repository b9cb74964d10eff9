//! Commands that a developer runs many times a day: `xtask check`, `test`, `seed`, `bless`.
//!
//! Each prints the cargo command that it runs, so that it can be repeated and varied by hand.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::figures::{Outcome, forebay::root};

/// Format, lints and the tests of the tree's shape: the part of CI that takes a minute
#[derive(Args)]
pub struct Check {
    /// Show the commands, run nothing
    #[arg(long)]
    print: bool,
}

/// Run the tests whose name, or whose file's path, contains NAME; only their test program is built
#[derive(Args)]
pub struct Test {
    /// A part of the name of a test function (`append_after`) or of its file (`scenes/appends`)
    name: String,
    /// Show the commands, run nothing
    #[arg(long)]
    print: bool,
}

/// Run one seed of the simulator again
#[derive(Args)]
pub struct Seed {
    seed: u64,
    /// Which random test the seed is of
    #[arg(long, value_enum, default_value_t = RandomTest::Disasters)]
    of: RandomTest,
    /// Print each operation, fault and log line of the run
    #[arg(long)]
    trace: bool,
    /// Show the commands, run nothing
    #[arg(long)]
    print: bool,
}

/// Random tests of the simulator (docs/testing.md).
#[derive(Clone, Copy, ValueEnum)]
enum RandomTest {
    /// Random faults of processes, links, clocks and disks
    Disasters,
    /// Disasters with a mirrored MDT
    Mirror,
    /// Several clients on the same names, bytes and locks
    Histories,
}

/// Write the golden bytes of all protocol messages as they are now; to be reviewed as a change of the protocol
#[derive(Args)]
pub struct Bless {
    /// Show the commands, run nothing
    #[arg(long)]
    print: bool,
}

pub fn check(plan: &Check) -> Outcome {
    let cargo = |words: &str| Step::cargo(&words.split(' ').collect::<Vec<_>>());
    let steps = [
        cargo("fmt --all --check"),
        cargo("clippy --workspace --all-targets --release -- -D warnings"),
        cargo("test --release -p forebay-tests --test house"),
    ];
    steps.iter().try_for_each(|step| step.run(plan.print))
}

pub fn test(plan: &Test) -> Outcome {
    let steps = steps_of(&programs()?, &tests_named(&root(), &plan.name)?);
    if steps.is_empty() {
        return Err(format!(
            "no test function or test file has {:?} in its name; `grep -rn '#\\[test\\]' -A1` lists all",
            plan.name
        ));
    }
    steps.iter().try_for_each(|step| step.run(plan.print))
}

pub fn seed(plan: &Seed) -> Outcome {
    let (program, test) = match plan.of {
        RandomTest::Disasters | RandomTest::Mirror => ("disasters", "one_seed"),
        RandomTest::Histories => ("histories", "one_history"),
    };
    let mut step = Step::cargo(&[
        "test",
        "--release",
        "-p",
        "forebay-sim",
        "--test",
        program,
        "--",
        "--exact",
        test,
        "--nocapture",
    ]);
    step.variables.push(("FOREBAY_SEED", plan.seed.to_string()));
    if matches!(plan.of, RandomTest::Mirror) {
        step.variables.push(("FOREBAY_MIRROR", "1".into()));
    }
    if plan.trace {
        step.variables.push(("FOREBAY_TRACE", "1".into()));
    }
    step.run(plan.print)
}

pub fn bless(plan: &Bless) -> Outcome {
    let mut step = Step::cargo(&["test", "--release", "-p", "forebay-proto", "--test", "bodies", "--", "golden"]);
    step.variables.push(("FOREBAY_BLESS", "1".into()));
    step.run(plan.print)
}

/// One cargo command.
#[derive(Debug, PartialEq)]
struct Step {
    variables: Vec<(&'static str, String)>,
    words: Vec<String>,
}

impl Step {
    fn cargo(words: &[&str]) -> Self {
        Self { variables: Vec::new(), words: words.iter().map(|word| word.to_string()).collect() }
    }

    fn shown(&self) -> String {
        let variables: String = self.variables.iter().map(|(name, value)| format!("{name}={value} ")).collect();
        format!("{variables}cargo {}", self.words.join(" "))
    }

    fn run(&self, only_print: bool) -> Outcome {
        println!("{}", self.shown());
        if only_print {
            return Ok(());
        }
        let mut cargo = Command::new("cargo");
        cargo.args(&self.words).current_dir(root()).envs(self.variables.iter().map(|(name, value)| (name, value)));
        let status = cargo.status().map_err(|error| format!("cannot run cargo: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("failed: {}", self.shown())) }
    }
}

/// A test program, as cargo knows it.
struct Program {
    package: String,
    /// `--lib`, `--bin NAME` or `--test NAME`.
    choice: Vec<String>,
    root: PathBuf,
}

fn programs() -> Outcome<Vec<Program>> {
    let mut cargo = Command::new("cargo");
    cargo.args(["metadata", "--no-deps", "--format-version", "1"]).current_dir(root());
    let output = cargo.output().map_err(|error| format!("cannot run cargo: {error}"))?;
    let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    let mut programs = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        for target in package["targets"].as_array().into_iter().flatten() {
            let name = target["name"].as_str().unwrap_or_default();
            let choice = match target["kind"][0].as_str() {
                Some("lib") => vec!["--lib".to_string()],
                Some(kind @ ("bin" | "test")) => vec![format!("--{kind}"), name.to_string()],
                _ => continue,
            };
            let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
            programs.push(Program { package: text(&package["name"]), choice, root: text(&target["src_path"]).into() });
        }
    }
    Ok(programs)
}

/// A test function with its file.
#[derive(Debug, PartialEq)]
struct Found {
    file: PathBuf,
    function: String,
}

/// Tests whose name contains `name`. If there are none, all tests of files whose path contains it.
fn tests_named(top: &Path, name: &str) -> Outcome<Vec<Found>> {
    let mut all = Vec::new();
    for folder in ["crates", "tests", "xtask"] {
        collect(&top.join(folder), &mut all)?;
    }
    let in_path = |found: &Found| found.file.strip_prefix(top).is_ok_and(|path| path.to_string_lossy().contains(name));
    let by_name = all.iter().any(|found| found.function.contains(name));
    all.retain(|found| if by_name { found.function.contains(name) } else { in_path(found) });
    Ok(all)
}

fn collect(folder: &Path, all: &mut Vec<Found>) -> Outcome {
    let told = |error| format!("{}: {error}", folder.display());
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)
        .map_err(told)?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<_, _>>()
        .map_err(told)?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(&path, all)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            all.extend(functions(&text).map(|function| Found { file: path.clone(), function: function.to_string() }));
        }
    }
    Ok(())
}

/// Names of the functions below a line `#[test]`.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    let mut marked = false;
    text.lines().map(str::trim).filter_map(move |line| {
        let name = line.strip_prefix("fn ").and_then(|rest| rest.split_once('(')).map(|(name, _)| name);
        let found = name.filter(|_| marked);
        marked = line == "#[test]" || (marked && name.is_none());
        found
    })
}

/// One step per program; the filter is the name of each function.
fn steps_of(programs: &[Program], found: &[Found]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for test in found {
        let Some(program) = program_of(programs, &test.file) else { continue };
        let mut words: Vec<&str> = vec!["test", "--release", "-p", &program.package];
        words.extend(program.choice.iter().map(String::as_str));
        words.extend(["--", "--nocapture"]);
        let begun = Step::cargo(&words);
        match steps.iter_mut().find(|step| step.words.starts_with(&begun.words)) {
            Some(step) => step.words.push(test.function.clone()),
            None => steps.push(Step { words: [begun.words, vec![test.function.clone()]].concat(), ..begun }),
        }
    }
    steps
}

/// The program whose root file is `file`, or is in the nearest folder above it.
fn program_of<'a>(programs: &'a [Program], file: &Path) -> Option<&'a Program> {
    let exact = programs.iter().find(|program| program.root == file);
    let depth = |program: &Program| {
        program.root.parent().filter(|folder| file.starts_with(folder)).map(|f| f.components().count())
    };
    exact.or_else(|| programs.iter().filter(|program| depth(program).is_some()).max_by_key(|program| depth(program)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_run_in_the_program_that_holds_it() {
        let programs = [
            Program { package: "a".into(), choice: vec!["--lib".into()], root: "/a/src/lib.rs".into() },
            Program {
                package: "a".into(),
                choice: vec!["--test".into(), "big".into()],
                root: "/a/tests/big/main.rs".into(),
            },
            Program {
                package: "a".into(),
                choice: vec!["--test".into(), "one".into()],
                root: "/a/tests/one.rs".into(),
            },
        ];
        let found = |file: &str, function: &str| Found { file: file.into(), function: function.into() };
        let tests = [
            found("/a/src/deep/x.rs", "first"),
            found("/a/tests/big/part.rs", "second"),
            found("/a/tests/one.rs", "third"),
        ];
        let shown: Vec<String> = steps_of(&programs, &tests).iter().map(Step::shown).collect();
        assert_eq!(
            shown,
            [
                "cargo test --release -p a --lib -- --nocapture first",
                "cargo test --release -p a --test big -- --nocapture second",
                "cargo test --release -p a --test one -- --nocapture third",
            ]
        );
    }

    #[test]
    fn a_name_finds_functions_before_files() {
        let found = tests_named(&root(), "a_name_finds_functions_before_files").unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        let file = tests_named(&root(), "xtask/src/develop.rs").unwrap();
        assert_eq!(file.len(), 2, "{file:?}");
    }
}
