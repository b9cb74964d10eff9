//! Findings: what is wrong, where, how bad, what to do.

use std::{collections::BTreeMap, fmt};

use forebay_proto::Fid;
use serde_json::{Value, json};

use crate::{
    limits,
    rows::{mdt, space},
};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// As it should be, and worth knowing: the traces of a crash, work that the servers finish by themselves.
    Info,
    /// Wrong, but no data or name is in danger.
    Warning,
    /// Damage.
    Error,
}

impl Severity {
    /// In lower case.
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

            /// Its stable name.
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
    /// The directory names a device of another target, or of another size.
    WrongDevice = "wrong-device", "give the target its own devices: look at DIR/data.path and DIR/journal.path, and at the cabling";
    /// The data device's header is damaged.
    DeviceHeader = "device-header", "check that this is the target's device; restore its first 4096 bytes from a copy";
    /// The copies of a mirrored target differ, or one is missing.
    Mirror = "mirror", "serve the target: what is bad in one copy is mended when it is read, and a copy that was left behind is filled; `forebay mirror` tells how to replace one";
    /// The device cannot read a place.
    Unreadable = "unreadable", "replace the device; what lies there is lost unless it is redundant";
    /// The journal is not there, or nothing is left of its anchors.
    JournalLost = "journal-lost", "if its device is away, bring it back. Only if it is lost for good: `forebay fsck --repair` with this directory and the MDT's (or that of the whole cluster) makes a new one from what the slabs hold, with --journal PATH in another place";
    /// What a rebuilt journal cannot vouch for.
    MayBeMissing = "may-be-missing", "nothing more can be found here: compare the file with what wrote it";
    /// The journal's anchors do not belong to the target as it is.
    Anchor = "anchor", "do not serve the target: bring back the journal that belongs to it. Only if that is lost for good: take this one away, then see journal-lost";
    /// The other anchor is damaged, which a crash may do.
    SpareAnchor = "spare-anchor", "nothing: the next checkpoint writes it anew";
    /// A record of the journal that was durable is gone.
    Journal = "journal", "do not serve the target: committed changes are damaged. Bring back an older state of journal and data together; or take the damaged journal away, then see journal-lost";
    /// The journal ends in a torn record, which a crash may do.
    TornTail = "torn-tail", "nothing: what was not durable is dropped when the target starts";
    /// A transaction in the journal cannot be understood.
    Payload = "journal-payload", "do not serve the target; report this: the record's sum is right";
    /// The checkpoint's list of slabs is damaged or wrong.
    Snapshot = "slab-snapshot", "do not serve the target; `forebay fsck --repair` cannot rebuild it yet";
    /// What the checkpoint counts in a slab is not what lives there.
    SlabCount = "slab-count", "report this: space is miscounted, no data is in danger by itself";
    /// A slab that is listed as free holds something.
    FreeSlab = "free-slab", "do not serve the target: what lives there would be overwritten";
    /// A page of the table is damaged.
    Page = "page", "restore the target from redundant copies: the rows of this page are lost";
    /// A page is listed in the wrong place, twice, or holds others' keys.
    PageOrder = "page-order", "do not serve the target; report this";
    /// A slab's header is damaged although something lives in the slab.
    SlabHeader = "slab-header", "the data itself may be whole: copy the files that lie there, then remove them";
    /// Two slabs have the same epoch.
    SlabEpoch = "slab-epoch", "do not serve the target; report this";
    /// A run's header is damaged, nothing that is needed lies in the run; a crash may do that.
    TornRun = "torn-run", "nothing, if the target crashed: nothing that lives lies there";
    /// An extent cannot be understood.
    Extent = "extent", "do not serve the target; report this";
    /// Two extents of an object overlap.
    ExtentOverlap = "extent-overlap", "do not serve the target; report this";
    /// An extent points where it cannot.
    ExtentPlace = "extent-place", "the bytes are lost unless they are redundant: copy the rest of the file, then remove it";
    /// Bytes that a repair could not find: whoever reads them gets an error.
    LostBytes = "lost-bytes", "copy the rest of the file and remove it, or write these bytes anew, or cut the file before them";
    /// What the index says of some bytes is not what their run says.
    Mismatch = "extent-run-mismatch", "the run was lost or overwritten: copy the rest of the file, then remove it";
    /// File data does not match its sum.
    Data = "data", "the bytes are lost unless they are redundant: copy the rest of the file, then remove it";
    /// Two things live in the same bytes of the device.
    SharedBytes = "shared-bytes", "do not serve the target; report this";
    /// A row of an unknown kind.
    UnknownRow = "unknown-row", "use the release that wrote the target; else report this";
    /// A row cannot be understood.
    Row = "row", "do not serve the target; report this";
    /// A number is above the highest one the target knows.
    Ahead = "ahead-of-transno", "do not serve the target: the number would be given again; report this";
    /// A reply without its session.
    Reply = "reply-without-session", "nothing: it is never asked for";
    /// An object is shorter than its extents.
    ObjectSize = "object-size", "report this: bytes beyond the object's end cannot be read";
    /// Extents without an object.
    ObjectMissing = "extents-without-object", "`forebay fsck --repair --remove-leaks` frees the space";
    /// A name points to nothing.
    DanglingName = "dangling-name", "remove the name";
    /// An inode has no name.
    LostInode = "lost-inode", "the inode cannot be reached; repair cannot give it a name yet";
    /// An inode counts other names than it has.
    LinkCount = "link-count", "`forebay fsck --repair` sets it right";
    /// A directory counts other names than are in it.
    EntryCount = "entry-count", "`forebay fsck --repair` sets it right";
    /// A directory's parent is not the directory that names it.
    ParentLink = "parent-link", "report this: rename walks a wrong way up";
    /// A directory is named twice, or in a ring.
    Tree = "directory-tree", "report this: the tree has a ring or a second way";
    /// A name is not where its hash puts it, or cannot be one.
    NamePlace = "name-place", "the name cannot be looked up: report this";
    /// A name tells another type than its inode.
    NameType = "name-type", "report this: readdir shows a wrong type";
    /// Extended attributes do not agree with their list.
    Xattr = "xattr", "set or remove the file's extended attributes anew";
    /// The bytes of a small file are not what its inode says.
    Bytes = "inline-bytes", "write the file anew, or remove it";
    /// An inode without names and its orphan row do not agree.
    Orphan = "orphan", "`forebay fsck --repair` sets it right";
    /// A handle of a file that is gone, or of a session that is.
    Handle = "handle", "nothing: it ends when the target starts";
    /// A file that exists is to be destroyed.
    Destroy = "destroy-of-living-file", "do not serve the target: its data would be removed; report this";
    /// A truncate under way does not fit its file.
    Truncate = "truncate", "report this";
    /// A counter is wrong.
    Counter = "counter", "`forebay fsck --repair` sets it right";
    /// Targets of different clusters, or two of one name.
    Cluster = "cluster", "check each cluster's targets by themselves, each target once";
    /// A layout names an OST that is not there.
    UnknownOst = "unknown-ost", "check all targets of the cluster together; else the files that lie there are lost";
    /// An object that no file has.
    LeakedObject = "leaked-object", "nothing while the cluster runs: it is collected; else remove it on its OST by repair";
    /// An object on an OST that its file's layout does not name.
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
    /// Slabs.
    Data,
    /// Journal.
    Journal,
}

/// Where something is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The target as a whole.
    Target,
    /// The identity file.
    Identity,
    /// Bytes of a device.
    Device(Device, u64),
    /// A row of the table, by its key.
    Row(Vec<u8>),
}

impl Place {
    /// The row with this key.
    pub fn row(key: &[u8]) -> Self {
        Self::Row(key.to_vec())
    }

    /// The device offset, if it is one.
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

/// A row's key in words, and in hexadecimal.
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
    /// How bad.
    pub severity: Severity,
    /// What is wrong.
    pub kind: Kind,
    /// Which target, once it is known.
    pub target: String,
    /// Where.
    pub place: Place,
    /// In words.
    pub what: String,
    /// What should be there, where that can be said.
    pub expected: String,
    /// What is there.
    pub got: String,
    /// Repair has set it right.
    pub repaired: bool,
}

impl Finding {
    /// A finding without values.
    pub fn new(severity: Severity, kind: Kind, place: Place, what: impl Into<String>) -> Self {
        let (expected, got) = (String::new(), String::new());
        Self { severity, kind, target: String::new(), place, what: what.into(), expected, got, repaired: false }
    }

    /// Damage.
    pub fn error(kind: Kind, place: Place, what: impl Into<String>) -> Self {
        Self::new(Severity::Error, kind, place, what)
    }

    /// Wrong, but not dangerous.
    pub fn warning(kind: Kind, place: Place, what: impl Into<String>) -> Self {
        Self::new(Severity::Warning, kind, place, what)
    }

    /// Worth knowing.
    pub fn info(kind: Kind, place: Place, what: impl Into<String>) -> Self {
        Self::new(Severity::Info, kind, place, what)
    }

    /// With what should be there and what is.
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

/// Findings as they come: all counted, the first of each kind kept.
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
        // Of what may be missing the list is all there is.
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
