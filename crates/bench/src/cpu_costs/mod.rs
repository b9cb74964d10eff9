//! `forebay bench cpu-costs`: CPU time of each kind of message at the client and at the servers, and of each byte.
//!
//! A cluster of one MDT and one OST, each in its own process, over TCP; this process is the client. Many requests are
//! always in flight, so that the bottleneck never waits. A shard busy-polls for the next small message for up to 100 us
//! before it sleeps (decision 0010), which is CPU time but no work. The figures of the other processes may include some
//! of that. So they are upper bounds where `busy` is far below 1.
//!
//! The measured value is the process's CPU time, kernel included, divided by messages. Commits, checkpoints and all
//! other work that a message causes later count as its own.

pub(super) mod costs;
mod load;
mod primitives;
mod servers;

use std::path::{Path, PathBuf};

use clap::Args;
use forebay_command::{
    error::{CliError, CliResult, Doing},
    progress,
    units::parse_positive_size,
};
use forebay_env::{Network, real};
use serde_json::json;

use self::{costs::Costs, load::Measured};
pub(super) use self::{
    load::{caller, payload},
    servers::{Listen, Servers},
};
use super::report::{Report, Row, Sample};

/// How to measure.
#[derive(Debug, Args)]
pub struct CpuCostsArgs {
    /// Where the cluster's stores lie while it is measured: an empty or new directory, removed at the end
    pub dir: PathBuf,
    /// Files made, looked at, and removed in each repetition
    #[arg(long, default_value_t = 20_000, value_name = "N")]
    pub files: u32,
    /// Bytes written and read in each repetition with requests of 1 MiB; smaller requests move a part of it
    #[arg(long, default_value = "1GiB", value_parser = parse_positive_size, value_name = "SIZE")]
    pub bytes: u64,
    /// Requests in flight
    #[arg(long, default_value_t = 32, value_name = "N")]
    pub depth: u32,
    /// Repetitions
    #[arg(short = 'i', long, default_value_t = 3, value_name = "N")]
    pub repetitions: u32,
    /// Where the cluster listens: the ports behind it are used too
    #[arg(long, default_value = "127.0.0.1:7940", value_name = "HOST:PORT")]
    pub listen: String,
    /// Also write the medians to this file, for the laboratory to read (`machines/cpu-costs.toml`)
    #[arg(long, value_name = "FILE")]
    pub toml: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How much is measured: see [`CpuCostsArgs`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Amount {
    pub files: u32,
    pub bytes: u64,
    pub depth: u32,
    pub repetitions: u32,
}

/// Starts the cluster, measures, stops it, prints.
pub fn run(args: &CpuCostsArgs) -> CliResult {
    if args.files < 100 || args.repetitions == 0 || args.depth == 0 || args.depth > 1024 {
        return Err(CliError::usage("--files: at least 100; -i: at least 1; --depth: 1 to 1024"));
    }
    if args.bytes < 64 << 20 {
        return Err(CliError::usage("--bytes: less than 64MiB measures nothing"));
    }
    let CpuCostsArgs { files, bytes, depth, repetitions, .. } = *args;
    let amount = Amount { files, bytes, depth, repetitions };
    let (rounds, primitives) = measure(&args.dir, amount, Some(&args.listen))?;
    let rows = rows(&rounds, &primitives);
    if let Some(path) = &args.toml {
        let text = Costs::of(&rounds, &primitives).to_toml();
        std::fs::write(path, text).doing(|| format!("cannot write {}", path.display()))?;
    }
    let headline = format!(
        "cpu-costs: microseconds of CPU per message, {} in flight, {} files, {} MiB; one client, MDT and OST, a process each, \
         over TCP",
        args.depth,
        args.files,
        args.bytes >> 20
    );
    let parameters = json!({ "depth": args.depth, "files": args.files, "bytes": args.bytes });
    Report { bench: "cpu-costs", headline, parameters, rows }.print(args.json);
    Ok(())
}

/// The costs of messages and of bytes, for each repetition.
type Rounds = (Vec<Vec<Measured>>, Vec<primitives::Primitives>);

/// Medians, over the addresses that `up` uses by default.
pub(super) fn over_sockets_of_up(dir: &Path, amount: Amount) -> CliResult<Costs> {
    let (rounds, primitives) = measure(dir, amount, None)?;
    Ok(Costs::of(&rounds, &primitives))
}

/// Starts the cluster, measures, and stops it. With `listen` the cluster uses TCP.
fn measure(dir: &Path, amount: Amount, listen: Option<&str>) -> CliResult<Rounds> {
    let listen = listen.map_or(Listen::Sockets, Listen::InsecureLoopback);
    let servers = Servers::start(dir, listen, 1, amount.bytes * 4)?;
    let bar = progress::bar("measuring", u64::from(amount.repetitions), progress::Counts::Things);
    let mut rounds = Vec::new();
    for round in 0..amount.repetitions {
        let mgs = servers.mgs();
        let outcome = real::run(async |env| {
            let env = env.with_network(Network::InsecureLoopback);
            load::measure(&env, &servers, mgs, amount, round).await
        });
        rounds.push(outcome.doing(|| "a measured request failed".into())?);
        bar.add(1);
    }
    drop(bar);
    servers.stop()?;
    let primitives: Vec<primitives::Primitives> = (0..amount.repetitions).map(|_| primitives::measure()).collect();
    Ok((rounds, primitives))
}

/// A row per message and side, then the costs of bytes.
fn rows(rounds: &[Vec<Measured>], primitives: &[primitives::Primitives]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (index, first) in rounds[0].iter().enumerate() {
        for side in ["client", "server"] {
            let samples = rounds.iter().map(|round| round[index].sample(side == "server")).collect();
            rows.push(Row { phase: first.message.clone(), labels: vec![("side", json!(side))], unit: "us", samples });
        }
    }
    for (what, value) in primitives[0].named() {
        let samples = primitives.iter().map(|round| {
            let value = round.named().into_iter().find(|(name, _)| *name == what).map_or(value, |(_, value)| value);
            Sample { value: value * 1024.0, details: Vec::new() }
        });
        rows.push(Row { phase: what.into(), labels: Vec::new(), unit: "ns/KiB", samples: samples.collect() });
    }
    rows
}
