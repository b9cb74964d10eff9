//! This commit and an earlier one, both built here and measured in turns through a mount of each: shows what became
//! slower.

use std::{path::Path, process::Command};

use super::{
    Outcome, Plan,
    cluster::Cluster,
    forebay::{Forebay, root},
    machine::built_of,
    mount::{CPU_HEADS, Rates, cpu_row, round},
    names_mount::{PROCESSES, WORKLOADS, Workload, mdtest},
    process::output,
    summary::{Values, commands, table},
};

/// Shapes of `bench ior` by name: in full, and with --quick.
const SHAPES: [(&str, [&[&str]; 2]); 3] = [
    ("file per process", [&["-F", "-t", "1MiB", "-b", "512MiB"], &["-F", "-t", "1MiB", "-b", "128MiB"]]),
    (
        "shared file of 47,008 byte records",
        [&["-t", "47008", "-b", "47008", "-s", "11422"], &["-t", "47008", "-b", "47008", "-s", "2855"]],
    ),
    (
        "file per process, 4 KiB in random order",
        [&["-F", "-z", "-t", "4KiB", "-b", "16MiB"], &["-F", "-z", "-t", "4KiB", "-b", "4MiB"]],
    ),
];

/// The last commit before leases and everything that is built on them.
const BEFORE_LEASES: &str = "2a42a76";

/// Compares with the commit of `--against`.
pub fn measure(forebay: &Forebay, plan: &Plan) -> Outcome<String> {
    measure_against(forebay, plan, &plan.against)
}

/// Compares with the commit before leases.
pub fn before_leases(forebay: &Forebay, plan: &Plan) -> Outcome<String> {
    measure_against(forebay, plan, BEFORE_LEASES)
}

/// Runs all rounds, and returns three tables.
fn measure_against(forebay: &Forebay, plan: &Plan, commit: &str) -> Outcome<String> {
    let earlier = Earlier::build(plan, commit)?;
    // The later one first: both write their data files once before anything is measured.
    let clusters = [Cluster::make_in(forebay, plan, "later")?, Cluster::make_in(&earlier.forebay, plan, "earlier")?];
    let mut rates: Vec<[Rates; 2]> = SHAPES.iter().map(|_| Default::default()).collect();
    let mut names: Vec<Vec<[OfNames; 2]>> =
        WORKLOADS.iter().map(|w| vec![Default::default(); w.phases.len()]).collect();
    let items = plan.size("2000", "200", "20");
    for number in 0..plan.size(2 * plan.rounds(), 1, 1) {
        for (rates, (_, shape)) in rates.iter_mut().zip(SHAPES) {
            // The order alternates.
            for which in [number % 2, 1 - number % 2] {
                let cluster = &clusters[which];
                let mounts = std::slice::from_ref(&cluster.mnt);
                // The programs are those of the later commit, so that both are measured alike.
                round(forebay, plan.size(shape[0], shape[1], shape[1]), mounts, Some(cluster), &mut rates[which])?;
            }
        }
        for (workload, entries_write_of) in WORKLOADS.iter().zip(&mut names) {
            for which in [number % 2, 1 - number % 2] {
                names_round(forebay, workload, items, &clusters[which], which, entries_write_of)?;
            }
        }
    }
    let name_rows: Vec<Vec<String>> =
        WORKLOADS.iter().zip(&names).flat_map(|(w, entries_write_of)| rows_of(w, entries_write_of)).collect();
    let names = [built_of(), commit.to_owned()];
    let row = |shape: &str, phase: &str, of: fn(&Rates) -> &Values, [later, earlier]: &[Rates; 2]| {
        let percent = of(later).percent_of(of(earlier)).show(0);
        vec![format!("{shape}: {phase}"), of(earlier).show(0), of(later).show(0), percent]
    };
    let rows: Vec<Vec<String>> = rates
        .iter()
        .zip(SHAPES)
        .flat_map(|(both, (shape, _))| {
            [row(shape, "write", |rates| &rates.write, both), row(shape, "read", |rates| &rates.read, both)]
        })
        .collect();
    let cpu: Vec<Vec<String>> = rates
        .iter()
        .zip(SHAPES)
        .flat_map(|(both, (shape, _))| [1, 0].map(|which| cpu_row(&format!("{shape}, {}", names[which]), &both[which])))
        .collect();
    let typed = SHAPES.map(|(_, shape)| {
        format!("forebay bench ior {} -N 4 -e -w -k MNT; ... -r MNT", plan.size(shape[0], shape[1], shape[1]).join(" "))
    });
    let mdtest = format!("forebay bench mdtest -N 4 -n {items} -F -u MNT   # -D: directories; without -u: shared");
    let typed: Vec<String> = typed.into_iter().chain([mdtest]).collect();
    let name_heads = ["operations per second", &names[1], &names[0], "%", "CPU µs each, mount and servers", "now"];
    Ok(format!(
        "{}\n{}\n{}\n{}",
        table(&["MiB/s", &names[1], &names[0], "%"], &rows),
        table(&CPU_HEADS, &cpu),
        table(&name_heads, &name_rows),
        commands(&typed)
    ))
}

/// One phase of a workload on names.
#[derive(Clone, Default)]
struct OfNames {
    rates: Values,
    /// CPU microseconds of mount and servers per operation.
    cpu: Values,
}

fn names_round(
    forebay: &Forebay,
    workload: &Workload,
    items: &str,
    cluster: &Cluster<'_>,
    which: usize,
    entries_write_of: &mut [[OfNames; 2]],
) -> Outcome {
    let pids = cluster.pids();
    let flags = [&["-n", items, "--cpu-of", &pids], workload.flags].concat();
    let measured = mdtest(forebay, PROCESSES, &flags, &cluster.mnt)?;
    for (phase, both) in workload.phases.iter().zip(entries_write_of) {
        both[which].rates.0.push(measured.value(phase)?);
        both[which].cpu.0.extend(measured.details(phase, "server_cpu_us_per_op")?.0);
    }
    Ok(())
}

fn rows_of<'a>(workload: &'a Workload, entries_write_of: &'a [[OfNames; 2]]) -> impl Iterator<Item = Vec<String>> + 'a {
    workload.phases.iter().zip(entries_write_of).map(|(phase, [later, earlier])| {
        vec![
            format!("{}, {}", phase.replace('-', " "), workload.name),
            earlier.rates.show(0),
            later.rates.show(0),
            later.rates.percent_of(&earlier.rates).show(0),
            earlier.cpu.show(0),
            later.cpu.show(0),
        ]
    })
}

/// Another commit's program, in a separate work tree. Dropping it removes the tree.
struct Earlier {
    source: std::path::PathBuf,
    forebay: Forebay,
}

impl Earlier {
    fn build(plan: &Plan, commit: &str) -> Outcome<Self> {
        let source = plan.dir.join("source");
        let add = ["worktree", "add", "--force", "--detach"];
        output(Command::new("git").args(add).arg(&source).arg(commit).current_dir(root()))?;
        let forebay = Forebay::at(&source.join("target/release/forebay"));
        let earlier = Self { source, forebay };
        eprintln!("   building {commit}");
        let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--release", "--quiet", "-p", "forebay-cli"]).current_dir(&earlier.source);
        output(build.env("CARGO_TARGET_DIR", earlier.source.join("target")))?;
        Ok(earlier)
    }
}

impl Drop for Earlier {
    fn drop(&mut self) {
        let remove = |source: &Path| {
            output(Command::new("git").args(["worktree", "remove", "--force"]).arg(source).current_dir(root()))
        };
        if let Err(error) = remove(&self.source) {
            eprintln!("xtask: {error}");
        }
    }
}
