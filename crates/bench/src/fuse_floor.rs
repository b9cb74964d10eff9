//! `forebay bench fuse-floor`: directory operations through the kernel and our FUSE layer, without any server behind
//! them.
//!
//! Tasks with a directory each create files, stat each and remove each. No file system behind the same layer can be
//! faster. Alternatively the empty file system stays mounted, so that another program can be measured on it.

use std::{
    fs::OpenOptions,
    path::{Path, PathBuf},
    sync::Barrier,
    thread,
};

use clap::Args;
use forebay_command::{
    error::{CliError, CliResult, Doing},
    paths::utf8,
    posix,
};
use forebay_env::{real, sync::oneshot};
use forebay_fuse::{FuseOptions, FuseTransport};
use serde_json::json;

use super::report::{Report, Row, Sample};

/// The phases of each task, in this order.
const PHASES: [&str; 3] = ["create", "stat", "remove"];

/// What to measure.
#[derive(Debug, Args)]
pub struct FuseFloorArgs {
    /// Where to mount: an empty directory [default: a new one for temporary files]
    pub dir: Option<PathBuf>,
    /// Tasks, each with a directory of its own
    #[arg(short = 'N', long, default_value_t = 4, value_name = "N")]
    pub tasks: u32,
    /// Files of each task
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    pub files: u32,
    /// Repetitions
    #[arg(short = 'i', long, default_value_t = 3, value_name = "N")]
    pub repetitions: u32,
    /// How the kernel's requests come: auto, dev or uring
    #[arg(long, default_value = "auto", value_name = "WAY")]
    pub transport: FuseTransport,
    /// Measure nothing: stay mounted for other programs, until SIGTERM or Ctrl-C
    #[arg(long, requires = "dir", conflicts_with = "json")]
    pub hold: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Mounts, measures, unmounts, prints.
pub fn run(args: &FuseFloorArgs) -> CliResult {
    if args.tasks == 0 || args.files == 0 || args.repetitions == 0 {
        return Err(CliError::usage("-N, --files and -i must be at least 1"));
    }
    forebay_fuse::check_device().map_err(CliError::failed)?;
    if !posix::may_mount() {
        return Err(CliError::failed("only root may mount here (in a container, one with CAP_SYS_ADMIN)"));
    }
    if args.hold {
        posix::catch_signals();
    }
    let made = args.dir.is_none();
    let point =
        args.dir.clone().unwrap_or_else(|| std::env::temp_dir().join(format!("forebay-{}", std::process::id())));
    let shown = point.display().to_string();
    std::fs::create_dir_all(&point).doing(|| format!("cannot make {shown}"))?;
    let rows = real::run(async |env| {
        let mut options = FuseOptions::new("fuse-floor");
        options.allow_other = true;
        options.transport = args.transport;
        let path = utf8(&point)?;
        let mut mounted =
            forebay_fuse::mount_floor(&env, &path, &options).await.doing(|| format!("cannot mount at {shown}"))?;
        let transport = mounted.transport();
        let (done, result) = oneshot::channel();
        let (tasks, files, repetitions, at) = (args.tasks, args.files, args.repetitions, point.clone());
        let hold = args.hold;
        // The programs run in another thread, while the shard serves them.
        let programs = thread::spawn(move || {
            drop(done.send(if hold { wait_for_the_end(&at) } else { measure(&at, tasks, files, repetitions) }));
        });
        let rows = result.await.unwrap_or_else(|_| Err(CliError::failed("the tasks ended without a word")));
        mounted.unmount(rows.is_err()).await.doing(|| format!("cannot unmount {shown}"))?;
        programs.join().map_err(|_| CliError::failed("a task panicked"))?;
        Ok((rows?, transport))
    });
    if made {
        std::fs::remove_dir(&point).doing(|| format!("cannot remove {shown}"))?;
    }
    let (rows, transport) = rows?;
    if args.hold {
        return Ok(());
    }
    let way = match transport {
        FuseTransport::Uring => "io_uring",
        FuseTransport::Auto | FuseTransport::Device => "/dev/fuse",
    };
    let (tasks, files) = (args.tasks, args.files);
    let headline = format!("fuse-floor over {way}: {tasks} tasks, {files} files each in a directory of its own");
    let parameters = json!({ "tasks": tasks, "files": files, "transport": transport.name() });
    Report { bench: "fuse-floor", headline, parameters, rows }.print(args.json);
    Ok(())
}

/// Waits for the stop signal: other programs measure themselves.
fn wait_for_the_end(point: &Path) -> CliResult<Vec<Row>> {
    println!("mounted at {}; SIGTERM or Ctrl-C ends it", point.display());
    posix::wait_for_stop_signal();
    Ok(Vec::new())
}

fn measure(point: &Path, tasks: u32, files: u32, repetitions: u32) -> CliResult<Vec<Row>> {
    let row = |phase: &str| Row { phase: phase.into(), labels: Vec::new(), unit: "ops/s", samples: Vec::new() };
    let mut rows: Vec<Row> = PHASES.into_iter().map(row).collect();
    let dirs: Vec<PathBuf> = (0..tasks).map(|task| point.join(format!("task{task}"))).collect();
    for dir in &dirs {
        std::fs::create_dir(dir).doing(|| format!("cannot make {}", dir.display()))?;
    }
    for _ in 0..repetitions {
        for (row, phase) in rows.iter_mut().zip(PHASES) {
            let seconds = one_phase(&dirs, files, phase)?;
            row.samples.push(Sample { value: f64::from(tasks * files) / seconds, details: vec![("seconds", seconds)] });
        }
    }
    Ok(rows)
}

/// Runs all tasks together; the time is from the first begin to the last end.
fn one_phase(dirs: &[PathBuf], files: u32, phase: &str) -> CliResult<f64> {
    let barrier = Barrier::new(dirs.len());
    let work = |dir: &Path| -> CliResult<(u64, u64)> {
        barrier.wait();
        let begin_ns = posix::monotonic_ns();
        for number in 0..files {
            let path = dir.join(format!("file.{number:07}"));
            let done = match phase {
                "create" => OpenOptions::new().write(true).create_new(true).open(&path).map(drop),
                "stat" => path.symlink_metadata().map(drop),
                _ => std::fs::remove_file(&path),
            };
            done.doing(|| format!("{phase} of {}", path.display()))?;
        }
        Ok((begin_ns, posix::monotonic_ns()))
    };
    let spans = thread::scope(|scope| {
        let threads: Vec<_> = dirs.iter().map(|dir| scope.spawn(|| work(dir))).collect();
        threads.into_iter().map(|t| t.join().expect("a task does not panic")).collect::<CliResult<Vec<_>>>()
    })?;
    let (first, last) = (spans.iter().map(|span| span.0).min(), spans.iter().map(|span| span.1).max());
    Ok((last.unwrap_or(1) - first.unwrap_or(0)) as f64 / 1e9)
}
