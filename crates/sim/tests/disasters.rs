//! Simulated clusters under seeded faults, with a model as oracle.

#![allow(clippy::disallowed_methods)] // two threads, one world each: the world itself knows no thread

use std::{
    collections::BTreeMap,
    env,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use forebay_sim::{
    DisasterOptions, Report,
    damage::DamageCounts,
    faults,
    moments::{self, Hits, Moment},
    run_seed,
};

/// The allocator of the real program. The system's allocator took a fifth of a seed's time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Seeds of the test command; `FOREBAY_SEEDS=FROM..TO` runs others.
const SEEDS: std::ops::Range<u64> = 0..330;

/// In this many seeds every fault meets every state at least `MANY_HITS` times, except for pairs that `moments` calls
/// impossible or rare.
const MANY_SEEDS: usize = 20_000;
const MANY_HITS: u64 = 50;
/// Each kind of damage occurs at least once in this many seeds.
const SEEDS_PER_DAMAGE: u64 = 40;

fn wanted(default: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let parse = |text: String| {
        let (from, to) = text.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    };
    env::var("FOREBAY_SEEDS").ok().and_then(parse).unwrap_or(default)
}

/// Runs seeds on two threads; each takes the next seed that is not started yet. The first failure is printed at once
/// and ends both.
fn run_all(seeds: std::ops::Range<u64>) -> Result<Vec<Report>, String> {
    let (next, end) = (Arc::new(AtomicU64::new(seeds.start)), seeds.end);
    let thread = || {
        let next = next.clone();
        let mine = move || {
            let mut reports = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= end {
                    return Ok(reports);
                }
                let stop = Stop(&next, end);
                let report = run_seed(seed, &DisasterOptions::default()).inspect_err(|error| eprintln!("{error}"))?;
                std::mem::forget(stop);
                reports.push(report);
            }
        };
        std::thread::spawn(mine)
    };
    let mut reports: Vec<Report> = Vec::new();
    for thread in [thread(), thread()] {
        let mine: Result<Vec<Report>, String> =
            thread.join().map_err(|_| "a seed panicked; its number stands above".to_string())?;
        reports.extend(mine?);
    }
    reports.sort_by_key(|report| report.seed);
    Ok(reports)
}

/// When this is dropped, by a failure or a panic, no other seed is started.
struct Stop<'a>(&'a AtomicU64, u64);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(self.1, Ordering::Relaxed);
    }
}

/// kill, cut, power off | everything acknowledged is there, everything completes
///
/// Each seed runs workers on several clients while servers, clients, links and disks fail. Every result must match the
/// model of what was acknowledged and synced, and after the last fault all operations must complete.
#[test]
fn seeds_of_disasters_lose_nothing_and_complete() {
    let reports = run_all(wanted(SEEDS)).unwrap_or_else(|e| panic!("{e}"));
    let mut faults: BTreeMap<String, u64> = BTreeMap::new();
    for (kind, count) in reports.iter().flat_map(|r| &r.faults) {
        *faults.entry(format!("{kind:?}")).or_default() += count;
    }
    let operations: u64 = reports.iter().map(|r| r.operations).sum();
    let refused: u64 = reports.iter().map(|r| r.refused).sum();
    let failed: u64 = reports.iter().map(|r| r.failed).sum();
    println!(
        "{} seeds, {operations} operations, {refused} refused for want of space, {failed} answered with EIO, faults {faults:?}",
        reports.len()
    );
    let mut damage = DamageCounts::default();
    reports.iter().for_each(|report| damage.add(&report.damage));
    let evictions = reports.iter().fold((0, 0), |sum, r| (sum.0 + r.evictions.0, sum.1 + r.evictions.1));
    println!("{damage:?}; {} evictions of clients that lived, {} told", evictions.0, evictions.1);
    let mut hits = Hits::new();
    for (met, count) in reports.iter().flat_map(|report| &report.hits) {
        *hits.entry(*met).or_default() += count;
    }
    println!("faults, and what they met:\n{}", moments::table(&hits));
    if reports.len() >= SEEDS.count() {
        let DamageCounts { rotten, lost, misdirected, told, unreadable } = damage;
        let least = [rotten, lost, misdirected, told, unreadable, evictions.0, evictions.1].into_iter().min();
        assert!(
            least >= Some(reports.len() as u64 / SEEDS_PER_DAMAGE),
            "too little of something: {damage:?}, {evictions:?}"
        );
    }
    if reports.len() >= MANY_SEEDS {
        let met = |kind, moment| hits.get(&(kind, moment)).copied().unwrap_or(0);
        let all = faults::kinds().into_iter().flat_map(|kind| Moment::ALL.map(|moment| (kind, moment)));
        let is_sure = |kind, moment| !moments::cannot_meet(kind, moment) && !moments::seldom_meets(kind, moment);
        let sure = all.filter(|(kind, moment)| is_sure(*kind, *moment));
        let seldom: Vec<_> = sure.filter(|(kind, moment)| met(*kind, *moment) < MANY_HITS).collect();
        assert!(seldom.is_empty(), "fewer than {MANY_HITS} times in {} seeds: {seldom:?}", reports.len());
    }
    for report in &reports {
        assert!(report.operations >= 2000, "seed {} did only {} operations", report.seed, report.operations);
        assert!(report.faults.values().sum::<u64>() >= 5, "seed {} met too few faults", report.seed);
    }
}

#[test]
fn two_runs_of_a_seed_give_the_same_trace() {
    let options = DisasterOptions { operations: 600, ..DisasterOptions::default() };
    for seed in [1, 2, 3] {
        let first = run_seed(seed, &options).unwrap_or_else(|e| panic!("{e}"));
        let second = run_seed(seed, &options).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(first, second, "seed {seed} ran differently the second time");
    }
}

/// `cargo run --release -p xtask -- seed N --trace` repeats a seed with its trace.
#[test]
fn one_seed() {
    let seed = env::var("FOREBAY_SEED").ok().and_then(|text| text.parse().ok());
    let mirror = env::var("FOREBAY_MIRROR").is_ok();
    let (operations, faults) = if mirror { (1200, 12) } else { (2000, 5) };
    let trace = env::var_os("FOREBAY_TRACE").is_some();
    let options = DisasterOptions { operations, faults, mirror, trace, ..DisasterOptions::default() };
    let report = run_seed(seed.unwrap_or(42), &options).unwrap_or_else(|e| panic!("{e}"));
    println!("{report:#?}");
}
