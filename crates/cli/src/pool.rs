//! `forebay pool`: named sets of OSTs, over which `setstripe -p` stripes files. As in lfs: `pool_new`, `pool_add`,
//! `pool_list` ...

use std::time::Duration;

use clap::{Args, Subcommand};
use forebay_client::{Caller, Client, MountOptions};
use forebay_command::error::{CliError, CliResult, Doing};
use forebay_env::{Env, real};
use forebay_proto::message::{PoolsReply, pool_change};
use serde_json::json;

use crate::cluster_arg::{ClusterArg, KeysArgs};

/// How long to wait for the MDT.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What to do with pools.
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Make a pool, with these OSTs
    New(ChangeArgs),
    /// Add OSTs to a pool
    Add(ChangeArgs),
    /// Take OSTs out of a pool; files that lie on them stay where they are
    Remove(ChangeArgs),
    /// Forget a pool that has no OSTs any more
    Destroy(ChangeArgs),
    /// Show the pools, or the OSTs of one
    List(ListArgs),
}

/// Which pool, which OSTs.
#[derive(Debug, Args)]
pub struct ChangeArgs {
    /// The DIR of `forebay up`, a mount, or HOST:PORT[,HOST:PORT] of the MGS
    #[arg(value_name = "CLUSTER")]
    cluster: String,
    /// The pool: up to 15 letters, digits, _ and -
    #[arg(value_name = "POOL")]
    pool: String,
    /// OSTs: 3, OST0003, 0-3, OST[0-3], several with commas between
    #[arg(value_name = "OST")]
    osts: Vec<String>,
    #[command(flatten)]
    keys: KeysArgs,
}

/// Of which cluster.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// The DIR of `forebay up`, a mount, or HOST:PORT[,HOST:PORT] of the MGS
    #[arg(value_name = "CLUSTER")]
    cluster: String,
    /// Only this one's OSTs
    #[arg(value_name = "POOL")]
    pool: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    keys: KeysArgs,
}

/// Runs the command.
pub fn run(command: &PoolCommand) -> CliResult {
    match command {
        PoolCommand::New(args) => run_as(args, "new"),
        PoolCommand::Add(args) => run_as(args, "add"),
        PoolCommand::Remove(args) => run_as(args, "remove"),
        PoolCommand::Destroy(args) => run_as(args, "destroy"),
        PoolCommand::List(args) => list(args),
    }
}

/// Runs new, add, remove or destroy.
pub fn run_as(args: &ChangeArgs, what: &str) -> CliResult {
    match what {
        "new" => change(args, pool_change::NEW),
        "add" => args.need_osts().and_then(|()| change(args, pool_change::ADD)),
        "remove" => args.need_osts().and_then(|()| change(args, pool_change::REMOVE)),
        _ if args.osts.is_empty() => change(args, pool_change::DESTROY),
        _ => Err(CliError::usage("destroy takes no OSTs: take them out with `forebay pool remove` first")),
    }
}

impl ChangeArgs {
    fn need_osts(&self) -> CliResult {
        if self.osts.is_empty() { Err(CliError::usage("name the OSTs: 3, OST0003, 0-3")) } else { Ok(()) }
    }
}

fn change(args: &ChangeArgs, change: u32) -> CliResult {
    let cluster = ClusterArg::parse(&args.cluster)?;
    let osts = parse_osts(&args.osts)?;
    let name = args.pool.clone();
    // A user who can reach the servers of a cluster is its administrator.
    let caller = Caller { uid: 0, gid: 0, groups: Vec::new() };
    let network = cluster.network(&args.keys)?;
    real::run(|env| async move {
        let client = connect(&env.with_network(network), &cluster).await?;
        let changed = client.set_pool(&caller, &name, change, &osts).await;
        client.unmount().await.doing(|| "cannot disconnect".into())?;
        changed.map_err(|error| CliError::failed(format!("pool {name}: {}", error.message)))
    })
}

/// Shows the pools.
pub fn list(args: &ListArgs) -> CliResult {
    let pools = of_cluster(&ClusterArg::parse(&args.cluster)?, &args.keys)?;
    let shown: Vec<_> =
        pools.pools.iter().filter(|pool| args.pool.as_ref().is_none_or(|name| *name == pool.name)).collect();
    if let (Some(name), true) = (&args.pool, shown.is_empty()) {
        let names: Vec<&str> = pools.pools.iter().map(|pool| pool.name.as_str()).collect();
        let there =
            if names.is_empty() { "there is none".to_owned() } else { format!("there are {}", names.join(", ")) };
        return Err(CliError::failed(format!("there is no pool '{name}' ({there})")));
    }
    if args.json {
        let pools: Vec<_> = shown.iter().map(|pool| json!({"name": pool.name, "osts": pool.osts})).collect();
        println!("{}", json!({ "pools": pools }));
        return Ok(());
    }
    if shown.is_empty() {
        println!("there are no pools; `forebay pool new` makes one");
    }
    for pool in shown {
        if args.pool.is_some() {
            pool.osts.iter().for_each(|ost| println!("OST{ost:04x}"));
        } else {
            let osts: Vec<String> = pool.osts.iter().map(|ost| format!("OST{ost:04x}")).collect();
            println!("{}  {}", pool.name, if osts.is_empty() { "(no OSTs)".into() } else { osts.join(" ") });
        }
    }
    Ok(())
}

/// The OSTs and pools of a cluster.
pub fn of_cluster(cluster: &ClusterArg, keys: &KeysArgs) -> CliResult<PoolsReply> {
    let network = cluster.network(keys)?;
    real::run(|env| async move {
        let client = connect(&env.with_network(network), cluster).await?;
        let pools = client.pools().await.doing(|| "the MDT does not tell its pools".into());
        client.unmount().await.doing(|| "cannot disconnect".into())?;
        pools
    })
}

async fn connect(env: &Env, cluster: &ClusterArg) -> CliResult<Client> {
    let mut options = MountOptions::new(cluster.mgs());
    options.description = "forebay pool".into();
    let away = |_| CliError::failed("the MGS does not answer; `forebay status` tells more");
    let client = env.timeout(TIMEOUT, Client::mount(env, options)).await.map_err(away)?;
    client.doing(|| "cannot connect".into())
}

/// Parses `3`, `OST0003` (hexadecimal, as everywhere), `0-3`, `OST[0-3]`, separated by commas.
fn parse_osts(words: &[String]) -> CliResult<Vec<u32>> {
    let bad = |word: &str| CliError::usage(format!("'{word}' is no OST: use 3, OST0003, 0-3 or OST[0-3]"));
    let mut osts = Vec::new();
    for word in words {
        let inner = word.strip_prefix("OST[").and_then(|word| word.strip_suffix(']'));
        let radix = if inner.is_some() { 16 } else { 10 };
        for part in inner.unwrap_or(word).split(',') {
            let (part, radix) =
                part.strip_prefix("OST").map_or((part, radix), |hex| (hex.trim_end_matches("_UUID"), 16));
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let index = |text: &str| u32::from_str_radix(text, radix).map_err(|_| bad(word));
            let (first, last) = (index(first)?, index(last)?);
            if first > last || last - first >= 65_536 {
                return Err(bad(word));
            }
            osts.extend(first..=last);
        }
    }
    osts.sort_unstable();
    osts.dedup();
    Ok(osts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn osts_are_named_as_admins_name_them() {
        let parse = |words: &[&str]| parse_osts(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(parse(&["3", "0-1"]).expect("fine"), [0, 1, 3]);
        assert_eq!(parse(&["OST000a", "OST[0-2,10]", "OST0001_UUID"]).expect("fine"), [0, 1, 2, 10, 16]);
        for bad in ["x", "3-1", "", "OST", "0-99999999"] {
            assert_eq!(parse(&[bad]).expect_err(bad).exit_code(), 2);
        }
    }
}
