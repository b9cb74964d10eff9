//! `xtask every-command`: runs every subcommand and every option of `forebay` and of `xtask` once, on a small scale,
//! and checks that each run ends as its row says.
//!
//! Invariant: the programs say what exists (`surface.rs`), and `rows/` says what to run. A command, an option or a
//! value that no row uses is an error. So is a row that ends in another way than it says, and a command line in the
//! documents that names what does not exist.
//! Not here: whether the results are right, which other tests check.
//!
//! It needs root and /dev/fuse, as do most of the commands.

mod device;
mod documents;
mod rows;
mod site;
mod surface;

use std::{
    collections::BTreeSet,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::Args;

use crate::figures::{Outcome, forebay};
use device::Device;
use rows::{How, Row, SECTIONS, Section};
use site::{Ended, Site};
use surface::{Program, Surface};

/// Run every subcommand and option of forebay and xtask once, small, and see that each ends as it should and that none is missing
#[derive(Args)]
pub struct Plan {
    /// The rows of these sections only; that all are there is checked in any case
    #[arg(long, value_delimiter = ',', value_parser = SECTIONS.map(|section| section.name), value_name = "NAME")]
    only: Vec<String>,
    /// Also rows that take minutes
    #[arg(long)]
    long: bool,
    /// Run nothing: show the rows, and check that none is missing
    #[arg(long)]
    list: bool,
    /// Where: a directory to be made, of about 3 GB; its path is short, as sockets are made in it
    #[arg(long, default_value_os_t = std::env::temp_dir().join("forebay-every"))]
    dir: PathBuf,
    /// A forebay that is built already
    #[arg(long, value_name = "FOREBAY")]
    program: Option<PathBuf>,
}

/// Runs the command. An error lists each row that failed, and everything that no row uses.
pub fn run(plan: &Plan) -> Outcome {
    let forebay = match &plan.program {
        Some(path) => forebay::Forebay::at(path),
        None => forebay::build()?,
    };
    std::fs::create_dir_all(&plan.dir).map_err(|error| format!("cannot make {}: {error}", plan.dir.display()))?;
    let mut failed = check_surface(plan, &forebay)?;
    if !plan.list {
        let begun = Instant::now();
        let wanted = |section: &&Section| plan.only.is_empty() || plan.only.iter().any(|only| only == section.name);
        let mut count = 0;
        for section in SECTIONS.iter().filter(wanted) {
            let (ran, errors) = run_section(plan, &forebay, section)?;
            count += ran;
            failed.extend(errors);
        }
        println!("{count} commands were run in {} s, {} failed", begun.elapsed().as_secs(), failed.len());
    }
    if failed.is_empty() {
        let removed = std::fs::remove_dir_all(&plan.dir);
        return removed.map_err(|error| format!("cannot remove {}: {error}", plan.dir.display()));
    }
    Err(failed.join("\n"))
}

/// What exists and no row uses, with the file where a row belongs, and what the documents show and does not exist.
fn check_surface(plan: &Plan, forebay: &forebay::Forebay) -> Outcome<Vec<String>> {
    let site = Site::make(&plan.dir.join("surface"), forebay.path())?;
    let mut missing = Vec::new();
    for program in [Program::Forebay, Program::Xtask] {
        let surface = Surface::ask(&site, program)?;
        let mut left = surface.offered();
        for row in SECTIONS.iter().flat_map(|section| rows::all(section.rows)) {
            if row.program != program || matches!(row.how, How::Prepare(_)) || row.called == MOUNT_HELPER {
                continue;
            }
            if plan.list {
                let long =
                    if let How::Long(why) = row.how { format!("   # with --long: {why}") } else { String::new() };
                println!("{} {}{long}", program.name(), row.words);
            }
            let words: Vec<String> = row.words.split_whitespace().map(|word| site.fill(word)).collect();
            let used = surface.used(&words)?;
            // A refused row does not show that what it names works.
            if row.code != REFUSED || row.refusal_counts {
                left = left.difference(&used).cloned().collect::<BTreeSet<_>>();
            }
        }
        missing.extend(left.into_iter().map(|item| {
            let file = rows::file_of(&item);
            format!("`{item}` is used by no row: add one that uses it to xtask/src/every_command/rows/{file}")
        }));
        missing.extend(documents::unknown(&forebay::root(), &surface, program)?);
        if !plan.list {
            missing.extend(helps(&site, &surface, program)?);
        }
    }
    site.remove()?;
    Ok(missing)
}

/// The name under which the program is a helper of mount(8), without subcommands.
const MOUNT_HELPER: &str = "mount.forebay";
/// Exit code for refused arguments.
const REFUSED: i32 = 2;

/// Checks that every visible command has a help text.
fn helps(site: &Site, surface: &Surface, program: Program) -> Outcome<Vec<String>> {
    let mut failed = Vec::new();
    let version = (program == Program::Forebay).then(|| vec!["--version".to_owned()]);
    for words in surface.shown().map(|path| [path, &["--help".to_owned()]].concat()).chain(version) {
        let ended = site.start(program, "", &words)?.end()?;
        if !ended.status.success() || ended.said.trim().is_empty() {
            failed.push(format!("{} {} ended with {}: {}", program.name(), words.join(" "), ended.status, ended.said));
        }
    }
    Ok(failed)
}

/// Runs the rows of a section in a separate directory, all of them even if some fail. Returns their number and the
/// failures.
fn run_section(plan: &Plan, forebay: &forebay::Forebay, section: &Section) -> Outcome<(usize, Vec<String>)> {
    let begun = Instant::now();
    let site = Site::make(&plan.dir.join(section.name), forebay.path())?;
    let mut run = Run { site, long: plan.long, count: 0, failed: Vec::new() };
    run.rows(section.rows);
    let took = Duration::from_secs(begun.elapsed().as_secs());
    eprintln!("{}: {} commands in {took:?}", section.name, run.count);
    match run.failed.is_empty() {
        true => run.site.remove()?,
        false => run.site.clear(),
    }
    Ok((run.count, run.failed))
}

/// The state of a run of rows.
struct Run {
    site: Site,
    long: bool,
    count: usize,
    failed: Vec<String>,
}

impl Run {
    fn rows(&mut self, rows: &[Row]) {
        for row in rows {
            if let Err(error) = self.row(row) {
                self.failed.push(format!("{} {}: {error}", row.program.name(), self.site.fill(row.words)));
            }
        }
    }

    fn row(&mut self, row: &Row) -> Outcome {
        let words: Vec<String> = row.words.split_whitespace().map(|word| self.site.fill(word)).collect();
        let begun = Instant::now();
        let ended = match row.how {
            How::Prepare(prepare) => return prepare(&self.site),
            How::Long(why) if !self.long => {
                eprintln!("   not run without --long ({why}): {} {}", row.program.name(), row.words);
                return Ok(());
            }
            How::OnDevice => {
                let Some(device) = Device::make(&self.site.dir().join("device"), 512 << 20) else {
                    eprintln!("   not run, as no loop device can be made here: {} {}", row.program.name(), row.words);
                    return Ok(());
                };
                self.site.remember("{device}", device.name());
                let words: Vec<String> = row.words.split_whitespace().map(|word| self.site.fill(word)).collect();
                self.site.start(row.program, row.called, &words)?.end()?
            }
            How::Long(_) | How::ToItsEnd => self.site.start(row.program, row.called, &words)?.end()?,
            How::Beside(until, rows) => {
                let mut running = self.site.start(row.program, row.called, &words)?;
                running.wait_until_it_says(&self.site.fill(until))?;
                self.rows(rows);
                running.stop()?
            }
        };
        self.count += 1;
        eprintln!("   {:5.1} s  {} {}", begun.elapsed().as_secs_f64(), row.program.name(), row.words);
        self.compare(row, &ended)
    }

    fn compare(&self, row: &Row, ended: &Ended) -> Outcome {
        // If a signal ended it, the code is the signal's number, negative.
        let code = ended.status.code().or(ended.status.signal().map(|signal| -signal));
        if code != Some(row.code) {
            return Err(format!(
                "it should end with {} and did with {}; it said {:?}",
                row.code, ended.status, ended.said
            ));
        }
        let says = self.site.fill(row.says);
        match ended.said.contains(&says) {
            true => Ok(()),
            false => Err(format!("it should say {says:?} and said {:?}", ended.said)),
        }
    }
}
