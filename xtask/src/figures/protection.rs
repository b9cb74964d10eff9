//! What the protection of connections costs: without keys, with integrity only, and encrypted, over loopback TCP.
//!
//! Client and server share this machine's processors, so a rate falls by all that both sides do more.

use super::{
    Outcome, Plan,
    forebay::Forebay,
    summary::{Values, commands, table},
};

/// The kinds of connections, with the options of the benchmark.
const KINDS: [(&str, &[&str]); 3] =
    [("no keys", &[]), ("integrity only", &["--integrity-only"]), ("encrypted", &["--tls"])];
/// Cases of the benchmark: a server that stores nothing, and one with a store.
const CASES: [(&str, &str); 2] = [("network", "without a store"), ("netdisk", "with a store")];
const PHASES: [&str; 2] = ["write", "read"];

/// Rates and processor time of one kind of connections.
#[derive(Clone, Default)]
struct Cost {
    rates: Values,
    cpu: Values,
}

/// Measures all kinds in turns, round by round.
pub fn measure(forebay: &Forebay, plan: &Plan) -> Outcome<String> {
    let mut rows = Vec::new();
    for (case, shown) in CASES {
        let mut costs = [(); PHASES.len()].map(|()| [(); KINDS.len()].map(|()| Cost::default()));
        for _ in 0..plan.rounds() {
            for (kind, (_, options)) in KINDS.into_iter().enumerate() {
                let measured =
                    forebay.bench(&arguments(plan, case, options)?.iter().map(String::as_str).collect::<Vec<_>>())?;
                for (costs, phase) in costs.iter_mut().zip(PHASES) {
                    costs[kind].rates.0.push(measured.value(phase)?);
                    costs[kind].cpu.0.extend(measured.details(phase, "cpu_s_per_GiB")?.0);
                }
            }
        }
        for (costs, phase) in costs.iter().zip(PHASES) {
            let plain = &costs[0];
            let cell = |cost: &Cost| {
                let of_plain = cost.rates.percent_of(&plain.rates).median();
                format!("{} ({of_plain:.0} %), {:.2} s", cost.rates.show(0), cost.cpu.median())
            };
            rows.push([format!("{phase}, {shown}")].into_iter().chain(costs.iter().map(cell)).collect());
        }
    }
    let head = ["MiB/s (% of no keys), CPU s per GiB of both sides", KINDS[0].0, KINDS[1].0, KINDS[2].0];
    let typed = KINDS.map(|(_, options)| {
        let options: String = options.iter().map(|option| format!(" {option}")).collect();
        format!(
            "forebay bench obdfilter-survey DIR --case network,netdisk --osts 1 --nobjhi 1 --thrlo 4 --thrhi 4{options}"
        )
    });
    Ok(format!("Requests of 1 MiB, four in flight.\n\n{}\n{}", table(&head, &rows), commands(&typed)))
}

fn arguments(plan: &Plan, case: &str, options: &[&str]) -> Outcome<Vec<String>> {
    let dir = plan.dir.join("survey");
    let dir = dir.to_str().ok_or("--dir is not UTF-8")?;
    let size = plan.size("4GiB", "1GiB", "8MiB");
    let fixed =
        ["obdfilter-survey", dir, "--case", case, "--osts", "1", "--nobjhi", "1", "--thrlo", "4", "--thrhi", "4"];
    Ok(fixed.into_iter().chain(["--size", size]).chain(options.iter().copied()).map(str::to_owned).collect())
}
