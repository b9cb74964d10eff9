//! `forebay status CLUSTER`: targets, space, sessions, recovery, background work, commits, request sizes.

mod commits;
mod sizes;

use std::path::Path;

use clap::Args;
use forebay_command::{
    cluster::Cluster,
    error::{CliError, CliResult},
    processes::{self, PidFile},
    table::align,
    units::{show_bytes, show_count, write_left},
};
use forebay_env::{Address, Env, real};
use forebay_proto::Transno;
use serde_json::{Value, json};

use crate::{
    ask,
    cluster_arg::{ClusterArg, KeysArgs},
    lost, metrics, mounts, server_processes,
};

/// Of which cluster.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The DIR of `forebay up`, a mount, or HOST:PORT[,HOST:PORT] of the MGS
    #[arg(value_name = "CLUSTER")]
    pub cluster: String,
    /// Sizes of requests of each target and device, instead of all together
    #[arg(long)]
    pub devices: bool,
    #[command(flatten)]
    pub keys: KeysArgs,
    /// Print JSON, which has all of it
    #[arg(long)]
    pub json: bool,
}

/// Prints the status. If a target does not reply, it fails after printing what is known.
pub fn run(args: &StatusArgs) -> CliResult {
    let cluster = ClusterArg::parse(&args.cluster)?;
    let network = cluster.network(&args.keys)?;
    let report = real::run(|env| async move { gather(&env.with_network(network), &cluster).await })?;
    if args.json {
        println!("{report}");
    } else {
        print!("{}", table(&report, args.devices));
    }
    refuse_silence(&report)
}

/// Fails if a target does not reply, or has stopped.
pub fn refuse_silence(report: &Value) -> CliResult {
    // Each lost target has a text with the reason and what to do.
    let lost: Vec<&str> = targets(report).filter_map(|target| target["lost"].as_str()).collect();
    let of_state = |state: &str| -> Vec<&str> {
        let found = targets(report).filter(|t| t["state"] == *state && t["lost"].is_null());
        found.filter_map(|t| t["name"].as_str()).collect()
    };
    let (stopped, hang, down) = (of_state("stopped"), of_state(ask::NO_ANSWER), of_state("down"));
    let refused = of_state(ask::REFUSED);
    let verb = if down.len() == 1 { "does" } else { "do" };
    let words = [
        (&stopped, "stopped, and all who use it wait; `forebay up` starts it again when its device is well".to_owned()),
        (&hang, "gave no answer in time: its process hangs, or its machine is busy".to_owned()),
        (
            &refused,
            "cannot be asked: its server and this host do not accept each other, for the reason above".to_owned(),
        ),
        (&down, format!("{verb} not answer; `forebay up` starts what is missing")),
    ];
    let said = words.iter().filter(|(targets, _)| !targets.is_empty());
    let said = said.map(|(targets, words)| format!("{} {words}", targets.join(", ")));
    match lost.into_iter().map(str::to_owned).chain(said).collect::<Vec<_>>() {
        said if said.is_empty() => Ok(()),
        said => Err(CliError::failed(said.join("\n"))),
    }
}

/// The status as a JSON object.
pub async fn gather(env: &Env, cluster: &ClusterArg) -> CliResult<Value> {
    let map = ask::map(env, cluster).await?;
    let answers = ask::states(env, &map).await;
    let mut targets: Vec<Value> = answers.iter().map(ask::Answer::to_json).collect();
    if let ClusterArg::Described(cluster) = cluster {
        targets.iter_mut().for_each(|target| add_place(target, cluster));
    }
    let clients = targets.first().and_then(|mdt| mdt.get("clients")).cloned().filter(Value::is_array);
    let metrics = match cluster {
        ClusterArg::Described(cluster) => metrics::of_cluster::urls(cluster),
        ClusterArg::Addresses(_) => Vec::new(),
    };
    Ok(json!({
        "cluster": map.cluster.to_string(), "epoch": map.epoch, "metrics": metrics,
        "targets": targets, "clients": clients, "waiting_mounts": waiting_mounts(cluster),
    }))
}

/// Mounts on this machine whose programs wait for servers.
fn waiting_mounts(cluster: &ClusterArg) -> Vec<Value> {
    match cluster {
        ClusterArg::Described(cluster) => {
            mounts::waits(|source| Path::new(source).canonicalize().is_ok_and(|source| source == cluster.dir))
        }
        ClusterArg::Addresses(addresses) => {
            let parse = |source: &str| source.split(',').map(str::parse).collect::<Result<Vec<Address>, _>>();
            mounts::waits(|source| parse(source).is_ok_and(|source| source == *addresses))
        }
    }
}

/// Adds directory and pid, where the target itself does not report them.
fn add_place(target: &mut Value, cluster: &Cluster) {
    let name = target["name"].as_str().unwrap_or_default().to_owned();
    let described = cluster.targets().into_iter().find(|described| described.id.to_string() == name);
    let served_by = server_processes::of(cluster)
        .into_iter()
        .find(|(_, targets)| targets.iter().any(|target| target.id.to_string() == name))
        .map(|(process, _)| process);
    if let Some(words) = described.as_ref().and_then(lost::why) {
        target["lost"] = json!(words);
        // A target that noticed its loss has stopped, and reports that. For the others there is no server to ask.
        if target["state"] != "stopped" {
            (target["state"], target["error"]) = (json!("lost"), Value::Null);
        }
    }
    let process = served_by.as_ref().and_then(|process| PidFile::of(&cluster.run_dir(), process).running());
    if target["dir"].is_null() {
        target["dir"] = json!(described.as_ref().map(|described| described.dir.display().to_string()));
    }
    if target["pid"].is_null() && target["state"] != "lost" {
        target["pid"] = json!(process);
    }
    // Its silence is explained by that, so the log's last message is more useful.
    if let (Some(served_by), None, "down") = (served_by, process, target["state"].as_str().unwrap_or_default()) {
        let log = cluster.log_dir().join(format!("{served_by}.log"));
        let words = processes::last_words(&log);
        let said = words.map_or_else(String::new, |words| format!(", and said at its end: {words}"));
        target["error"] = json!(format!("its process does not run{said} ({})", log.display()));
    }
}

fn targets(report: &Value) -> impl Iterator<Item = &Value> {
    report["targets"].as_array().into_iter().flatten()
}

fn table(report: &Value, devices: bool) -> String {
    let heads = ["target", "state", "pid", "used", "available", "durable up to", "sessions", "where"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(targets(report).map(row));
    let mut lines = vec![format!("cluster {}", report["cluster"].as_str().unwrap_or_default()), String::new()];
    lines.extend(align(&rows));
    lines.extend(reasons(report));
    lines.extend(targets(report).filter_map(recovery));
    lines.extend(targets(report).filter_map(bad_places));
    lines.extend(report["waiting_mounts"].as_array().into_iter().flatten().map(waiting_mount));
    lines.extend(targets(report).flat_map(mirror));
    lines.extend(targets(report).filter_map(repeated));
    lines.extend(targets(report).filter_map(protection));
    lines.extend(targets(report).filter_map(certificate));
    lines.extend(commits::table(targets(report)));
    lines.extend(sizes::table(targets(report), devices));
    let clients = report["clients"].as_array().map_or(&[][..], Vec::as_slice);
    lines.push(String::new());
    lines.push(match clients.len() {
        _ if report["clients"].is_null() => "clients: not known, as MDT0000 does not answer".into(),
        1 => "1 client".into(),
        many => format!("{many} clients"),
    });
    lines.extend(clients.iter().map(|client| {
        let away = if client["connected"] == false { "  (away)" } else { "" };
        let keeps = match pinned_bytes(report, client) {
            0 => String::new(),
            bytes => format!("  keeps {} until it is committed", show_bytes(bytes)),
        };
        let protection = match client["protection"].as_str() {
            None | Some("local") => String::new(),
            Some("none") => "  not protected".into(),
            Some(words) => format!("  {words}"),
        };
        format!("  {}{away}{protection}{keeps}", client["description"].as_str().unwrap_or("?"))
    }));
    lines.extend(
        report["metrics"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|url| Some(format!("metrics at {}", url.as_str()?))),
    );
    lines.join("\n") + "\n"
}

/// Why targets do not reply, or have stopped: a line for each.
pub fn reasons(report: &Value) -> Vec<String> {
    let errors = targets(report).filter_map(|t| Some(format!("{}: {}", t["name"].as_str()?, t["error"].as_str()?)));
    errors.chain(targets(report).filter_map(|t| t["reason"].as_str().map(str::to_owned))).collect()
}

/// Bytes that a client pins for all targets.
fn pinned_bytes(report: &Value, client: &Value) -> u64 {
    let sessions = targets(report).flat_map(|target| target["clients"].as_array().into_iter().flatten());
    let own = sessions.filter(|session| session["client"] == client["client"]);
    own.filter_map(|session| session["pinned_bytes"].as_u64()).sum()
}

/// Requests that clients repeated since the target was started.
fn repeated(target: &Value) -> Option<String> {
    let count = |key: &str| target["requests"][key].as_u64().unwrap_or(0);
    let (replays, resends) = (count("replays"), count("resends"));
    let words = |count: u64, what: &str| (count > 0).then(|| format!("{} {what}", show_count(count)));
    let both: Vec<String> = [words(replays, "replayed"), words(resends, "sent again")].into_iter().flatten().collect();
    let name = target["name"].as_str().filter(|_| !both.is_empty())?;
    Some(format!("{name}: requests of clients since its start: {}", both.join(", ")))
}

/// What protects the connections of a target's clients, if some come over a network.
fn protection(target: &Value) -> Option<String> {
    let counts = target["protection"].as_object().filter(|counts| counts.keys().any(|what| what != "local"))?;
    let counts: Vec<String> = counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
    Some(format!("{}: connections of clients: {}", target["name"].as_str()?, counts.join(", ")))
}

/// A certificate whose renewal has failed for long.
fn certificate(target: &Value) -> Option<String> {
    let certificate = target["certificate"].as_object().filter(|of| of["ends_soon"] == true)?;
    let left_ns = certificate["left_s"].as_i64()?.saturating_mul(1_000_000_000);
    let left = write_left(0, left_ns);
    Some(format!(
        "{}: the certificate of {} ends in {left}, and was not renewed: its log says why. MDT0000's server renews it, and \
         needs DIR/keys/authority.key for that",
        target["name"].as_str()?,
        certificate["node"].as_str()?
    ))
}

fn row(target: &Value) -> Vec<String> {
    let text = |key: &str| match &target[key] {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => "-".into(),
    };
    let bytes = |key: &str| space(target, key).map_or("-".into(), show_bytes);
    vec![
        text("name"),
        text("state"),
        text("pid"),
        bytes("used"),
        bytes("available"),
        durable(target),
        sessions(target),
        text("dir"),
    ]
}

/// The rest of a recovery window, and the clients that the target waits for.
fn recovery(target: &Value) -> Option<String> {
    let recovery = &target["recovery"];
    let left_ms = recovery["left_ms"].as_u64().filter(|_| target["state"] == "recovering")?;
    let (name, awaited, expected) = (target["name"].as_str()?, &recovery["awaited"], &recovery["expected"]);
    Some(format!("{name} waits for {awaited} of {expected} clients, {:.1} s at most", left_ms as f64 / 1e3))
}

/// What the programs on a mount wait for, and for how long.
fn waiting_mount(waits: &Value) -> String {
    let awaited = waits["awaited"].as_array().into_iter().flatten().map(|awaited| {
        let (target, trouble) = (awaited["target"].as_str().unwrap_or("?"), awaited["trouble"].as_str().unwrap_or(""));
        if trouble.is_empty() { format!("{target} (busy)") } else { format!("{target}, which {trouble}") }
    });
    let awaited: Vec<String> = awaited.collect();
    let requests = match waits["requests"].as_u64() {
        Some(1) => "1 request waits".into(),
        many => format!("{} requests wait", many.unwrap_or(0)),
    };
    format!(
        "mount {}: {requests}, the first for {} s: for {}",
        waits["mount"].as_str().unwrap_or("?"),
        waits["longest_s"],
        if awaited.is_empty() { "what the mount itself does".into() } else { awaited.join("; ") },
    )
}

/// The last committed transno, as the number of the change since a start of the target.
fn durable(target: &Value) -> String {
    match target["last_committed"].as_u64().map(Transno) {
        None => "-".into(),
        Some(Transno(0)) => "nothing yet".into(),
        Some(transno) => format!("change {} of start {}", transno.counter(), transno.incarnation()),
    }
}

/// Number of sessions with connected clients, and with disconnected ones.
fn sessions(target: &Value) -> String {
    let Some(all) = target["sessions"].as_u64() else { return "-".into() };
    let clients = target["clients"].as_array().map_or(&[][..], Vec::as_slice);
    match clients.iter().filter(|client| client["connected"] == false).count() as u64 {
        0 => all.to_string(),
        away => format!("{}, {away} away", all.saturating_sub(away)),
    }
}

fn bad_places(target: &Value) -> Option<String> {
    let bad = target["space"]["slabs"]["bad"].as_u64().filter(|bad| *bad > 0)?;
    let name = target["name"].as_str()?;
    Some(format!(
        "{name}: writes failed in {bad} places (slabs) of its device, which are left alone; replace the device soon"
    ))
}

/// Copies of a mirrored target that are incomplete, and devices that begin to fail.
fn mirror(target: &Value) -> Vec<String> {
    let name = target["name"].as_str().unwrap_or_default();
    let parts = target["mirror"]["parts"].as_array().map_or(&[][..], Vec::as_slice);
    let of_part = |part: &Value| {
        let what = part["part"].as_str().unwrap_or_default().to_owned();
        let bad = part["bad_places"].as_u64().filter(|bad| *bad > 0).map(|bad| {
            format!("{name}: {bad} places of the {what} are bad in one copy and stay so; replace its device soon")
        });
        let copies = part["copies"].as_array().map_or(&[][..], Vec::as_slice).iter();
        let lines: Vec<String> = copies.filter_map(|copy| copy_line(name, &what, copy)).chain(bad).collect();
        lines
    };
    parts.iter().flat_map(of_part).collect()
}

fn copy_line(name: &str, part: &str, copy: &Value) -> Option<String> {
    let path = copy["path"].as_str()?;
    match copy["state"].as_str()? {
        "resync" => {
            let (done, total) = (copy["done_bytes"].as_u64()?, copy["total_bytes"].as_u64()?.max(1));
            Some(format!("{name}: the {part} in {path} is being brought up to date: {} %", done * 100 / total))
        }
        "lost" => {
            let reason = copy["reason"].as_str().unwrap_or("?");
            Some(format!(
                "{name} is degraded: it has no second copy of its {part} ({path}: {reason}); `forebay mirror replace DIR PATH` \
                 gives it one"
            ))
        }
        _ => None,
    }
}

/// Bytes of a target's space: `used`, `available` or `total`.
pub fn space(target: &Value, key: &str) -> Option<u64> {
    target["space"][format!("{key}_bytes")].as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_what_protects_connections_over_a_network_and_which_certificates_end() {
        let certificate = |soon| json!({"node": "ost h2", "expires_ns": 5, "left_s": 3600, "ends_soon": soon});
        let report = json!({
            "cluster": "c",
            "targets": [
                {"name": "MDT0000", "state": "serving", "protection": {"local": 2}, "certificate": null},
                {"name": "OST0000", "state": "serving", "protection": {"encrypted": 3, "integrity only": 1},
                 "certificate": certificate(true)},
                {"name": "OST0001", "state": "serving", "certificate": certificate(false)},
            ],
            "clients": [
                {"client": "x", "description": "mount /a", "connected": true, "protection": "encrypted"},
                {"client": "y", "description": "mount /b", "connected": true, "protection": "none"},
                {"client": "z", "description": "mount /c", "connected": true, "protection": "local"},
            ],
        });
        let text = table(&report, false);
        assert!(text.contains("OST0000: connections of clients: 3 encrypted, 1 integrity only"), "{text}");
        assert!(!text.contains("MDT0000: connections") && !text.contains("OST0001: "), "{text}");
        assert!(text.contains("OST0000: the certificate of ost h2 ends in 1h, "), "{text}");
        assert!(text.contains("mount /a  encrypted") && text.contains("mount /b  not protected"), "{text}");
        assert!(text.lines().any(|line| line.trim_end() == "  mount /c"), "{text}");
    }

    #[test]
    fn the_table_shows_targets_that_answer_and_those_that_do_not() {
        let report = json!({
            "cluster": "c",
            "targets": [
                {"name": "MDT0000", "kind": "mdt", "state": "serving", "pid": 7, "dir": "/x", "last_committed": 12,
                 "space": {"used_bytes": 1024, "available_bytes": 2048}, "sessions": 2},
                {"name": "OST0000", "kind": "ost", "state": "down", "error": "no answer"},
                {"name": "OST0004", "kind": "ost", "state": "refused", "error": "y: its certificate has expired"},
                {"name": "OST0003", "kind": "ost", "state": "no answer", "error": "x: no answer within 5s"},
                {"name": "MDT0001", "state": "serving", "mirror": {"degraded": true, "parts": [
                    {"part": "data", "mended": 0, "bad_places": 2, "copies": [
                        {"path": "/a/data", "state": "in sync"},
                        {"path": "/b/data", "state": "resync", "done_bytes": 430, "total_bytes": 1000}]},
                    {"part": "journal", "mended": 0, "bad_places": 0, "copies": [
                        {"path": "/a/journal", "state": "in sync"},
                        {"path": "/b/journal", "state": "lost", "reason": "EIO"}]}]}},
                {"name": "OST0001", "state": "stopped", "reason": "OST0001 stopped: EIO", "last_committed": (3u64 << 40) + 9},
                {"name": "OST0002", "state": "recovering", "recovery": {"awaited": 1, "expected": 2, "left_ms": 1500},
                 "space": {"slabs": {"bad": 3}}, "sessions": 2, "clients": [{"connected": true}, {"connected": false}]},
            ],
            "clients": [{"client": "id", "description": "mount host:/mnt"}],
            "waiting_mounts": [{"mount": "/mnt", "requests": 3, "longest_s": 12,
                "awaited": [{"target": "OST0000", "trouble": "does not answer", "requests": 2}]}],
        });
        let table = table(&report, false);
        for words in [
            "MDT0000     serving",
            "OST0002  recovering",
            "1 KiB      2 KiB",
            "down",
            "no answer",
            "mount host:/mnt",
            "OST0001 stopped: EIO",
            "change 9 of start 3",
            "OST0002 waits for 1 of 2 clients, 1.5 s at most",
            "1, 1 away",
            "writes failed in 3 places",
            "OST0000: no answer",
            "OST0004: y: its certificate has expired",
            "mount /mnt: 3 requests wait, the first for 12 s: for OST0000, which does not answer",
            "MDT0001: the data in /b/data is being brought up to date: 43 %",
            "no second copy of its journal (/b/journal: EIO)",
            "2 places of the data are bad in one copy",
        ] {
            assert!(table.contains(words), "{words} in {table}");
        }
        let error = refuse_silence(&report).expect_err("four do not serve").message;
        for words in [
            "OST0001 stopped",
            "OST0000 does not answer",
            "OST0003 gave no answer",
            "OST0004 cannot be asked: its server and this host do not accept each other",
        ] {
            assert!(error.contains(words), "{error}");
        }
    }
}
