//! The answer of a call, in a form in which two file systems can be compared.

use std::fmt;

use super::sys::{Asked, errno_name};

/// Attributes from statx(2), as far as they were requested.
#[derive(Clone, Default)]
pub struct Stat {
    /// The fields present: STATX_*.
    pub mask: u32,
    /// Type and permissions.
    pub mode: u32,
    /// Link count.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size.
    pub size: u64,
    /// Inode number, and birth time where numbers are reused.
    pub inode: (u64, i128),
    /// Access, modification and change time, in nanoseconds since 1970.
    pub times: [i128; 3],
}

impl Stat {
    /// Reads a `struct statx`, whose layout is fixed.
    pub fn parse(bytes: &[u8; 256], asked: u32) -> Self {
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let time = |at: usize| i128::from(u64_at(at) as i64) * 1_000_000_000 + i128::from(u32_at(at + 8));
        let mask = u32_at(0);
        let birth = if mask & libc::STATX_BTIME != 0 { time(80) } else { 0 };
        Self {
            mask: mask & asked,
            nlink: u32_at(16),
            uid: u32_at(20),
            gid: u32_at(24),
            mode: u32_at(28) & 0xffff,
            inode: (u64_at(32), birth),
            size: u64_at(40),
            times: [time(64), time(112), time(96)],
        }
    }

    /// The file type: S_IFREG, ...
    pub fn kind(&self) -> u32 {
        self.mode & libc::S_IFMT
    }
}

impl fmt::Debug for Stat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, nlink, uid, gid, size, inode: (inode, _), times, mask } = self;
        write!(
            f,
            "inode {inode} mode {mode:o} nlink {nlink} owner {uid}:{gid} size {size} times {times:?} mask {mask:x}"
        )
    }
}

/// One part of an answer.
#[derive(Clone, Debug)]
pub enum Fact {
    /// Bytes that were read.
    Bytes(Vec<u8>),
    /// Entries of a directory, sorted: name and type.
    Entries(Vec<(Vec<u8>, u8)>),
    /// Anything else, with its name.
    Words(&'static str, String),
    /// Attributes.
    Stat(Stat),
}

/// The answer of a call.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The return value.
    pub result: Asked,
    /// What else it returned.
    pub facts: Vec<Fact>,
}

impl From<Asked> for Answer {
    fn from(result: Asked) -> Self {
        Self { result, facts: Vec::new() }
    }
}

impl Answer {
    /// Adds a fact.
    pub fn with(mut self, fact: Fact) -> Self {
        self.facts.push(fact);
        self
    }

    /// The answer as text, for a report.
    pub fn shown(&self) -> String {
        let mut shown = match self.result {
            Ok(value) => value.to_string(),
            Err(errno) => errno_name(errno),
        };
        for fact in &self.facts {
            match fact {
                Fact::Bytes(bytes) => shown += &format!(", {}", around(bytes, 0)),
                Fact::Entries(entries) => shown += &format!(", entries {}", listed(entries.iter())),
                Fact::Words(name, words) => shown += &format!(", {name} {words}"),
                Fact::Stat(stat) => shown += &format!(", {stat:?}"),
            }
        }
        shown
    }
}

/// A difference between two answers.
#[derive(Clone, Debug)]
pub struct Differ {
    /// What differs.
    pub what: &'static str,
    /// The local file system's answer.
    pub local: String,
    /// The mount's answer.
    pub mount: String,
}

/// Compares everything but attributes, which are compared with earlier ones.
pub fn compare(local: &Answer, mount: &Answer) -> Vec<Differ> {
    if local.result != mount.result {
        let shown = |answer: &Answer| answer.result.map_or_else(errno_name, |value| value.to_string());
        return vec![Differ { what: "result", local: shown(local), mount: shown(mount) }];
    }
    let pairs = local.facts.iter().zip(&mount.facts);
    pairs.filter_map(|pair| differ(pair.0, pair.1)).collect()
}

fn differ(local: &Fact, mount: &Fact) -> Option<Differ> {
    match (local, mount) {
        (Fact::Bytes(local), Fact::Bytes(mount)) if local != mount => {
            let at = local.iter().zip(mount).position(|(one, other)| one != other);
            let at = at.unwrap_or(local.len().min(mount.len()));
            Some(Differ { what: "bytes", local: around(local, at), mount: around(mount, at) })
        }
        (Fact::Entries(local), Fact::Entries(mount)) if local != mount => {
            type Entries = Vec<(Vec<u8>, u8)>;
            let only = |these: &Entries, others: &Entries| {
                format!("also {}", listed(these.iter().filter(|one| !others.contains(one))))
            };
            Some(Differ { what: "entries", local: only(local, mount), mount: only(mount, local) })
        }
        (Fact::Words(what, local), Fact::Words(_, mount)) if local != mount => {
            Some(Differ { what, local: local.clone(), mount: mount.clone() })
        }
        _ => None,
    }
}

fn listed<'a>(entries: impl Iterator<Item = &'a (Vec<u8>, u8)>) -> String {
    entries.map(|(name, kind)| format!("{}:{kind}", name.escape_ascii())).collect::<Vec<_>>().join(" ")
}

/// The number of bytes, and some of them from an offset on.
fn around(bytes: &[u8], at: usize) -> String {
    let some = &bytes[at.min(bytes.len())..bytes.len().min(at + 12)];
    let zeros = bytes[at.min(bytes.len())..].iter().take_while(|byte| **byte == 0).count();
    format!("{} bytes, from {at} on {some:02x?} ({zeros} zeros)", bytes.len())
}
