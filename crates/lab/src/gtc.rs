//! A program like GTC: in each step all processes compute, then each writes its part of the state to its own file.
//!
//! It runs the same problem on few and on many cores, as in [Spider] figure 9. The state and the work stay the same, so
//! more cores compute for a shorter time and write the same bytes. The paper gives neither bytes nor times. It says
//! that with synchronous journals 64 cores spent 6 % of the time on writing. Only that number is taken from the paper
//! ([`WRITING_OF_64`]): it determines how long a core computes. Everything else is a result.
//! Source: [Spider] 5.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use forebay_client::{Client, ClientResult, LayoutSpec, MountOptions, OpenMode};
use forebay_env::{
    Env,
    sim::{CpuCosts, Sim, TierStats},
};
use forebay_proto::{Fid, message::Caller};

use super::{
    Machine, Mode,
    barrier::Barrier,
    mode,
    payload::{TRANSFER_BYTES, Zeros},
    site::{MdtPlace, Site},
};

/// Cores of the two runs.
pub const CORES: [u32; 2] = [64, 1344];
/// Cores of a client node (two sockets of six).
const NODE_CORES: u32 = 12;
/// Transfers of all processes in one step; divisible by both numbers of cores.
const TRANSFERS: u32 = 4032;
/// Fraction of the time that 64 cores write with synchronous journals, as published.
const WRITING_OF_64: f64 = 0.06;
/// Computing time while the real one is not known yet: longer than any group commit waits.
const FIRST_COMPUTING: Duration = Duration::from_secs(30);
/// Bytes that a client may pin; they take no memory here.
const PIN_BYTES: u64 = 4 << 30;

/// One run in one mode.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Number of cores.
    pub cores: u32,
    /// For each step, seconds from the first create to the last reply.
    pub writing_s: Vec<f64>,
    /// Seconds of computing before each step.
    pub computing_s: f64,
    /// Statistics of the tiers.
    pub tiers: TierStats,
}

impl Run {
    /// Total seconds.
    pub fn seconds(&self) -> f64 {
        self.writing_s.iter().sum::<f64>() + self.computing_s * self.writing_s.len() as f64
    }

    /// Fraction of the time spent on writing.
    pub fn writing(&self) -> f64 {
        self.writing_s.iter().sum::<f64>() / self.seconds()
    }

    /// Write rate in 10^6 bytes a second, mean of the steps.
    pub fn mb_s(&self) -> f64 {
        let bytes = f64::from(TRANSFERS) * TRANSFER_BYTES as f64;
        self.writing_s.iter().map(|seconds| bytes / 1e6 / seconds).sum::<f64>() / self.writing_s.len() as f64
    }
}

/// Both numbers of cores in the modes that are compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Gtc {
    /// With synchronous journals.
    pub sync: Vec<Run>,
    /// With asynchronous journals.
    pub asynchronous: Vec<Run>,
    /// With our defaults.
    pub default: Vec<Run>,
}

impl Gtc {
    /// Number of runs that [`gtc`] makes.
    pub const RUNS: usize = 3 * CORES.len();

    /// Change of the run time against synchronous journals, in percent.
    pub fn runtime(&self, runs: &[Run], cores: u32) -> Option<f64> {
        let of = |runs: &[Run]| runs.iter().find(|run| run.cores == cores).map(Run::seconds);
        Some(100.0 * (of(runs)? / of(&self.sync)? - 1.0))
    }

    /// Change of the mean bandwidth of all steps, in percent.
    pub fn bandwidth(&self, runs: &[Run]) -> f64 {
        let mean = |runs: &[Run]| runs.iter().map(Run::mb_s).sum::<f64>();
        100.0 * (mean(runs) / mean(&self.sync) - 1.0)
    }

    /// Percentage of the devices' commands that are below 128 KiB.
    pub fn small_requests(runs: &[Run]) -> f64 {
        let tiers = runs.iter().fold(TierStats::default(), |sum, run| sum.plus(&run.tiers));
        100.0 * tiers.small_commands as f64 / tiers.commands.max(1) as f64
    }
}

/// Runs the experiment with `steps` steps per run. It calls `next` before each run. Errors: text for the user.
pub fn gtc(
    machine: &Machine,
    costs: &CpuCosts,
    (steps, seed): (u32, u64),
    next: &mut dyn FnMut(&str),
) -> Result<Gtc, String> {
    let mut one = |name: &str, cores, computing| {
        next(&format!("gtc, {name}, {cores} cores"));
        run(machine, mode(name).expect("a mode of the table"), costs, cores, computing, (steps, seed))
    };
    let mut few = one("sync-internal", CORES[0], FIRST_COMPUTING)?;
    let writing = few.writing_s.iter().sum::<f64>() / few.writing_s.len() as f64;
    few.computing_s = writing * (1.0 - WRITING_OF_64) / WRITING_OF_64;
    let computing = |cores: u32| Duration::from_secs_f64(few.computing_s * f64::from(CORES[0]) / f64::from(cores));
    let many = one("sync-internal", CORES[1], computing(CORES[1]))?;
    let mut both = |name| -> Result<Vec<Run>, String> {
        CORES.into_iter().map(|cores| one(name, cores, computing(cores))).collect()
    };
    let (asynchronous, default) = (both("async-internal")?, both("default")?);
    Ok(Gtc { sync: vec![few, many], asynchronous, default })
}

fn run(
    machine: &Machine,
    mode: Mode,
    costs: &CpuCosts,
    cores: u32,
    computing: Duration,
    (steps, seed): (u32, u64),
) -> Result<Run, String> {
    let sim = Sim::new(seed);
    sim.block_on(async {
        let site = Site::build(&sim, machine, mode, costs, MdtPlace::Aside).await?;
        let mut processes = Vec::new();
        for node in 0..cores.div_ceil(NODE_CORES) {
            let number = site.add_node(machine, &format!("client{node}"), NODE_CORES);
            let options = MountOptions {
                level: mode.level,
                description: "gtc".into(),
                pin_bytes: PIN_BYTES,
                rpcs_in_flight: machine.clients.rpcs_in_flight.count() as usize,
                // What is measured is what servers take: a write counts when its OST has replied.
                write_back_bytes: 0,
                read_cache_bytes: 0,
                ..MountOptions::new(vec![site.mgs.clone()])
            };
            let env = sim.env(number);
            let client = Client::mount(&env, options).await.map_err(|e| e.to_string())?;
            let own = node * NODE_CORES..((node + 1) * NODE_CORES).min(cores);
            processes.extend(own.map(|process| (env.clone(), client.clone(), process)));
        }
        let zeros = Zeros::new();
        let mut writing_s = Vec::new();
        for step in 0..steps {
            sim.sleep(computing).await;
            let begun = sim.now();
            let barrier = Barrier::default();
            for (env, client, process) in &processes {
                let (own, client, zeros) = (env.clone(), client.clone(), zeros.clone());
                let (name, transfers) = (format!("restart.{step}.{process:05}"), TRANSFERS / cores);
                let depth = machine.clients.rpcs_in_flight.count().min(transfers);
                barrier.run(env, async move { write(&own, &client, &name, &zeros, (transfers, depth)).await });
            }
            writing_s.push(barrier.all().await?.since(begun).as_secs_f64());
        }
        Ok(Run { cores, writing_s, computing_s: computing.as_secs_f64(), tiers: site.tiers() })
    })
}

/// Writes a process's part of the state with `depth` transfers in flight, as through a page cache.
async fn write(
    env: &Env,
    client: &Client,
    name: &str,
    zeros: &Zeros,
    (transfers, depth): (u32, u32),
) -> ClientResult<()> {
    let caller = Caller { uid: 0, gid: 0, groups: Vec::new() };
    let layout = LayoutSpec { stripe_count: 1, ..LayoutSpec::inherit() };
    let (_, file) = client.create(&caller, Fid::ROOT, name.as_bytes(), 0o644, OpenMode::READ_WRITE, layout).await?;
    let (next, failed) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(None)));
    let tasks: Vec<_> = (0..depth)
        .map(|_| {
            let (client, file, zeros) = (client.clone(), file.clone(), zeros.clone());
            let (next, failed) = (next.clone(), failed.clone());
            env.spawn(async move {
                while next.get() < transfers {
                    let offset = u64::from(next.replace(next.get() + 1)) * TRANSFER_BYTES;
                    if let Err(error) = client.write(&file, offset, zeros.bytes()).await {
                        failed.borrow_mut().get_or_insert(error);
                        return;
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    let failed = failed.take();
    failed.map_or(Ok(()), Err)?;
    client.close(file).await
}
