//! The argument `CLUSTER` of commands.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // looks at directories and mounts; nothing here serves

use std::{
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use forebay_command::{
    cluster::Cluster,
    error::{CliError, CliResult},
    posix,
};
use forebay_env::Address;
use forebay_proto::Uuid;

use crate::mounts;

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
