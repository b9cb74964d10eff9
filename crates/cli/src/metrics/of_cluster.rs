//! Addresses at which the processes of a cluster of `up` serve metrics, as its description records them.

use forebay_command::{
    cluster::Cluster,
    error::{CliError, CliResult},
    processes::PidFile,
};
use forebay_env::Address;

use super::{Place, parse_address, plain, refuse_public, url};
use crate::{listen_address, server_processes};

/// The argument of `up --metrics`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// No metrics any more.
    Off,
    /// At this address.
    At(Address),
}

/// Parses an argument: `HOST:PORT` or `off`.
pub fn parse(text: &str) -> Result<Asked, String> {
    if text == "off" {
        return Ok(Asked::Off);
    }
    match parse_address(text)? {
        address if text.ends_with(":0") => Err(format!("{}: give a port, so that it can be found", plain(&address))),
        address => Ok(Asked::At(address)),
    }
}

/// The new settings for the description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    metrics: Option<String>,
    public: bool,
}

impl Wanted {
    /// None: no change. Errors: an address that other machines can reach, without `--metrics-public`.
    pub fn of(asked: Option<&Asked>, public: bool) -> CliResult<Option<Self>> {
        match asked {
            None => Ok(None),
            Some(Asked::Off) => Ok(Some(Self { metrics: None, public: false })),
            Some(Asked::At(address)) => {
                refuse_public(&Place { address: address.clone(), public })?;
                Ok(Some(Self { metrics: Some(plain(address)), public }))
            }
        }
    }

    /// Sets it in the description, which is not saved here. Errors: servers are running; the change needs a restart.
    pub fn set(&self, cluster: &mut Cluster) -> CliResult {
        let description = &mut cluster.description;
        if (&self.metrics, self.public) == (&description.metrics, description.metrics_public) {
            return Ok(());
        }
        let was = description.metrics.clone();
        let mut processes = server_processes::of(cluster).into_iter();
        if processes.any(|(name, _)| PidFile::of(&cluster.run_dir(), &name).running().is_some()) {
            let (was, dir) = (was.as_deref().unwrap_or("off"), cluster.dir.display());
            return Err(CliError::failed(format!(
                "--metrics: the servers run with `{was}`, and only a start changes it: `forebay down {dir}` first"
            )));
        }
        (cluster.description.metrics, cluster.description.metrics_public) = (self.metrics.clone(), self.public);
        Ok(())
    }
}

/// The address at which process `name` serves metrics, if it does. The first process has the configured address, each
/// further one the next port.
pub fn address(cluster: &Cluster, name: &str) -> CliResult<Option<Address>> {
    let number = server_processes::of(cluster).iter().position(|(process, _)| process == name);
    let (Some(text), Some(number)) = (&cluster.description.metrics, number) else { return Ok(None) };
    let first = parse_address(text).map_err(CliError::usage)?;
    listen_address::nth(&first, number).map(Some)
}

/// The URLs of all processes' metrics.
pub fn urls(cluster: &Cluster) -> Vec<String> {
    let processes = server_processes::of(cluster);
    let addresses = processes.iter().filter_map(|(name, _)| address(cluster, name).ok().flatten());
    addresses.map(|address| url(&address)).collect()
}
