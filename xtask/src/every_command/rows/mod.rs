//! The rows to run, in sections. Sections run one after another, each in a separate directory.

mod bench;
mod cluster;
mod laboratory;
mod targets;
mod xtask;

use super::{site::Site, surface::Program};
use crate::figures::Outcome;

/// One run of a program.
#[derive(Clone, Copy)]
pub struct Row {
    /// The program.
    pub program: Program,
    /// Another name to call it by, or empty.
    pub called: &'static str,
    /// Its arguments; see [`Site::fill`] for the names in braces.
    pub words: &'static str,
    /// The expected exit code. A row that is refused (2) does not count as a use of what it names.
    pub code: i32,
    /// Text that its output must contain.
    pub says: &'static str,
    /// True if being refused counts as a use of what it names, as that exists only to be refused.
    pub refusal_counts: bool,
    pub how: How,
}

/// How a row ends.
#[derive(Clone, Copy)]
pub enum How {
    /// It ends without a signal.
    ToItsEnd,
    /// It ends without a signal, after minutes. For this reason it runs only with --long.
    Long(&'static str),
    /// By SIGTERM, after it has printed this text and these rows have run beside it.
    Beside(&'static str, &'static [Row]),
    /// It ends without a signal. `{device}` is a block device of 512 MiB, if loop devices are available.
    OnDevice,
    /// Not a program, but a preparation for the next rows.
    Prepare(fn(&Site) -> Outcome),
}

/// Rows that depend on each other.
pub struct Section {
    pub name: &'static str,
    pub rows: &'static [Row],
}

/// All sections, in this order.
pub const SECTIONS: [Section; 5] = [
    Section { name: "cluster", rows: cluster::ROWS },
    Section { name: "targets", rows: targets::ROWS },
    Section { name: "bench", rows: bench::ROWS },
    Section { name: "sim", rows: laboratory::ROWS },
    Section { name: "xtask", rows: xtask::ROWS },
];

/// The file in this directory that a row for `item` belongs to.
pub fn file_of(item: &str) -> &'static str {
    let mut words = item.split(' ');
    match (words.next(), words.next()) {
        (Some("xtask"), _) => "xtask.rs",
        (_, Some("bench" | "bench-ior-task" | "bench-names-task")) => "bench.rs",
        (_, Some("sim")) => "laboratory.rs",
        (_, Some("format" | "journal" | "mirror" | "serve" | "fsck")) => "targets.rs",
        _ => "cluster.rs",
    }
}

/// All rows, including those that run beside others.
pub fn all(rows: &'static [Row]) -> impl Iterator<Item = &'static Row> {
    rows.iter().flat_map(|row| {
        let beside: &[Row] = if let How::Beside(_, rows) = row.how { rows } else { &[] };
        [row].into_iter().chain(beside)
    })
}

/// `forebay WORDS` succeeds and prints `says`.
const fn ok(words: &'static str, says: &'static str) -> Row {
    Row { program: Program::Forebay, called: "", words, code: 0, says, refusal_counts: false, how: How::ToItsEnd }
}

/// `xtask WORDS` succeeds and prints `says`.
const fn xtask(words: &'static str, says: &'static str) -> Row {
    Row { program: Program::Xtask, ..ok(words, says) }
}

/// A preparation for the next rows.
const fn prepare(what: fn(&Site) -> Outcome) -> Row {
    Row { how: How::Prepare(what), ..ok("", "") }
}

impl Row {
    /// The row ends with this code.
    const fn ends_with(self, code: i32) -> Self {
        Self { code, ..self }
    }

    /// The row is refused, and what it names exists only for that.
    const fn is_refused(self) -> Self {
        Self { code: 2, refusal_counts: true, ..self }
    }

    /// The program is called by another name.
    const fn called(self, called: &'static str) -> Self {
        Self { called, ..self }
    }

    /// The row writes to a block device.
    const fn on_device(self) -> Self {
        Self { how: How::OnDevice, ..self }
    }

    /// The row takes minutes.
    const fn long(self, why: &'static str) -> Self {
        Self { how: How::Long(why), ..self }
    }

    /// The row runs until it is asked to end.
    const fn beside(self, until: &'static str, rows: &'static [Row]) -> Self {
        Self { how: How::Beside(until, rows), ..self }
    }
}
