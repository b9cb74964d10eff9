//! One program, or two, on a host that is far from the servers: what they reach of the line between.

use std::time::Duration;

use super::{
    Outcome, Plan,
    forebay::Forebay,
    site::Site,
    summary::{Values, commands, table},
};
use crate::hosts::{Apart, Distance};

/// A line between the hosts.
struct Line {
    name: &'static str,
    rate: &'static str,
    round_trip: Duration,
    loss: f64,
}

const NEAR: Duration = Duration::from_micros(100);
const FAR: Duration = Duration::from_millis(19);

const LINES: [Line; 4] = [
    Line { name: "2 Gb/s, near", rate: "2gbit", round_trip: NEAR, loss: 0.0 },
    Line { name: "2 Gb/s, 19 ms", rate: "2gbit", round_trip: FAR, loss: 0.0 },
    Line { name: "the same, 0.1 % of packets lost", rate: "2gbit", round_trip: FAR, loss: 0.001 },
    Line { name: "1 Gb/s, 19 ms", rate: "1gbit", round_trip: FAR, loss: 0.0 },
];

/// What programs do: the number of programs, each with a file, and the bytes of a call.
const PROGRAMS: [(&str, &str, &str); 3] =
    [("one file, 1 MiB", "1", "1MiB"), ("one file, 64 KiB", "1", "64KiB"), ("two files, 1 MiB", "2", "1MiB")];
const PHASES: [(&str, &[&str]); 2] = [("write", &["-w", "-k"]), ("read", &["-r"])];

/// Measures all lines in turns, round by round.
pub fn measure(forebay: &Forebay, plan: &Plan) -> Outcome<String> {
    let mut rates = [(); PROGRAMS.len() * PHASES.len()].map(|()| [(); LINES.len()].map(|()| Values::default()));
    let block = plan.size("1GiB", "256MiB", "4MiB");
    for _ in 0..plan.rounds() {
        for (number, line) in LINES.iter().enumerate() {
            let distance = Distance { round_trip: line.round_trip, rate: Some(line.rate.parse()?), loss: line.loss };
            let site = Site::make(forebay, plan, |dir| Apart::far(dir, distance))?;
            for (row, ((_, processes, transfer), (phase, options))) in rates.iter_mut().zip(rows()) {
                let ior = ["ior", "-F", "-t", transfer, "-b", block, "-N", processes, "-e"];
                row[number].0.push(site.bench(&[&ior[..], options].concat())?.value(phase)?);
            }
        }
    }
    let shown = |(rates, ((name, _, _), (phase, _))): (&[Values; LINES.len()], (_, (&str, _)))| {
        let cells = rates.iter().zip(&LINES).map(|(rates, line)| cell(rates, line));
        [format!("{phase}, {name}")].into_iter().chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = rates.iter().zip(rows()).map(shown).collect();
    let head: Vec<&str> = ["MiB/s (% of the line)"].into_iter().chain(LINES.iter().map(|line| line.name)).collect();
    let typed = [
        "cargo run --release -p xtask -- hosts 2 --round-trip 19ms --rate 2gbit   # up --listen on host 1, the mount on host 2".to_owned(),
        format!("forebay bench ior -F -t 1MiB -b {block} -N 1 -e -w -k MNT; ... -r MNT"),
    ];
    Ok(format!(
        "Encrypted, one OST, nothing set by hand. A process of this machine holds packets for half of the round trip, and its two \
         cores do\nthe work of program, mount, server and line. Each phase has a new mount.\n\n{}\n{}",
        table(&head, &rows),
        commands(&typed)
    ))
}

/// The rows of the table.
fn rows() -> impl Iterator<Item = ((&'static str, &'static str, &'static str), (&'static str, &'static [&'static str]))>
{
    PROGRAMS.into_iter().flat_map(|program| PHASES.into_iter().map(move |phase| (program, phase)))
}

fn cell(rates: &Values, line: &Line) -> String {
    let bits = line
        .rate
        .strip_suffix("gbit")
        .and_then(|number| number.parse::<f64>().ok())
        .map_or(f64::NAN, |number| number * 1e9);
    let percent = rates.median() * f64::from(1 << 20) * 8.0 / bits * 100.0;
    format!("{} ({percent:.0} %)", rates.show(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_has_the_part_of_the_line_that_is_used() {
        assert_eq!(cell(&Values(vec![119.2]), &LINES[3]), "119 (100 %)");
        assert_eq!(cell(&Values(vec![119.2]), &LINES[1]), "119 (50 %)");
    }
}
