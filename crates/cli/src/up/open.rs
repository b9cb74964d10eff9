//! The cluster of a directory: as it was described at its first use, or formatted now.

use std::path::Path;

use forebay_command::{
    cluster::{self, Cluster, Description, TargetEntry},
    error::{CliError, CliResult, Doing},
    keys,
    paths::utf8,
    posix,
    progress::{self, Counts},
    targets::{format_target, new_uuid},
    units::show_bytes,
};
use forebay_env::{Address, Env, Network, real};
use forebay_proto::{TargetId, TargetKind, Uuid};
use forebay_store::{FormatOptions, Store};

use super::{
    OSTS, UpArgs,
    attempt::{Attempt, UNFINISHED, clear_unfinished, refuse_foreign_content},
    level_name,
    sizes::Sizes,
};
use crate::{join, listen_address, mounts, open_files};

/// The cluster of `args.dir`, formatted if it is new.
pub fn open(args: &UpArgs) -> CliResult<Cluster> {
    if args.mdts != 1 {
        return Err(CliError::usage(format!("--mdts {}: this version has one MDT per cluster", args.mdts)));
    }
    if args.insecure_loopback {
        args.listen.iter().try_for_each(listen_address::refuse_beyond_loopback)?;
    }
    if !Cluster::find(&args.dir)? {
        return create(args);
    }
    let cluster = Cluster::load(&args.dir)?;
    if cluster.is_joined() {
        join::format_missing(&cluster, None)?;
    }
    // A power failure right after formatting can leave the mark. Remove it, so that a later loss of the description
    // does not make the cluster look unfinished.
    let _ = std::fs::remove_file(cluster.dir.join(UNFINISHED));
    let differs = |flag: &str, was: String| {
        Err(CliError::usage(format!("{flag}: {} was formatted with {was}; that cannot change", args.dir.display())))
    };
    match args.osts {
        Some(osts) if osts as usize != cluster.ost_count() => {
            differs("--osts", format!("{} OSTs", cluster.ost_count()))
        }
        _ if args.separate && !cluster.description.separate => differs("--separate", "one process for all".into()),
        _ if args.insecure_loopback
            && !cluster.description.insecure_loopback
            && !cluster.dir.join(keys::DIR).exists() =>
        {
            Err(CliError::usage(format!(
                "--insecure-loopback: {} is older than keys; add `insecure_loopback = true` to its {}",
                args.dir.display(),
                cluster::FILE
            )))
        }
        _ if args.insecure_loopback && !cluster.description.insecure_loopback => {
            differs("--insecure-loopback", "keys".into())
        }
        _ if args.integrity_only && !keys::is_integrity_only(&cluster.dir.join(keys::DIR)) => {
            Err(CliError::usage(format!(
                "--integrity-only is for the first use; `forebay keys protection {} integrity-only` changes it later",
                cluster.dir.join(keys::DIR).display()
            )))
        }
        _ => refuse_other_shape(args, &cluster).map(|()| cluster),
    }
}

/// Refuses to change what was fixed at the first use.
fn refuse_other_shape(args: &UpArgs, cluster: &Cluster) -> CliResult {
    let differs = |flag: &str, was: String| {
        let dir = args.dir.display();
        Err(CliError::usage(format!("{flag}: {dir} was formatted with {was}; that cannot change, leave the flag out")))
    };
    for target in cluster.targets() {
        let (flag, asked) = match target.id.kind {
            TargetKind::Mdt => ("--mdt-size", args.mdt_size),
            TargetKind::Ost => ("--ost-size", args.ost_size),
        };
        let Some(asked) = asked else { continue };
        let dir = utf8(&target.dir)?;
        // A target that cannot be read reports that when it is served.
        let has = real::run(async |env| Store::peek_identity(&env, &dir)).map_or(asked, |identity| identity.data_bytes);
        if has != asked {
            return differs(&format!("{flag} {}", show_bytes(asked)), format!("{} for {}", show_bytes(has), target.id));
        }
    }
    let listens = cluster.mgs();
    if args.listen.is_empty() || args.listen == listens {
        return Ok(());
    }
    let words = |addresses: &[Address]| addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(" and ");
    differs(&format!("--listen {}", words(&args.listen)), format!("{} at {}", TargetId::mdt(0), words(&listens)))
}

fn create(args: &UpArgs) -> CliResult<Cluster> {
    let osts = args.osts.unwrap_or(OSTS);
    if osts == 0 || osts as usize > forebay_proto::limits::STRIPES {
        return Err(CliError::usage(format!("--osts {osts}: use 1 to {}", forebay_proto::limits::STRIPES)));
    }
    let targets = osts as usize + 1;
    open_files::refuse_few_to_serve(if args.separate { 1 } else { targets }, targets)?;
    let shown = args.dir.display();
    if let Some((point, source)) = mounts::holding(&args.dir) {
        return Err(CliError::failed(format!(
            "{shown} is on the mount at {point}, of {source}: give a directory on a disk (`forebay status {source}` tells of \
             that cluster)"
        )));
    }
    utf8(&args.dir)?;
    let mut attempt = Attempt::begin(&args.dir)?;
    let dir = attempt.dir.clone();
    utf8(&dir)?;
    clear_unfinished(&dir)?;
    refuse_foreign_content(&dir)?;
    ["run", "log"].iter().try_for_each(|name| attempt.make(&dir.join(name)))?;
    std::fs::write(dir.join(UNFINISHED), "").doing(|| format!("cannot write in {shown}"))?;
    let ids: Vec<TargetId> = [TargetId::mdt(0)].into_iter().chain((0..osts).map(TargetId::ost)).collect();
    let free = posix::free_bytes(&dir).doing(|| format!("free space of {shown}"))?;
    let sizes = Sizes::choose(args.ost_size, args.mdt_size, free, osts)?;
    let listen = addresses(&dir, &args.listen, &ids)?;
    if !args.listen.is_empty() {
        refuse_unusable(listen.iter().flatten(), args.insecure_loopback)?;
    }
    if !args.in_silence {
        println!("{}", sizes.announcement(&dir, free));
    }
    let uuid = real::run(async |env| {
        let uuid = format_all(&env, &dir, &ids, &sizes).await?;
        keys::make(&dir.join(keys::DIR), uuid, env.unix_time().since_1970()).map(|()| uuid)
    })?;
    if args.integrity_only {
        keys::set_integrity_only(&dir.join(keys::DIR), true)?;
    }
    let entry = |(id, listen): (&TargetId, Vec<String>)| TargetEntry {
        name: id.to_string(),
        dir: id.to_string().into(),
        listen,
    };
    let description = Description {
        separate: args.separate,
        commit: args.commit.map(level_name),
        insecure_loopback: args.insecure_loopback,
        targets: ids.iter().zip(listen).map(entry).collect(),
        ..Description::of(uuid)
    };
    let cluster = Cluster { dir, description };
    cluster.save()?;
    std::fs::remove_file(cluster.dir.join(UNFINISHED)).doing(|| format!("cannot write in {shown}"))?;
    Ok(cluster)
}

async fn format_all(env: &Env, dir: &Path, ids: &[TargetId], sizes: &Sizes) -> CliResult<Uuid> {
    let cluster = new_uuid(env);
    let bar = progress::bar("formatting", ids.len() as u64, Counts::Things);
    for &id in ids {
        let bytes = if id == TargetId::mdt(0) { sizes.mdt } else { sizes.ost };
        format_target(env, &dir.join(id.to_string()), &FormatOptions::new(cluster, id, bytes)).await?;
        bar.add(1);
    }
    Ok(cluster)
}

/// Those of each target: Unix sockets in DIR/run, or TCP if requested. Errors: the sockets' paths would be too long.
fn addresses(dir: &Path, listen: &[Address], ids: &[TargetId]) -> CliResult<Vec<Vec<String>>> {
    if !listen.is_empty() {
        listen.iter().try_for_each(listen_address::refuse_any_port)?;
        let of_each = listen_address::of_targets(listen, ids.len())?.into_iter();
        return Ok(of_each.map(|addresses| addresses.iter().map(Address::to_string).collect()).collect());
    }
    let longest = dir.join(format!("run/{}.sock", ids[0]));
    cluster::socket_address(&longest)
        .map_err(|words| CliError::usage(format!("{words}: give a shorter DIR, or --listen 127.0.0.1:PORT")))?;
    Ok(ids.iter().map(|id| vec![format!("unix:run/{id}.sock")]).collect())
}

/// Refuses addresses that are not this machine's, or in use: the servers could not listen there.
fn refuse_unusable<'a>(addresses: impl Iterator<Item = &'a String>, insecure_loopback: bool) -> CliResult {
    let network = if insecure_loopback { Network::InsecureLoopback } else { Network::Public };
    real::run(async |env| {
        let env = env.with_network(network);
        // All at once, as the servers do.
        let mut listeners = Vec::new();
        for address in addresses {
            let address: Address = address.parse().doing(|| "--listen".into())?;
            let listener = env.listen(&address).await;
            listeners.push(listener.doing(|| "nothing was formatted, as the servers would not start".into())?);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_used_unless_ports_are_asked_for_and_paths_that_are_too_long_are_refused() {
        let ids = [TargetId::mdt(0), TargetId::ost(0)];
        let short = addresses(Path::new("/x"), &[], &ids).expect("addresses");
        assert_eq!(short, [["unix:run/MDT0000.sock"], ["unix:run/OST0000.sock"]]);
        let long = addresses(&Path::new("/").join("x".repeat(100)), &[], &ids).expect_err("too long").message;
        assert!(long.contains("118 bytes") && long.contains("--listen"), "{long}");
        let given = addresses(Path::new("/x"), &[Address::Tcp("127.0.0.1:7700".into())], &ids).expect("addresses");
        assert_eq!(given, [["tcp:127.0.0.1:7700"], ["tcp:127.0.0.1:7701"]]);
    }
}
