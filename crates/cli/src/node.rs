//! `forebay node`: the hosts of a cluster that joined with a token, and who is banned.

use clap::{Args, Subcommand};
use forebay_command::{error::CliResult, table, units::write_left};
use forebay_env::real;
use forebay_keys::Role;
use forebay_proto::message::{BanNode, ListNodes, ListNodesReply, RemoveNode};
use serde_json::json;

use crate::{
    ask,
    cluster_arg::{ClusterArg, KeysArgs},
};

/// What to do with nodes.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Show the hosts that have joined, who is banned, and tokens that nobody has used
    List(ListArgs),
    /// Let nobody talk to a host any more, within seconds, on open connections too
    Ban(BanArgs),
    /// Forget a host that serves nothing: its key is banned for good, its name is free
    Remove(RemoveArgs),
}

/// Of which cluster.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// The DIR of `forebay up`, a mount, or HOST:PORT[,HOST:PORT] of the MGS
    #[arg(value_name = "CLUSTER")]
    cluster: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    keys: KeysArgs,
}

/// Which node.
#[derive(Debug, Args)]
pub struct NodeArgs {
    /// The DIR of `forebay up`, a mount, or HOST:PORT[,HOST:PORT] of the MGS
    #[arg(value_name = "CLUSTER")]
    cluster: String,
    /// The host's name in the cluster
    #[arg(value_name = "NAME")]
    name: String,
    /// Its role, if a host of this name has several: mds, ost, client, router, admin
    #[arg(long)]
    role: Option<Role>,
    #[command(flatten)]
    keys: KeysArgs,
}

/// Which node to ban.
#[derive(Debug, Args)]
pub struct BanArgs {
    #[command(flatten)]
    node: NodeArgs,
    /// End the ban
    #[arg(long)]
    lift: bool,
}

/// Which node to remove.
#[derive(Debug, Args)]
pub struct RemoveArgs {
    #[command(flatten)]
    node: NodeArgs,
}

impl NodeArgs {
    fn role(&self) -> String {
        self.role.map(|role| role.word().to_owned()).unwrap_or_default()
    }
}

/// Runs the command.
pub fn run(command: &NodeCommand) -> CliResult {
    match command {
        NodeCommand::List(args) => list(args),
        NodeCommand::Ban(BanArgs { node, lift }) => {
            let request = BanNode { role: node.role(), name: node.name.clone(), lift: *lift };
            ask_mgs(node, &request)?;
            println!("{} is {}", node.name, if *lift { "no longer banned" } else { "banned" });
            Ok(())
        }
        NodeCommand::Remove(RemoveArgs { node }) => {
            ask_mgs(node, &RemoveNode { role: node.role(), name: node.name.clone() })?;
            println!("{} is not part of the cluster any more", node.name);
            Ok(())
        }
    }
}

fn ask_mgs<O: forebay_proto::message::Operation>(node: &NodeArgs, request: &O) -> CliResult<O::Reply> {
    let cluster = ClusterArg::parse(&node.cluster)?;
    let (network, addresses) = (cluster.network(&node.keys)?, cluster.mgs());
    real::run(async |env| ask::mgs(&env.with_network(network), &addresses, request).await)
}

fn list(args: &ListArgs) -> CliResult {
    let cluster = ClusterArg::parse(&args.cluster)?;
    let (network, addresses) = (cluster.network(&args.keys)?, cluster.mgs());
    let (reply, now) = real::run(async |env| {
        let env = env.with_network(network);
        let reply = ask::mgs(&env, &addresses, &ListNodes {}).await;
        (reply, env.unix_time().0)
    });
    let reply = reply?;
    match args.json {
        true => println!("{}", to_json(&reply)),
        false => print!("{}", to_text(&reply, now)),
    }
    Ok(())
}

fn to_json(reply: &ListNodesReply) -> serde_json::Value {
    let nodes = reply.nodes.iter().map(|node| {
        json!({
            "name": node.name,
            "role": node.role,
            "state": state(node.banned),
            "tenant": node.tenant,
            "targets": node.targets.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "joined_ns": node.joined_ns,
            "expires_ns": node.expires_ns,
        })
    });
    let tokens = reply
        .tokens
        .iter()
        .map(|token| json!({"role": token.role, "tenant": token.tenant, "expires_ns": token.expires_ns}));
    json!({
        "epoch": reply.epoch,
        "nodes": nodes.collect::<Vec<_>>(),
        "bans": reply.bans.iter().map(|ban| json!({"name": ban.name, "role": ban.role})).collect::<Vec<_>>(),
        "tokens": tokens.collect::<Vec<_>>(),
    })
}

fn state(banned: bool) -> &'static str {
    if banned { "banned" } else { "member" }
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".into() } else { text.into() }
}

fn to_text(reply: &ListNodesReply, now_ns: i64) -> String {
    let left = |until_ns| write_left(now_ns, until_ns);
    let mut rows = vec![["NAME", "ROLE", "TENANT", "STATE", "TARGETS", "CERTIFICATE"].map(str::to_owned).to_vec()];
    rows.extend(reply.nodes.iter().map(|node| {
        let targets: Vec<String> = node.targets.iter().map(ToString::to_string).collect();
        let targets = if targets.is_empty() { "-".to_owned() } else { targets.join(",") };
        vec![
            node.name.clone(),
            node.role.clone(),
            or_dash(&node.tenant),
            state(node.banned).into(),
            targets,
            format!("{} left", left(node.expires_ns)),
        ]
    }));
    rows.extend(reply.bans.iter().map(|ban| {
        let [tenant, targets, certificate] = ["-", "-", "-"].map(str::to_owned);
        vec![ban.name.clone(), ban.role.clone(), tenant, "banned".into(), targets, certificate]
    }));
    let mut text = match rows.len() {
        1 => "no host has joined: `forebay token new` makes a token for one\n".to_owned(),
        _ => table::columns(&rows).join("\n") + "\n",
    };
    for token in &reply.tokens {
        let tenant = if token.tenant.is_empty() { String::new() } else { format!(" of tenant {}", token.tenant) };
        text += &format!("a token for a host as {}{tenant} can be used for {}\n", token.role, left(token.expires_ns));
    }
    text
}
