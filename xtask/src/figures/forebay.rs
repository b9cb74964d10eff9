//! The program under test, and its JSON output.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use super::{Outcome, process::output, summary::Values};

/// The project's directory.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the project").to_owned()
}

/// The built program.
#[derive(Clone)]
pub struct Forebay {
    path: PathBuf,
}

/// Builds the program for measurements.
pub fn build() -> Outcome<Forebay> {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    output(Command::new(cargo).args(["build", "--release", "-p", "forebay-cli"]).current_dir(root()))?;
    let own = std::env::current_exe().map_err(|error| format!("where am I? {error}"))?;
    let path = own.with_file_name("forebay");
    if path.exists() { Ok(Forebay { path }) } else { Err(format!("{} was not built", path.display())) }
}

impl Forebay {
    /// The existing program at `path`.
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// The path of the program.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `forebay ARGS`.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(args);
        command
    }

    /// `forebay bench ARGS --json`.
    pub fn bench(&self, args: &[&str]) -> Outcome<Measured> {
        eprintln!("   forebay bench {}", args.join(" "));
        let said = output(self.command(&["bench"]).args(args).arg("--json"))?;
        serde_json::from_str(&said).map(Measured).map_err(|error| format!("bench {args:?}: {error}"))
    }
}

/// The result of a benchmark.
pub struct Measured(Value);

impl Measured {
    fn row(&self, phase: &str) -> Outcome<&Value> {
        let rows = self.0["rows"].as_array().map_or(&[][..], Vec::as_slice);
        rows.iter().find(|row| row["phase"] == phase).ok_or(format!("the benchmark has no row {phase}"))
    }

    /// The values of a phase's repetitions.
    pub fn values(&self, phase: &str) -> Outcome<Values> {
        self.details(phase, "value")
    }

    /// Other values measured in a phase.
    pub fn details(&self, phase: &str, name: &str) -> Outcome<Values> {
        let row = self.row(phase)?;
        let repetitions = row["repetitions"].as_array().map_or(&[][..], Vec::as_slice);
        let values: Option<Vec<f64>> = repetitions.iter().map(|one| one[name].as_f64()).collect();
        values.map(Values).ok_or(format!("row {phase} has no {name}"))
    }

    /// The value of the only repetition.
    pub fn value(&self, phase: &str) -> Outcome<f64> {
        self.values(phase)?.0.first().copied().ok_or(format!("row {phase} is empty"))
    }
}
