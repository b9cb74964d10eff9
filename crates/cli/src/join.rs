//! `forebay join HOST:PORT TOKEN DIR`: makes this host part of a cluster.
//!
//! Order: this host's private key is durable before the MGS hears of it, so that an interrupted join can be repeated with the
//! same token; then the MGS signs it; then the description is written; then the targets are formatted and served.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // directories and ports; nothing here serves

use std::{
    io::BufRead,
    net::{TcpListener, ToSocketAddrs, UdpSocket},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::Args;
use forebay_command::{
    cluster::{Cluster, Description, TargetEntry},
    error::{CliError, CliResult, Doing},
    keys, posix,
    processes::{self, PidFile},
    progress::{self, Counts},
    targets::format_target,
    units::parse_positive_size,
};
use forebay_env::{Address, Network, real};
use forebay_keys::{Keys, Role, Token};
use forebay_proto::{
    TargetId,
    message::{Join, JoinReply},
};
use forebay_rpc::RpcError;
use forebay_store::FormatOptions;

use crate::{
    ask,
    cluster_arg::ClusterArg,
    listen_address::{of_targets, refuse_unspecified},
    open_files,
    serve::DisksArgs,
    server_processes,
    up::{Attempt, Lock, Sizes, UNFINISHED, refuse_foreign_content, start_servers},
};

/// How long the MGS may take to show a target that has registered.
const SHOWN_TIMEOUT: Duration = Duration::from_secs(30);
/// Ports that are tried for servers of this host.
const PORTS: u16 = 100;

/// Which cluster to join, as what.
#[derive(Debug, Args)]
pub struct JoinArgs {
    /// The MGS: HOST:PORT[,HOST:PORT] of `forebay up --listen` on the first host
    #[arg(value_name = "HOST:PORT")]
    pub mgs: String,
    /// What `forebay token new` printed; `-` reads it from standard input
    pub token: String,
    /// This host's directory for its keys and targets; made if it is not there
    pub dir: PathBuf,
    /// Object storage targets on this host
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub osts: u32,
    /// Data bytes of each OST [default: all of them and their journals take half of what is free at most; 16GiB at most]
    #[arg(long, value_parser = parse_positive_size, value_name = "SIZE")]
    pub ost_size: Option<u64>,
    /// Where the first OST listens; the others use the ports behind it [default: the address by which this host reaches
    /// the MGS, and the first free port from that of the MGS on]. Given again, at this host's address in another network too: clients
    /// use the networks of an OST together
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Vec<Address>,
    /// This host's name in the cluster [default: its host name]
    #[arg(long)]
    pub name: Option<String>,
    /// Do not encrypt connections to hosts that choose this too: others on the network can read the data, and cannot change it
    #[arg(long)]
    pub integrity_only: bool,
    /// Another metadata server (not in this version)
    #[arg(long)]
    pub mdt: bool,
    /// A router (not in this version)
    #[arg(long)]
    pub router: bool,
}

/// Joins, and serves the targets of this host.
pub fn run(args: &JoinArgs) -> CliResult {
    posix::for_owner_alone();
    if args.mdt || args.router {
        let flag = if args.mdt { "--mdt" } else { "--router" };
        return Err(CliError::usage(format!("{flag}: this version has one MDT per cluster, and no routers")));
    }
    let (mgs, token) = (mgs_of(&args.mgs)?, read_token(&args.token)?);
    args.listen.iter().try_for_each(refuse_unspecified)?;
    let cluster = match Cluster::find(&args.dir)? {
        true => joined_before(&args.dir, &token)?,
        false => join(args, &mgs, &token)?,
    };
    let _lock = Lock::take(&cluster)?;
    let own_keys = cluster.dir.join(keys::DIR);
    if args.integrity_only && !keys::is_integrity_only(&own_keys) {
        keys::set_integrity_only(&own_keys, true)?;
        let serves = |(name, _): &(String, _)| PidFile::of(&cluster.run_dir(), name).running().is_some();
        if server_processes::of(&cluster).iter().any(serves) {
            let dir = cluster.dir.display();
            eprintln!("forebay: --integrity-only holds from the servers' next start: `forebay down {dir}`, then up");
        }
    }
    format_missing(&cluster, args.ost_size)?;
    let dir = cluster.dir.display();
    if cluster.targets().is_empty() {
        println!("this host has joined cluster {}: `forebay mount {dir} MNT` mounts it", token.cluster);
        return Ok(());
    }
    start_servers(&cluster, DisksArgs::default())?;
    wait_until_shown(&cluster)?;
    println!("{} serve in {dir}, as part of cluster {}", names(&cluster), token.cluster);
    Ok(())
}

/// Makes this host a client of the cluster at `mgs`, with keys where `mount` finds them.
pub fn join_as_client(mgs: &[Address], token: &Token) -> CliResult {
    let dir = keys::home(mgs.first().ok_or_else(|| CliError::usage("there is no address of the MGS"))?);
    if dir.join("authority.crt").exists() {
        let known = keys::any_in(&dir)?;
        if known.cluster() == token.cluster {
            return Ok(());
        }
        return Err(CliError::failed(format!(
            "{} has keys of cluster {}, and the token is of {}: remove that directory first",
            dir.display(),
            known.cluster(),
            token.cluster
        )));
    }
    let above = dir.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(above).doing(|| format!("cannot make {}", above.display()))?;
    ask_to_join(&dir, mgs, token, &keys::host_name(), 0).map(drop)
}

/// The addresses in an argument.
pub fn mgs_of(text: &str) -> CliResult<Vec<Address>> {
    match ClusterArg::parse(text)? {
        ClusterArg::Addresses(addresses) if addresses.iter().all(|address| matches!(address, Address::Tcp(_))) => {
            Ok(addresses)
        }
        _ => Err(CliError::usage(format!("{text}: give HOST:PORT of the MGS"))),
    }
}

/// A token of the command line, or, for `-`, of standard input: arguments are seen by all users of a machine.
pub fn read_token(text: &str) -> CliResult<Token> {
    let mut line = text.to_owned();
    if text == "-" {
        line.clear();
        std::io::stdin().lock().read_line(&mut line).doing(|| "cannot read the token".into())?;
    }
    line.parse().map_err(|error: forebay_keys::KeyError| CliError::usage(error.to_string()))
}

fn joined_before(dir: &Path, token: &Token) -> CliResult<Cluster> {
    let cluster = Cluster::load(dir)?;
    let shown = dir.display();
    if !cluster.is_joined() {
        return Err(CliError::failed(format!("{shown} holds a cluster of its own: give another directory")));
    }
    if cluster.uuid() != token.cluster {
        let words = format!("{shown} is of cluster {}, and the token of {}", cluster.uuid(), token.cluster);
        return Err(CliError::failed(words));
    }
    Ok(cluster)
}

fn join(args: &JoinArgs, mgs: &[Address], token: &Token) -> CliResult<Cluster> {
    open_files::refuse_few_to_serve(args.osts as usize, args.osts as usize)?;
    let mut attempt = Attempt::begin(&args.dir)?;
    let dir = attempt.dir.clone();
    refuse_foreign_content(&dir)?;
    // Whatever cannot work is refused before the MGS hears of this host.
    let listen = listen_addresses(args, mgs)?;
    let free = posix::free_bytes(&dir).doing(|| format!("free space of {}", dir.display()))?;
    if args.osts > 0 {
        let sizes = Sizes::of_osts(args.ost_size, free, args.osts)?;
        println!("{}", sizes.announcement(&dir, free));
    }
    ["run", "log"].iter().try_for_each(|name| attempt.make(&dir.join(name)))?;
    std::fs::write(dir.join(UNFINISHED), "").doing(|| format!("cannot write in {}", dir.display()))?;
    let name = args.name.clone().unwrap_or_else(keys::host_name);
    let reply = ask_to_join(&dir.join(keys::DIR), mgs, token, &name, args.osts)?;
    let entry = |(index, listen): (&u32, &Vec<Address>)| {
        let id = TargetId::ost(*index);
        TargetEntry {
            name: id.to_string(),
            dir: id.to_string().into(),
            listen: listen.iter().map(Address::to_string).collect(),
        }
    };
    let description = Description {
        mgs: mgs.iter().map(Address::to_string).collect(),
        targets: reply.osts.iter().zip(&listen).map(entry).collect(),
        ..Description::of(token.cluster)
    };
    let cluster = Cluster { dir, description };
    cluster.save()?;
    Ok(cluster)
}

/// Has this host's key signed.
fn ask_to_join(dir: &Path, mgs: &[Address], token: &Token, name: &str, osts: u32) -> CliResult<JoinReply> {
    let is_first = !keys::is_joining(dir);
    let key = keys::begin_joining(dir)?;
    let network = Keys::to_join(token.cluster, &token.authority).doing(|| "cannot use the token".into())?;
    let (secret, public) = (token.secret.to_vec().into(), key.public_key().to_vec().into());
    let reply = real::run(async |env| {
        let env = env.with_network(Network::Keys(Arc::new(network)));
        let request = Join { secret, name: name.into(), key: public, osts, unix_ns: env.unix_time().0 };
        forebay_rpc::ask(&env, mgs, &request).await
    });
    // If there is no reply, the MGS may know the key: then the next attempt has to use it.
    if is_first && matches!(reply, Err(RpcError::Reply(_) | RpcError::Protocol(_))) {
        keys::drop_joining(dir);
    }
    let reply = reply.map_err(|error| ask::failed(mgs, &error))?;
    let role: Role = reply.role.parse().map_err(|error: forebay_keys::KeyError| CliError::failed(error.to_string()))?;
    keys::end_joining(dir, role, &reply.certificate, &reply.authority)?;
    Ok(reply)
}

/// Formats the targets of a join that was interrupted before it had formatted them.
pub fn format_missing(cluster: &Cluster, ost_size: Option<u64>) -> CliResult {
    let mark = cluster.dir.join(UNFINISHED);
    if !mark.exists() {
        return Ok(());
    }
    let missing = || cluster.targets().into_iter().filter(|target| !target.dir.join("identity").exists());
    let count = missing().count();
    if count > 0 {
        let free = posix::free_bytes(&cluster.dir).doing(|| format!("free space of {}", cluster.dir.display()))?;
        let sizes = Sizes::of_osts(ost_size, free, count as u32)?;
        let bar = progress::bar("formatting", count as u64, Counts::Things);
        real::run(async |env| {
            for target in missing() {
                // A part of it may be there.
                let _ = std::fs::remove_dir_all(&target.dir);
                let options = FormatOptions::new(cluster.uuid(), target.id, sizes.ost);
                format_target(&env, &target.dir, &options).await?;
                bar.add(1);
            }
            Ok::<(), CliError>(())
        })?;
    }
    std::fs::remove_file(&mark).doing(|| format!("cannot remove {}", mark.display()))
}

/// The addresses of this host's OSTs, which are free.
fn listen_addresses(args: &JoinArgs, mgs: &[Address]) -> CliResult<Vec<Vec<Address>>> {
    if args.osts == 0 {
        return Ok(Vec::new());
    }
    if !args.listen.is_empty() {
        let addresses = of_targets(&args.listen, args.osts as usize)?;
        return match addresses.iter().flatten().find_map(|address| Some((address, bind(address).err()?))) {
            Some((address, error)) => {
                Err(CliError::failed(format!("--listen: servers of this host cannot listen at {address}: {error}")))
            }
            None => Ok(addresses),
        };
    }
    let (host, port) = here(mgs)?;
    let mut found = Vec::new();
    for port in port..port.saturating_add(PORTS) {
        let address =
            Address::Tcp(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") });
        if bind(&address).is_ok() {
            found.push(vec![address]);
        }
        if found.len() == args.osts as usize {
            return Ok(found);
        }
    }
    Err(CliError::failed(format!("there are not enough free ports at {host} from {port} on: give --listen HOST:PORT")))
}

fn bind(address: &Address) -> std::io::Result<TcpListener> {
    let Address::Tcp(text) = address else { return Err(std::io::ErrorKind::InvalidInput.into()) };
    TcpListener::bind(text)
}

/// The address of this host by which it reaches the MGS, and the port of the MGS. No packet is sent.
fn here(mgs: &[Address]) -> CliResult<(String, u16)> {
    let Some(Address::Tcp(text)) = mgs.first() else { return Err(CliError::usage("give HOST:PORT of the MGS")) };
    let look = || {
        let to = text.to_socket_addrs()?.next().ok_or(std::io::ErrorKind::NotFound)?;
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any)?;
        socket.connect(to)?;
        Ok::<_, std::io::Error>((socket.local_addr()?.ip().to_string(), to.port()))
    };
    look().doing(|| format!("there is no way from here to {text}"))
}

/// Waits until clients learn of this host's targets.
fn wait_until_shown(cluster: &Cluster) -> CliResult {
    let network = keys::of_cluster(cluster, keys::SERVER)?;
    let ours: Vec<TargetId> = cluster.targets().iter().map(|target| target.id).collect();
    let argument = ClusterArg::Described(cluster.clone());
    let is_shown = || {
        let network = network.clone();
        let map = real::run(async |env| ask::map(&env.with_network(network), &argument).await);
        map.is_ok_and(|map| ours.iter().all(|id| map.targets.iter().any(|target| target.id == *id)))
    };
    match processes::wait_until(SHOWN_TIMEOUT, is_shown) {
        true => Ok(()),
        false => Err(CliError::failed(format!(
            "{} serve here, and the MGS does not show them: see {}/servers.log",
            names(cluster),
            cluster.log_dir().display()
        ))),
    }
}

/// The targets of this host, for messages.
pub fn names(cluster: &Cluster) -> String {
    let names: Vec<String> = cluster.targets().iter().map(|target| target.id.to_string()).collect();
    names.join(", ")
}
