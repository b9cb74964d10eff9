//! The processes of a run. Each prints its results in one line of JSON.

use std::{
    cell::{Cell, RefCell},
    ops::Range,
    path::Path,
    rc::Rc,
};

use forebay_command::{
    error::{CliError, CliResult},
    paths::utf8,
    posix,
    progress::{self, Counts},
    summary::Summary,
};
use forebay_env::{Env, real, sync::Mutex};
use forebay_proto::Fid;
use serde_json::{Value, json};

use super::{
    args::{CHUNK, NamespaceArgs, Phase},
    mdt::{Client, Mdt},
};
use crate::ior::SplitMix64;

/// First directory created before the crash; the first process's directories have smaller numbers.
const CRASH_DIRECTORIES: u64 = 1 << 40;

/// Runs one process of a run; `dir` holds the targets.
pub fn run(args: &NamespaceArgs, phase: Phase, dir: &Path) -> CliResult {
    let begin_ns = posix::monotonic_ns();
    let (mdt_dir, ost_dir) = (utf8(&dir.join("MDT0000"))?, utf8(&dir.join("OST0000"))?);
    let measured = real::run(async |env: Env| {
        let mdt = Mdt::start(&env, &mdt_dir, &ost_dir, args.cache).await?;
        let serving_s = seconds_since(begin_ns);
        match phase {
            Phase::Create => create(&env, args, mdt).await,
            Phase::Restart => restart(args, mdt, serving_s).await,
            Phase::Crash => crash(&env, args, mdt).await,
            Phase::Remove => remove(&env, args, mdt).await,
        }
    })?;
    println!("{measured}");
    if phase == Phase::Crash {
        let died = posix::send_signal(std::process::id(), libc::SIGKILL);
        return Err(CliError::failed(format!("it should have died: {died:?}")));
    }
    Ok(())
}

async fn create(env: &Env, args: &NamespaceArgs, mdt: Mdt) -> CliResult<Value> {
    let begin_ns = posix::monotonic_ns();
    let done_ns = make(env, args, mdt.client(), 0, args.files).await?;
    let seconds = seconds_since(begin_ns);
    let cpu_s = posix::own_cpu_seconds();
    let rss = posix::memory_bytes("VmRSS");
    let table = mdt.store().stats().table_resident_bytes;
    let used = mdt.store().space().used_bytes;
    let begin_ns = posix::monotonic_ns();
    mdt.stop().await?;
    Ok(json!({
        "seconds": seconds, "cpu_s": cpu_s, "rss_bytes": rss, "peak_bytes": posix::memory_bytes("VmHWM"),
        "first_tenth_per_s": rate_of_tenth(&done_ns, 0), "last_tenth_per_s": rate_of_tenth(&done_ns, 9),
        "table_bytes": table, "store_bytes": used, "stop_s": seconds_since(begin_ns),
    }))
}

async fn restart(args: &NamespaceArgs, mdt: Mdt, serving_s: f64) -> CliResult<Value> {
    let mut random = SplitMix64(1);
    let mut lookups_us = Vec::new();
    let begin_ns = posix::monotonic_ns();
    for _ in 0..args.lookups {
        let file = random.next_u64() % args.files;
        let directory = mdt.client().lookup(Fid::ROOT, &directory_name(file / args.per_directory)).await?;
        let begin_ns = posix::monotonic_ns();
        mdt.client().lookup(directory, &file_name(file)).await?;
        lookups_us.push((posix::monotonic_ns() - begin_ns) as f64 / 1e3);
    }
    let lookups_s = seconds_since(begin_ns);
    let summary = Summary::of(&lookups_us).expect("there is at least one lookup");
    lookups_us.sort_by(f64::total_cmp);
    let p99 = lookups_us[(lookups_us.len() - 1) * 99 / 100];
    let report = mdt.store().recovery();
    let measured = json!({
        "serving_s": serving_s, "open_s": report.duration.as_secs_f64(), "clean": report.clean,
        "journal_records": report.records, "journal_bytes": report.bytes, "lookups_s": lookups_s,
        "lookup_us": summary, "lookup_p99_us": p99, "rss_bytes": posix::memory_bytes("VmRSS"),
        "peak_bytes": posix::memory_bytes("VmHWM"), "table_bytes": mdt.store().stats().table_resident_bytes,
    });
    mdt.stop().await?;
    Ok(measured)
}

/// Creates a few more files; those of the last second are not committed yet.
async fn crash(env: &Env, args: &NamespaceArgs, mdt: Mdt) -> CliResult<Value> {
    make(env, args, mdt.client(), CRASH_DIRECTORIES, args.before_crash).await?;
    Ok(json!({ "peak_bytes": posix::memory_bytes("VmHWM") }))
}

/// Creates `files` files in directories `first` and on, several directories at a time. Returns when each chunk was
/// done.
async fn make(env: &Env, args: &NamespaceArgs, client: &Client, first: u64, files: u64) -> CliResult<Vec<u64>> {
    let bar = Rc::new(progress::bar("making files", files, Counts::Things));
    let done_ns = Rc::new(RefCell::new(Vec::new()));
    // The directory that is being filled, and its fid.
    let current: Rc<Mutex<Option<(u64, Fid)>>> = Rc::default();
    let (per_directory, of_all, told) = (args.per_directory, client.clone(), done_ns.clone());
    in_chunks(env, args.depth, files, move |chunk: Range<u64>| {
        let (bar, done_ns, client, current) = (bar.clone(), told.clone(), of_all.clone(), current.clone());
        async move {
            let directory = first + chunk.start / per_directory;
            let parent = {
                let mut current = current.lock().await;
                match *current {
                    Some((number, fid)) if number == directory => fid,
                    _ => {
                        let fid = client.mkdir(&directory_name(directory)).await?;
                        *current = Some((directory, fid));
                        fid
                    }
                }
            };
            for file in chunk {
                client.create(parent, &file_name(file)).await?;
            }
            bar.add(CHUNK);
            done_ns.borrow_mut().push(posix::monotonic_ns());
            Ok(())
        }
    })
    .await?;
    Ok(done_ns.take())
}

/// Removes all files. Meanwhile it lists their directories page by page, again and again from the beginning.
async fn remove(env: &Env, args: &NamespaceArgs, mdt: Mdt) -> CliResult<Value> {
    let bar = Rc::new(progress::bar("removing files", args.files, Counts::Things));
    let (client, per_directory) = (mdt.client().clone(), args.per_directory);
    let begin_ns = posix::monotonic_ns();
    let lister = {
        let (client, directories) = (client.clone(), args.files.div_ceil(per_directory));
        let listed = Rc::new(RefCell::new(Listed::default()));
        let told = listed.clone();
        let task = env.spawn(async move {
            for directory in (0..directories).cycle() {
                let fid = client.lookup(Fid::ROOT, &directory_name(directory)).await?;
                let mut cookie = Some(0);
                while let Some(after) = cookie {
                    let begin_ns = posix::monotonic_ns();
                    let (names, next) = client.list(fid, after).await?;
                    told.borrow_mut().page(names, posix::monotonic_ns() - begin_ns);
                    cookie = next;
                }
            }
            CliResult::Ok(())
        });
        (task, listed)
    };
    // The current directory, looked up once.
    let current: Rc<Mutex<Option<(u64, Fid)>>> = Rc::default();
    in_chunks(env, args.depth, args.files, move |chunk: Range<u64>| {
        let (bar, client, current) = (bar.clone(), client.clone(), current.clone());
        async move {
            let directory = chunk.start / per_directory;
            let parent = {
                let mut current = current.lock().await;
                match *current {
                    Some((number, fid)) if number == directory => fid,
                    _ => {
                        let fid = client.lookup(Fid::ROOT, &directory_name(directory)).await?;
                        *current = Some((directory, fid));
                        fid
                    }
                }
            };
            for file in chunk {
                client.unlink(parent, &file_name(file)).await?;
            }
            bar.add(CHUNK);
            Ok(())
        }
    })
    .await?;
    let seconds = seconds_since(begin_ns);
    lister.0.abort();
    let listed = lister.1.take();
    mdt.stop().await?;
    Ok(json!({
        "seconds": seconds, "pages": listed.pages, "listed": listed.names,
        "longest_page_ms": listed.longest_ns as f64 / 1e6, "peak_bytes": posix::memory_bytes("VmHWM"),
    }))
}

/// The results of a lister.
#[derive(Default)]
struct Listed {
    pages: u64,
    names: u64,
    longest_ns: u64,
}

impl Listed {
    fn page(&mut self, names: usize, took_ns: u64) {
        self.pages += 1;
        self.names += names as u64;
        self.longest_ns = self.longest_ns.max(took_ns);
    }
}

/// Runs `work` on all of `0..files`, [`CHUNK`] at a time, `depth` chunks at once.
async fn in_chunks<F>(env: &Env, depth: u32, files: u64, work: impl Fn(Range<u64>) -> F + 'static) -> CliResult
where
    F: Future<Output = CliResult> + 'static,
{
    let (next, work) = (Rc::new(Cell::new(0)), Rc::new(work));
    let worker = |_| {
        let (next, work) = (next.clone(), work.clone());
        env.spawn(async move {
            while next.get() < files {
                let begin = next.replace(next.get() + CHUNK);
                work(begin..files.min(begin + CHUNK)).await?;
            }
            CliResult::Ok(())
        })
    };
    let workers: Vec<_> = (0..depth).map(worker).collect();
    for worker in workers {
        worker.await.unwrap_or_else(|| Err(CliError::failed("a worker was aborted")))?;
    }
    Ok(())
}

/// Files created per second in one tenth of the run; 0 if it was too short to measure.
fn rate_of_tenth(done_ns: &[u64], tenth: usize) -> f64 {
    let (from, to) = (done_ns.len() * tenth / 10, (done_ns.len() * (tenth + 1) / 10).saturating_sub(1));
    match (done_ns.get(from), done_ns.get(to)) {
        (Some(begin), Some(end)) if end > begin => ((to - from) as u64 * CHUNK) as f64 * 1e9 / (end - begin) as f64,
        _ => 0.0,
    }
}

fn directory_name(directory: u64) -> String {
    format!("directory.{directory:06}")
}

fn file_name(file: u64) -> String {
    format!("checkpoint.{file:08}")
}

fn seconds_since(begin_ns: u64) -> f64 {
    (posix::monotonic_ns() - begin_ns) as f64 / 1e9
}
