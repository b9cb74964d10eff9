//! What is run: rows in sections, which run one behind the other, each in a directory of its own.

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
    /// Which one.
    pub program: Program,
    /// Another name that it is called by, or none.
    pub called: &'static str,
    /// Its arguments; see [`Site::fill`] for what stands in braces.
    pub words: &'static str,
    /// How it has to end. One that is refused (2) does not count as a use of what it names.
    pub code: i32,
    /// What it has to say.
    pub says: &'static str,
    /// What it names is there to be refused, in words of its own.
    pub refusal_counts: bool,
    pub how: How,
}

/// When it ends.
#[derive(Clone, Copy)]
pub enum How {
    /// By itself.
    ToItsEnd,
    /// By itself, after minutes: it is run with --long only, for this reason.
    Long(&'static str),
    /// By SIGTERM, after it has said this and these rows were run beside it.
    Beside(&'static str, &'static [Row]),
    /// By itself; `{device}` is a block device of 512 MiB, where there are loop devices.
    OnDevice,
    /// It is no program: something that the next rows need.
    Prepare(fn(&Site) -> Outcome),
}

/// Rows that need each other.
pub struct Section {
    pub name: &'static str,
    pub rows: &'static [Row],
}

/// All of them, in this order.
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

/// Rows, and those that are run beside them.
pub fn all(rows: &'static [Row]) -> impl Iterator<Item = &'static Row> {
    rows.iter().flat_map(|row| {
        let beside: &[Row] = if let How::Beside(_, rows) = row.how { rows } else { &[] };
        [row].into_iter().chain(beside)
    })
}

/// `forebay WORDS` does it, and says this.
const fn ok(words: &'static str, says: &'static str) -> Row {
    Row { program: Program::Forebay, called: "", words, code: 0, says, refusal_counts: false, how: How::ToItsEnd }
}

/// `xtask WORDS` does it, and says this.
const fn xtask(words: &'static str, says: &'static str) -> Row {
    Row { program: Program::Xtask, ..ok(words, says) }
}

/// What the next rows need.
const fn prepare(what: fn(&Site) -> Outcome) -> Row {
    Row { how: How::Prepare(what), ..ok("", "") }
}

impl Row {
    /// It ends with this code.
    const fn ends_with(self, code: i32) -> Self {
        Self { code, ..self }
    }

    /// It is refused, and what it names is there for that.
    const fn is_refused(self) -> Self {
        Self { code: 2, refusal_counts: true, ..self }
    }

    /// It is called by another name.
    const fn called(self, called: &'static str) -> Self {
        Self { called, ..self }
    }

    /// It writes to a block device.
    const fn on_device(self) -> Self {
        Self { how: How::OnDevice, ..self }
    }

    /// It takes minutes.
    const fn long(self, why: &'static str) -> Self {
        Self { how: How::Long(why), ..self }
    }

    /// It goes on until it is asked to end.
    const fn beside(self, until: &'static str, rows: &'static [Row]) -> Self {
        Self { how: How::Beside(until, rows), ..self }
    }
}
