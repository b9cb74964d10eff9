//! `forebay keys`: the keys of a cluster that was set up by hand, and those of further hosts.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use forebay_command::{
    error::CliResult,
    keys::{make, make_for, set_integrity_only},
    posix,
};
use forebay_env::real;
use forebay_keys::Role;
use forebay_proto::Uuid;

/// What to do with keys.
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Make the authority of a cluster, and keys of this host's servers and of the administrator
    New(NewArgs),
    /// Make the keys of another host, to be copied there
    For(ForArgs),
    /// Choose what protects the data of this host's connections over a network
    Protection(ProtectionArgs),
}

/// Of which connections.
#[derive(Debug, Args)]
pub struct ProtectionArgs {
    /// The directory with the host's keys: DIR/keys of `forebay up` or `forebay join`, or that of a client
    pub keys: PathBuf,
    /// What protects the data
    pub protection: Protection,
}

/// What protects the data of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Protection {
    /// Nobody on the network can read or change it
    Encryption,
    /// Nobody can change it. Others on the network can read it, where the other side has chosen this too
    IntegrityOnly,
}

/// Of which cluster.
#[derive(Debug, Args)]
pub struct NewArgs {
    /// The new directory; whoever reads it can be anyone in the cluster
    pub dir: PathBuf,
    /// The cluster, as `forebay format mdt` printed it
    #[arg(long, value_name = "UUID")]
    pub cluster: Uuid,
}

/// For whom.
#[derive(Debug, Args)]
pub struct ForArgs {
    /// The directory with the authority: DIR/keys of `forebay up`, or that of `forebay keys new`
    pub keys: PathBuf,
    /// The other host's new directory, to be copied there with `scp -pr`
    pub to: PathBuf,
    /// What the host may be: mds, ost, client, admin
    #[arg(long)]
    pub role: Role,
    /// The host's name in the cluster
    #[arg(long, value_name = "HOST")]
    pub name: String,
}

/// Runs the command.
pub fn run(command: &KeysCommand) -> CliResult {
    posix::for_owner_alone();
    let now = real::run(async |env| env.unix_time().since_1970());
    match command {
        KeysCommand::New(args) => {
            make(&args.dir, args.cluster, now)?;
            println!("the keys of cluster {} are in {}", args.cluster, args.dir.display());
        }
        KeysCommand::For(args) => {
            let node = make_for(&args.keys, &args.to, args.role, &args.name, now)?;
            println!("the keys of {node} are in {}: copy them to that host, and remove them here", args.to.display());
        }
        KeysCommand::Protection(args) => {
            set_integrity_only(&args.keys, args.protection == Protection::IntegrityOnly)?;
            let words = match args.protection {
                Protection::Encryption => "encrypted",
                Protection::IntegrityOnly => {
                    "not encrypted where the other side has chosen this too, and protected against change"
                }
            };
            println!(
                "connections with {} are {words}, from the next start of the programs that use them",
                args.keys.display()
            );
        }
    }
    Ok(())
}
