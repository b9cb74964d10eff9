//! Histories of several clients that use the same names, bytes and locks, with crashes, drawn from seeds. Some order
//! explains each.

#![allow(clippy::disallowed_methods)] // two threads, one world each: the world itself knows no thread

use std::{
    collections::BTreeMap,
    env,
    sync::atomic::{AtomicU64, Ordering},
};

use forebay_history::Summary;
use forebay_sim::{HistoryOptions, HistoryReport, run_history};

/// The allocator of the real program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Seeds of the test command; `FOREBAY_SEEDS=FROM..TO` runs others.
const SEEDS: std::ops::Range<u64> = 0..300;

fn wanted(default: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let parse = |text: String| {
        let (from, to) = text.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    };
    env::var("FOREBAY_SEEDS").ok().and_then(parse).unwrap_or(default)
}

/// Runs seeds on two threads; each takes the next seed that is not started yet. The first failure is printed at once
/// and ends both. A panic ends only its own thread.
fn run_all(seeds: std::ops::Range<u64>) -> Result<Vec<HistoryReport>, String> {
    let next = AtomicU64::new(seeds.start);
    let one = || {
        let mut reports = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return Ok(reports);
            }
            let failed = |error: &String| {
                eprintln!("{error}");
                next.store(seeds.end, Ordering::Relaxed);
            };
            reports.push(run_history(seed, &HistoryOptions::of_seed(seed)).inspect_err(failed)?);
        }
    };
    let both: Result<Vec<_>, String> = std::thread::scope(|scope| {
        let threads = [scope.spawn(one), scope.spawn(one)];
        let ended = threads.map(|thread| thread.join());
        ended
            .into_iter()
            .map(|ended| ended.map_err(|_| "a seed panicked; its number stands above".to_string())?)
            .collect()
    });
    let mut reports: Vec<_> = both?.into_iter().flatten().collect();
    reports.sort_by_key(|report| report.seed);
    Ok(reports)
}

/// kill, cut, power off, evict | no stale read, no lost append, one winner for every lock and name
///
/// Each seed runs workers on several clients while servers and clients fail. Some order of the operations must explain
/// every answer.
#[test]
fn every_answer_of_every_client_can_be_explained() {
    let reports = run_all(wanted(SEEDS)).unwrap_or_else(|e| panic!("{e}"));
    let (mut faults, mut summary, mut shares) = (BTreeMap::<String, u64>::new(), Summary::default(), 0);
    for report in &reports {
        summary.add(&report.summary);
        for (kind, count) in &report.faults {
            *faults.entry(format!("{kind:?}")).or_default() += count;
        }
        let Summary { operations, lost, beside, .. } = report.summary;
        shares += report.shares;
        assert!(operations >= 2000, "seed {} did only {operations} operations", report.seed);
        assert!(report.faults.values().sum::<u64>() >= 5, "seed {} met too few faults", report.seed);
        assert!(lost >= 100 && beside >= 100, "seed {}: too little contention: {}", report.seed, report.summary);
    }
    // A quarter of the seeds buffer no writes.
    assert!(shares >= reports.len() as u64, "{shares} shares in {} seeds", reports.len());
    println!("{} seeds: {summary}; {shares} shares; faults {faults:?}", reports.len());
}

#[test]
fn two_runs_of_a_seed_give_the_same_history() {
    for seed in [1, 2, 4] {
        let options = HistoryOptions { rounds: 2, ..HistoryOptions::of_seed(seed) };
        let first = run_history(seed, &options).unwrap_or_else(|e| panic!("{e}"));
        let second = run_history(seed, &options).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(first, second, "seed {seed} ran differently the second time");
    }
}

/// `cargo run --release -p xtask -- seed N --of histories --trace` repeats a seed with its trace.
#[test]
fn one_history() {
    let seed = env::var("FOREBAY_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(42);
    let trace = env::var_os("FOREBAY_TRACE").is_some();
    let options = HistoryOptions { trace, ..HistoryOptions::of_seed(seed) };
    let report = run_history(seed, &options).unwrap_or_else(|e| panic!("{e}"));
    println!("{report:#?}");
}
