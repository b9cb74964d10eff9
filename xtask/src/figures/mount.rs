//! Four processes through the mount, beside local ext4 and the raw device.

use std::path::PathBuf;

use super::{
    Outcome, Plan,
    cluster::Cluster,
    ext4::Ext4,
    forebay::{Forebay, Measured},
    summary::{Values, commands, table},
};

/// Bytes of an unaligned transfer: the access pattern of a weather code in IOR, on one shared file.
const ODD_BYTES: &str = "47008";

/// Column heads of a table of [`cpu_row`].
pub const CPU_HEADS: [&str; 7] = [
    "CPU seconds per GiB",
    "programs, write",
    "mount, write",
    "servers, write",
    "programs, read",
    "mount, read",
    "servers, read",
];

/// The rates of one workload on one file system.
#[derive(Default)]
pub struct Rates {
    /// MiB/s.
    pub write: Values,
    /// MiB/s.
    pub read: Values,
    /// CPU seconds per GiB: programs, mount, servers.
    write_cpu: [Values; 3],
    read_cpu: [Values; 3],
}

/// Runs all rounds, and returns two tables.
pub fn measure(forebay: &Forebay, plan: &Plan) -> Outcome<String> {
    let raw_file = Raw::make(plan)?;
    let ext4 = Ext4::make(plan)?;
    let mut cluster = Cluster::make(forebay, plan)?;
    let mounts = cluster.mount_more(3)?;
    // The same number of bytes in both shapes: the first writes of a process go to memory that it must allocate.
    let block = plan.size("512MiB", "128MiB", "4MiB");
    let segments = plan.size("11422", "2855", "89");
    let own: Vec<&str> = vec!["-F", "-t", "1MiB", "-b", block];
    let shared: Vec<&str> = vec!["-t", ODD_BYTES, "-b", ODD_BYTES, "-s", segments];
    let mut raw = Rates::default();
    let [mut own_ext4, mut own_ours, mut shared_ext4, mut shared_ours, mut shared_four]: [Rates; 5] =
        Default::default();
    let (one, ext4_mount) = (&mounts[..1], std::slice::from_ref(&ext4.mnt));
    for _ in 0..plan.rounds() {
        raw_file.round(forebay, plan, &mut raw)?;
        round(forebay, &own, ext4_mount, None, &mut own_ext4)?;
        round(forebay, &own, one, Some(&cluster), &mut own_ours)?;
        round(forebay, &shared, ext4_mount, None, &mut shared_ext4)?;
        round(forebay, &shared, one, Some(&cluster), &mut shared_ours)?;
        round(forebay, &shared, &mounts, Some(&cluster), &mut shared_four)?;
    }
    let rates = [
        rate_row("raw device, 1 MiB requests, 4 in flight, flush at the end", &raw, None),
        rate_row("file per process, ext4", &own_ext4, Some(&raw)),
        rate_row("file per process, Forebay", &own_ours, Some(&own_ext4)),
        rate_row("shared file of 47,008 byte records, ext4", &shared_ext4, Some(&raw)),
        rate_row("shared file of 47,008 byte records, Forebay", &shared_ours, Some(&shared_ext4)),
        rate_row("the same, % of file per process", &shared_ours, Some(&own_ours)),
        rate_row("the same, a mount for each process", &shared_four, Some(&own_ours)),
    ];
    let cpu = [
        cpu_row("file per process, ext4", &own_ext4),
        cpu_row("file per process, Forebay", &own_ours),
        cpu_row("shared file, ext4", &shared_ext4),
        cpu_row("shared file, Forebay", &shared_ours),
        cpu_row("shared file, four mounts", &shared_four),
    ];
    let typed = |args: &[&str]| format!("forebay bench ior {} -N 4 -e -w -k DIR; ... -r DIR", args.join(" "));
    let raw_typed = format!(
        "forebay bench xdd --op write,read --request 1MiB --depth 4 --size {} --sync --overwrite FILE",
        raw_file.bytes
    );
    let heads = ["", "write MiB/s", "read MiB/s", "write, % of", "read, % of", "compared with"];
    Ok(format!(
        "{}\n{}\n{}",
        table(&heads, &rates),
        table(&CPU_HEADS, &cpu),
        commands(&[raw_typed, typed(&own), typed(&shared)])
    ))
}

/// Writes and reads in separate runs, so that the servers' CPU times are separate.
pub fn round(
    forebay: &Forebay,
    shape: &[&str],
    dirs: &[PathBuf],
    cluster: Option<&Cluster<'_>>,
    rates: &mut Rates,
) -> Outcome {
    let dirs: Vec<_> = dirs.iter().map(|dir| dir.to_string_lossy()).collect();
    let dirs: Vec<&str> = dirs.iter().map(AsRef::as_ref).collect();
    for (phase, flags) in [("write", &["-w", "-k"][..]), ("read", &["-r"][..])] {
        let cpu = || cluster.map_or([0.0; 2], |c| [c.mount.cpu_seconds(), c.servers.cpu_seconds()]);
        let before = cpu();
        let args: Vec<&str> = [&["ior"], shape, &["-N", "4", "-e"], flags, &dirs].concat();
        let measured = forebay.bench(&args)?;
        let after = cpu();
        let gib = single(&measured, phase, "MiB")? / 1024.0;
        let (values, costs) = match phase {
            "write" => (&mut rates.write, &mut rates.write_cpu),
            _ => (&mut rates.read, &mut rates.read_cpu),
        };
        values.0.push(measured.value(phase)?);
        let programs = single(&measured, phase, "cpu_s")?;
        let all = [programs, after[0] - before[0], after[1] - before[1]];
        costs.iter_mut().zip(all).for_each(|(values, cpu_s)| values.0.push(cpu_s / gib));
    }
    Ok(())
}

fn single(measured: &Measured, phase: &str, name: &str) -> Outcome<f64> {
    Ok(measured.details(phase, name)?.0[0])
}

fn rate_row(name: &str, rates: &Rates, other: Option<&Rates>) -> Vec<String> {
    let percent =
        |ours: &Values, theirs: Option<&Values>| theirs.map_or(String::new(), |theirs| ours.percent_of(theirs).show(0));
    let with = if other.is_none() {
        ""
    } else if name.starts_with("the same") {
        "file per process, Forebay"
    } else if name.ends_with("Forebay") {
        "ext4"
    } else {
        "the raw device"
    };
    vec![
        name.to_owned(),
        rates.write.show(0),
        rates.read.show(0),
        percent(&rates.write, other.map(|other| &other.write)),
        percent(&rates.read, other.map(|other| &other.read)),
        with.to_owned(),
    ]
}

/// The row with a workload's CPU costs.
pub fn cpu_row(name: &str, rates: &Rates) -> Vec<String> {
    let costs = rates.write_cpu.iter().chain(&rates.read_cpu).map(|values| values.show(2));
    [name.to_owned()].into_iter().chain(costs).collect()
}

/// A file on the file system that also has the ext4 image and the OSTs' data, written once.
struct Raw {
    path: PathBuf,
    bytes: &'static str,
}

impl Raw {
    fn make(plan: &Plan) -> Outcome<Self> {
        let raw = Self { path: plan.dir.join("raw"), bytes: plan.size("4GiB", "512MiB", "64MiB") };
        let length = plan.size(4u64 << 30, 512 << 20, 64 << 20);
        let file = std::fs::File::create(&raw.path).and_then(|file| file.set_len(length));
        file.map_err(|error| format!("cannot make {}: {error}", raw.path.display()))?;
        super::cluster::write_once(&raw.path)?;
        Ok(raw)
    }

    fn round(&self, forebay: &Forebay, _plan: &Plan, rates: &mut Rates) -> Outcome {
        let path = self.path.to_string_lossy();
        let args = [
            "xdd",
            "--op",
            "write,read",
            "--request",
            "1MiB",
            "--depth",
            "4",
            "--size",
            self.bytes,
            "--sync",
            "--overwrite",
            &path,
        ];
        let measured = forebay.bench(&args)?;
        rates.write.0.push(measured.value("sequential-write")?);
        rates.read.0.push(measured.value("sequential-read")?);
        Ok(())
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
