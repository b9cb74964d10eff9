//! `forebay token new`: a token with which one host joins the cluster.

use std::time::Duration;

use clap::{Args, Subcommand};
use forebay_command::{
    error::{CliError, CliResult},
    units::parse_duration,
};
use forebay_env::real;
use forebay_keys::{PublicKey, Role, SECRET_BYTES, Token};
use forebay_proto::message::{NewToken, NewTokenReply};

use crate::{
    ask,
    cluster_arg::{ClusterArg, KeysArgs},
};

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Print a token, with which one host can join the cluster, once
    New(NewArgs),
}

/// For whom, for how long.
#[derive(Debug, Args)]
pub struct NewArgs {
    /// The DIR of `forebay up`, a mount, or HOST:PORT[,HOST:PORT] of the MGS
    #[arg(value_name = "CLUSTER")]
    cluster: String,
    /// What the host will be: ost, client, admin
    #[arg(long)]
    role: Role,
    /// How long the token can be used, as 30m, 1h; 30 days at most
    #[arg(long, value_parser = parse_duration, default_value = "1h", value_name = "TIME")]
    ttl: Duration,
    /// The tenant that the client belongs to: `forebay tenant new` makes one; without, the client is one of the admin's own
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    #[command(flatten)]
    keys: KeysArgs,
}

/// Runs the command.
pub fn run(command: &TokenCommand) -> CliResult {
    let TokenCommand::New(args) = command;
    let cluster = ClusterArg::parse(&args.cluster)?;
    let (network, addresses) = (cluster.network(&args.keys)?, cluster.mgs());
    let request = NewToken {
        role: args.role.word().into(),
        ttl_s: args.ttl.as_secs(),
        tenant: args.tenant.clone().unwrap_or_default(),
    };
    let reply = real::run(async |env| ask::mgs(&env.with_network(network), &addresses, &request).await)?;
    println!("{}", token(&reply)?.to_text());
    Ok(())
}

fn token(reply: &NewTokenReply) -> CliResult<Token> {
    let strange = || CliError::failed("the MGS sent a token of another release: install the same one everywhere");
    let secret: [u8; SECRET_BYTES] = reply.secret[..].try_into().map_err(|_| strange())?;
    let authority = PublicKey(reply.authority[..].try_into().map_err(|_| strange())?);
    Ok(Token { cluster: reply.cluster, authority, secret })
}
