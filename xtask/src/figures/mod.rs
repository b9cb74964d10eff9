//! `xtask figures`: measures everything that docs/benchmarks.md shows, and writes its tables.
//!
//! Our program and its competitors run in turns, round by round, in one session. The tables show medians of three
//! rounds, with quartiles. It needs root (loop device, mounts, dropping caches), about 40 GB under --dir (--quick: 12
//! GB), and a quiet machine.

mod against;
mod cluster;
mod distance;
pub mod document;
mod ext4;
mod floor;
pub mod forebay;
mod levels;
pub mod machine;
mod memory;
mod mount;
mod names_mount;
mod namespace;
mod prediction;
pub mod process;
mod protection;
mod site;
mod store;
pub mod summary;
mod syscalls;
mod trees;

use std::path::PathBuf;

use clap::Args;

/// The error is a text for the user.
pub type Outcome<T = ()> = Result<T, String>;

/// Rounds of everything that is repeated, except with --least.
const ROUNDS: usize = 3;

/// Measure everything docs/benchmarks.md shows, and write its tables
#[derive(Args)]
pub struct Plan {
    /// Measure everything small
    #[arg(long)]
    quick: bool,
    /// Measure everything as small as it goes, once: to see that it works, not how fast; with --print only
    #[arg(long, conflicts_with = "quick", requires = "print")]
    least: bool,
    /// Print the tables, and leave docs/benchmarks.md as it is
    #[arg(long)]
    print: bool,
    /// Where: about 40 GB (with --quick 12 GB) on the disk to be measured
    #[arg(long, default_value_os_t = std::env::temp_dir().join("forebay-figures"))]
    dir: PathBuf,
    /// These sections only
    #[arg(long, value_delimiter = ',', value_parser = SECTIONS.map(|(name, _)| name), value_name = "NAME")]
    only: Vec<String>,
    /// The earlier commit that section `against` builds and measures beside this one: the last one before commit levels,
    /// external journals and the laboratory
    #[arg(long, default_value = "020b7db", value_name = "COMMIT")]
    against: String,
    /// A forebay that is built already
    #[arg(long, value_name = "FOREBAY")]
    program: Option<PathBuf>,
}

type Section = fn(&forebay::Forebay, &Plan) -> Outcome<String>;

/// The names of the document's sections.
const SECTIONS: [(&str, Section); 13] = [
    ("store", store::measure),
    ("namespace", namespace::measure),
    ("mount", mount::measure),
    ("names-mount", names_mount::measure),
    ("trees", trees::measure),
    ("memory", memory::measure),
    ("syscalls", syscalls::measure),
    ("levels", levels::measure),
    ("protection", protection::measure),
    ("distance", distance::measure),
    ("prediction", prediction::measure),
    ("against", against::measure),
    ("before-leases", against::before_leases),
];

impl Plan {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    /// `full`, or `quick` with --quick, or `least` with --least.
    fn size<T>(&self, full: T, quick: T, least: T) -> T {
        match (self.quick, self.least) {
            (true, _) => quick,
            (_, true) => least,
            _ => full,
        }
    }

    /// Number of rounds of everything that is repeated.
    fn rounds(&self) -> usize {
        if self.least { 1 } else { ROUNDS }
    }
}

/// Measures, and writes the tables.
pub fn run(plan: &Plan) -> Outcome {
    let forebay = plan.program.as_deref().map_or_else(forebay::build, |path| Ok(forebay::Forebay::at(path)))?;
    std::fs::create_dir_all(&plan.dir).map_err(|error| format!("cannot make {}: {error}", plan.dir.display()))?;
    let mut document = document::Document::load("docs/benchmarks.md")?;
    document.set("machine", &machine::describe(plan)?)?;
    for (name, measure) in SECTIONS.into_iter().filter(|(name, _)| plan.wants(name)) {
        eprintln!("== {name}");
        if name == "levels" && !levels::is_possible() {
            eprintln!("   passed over: it needs the blkio controller of control groups, version 1");
            continue;
        }
        let stamp = machine::stamp(plan)?;
        let text = measure(&forebay, plan).map_err(|error| format!("{name}: {error}"))?;
        document.set(name, &format!("{stamp}\n\n{text}"))?;
        if plan.print {
            println!("{text}");
            continue;
        }
        // Save after each section, so that a later failure loses nothing.
        document.save()?;
    }
    std::fs::remove_dir_all(&plan.dir).map_err(|error| format!("cannot remove {}: {error}", plan.dir.display()))
}
