//! Commit levels side by side on slow devices: twelve OSTs on loop devices of 75 MB/s, with 1 to 64 writers.
//!
//! The devices' rate is what all of them write together without our software. Each writer has its own file; the files
//! are assigned to OSTs in turn. Each file is overwritten with eight requests of 1 MiB in flight, and a final fsync
//! that is part of the measurement.

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    Outcome, Plan,
    cluster::write_once,
    forebay::{Forebay, root},
    process::output,
    summary::{Values, commands, table},
};

const OSTS: usize = 12;
/// Rate of each device in 10^6 bytes a second.
const MB_S: &str = "75";
const LEVELS: [&str; 3] = ["commit", "data", "memory"];
const WRITERS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

/// True if the rates of devices can be limited here.
pub fn is_possible() -> bool {
    Path::new("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device").exists()
}

/// Measures all levels in turns, round by round.
pub fn measure(forebay: &Forebay, plan: &Plan) -> Outcome<String> {
    let devices = alone(forebay, plan)?;
    let cluster = Slow::make(forebay, plan)?;
    let rounds = plan.size(plan.rounds(), 1, 1);
    let mut rates = vec![[(); LEVELS.len()].map(|()| Values::default()); WRITERS.len()];
    for _ in 0..rounds {
        for (level, name) in LEVELS.into_iter().enumerate() {
            let mounted = cluster.mount(name)?;
            for (rates, writers) in rates.iter_mut().zip(WRITERS) {
                rates[level].0.push(cluster.write(writers, plan)?);
            }
            drop(mounted);
        }
    }
    let rows: Vec<Vec<String>> = rates
        .iter()
        .zip(WRITERS)
        .map(|(rates, writers)| {
            let all = Values(vec![devices; rates[0].0.len()]);
            let shown =
                rates.iter().map(|values| format!("{} ({} %)", values.show(0), values.percent_of(&all).show(0)));
            [writers.to_string()].into_iter().chain(shown).collect()
        })
        .collect();
    let head = ["writers, MiB/s (% of the devices)", "commit", "data", "memory"];
    let typed = [
        "bench/throttled-loops.sh up LOOPS 75 OST*/data   # and put links to LOOPS/0 ... in their places",
        "bench/throttled-loops.sh run LOOPS forebay up CLUSTER --no-mount && forebay mount CLUSTER MNT -o commit=LEVEL",
        "forebay bench xdd --op write --request 1MiB --depth 8 --sync --size SIZE MNT/w0 MNT/w1 ...",
    ];
    Ok(format!(
        "{OSTS} devices alone, all at once, flush at the end: {devices:.0} MiB/s.\n\n{}\n{}",
        table(&head, &rows),
        commands(&typed.map(str::to_owned))
    ))
}

/// Bytes per writer: enough for a stable rate, and few enough to end soon.
fn size(writers: u64, plan: &Plan) -> u64 {
    plan.size((3u64 << 30) / writers, (512 << 20) / writers, 0).clamp(32 << 20, 256 << 20)
}

/// Loop devices with a limited rate. Dropping them detaches them.
struct Loops {
    dir: PathBuf,
}

impl Loops {
    fn attach(dir: PathBuf, files: &[PathBuf]) -> Outcome<Self> {
        let loops = Self { dir };
        output(loops.script("up").arg(MB_S).args(files))?;
        Ok(loops)
    }

    fn script(&self, what: &str) -> Command {
        let mut command = Command::new(root().join("bench/throttled-loops.sh"));
        command.arg(what).arg(&self.dir);
        command
    }

    fn device(&self, number: usize) -> Outcome<PathBuf> {
        let link = self.dir.join(number.to_string());
        std::fs::read_link(&link).map_err(|error| format!("{}: {error}", link.display()))
    }

    /// `command`, subject to the rate limits.
    fn held(&self, command: &Command) -> Command {
        let mut held = self.script("run");
        held.arg(command.get_program()).args(command.get_args());
        held
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        if let Err(error) = output(&mut self.script("down")) {
            eprintln!("xtask: {error}");
        }
    }
}

/// Measures the devices without our software.
fn alone(forebay: &Forebay, plan: &Plan) -> Outcome<f64> {
    let dir = plan.dir.join("alone");
    std::fs::create_dir_all(&dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
    let files: Vec<PathBuf> = (0..OSTS).map(|number| dir.join(format!("image{number}"))).collect();
    for path in &files {
        let made = std::fs::File::create(path).and_then(|file| file.set_len(size(1, plan)));
        made.map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        write_once(path)?;
    }
    let loops = Loops::attach(dir.join("loops"), &files)?;
    let mut xdd =
        forebay.command(&["bench", "xdd", "--op", "write", "--depth", "8", "--sync", "--overwrite", "--json"]);
    for number in 0..OSTS {
        xdd.arg(loops.device(number)?);
    }
    eprintln!("   forebay bench xdd on {OSTS} devices");
    let rate = rate(&output(&mut loops.held(&xdd))?)?;
    drop(loops);
    std::fs::remove_dir_all(&dir).map_err(|error| format!("cannot remove {}: {error}", dir.display()))?;
    Ok(rate)
}

/// The total rate of all targets of an xdd run.
fn rate(said: &str) -> Outcome<f64> {
    let report: serde_json::Value = serde_json::from_str(said).map_err(|error| format!("bench xdd: {error}"))?;
    let rows = report["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let all = rows.iter().find(|row| row["target"] == "all").or(rows.first());
    all.and_then(|row| row["value"].as_f64()).ok_or_else(|| format!("bench xdd tells no rate: {said}"))
}

/// A cluster on such devices. Dropping it takes it down.
struct Slow<'a> {
    forebay: &'a Forebay,
    dir: PathBuf,
    mnt: PathBuf,
    loops: Option<Loops>,
}

/// A mount. Dropping it unmounts.
struct Mounted<'a>(&'a Slow<'a>);

impl<'a> Slow<'a> {
    fn make(forebay: &'a Forebay, plan: &Plan) -> Outcome<Self> {
        let (dir, mnt) = (plan.dir.join("slow"), plan.dir.join("slow-mnt"));
        std::fs::create_dir_all(&mnt).map_err(|error| format!("cannot make {}: {error}", mnt.display()))?;
        let mut cluster = Self { forebay, dir, mnt, loops: None };
        let shown = cluster.dir.to_string_lossy().into_owned();
        let (osts, ost_size) = (OSTS.to_string(), plan.size("1GiB", "512MiB", "512MiB"));
        let up = ["up", &shown, "--osts", &osts, "--ost-size", ost_size, "--mdt-size", "1GiB", "--no-mount"];
        output(&mut forebay.command(&up))?;
        output(&mut forebay.command(&["down", &shown]))?;
        let data = |ost: usize| cluster.dir.join(format!("OST{ost:04x}/data"));
        let images: Vec<PathBuf> = (0..OSTS).map(|ost| cluster.dir.join(format!("image{ost}"))).collect();
        for (ost, image) in images.iter().enumerate() {
            rename(&data(ost), image)?;
            write_once(image)?;
        }
        let loops = cluster.loops.insert(Loops::attach(cluster.dir.join("loops"), &images)?);
        for ost in 0..OSTS {
            let link = data(ost);
            symlink(loops.device(ost)?, &link).map_err(|error| format!("cannot make {}: {error}", link.display()))?;
        }
        output(&mut loops.held(&forebay.command(&["up", &shown, "--no-mount"])))?;
        let mounted = cluster.mount("data")?;
        for writer in 0..WRITERS.into_iter().max().unwrap_or(0) {
            let (path, ost) = (cluster.writer(writer), (writer % OSTS as u64).to_string());
            std::fs::create_dir(&path).map_err(|error| format!("cannot make {path}: {error}"))?;
            output(&mut forebay.command(&["setstripe", "-c", "1", "-i", &ost, &path]))?;
        }
        drop(mounted);
        Ok(cluster)
    }

    fn writer(&self, number: u64) -> String {
        self.mnt.join(format!("w{number}")).to_string_lossy().into_owned()
    }

    fn mount(&self, level: &str) -> Outcome<Mounted<'_>> {
        let mut mount = self.forebay.command(&["mount"]);
        output(mount.args([&self.dir, &self.mnt]).args(["-o", &format!("commit={level}")]))?;
        Ok(Mounted(self))
    }

    fn write(&self, writers: u64, plan: &Plan) -> Outcome<f64> {
        let size = size(writers, plan).to_string();
        let mut xdd = self.forebay.command(&["bench", "xdd", "--op", "write", "--depth", "8", "--sync", "--json"]);
        xdd.args(["--size", &size]).args((0..writers).map(|writer| self.writer(writer)));
        eprintln!("   forebay bench xdd, {writers} writers of {} MiB", size.parse::<u64>().unwrap_or(0) >> 20);
        rate(&output(&mut xdd)?)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if let Err(error) = output(self.0.forebay.command(&["umount"]).arg(&self.0.mnt)) {
            eprintln!("xtask: {error}");
        }
    }
}

impl Drop for Slow<'_> {
    fn drop(&mut self) {
        let shown = self.dir.to_string_lossy().into_owned();
        if let Err(error) = output(&mut self.forebay.command(&["down", "--force", &shown])) {
            eprintln!("xtask: {error}");
        }
        self.loops = None;
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn rename(from: &Path, to: &Path) -> Outcome {
    std::fs::rename(from, to).map_err(|error| format!("cannot move {}: {error}", from.display()))
}
