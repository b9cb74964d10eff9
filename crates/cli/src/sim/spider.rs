//! `forebay sim spider`: a table of our results next to the paper's, the figures, and a breakdown of the time.

use std::path::Path;

use forebay_command::{
    error::{CliError, CliResult},
    paths::utf8,
    progress,
    table::align,
};
use forebay_env::real;
use forebay_lab::{self as lab, Curve, Gtc, GtcRun, Machine, Outcome, Plot, Row, Spider, SpiderOptions, plot};
use serde_json::{Value, json};

use super::{SimArgs, changed, load, round, window};

/// [Spider] figure 6 goes from 1 to 512.
const THREADS: [u32; 6] = [1, 16, 32, 128, 256, 512];
/// Lines of a plot.
const PLOT_LINES: usize = 20;

/// Runs the experiment and prints the results.
pub fn run(args: &SimArgs) -> CliResult {
    let machine = match &args.machine {
        Some(path) => load(args, path)?,
        None => changed(args, Machine::parse(lab::SPIDER).map_err(CliError::failed)?)?,
    };
    if machine.sas.is_none() || machine.ssd.is_none() || machine.xdd.is_none() {
        return Err(CliError::failed(
            "sim spider needs a machine with [xdd], [sas] and [ssd]: see machines/spider.toml",
        ));
    }
    let threads = if args.threads.is_empty() { THREADS.to_vec() } else { args.threads.clone() };
    let known = |name: &String| {
        let names = lab::MODES.map(|mode| mode.name).join(", ");
        lab::mode(name).ok_or_else(|| CliError::usage(format!("--modes {name}: use {names}")))
    };
    let modes = match &args.modes[..] {
        [] => lab::MODES.to_vec(),
        some => some.iter().map(known).collect::<CliResult<_>>()?,
    };
    let options = SpiderOptions {
        seed: args.seed,
        threads,
        window: window(args),
        modes,
        gtc_steps: args.gtc_steps,
        cpu_factor: args.cpu_factor,
    };
    let mut bar: Option<progress::Bar> = None;
    let mut said = String::new();
    let mut say = |what: &str, step: usize, steps: usize| {
        if said != what {
            drop(bar.take());
            said = what.to_owned();
        }
        let shown = bar.get_or_insert_with(|| progress::bar(what, steps as u64, progress::Counts::Things));
        shown.set(step as u64);
    };
    let result = lab::spider(&machine, &options, &mut say).map_err(CliError::failed)?;
    drop(bar);
    if let Some(dir) = &args.plots {
        pictures(&result, dir)?;
    }
    if args.json {
        println!("{}", to_json(&result, args.seed));
    } else {
        text(&machine, &result, args).iter().for_each(|line| println!("{line}"));
    }
    Ok(())
}

/// Writes the results as plots.
fn pictures(result: &Spider, dir: &Path) -> CliResult {
    let curves = curves(result);
    let survey = Plot {
        title: "obdfilter-survey: journal modes",
        along: "threads",
        unit: "MB/s",
        x: &result.threads,
        curves: &curves,
    };
    let mut plots = vec![("spider-obdfilter-survey.png", survey)];
    let writing: Vec<_> = result.gtc.iter().flat_map(runs_of).map(|(name, runs)| (name, writing(runs))).collect();
    if !writing.is_empty() {
        let gtc = Plot {
            title: "A program like GTC: how much of its time it writes",
            along: "cores",
            unit: "percent of the run time",
            x: &lab::GTC_CORES,
            curves: &writing,
        };
        plots.push(("spider-gtc.png", gtc));
    }
    let place = utf8(dir)?;
    real::run(async |env| env.create_dir(&place)).map_err(|error| CliError::failed(error.to_string()))?;
    for (name, plot) in plots {
        let path = dir.join(name);
        let bytes = plot.png().map_err(CliError::failed)?;
        let shown = utf8(&path)?;
        let written = real::run(async |env| env.write_file(&shown, &bytes));
        written.map_err(|error| CliError::failed(error.to_string()))?;
        eprintln!("wrote {}", path.display());
    }
    Ok(())
}

fn curves(result: &Spider) -> Vec<(&str, Vec<f64>)> {
    let rates = |curve: &Curve| curve.points.iter().map(|point| point.mb_s).collect();
    result.curves.iter().map(|curve| (curve.mode.name, rates(curve))).collect()
}

fn to_json(result: &Spider, seed: u64) -> Value {
    let row = |row: &Row| {
        json!({
            "name": row.name, "unit": row.unit, "published": row.published.map(round),
            "paper_mode": row.paper_mode.map(round), "default": row.default.map(round),
        })
    };
    let curve = |curve: &Curve| {
        let mb_s: Vec<f64> = curve.points.iter().map(|point| round(point.mb_s)).collect();
        json!({ "mode": curve.mode.name, "threads": result.threads, "mb_s": mb_s })
    };
    let rows: Vec<Value> = result.rows.iter().map(row).collect();
    let curves: Vec<Value> = result.curves.iter().map(curve).collect();
    let gtc = result.gtc.as_ref().map(gtc);
    json!({ "experiment": "spider", "seed": seed, "rows": rows, "curves": curves, "gtc": gtc, "mechanisms": mechanisms(result) })
}

fn text(machine: &Machine, result: &Spider, args: &SimArgs) -> Vec<String> {
    let mut lines = vec![format!("{}: {}", machine.name, machine.about), String::new()];
    let shown = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
    let mut table = vec![["", "unit", "published", "paper mode", "default"].map(str::to_owned).to_vec()];
    for row in &result.rows {
        let (unit, name) = (row.unit.to_owned(), row.name.to_owned());
        table.push(vec![name, unit, shown(row.published), shown(row.paper_mode), shown(row.default)]);
    }
    lines.extend(align(&table));
    lines.push("\npercent: of xdd-28-write as it was run here; gtc: change against synchronous journals;".into());
    lines.push("small-requests: of the devices' commands during gtc, those below 128 KiB\n".into());
    if let Some(result) = &result.gtc {
        lines.push("A program like GTC: the same problem on 64 and on 1,344 cores ([Spider] figure 9)".into());
        lines.extend(align(&gtc(result)));
        lines.push(String::new());
    }
    let curves = curves(result);
    let title = "obdfilter-survey over threads ([Spider] figures 6 to 8)";
    lines.extend(plot(title, "MB/s", &result.threads, &curves, PLOT_LINES));
    lines.push("\nWhere the time of the OSTs' media went, and how writes were gathered:".into());
    lines.extend(align(&mechanisms(result)));
    lines.push(format!("\nseed {}, {:?} each", args.seed, args.window));
    lines
}

fn runs_of(gtc: &Gtc) -> [(&'static str, &[GtcRun]); 3] {
    [("sync-internal", &gtc.sync), ("async-internal", &gtc.asynchronous), ("default", &gtc.default)]
}

/// Percentage of the time that the runs spend writing.
fn writing(runs: &[GtcRun]) -> Vec<f64> {
    runs.iter().map(|run| 100.0 * run.writing()).collect()
}

/// A table of the runs of the program like GTC.
fn gtc(gtc: &Gtc) -> Vec<Vec<String>> {
    let heads = ["", "cores", "computing", "writing", "of the time", "MB/s", "small requests"];
    let mut table = vec![heads.map(str::to_owned).to_vec()];
    for (name, runs) in runs_of(gtc) {
        table.extend(runs.iter().map(|run| {
            let writing = run.seconds() * run.writing();
            vec![
                name.to_owned(),
                run.cores.to_string(),
                format!("{:.1} s", run.seconds() - writing),
                format!("{writing:.1} s"),
                format!("{:.1} %", 100.0 * run.writing()),
                format!("{:.0}", run.mb_s()),
                format!("{:.1} %", Gtc::small_requests(std::slice::from_ref(run))),
            ]
        }));
    }
    table
}

/// A row per mode, at its largest number of threads: the tiers' time in percent.
fn mechanisms(result: &Spider) -> Vec<Vec<String>> {
    let heads = ["", "MB/s", "seek", "rotate", "turn", "rmw", "transfer", "idle", "writes/commit", "small", "partial"];
    let mut table = vec![heads.map(str::to_owned).to_vec()];
    table.push(mechanism("sync-internal ior", &result.sync_ior));
    table.push(mechanism("default ior", &result.default_ior));
    for curve in &result.curves {
        let best = curve.points.iter().zip(&result.threads).max_by(|a, b| a.0.mb_s.total_cmp(&b.0.mb_s));
        if let Some((outcome, threads)) = best {
            table.push(mechanism(&format!("{} {threads}", curve.mode.name), outcome));
        }
    }
    table
}

fn mechanism(name: &str, outcome: &Outcome) -> Vec<String> {
    let tiers = &outcome.tiers;
    let parts = [tiers.seek, tiers.rotation, tiers.turnaround, tiers.read_modify_write, tiers.transfer];
    let percent = |seconds: f64| format!("{:.1} %", 100.0 * seconds / outcome.tier_seconds.max(1e-9));
    let idle = (outcome.tier_seconds - tiers.busy().as_secs_f64()).max(0.0);
    let times = parts.iter().map(|part| percent(part.as_secs_f64())).chain([percent(idle)]);
    let of_commands = |count: u64| format!("{:.1} %", 100.0 * count as f64 / tiers.commands.max(1) as f64);
    let gathered = format!("{:.1}", outcome.writes as f64 / outcome.commits.max(1) as f64);
    let tail = [gathered, of_commands(tiers.small_commands), of_commands(tiers.partial_commands)];
    [name.to_owned(), format!("{:.0}", outcome.mb_s)].into_iter().chain(times).chain(tail).collect()
}
