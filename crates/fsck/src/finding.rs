//! Findings: what is wrong, where, how severe it is, and what to do.

use std::{collections::BTreeMap, fmt};

use forebay_proto::Fid;
use serde_json::{Value, json};

use crate::{
    limits,
    rows::{mdt, space},
};

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Normal but notable: the traces of a crash, or work that the servers complete automatically.
    Info,
    /// Wrong, but no data or name is at risk.
    Warning,
    /// Damage.
    Error,
}

impl Severity {
    /// The severity in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal, $advice:literal;)*) => {
        /// What is wrong. The names are stable: scripts may depend on them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        impl Kind {
            /// Every kind.
            pub const ALL: &[Kind] = &[$(Self::$kind,)*];

            /// The stable name of the kind.
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// What to do about it.
            pub fn advice(self) -> &'static str {
                match self { $(Self::$kind => $advice,)* }
            }
        }
    };
}

kinds! {
    /// The identity file is damaged.
    Identity = "identity", "restore DIR/identity from a copy: it is written at format and by repair only";
    /// The directory refers to a device of another target, or of another size.
    WrongDevice = "wrong-device", "give the target its own devices: look at DIR/data.path and DIR/journal.path, and at the cabling";
    /// The data device's header is damaged.
    DeviceHeader = "device-header", "check that this is the target's device; restore its first 4096 bytes from a copy";
    /// The copies of a mirrored target differ, or one is missing.
    Mirror = "mirror", "serve the target: what is bad in one copy is mended when it is read, and a copy that was left behind is filled; `forebay mirror` tells how to replace one";
    /// The device cannot read some bytes.
    Unreadable = "unreadable", "replace the device; what lies there is lost, unless the target is mirrored";
    /// The journal is missing, or none of its anchors is left.
    JournalLost = "journal-lost", "if its device is away, bring it back. Only if it is lost for good: `forebay fsck --repair` with this directory and the MDT's (or that of the whole cluster) makes a new one from what the slabs hold, with --journal PATH in another place";
    /// Something that a rebuilt journal cannot guarantee.
    MayBeMissing = "may-be-missing", "nothing more can be found here: compare the file with what wrote it";
    /// The journal's anchors do not match the target.
    Anchor = "anchor", "do not serve the target: bring back the journal that belongs to it. Only if that is lost for good: take this one away, then see journal-lost";
    /// The second anchor is damaged, which a crash may cause.
    SpareAnchor = "spare-anchor", "nothing: the next checkpoint writes it anew";
    /// A durable record of the journal is gone.
    Journal = "journal", "do not serve the target: committed changes are damaged. Bring back an older state of journal and data together; or take the damaged journal away, then see journal-lost";
    /// The journal ends in a torn record, which a crash may cause.
    TornTail = "torn-tail", "nothing: what was not durable is dropped when the target starts";
    /// A transaction in the journal cannot be decoded.
    Payload = "journal-payload", "do not serve the target; report this: the record's sum is right";
    /// The checkpoint's slab snapshot is damaged or wrong.
    Snapshot = "slab-snapshot", "do not serve the target; `forebay fsck --repair` cannot rebuild it yet";
    /// The checkpoint's live bytes of a slab are wrong.
    SlabCount = "slab-count", "report this: space is miscounted, no data is in danger by itself";
    /// A slab that is listed as free has live data.
    FreeSlab = "free-slab", "do not serve the target: what lives there would be overwritten";
    /// A page of the table is damaged.
    Page = "page", "restore the target from a copy: the rows of this page are lost";
    /// A page is listed at the wrong position or twice, or holds keys of another page.
    PageOrder = "page-order", "do not serve the target; report this";
    /// The header of a slab with live data is damaged.
    SlabHeader = "slab-header", "the data itself may be whole: copy the files that lie there, then remove them";
    /// Two slabs have the same epoch.
    SlabEpoch = "slab-epoch", "do not serve the target; report this";
    /// The header of a run without live data is damaged, which a crash may cause.
    TornRun = "torn-run", "nothing, if the target crashed: nothing that lives lies there";
    /// An extent cannot be decoded.
    Extent = "extent", "do not serve the target; report this";
    /// Two extents of an object overlap.
    ExtentOverlap = "extent-overlap", "do not serve the target; report this";
    /// An extent points to an impossible location.
    ExtentPlace = "extent-place", "these bytes are lost: copy the rest of the file, then remove it";
    /// Bytes that a repair could not find: reads of them fail.
    LostBytes = "lost-bytes", "copy the rest of the file and remove it, or write these bytes anew, or cut the file before them";
    /// An extent and its run do not agree.
    Mismatch = "extent-run-mismatch", "the run was lost or overwritten: copy the rest of the file, then remove it";
    /// File data does not match its sum.
    Data = "data", "these bytes are lost: copy the rest of the file, then remove it";
    /// Two live items share bytes of the device.
    SharedBytes = "shared-bytes", "do not serve the target; report this";
    /// A row of an unknown kind.
    UnknownRow = "unknown-row", "use the release that wrote the target; else report this";
    /// A row cannot be decoded.
    Row = "row", "do not serve the target; report this";
    /// A number is above the highest one that the target knows.
    Ahead = "ahead-of-transno", "do not serve the target: the number would be given again; report this";
    /// A reply of a session that does not exist.
    Reply = "reply-without-session", "nothing: it is never asked for";
    /// An object is shorter than its extents.
    ObjectSize = "object-size", "report this: bytes beyond the object's end cannot be read";
    /// Extents whose object does not exist.
    ObjectMissing = "extents-without-object", "`forebay fsck --repair --remove-leaks` frees the space";
    /// A name points to nothing.
    DanglingName = "dangling-name", "remove the name";
    /// An inode has no name.
    LostInode = "lost-inode", "the inode cannot be reached; repair cannot give it a name yet";
    /// An inode's link count is wrong.
    LinkCount = "link-count", "`forebay fsck --repair` sets it right";
    /// A directory's entry count is wrong.
    EntryCount = "entry-count", "`forebay fsck --repair` sets it right";
    /// A directory's parent is not the directory that has its name.
    ParentLink = "parent-link", "report this: rename walks a wrong way up";
    /// A directory has two names, or is part of a cycle.
    Tree = "directory-tree", "report this: the tree has a ring or a second way";
    /// A name is not where its hash belongs, or is not a valid name.
    NamePlace = "name-place", "the name cannot be looked up: report this";
    /// A name has another file type than its inode.
    NameType = "name-type", "report this: readdir shows a wrong type";
    /// An inode's extended attributes do not match its flag.
    Xattr = "xattr", "set or remove the file's extended attributes anew";
    /// The inline bytes of a file do not match its inode.
    Bytes = "inline-bytes", "write the file anew, or remove it";
    /// An inode without names and its orphan row do not match.
    Orphan = "orphan", "`forebay fsck --repair` sets it right";
    /// A handle of a file or session that is gone.
    Handle = "handle", "nothing: it ends when the target starts";
    /// A file that exists is in the destroy log.
    Destroy = "destroy-of-living-file", "do not serve the target: its data would be removed; report this";
    /// A truncate in progress does not match its file.
    Truncate = "truncate", "report this";
    /// A counter is wrong.
    Counter = "counter", "`forebay fsck --repair` sets it right";
    /// Targets of different clusters, or two targets of one name.
    Cluster = "cluster", "check each cluster's targets by themselves, each target once";
    /// A layout refers to an OST that is missing.
    UnknownOst = "unknown-ost", "check all targets of the cluster together; else the files that lie there are lost";
    /// An object that belongs to no file.
    LeakedObject = "leaked-object", "nothing while the cluster runs: it is collected; else remove it on its OST by repair";
    /// An object on an OST that its file's layout does not use.
    StrayObject = "stray-object", "report this: the object's bytes cannot be reached";
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One of a target's two devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The device with the slabs.
    Data,
    /// The journal.
    Journal,
}

/// Where a finding is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The whole target.
    Target,
    /// The identity file.
    Identity,
    /// An offset on a device.
    Device(Device, u64),
    /// A row of the table, by its key.
    Row(Vec<u8>),
}

impl Place {
    /// The row with this key.
    pub fn row(key: &[u8]) -> Self {
        Self::Row(key.to_vec())
    }

    /// The device offset, for a place on a device.
    pub fn offset(&self) -> Option<u64> {
        if let Self::Device(_, offset) = self { Some(*offset) } else { None }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target => f.write_str("target"),
            Self::Identity => f.write_str("identity file"),
            Self::Device(Device::Data, offset) => write!(f, "data device offset {offset}"),
            Self::Device(Device::Journal, offset) => write!(f, "journal offset {offset}"),
            Self::Row(key) => write!(f, "{}", name_row(key)),
        }
    }
}

/// Describes a row's key, with its hexadecimal form.
fn name_row(key: &[u8]) -> String {
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let fid = key.get(1..).and_then(Fid::from_key);
    let words = match (key.first().copied().unwrap_or(0), fid) {
        (1, Some(fid)) => {
            let offset = crate::format::extent::parse_key(key).map_or(0, |(_, offset)| offset);
            format!("extent of {fid} at {offset}")
        }
        (space::INODE, Some(fid)) => format!("inode {fid}"),
        (space::DIRENT, Some(fid)) => {
            format!("name in directory {fid}, cookie {:#x}", mdt::dirent_key(key).map_or(0, |(_, cookie)| cookie))
        }
        (space::OBJECT, Some(fid)) => format!("object {fid}"),
        (space::ORPHAN, Some(fid)) => format!("orphan {fid}"),
        (space::HANDLE, Some(fid)) => format!("handle of {fid}"),
        (space::TRUNCATE, Some(fid)) => format!("truncate of {fid}"),
        (space::XATTR, Some(fid)) => format!("extended attributes of {fid}"),
        (space::SESSION | space::REPLY, _) => "session".into(),
        (space::DESTROY, _) => match mdt::destroy_key(key) {
            Some((ost, fid)) => format!("destroy of {fid} on OST{ost:04x}"),
            None => "destroy".into(),
        },
        _ => "row".into(),
    };
    format!("{words} (key {hex})")
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How severe it is.
    pub severity: Severity,
    /// What is wrong.
    pub kind: Kind,
    /// The target, once it is known.
    pub target: String,
    /// Where.
    pub place: Place,
    /// The finding in words.
    pub what: String,
    /// What should be there, if known.
    pub expected: String,
    /// What is there.
    pub got: String,
    /// True if repair has fixed it.
    pub repaired: bool,
}

impl Finding {
    /// A finding without expected and actual values.
    pub fn new(severity: Severity, kind: Kind, place: Place, what: impl Into<String>) -> Self {
        let (expected, got) = (String::new(), String::new());
        Self { severity, kind, target: String::new(), place, what: what.into(), expected, got, repaired: false }
    }

    /// A finding of severity `Error`: damage.
    pub fn error(kind: Kind, place: Place, what: impl Into<String>) -> Self {
        Self::new(Severity::Error, kind, place, what)
    }

    /// A finding of severity `Warning`: wrong, but not dangerous.
    pub fn warning(kind: Kind, place: Place, what: impl Into<String>) -> Self {
        Self::new(Severity::Warning, kind, place, what)
    }

    /// A finding of severity `Info`: notable.
    pub fn info(kind: Kind, place: Place, what: impl Into<String>) -> Self {
        Self::new(Severity::Info, kind, place, what)
    }

    /// Adds what should be there and what is.
    pub fn with(mut self, expected: impl fmt::Display, got: impl fmt::Display) -> Self {
        (self.expected, self.got) = (expected.to_string(), got.to_string());
        self
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "severity": self.severity.name(),
            "kind": self.kind.name(),
            "target": self.target,
            "where": self.place.to_string(),
            "offset": self.place.offset(),
            "what": self.what,
            "expected": self.expected,
            "got": self.got,
            "advice": self.kind.advice(),
            "repaired": self.repaired,
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let repaired = if self.repaired { " (repaired)" } else { "" };
        let (severity, kind) = (self.severity.name(), self.kind.name());
        write!(f, "{}: {severity}: {kind}{repaired}: {}: {}", self.target, self.place, self.what)?;
        if !self.expected.is_empty() || !self.got.is_empty() {
            write!(f, "; expected {}, got {}", self.expected, self.got)?;
        }
        if self.severity > Severity::Info && !self.repaired {
            write!(f, "\n    -> {}", self.kind.advice())?;
        }
        Ok(())
    }
}

/// Collects findings: all are counted, the first ones of each kind are listed.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) list: Vec<Finding>,
    pub(crate) counts: BTreeMap<(Kind, Severity), u64>,
    kept: BTreeMap<Kind, usize>,
}

impl Findings {
    pub(crate) fn add(&mut self, finding: Finding) {
        *self.counts.entry((finding.kind, finding.severity)).or_default() += 1;
        let kept = self.kept.entry(finding.kind).or_default();
        // The list of what may be missing is complete.
        if *kept < limits::FINDINGS_OF_A_KIND || finding.kind == Kind::MayBeMissing {
            *kept += 1;
            self.list.push(finding);
        }
    }

    pub(crate) fn extend(&mut self, findings: impl IntoIterator<Item = Finding>) {
        findings.into_iter().for_each(|finding| self.add(finding));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_name_of_its_own_and_advice() {
        let names: std::collections::BTreeSet<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), Kind::ALL.len());
        assert!(Kind::ALL.iter().all(|kind| !kind.advice().is_empty()));
    }

    #[test]
    fn the_page_about_fsck_lists_every_kind_in_order() {
        let page = include_str!("../../../docs/fsck.md");
        let listed = page.lines().skip_while(|line| *line != "## Kinds").filter_map(|line| line.strip_prefix("| `"));
        let listed: Vec<&str> = listed.filter_map(|line| line.split('`').next()).collect();
        assert_eq!(listed, Vec::from_iter(Kind::ALL.iter().map(|kind| kind.name())));
    }

    #[test]
    fn a_finding_tells_where_what_and_what_to_do() {
        let key = [&[space::INODE][..], &Fid::ROOT.to_key()].concat();
        let finding = Finding::warning(Kind::LinkCount, Place::row(&key), "it counts too many").with(2, 3);
        let text = Finding { target: "MDT0000".into(), ..finding }.to_string();
        for part in ["MDT0000", "inode [0x0:0x1]", "expected 2, got 3", "--repair"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn floods_are_counted_and_cut() {
        let mut findings = Findings::default();
        (0..1000).for_each(|_| findings.add(Finding::error(Kind::Data, Place::Target, "x")));
        assert_eq!(findings.list.len(), limits::FINDINGS_OF_A_KIND);
        assert_eq!(findings.counts[&(Kind::Data, Severity::Error)], 1000);
    }
}
