//! `forebay bench obdfilter-survey`: sequential I/O by many threads on many objects, layer by layer. It works as the
//! tool of that name in the Lustre I/O kit does ([Spider] figures 6 and 7).
//!
//! Cases:
//! - `disk`: the stores alone, in this process, without sessions or RPC
//! - `network`: bulk to and from servers that store nothing
//! - `netdisk`: the OSTs themselves, over TCP, without files
//! - `striped`: files over all OSTs, with an MDT
//!
//! The difference between two cases is the cost of the layer between them.
//!
//! A thread writes, rewrites and reads its own part of an object, one request at a time. A phase ends when all of it is
//! durable. Servers of `netdisk` and `striped` are separate processes, started and stopped as `up` and `down` do.

mod disk;
mod echo;
mod plan;
mod sessions;
mod striped;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use forebay_command::{
    error::{CliError, CliResult, Doing},
    keys, posix, progress,
    table::align,
    targets::new_uuid,
    units::{MIB, parse_positive_size, show_bytes},
};
use forebay_env::{Env, Network, real};
use serde_json::json;

use self::{
    disk::Disk,
    echo::Echoes,
    plan::{Phase, Point, Work},
    sessions::Sessions,
    striped::Striped,
};
use super::{
    cpu_costs::{Listen, Servers},
    report::{Report, Row, Sample},
};

/// Least data bytes of an OST.
const OST_BYTES_MIN: u64 = 256 << 20;

/// A layer and what lies below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// The stores alone, without RPC
    Disk,
    /// RPC with bulk, without a store
    Network,
    /// RPC to the OSTs
    Netdisk,
    /// Files striped over all OSTs
    Striped,
}

/// How to measure.
#[derive(Debug, Args)]
pub struct SurveyArgs {
    /// Where the stores lie while they are measured: an empty or new directory, removed at the end
    pub dir: PathBuf,
    /// What to measure: a list of cases
    #[arg(long, value_delimiter = ',', default_value = "disk,network,netdisk,striped", value_name = "CASE,...")]
    pub case: Vec<Case>,
    /// OSTs
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub osts: u32,
    /// Bytes written to each OST in each phase
    #[arg(long, default_value = "256MiB", value_parser = parse_positive_size, value_name = "SIZE")]
    pub size: u64,
    /// Bytes of a request: a power of two, 4KiB to 1MiB
    #[arg(long, default_value = "1MiB", value_parser = parse_positive_size, value_name = "SIZE")]
    pub rsz: u64,
    /// Fewest objects of an OST (of `striped`: files); doubled from row to row
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub nobjlo: u32,
    /// Most objects
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub nobjhi: u32,
    /// Fewest threads for each OST; doubled from row to row
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub thrlo: u32,
    /// Most threads
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub thrhi: u32,
    /// Repetitions
    #[arg(short = 'i', long, default_value_t = 1, value_name = "N")]
    pub repetitions: u32,
    /// Where the servers of `netdisk` and `striped` listen: the ports behind it are used too
    #[arg(long, default_value = "127.0.0.1:7960", value_name = "HOST:PORT")]
    pub listen: String,
    /// The connections of `network`, `netdisk` and `striped` are TLS, as between hosts
    #[arg(long)]
    pub tls: bool,
    /// The same, and their data is not encrypted, only protected against change
    #[arg(long, conflicts_with = "tls")]
    pub integrity_only: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl SurveyArgs {
    fn validate(&self) -> CliResult {
        let wrong = |message: &str| Err(CliError::usage(message));
        if self.osts == 0 || self.osts > 64 {
            return wrong("--osts: use 1 to 64");
        }
        if !self.rsz.is_power_of_two() || !(4 << 10..=1 << 20).contains(&self.rsz) {
            return wrong("--rsz: use a power of two from 4KiB to 1MiB");
        }
        if self.nobjlo == 0
            || self.thrlo == 0
            || self.nobjlo > self.nobjhi
            || self.thrlo > self.thrhi
            || self.thrhi > 1024
        {
            return wrong(
                "--nobjlo, --nobjhi, --thrlo, --thrhi: 1 at least, the lower ones first, 1024 threads at most",
            );
        }
        if self.size / u64::from(self.thrhi) < self.rsz {
            return wrong("--size: each thread needs a request at least; give more, or a smaller --rsz or --thrhi");
        }
        if self.repetitions == 0 {
            return wrong("-i must be at least 1");
        }
        if self.points().is_empty() {
            return wrong("no row has a multiple of its objects as threads; give a --thrhi of --nobjlo at least");
        }
        Ok(())
    }

    fn points(&self) -> Vec<Point> {
        plan::points(self.nobjlo..=self.nobjhi, self.thrlo..=self.thrhi)
    }

    /// Space for data that is written twice, and for the previous row until the cleaner has freed it.
    fn ost_bytes(&self) -> u64 {
        (self.size * 4).max(OST_BYTES_MIN).next_multiple_of(1 << 20)
    }
}

/// Measures all cases and prints.
pub fn run(args: &SurveyArgs) -> CliResult {
    args.validate()?;
    if args.dir.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(CliError::failed(format!("{} is not empty; give a new directory", args.dir.display())));
    }
    let mut rows = Vec::new();
    for &case in &args.case {
        let measured = real::run(async |env| measure(&env, args, case).await)?;
        rows.extend(measured);
    }
    let headline = format!(
        "obdfilter-survey: {} OSTs, {} to each in each phase, in requests of {}; threads and objects for each OST",
        args.osts,
        show_bytes(args.size),
        show_bytes(args.rsz),
    );
    let parameters = json!({ "osts": args.osts, "size_bytes": args.size, "request_bytes": args.rsz });
    let table = table(&rows);
    let report = Report { bench: "obdfilter-survey", headline, parameters, rows };
    if args.json {
        report.print(true);
    } else {
        println!("{}\n\n{}", report.headline, table.join("\n"));
    }
    Ok(())
}

/// The system under test.
enum Site {
    Disk(Disk),
    Network(Echoes, Sessions),
    Netdisk(Servers, Sessions),
    Striped(Servers, Box<Striped>),
}

impl Site {
    async fn build(env: &Env, args: &SurveyArgs, case: Case) -> CliResult<Self> {
        let listen = match (args.tls, args.integrity_only) {
            (true, _) => Listen::Tls(&args.listen),
            (_, true) => Listen::IntegrityOnly(&args.listen),
            _ => Listen::InsecureLoopback(&args.listen),
        };
        let servers = || {
            let servers = Servers::start(&args.dir, listen, args.osts, args.ost_bytes())?;
            servers.network().map(|network| (servers, env.with_network(network)))
        };
        match case {
            Case::Disk => Disk::make(env, &args.dir, args.osts, args.ost_bytes()).await.map(Self::Disk),
            Case::Network => {
                let env = &env.with_network(match args.tls || args.integrity_only {
                    true => own_keys(env, &args.dir, args.integrity_only)?,
                    false => Network::InsecureLoopback,
                });
                let echoes = Echoes::start(env, args.osts, args.rsz).await?;
                let sessions = Sessions::start(env, &echoes.peers(), args.rsz).await?;
                Ok(Self::Network(echoes, sessions))
            }
            Case::Netdisk => {
                let (servers, env) = servers()?;
                let sessions = Sessions::start(&env, &servers.osts(), args.rsz).await?;
                Ok(Self::Netdisk(servers, sessions))
            }
            Case::Striped => {
                let (servers, env) = servers()?;
                let striped = Striped::mount(&env, servers.mgs(), args.rsz).await?;
                Ok(Self::Striped(servers, Box::new(striped)))
            }
        }
    }

    async fn run(&self, work: &Work) -> CliResult {
        match self {
            Self::Disk(disk) => disk.run(work).await,
            Self::Network(_, sessions) | Self::Netdisk(_, sessions) => sessions.run(work).await,
            Self::Striped(_, striped) => striped.run(work).await,
        }
    }

    /// CPU seconds so far: of this process, where the clients are, and of the servers' processes.
    fn cpu_seconds(&self) -> f64 {
        match self {
            Self::Disk(_) | Self::Network(..) => posix::own_cpu_seconds(),
            Self::Netdisk(servers, _) | Self::Striped(servers, _) => posix::own_cpu_seconds() + servers.cpu_seconds(),
        }
    }

    async fn end(self) -> CliResult {
        match self {
            Self::Disk(disk) => disk.end().await,
            Self::Network(echoes, sessions) => {
                sessions.end().await;
                echoes.end().await;
                Ok(())
            }
            Self::Netdisk(servers, sessions) => {
                sessions.end().await;
                servers.stop()
            }
            Self::Striped(servers, striped) => {
                striped.end().await?;
                servers.stop()
            }
        }
    }
}

/// Keys for a server and clients that are this process alone.
fn own_keys(env: &Env, dir: &Path, integrity_only: bool) -> CliResult<Network> {
    std::fs::create_dir_all(dir).doing(|| format!("cannot make {}", dir.display()))?;
    let (keys, now) = (dir.join(keys::DIR), env.unix_time().since_1970());
    keys::make(&keys, new_uuid(env), now)?;
    keys::set_integrity_only(&keys, integrity_only)?;
    let network = keys::of_options(Some(&keys), false, keys::SERVER);
    std::fs::remove_dir_all(&keys).doing(|| format!("cannot remove {}", keys.display()))?;
    network
}

/// All rows of one case.
async fn measure(env: &Env, args: &SurveyArgs, case: Case) -> CliResult<Vec<Row>> {
    let name = case.to_possible_value().expect("no case is hidden").get_name().to_owned();
    let points = args.points();
    let bar = progress::bar(&name, points.len() as u64 * u64::from(args.repetitions), progress::Counts::Things);
    let site = Site::build(env, args, case).await.doing(|| format!("{name}: cannot begin"))?;
    let mut rows = Vec::new();
    for (number, point) in points.iter().enumerate() {
        let mut of_point: Vec<Row> = Phase::TIMED.map(|phase| row(&name, args.osts, *point, phase)).into();
        for repetition in 0..args.repetitions {
            let run = number as u32 * args.repetitions + repetition;
            let work = |phase| Work { phase, run, osts: args.osts, size: args.size, rsz: args.rsz, point: *point };
            for (phase, row) in Phase::TIMED.into_iter().zip(&mut of_point) {
                let (work, began, cpu) = (work(phase), env.now(), site.cpu_seconds());
                site.run(&work).await.doing(|| format!("{name}: {}", phase.name()))?;
                let seconds = env.now().since(began).as_secs_f64();
                let (mib, cpu) = (work.bytes() as f64 / MIB, site.cpu_seconds() - cpu);
                let details = vec![("MiB", mib), ("seconds", seconds), ("cpu_s_per_GiB", cpu * 1024.0 / mib)];
                row.samples.push(Sample { value: mib / seconds, details });
            }
            site.run(&work(Phase::Destroy)).await.doing(|| format!("{name}: cannot remove its objects"))?;
            bar.add(1);
        }
        rows.extend(of_point);
    }
    site.end().await.doing(|| format!("{name}: cannot end"))?;
    Ok(rows)
}

fn row(case: &str, osts: u32, point: Point, phase: Phase) -> Row {
    let labels = vec![
        ("case", json!(case)),
        ("osts", json!(osts)),
        ("objects", json!(point.objects)),
        ("threads", json!(point.threads)),
    ];
    Row { phase: phase.name().into(), labels, unit: "MiB/s", samples: Vec::new() }
}

/// A line for each row, as the Lustre tool prints it: its phases side by side, in MiB/s.
fn table(rows: &[Row]) -> Vec<String> {
    let heads = ["case", "osts", "obj", "thr", "write MiB/s", "rewrite MiB/s", "read MiB/s"];
    let cell = |row: &Row| {
        let values = row.samples.iter().map(|sample| sample.value);
        let (least, most) = values
            .clone()
            .fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), value| (least.min(value), most.max(value)));
        let mean = values.sum::<f64>() / row.samples.len() as f64;
        if row.samples.len() > 1 { format!("{mean:.1} [{least:.1}, {most:.1}]") } else { format!("{mean:.1}") }
    };
    let label = |(_, value): &(&str, serde_json::Value)| value.as_str().map_or(value.to_string(), str::to_owned);
    let line = |phases: &[Row]| {
        let labels = phases[0].labels.iter().map(label);
        labels.chain(phases.iter().map(cell)).collect::<Vec<String>>()
    };
    let heads = [heads.map(str::to_owned).to_vec()];
    let lines: Vec<Vec<String>> = heads.into_iter().chain(rows.chunks(Phase::TIMED.len()).map(line)).collect();
    align(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_phases_of_a_point_side_by_side() {
        let point = Point { objects: 1, threads: 2 };
        let mut rows: Vec<Row> = Phase::TIMED.map(|phase| row("disk", 2, point, phase)).into();
        for (row, values) in rows.iter_mut().zip([&[100.0, 300.0][..], &[50.0], &[70.0]]) {
            row.samples = values.iter().map(|value| Sample { value: *value, details: Vec::new() }).collect();
        }
        let lines = table(&rows);
        assert_eq!(lines.len(), 2);
        let expected = "disk 2 1 2 200.0 [100.0, 300.0] 50.0 70.0";
        assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>().join(" "), expected);
    }
}
