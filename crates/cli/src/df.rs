//! `forebay df CLUSTER|MNT`: space of every target, as `lfs df` shows it.

use std::path::Path;

use clap::Args;
use forebay_env::real;
use serde_json::{Value, json};

use crate::{
    bench::align,
    cluster::ClusterArg,
    error::CliResult,
    status::{gather, refuse_silence, space},
    units::show_bytes,
};

/// Of which cluster.
#[derive(Debug, Args)]
pub struct DfArgs {
    /// The DIR of `forebay up`, a mount, or HOST:PORT[,HOST:PORT] of the MGS
    #[arg(value_name = "CLUSTER")]
    pub cluster: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Prints it.
pub fn run(args: &DfArgs) -> CliResult {
    let cluster = ClusterArg::parse(&args.cluster)?;
    let report = real::run(|env| async move { gather(&env, &cluster).await })?;
    let targets = report["targets"].as_array().map_or(&[][..], Vec::as_slice);
    let spaces: Vec<Space> = targets.iter().map(Space::of).collect();
    if args.json {
        println!("{}", json!({ "targets": spaces.iter().map(Space::json).collect::<Vec<_>>() }));
        return Ok(());
    }
    align(&table(&spaces, Path::new(&args.cluster))).iter().for_each(|line| println!("{line}"));
    refuse_silence(&report)
}

struct Space {
    name: String,
    total: Option<u64>,
    available: Option<u64>,
}

impl Space {
    fn of(target: &Value) -> Self {
        let name = target["name"].as_str().unwrap_or("?").to_owned();
        Self { name, total: space(target, "total"), available: space(target, "available") }
    }

    fn used(&self) -> Option<u64> {
        Some(self.total?.saturating_sub(self.available?))
    }

    fn json(&self) -> Value {
        json!({ "name": self.name, "total_bytes": self.total, "used_bytes": self.used(), "available_bytes": self.available })
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

/// Every target, then the sum of the OSTs: what files can hold.
fn table(spaces: &[Space], place: &Path) -> Vec<Vec<String>> {
    let heads = ["target", "bytes", "used", "available", "use%", "of"].map(str::to_owned).to_vec();
    let place = place.display().to_string();
    let (mdts, osts): (Vec<&Space>, Vec<&Space>) = spaces.iter().partition(|space| space.name.starts_with("MDT"));
    let sum = |of: fn(&Space) -> Option<u64>| osts.iter().filter_map(|space| of(space)).reduce(|a, b| a + b);
    let all = Space { name: "files".into(), total: sum(|s| s.total), available: sum(|s| s.available) };
    let each = mdts.iter().chain(&osts).map(|space| space.cells(&place));
    [heads].into_iter().chain(each).chain([all.cells(&place)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_get_the_sum_of_the_osts_and_nothing_of_the_mdt() {
        let space = |name: &str, total, available| Space { name: name.into(), total, available };
        let spaces = [
            space("MDT0000", Some(1 << 30), Some(1 << 29)),
            space("OST0000", Some(1 << 30), Some(1 << 30)),
            space("OST0001", None, None),
            space("OST0002", Some(1 << 30), Some(1 << 29)),
        ];
        let table = table(&spaces, Path::new("/x"));
        assert_eq!(table[5][..5], ["files", "2 GiB", "512 MiB", "1.5 GiB", "25%"]);
        assert_eq!(table[3][1..5], ["-", "-", "-", "-"]);
    }
}
