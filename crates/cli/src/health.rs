//! `forebay health`: whether what this host has of Forebay works, within a time limit, whatever hangs. For Slurm's
//! HealthCheckProgram, and for Kubernetes' probes.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // looks at processes and mounts; nothing here serves

use std::{
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::Duration,
};

use clap::Args;
use forebay_command::{
    cluster::Cluster,
    error::{CliError, CliResult},
    keys, posix,
    processes::{self, PidFile},
    units::parse_duration,
};
use forebay_env::real;
use serde_json::{Value, json};

use crate::{
    ask, lost,
    mounts::{self, Notes},
    server_processes,
};

/// Name of the hidden command that asks a mount.
pub const PROBE_COMMAND: &str = "health-probe";

/// What to look at.
#[derive(Debug, Args)]
pub struct HealthArgs {
    /// Mounts, and DIRs of `forebay up` or `join` whose servers run on this host [default: all mounts of this host]
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Answer within this time
    #[arg(long, value_parser = parse_duration, default_value = "2s", value_name = "TIME")]
    pub timeout: Duration,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Which mount.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    mnt: PathBuf,
}

/// One thing that was looked at.
struct Finding {
    what: String,
    /// `None`: it works.
    trouble: Option<String>,
}

/// Prints what works and what does not. Fails if anything does not.
pub fn run(args: &HealthArgs) -> CliResult {
    let deadline_ns = posix::monotonic_ns() + args.timeout.as_nanos() as u64;
    // Nothing on a mount is looked at: it may hang.
    let is_dir = |path: &PathBuf| mounts::holding(path).is_none() && Cluster::exists(path);
    let (dirs, mut points): (Vec<PathBuf>, Vec<PathBuf>) = args.paths.iter().map(absolute).partition(is_dir);
    if args.paths.is_empty() {
        points = mounts::all().into_iter().map(PathBuf::from).collect();
        if points.is_empty() {
            return Err(CliError::failed(
                "nothing of Forebay is mounted here; name the DIR of servers to look at those",
            ));
        }
    }
    // All questions are asked at once.
    let probes: Vec<(PathBuf, Option<Child>)> = points.into_iter().map(|mnt| (mnt.clone(), probe(&mnt))).collect();
    let mut findings = Vec::new();
    for dir in dirs {
        findings.extend(servers(&dir, left(deadline_ns))?);
    }
    findings.extend(probes.into_iter().map(|(mnt, probe)| mount(&mnt, probe, left(deadline_ns), args.timeout)));
    let troubles = findings.iter().filter(|finding| finding.trouble.is_some()).count();
    match args.json {
        true => println!("{}", to_json(&findings)),
        false => findings.iter().for_each(|finding| println!("{}", finding.line())),
    }
    match troubles {
        0 => Ok(()),
        some => Err(CliError::failed(format!("{some} of {} do not work", findings.len()))),
    }
}

fn absolute(path: impl AsRef<Path>) -> PathBuf {
    std::path::absolute(&path).unwrap_or_else(|_| path.as_ref().to_owned())
}

/// Asks a mount for its space, as any program does.
pub fn probe_mount(args: &ProbeArgs) -> CliResult {
    let free = posix::free_bytes(&args.mnt).map(drop);
    free.map_err(|error| CliError::failed(format!("{}: {error}", args.mnt.display())))
}

fn left(deadline_ns: u64) -> Duration {
    Duration::from_nanos(deadline_ns.saturating_sub(posix::monotonic_ns()))
}

/// A process of its own: whoever asks a mount that hangs hangs, too.
fn probe(mnt: &Path) -> Option<Child> {
    let mut command = processes::this_program();
    command.arg(PROBE_COMMAND).arg("--").arg(mnt).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().ok()
}

fn mount(mnt: &Path, probe: Option<Child>, left: Duration, timeout: Duration) -> Finding {
    let what = mnt.display().to_string();
    let finding = |trouble: Option<String>| Finding { what: what.clone(), trouble };
    let Some(mut probe) = probe else { return finding(Some("no process can be started to ask it".into())) };
    let mut ended = None;
    processes::wait_until(left, || {
        ended = probe.try_wait().ok().flatten();
        ended.is_some()
    });
    let is_ours = mounts::seen(mnt).is_some() && mounts::foreign(mnt).is_none();
    match ended {
        _ if !is_ours => finding(Some("Forebay is not mounted there".into())),
        Some(status) if status.success() => finding(None),
        Some(_) => finding(Some("the mount's process has ended: `forebay umount` clears it away".into())),
        None => {
            // It ends when the mount answers.
            let _ = probe.kill();
            let awaited = mounts::awaited(mnt).or_else(|| Notes::of(mnt).read().map(|notes| notes.to_string()));
            let awaited = awaited.map_or_else(String::new, |awaited| format!(": it waits for {awaited}"));
            finding(Some(format!("no answer within {timeout:?}{awaited}")))
        }
    }
}

/// The servers of a cluster that run on this host.
fn servers(dir: &Path, timeout: Duration) -> CliResult<Vec<Finding>> {
    let cluster = Cluster::load(dir)?;
    let running = |name: &str| PidFile::of(&cluster.run_dir(), name).running().is_some();
    let stopped: Vec<String> = server_processes::of(&cluster)
        .into_iter()
        .filter(|(name, _)| !running(name))
        .flat_map(|(_, targets)| targets)
        .map(|target| target.id.to_string())
        .collect();
    let network = keys::of_cluster(&cluster, keys::ADMIN)?;
    let map = cluster.map();
    let answers = real::run(async |env| ask::states_within(&env.with_network(network), &map, timeout).await);
    let findings = cluster.targets().into_iter().map(|target| {
        let name = target.id.to_string();
        let answer = answers.iter().find(|answer| answer.id == target.id);
        let trouble = match (lost::why(&target), answer.map(|answer| &answer.status)) {
            (Some(lost), _) => Some(lost),
            _ if stopped.contains(&name) => {
                Some(format!("its server does not run: `forebay up {}` starts it", dir.display()))
            }
            (_, None) => Some("nobody asked it".into()),
            (_, Some(Err(silence))) => Some(silence.words.clone()),
            (_, Some(Ok(status))) => trouble_of(status),
        };
        Finding { what: name, trouble }
    });
    Ok(findings.collect())
}

/// A target that recovers is about to serve.
fn trouble_of(status: &serde_json::Map<String, Value>) -> Option<String> {
    match status.get("state").and_then(Value::as_str) {
        Some("serving" | "recovering") => None,
        state => {
            let reason = status.get("reason").and_then(Value::as_str).unwrap_or_default();
            Some(format!("{} {reason}", state.unwrap_or("it does not say its state")).trim_end().to_owned())
        }
    }
}

impl Finding {
    fn line(&self) -> String {
        match &self.trouble {
            None => format!("{}: works", self.what),
            Some(trouble) => format!("{}: {trouble}", self.what),
        }
    }
}

fn to_json(findings: &[Finding]) -> Value {
    let found = findings
        .iter()
        .map(|finding| json!({"what": finding.what, "works": finding.trouble.is_none(), "trouble": finding.trouble}));
    json!({"healthy": findings.iter().all(|finding| finding.trouble.is_none()), "findings": found.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_that_serve_or_recover_are_well_and_others_say_why_not() {
        let status = |text: &str| serde_json::from_str::<serde_json::Map<String, Value>>(text).expect("JSON");
        for well in [r#"{"state": "serving"}"#, r#"{"state": "recovering"}"#] {
            assert_eq!(trouble_of(&status(well)), None);
        }
        let stopped = status(r#"{"state": "stopped", "reason": "a flush failed"}"#);
        assert_eq!(trouble_of(&stopped).as_deref(), Some("stopped a flush failed"));
        assert!(trouble_of(&status("{}")).is_some());
    }

    #[test]
    fn one_trouble_makes_the_whole_unhealthy() {
        let well = Finding { what: "/mnt".into(), trouble: None };
        let ill = Finding { what: "OST0000".into(), trouble: Some("no answer".into()) };
        assert_eq!((well.line().as_str(), ill.line().as_str()), ("/mnt: works", "OST0000: no answer"));
        let json = to_json(&[well, ill]);
        assert_eq!((&json["healthy"], &json["findings"][1]["trouble"]), (&json!(false), &json!("no answer")));
    }
}
