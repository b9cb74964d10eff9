//! What the protection of connections costs: without keys, with integrity only, and encrypted.
//!
//! First over loopback TCP without a mount: client and server share this machine's processors, so a rate falls by all that
//! both sides do more. Then between two hosts (network namespaces), through a mount, as programs use it.

use super::{
    Outcome, Plan,
    forebay::{Forebay, Measured},
    site::Site,
    summary::{Values, commands, table},
};
use crate::hosts::{Apart, Protection, Rate, Wiring};

/// The kinds of connections, with the options of the benchmark.
const KINDS: [(&str, &[&str], Protection); 3] = [
    ("no keys", &[], Protection::None),
    ("integrity only", &["--integrity-only"], Protection::IntegrityOnly),
    ("encrypted", &["--tls"], Protection::Tls),
];
/// Cases of the benchmark: a server that stores nothing, and one with a store.
const CASES: [(&str, &str); 2] = [("network", "without a store"), ("netdisk", "with a store")];
const PHASES: [&str; 2] = ["write", "read"];

/// What a row between two hosts shows.
struct Job {
    phase: &'static str,
    /// Of the table.
    name: &'static str,
    /// The benchmark's name for the processor time of mount and servers, and its unit.
    cpu: (&'static str, &'static str),
}

/// In this order, each with a new mount, whose caches are empty.
const JOBS: [Job; 4] = [
    Job { phase: "write", name: "write, MiB/s", cpu: ("server_cpu_s_per_GiB", "s") },
    Job { phase: "read", name: "read, MiB/s", cpu: ("server_cpu_s_per_GiB", "s") },
    Job { phase: "file-create", name: "creates per second", cpu: ("server_cpu_us_per_op", "µs") },
    Job { phase: "file-stat", name: "stats per second", cpu: ("server_cpu_us_per_op", "µs") },
];
/// Those of rails: what is slow there is the wire.
const BULK: usize = 2;
/// Processes of the programs.
const PROCESSES: &str = "4";
/// A rail.
const RAIL: &str = "1gbit";

/// Rates and processor time of one kind of connections.
#[derive(Clone, Default)]
struct Cost {
    rates: Values,
    cpu: Values,
}

impl Cost {
    fn add(&mut self, measured: &Measured, phase: &str, cpu: &str) -> Outcome {
        self.rates.0.push(measured.value(phase)?);
        self.cpu.0.extend(measured.details(phase, cpu)?.0);
        Ok(())
    }

    /// The rate, what it is of the rate `of`, and the processor time.
    fn show(&self, of: &Self, digits: usize, unit: &str) -> String {
        let percent = self.rates.percent_of(&of.rates).median();
        format!("{} ({percent:.0} %), {:.digits$} {unit}", self.rates.show(0), self.cpu.median())
    }
}

/// Measures all kinds in turns, round by round.
pub fn measure(forebay: &Forebay, plan: &Plan) -> Outcome<String> {
    Ok([over_loopback(forebay, plan)?, between_hosts(forebay, plan)?, over_rails(forebay, plan)?].concat())
}

fn over_loopback(forebay: &Forebay, plan: &Plan) -> Outcome<String> {
    let mut rows = Vec::new();
    for (case, shown) in CASES {
        let mut costs = [(); PHASES.len()].map(|()| [(); KINDS.len()].map(|()| Cost::default()));
        for _ in 0..plan.rounds() {
            for (kind, (_, options, _)) in KINDS.into_iter().enumerate() {
                let measured =
                    forebay.bench(&arguments(plan, case, options)?.iter().map(String::as_str).collect::<Vec<_>>())?;
                for (costs, phase) in costs.iter_mut().zip(PHASES) {
                    costs[kind].add(&measured, phase, "cpu_s_per_GiB")?;
                }
            }
        }
        for (costs, phase) in costs.iter().zip(PHASES) {
            let cell = |cost: &Cost| cost.show(&costs[0], 2, "s");
            rows.push([format!("{phase}, {shown}")].into_iter().chain(costs.iter().map(cell)).collect());
        }
    }
    let head = ["MiB/s (% of no keys), CPU s per GiB of both sides", KINDS[0].0, KINDS[1].0, KINDS[2].0];
    let typed = KINDS.map(|(_, options, _)| {
        let options: String = options.iter().map(|option| format!(" {option}")).collect();
        format!(
            "forebay bench obdfilter-survey DIR --case network,netdisk --osts 1 --nobjhi 1 --thrlo 4 --thrhi 4{options}"
        )
    });
    Ok(format!("Requests of 1 MiB, four in flight, over loopback.\n\n{}\n{}", table(&head, &rows), commands(&typed)))
}

fn arguments(plan: &Plan, case: &str, options: &[&str]) -> Outcome<Vec<String>> {
    let dir = plan.dir.join("survey");
    let dir = dir.to_str().ok_or("--dir is not UTF-8")?;
    let size = plan.size("4GiB", "1GiB", "8MiB");
    let fixed =
        ["obdfilter-survey", dir, "--case", case, "--osts", "1", "--nobjhi", "1", "--thrlo", "4", "--thrhi", "4"];
    Ok(fixed.into_iter().chain(["--size", size]).chain(options.iter().copied()).map(str::to_owned).collect())
}

fn between_hosts(forebay: &Forebay, plan: &Plan) -> Outcome<String> {
    let mut costs = [(); KINDS.len()].map(|()| [(); JOBS.len()].map(|()| Cost::default()));
    for _ in 0..plan.rounds() {
        for ((_, _, protection), costs) in KINDS.into_iter().zip(&mut costs) {
            measure_jobs(&near(forebay, plan, protection, Wiring::plain(2))?, plan, costs)?;
        }
    }
    let row = |(number, job): (usize, &Job)| {
        let (unit, digits) = (job.cpu.1, if job.cpu.1 == "s" { 2 } else { 0 });
        let cells = costs.iter().map(|kind| kind[number].show(&costs[0][number], digits, unit));
        [job.name.to_owned()].into_iter().chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = JOBS.iter().enumerate().map(row).collect();
    let head =
        ["rate (% of no keys), CPU of mount and servers per GiB or operation", KINDS[0].0, KINDS[1].0, KINDS[2].0];
    let (block, items) = (block(plan), items(plan));
    let typed = [
        "cargo run --release -p xtask -- hosts 2   # up --listen on host 1; mount, ior and mdtest on host 2".to_owned(),
        format!("forebay bench ior -F -t 1MiB -b {block} -N {PROCESSES} -e -w -k MNT; ... -r MNT"),
        format!("forebay bench mdtest -N {PROCESSES} -n {items} -F -u -C MNT; ... -T MNT"),
    ];
    Ok(format!(
        "\nThe same through a mount, with servers and mount on a host each: network namespaces of this machine. Without keys \
         Forebay\nuses loopback addresses only. For that column the hosts have some that are routed between them, so all \
         three cross the\nsame wire. Four processes; each phase has a new mount.\n\n{}\n{}",
        table(&head, &rows),
        commands(&typed)
    ))
}

/// One rail and two, encrypted.
fn over_rails(forebay: &Forebay, plan: &Plan) -> Outcome<String> {
    let rate: Rate = RAIL.parse()?;
    let mut costs = [(); 2].map(|()| [(); BULK].map(|()| Cost::default()));
    for _ in 0..plan.rounds() {
        for (rails, costs) in (1..).zip(&mut costs) {
            let wiring = Wiring { hosts: 2, rails, rate: Some(rate) };
            measure_jobs(&near(forebay, plan, Protection::Tls, wiring)?, plan, costs)?;
        }
    }
    let row = |number: usize| {
        let cells = costs.iter().map(|rails| rails[number].show(&costs[0][number], 2, "s"));
        [JOBS[number].name.to_owned()].into_iter().chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = (0..BULK).map(row).collect();
    let head = ["rate (% of one rail), CPU of mount and servers per GiB", "one rail of 1 Gb/s", "two rails"];
    let typed = [format!("cargo run --release -p xtask -- hosts 2 --rails 2 --rate {RAIL}")];
    Ok(format!(
        "\nEncrypted, on hosts whose interfaces send and receive 1 Gb/s each. With two rails each server listens at an \
         address on each.\n\n{}\n{}",
        table(&head, &rows),
        commands(&typed)
    ))
}

fn block(plan: &Plan) -> &'static str {
    plan.size("512MiB", "128MiB", "4MiB")
}

fn items(plan: &Plan) -> &'static str {
    plan.size("4000", "1000", "20")
}

fn near<'a>(forebay: &'a Forebay, plan: &Plan, protection: Protection, wiring: Wiring) -> Outcome<Site<'a>> {
    Site::make(forebay, plan, |dir| Apart::wired(dir, protection, wiring))
}

/// Measures as many jobs as there are costs.
fn measure_jobs(site: &Site<'_>, plan: &Plan, costs: &mut [Cost]) -> Outcome {
    let (block, items) = (block(plan), items(plan));
    for (job, cost) in JOBS.iter().zip(costs) {
        let ior = ["ior", "-F", "-t", "1MiB", "-b", block, "-N", PROCESSES, "-e"];
        let names = ["mdtest", "-N", PROCESSES, "-n", items, "-F", "-u"];
        let measured = site.bench(&match job.phase {
            "write" => [&ior[..], &["-w", "-k"]].concat(),
            "read" => [&ior[..], &["-r"]].concat(),
            "file-create" => [&names[..], &["-C"]].concat(),
            _ => [&names[..], &["-T"]].concat(),
        })?;
        cost.add(&measured, job.phase, job.cpu.0)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_has_the_rate_its_share_of_the_plain_one_and_the_processor_time() {
        let cost = |rate: f64, cpu: f64| Cost { rates: Values(vec![rate; 3]), cpu: Values(vec![cpu; 3]) };
        let (plain, tls) = (cost(200.0, 0.5), cost(90.0, 1.25));
        assert!(tls.show(&plain, 2, "s").ends_with("(45 %), 1.25 s"), "{}", tls.show(&plain, 2, "s"));
        assert!(plain.show(&plain, 0, "µs").contains("(100 %)"));
    }
}
