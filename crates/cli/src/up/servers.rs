//! Starts the server processes of a cluster.

use std::{convert::Infallible, os::unix::process::CommandExt, time::Duration};

use forebay_command::{
    cluster::{self, Cluster},
    error::{CliError, CliResult, Doing},
    keys,
    paths::utf8,
    posix,
    processes::{self, Background, PidFile, Starting},
    units::write_duration,
};
use forebay_env::real;
use forebay_proto::TargetId;

use crate::{
    ask, lost, metrics,
    serve::DisksArgs,
    server_processes::{self, STOP_TIMEOUT},
};

/// How long to wait for the end of a server that does not reply.
const DYING: Duration = Duration::from_secs(5);

/// Ends running server processes that need a restart: those with a target that has stopped, and those without a target
/// that is back. Also waits for processes that are about to end.
pub fn stop_stopped(cluster: &Cluster) -> CliResult {
    let running: Vec<(PidFile, Vec<cluster::Target>)> = present_processes(cluster)
        .into_iter()
        .map(|(name, targets)| (PidFile::of(&cluster.run_dir(), &name), targets))
        .filter(|(pid_file, _)| pid_file.running().is_some())
        .collect();
    if running.is_empty() {
        return Ok(());
    }
    let network = keys::of_cluster(cluster, keys::ADMIN)?;
    let answers = real::run(async |env| ask::states(&env.with_network(network), &cluster.map()).await);
    let reason = |id: TargetId| {
        let status = answers.iter().find(|answer| answer.id == id)?.status.as_ref().ok()?;
        (status.get("state")? == "stopped")
            .then(|| status.get("reason").and_then(|r| r.as_str()).unwrap_or("?").to_owned())
    };
    let is_silent = |id: TargetId| answers.iter().any(|answer| answer.id == id && answer.status.is_err());
    for (pid_file, targets) in running {
        let back: Vec<String> = pid_file.running().map_or_else(Vec::new, |pid| not_served(pid, &targets));
        if !back.is_empty() {
            eprintln!("forebay: {} is back: the servers are started again with it", back.join(", "));
            if !pid_file.stop(STOP_TIMEOUT) {
                pid_file.kill();
            }
            continue;
        }
        if targets.iter().any(|target| is_silent(target.id)) {
            // It may be dying: a process that was just killed still exists, and would count as running.
            processes::wait_until(DYING, || pid_file.running().is_none());
            // Its threads may be waiting for a slow device to finish their requests.
            let ends = || pid_file.running().is_none_or(|pid| !posix::is_ending(pid));
            processes::wait_until(STOP_TIMEOUT, ends);
            continue;
        }
        let stopped: Vec<String> = targets.iter().filter_map(|target| reason(target.id)).collect();
        if stopped.is_empty() {
            continue;
        }
        eprintln!("{}\nstarting the servers again", stopped.join("\n"));
        if !pid_file.stop(STOP_TIMEOUT) {
            pid_file.kill();
        }
    }
    Ok(())
}

/// Starts every server process that is not running, and waits until all are ready.
pub fn start_servers(cluster: &Cluster, disks: DisksArgs) -> CliResult {
    let mut starting = Vec::new();
    for (name, targets) in present_processes(cluster) {
        if PidFile::of(&cluster.run_dir(), &name).running().is_none() {
            starting.push(start_server(cluster, &name, &targets, disks)?);
        }
    }
    // All are started before the wait, so that they recover in parallel.
    let results: Vec<CliResult> = starting.into_iter().map(|starting| starting.wait_ready().map(drop)).collect();
    results.into_iter().collect()
}

/// The server processes without lost targets.
fn present_processes(cluster: &Cluster) -> Vec<(String, Vec<cluster::Target>)> {
    let present = |(name, targets): (String, Vec<cluster::Target>)| {
        let targets: Vec<_> = targets.into_iter().filter(|target| lost::why(target).is_none()).collect();
        (!targets.is_empty()).then_some((name, targets))
    };
    server_processes::of(cluster).into_iter().filter_map(present).collect()
}

/// Those of `targets` that server process `pid` was started without.
fn not_served(pid: u32, targets: &[cluster::Target]) -> Vec<String> {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
    let is_missing = |target: &&cluster::Target| !words.contains(&target.dir.as_os_str().as_encoded_bytes());
    // A process that is ending shows no arguments.
    match words.len() {
        0 | 1 => Vec::new(),
        _ => targets.iter().filter(is_missing).map(|target| target.id.to_string()).collect(),
    }
}

/// Starts one server process.
pub fn start_server(
    cluster: &Cluster,
    name: &str,
    targets: &[cluster::Target],
    disks: DisksArgs,
) -> CliResult<Starting> {
    Background {
        name,
        called: called(name, targets),
        args: arguments(cluster, name, targets, disks)?,
        own_session: true,
        run_dir: &cluster.run_dir(),
        log_dir: &cluster.log_dir(),
    }
    .start()
}

/// Makes this process the one that serves all targets. Returns only if it cannot.
pub fn become_server(cluster: &Cluster, disks: DisksArgs) -> CliResult<Infallible> {
    let dir = cluster.dir.display();
    if cluster.description.separate {
        return Err(CliError::usage(format!(
            "{dir} has a process per target: `forebay up` without --foreground starts them all, `forebay serve --map` one",
        )));
    }
    let processes = present_processes(cluster);
    let [(name, targets)] = &processes[..] else {
        return Err(CliError::failed(format!("{dir} has no target here that could be served")));
    };
    let pid_file = PidFile::of(&cluster.run_dir(), name);
    if let Some(pid) = pid_file.running() {
        return Err(CliError::failed(format!(
            "{dir} is served already, by process {pid}: `forebay down {dir}` ends it"
        )));
    }
    let mut command = processes::this_program();
    command.current_dir("/").args(arguments(cluster, name, targets, disks)?);
    processes::note_in_log(
        &cluster.log_dir().join(format!("{name}.log")),
        "served in the foreground from now on: what the server says is on its stderr (journalctl)",
    );
    std::fs::create_dir_all(cluster.run_dir()).doing(|| format!("cannot make {}", cluster.run_dir().display()))?;
    pid_file.write(std::process::id())?;
    let error = command.exec();
    pid_file.remove();
    Err(CliError::failed(format!("cannot start {}: {error}", called(name, targets))))
}

/// The arguments of a server process.
fn arguments(cluster: &Cluster, name: &str, targets: &[cluster::Target], disks: DisksArgs) -> CliResult<Vec<String>> {
    let map = cluster.dir.join(cluster::FILE);
    let mut args = vec!["serve".to_owned(), "--map".to_owned(), utf8(&map)?];
    args.extend(disks.forgetful_disks.then(|| "--forgetful-disks".to_owned()));
    if let Some(window) = cluster.recovery_window() {
        args.extend(["--recovery-window".to_owned(), write_duration(window)]);
    }
    if let Some(address) = metrics::of_cluster::address(cluster, name)? {
        args.extend(["--metrics".to_owned(), metrics::plain(&address)]);
        args.extend(cluster.description.metrics_public.then(|| "--metrics-public".to_owned()));
    }
    for target in targets {
        args.push(utf8(&target.dir)?);
    }
    Ok(args)
}

fn called(name: &str, targets: &[cluster::Target]) -> String {
    if targets.len() == 1 { format!("the server of {name}") } else { "the servers' process".into() }
}
