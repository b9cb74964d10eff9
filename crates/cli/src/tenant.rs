//! `forebay tenant`: who shares the cluster without being trusted with all of it.

use std::time::Duration;

use clap::{Args, Subcommand};
use forebay_command::{
    error::CliResult,
    table,
    units::{parse_duration, write_left},
};
use forebay_env::real;
use forebay_proto::message::{
    IdMap, IdMaps, IdRange, ListIdMaps, ListIdMapsReply, ListTenants, ListTenantsReply, NewMappedTenant, NewTenant,
    RemoveTenant, TenantInfo, tenant_flags,
};
use serde_json::json;

use crate::{
    ask,
    cluster_arg::{ClusterArg, KeysArgs},
};

/// Who everybody else is, where nothing else is said: nobody.
const NOBODY: u32 = 65_534;

/// What to do with tenants.
#[derive(Debug, Subcommand)]
pub enum TenantCommand {
    /// Give a directory to a tenant: its hosts reach nothing else
    New(Box<NewArgs>),
    /// Show the tenants
    List(ListArgs),
    /// Forget a tenant that has no hosts; its files stay
    Remove(RemoveArgs),
}

/// What the tenant's hosts may do.
#[derive(Debug, Args)]
pub struct NewArgs {
    /// The DIR of `forebay up`, a mount, or HOST:PORT[,HOST:PORT] of the MGS
    #[arg(value_name = "CLUSTER")]
    cluster: String,
    /// The tenant's name
    #[arg(value_name = "NAME")]
    name: String,
    /// Its directory, from the file system's root: there, and empty
    #[arg(long, value_name = "PATH")]
    subtree: String,
    /// Users that its hosts may act as, as 1000-1999,2500; all but 0 if not given, or those of --map-uid
    #[arg(long, value_name = "UIDS", value_delimiter = ',', value_parser = parse_range)]
    users: Vec<IdRange>,
    /// Groups that they may act as; all but 0 if not given, or those of --map-gid
    #[arg(long, value_name = "GIDS", value_delimiter = ',', value_parser = parse_range)]
    groups: Vec<IdRange>,
    /// User ids of its hosts, and those of the file system that they stand for: HOST:FS for one, HOST:FS:COUNT for as many
    /// from there on. All other options name ids of the file system. Ids without a mapping are squashed, and shown as 65534
    #[arg(long, value_name = "HOST:FS[:COUNT]", value_delimiter = ',', value_parser = parse_map)]
    map_uid: Vec<IdMap>,
    /// The same for group ids
    #[arg(long, value_name = "HOST:FS[:COUNT]", value_delimiter = ',', value_parser = parse_map)]
    map_gid: Vec<IdMap>,
    /// Who all other users are, and owns what their user 0 makes
    #[arg(long, value_name = "UID", default_value_t = NOBODY)]
    squash_uid: u32,
    /// The group of all other users
    #[arg(long, value_name = "GID", default_value_t = NOBODY)]
    squash_gid: u32,
    /// Its hosts change nothing
    #[arg(long)]
    read_only: bool,
    /// User 0 of its hosts is user 0 within the directory
    #[arg(long)]
    no_root_squash: bool,
    /// How long its hosts have access, as 12h, 90d; for ever if not given
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    ttl: Option<Duration>,
    #[command(flatten)]
    keys: KeysArgs,
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

/// Which tenant.
#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// The DIR of `forebay up`, a mount, or HOST:PORT[,HOST:PORT] of the MGS
    #[arg(value_name = "CLUSTER")]
    cluster: String,
    /// The tenant's name
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    keys: KeysArgs,
}

fn parse_range(text: &str) -> Result<IdRange, String> {
    let id = |text: &str| text.parse::<u32>().map_err(|_| format!("{text} is no id: give 1000, or 1000-1999"));
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = IdRange { first: id(first)?, last: id(last)? };
    if range.first > range.last { Err(format!("{text}: the lower id comes first")) } else { Ok(range) }
}

fn parse_map(text: &str) -> Result<IdMap, String> {
    let wrong = || format!("{text} is no id map: give HOST:FS, or HOST:FS:COUNT, as 1000:70000:100");
    let parts: Vec<u32> = text.split(':').map(|part| part.parse().map_err(|_| wrong())).collect::<Result<_, _>>()?;
    match parts[..] {
        [host, fs] => Ok(IdMap { host, fs, count: 1 }),
        [host, fs, count] => Ok(IdMap { host, fs, count }),
        _ => Err(wrong()),
    }
}

/// Runs the command.
pub fn run(command: &TenantCommand) -> CliResult {
    match command {
        TenantCommand::New(args) => new(args),
        TenantCommand::List(args) => list(args),
        TenantCommand::Remove(args) => {
            let cluster = ClusterArg::parse(&args.cluster)?;
            let (network, addresses) = (cluster.network(&args.keys)?, cluster.mgs());
            let request = RemoveTenant { name: args.name.clone() };
            real::run(async |env| ask::mgs(&env.with_network(network), &addresses, &request).await)?;
            println!("tenant {} is removed; its files stay", args.name);
            Ok(())
        }
    }
}

fn new(args: &NewArgs) -> CliResult {
    let cluster = ClusterArg::parse(&args.cluster)?;
    let (network, addresses) = (cluster.network(&args.keys)?, cluster.mgs());
    let flag = |is_set, flag| if is_set { flag } else { 0 };
    let tenant = |now_ns: i64| TenantInfo {
        name: args.name.clone(),
        path: args.subtree.clone(),
        users: args.users.clone(),
        groups: args.groups.clone(),
        squash_uid: args.squash_uid,
        squash_gid: args.squash_gid,
        flags: flag(args.read_only, tenant_flags::READ_ONLY) | flag(args.no_root_squash, tenant_flags::ROOT),
        expires_ns: args.ttl.map_or(0, |ttl| now_ns.saturating_add(i64::try_from(ttl.as_nanos()).unwrap_or(i64::MAX))),
    };
    real::run(async |env| {
        let env = env.with_network(network);
        let tenant = tenant(env.unix_time().0);
        let maps = IdMaps { users: args.map_uid.clone(), groups: args.map_gid.clone() };
        match maps.is_empty() {
            true => ask::mgs(&env, &addresses, &NewTenant { tenant }).await,
            false => ask::mgs(&env, &addresses, &NewMappedTenant { tenant, maps }).await,
        }
    })?;
    println!("tenant {} has {}", args.name, args.subtree);
    println!("a host joins for it with a token: forebay token new CLUSTER --role client --tenant {}", args.name);
    Ok(())
}

fn list(args: &ListArgs) -> CliResult {
    let cluster = ClusterArg::parse(&args.cluster)?;
    let (network, addresses) = (cluster.network(&args.keys)?, cluster.mgs());
    let (reply, now_ns) = real::run(async |env| {
        let env = env.with_network(network);
        let reply = async {
            let tenants = ask::mgs(&env, &addresses, &ListTenants {}).await?;
            let none = ListIdMapsReply { tenants: Vec::new() };
            let maps = ask::mgs_if_known(&env, &addresses, &ListIdMaps {}, none).await?;
            CliResult::Ok((tenants, maps))
        };
        (reply.await, env.unix_time().0)
    });
    let (tenants, maps) = reply?;
    match args.json {
        true => println!("{}", to_json(&tenants, &maps)),
        false => print!("{}", to_text(&tenants, &maps, now_ns)),
    }
    Ok(())
}

/// The id maps of a tenant.
fn maps_of<'a>(maps: &'a ListIdMapsReply, tenant: &TenantInfo) -> Option<&'a IdMaps> {
    maps.tenants.iter().find(|mapped| mapped.name == tenant.name).map(|mapped| &mapped.maps)
}

fn to_json(reply: &ListTenantsReply, maps: &ListIdMapsReply) -> serde_json::Value {
    let ids = |maps: &[IdMap]| maps.iter().map(|map| json!([map.host, map.fs, map.count])).collect::<Vec<_>>();
    let ranges = |ranges: &[IdRange]| ranges.iter().map(|range| json!([range.first, range.last])).collect::<Vec<_>>();
    let tenants = reply.tenants.iter().map(|tenant| {
        let maps = maps_of(maps, tenant).cloned().unwrap_or_default();
        json!({
            "name": tenant.name,
            "subtree": tenant.path,
            "users": ranges(&tenant.users),
            "groups": ranges(&tenant.groups),
            "map_uid": ids(&maps.users),
            "map_gid": ids(&maps.groups),
            "squash_uid": tenant.squash_uid,
            "squash_gid": tenant.squash_gid,
            "read_only": tenant.flags & tenant_flags::READ_ONLY != 0,
            "root_squash": tenant.flags & tenant_flags::ROOT == 0,
            "expires_ns": tenant.expires_ns,
        })
    });
    json!({ "tenants": tenants.collect::<Vec<_>>() })
}

fn to_text(reply: &ListTenantsReply, maps: &ListIdMapsReply, now_ns: i64) -> String {
    if reply.tenants.is_empty() {
        return "there are no tenants: `forebay tenant new` gives a directory to one\n".into();
    }
    let ids = |ranges: &[IdRange]| -> String {
        let one = |range: &IdRange| match range.first == range.last {
            true => range.first.to_string(),
            false => format!("{}-{}", range.first, range.last),
        };
        if ranges.is_empty() { "all".into() } else { ranges.iter().map(one).collect::<Vec<_>>().join(",") }
    };
    let mut rows = vec![["NAME", "SUBTREE", "USERS", "GROUPS", "OTHERS", "ACCESS", "ENDS"].map(str::to_owned).to_vec()];
    rows.extend(reply.tenants.iter().map(|tenant| {
        let root = if tenant.flags & tenant_flags::ROOT != 0 { ", root" } else { "" };
        let access = if tenant.flags & tenant_flags::READ_ONLY != 0 { "reads" } else { "reads, writes" };
        let ends = match tenant.expires_ns {
            0 => "never".into(),
            ended if ended <= now_ns => "over".into(),
            until => format!("in {}", write_left(now_ns, until)),
        };
        vec![
            tenant.name.clone(),
            tenant.path.clone(),
            ids(&tenant.users),
            ids(&tenant.groups),
            format!("{}:{}", tenant.squash_uid, tenant.squash_gid),
            format!("{access}{root}"),
            ends,
        ]
    }));
    let mut lines = table::columns(&rows);
    for (tenant, maps) in reply.tenants.iter().filter_map(|tenant| Some((tenant, maps_of(maps, tenant)?))) {
        for (what, maps) in [("user", &maps.users), ("group", &maps.groups)] {
            lines.extend(maps.iter().map(|map| format!("{}: {}", tenant.name, map_words(what, map))));
        }
    }
    lines.join("\n") + "\n"
}

/// What a range of a map says.
fn map_words(what: &str, map: &IdMap) -> String {
    let IdMap { host, fs, count } = *map;
    match count {
        1 => format!("{what} {host} of its hosts is {fs}"),
        _ => format!("{what}s {host}-{} of its hosts are {fs}-{}", host + (count - 1), fs + (count - 1)),
    }
}

#[cfg(test)]
mod tests {
    use forebay_proto::message::TenantMaps;

    use super::*;

    #[test]
    fn id_maps_are_given_for_one_id_or_for_many() {
        assert_eq!(parse_map("7:70"), Ok(IdMap { host: 7, fs: 70, count: 1 }));
        assert_eq!(parse_map("1000:70000:100"), Ok(IdMap { host: 1000, fs: 70_000, count: 100 }));
        assert!(["", "7", "7:", "a:7", "1:2:3:4", "-1:7"].iter().all(|text| parse_map(text).is_err()));
    }

    #[test]
    fn ids_are_given_one_by_one_or_in_ranges() {
        assert_eq!(parse_range("7"), Ok(IdRange { first: 7, last: 7 }));
        assert_eq!(parse_range("1000-1999"), Ok(IdRange { first: 1000, last: 1999 }));
        assert!(["", "a", "5-", "9-5", "1-2-3"].iter().all(|text| parse_range(text).is_err()));
    }

    #[test]
    fn the_list_of_tenants_says_what_each_may_do() {
        let tenant = TenantInfo {
            name: "bio".into(),
            path: "/bio".into(),
            users: vec![IdRange { first: 1000, last: 1999 }],
            groups: Vec::new(),
            squash_uid: NOBODY,
            squash_gid: NOBODY,
            flags: tenant_flags::READ_ONLY,
            expires_ns: 0,
        };
        let users = vec![IdMap { host: 500, fs: 1000, count: 100 }, IdMap { host: 7, fs: 1999, count: 1 }];
        let maps = TenantMaps { name: "bio".into(), maps: IdMaps { users, groups: Vec::new() } };
        let maps = ListIdMapsReply { tenants: vec![maps] };
        let text = to_text(&ListTenantsReply { tenants: vec![tenant.clone()] }, &maps, 0);
        assert!(
            text.contains("bio: users 500-599 of its hosts are 1000-1099\nbio: user 7 of its hosts is 1999"),
            "{text}"
        );
        let json = to_json(&ListTenantsReply { tenants: vec![tenant] }, &maps);
        assert_eq!(json["tenants"][0]["map_uid"], json!([[500, 1000, 100], [7, 1999, 1]]));
        assert!(text.contains("bio") && text.contains("1000-1999") && text.contains("never"), "{text}");
        assert!(text.contains("65534:65534") && text.contains(" reads "), "{text}");
        let nothing = ListIdMapsReply { tenants: Vec::new() };
        assert!(to_text(&ListTenantsReply { tenants: Vec::new() }, &nothing, 0).contains("forebay tenant new"));
    }
}
