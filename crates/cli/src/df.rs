//! `forebay df [CLUSTER|MNT]`: space and files of every target, as `lfs df` shows it.

use std::path::Path;

use clap::Args;
use forebay_command::{
    error::{CliError, CliResult},
    table::align,
    units::{show_bytes, show_count},
};
use forebay_env::real;
use serde_json::{Value, json};

use crate::{
    cluster_arg::{ClusterArg, KeysArgs},
    mounts, pool,
    status::{gather, reasons, refuse_silence, space},
};

/// Of which cluster.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct DfArgs {
    /// Sizes for people (as they are anyway)
    #[arg(short = 'h', long = "human-readable")]
    human: bool,
    /// Files and objects instead of bytes
    #[arg(short = 'i', long)]
    inodes: bool,
    /// Only the OSTs of this pool
    #[arg(short = 'p', long, value_name = "POOL")]
    pool: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    keys: KeysArgs,
    /// Show the flags
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// The DIR of `forebay up`, a mount, or HOST:PORT[,HOST:PORT] of the MGS; without it, all mounts of this machine
    #[arg(value_name = "CLUSTER")]
    pub cluster: Option<String>,
}

/// Prints the table.
pub fn run(args: &DfArgs) -> CliResult {
    if let Some(cluster) = &args.cluster {
        return show(args, cluster);
    }
    let mounts = mounts::all();
    if mounts.is_empty() {
        let words = "nothing is mounted here: `forebay df CLUSTER`, the DIR of `forebay up` or HOST:PORT";
        return Err(CliError::failed(words));
    }
    // A mount that fails hides no other.
    let mut all = Ok(());
    for mount in &mounts {
        all = all.and(show(args, mount));
    }
    all
}

fn show(args: &DfArgs, place: &str) -> CliResult {
    let cluster = ClusterArg::parse(place)?;
    let members = args.pool.as_ref().map(|name| members(&cluster, &args.keys, name)).transpose()?;
    let network = cluster.network(&args.keys)?;
    let report = real::run(|env| async move { gather(&env.with_network(network), &cluster).await })?;
    let targets = report["targets"].as_array().map_or(&[][..], Vec::as_slice);
    let mut spaces: Vec<Space> = targets.iter().map(Space::of).collect();
    if let Some(members) = members {
        spaces.retain(|space| members.contains(&space.name));
    }
    if args.json {
        println!("{}", json!({ "targets": spaces.iter().map(Space::json).collect::<Vec<_>>() }));
        return Ok(());
    }
    let table = if args.inodes { files_table } else { table };
    align(&table(&spaces, Path::new(place))).iter().for_each(|line| println!("{line}"));
    reasons(&report).iter().for_each(|line| println!("{line}"));
    refuse_silence(&report)
}

/// Names of a pool's OSTs.
fn members(cluster: &ClusterArg, keys: &KeysArgs, name: &str) -> CliResult<Vec<String>> {
    let pools = pool::of_cluster(cluster, keys)?.pools;
    let pool = pools.iter().find(|pool| pool.name == name);
    let pool = pool.ok_or_else(|| CliError::failed(format!("there is no pool '{name}'; see `forebay pool list`")))?;
    Ok(pool.osts.iter().map(|ost| format!("OST{ost:04x}")).collect())
}

struct Space {
    name: String,
    total: Option<u64>,
    available: Option<u64>,
    /// Files of an MDT, objects of an OST.
    files: Option<u64>,
}

impl Space {
    fn of(target: &Value) -> Self {
        let name = target["name"].as_str().unwrap_or("?").to_owned();
        let files = target["inodes"].as_u64().or(target["objects"].as_u64());
        // Space granted to clients for later writes holds no data.
        let granted = target["granted_bytes"].as_u64().unwrap_or(0);
        let available = space(target, "available").map(|available| available + granted);
        Self { name, total: space(target, "total"), available, files }
    }

    fn used(&self) -> Option<u64> {
        Some(self.total?.saturating_sub(self.available?))
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "total_bytes": self.total,
            "used_bytes": self.used(),
            "available_bytes": self.available,
            "files": self.files,
        })
    }

    fn cells(&self, place: &str) -> Vec<String> {
        let bytes = |bytes: Option<u64>| bytes.map_or("-".into(), show_bytes);
        let percent = match (self.used(), self.total) {
            (Some(used), Some(total)) if total > 0 => format!("{}%", (used * 100).div_ceil(total)),
            _ => "-".into(),
        };
        vec![self.name.clone(), bytes(self.total), bytes(self.used()), bytes(self.available), percent, place.to_owned()]
    }
}

/// A row for every target, then the sum of the OSTs, which is the space for files.
fn table(spaces: &[Space], place: &Path) -> Vec<Vec<String>> {
    let heads = ["target", "bytes", "used", "available", "use%", "of"].map(str::to_owned).to_vec();
    let place = place.display().to_string();
    let (mdts, osts): (Vec<&Space>, Vec<&Space>) = spaces.iter().partition(|space| space.name.starts_with("MDT"));
    let sum = |of: fn(&Space) -> Option<u64>| osts.iter().filter_map(|space| of(space)).reduce(|a, b| a + b);
    let all = Space { name: "files".into(), total: sum(|s| s.total), available: sum(|s| s.available), files: None };
    let each = mdts.iter().chain(&osts).map(|space| space.cells(&place));
    [heads].into_iter().chain(each).chain([all.cells(&place)]).collect()
}

/// A row for every target: files of MDTs, objects of OSTs.
fn files_table(spaces: &[Space], place: &Path) -> Vec<Vec<String>> {
    let heads = ["target", "files", "of"].map(str::to_owned).to_vec();
    let cells = |space: &Space| {
        let kind = if space.name.starts_with("MDT") { "" } else { " objects" };
        let files = space.files.map_or("-".into(), |files| format!("{}{kind}", show_count(files)));
        vec![space.name.clone(), files, place.display().to_string()]
    };
    [heads].into_iter().chain(spaces.iter().map(cells)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_get_the_sum_of_the_osts_and_nothing_of_the_mdt() {
        let space = |name: &str, total, available| Space { name: name.into(), total, available, files: Some(1234) };
        let spaces = [
            space("MDT0000", Some(1 << 30), Some(1 << 29)),
            space("OST0000", Some(1 << 30), Some(1 << 30)),
            space("OST0001", None, None),
            space("OST0002", Some(1 << 30), Some(1 << 29)),
        ];
        let bytes = table(&spaces, Path::new("/x"));
        assert_eq!(bytes[5][..5], ["files", "2 GiB", "512 MiB", "1.5 GiB", "25%"]);
        assert_eq!(bytes[3][1..5], ["-", "-", "-", "-"]);
        let files = files_table(&spaces, Path::new("/x"));
        assert_eq!((&files[1][1][..], &files[2][1][..]), ("1,234", "1,234 objects"));
    }
}
