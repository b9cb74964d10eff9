//! The result of a check, as text and as JSON.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use forebay_proto::{Fid, FidSequence, TargetId, Uuid};
use serde_json::{Value, json};

use crate::finding::{Device, Finding, Findings, Kind, Severity};

/// Exit status of `forebay fsck`, as for fsck(8). The statuses of several targets are or'ed.
pub mod exit {
    /// Nothing is wrong.
    pub const CLEAN: i32 = 0;
    /// Something was wrong and is repaired.
    pub const REPAIRED: i32 = 1;
    /// Something is wrong and is left.
    pub const LEFT: i32 = 4;
    /// fsck itself failed.
    pub const OPERATIONAL: i32 = 8;
}

/// What was examined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Slabs that have been opened at least once.
    pub slabs: u64,
    /// Runs in them.
    pub runs: u64,
    /// Intact records of the journal.
    pub records: u64,
    /// Transactions that recovery redoes.
    pub transactions: u64,
    /// Pages of the table.
    pub pages: u64,
    /// Rows.
    pub rows: u64,
    /// Extents.
    pub extents: u64,
    /// Bytes of file data in the extents.
    pub data_bytes: u64,
    /// Bytes whose checksums were verified.
    pub verified_bytes: u64,
    /// Objects of an OST, inodes of an MDT.
    pub files: u64,
    /// Names of an MDT.
    pub names: u64,
    /// Inodes without a name that a session has open.
    pub orphans: u64,
    /// Passes over the table.
    pub passes: u64,
}

/// What a target knows of files, for the comparison with other targets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Inventory {
    /// Unreadable.
    #[default]
    Unknown,
    /// The inventory of an MDT.
    Mdt(MdtInventory),
    /// An OST's objects, ascending.
    Ost(Vec<Fid>),
}

/// An MDT's files, and its operations in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MdtInventory {
    /// The object fids of files in ascending order, each with the index of its list of OSTs.
    pub files: Vec<(Fid, u32)>,
    /// Lists of OSTs.
    pub layouts: Vec<Vec<u32>>,
    /// By OST: the objects of files without holes that no client can write to, with the end of each object.
    pub dense: BTreeMap<u32, Vec<(Fid, u64)>>,
    /// Objects in the destroy log.
    pub destroys: BTreeSet<(u32, Fid)>,
    /// Leased fid sequences.
    pub leases: BTreeSet<FidSequence>,
}

impl MdtInventory {
    /// The OSTs of the file whose objects have this fid.
    pub fn osts(&self, fid: Fid) -> Option<&[u32]> {
        let at = self.files.binary_search_by_key(&fid, |(fid, _)| *fid).ok()?;
        self.layouts.get(self.files[at].1 as usize).map(Vec::as_slice)
    }
}

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The directory, or another name for what was checked.
    pub name: String,
    /// The cluster and the target, if the identity could be read.
    pub identity: Option<(Uuid, Uuid, TargetId)>,
    /// The findings in the order in which they were found; the first ones of each kind.
    pub findings: Vec<Finding>,
    /// Total number of findings of each kind.
    pub counts: BTreeMap<(Kind, Severity), u64>,
    /// What was examined.
    pub stats: Stats,
    /// For the comparison with other targets.
    pub inventory: Inventory,
    /// For an OST: the bytes in each object's extents, ascending by fid.
    pub object_bytes: Vec<(Fid, u64)>,
    /// Devices that belong to another target, with that target.
    pub foreign: Vec<(Device, Uuid)>,
    /// Part of the table could not be read. Checks that need all of it were skipped.
    pub incomplete: bool,
    /// The target was stopped cleanly.
    pub clean_stop: bool,
}

impl Report {
    pub(crate) fn take(&mut self, findings: Findings) {
        let target = self.identity.map_or_else(|| self.name.clone(), |(_, _, target)| target.to_string());
        let named = findings.list.into_iter().map(|finding| Finding { target: target.clone(), ..finding });
        self.findings.extend(named);
        self.counts.extend(findings.counts);
    }

    /// Makes these findings, given by their index, warnings: only one of two copies has the damage.
    pub(crate) fn soften(&mut self, findings: &[usize]) {
        for number in findings {
            let finding = &mut self.findings[*number];
            if finding.severity != Severity::Error {
                continue;
            }
            finding.severity = Severity::Warning;
            finding.what = format!("in one copy only: {}", finding.what);
            *self.counts.entry((finding.kind, Severity::Warning)).or_default() += 1;
            let errors = self.counts.entry((finding.kind, Severity::Error)).or_default();
            *errors = errors.saturating_sub(1);
        }
        self.counts.retain(|_, count| *count > 0);
    }

    /// Number of findings of this severity.
    pub fn count(&self, severity: Severity) -> u64 {
        self.counts.iter().filter(|((_, s), _)| *s == severity).map(|(_, n)| n).sum()
    }

    /// Number of findings of this kind, of any severity.
    pub fn count_of(&self, kind: Kind) -> u64 {
        self.counts.iter().filter(|((k, _), _)| *k == kind).map(|(_, n)| n).sum()
    }

    /// True if nothing is wrong; findings of severity `Info` do not count.
    pub fn is_clean(&self) -> bool {
        self.count(Severity::Error) + self.count(Severity::Warning) == 0
    }

    /// The exit status; see [`exit`].
    pub fn exit_code(&self) -> i32 {
        let wrong = self.count(Severity::Error) + self.count(Severity::Warning);
        let repaired = self.findings.iter().filter(|f| f.repaired && f.severity > Severity::Info).count() as u64;
        let leaks = self.findings.iter().any(|f| f.repaired);
        let left = if wrong > repaired { exit::LEFT } else { exit::CLEAN };
        left | if leaks { exit::REPAIRED } else { exit::CLEAN }
    }

    /// The report as text: findings of at least severity `least`, counts, and a last line.
    pub fn to_text(&self, least: Severity) -> String {
        let mut out = String::new();
        let told = |finding: &&Finding| finding.severity >= least || finding.kind == Kind::MayBeMissing;
        for finding in self.findings.iter().filter(told) {
            let _ = writeln!(out, "{finding}");
        }
        for ((kind, severity), count) in self.counts.iter().filter(|((_, severity), _)| *severity >= least) {
            let shown = self.findings.iter().filter(|f| f.kind == *kind && f.severity == *severity).count() as u64;
            if *count > shown {
                let _ = writeln!(out, "{}: {} more of {kind}", self.title(), count - shown);
            }
        }
        let _ = writeln!(out, "{}: {}", self.title(), self.summary());
        out
    }

    fn title(&self) -> String {
        self.identity.map_or_else(|| self.name.clone(), |(_, _, target)| format!("{target} ({})", self.name))
    }

    fn summary(&self) -> String {
        let Stats { slabs, runs, pages, rows, extents, data_bytes, verified_bytes, .. } = self.stats;
        let looked = format!(
            "{slabs} slabs, {runs} runs, {pages} pages, {rows} rows, {extents} extents with {data_bytes} bytes \
             ({verified_bytes} verified)"
        );
        let (errors, warnings) = (self.count(Severity::Error), self.count(Severity::Warning));
        let verdict = match (errors, warnings) {
            (0, 0) => "clean".to_string(),
            _ => format!("{errors} errors, {warnings} warnings"),
        };
        if self.identity.is_none() {
            let incomplete = "; not all could be compared, as not all of every target could be read";
            return if self.incomplete { format!("{verdict}{incomplete}") } else { verdict };
        }
        let incomplete = if self.incomplete { "; part of the table could not be read" } else { "" };
        format!("{verdict}; {looked}{incomplete}")
    }

    /// The report as JSON.
    pub fn to_json(&self) -> Value {
        let counts: Vec<Value> = self
            .counts
            .iter()
            .map(|((kind, severity), count)| json!({"kind": kind.name(), "severity": severity.name(), "count": count}))
            .collect();
        let s = self.stats;
        json!({
            "dir": self.name,
            "target": self.identity.map(|(_, _, target)| target.to_string()),
            "cluster": self.identity.map(|(cluster, _, _)| cluster.to_string()),
            "uuid": self.identity.map(|(_, uuid, _)| uuid.to_string()),
            "clean": self.is_clean(),
            "clean_stop": self.clean_stop,
            "incomplete": self.incomplete,
            "exit": self.exit_code(),
            "findings": self.findings.iter().map(Finding::to_json).collect::<Vec<_>>(),
            "counts": counts,
            "stats": {
                "slabs": s.slabs, "runs": s.runs, "records": s.records, "transactions": s.transactions,
                "pages": s.pages, "rows": s.rows, "extents": s.extents, "data_bytes": s.data_bytes,
                "verified_bytes": s.verified_bytes, "files": s.files, "names": s.names, "orphans": s.orphans, "passes": s.passes,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Place;

    fn report(findings: Vec<Finding>) -> Report {
        let mut collected = Findings::default();
        collected.extend(findings);
        let mut report = Report { name: "dir".into(), ..Report::default() };
        report.take(collected);
        report
    }

    #[test]
    fn exit_codes_are_those_of_fsck_8() {
        let error = Finding::error(Kind::Data, Place::Target, "rot");
        let info = Finding::info(Kind::TornTail, Place::Target, "torn");
        assert_eq!(report(vec![]).exit_code(), exit::CLEAN);
        assert_eq!(report(vec![info]).exit_code(), exit::CLEAN);
        assert_eq!(report(vec![error.clone()]).exit_code(), exit::LEFT);
        let mended = Finding { repaired: true, ..Finding::warning(Kind::Counter, Place::Target, "count") };
        assert_eq!(report(vec![mended.clone()]).exit_code(), exit::REPAIRED);
        assert_eq!(report(vec![mended, error]).exit_code(), exit::LEFT | exit::REPAIRED);
    }

    #[test]
    fn text_and_json_tell_the_same() {
        let report = report(vec![Finding::error(Kind::Data, Place::Device(Device::Data, 4096), "rot").with(1, 2)]);
        assert!(report.to_text(Severity::Info).contains("data device offset 4096: rot; expected 1, got 2"));
        let json = report.to_json();
        assert_eq!((&json["findings"][0]["offset"], &json["counts"][0]["count"]), (&json!(4096), &json!(1)));
        assert_eq!((&json["clean"], &json["exit"]), (&json!(false), &json!(4)));
    }
}
