//! Names through the mount, beside our FUSE layer with an empty back end, and local ext4.

use std::path::Path;

use super::{
    Outcome, Plan,
    cluster::Cluster,
    ext4::Ext4,
    floor::Floor,
    forebay::{Forebay, Measured},
    summary::{Values, commands, table},
};

/// Processes of every run.
pub const PROCESSES: &str = "4";
/// Entries per directory, with the flags of mdtest: separate trees of one level, with all items in the last one. The
/// total number of files is the same, as it decides how many of them the kernel still has cached.
const SERIES: [(&str, [&str; 4]); 5] = [
    ("1", ["-b", "10000", "-I", "1"]),
    ("10", ["-b", "1000", "-I", "10"]),
    ("100", ["-b", "100", "-I", "100"]),
    ("1,000", ["-b", "10", "-I", "1000"]),
    ("10,000", ["-b", "1", "-I", "10000"]),
];
/// Numbers of processes that together create, stat and remove the same number of files.
const CREWS: [usize; 3] = [4, 16, 64];
const CREW_PHASES: [&str; 3] = ["file-create", "file-read", "file-remove"];
const SERIES_PHASES: [&str; 3] = ["file-create", "file-stat", "file-remove"];

/// A kind of item in a kind of directory.
pub struct Workload {
    /// The kind of directory.
    pub name: &'static str,
    /// Flags of mdtest.
    pub flags: &'static [&'static str],
    /// Phases of mdtest.
    pub phases: &'static [&'static str],
}

const DIRECTORY_PHASES: &[&str] = &["directory-create", "directory-stat", "directory-remove"];
const FILE_PHASES: &[&str] = &["file-create", "file-stat", "file-read", "file-remove"];
/// All workloads.
pub const WORKLOADS: [Workload; 4] = [
    Workload { name: "own directories", flags: &["-F", "-u"], phases: FILE_PHASES },
    Workload { name: "own directories", flags: &["-D", "-u"], phases: DIRECTORY_PHASES },
    Workload { name: "one shared directory", flags: &["-F"], phases: FILE_PHASES },
    Workload { name: "one shared directory", flags: &["-D"], phases: DIRECTORY_PHASES },
];

/// One phase of one workload.
#[derive(Clone, Default)]
struct Rates {
    floor: Values,
    ext4: Values,
    ours: Values,
    /// CPU microseconds per operation: of the programs, and of mount and servers.
    cpu: [Values; 2],
}

/// One number of processes in one kind of directory.
#[derive(Clone, Default)]
struct Crew {
    floor: [Values; 3],
    ours: [Values; 3],
}

/// Runs all rounds, and returns three tables.
pub fn measure(forebay: &Forebay, plan: &Plan) -> Outcome<String> {
    let ext4 = Ext4::make(plan)?;
    let floor = Floor::mount(forebay, plan)?;
    let cluster = Cluster::make(forebay, plan)?;
    let items = plan.size("1000", "200", "10");
    let mut rates: Vec<Vec<Rates>> = WORKLOADS.iter().map(|w| vec![Rates::default(); w.phases.len()]).collect();
    let mut series: Vec<[Values; 3]> = vec![Default::default(); SERIES.len()];
    let mut crews = vec![Crew::default(); 2 * CREWS.len()];
    let crew_files = plan.size(16384, 1024, 64);
    for _ in 0..plan.rounds() {
        for (workload, rates) in WORKLOADS.iter().zip(&mut rates) {
            round(forebay, workload, items, &floor, &cluster, &ext4, rates)?;
        }
        for ((_, flags), values) in SERIES.iter().zip(&mut series) {
            series_round(forebay, plan, flags, &cluster, values)?;
        }
        for ((processes, flags), crew) in crew_kinds().zip(&mut crews) {
            crew_round(forebay, processes, crew_files, flags, &floor.mnt, &mut crew.floor)?;
            crew_round(forebay, processes, crew_files, flags, &cluster.mnt, &mut crew.ours)?;
        }
    }
    let rows: Vec<Vec<String>> = WORKLOADS.iter().zip(&rates).flat_map(|(w, rates)| rate_rows(w, rates)).collect();
    let heads = [
        "operations per second",
        "fuse-floor",
        "ext4",
        "Forebay",
        "% of fuse-floor",
        "% of ext4",
        "CPU µs each, programs",
        "CPU µs each, mount and servers",
    ];
    let series_heads =
        ["entries of a directory", "creates/s", "stats/s", "removes/s", "creates, % of best", "stats, %", "removes, %"];
    let typed = [
        "forebay bench fuse-floor --hold FLOOR &".to_owned(),
        format!("forebay bench mdtest -N {PROCESSES} -n {items} -F -u DIR   # -D: directories; without -u: shared"),
        format!("forebay bench mdtest -N {PROCESSES} -F -u -z 1 -L -b 100 -I 100 DIR   # 100 entries of a directory"),
    ];
    let crew_heads = [
        "processes",
        "creates/s",
        "open, close/s",
        "removes/s",
        "creates, % of four",
        "opens, %",
        "removes, %",
        "fuse-floor: creates, % of its four",
        "opens, %",
        "removes, %",
    ];
    Ok(format!(
        "{}\n{}\n{}\n{}",
        table(&heads, &rows),
        table(&series_heads, &series_rows(&series)),
        table(&crew_heads, &crew_rows(&crews)),
        commands(&typed)
    ))
}

/// Numbers of processes, with flags of mdtest: separate directories, then a shared one.
fn crew_kinds() -> impl Iterator<Item = (usize, &'static [&'static str])> {
    let kinds: [&[&str]; 2] = [&["-F", "-u"], &["-F"]];
    kinds.into_iter().flat_map(|flags| CREWS.map(|processes| (processes, flags)))
}

fn crew_round(
    forebay: &Forebay,
    processes: usize,
    files: usize,
    flags: &[&str],
    dir: &Path,
    values: &mut [Values; 3],
) -> Outcome {
    let each = (files / processes).to_string();
    let measured = mdtest(forebay, &processes.to_string(), &[flags, &["-n", &each]].concat(), dir)?;
    for (values, phase) in values.iter_mut().zip(CREW_PHASES) {
        values.0.push(measured.value(phase)?);
    }
    Ok(())
}

/// Each number of processes relative to the smallest, for us and for the floor.
fn crew_rows(crews: &[Crew]) -> Vec<Vec<String>> {
    let percents = |values: &[Values; 3], of_four: &[Values; 3]| {
        values.iter().zip(of_four).map(|(values, four)| values.percent_of(four).show(0)).collect::<Vec<_>>()
    };
    let mut rows = Vec::new();
    for (number, ((processes, flags), crew)) in crew_kinds().zip(crews).enumerate() {
        let four = &crews[number - number % CREWS.len()];
        let directories = if flags.contains(&"-u") { "own directories" } else { "one shared directory" };
        let mut row = vec![format!("{processes}, {directories}")];
        row.extend(crew.ours.iter().map(|values| values.show(0)));
        row.extend(percents(&crew.ours, &four.ours));
        row.extend(percents(&crew.floor, &four.floor));
        rows.push(row);
    }
    rows
}

/// Runs mdtest once.
pub fn mdtest(forebay: &Forebay, processes: &str, flags: &[&str], dir: &Path) -> Outcome<Measured> {
    forebay.bench(&[&["mdtest", "-N", processes], flags, &[&dir.to_string_lossy()]].concat())
}

fn round(
    forebay: &Forebay,
    workload: &Workload,
    items: &str,
    floor: &Floor,
    cluster: &Cluster<'_>,
    ext4: &Ext4,
    rates: &mut [Rates],
) -> Outcome {
    // Ext4 is slow to allocate inodes that were in use a minute ago, so each of its runs has a new file system.
    ext4.renew()?;
    let flags = [&["-n", items], workload.flags].concat();
    let on_floor = mdtest(forebay, PROCESSES, &flags, &floor.mnt)?;
    let on_ours = mdtest(forebay, PROCESSES, &[&flags[..], &["--cpu-of", &cluster.pids()]].concat(), &cluster.mnt)?;
    let on_ext4 = mdtest(forebay, PROCESSES, &flags, &ext4.mnt)?;
    for (phase, rates) in workload.phases.iter().zip(rates) {
        rates.floor.0.push(on_floor.value(phase)?);
        rates.ours.0.push(on_ours.value(phase)?);
        rates.ext4.0.push(on_ext4.value(phase)?);
        for (values, name) in rates.cpu.iter_mut().zip(["cpu_us_per_op", "server_cpu_us_per_op"]) {
            values.0.extend(on_ours.details(phase, name)?.0);
        }
    }
    Ok(())
}

fn series_round(
    forebay: &Forebay,
    plan: &Plan,
    flags: &[&'static str],
    cluster: &Cluster<'_>,
    values: &mut [Values; 3],
) -> Outcome {
    let processes = plan.size(PROCESSES, "1", "1");
    let flags = plan.size(flags, flags, &["-b", "2", "-I", "5"]);
    let measured = forebay.bench(
        &[&["mdtest", "-N", processes, "-F", "-u", "-z", "1", "-L"], flags, &[&cluster.mnt.to_string_lossy()]].concat(),
    )?;
    for (values, phase) in values.iter_mut().zip(SERIES_PHASES) {
        values.0.push(measured.value(phase)?);
    }
    Ok(())
}

fn rate_rows<'a>(workload: &'a Workload, rates: &'a [Rates]) -> impl Iterator<Item = Vec<String>> + 'a {
    workload.phases.iter().zip(rates).map(|(phase, rates)| {
        vec![
            format!("{}, {}", phase.replace('-', " "), workload.name),
            rates.floor.show(0),
            rates.ext4.show(0),
            rates.ours.show(0),
            rates.ours.percent_of(&rates.floor).show(0),
            rates.ours.percent_of(&rates.ext4).show(1),
            rates.cpu[0].show(0),
            rates.cpu[1].show(0),
        ]
    })
}

/// Each operation relative to the number of entries at which it is fastest.
fn series_rows(series: &[[Values; 3]]) -> Vec<Vec<String>> {
    let best: [&Values; 3] = std::array::from_fn(|phase| {
        let rows = series.iter().map(|row| &row[phase]);
        rows.max_by(|a, b| a.median().total_cmp(&b.median())).expect("the series is not empty")
    });
    let row = |(entries, values): (&str, &[Values; 3])| {
        let rates = values.iter().map(|values| values.show(0));
        let percents = values.iter().zip(best).map(|(values, best)| values.percent_of(best).show(0));
        [entries.to_owned()].into_iter().chain(rates).chain(percents).collect()
    };
    SERIES.iter().map(|(entries, _)| *entries).zip(series).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_processes_are_compared_with_the_fewest_in_the_same_kind_of_directory() {
        let values = |rate: f64| [(); 3].map(|()| Values(vec![rate]));
        let crews: Vec<Crew> = (1..=6).map(|i| Crew { floor: values(10.0), ours: values(f64::from(i)) }).collect();
        let rows = crew_rows(&crews);
        assert_eq!(rows[1][0], "16, own directories");
        assert_eq!(rows[2][1..], ["3", "3", "3", "300", "300", "300", "100", "100", "100"]);
        assert_eq!((&*rows[5][0], &*rows[5][4]), ("64, one shared directory", "150"));
    }

    #[test]
    fn each_operation_is_compared_with_its_own_best() {
        let values = |rate: f64| Values(vec![rate]);
        let series: Vec<[Values; 3]> =
            (1..=5).map(|i| [values(f64::from(i)), values(10.0 / f64::from(i)), values(7.0)]).collect();
        let rows = series_rows(&series);
        assert_eq!(rows[0], ["1", "1", "10", "7", "20", "100", "100"]);
        assert_eq!(rows[4], ["10,000", "5", "2", "7", "100", "20", "100"]);
    }
}
