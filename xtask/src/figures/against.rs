//! This commit and an earlier one, both built here, through a mount of each, in turns: what has become slower?

use std::{path::Path, process::Command};

use super::{
    Outcome, Plan, ROUNDS,
    cluster::Cluster,
    forebay::{Forebay, root},
    machine::built_of,
    mount::{CPU_HEADS, Rates, cpu_row, round},
    process::output,
    summary::{Values, commands, table},
};

/// A shape of `bench ior`, by name, whole and with --quick.
const SHAPES: [(&str, [&[&str]; 2]); 2] = [
    ("file per process", [&["-F", "-t", "1MiB", "-b", "512MiB"], &["-F", "-t", "1MiB", "-b", "128MiB"]]),
    (
        "shared file of 47,008 byte records",
        [&["-t", "47008", "-b", "47008", "-s", "11422"], &["-t", "47008", "-b", "47008", "-s", "2855"]],
    ),
];

/// All rounds, as two tables.
pub fn measure(forebay: &Forebay, plan: &Plan) -> Outcome<String> {
    let earlier = Earlier::build(plan)?;
    // The later one first: both write their data files once before anything is measured.
    let clusters = [Cluster::make_in(forebay, plan, "later")?, Cluster::make_in(&earlier.forebay, plan, "earlier")?];
    let mut rates: Vec<[Rates; 2]> = SHAPES.iter().map(|_| Default::default()).collect();
    for number in 0..plan.size(2 * ROUNDS, 1) {
        for (rates, (_, shape)) in rates.iter_mut().zip(SHAPES) {
            // Who is first changes.
            for which in [number % 2, 1 - number % 2] {
                let cluster = &clusters[which];
                let mounts = std::slice::from_ref(&cluster.mnt);
                // The programs are those of the later one, so that what is measured is alike.
                round(forebay, plan.size(shape[0], shape[1]), mounts, Some(cluster), &mut rates[which])?;
            }
        }
    }
    let names = [built_of(), plan.against.clone()];
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
        format!("forebay bench ior {} -N 4 -e -w -k MNT; ... -r MNT", plan.size(shape[0], shape[1]).join(" "))
    });
    Ok(format!(
        "{}\n{}\n{}",
        table(&["MiB/s", &names[1], &names[0], "%"], &rows),
        table(&CPU_HEADS, &cpu),
        commands(&typed)
    ))
}

/// Another commit's program, in a work tree of its own. Dropping it takes that away.
struct Earlier {
    source: std::path::PathBuf,
    forebay: Forebay,
}

impl Earlier {
    fn build(plan: &Plan) -> Outcome<Self> {
        let source = plan.dir.join("source");
        let add = ["worktree", "add", "--force", "--detach"];
        output(Command::new("git").args(add).arg(&source).arg(&plan.against).current_dir(root()))?;
        let forebay = Forebay::at(&source.join("target/release/forebay"));
        let earlier = Self { source, forebay };
        eprintln!("   building {}", plan.against);
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
