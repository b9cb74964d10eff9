//! The description of a cluster that `forebay up` keeps in its directory: `cluster.toml`.
//!
//! Layout of the directory: `cluster.toml`, a directory per target (`MDT0000`, `OST0000`, ...), `run/` (sockets, pids),
//! `log/`, `mnt/` (the mount, unless another place is given).
//! Invariant: paths in the file are relative to the directory, so that it can be moved while it is stopped.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // a description is read before there is a shard

use std::{
    collections::BTreeSet,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    time::Duration,
};

use forebay_env::Address;
use forebay_proto::{
    TargetId, TargetKind, Uuid,
    message::{ClusterMap, MapTarget},
};
use serde::{Deserialize, Serialize};

use crate::{
    error::{CliError, CliResult, Doing},
    posix,
    units::{parse_duration, write_duration},
};

/// Name of the file.
pub const FILE: &str = "cluster.toml";
/// Longest path of a Unix socket.
const SOCKET_PATH_BYTES: usize = 107;
/// The shortest recovery window. A live client reconnects every 300 ms; one that comes too late loses its pinned
/// requests.
const SHORTEST_WINDOW: Duration = Duration::from_secs(1);
/// The longest recovery window. All clients wait that long for one client that died.
const LONGEST_WINDOW: Duration = Duration::from_secs(3600);

/// A described cluster and its directory.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Its directory, absolute.
    pub dir: PathBuf,
    /// Content of its `cluster.toml`.
    pub description: Description,
}

/// Content of `cluster.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The cluster's uuid.
    pub cluster: String,
    /// A process per target instead of one for all.
    #[serde(default)]
    pub separate: bool,
    /// Its mount point on this machine; `None` = it is not mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<PathBuf>,
    /// Commit level of the mount: data, commit, memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// First address at which its processes serve metrics; the others use the ports behind it. `None` = no metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<String>,
    /// Other machines may request the metrics.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub metrics_public: bool,
    /// How long its servers wait for clients after a crash, as `5s`. `None` = the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_window: Option<String>,
    /// The directory with its keys, if it is not `keys`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<PathBuf>,
    /// Its TCP addresses are of this machine, and are used without keys: every user of the machine may act as anyone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure_loopback: bool,
    /// Addresses of MDT0000, if this host has joined a cluster whose MDT0000 is elsewhere. The targets are then this host's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mgs: Vec<String>,
    /// All targets, or all of this host.
    #[serde(rename = "target", default)]
    pub targets: Vec<TargetEntry>,
}

/// One target of `cluster.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetEntry {
    /// `MDT0000`, `OST0003`.
    pub name: String,
    /// Its directory.
    pub dir: PathBuf,
    /// The addresses it listens at, best first: `unix:PATH`, `tcp:HOST:PORT`.
    pub listen: Vec<String>,
}

impl Description {
    /// Of a cluster of which nothing else is known.
    pub fn of(cluster: Uuid) -> Self {
        Self {
            cluster: cluster.to_string(),
            separate: false,
            mount: None,
            commit: None,
            metrics: None,
            metrics_public: false,
            recovery_window: None,
            keys: None,
            insecure_loopback: false,
            mgs: Vec::new(),
            targets: Vec::new(),
        }
    }
}

impl Cluster {
    /// Reads the description of `dir`.
    pub fn load(dir: &Path) -> CliResult<Self> {
        let absolute = dir.canonicalize().map_err(|error| unreadable(dir, &error))?;
        Self::read(&absolute.join(FILE), absolute)
    }

    /// Reads a description from a file of any name (`serve --map FILE`).
    pub fn load_file(path: &Path) -> CliResult<Self> {
        let absolute = path.canonicalize().map_err(|error| unreadable_file(path, &error))?;
        let dir = absolute.parent().expect("a file lies in a directory").to_owned();
        Self::read(&absolute, dir)
    }

    fn read(path: &Path, dir: PathBuf) -> CliResult<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| match path.file_name() {
            Some(name) if name == FILE => unreadable(&dir, &error),
            _ => unreadable_file(path, &error),
        })?;
        Self::parse(&text, path, dir)
    }

    /// The cluster in `dir` that this text from `path` describes.
    pub fn parse(text: &str, path: &Path, dir: PathBuf) -> CliResult<Self> {
        let shown = path.display();
        let description: Description =
            toml::from_str(text).doing(|| format!("{shown} is not a cluster's description"))?;
        let cluster = Self { dir, description };
        cluster.check().map_err(|words| CliError::failed(format!("{shown}: {words}")))?;
        Ok(cluster)
    }

    /// True if `dir` holds a description.
    pub fn exists(dir: &Path) -> bool {
        dir.join(FILE).exists()
    }

    /// True if `dir` holds a description. Errors: this user may not look into it.
    pub fn find(dir: &Path) -> CliResult<bool> {
        match dir.join(FILE).metadata() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(unreadable(dir, &error)),
            Err(_) => Ok(false),
        }
    }

    /// Writes the description atomically.
    pub fn save(&self) -> CliResult {
        let text = toml::to_string_pretty(&self.description).expect("a description becomes TOML");
        let head = "# Written by `forebay up`. Paths are relative to this directory. Stop with `forebay down` before editing.\n";
        let (path, aside) = (self.dir.join(FILE), self.dir.join(format!("{FILE}.new")));
        let write = || {
            std::fs::write(&aside, format!("{head}{text}"))?;
            std::fs::File::open(&aside)?.sync_all()?;
            std::fs::rename(&aside, &path)?;
            std::fs::File::open(&self.dir)?.sync_all()
        };
        write().doing(|| format!("cannot write {}", path.display()))
    }

    fn check(&self) -> Result<(), String> {
        self.description.cluster.parse::<Uuid>().map_err(|error| format!("cluster = ...: {error}"))?;
        let window = self.description.recovery_window.as_deref().map(parse_recovery_window).transpose();
        window.map_err(|error| format!("recovery_window: {error}"))?;
        let mut seen = BTreeSet::new();
        for target in &self.description.targets {
            let id: TargetId = target.name.parse().map_err(|error| format!("target {}: {error}", target.name))?;
            if !seen.insert(id) {
                return Err(format!("target {id} is described twice"));
            }
            self.addresses(target).map_err(|error| format!("target {id}: {error}"))?;
        }
        for address in &self.description.mgs {
            address.parse::<Address>().map_err(|error| format!("mgs: {error}"))?;
        }
        match (self.is_joined(), seen.contains(&TargetId::mdt(0))) {
            (false, false) => Err("there is no MDT0000".into()),
            (true, true) => Err("it has an MDT0000, and names another with mgs".into()),
            _ => Ok(()),
        }
    }

    /// The cluster's uuid.
    pub fn uuid(&self) -> Uuid {
        self.description.cluster.parse().expect("checked when it was loaded")
    }

    /// All targets in order, MDTs first.
    pub fn targets(&self) -> Vec<Target> {
        let mut targets: Vec<Target> = self
            .description
            .targets
            .iter()
            .map(|entry| Target {
                id: entry.name.parse().expect("checked when it was loaded"),
                dir: self.dir.join(&entry.dir),
                addresses: self.addresses(entry).expect("checked when it was loaded"),
            })
            .collect();
        targets.sort_by_key(|target| target.id);
        targets
    }

    /// True if this host has joined: MDT0000, and so the map, is elsewhere.
    pub fn is_joined(&self) -> bool {
        !self.description.mgs.is_empty()
    }

    /// The addresses of MDT0000.
    pub fn mgs(&self) -> Vec<Address> {
        if self.is_joined() {
            let parse = |text: &String| text.parse().expect("checked when it was loaded");
            return self.description.mgs.iter().map(parse).collect();
        }
        let mgs = self.targets().into_iter().find(|target| target.id == TargetId::mdt(0));
        mgs.expect("checked when it was loaded").addresses
    }

    fn addresses(&self, entry: &TargetEntry) -> Result<Vec<Address>, String> {
        let absolute = |text: &String| match text.parse().map_err(|error| format!("{error}"))? {
            Address::Unix(path) => socket_address(&self.dir.join(path))
                .map_err(|words| format!("{words}: move the cluster to another path")),
            address => Ok(address),
        };
        entry.listen.iter().map(absolute).collect()
    }

    /// The map of the described targets. Those of hosts that have joined are known to MDT0000.
    pub fn map(&self) -> ClusterMap {
        let target = |target: Target| MapTarget {
            id: target.id,
            uuid: Uuid::default(),
            addresses: target.addresses.iter().map(Address::to_string).collect(),
        };
        ClusterMap { cluster: self.uuid(), epoch: 1, targets: self.targets().into_iter().map(target).collect() }
    }

    /// Number of OSTs.
    pub fn ost_count(&self) -> usize {
        self.targets().iter().filter(|target| target.id.kind == TargetKind::Ost).count()
    }

    /// How long its servers wait for clients after a crash. `None`: the servers use their default.
    pub fn recovery_window(&self) -> Option<Duration> {
        let text = self.description.recovery_window.as_deref();
        text.map(|text| parse_recovery_window(text).expect("checked when it was loaded"))
    }

    /// The directory of pids and sockets.
    pub fn run_dir(&self) -> PathBuf {
        self.dir.join("run")
    }

    /// The directory of logs.
    pub fn log_dir(&self) -> PathBuf {
        self.dir.join("log")
    }
}

/// A target of a described cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its id.
    pub id: TargetId,
    /// Its directory.
    pub dir: PathBuf,
    /// The addresses it listens at.
    pub addresses: Vec<Address>,
}

/// How long a restarted target waits for its earlier clients, of an argument or a description.
pub fn parse_recovery_window(text: &str) -> Result<Duration, String> {
    let window = parse_duration(text)?;
    if (SHORTEST_WINDOW..=LONGEST_WINDOW).contains(&window) {
        return Ok(window);
    }
    let why = if window < SHORTEST_WINDOW {
        "clients that live would not be back in time, and lose what they wrote last"
    } else {
        "everybody waits that long for one client that died"
    };
    Err(format!("{why}: use {} to {}", write_duration(SHORTEST_WINDOW), write_duration(LONGEST_WINDOW)))
}

/// The address of the Unix socket at `path`. Errors: a text that says why there can be none.
pub fn socket_address(path: &Path) -> Result<Address, String> {
    let shown = path.display();
    let text = path.to_str().ok_or_else(|| format!("the path of the socket {shown} is not UTF-8"))?;
    match text.len() {
        0..=SOCKET_PATH_BYTES => Ok(Address::Unix(text.to_owned())),
        bytes => {
            Err(format!("the path of the socket {shown} is too long ({bytes} bytes, at most {SOCKET_PATH_BYTES})"))
        }
    }
}

/// Why `dir` shows no cluster.
fn unreadable(dir: &Path, error: &io::Error) -> CliError {
    let shown = dir.display();
    CliError::failed(match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            format!("there is no cluster in {shown} (no {FILE}): `forebay up {shown}` makes one")
        }
        ErrorKind::PermissionDenied => match closed_to_us(&dir.join(FILE)) {
            Some((closed, owner)) => {
                let (closed, owner) = (closed.display(), posix::show_user(owner));
                format!("the cluster in {shown} is closed to you: {closed} belongs to {owner}. Be that user or root")
            }
            None => format!("{shown} is closed to you: call this as the cluster's owner or as root"),
        },
        _ => format!("cannot read the cluster in {shown}: {error}"),
    })
}

fn unreadable_file(path: &Path, error: &io::Error) -> CliError {
    let shown = path.display();
    CliError::failed(match error.kind() {
        ErrorKind::NotFound => {
            format!("there is no {shown}: give the cluster's description ({FILE} in the DIR of `forebay up`)")
        }
        ErrorKind::PermissionDenied => format!("{shown} is closed to you: call this as the cluster's owner or as root"),
        _ => format!("cannot read {shown}: {error}"),
    })
}

/// The lowest of `path` and the directories above it that this user can see, with its owner. This user may not look
/// into it.
fn closed_to_us(path: &Path) -> Option<(PathBuf, u32)> {
    let absolute = std::path::absolute(path).ok()?;
    absolute.ancestors().find_map(|above| Some((above.to_owned(), posix::owner(above)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(dir: &str) -> Cluster {
        let target =
            |name: &str, listen: &str| TargetEntry { name: name.into(), dir: name.into(), listen: vec![listen.into()] };
        let description = Description {
            separate: true,
            metrics: Some("127.0.0.1:9870".into()),
            recovery_window: Some("5s".into()),
            targets: vec![target("OST0000", "tcp:127.0.0.1:7000"), target("MDT0000", "unix:run/MDT0000.sock")],
            ..Description::of(Uuid([7; 16]))
        };
        Cluster { dir: dir.into(), description }
    }

    #[test]
    fn a_description_survives_its_file() {
        let described = cluster("/x").description;
        let text = toml::to_string_pretty(&described).expect("TOML");
        assert_eq!(toml::from_str::<Description>(&text).expect("a description"), described, "{text}");
    }

    #[test]
    fn targets_come_in_order_with_absolute_places() {
        let targets = cluster("/x").targets();
        assert_eq!(targets[0].id, TargetId::mdt(0));
        assert_eq!(targets[0].addresses, [Address::Unix("/x/run/MDT0000.sock".into())]);
        assert_eq!(targets[1].dir, Path::new("/x/OST0000"));
    }

    #[test]
    fn descriptions_that_make_no_sense_are_refused_with_words() {
        let mut twice = cluster("/x");
        twice.description.targets.push(twice.description.targets[0].clone());
        let mut headless = cluster("/x");
        headless.description.targets.pop();
        let mut two_heads = cluster("/x");
        two_heads.description.mgs = vec!["tcp:10.0.0.1:4500".into()];
        let mut strange = cluster("/x");
        strange.description.targets[0].name = "OSTX".into();
        let mut hasty = cluster("/x");
        hasty.description.recovery_window = Some("0s".into());
        let long = cluster(&format!("/{}", "x".repeat(120)));
        for (cluster, words) in [
            (twice, "twice"),
            (headless, "no MDT0000"),
            (two_heads, "names another"),
            (strange, "hexadecimal"),
            (hasty, "1s to 1h"),
            (long, "too long"),
        ] {
            let said = cluster.check().expect_err(words);
            assert!(said.contains(words), "{said}");
        }
        assert_eq!(cluster("/x").check(), Ok(()));
    }

    #[test]
    fn a_host_that_has_joined_knows_where_mdt0000_is_and_needs_no_targets() {
        let mut joined = cluster("/x");
        joined.description.mgs = vec!["tcp:10.0.0.1:4500".into()];
        joined.description.targets.clear();
        assert_eq!(joined.check(), Ok(()));
        assert_eq!(joined.mgs(), [Address::Tcp("10.0.0.1:4500".into())]);
        joined.description.mgs = vec!["nowhere".into()];
        assert!(joined.check().is_err());
    }

    #[test]
    fn windows_that_lose_data_or_never_end_are_refused_with_words() {
        for (text, words) in
            [("0s", "use 1s to 1h"), ("999ms", "lose what they wrote last"), ("2h", "everybody waits"), ("x", "5s")]
        {
            let said = parse_recovery_window(text).expect_err(text);
            assert!(said.contains(words), "{text}: {said}");
        }
        for text in ["1s", "1500ms", "10m", "1h"] {
            assert_eq!(parse_recovery_window(text).map(write_duration).as_deref(), Ok(text));
        }
    }
}
