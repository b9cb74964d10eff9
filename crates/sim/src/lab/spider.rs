//! [Spider]'s table 1 and figures 6 to 8: the baseline, then IOR and obdfilter-survey in each journal mode.

use super::{
    CPU_COSTS, Gtc, Machine, MeasuredCosts, Mode, Outcome, Window,
    gtc::{CORES, Run, gtc},
    ior, mode, survey, xdd,
};

/// How much of it is run.
#[derive(Clone, Debug)]
pub struct SpiderOptions {
    /// Of every chance.
    pub seed: u64,
    /// Threads of obdfilter-survey, over all OSTs.
    pub threads: Vec<u32>,
    /// When a point is measured.
    pub window: Window,
    /// Which modes are surveyed.
    pub modes: Vec<Mode>,
    /// Steps of the program like GTC.
    pub gtc_steps: u32,
    /// CPUs cost this many times what the machine says.
    pub cpu_factor: f64,
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// As RESULTS has it.
    pub name: &'static str,
    /// `MB/s` or `percent`.
    pub unit: &'static str,
    /// The paper's figure.
    pub published: Option<f64>,
    /// Ours in the paper's mode.
    pub paper_mode: Option<f64>,
    /// Ours by default.
    pub default: Option<f64>,
}

/// obdfilter-survey over threads, in one mode.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The mode.
    pub mode: Mode,
    /// One per number of threads.
    pub points: Vec<Outcome>,
}

/// All of it.
#[derive(Clone, Debug)]
pub struct Spider {
    /// The table.
    pub rows: Vec<Row>,
    /// The figures.
    pub curves: Vec<Curve>,
    /// The program like GTC, if it was run.
    pub gtc: Option<Gtc>,
    /// IOR with synchronous journals, inside.
    pub sync_ior: Outcome,
    /// IOR by default.
    pub default_ior: Outcome,
    /// Threads of the curves.
    pub threads: Vec<u32>,
}

/// What `xdd-28-write` was.
const PUBLISHED_28_WRITE: f64 = 5608.15;

/// Runs it. `say` hears what is being done, and how many steps of how many are. Errors: words.
pub fn spider(
    machine: &Machine,
    options: &SpiderOptions,
    say: &mut dyn FnMut(&str, usize, usize),
) -> Result<Spider, String> {
    let costs = MeasuredCosts::parse(CPU_COSTS)?.table(machine.cpu.factor.value * options.cpu_factor);
    let gtc_runs = if options.gtc_steps > 0 { Gtc::RUNS } else { 0 };
    let steps = 4 + gtc_runs + options.modes.len() * options.threads.len();
    let mut step = 0;
    let mut next = |what: &str| {
        say(what, step, steps);
        step += 1;
    };
    next("xdd, one LUN");
    let lun = xdd(machine, false, options.seed)?;
    next("xdd, all LUNs");
    let all = xdd(machine, true, options.seed)?;
    let known = |name: &str| mode(name).expect("a mode of the table");
    next("ior, sync-internal");
    let sync_ior = ior(machine, known("sync-internal"), &costs, options.window, false, options.seed)?.write;
    next("ior, default");
    let default_ior = ior(machine, known("default"), &costs, options.window, false, options.seed)?.write;
    let gtc = match options.gtc_steps {
        0 => None,
        steps => Some(gtc(machine, &costs, (steps, options.seed), &mut next)?),
    };
    let mut curves = Vec::new();
    for mode in options.modes.iter().copied() {
        let mut points = Vec::new();
        for threads in &options.threads {
            next(&format!("obdfilter-survey, {}, {threads} threads", mode.name));
            points.push(survey(machine, mode, &costs, *threads, options.window, options.seed)?);
        }
        curves.push(Curve { mode, points });
    }
    let percent = |mb_s: f64| 100.0 * mb_s / all.write;
    let best = |name: &str| {
        let curve = curves.iter().find(|curve| curve.mode.name == name)?;
        curve.points.iter().map(|point| percent(point.mb_s)).reduce(f64::max)
    };
    let published = |mb_s: f64| Some(100.0 * mb_s / PUBLISHED_28_WRITE);
    let mb = |name, published, value| row(name, "MB/s", Some(published), Some(value), None);
    let rows = vec![
        mb("xdd-lun-read", 685.62, lun.read),
        mb("xdd-lun-write", 235.45, lun.write),
        mb("xdd-lun-random-read", 101.74, lun.random_read),
        mb("xdd-lun-random-write", 96.77, lun.random_write),
        mb("xdd-28-read", 5570.15, all.read),
        mb("xdd-28-write", PUBLISHED_28_WRITE, all.write),
        mb("xdd-28-random-read", 2753.87, all.random_read),
        mb("xdd-28-random-write", 2530.5, all.random_write),
        row(
            "sync-internal",
            "percent",
            published(1398.99),
            Some(percent(sync_ior.mb_s)),
            Some(percent(default_ior.mb_s)),
        ),
        row("sync-internal-obdfilter", "percent", None, best("sync-internal"), best("commit")),
        row("external-sas", "percent", None, best("external-sas"), None),
        row("external-ssd", "percent", published(3292.6), best("external-ssd"), None),
        row("async-internal", "percent", published(5222.95), best("async-internal"), best("default")),
        row("async-external-ssd", "percent", None, best("async-external-ssd"), None),
        row("data-journal", "percent", None, best("data-journal"), None),
        row("no-journal", "percent", None, best("no-journal"), None),
        runtime(gtc.as_ref(), "gtc-1344-runtime", CORES[1], -49.5),
        runtime(gtc.as_ref(), "gtc-64-runtime", CORES[0], -3.3),
        gtc_row(gtc.as_ref(), "gtc-bandwidth", 56.3, Gtc::bandwidth),
        gtc_row(gtc.as_ref(), "small-requests", 26.5, |_, runs| Gtc::small_requests(runs)),
    ];
    Ok(Spider { rows, curves, gtc, sync_ior, default_ior, threads: options.threads.clone() })
}

fn row(
    name: &'static str,
    unit: &'static str,
    published: Option<f64>,
    paper_mode: Option<f64>,
    default: Option<f64>,
) -> Row {
    Row { name, unit, published, paper_mode, default }
}

/// Change of the run time by asynchronous journals, and by default, against synchronous ones.
fn runtime(gtc: Option<&Gtc>, name: &'static str, cores: u32, published: f64) -> Row {
    let of = |runs: fn(&Gtc) -> &[Run]| gtc.and_then(|gtc| gtc.runtime(runs(gtc), cores));
    row(name, "percent", Some(published), of(|gtc| &gtc.asynchronous), of(|gtc| &gtc.default))
}

fn gtc_row(gtc: Option<&Gtc>, name: &'static str, published: f64, value: fn(&Gtc, &[Run]) -> f64) -> Row {
    let paper_mode = gtc.map(|gtc| value(gtc, &gtc.asynchronous));
    row(name, "percent", Some(published), paper_mode, gtc.map(|gtc| value(gtc, &gtc.default)))
}
