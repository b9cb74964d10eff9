//! The argument `CLUSTER` of commands.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // looks at directories and mounts; nothing here serves

use std::{
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use clap::Args;
use forebay_command::{
    cluster::Cluster,
    error::{CliError, CliResult},
    keys,
    paths::utf8,
    posix,
};
use forebay_env::{Address, Network};
use forebay_proto::Uuid;

use crate::mounts;

/// What vouches for connections over TCP.
#[derive(Clone, Debug, Default, Args)]
pub struct KeysArgs {
    /// Directory with this host's keys, for TCP addresses [default: those of the DIR of `forebay up`]
    #[arg(long, value_name = "DIR")]
    pub keys: Option<PathBuf>,
    /// Use loopback TCP addresses without keys: any user of this machine can act as anyone
    #[arg(long, conflicts_with = "keys")]
    pub insecure_loopback: bool,
}

impl KeysArgs {
    /// Nothing was said.
    pub fn is_unset(&self) -> bool {
        self.keys.is_none() && !self.insecure_loopback
    }

    /// The connections over a network of a program at `addresses`, that uses the key `name` if there are several.
    pub fn network(&self, addresses: &[Address], name: &str) -> CliResult<Network> {
        if let Some(dir) = self.home(addresses) {
            return keys::any_in(&dir).map(Network::Keys);
        }
        // Other targets may be at TCP addresses.
        match self.is_unset() && !addresses.iter().any(|address| matches!(address, Address::Tcp(_))) {
            true => Ok(Network::Closed),
            false => keys::of_options(self.keys.as_deref(), self.insecure_loopback, name),
        }
    }

    /// The same with what the options of `-o` say about keys, as fstab has no other place for them; and the other options.
    pub fn with_options(&self, options: &[String]) -> (Self, Vec<String>) {
        let mut keys = self.clone();
        let is_other = |word: &&String| match (word.strip_prefix("keys="), word.as_str()) {
            (Some(dir), _) => {
                keys.keys = Some(dir.into());
                false
            }
            (None, "insecure-loopback") => {
                keys.insecure_loopback = true;
                false
            }
            _ => true,
        };
        let others = options.iter().filter(is_other).cloned().collect();
        (keys, others)
    }

    /// Where the keys are that `mount --token` has made for one of `addresses`.
    fn home(&self, addresses: &[Address]) -> Option<PathBuf> {
        let mut homes = addresses.iter().filter(|address| matches!(address, Address::Tcp(_))).map(keys::home);
        homes.find(|dir| self.is_unset() && dir.join("authority.crt").exists())
    }

    /// The same options, for a program that this one starts.
    pub fn words(&self) -> CliResult<Vec<String>> {
        let keys = self.keys.as_deref().map(|dir| std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned()));
        let keys = keys.map(|dir| utf8(&dir)).transpose()?.map(|dir| ["--keys".to_owned(), dir]);
        let insecure = self.insecure_loopback.then(|| "--insecure-loopback".to_owned());
        Ok(keys.into_iter().flatten().chain(insecure).collect())
    }
}

/// The forms of `CLUSTER` on the command line: the directory of `up`, addresses of MDT0000, or a path on a mount.
pub enum ClusterArg {
    /// A directory with a description.
    Described(Cluster),
    /// `HOST:PORT[,HOST:PORT]`, `unix:PATH`.
    Addresses(Vec<Address>),
}

impl ClusterArg {
    /// The cluster's uuid, if it is known without a request.
    pub fn uuid(&self) -> Option<Uuid> {
        match self {
            Self::Described(cluster) => Some(cluster.uuid()),
            Self::Addresses(_) => None,
        }
    }

    /// Parses a command line argument.
    pub fn parse(text: &str) -> CliResult<Self> {
        let path = Path::new(text);
        // Links are resolved only if the path itself lies on no mount: resolving on a mount may need servers that are
        // unreachable.
        let on_mount = || mounts::holding(path).or_else(|| mounts::holding(&path.canonicalize().ok()?));
        let mounted = if text.contains(':') { None } else { on_mount() };
        if let Some((_, source)) = mounted.filter(|(_, source)| source != text) {
            return Self::parse(&source);
        }
        let closed = |error: io::Error| error.kind() == ErrorKind::PermissionDenied;
        if path.is_dir() || path.metadata().is_err_and(closed) {
            let cluster = Cluster::load(path)?;
            refuse_strangers(&cluster)?;
            return Ok(Self::Described(cluster));
        }
        if text.contains('/') && !text.starts_with("unix:") {
            return Err(CliError::failed(format!(
                "{text} is not a directory; CLUSTER is the DIR of `forebay up` or HOST:PORT"
            )));
        }
        // A mount's process has another current directory.
        let absolute = |address: Address| match address {
            Address::Unix(path) => {
                Address::Unix(std::path::absolute(&path).map_or(path, |path| path.to_string_lossy().into_owned()))
            }
            other => other,
        };
        let parse = |text: &str| text.parse().map(absolute);
        let addresses: Result<Vec<Address>, _> = text.split(',').map(parse).collect();
        addresses.map(Self::Addresses).map_err(|error| {
            CliError::usage(format!("CLUSTER is the DIR of `forebay up`, or HOST:PORT[,HOST:PORT]: {error}"))
        })
    }

    /// The connections over a network that its servers need.
    pub fn network(&self, args: &KeysArgs) -> CliResult<Network> {
        match self {
            Self::Described(cluster) if args.is_unset() => keys::of_cluster(cluster, keys::ADMIN),
            _ => args.network(&self.mgs(), keys::ADMIN),
        }
    }

    /// The addresses of MDT0000.
    pub fn mgs(&self) -> Vec<Address> {
        match self {
            Self::Described(cluster) => cluster.mgs(),
            Self::Addresses(addresses) => addresses.clone(),
        }
    }
}

/// Refuses a user who may not open the servers' sockets: to that user all servers would seem silent.
fn refuse_strangers(cluster: &Cluster) -> CliResult {
    let sockets = cluster.mgs().into_iter().filter_map(|address| match address {
        Address::Unix(path) => Some(PathBuf::from(path)),
        _ => None,
    });
    match sockets.into_iter().find(|path| !posix::may_write(path)) {
        None => Ok(()),
        Some(_) => Err(CliError::failed(format!(
            "the servers of {} answer only root and who started them; programs on the mount need nothing of it (`df` tells \
             the space)",
            cluster.dir.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_argument_is_a_directory_or_addresses() {
        assert!(matches!(ClusterArg::parse("mds1:7700,mds2:7700"), Ok(ClusterArg::Addresses(a)) if a.len() == 2));
        assert!(ClusterArg::parse("/no/such/dir").err().expect("not there").message.contains("forebay up"));
        assert_eq!(ClusterArg::parse("nonsense").err().expect("no port").exit_code(), 2);
    }
}
