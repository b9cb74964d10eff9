//! `xtask code`: measures of the code, for a person who watches where it grows.
//!
//! Tests are `#[cfg(test)]` and the files of test programs. Blank lines do not count.

mod measures;
mod page;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use clap::Args;

use crate::figures::{Outcome, forebay::root, process::output};
use measures::Measures;

/// Print lines of code, tests and comments, and for the client its caching, types and functions
#[derive(Args)]
pub struct Plan {
    /// Show the numbers of this revision beside them
    #[arg(long, value_name = "REV")]
    against: Option<String>,
}

pub fn run(plan: &Plan) -> Outcome {
    let now = Measures::take(&root())?;
    let earlier = match &plan.against {
        Some(revision) => Some((revision.as_str(), of_revision(revision)?)),
        None => None,
    };
    print!("{}", page::page(&now, earlier.as_ref().map(|(revision, measures)| (*revision, measures))));
    Ok(())
}

/// The measures of a commit, from a temporary directory.
fn of_revision(revision: &str) -> Outcome<Measures> {
    let dir = std::env::temp_dir().join(format!("forebay-code-{}", std::process::id()));
    let measures = unpack(revision, &dir).and_then(|()| Measures::take(&dir));
    // Ignore errors: the directory is missing if it could not be made.
    let _ = std::fs::remove_dir_all(&dir);
    measures
}

fn unpack(revision: &str, dir: &Path) -> Outcome {
    let archive: PathBuf = dir.join("tree.tar");
    std::fs::create_dir_all(dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
    let mut git = Command::new("git");
    git.current_dir(root()).args(["archive", "--format=tar", "-o"]).arg(&archive).arg(revision);
    output(&mut git)?;
    output(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(dir)).map(drop)
}
