//! `forebay sim wall`: rates of directory operations over tasks, with the MDT on disk and on solid state, next to the
//! paper's findings.

use std::path::Path;

use forebay_command::{
    error::{CliError, CliResult},
    paths::utf8,
    progress,
    table::align,
};
use forebay_env::real;
use forebay_lab::{
    self as lab, Machine, Plot, WALL_COMPARED_AT, WALL_DEVICES, WALL_OPERATIONS, Wall, WallOptions, WallRun, plot,
};
use serde_json::{Value, json};

use super::{SimArgs, changed, load, round};

/// Lines of a plot.
const PLOT_LINES: usize = 20;
/// The numbers of tasks between which the paper found no scaling.
const FEW_AND_MANY: [u32; 2] = [64, 1024];

/// Runs the experiment and prints the results.
pub fn run(args: &SimArgs) -> CliResult {
    if args.cpu_factor <= 0.0 {
        return Err(CliError::usage("--cpu-factor: sim wall needs more than 0, as names cost little else"));
    }
    let machine = match &args.machine {
        Some(path) => load(args, path)?,
        None => changed(args, Machine::parse(lab::WALL).map_err(CliError::failed)?)?,
    };
    let has_devices = WALL_DEVICES.iter().all(|device| machine.mdt.contains_key(*device));
    if machine.names.is_none() || machine.mds.is_none() || !has_devices {
        return Err(CliError::failed(
            "sim wall needs a machine with [names], [mds], [mdt.sata] and [mdt.ssd]: see machines/wall.toml",
        ));
    }
    let mut tasks = if args.tasks.is_empty() { lab::WALL_TASKS.to_vec() } else { args.tasks.clone() };
    tasks.sort_unstable();
    tasks.dedup();
    let options = WallOptions { seed: args.seed, tasks, files: args.files, cpu_factor: args.cpu_factor };
    let bar = progress::bar("mdtest", 1, progress::Counts::Things);
    let mut say = |what: &str, step: usize, steps: usize| bar.at(what, step as u64, steps as u64);
    let wall = lab::wall(&machine, &options, &mut say).map_err(CliError::failed)?;
    drop(bar);
    if let Some(dir) = &args.plots {
        picture(&wall, &options.tasks, dir)?;
    }
    if args.json {
        println!("{}", to_json(&wall, args.seed));
    } else {
        text(&machine, &wall, &options).iter().for_each(|line| println!("{line}"));
    }
    Ok(())
}

/// The paper's statement about a ratio, and our two results.
struct Finding {
    what: String,
    published: &'static str,
    paper_mode: Option<f64>,
    default: Option<f64>,
}

impl Finding {
    fn of(what: String, published: &'static str, ratio: impl Fn(bool) -> Option<f64>) -> Self {
        Self { what, published, paper_mode: ratio(true), default: ratio(false) }
    }
}

fn findings(wall: &Wall) -> Vec<Finding> {
    let rate =
        |device, is_papers, tasks, operation: usize| wall.run(device, is_papers, tasks).map(|run| run.rates[operation]);
    let of_devices = |(device, other), is_papers, operation| {
        let of = |device| rate(device, is_papers, WALL_COMPARED_AT, operation);
        Some(of(device)? / of(other)?)
    };
    let names = || WALL_OPERATIONS.iter().enumerate();
    let mut findings = Vec::new();
    for (operation, name) in names() {
        let published = if name.ends_with("stat") { "about 1" } else { "2 to 4" };
        let what = format!("{name}, {WALL_COMPARED_AT} tasks: SSD / SATA");
        findings.push(Finding::of(what, published, |is_papers| of_devices(("ssd", "sata"), is_papers, operation)));
    }
    for (operation, name) in names() {
        let what = format!("{name}, {WALL_COMPARED_AT} tasks: PCIe / Fibre Channel SSD");
        findings.push(Finding::of(what, "about 1", |is_papers| of_devices(("ssd", "fc"), is_papers, operation)));
    }
    let [few, many] = FEW_AND_MANY;
    for (operation, name) in names() {
        let published = if name.starts_with("dir-") { "below 1" } else { "about 1" };
        let what = format!("{name}, SATA: {many} tasks / {few}");
        findings.push(Finding::of(what, published, |is_papers| {
            Some(rate("sata", is_papers, many, operation)? / rate("sata", is_papers, few, operation)?)
        }));
    }
    findings.retain(|finding| finding.default.is_some());
    findings
}

/// Our runs in both modes, for one number of tasks on one device.
struct Pair<'a> {
    papers: Option<&'a WallRun>,
    default: &'a WallRun,
}

fn pairs(wall: &Wall) -> impl Iterator<Item = Pair<'_>> {
    let default = wall.runs.iter().filter(|run| !run.is_papers);
    default.map(|run| Pair { papers: wall.run(&run.device, true, run.tasks), default: run })
}

/// The pairs on solid state.
fn on_ssd(wall: &Wall) -> impl Iterator<Item = Pair<'_>> {
    pairs(wall).filter(|pair| pair.default.device == "ssd")
}

fn to_json(wall: &Wall, seed: u64) -> Value {
    let row = |name: String, unit: &str, paper_mode: Option<f64>, default: f64| json!({ "name": name, "unit": unit, "published": null, "paper_mode": paper_mode.map(round), "default": round(default) });
    let mut rows = Vec::new();
    for Pair { papers, default } in pairs(wall) {
        for (number, operation) in WALL_OPERATIONS.iter().enumerate() {
            let name = format!("{operation}-{}-{}", default.tasks, default.device);
            let paper_mode = papers.map(|run| run.rates[number] / 1e3);
            rows.push(row(name, "thousand operations/s", paper_mode, default.rates[number] / 1e3));
        }
    }
    for Pair { papers, default } in on_ssd(wall) {
        let name = format!("open-shared-{}", default.tasks);
        rows.push(row(name, "ms", papers.map(|run| run.open_shared_ms), default.open_shared_ms));
    }
    let finding = |finding: Finding| {
        json!({ "what": finding.what, "published": finding.published, "paper_mode": finding.paper_mode.map(round),
            "default": finding.default.map(round) })
    };
    let findings: Vec<Value> = findings(wall).into_iter().map(finding).collect();
    let hosts = |Pair { default, .. }: Pair<'_>| json!({ "tasks": default.tasks, "hosts": default.hosts, "files": default.files, "entries": default.entries });
    let hosts: Vec<Value> = on_ssd(wall).map(hosts).collect();
    let busy = |run: &WallRun| json!({ "tasks": run.tasks, "device": run.device, "way": way(run.is_papers), "busy": run.device_busy.map(round) });
    let busy: Vec<Value> = wall.runs.iter().map(busy).collect();
    let limit = wall.thread_limit.map(|rate| round(rate / 1e3));
    json!({ "experiment": "wall", "seed": seed, "rows": rows, "findings": findings, "hosts": hosts,
        "operations": WALL_OPERATIONS, "thread_limit": limit, "device_busy": busy })
}

fn way(is_papers: bool) -> &'static str {
    if is_papers { "paper mode" } else { "default" }
}

fn text(machine: &Machine, wall: &Wall, options: &WallOptions) -> Vec<String> {
    let mut lines = vec![
        format!("{}: {}", machine.name, machine.about),
        "mdtest: files without data, then directories, in directories of each task's own; thousand operations a second;"
            .into(),
        "paper mode: each change is waited for; nothing is published but the ratios below\n".into(),
    ];
    lines.extend(align(&rates(wall)));
    lines.push("(the MDS's thread: what it could answer if it never waited)\n".into());
    let findings = findings(wall);
    if !findings.is_empty() {
        let shown = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
        let mut table = vec![["", "published", "paper mode", "default"].map(str::to_owned).to_vec()];
        let line = |f: &Finding| vec![f.what.clone(), f.published.into(), shown(f.paper_mode), shown(f.default)];
        table.extend(findings.iter().map(line));
        lines.extend(align(&table));
        lines.push("\nPart of the time that the MDT's device was at work".into());
        lines.extend(align(&busy(wall)));
        lines.push(String::new());
    }
    lines.push("One shared file opened by all tasks at once, MDT on SSD: from the first open to the last reply".into());
    lines.push("(cited by the paper: linear in their number)".into());
    lines.extend(align(&shared(wall)));
    lines.push(String::new());
    let curves = curves(wall, &options.tasks);
    lines.extend(plot("names over tasks, MDT on SSD", "thousand operations/s", &options.tasks, &curves, PLOT_LINES));
    lines.push(format!("\nseed {}", options.seed));
    lines
}

/// A table of the runs: tasks, hosts, files, entries of a directory, the MDT's device, the mode. Then a value for each
/// operation.
fn table<'a>(runs: impl Iterator<Item = &'a WallRun>, value: impl Fn(&WallRun, usize) -> String) -> Vec<Vec<String>> {
    let heads = ["tasks", "hosts", "files", "per directory", "MDT on", "way"];
    let mut table = vec![heads.iter().chain(&WALL_OPERATIONS).map(|head| (*head).to_owned()).collect::<Vec<_>>()];
    for run in runs {
        let counts = [run.tasks, run.hosts, run.files, run.entries].map(|count| count.to_string());
        let place = [run.device.clone(), way(run.is_papers).to_owned()];
        let values = (0..WALL_OPERATIONS.len()).map(|number| value(run, number));
        table.push(counts.into_iter().chain(place).chain(values).collect());
    }
    table
}

fn rates(wall: &Wall) -> Vec<Vec<String>> {
    let mut table = table(wall.runs.iter(), |run, number| format!("{:.1}", run.rates[number] / 1e3));
    let blank = ["", "", "", "", "", "the MDS's thread"].map(str::to_owned);
    table.push(blank.into_iter().chain(wall.thread_limit.iter().map(|rate| format!("{:.1}", rate / 1e3))).collect());
    table
}

/// A table of how busy the devices are, where devices are compared.
fn busy(wall: &Wall) -> Vec<Vec<String>> {
    let compared = wall.runs.iter().filter(|run| run.tasks == WALL_COMPARED_AT);
    table(compared, |run, number| format!("{:.0} %", 100.0 * run.device_busy[number]))
}

fn shared(wall: &Wall) -> Vec<Vec<String>> {
    let heads = ["tasks", "hosts", "paper mode, ms", "default, ms", "default, us for each"];
    let mut table = vec![heads.map(str::to_owned).to_vec()];
    for Pair { papers, default } in on_ssd(wall) {
        let each = default.open_shared_ms * 1e3 / f64::from(default.tasks);
        table.push(vec![
            default.tasks.to_string(),
            default.hosts.to_string(),
            papers.map_or("-".into(), |run| format!("{:.2}", run.open_shared_ms)),
            format!("{:.2}", default.open_shared_ms),
            format!("{each:.0}"),
        ]);
    }
    table
}

/// Curves of the file operations in the default and the paper's mode, on solid state.
fn curves(wall: &Wall, tasks: &[u32]) -> Vec<(&'static str, Vec<f64>)> {
    let names = [
        ("create", 0, false),
        ("stat", 1, false),
        ("remove", 2, false),
        ("create, paper mode", 0, true),
        ("stat, paper mode", 1, true),
        ("remove, paper mode", 2, true),
    ];
    let rate = |operation: usize, is_papers, tasks: &u32| {
        wall.run("ssd", is_papers, *tasks).map_or(0.0, |run| run.rates[operation] / 1e3)
    };
    names
        .map(|(name, operation, is_papers)| (name, tasks.iter().map(|n| rate(operation, is_papers, n)).collect()))
        .to_vec()
}

fn picture(wall: &Wall, tasks: &[u32], dir: &Path) -> CliResult {
    let curves = curves(wall, tasks);
    let plot = Plot {
        title: "mdtest over tasks, the MDT on solid state",
        along: "tasks",
        unit: "thousand operations/s",
        x: tasks,
        curves: &curves,
    };
    let bytes = plot.png().map_err(CliError::failed)?;
    let path = dir.join("wall-names.png");
    let (place, shown) = (utf8(dir)?, utf8(&path)?);
    let written = real::run(async |env| {
        env.create_dir(&place)?;
        env.write_file(&shown, &bytes)
    });
    written.map_err(|error| CliError::failed(error.to_string()))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}
