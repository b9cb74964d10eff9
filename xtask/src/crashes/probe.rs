//! Measures how soon after its start a server answers a new request: each mount sends a small request to each server
//! that was started.
//!
//! A separate process per mount sends them. The process that starts servers must not have files on the mounts open:
//! exec(2) closes copies of them, and that waits for servers.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Write as _},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

use super::{
    hands::now_us,
    site::{OSTS, Site, die_with_parent},
};
use crate::figures::Outcome;

/// A request without an answer for this long fails.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The probe processes, by mount.
pub struct Probes(Vec<Option<Probe>>);

struct Probe {
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
}

/// The time from a server's start to its answer to a mount.
pub struct Answer {
    /// The server.
    pub server: usize,
    /// `None`: the mount got an error.
    pub time: Option<Duration>,
}

fn dir(point: &Path) -> PathBuf {
    point.join("probes")
}

fn place(point: &Path, mount: usize, ost: usize) -> PathBuf {
    dir(point).join(format!("m{mount}-ost{ost}"))
}

impl Probes {
    /// Makes the files through the first mount, without starting a probe.
    pub fn make(site: &Site) -> Outcome<Self> {
        let point = site.point(0);
        fs::create_dir_all(dir(&point)).map_err(|error| format!("a directory of probes: {error}"))?;
        for mount in 0..site.mounts.len() {
            for ost in 0..OSTS {
                site.setstripe(&place(&point, mount, ost), &["-c", "1", "-i", &ost.to_string()])?;
            }
        }
        Ok(Self((0..site.mounts.len()).map(|_| None).collect()))
    }

    /// Ends the probe of a mount that died, or will die.
    pub fn forget(&mut self, mount: usize) {
        if let Some(mut probe) = self.0[mount].take() {
            let _ = probe.child.kill();
            let _ = probe.child.wait();
        }
    }

    /// Starts the missing probes. The servers must be up.
    pub fn open(&mut self, site: &Site) -> Outcome {
        for mount in 0..self.0.len() {
            if self.0[mount].is_none() {
                let probe = Probe::start(&site.point(mount), mount)?;
                let ready = probe.answers.recv_timeout(TIMEOUT);
                self.0[mount] = Some(probe);
                ready.ok().filter(|line| line == "ready").ok_or_else(|| format!("the probe of mount {mount} fails"))?;
            }
        }
        Ok(())
    }

    /// Sends a request to each of `servers` through each mount.
    pub fn ask(&mut self, servers: &[usize]) -> Outcome {
        for probe in self.0.iter_mut().flatten() {
            for server in servers {
                writeln!(probe.orders, "{server}").map_err(|error| format!("a probe: {error}"))?;
            }
        }
        Ok(())
    }

    /// Waits for the answers of `servers`. A mount that got an error opens its files again.
    pub fn answers(&mut self, site: &Site, servers: &[usize]) -> Outcome<Vec<Answer>> {
        let (mut all, mut told, until) = (Vec::new(), Vec::new(), Instant::now() + TIMEOUT);
        for (mount, probe) in self.0.iter().enumerate().filter_map(|(mount, probe)| Some((mount, probe.as_ref()?))) {
            for _ in servers {
                let left = until.saturating_duration_since(Instant::now());
                let line = probe.answers.recv_timeout(left).map_err(|_| format!("the probe of mount {mount} hangs"))?;
                let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
                let server =
                    *numbers.first().ok_or_else(|| format!("the probe of mount {mount} says {line}"))? as usize;
                let since = |at: u64| Duration::from_micros(at.saturating_sub(site.servers[server].started_us));
                let time = numbers.get(1).map(|at| since(*at));
                told.extend(time.is_none().then_some(mount));
                all.push(Answer { server, time });
            }
        }
        told.into_iter().for_each(|mount| self.forget(mount));
        Ok(all)
    }
}

impl Probe {
    fn start(point: &Path, mount: usize) -> Outcome<Self> {
        let own = std::env::current_exe().map_err(|error| format!("where am I? {error}"))?;
        let mut command = Command::new(own);
        command.arg("crashes-probe").arg(point).arg(mount.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        die_with_parent(&mut command);
        let mut child = command.spawn().map_err(|error| format!("a probe: {error}"))?;
        let (orders, stdout) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| sender.send(line)).ok();
        });
        Ok(Self { child, orders, answers })
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        (0..self.0.len()).for_each(|mount| self.forget(mount));
    }
}

/// `crashes-probe POINT MOUNT`: reads server numbers from stdin and sends each server a request at once. Prints the
/// time of the answer (CLOCK_MONOTONIC, microseconds), or only the number after an error.
pub fn run(args: &[String]) -> Outcome {
    let [point, mount] = args else { return Err("crashes starts its probes itself".into()) };
    let (point, mount) = (PathBuf::from(point), mount.parse().map_err(|_| "which mount?")?);
    let open = |ost| OpenOptions::new().write(true).custom_flags(libc::O_SYNC).open(place(&point, mount, ost));
    let files: io::Result<Vec<File>> = (0..OSTS).map(open).collect();
    let files = files.map_err(|error| format!("a probe of mount {mount}: {error}"))?;
    println!("ready");
    for (number, line) in io::stdin().lines().map_while(Result::ok).enumerate() {
        let server: usize = line.parse().map_err(|_| format!("which server is '{line}'?"))?;
        let file = server.checked_sub(1).map(|ost| files[ost].try_clone()).transpose();
        let file = file.map_err(|error| format!("a probe: {error}"))?;
        let name = dir(&point).join(format!("m{mount}-name{number}"));
        std::thread::spawn(move || match ask(file.as_ref(), &name) {
            Ok(()) => println!("{server} {}", now_us()),
            Err(_) => println!("{server}"),
        });
    }
    Ok(())
}

/// Sends a synchronous write to an OST, or makes a directory on the MDT.
fn ask(file: Option<&File>, name: &Path) -> io::Result<()> {
    match file {
        Some(file) => file.write_all_at(b"probed", 0),
        None => fs::create_dir(name).and_then(|()| fs::remove_dir(name)),
    }
}
