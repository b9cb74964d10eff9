//! `forebay sim NAME|FILE.toml`: the papers' experiments, and predictions for a described machine.
//!
//! Invariant: the same name, seed and options give the same bytes on stdout.

mod spider;
mod wall;

use std::path::Path;

use clap::Args;
use forebay_command::{
    error::{CliError, CliResult},
    paths::utf8,
    progress,
    table::align,
    units::parse_duration,
};
use forebay_env::{real, sim::CpuCosts};
use forebay_lab::{self as lab, JournalPlace, Machine, MeasuredCosts, Mode, Outcome, Window};
use serde_json::{Value, json};

/// What to run.
#[derive(Debug, Args)]
pub struct SimArgs {
    /// spider, wall, or a file that describes a machine (machines/*.toml)
    #[arg(value_name = "NAME|FILE.toml")]
    pub what: String,
    /// Seed of every chance: the same seed, the same output
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// CPUs cost this many times what the machine says: a result that does not move does not hang on them
    #[arg(long, default_value_t = 1.0, value_name = "X")]
    pub cpu_factor: f64,
    /// Virtual time that each point is measured for
    #[arg(long, default_value = "5s", value_parser = parse_duration, value_name = "TIME")]
    pub window: std::time::Duration,
    /// Another description of the machine of a named experiment
    #[arg(long, value_name = "FILE")]
    pub machine: Option<std::path::PathBuf>,
    /// Threads of obdfilter-survey, over all OSTs [default: 1 16 32 128 256 512]
    #[arg(long, value_delimiter = ',', value_name = "N,N,...")]
    pub threads: Vec<u32>,
    /// Modes that obdfilter-survey is run in [default: all]
    #[arg(long, value_delimiter = ',', value_name = "MODE,...")]
    pub modes: Vec<String>,
    /// Steps of the program like GTC: compute, then write; with 0 it is not run
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub gtc_steps: u32,
    /// Tasks of mdtest in sim wall [default: 1 4 16 64 256 1024 4096 16384]
    #[arg(long, value_delimiter = ',', value_name = "N,N,...")]
    pub tasks: Vec<u32>,
    /// Files of all tasks together in sim wall, and as many directories
    #[arg(long, default_value_t = lab::WALL_FILES, value_name = "N")]
    pub files: u32,
    /// Another value of a parameter of the machine (tier.stripe_kib=4), to see how far results move with it
    #[arg(long, value_parser = parse_set, value_name = "NAME=VALUE")]
    pub set: Vec<(String, f64)>,
    /// Write the plots as PNG files into this directory too
    #[arg(long, value_name = "DIR")]
    pub plots: Option<std::path::PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs the experiment or prediction.
pub fn run(args: &SimArgs) -> CliResult {
    if !(0.0..=1000.0).contains(&args.cpu_factor) {
        return Err(CliError::usage("--cpu-factor: use 0 to 1000"));
    }
    if args.window.is_zero() || args.window.as_secs() > 3600 {
        return Err(CliError::usage("--window: use up to an hour, and not nothing"));
    }
    if args.threads.iter().any(|threads| *threads == 0 || *threads > 4096) {
        return Err(CliError::usage("--threads: use 1 to 4096"));
    }
    if args.gtc_steps > 1000 {
        return Err(CliError::usage("--gtc-steps: use 0 to 1000"));
    }
    if args.tasks.iter().any(|tasks| *tasks == 0 || *tasks > 65_536) {
        return Err(CliError::usage("--tasks: use 1 to 65536"));
    }
    if !(1..=10_000_000).contains(&args.files) {
        return Err(CliError::usage("--files: use 1 to 10000000"));
    }
    match args.what.as_str() {
        "spider" => spider::run(args),
        "wall" => wall::run(args),
        "zest" | "wan" | "bluewaters" => Err(CliError::failed(format!(
            "sim {}: this version has no such experiment yet; it has spider and wall",
            args.what
        ))),
        file if file.ends_with(".toml") => predict(args, Path::new(file)),
        other => {
            Err(CliError::usage(format!("sim {other}: use spider, wall, or a FILE.toml that describes a machine")))
        }
    }
}

/// Parses `NAME=VALUE`.
fn parse_set(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text.split_once('=').ok_or("use NAME=VALUE")?;
    let value = value.trim().parse().map_err(|_| format!("{value} is not a number"))?;
    Ok((name.trim().to_owned(), value))
}

/// The machine with the changes of the command line.
fn changed(args: &SimArgs, mut machine: Machine) -> CliResult<Machine> {
    for (name, value) in &args.set {
        machine.set(name, *value).map_err(|words| CliError::usage(format!("--set: {words}")))?;
    }
    Ok(machine)
}

/// Loads the description of a machine.
fn load(args: &SimArgs, path: &Path) -> CliResult<Machine> {
    let shown = utf8(path)?;
    let bytes = real::run(async |env| env.read_file(&shown)).map_err(|e| CliError::failed(e.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| CliError::failed(format!("{shown} is not text")))?;
    let machine = Machine::parse(&text).map_err(|words| CliError::failed(format!("{shown}: {words}")))?;
    changed(args, machine)
}

fn window(args: &SimArgs) -> Window {
    Window { warm_up: std::time::Duration::from_secs(1), length: args.window }
}

/// Predicts IOR-like rates of a machine, at the usual commit level.
fn predict(args: &SimArgs, path: &Path) -> CliResult {
    let machine = load(args, path)?;
    let costs = match &machine.costs {
        Some(costs) => costs.clone(),
        None => MeasuredCosts::parse(lab::CPU_COSTS).map_err(CliError::failed)?,
    };
    let cpu_factor = machine.cpu.factor.value * args.cpu_factor;
    let costs = costs.table(cpu_factor);
    let mode = lab::mode("default").expect("there is a default");
    assert!(mode.journal == JournalPlace::Internal, "journals lie where a machine without others has them");
    if let Some(mount) = &machine.mount {
        return predict_mount(args, &machine, mount.programs.count(), mode, (&costs, cpu_factor));
    }
    let _waiting = progress::spinner("running");
    let ior = lab::ior(&machine, mode, &costs, window(args), true, args.seed).map_err(CliError::failed)?;
    let rates = [("write", Some(ior.write)), ("read", ior.read)];
    let rows: Vec<(&str, f64)> = rates.iter().filter_map(|(name, o)| Some((*name, o.as_ref()?.mb_s))).collect();
    if args.json {
        let row = |(name, mb_s): &(&str, f64)| -> Value {
            json!({ "name": name, "unit": "MB/s", "published": null, "paper_mode": null, "default": round(*mb_s) })
        };
        let rows: Vec<Value> = rows.iter().map(row).collect();
        println!("{}", json!({ "experiment": machine.name, "seed": args.seed, "rows": rows }));
        return Ok(());
    }
    println!("{}: {}", machine.name, machine.about);
    println!(
        "{} clients, {} transfers of 1 MiB in flight each, a file each on {} OSTs, commit level data\n",
        machine.clients.nodes.value,
        machine.clients.rpcs_in_flight.value,
        machine.osts()
    );
    let mut table = vec![vec!["phase".to_owned(), "MB/s".into(), "media busy".into()]];
    for (name, outcome) in rates {
        table.extend(outcome.map(|o| vec![name.to_owned(), format!("{:.1}", o.mb_s), busy(&o)]));
    }
    align(&table).iter().for_each(|line| println!("{line}"));
    Ok(())
}

/// Predicts what `bench ior` measures through one mount, with programs and servers on the same cores.
fn predict_mount(args: &SimArgs, machine: &Machine, programs: u32, mode: Mode, costs: (&CpuCosts, f64)) -> CliResult {
    let patterns = {
        let _waiting = progress::spinner("running");
        let run = |pattern| lab::mounted(machine, mode, costs, pattern, args.seed).map_err(CliError::failed);
        lab::PATTERNS.into_iter().map(run).collect::<CliResult<Vec<_>>>()?
    };
    if args.json {
        let rows = patterns.iter().flat_map(|predicted| {
            let name = predicted.name.replace(' ', "-");
            [("write", predicted.write_mb_s), ("read", predicted.read_mb_s)].map(|(phase, mb_s)| {
                json!({ "name": format!("{name}-{phase}"), "unit": "MB/s", "published": null, "paper_mode": null,
                    "default": round(mb_s) })
            })
        });
        let rows: Vec<Value> = rows.collect();
        println!("{}", json!({ "experiment": machine.name, "seed": args.seed, "rows": rows }));
        return Ok(());
    }
    println!("{}: {}", machine.name, machine.about);
    println!(
        "{programs} programs through one mount, {} OSTs, all on {} cores, commit level data\n",
        machine.osts(),
        machine.servers.cores.value
    );
    let mut table =
        vec![["pattern", "write MB/s", "read MB/s", "the same MiB/s", "", "as forebay bench ior"].map(str::to_owned)];
    for (predicted, pattern) in patterns.iter().zip(lab::PATTERNS) {
        let mib = |mb_s: f64| format!("{:.0}", mb_s * 1e6 / f64::from(1 << 20));
        let (t, n) = (pattern.transfer_bytes, pattern.transfers);
        let flags = match pattern.shared {
            true => format!("-t {t} -b {t} -s {n} -N {programs} -e"),
            false => format!("-F -t {t} -b {} -N {programs} -e", t * n),
        };
        table.push([
            predicted.name.to_owned(),
            format!("{:.0}", predicted.write_mb_s),
            format!("{:.0}", predicted.read_mb_s),
            mib(predicted.write_mb_s),
            mib(predicted.read_mb_s),
            flags,
        ]);
    }
    let table: Vec<Vec<String>> = table.into_iter().map(Vec::from).collect();
    align(&table).iter().for_each(|line| println!("{line}"));
    Ok(())
}

/// The fraction of time in which the OSTs' media were busy.
fn busy(outcome: &Outcome) -> String {
    format!("{:.0} %", 100.0 * outcome.tiers.busy().as_secs_f64() / outcome.tier_seconds.max(1e-9))
}

fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
