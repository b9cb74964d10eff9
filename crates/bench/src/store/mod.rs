//! `forebay bench store`: the store alone against the raw device under it, in one run; fresh, and after ageing.
//!
//! In process, without sessions, RPC or mount ([Zest] 7's self-test): 1 MiB appends to several objects at once, with
//! the rows that an OSS writes with them and periodic commits. The time includes the last commit. Before each
//! repetition the raw device is written as `bench xdd` does, at the same offsets.
//! Device bytes are those that the kernel counts for this process: data, index, journal and cleaner.

mod age;
mod args;
pub(super) mod load;
mod raw;
mod site;

pub use args::StoreArgs;

use std::{rc::Rc, time::Duration};

use forebay_command::{
    error::{CliResult, Doing},
    posix,
    progress::{self, Counts},
    units::{GIB, MIB, show_bytes},
};
use forebay_env::{Env, real};
use forebay_store::Store;

use self::{
    age::Files,
    args::{APPEND_BYTES, OBJECTS_AT_ONCE},
    load::{Load, fid},
    site::Site,
};
use crate::report::{Report, Row, Sample};

/// Runs the benchmark and prints its report.
pub fn run(args: &StoreArgs) -> CliResult {
    args.validate()?;
    let site = Site::prepare(args)?;
    let mut rows = Rows::default();
    for _ in 0..args.repetitions {
        let raw = measure_raw(&site, args.appends(site.bytes) * APPEND_BYTES, args)?;
        let fresh = real::run(async |env| fresh(&env, &site, args).await)?;
        rows.add_pair("fresh", raw, fresh);
    }
    if args.age {
        let aged = real::run(async |env| age(&env, &site, args).await)?;
        let appends = aged.deleted_bytes / APPEND_BYTES / (u64::from(args.repetitions) + 1);
        rows.add("ageing", "MiB/s", aged.sample);
        for number in 0..=u64::from(args.repetitions) {
            let raw = measure_raw(&site, args.appends(site.bytes) * APPEND_BYTES, args)?;
            let live = aged.live_bytes + number * appends * APPEND_BYTES;
            let part = Part { first: number * appends, appends, live, rests: number > 0 };
            let (rested, sample) = real::run(async |env| again(&env, &site, args, part).await)?;
            rows.add_pair(if part.rests { "aged" } else { "aged-at-once" }, raw, sample);
            if let Some(rested) = rested {
                rows.add("rest", "s", rested);
            }
        }
        rows.add_aged_of_fresh();
    }
    let parameters = args.parameters(site.bytes);
    Report { bench: "store", headline: headline(args, &site), parameters, rows: rows.0 }.print(args.json);
    Ok(())
}

fn headline(args: &StoreArgs, site: &Site) -> String {
    format!(
        "store: {} at {}, appends of 1 MiB to {OBJECTS_AT_ONCE} objects at once, {} in flight, sums {}",
        show_bytes(site.bytes),
        args.target.display(),
        args.depth,
        if args.sums { "in the timed path" } else { "made before" },
    )
}

/// The rows, in the order of their first samples.
#[derive(Default)]
struct Rows(Vec<Row>);

impl Rows {
    fn add(&mut self, phase: &str, unit: &'static str, sample: Sample) {
        match self.0.iter_mut().find(|row| row.phase == phase) {
            Some(row) => row.samples.push(sample),
            None => self.0.push(Row { phase: phase.into(), labels: Vec::new(), unit, samples: vec![sample] }),
        }
    }

    fn add_pair(&mut self, age: &str, raw: Sample, store: Sample) {
        let ratio = Sample { value: 100.0 * store.value / raw.value, details: Vec::new() };
        self.add(&format!("{age}-raw"), "MiB/s", raw);
        self.add(&format!("{age}-store"), "MiB/s", store);
        self.add(&format!("{age}-store-of-raw"), "%", ratio);
    }

    fn values(&self, phase: &str) -> Vec<f64> {
        let row = self.0.iter().find(|row| row.phase == phase);
        row.map_or(Vec::new(), |row| row.samples.iter().map(|sample| sample.value).collect())
    }

    /// Adds rows that compare aged with fresh, repetition by repetition.
    fn add_aged_of_fresh(&mut self) {
        let fresh = self.values("fresh-store");
        for age in ["aged-at-once", "aged"] {
            for (aged, fresh) in self.values(&format!("{age}-store")).into_iter().zip(&fresh) {
                self.add(&format!("{age}-of-fresh"), "%", Sample { value: 100.0 * aged / fresh, details: Vec::new() });
            }
        }
    }
}

fn measure_raw(site: &Site, bytes: u64, args: &StoreArgs) -> CliResult<Sample> {
    let file = site.open_raw(false)?;
    let meter = Meter::start(None);
    let seconds = raw::rewrite(&file, bytes.min(site.bytes / APPEND_BYTES * APPEND_BYTES), args.depth)?;
    Ok(meter.sample(bytes, seconds, None, bytes))
}

/// Formats, appends, closes.
async fn fresh(env: &Env, site: &Site, args: &StoreArgs) -> CliResult<Sample> {
    site.format(env).await?;
    let store = site.open(env).await?;
    let appends = args.appends(site.bytes);
    let sample = append(env, store.clone(), args, 0, appends, 0).await?;
    store.close().await.doing(|| "cannot close the store".into())?;
    Ok(sample)
}

/// A part of the space of deleted files, which is appended to.
#[derive(Clone, Copy)]
struct Part {
    first: u64,
    appends: u64,
    /// Live bytes before.
    live: u64,
    /// The cleaner may finish first.
    rests: bool,
}

/// Opens the aged store again and appends to new objects. Returns what the rest before it cost, and the rate.
async fn again(env: &Env, site: &Site, args: &StoreArgs, part: Part) -> CliResult<(Option<Sample>, Sample)> {
    let store = site.open(env).await?;
    let before = posix::own_written_bytes();
    let rested = if part.rests { Some(rest(env, &store, args.rest).await) } else { None };
    let mut sample = append(env, store.clone(), args, part.first, part.appends, part.live).await?;
    store.close().await.doing(|| "cannot close the store".into())?;
    let device_bytes = (posix::own_written_bytes() - before) as f64;
    sample.details.push(("write_amplification_with_rest", device_bytes / (part.appends * APPEND_BYTES) as f64));
    Ok((rested, sample))
}

/// Waits until the cleaner has nothing to do, for `most_s` seconds at most.
async fn rest(env: &Env, store: &Store, most_s: u64) -> Sample {
    let meter = Meter::start(Some(store));
    let begin_ns = posix::monotonic_ns();
    let seconds = || (posix::monotonic_ns() - begin_ns) as f64 / 1e9;
    let bar = progress::bar("resting while the cleaner works ahead", most_s, Counts::Things);
    let (mut cleaned, mut still) = (store.stats().slabs_cleaned, 0);
    // No progress for a second means that it has nothing to do.
    while still < 10 && seconds() < most_s as f64 {
        env.sleep(Duration::from_millis(100)).await;
        bar.set(seconds() as u64);
        let now = store.stats().slabs_cleaned;
        still = if now == cleaned { still + 1 } else { 0 };
        cleaned = now;
    }
    let moved = store.stats().compacted_bytes - meter.cleaned_bytes;
    let free = f64::from(store.space().slabs.free);
    Sample { value: seconds(), details: vec![("cleaned_MiB", moved as f64 / MIB), ("free_slabs", free)] }
}

/// Measures the appends from number `first` on; `live_bytes` were there before.
async fn append(
    env: &Env,
    store: Store,
    args: &StoreArgs,
    first: u64,
    appends: u64,
    live_bytes: u64,
) -> CliResult<Sample> {
    let load = Load::new(env, store.clone(), args.sums);
    let bytes = appends * APPEND_BYTES;
    let bar = Rc::new(progress::bar("appending", bytes, Counts::Bytes));
    let per_object = args.object / APPEND_BYTES;
    let job = move |load: Load, number: u64| {
        bar.add(APPEND_BYTES);
        let (object, place) = spot(first + number, per_object);
        async move { load.append(fid(object), place * APPEND_BYTES).await }
    };
    let meter = Meter::start(Some(&store));
    let begin_ns = posix::monotonic_ns();
    load.run(appends, args.depth, job).await.doing(|| "append".into())?;
    store.sync().await.doing(|| "commit of the appends".into())?;
    let seconds = (posix::monotonic_ns() - begin_ns) as f64 / 1e9;
    Ok(meter.sample(bytes, seconds, Some(&store), live_bytes + bytes))
}

/// Object and offset of append number `number`: several objects grow in turn.
fn spot(number: u64, per_object: u64) -> (u64, u64) {
    let (group, within) = (number / (OBJECTS_AT_ONCE * per_object), number % (OBJECTS_AT_ONCE * per_object));
    (group * OBJECTS_AT_ONCE + within % OBJECTS_AT_ONCE, within / OBJECTS_AT_ONCE)
}

/// An aged store, closed.
struct Aged {
    /// The sample of the overwrites.
    sample: Sample,
    live_bytes: u64,
    deleted_bytes: u64,
}

async fn age(env: &Env, site: &Site, args: &StoreArgs) -> CliResult<Aged> {
    site.format(env).await?;
    let store = site.open(env).await?;
    let load = Load::new(env, store.clone(), args.sums);
    let mut files = Files::fill(&load, args).await.doing(|| "filling to 85 %".into())?;
    store.sync().await.doing(|| "commit of the fill".into())?;
    let meter = Meter::start(Some(&store));
    let begin_ns = posix::monotonic_ns();
    let wanted = (store.space().total_bytes as f64 * args.overwrites) as u64;
    let bytes = files.overwrite(&load, args, wanted).await.doing(|| "overwriting at random".into())?;
    store.sync().await.doing(|| "commit of the overwrites".into())?;
    let seconds = (posix::monotonic_ns() - begin_ns) as f64 / 1e9;
    let full_bytes = files.bytes();
    let sample = meter.sample(bytes, seconds, Some(&store), full_bytes);
    files.delete_a_third(&load).await.doing(|| "deleting a third of the files".into())?;
    store.close().await.doing(|| "cannot close the aged store".into())?;
    Ok(Aged { sample, live_bytes: files.bytes(), deleted_bytes: full_bytes - files.bytes() })
}

/// Measures the cost of a phase.
struct Meter {
    device_bytes: u64,
    cleaned_bytes: u64,
    cpu_s: f64,
}

impl Meter {
    fn start(store: Option<&Store>) -> Self {
        Self {
            device_bytes: posix::own_written_bytes(),
            cleaned_bytes: store.map_or(0, |store| store.stats().compacted_bytes),
            cpu_s: posix::own_cpu_seconds(),
        }
    }

    /// `live_bytes`: user data in the store now.
    fn sample(self, bytes: u64, seconds: f64, store: Option<&Store>, live_bytes: u64) -> Sample {
        let device_bytes = posix::own_written_bytes() - self.device_bytes;
        let cpu_s = posix::own_cpu_seconds() - self.cpu_s;
        let mut details = vec![
            ("MiB", bytes as f64 / MIB),
            ("seconds", seconds),
            ("cpu_s_per_GiB", cpu_s / (bytes as f64 / GIB)),
            ("write_amplification", device_bytes as f64 / bytes as f64),
        ];
        if let Some(store) = store {
            let (stats, space) = (store.stats(), store.space());
            let slabs = u64::from(space.slabs.open + space.slabs.full) * store.identity().slab_bytes;
            details.extend([
                ("cleaned_MiB", (stats.compacted_bytes - self.cleaned_bytes) as f64 / MIB),
                ("live_MiB", live_bytes as f64 / MIB),
                ("space_amplification", space.used_bytes as f64 / live_bytes as f64),
                ("slabs_amplification", slabs as f64 / live_bytes as f64),
                ("commits", stats.commits() as f64),
                ("commit_ms_max", stats.commit_us.max() as f64 / 1e3),
            ]);
        }
        Sample { value: bytes as f64 / MIB / seconds, details }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_grow_in_turn_and_each_place_is_written_once() {
        let spots: Vec<_> = (0..16).map(|number| spot(number, 2)).collect();
        assert_eq!(spots[..5], [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1)]);
        assert_eq!((spots[8], spots[15]), ((4, 0), (7, 1)));
    }

    #[test]
    fn ratios_are_of_the_pair_that_was_run_together() {
        let sample = |value| Sample { value, details: Vec::new() };
        let mut rows = Rows::default();
        rows.add_pair("fresh", sample(200.0), sample(180.0));
        rows.add_pair("aged", sample(200.0), sample(90.0));
        rows.add_aged_of_fresh();
        let value = |phase: &str| rows.0.iter().find(|row| row.phase == phase).expect("a row").samples[0].value;
        assert_eq!(
            (value("fresh-store-of-raw"), value("aged-store-of-raw"), value("aged-of-fresh")),
            (90.0, 45.0, 50.0)
        );
    }
}
