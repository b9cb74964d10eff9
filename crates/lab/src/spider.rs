//! Table 1 and figures 6 to 8 of [Spider]: the baseline, then IOR and obdfilter-survey in each journal mode.

use super::{
    CPU_COSTS, Gtc, Machine, MeasuredCosts, Mode, Outcome, Window,
    gtc::{CORES, Run, gtc},
    ior, mode, survey, xdd,
};

/// Parameters of the experiment.
#[derive(Clone, Debug)]
pub struct SpiderOptions {
    /// The seed of all random choices.
    pub seed: u64,
    /// Thread counts of obdfilter-survey, over all OSTs.
    pub threads: Vec<u32>,
    /// The measurement window of each point.
    pub window: Window,
    /// The modes to survey.
    pub modes: Vec<Mode>,
    /// Steps of the program like GTC.
    pub gtc_steps: u32,
    /// Multiplier for the machine's CPU costs.
    pub cpu_factor: f64,
}

/// One row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The name in RESULTS.
    pub name: &'static str,
    /// `MB/s` or `percent`.
    pub unit: &'static str,
    /// The paper's number.
    pub published: Option<f64>,
    /// Our number in the paper's mode.
    pub paper_mode: Option<f64>,
    /// Our number with our defaults.
    pub default: Option<f64>,
}

/// Rates of obdfilter-survey over threads, in one mode.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The mode.
    pub mode: Mode,
    /// One outcome per thread count.
    pub points: Vec<Outcome>,
}

/// All results.
#[derive(Clone, Debug)]
pub struct Spider {
    /// The table.
    pub rows: Vec<Row>,
    /// The figures.
    pub curves: Vec<Curve>,
    /// Results of the program like GTC, if it was run.
    pub gtc: Option<Gtc>,
    /// IOR with synchronous internal journals.
    pub sync_ior: Outcome,
    /// IOR with our defaults.
    pub default_ior: Outcome,
    /// Thread counts of the curves.
    pub threads: Vec<u32>,
}

/// The published value of `xdd-28-write`.
const PUBLISHED_28_WRITE: f64 = 5608.15;

/// Runs the experiment. It calls `say` with the current step, its number and the total. Errors: text for the user.
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

/// Change of the run time against synchronous journals: with asynchronous journals, and with our defaults.
fn runtime(gtc: Option<&Gtc>, name: &'static str, cores: u32, published: f64) -> Row {
    let of = |runs: fn(&Gtc) -> &[Run]| gtc.and_then(|gtc| gtc.runtime(runs(gtc), cores));
    row(name, "percent", Some(published), of(|gtc| &gtc.asynchronous), of(|gtc| &gtc.default))
}

fn gtc_row(gtc: Option<&Gtc>, name: &'static str, published: f64, value: fn(&Gtc, &[Run]) -> f64) -> Row {
    let paper_mode = gtc.map(|gtc| value(gtc, &gtc.asynchronous));
    row(name, "percent", Some(published), paper_mode, gtc.map(|gtc| value(gtc, &gtc.default)))
}
