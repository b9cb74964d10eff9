//! `xtask hosts`: hosts on this machine, to try a cluster over several.
//!
//! Other commands have hosts of their own: [`Hosts`] go when they are dropped. [`Apart`] is a cluster on them.

mod apart;
mod distance;
#[path = "../../../crates/cli/src/demo/hosts.rs"]
mod namespaces;

use std::time::Duration;

use clap::Args;

use crate::figures::Outcome;
pub use apart::{Apart, Protection};
pub use distance::{Distance, Lines};
pub use namespaces::{Hosts, Rate, Wiring, address};

/// What the names of the hosts of this command begin with. Those of others have their process's number besides.
const PREFIX: &str = "fb";

/// Make hosts on this machine, to try a cluster over several: network namespaces with a switch between them. Needs root
#[derive(Args)]
pub struct Plan {
    /// How many; host 1 has the address 10.77.0.1
    #[arg(value_name = "N", required_unless_present = "remove", value_parser = clap::value_parser!(u16).range(1..=namespaces::MOST_HOSTS as i64))]
    hosts: Option<u16>,
    /// Interfaces of each host, in subnets of their own: host 2 has 10.77.1.2 on the second
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=namespaces::MOST_RAILS as i64))]
    rails: u16,
    /// What each interface can send and receive, as 1gbit or 100mbit [default: as much as this machine can]
    #[arg(long)]
    rate: Option<Rate>,
    /// Put them so far from each other, as 19ms: a packet takes half of that. This command then goes on until it is interrupted, and
    /// removes the hosts
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "rails")]
    round_trip: Option<Duration>,
    /// With --round-trip, the part of packets that is lost, as 0.001
    #[arg(long, requires = "round_trip", default_value_t = 0.0)]
    loss: f64,
    /// Remove the hosts again, and those that commands have left that were killed
    #[arg(long, conflicts_with_all = ["hosts", "rails", "rate", "round_trip"])]
    remove: bool,
}

/// Makes the hosts, or removes them.
pub fn run(plan: &Plan) -> Outcome {
    let Some(count) = plan.hosts else { return remove() };
    if let Some(name) = namespaces::existing(PREFIX).first() {
        return Err(format!("{name} is there already: `xtask hosts --remove` removes all of them"));
    }
    let (count, rails) = (usize::from(count), usize::from(plan.rails));
    let far = plan.round_trip.map(|round_trip| Distance { round_trip, rate: plan.rate, loss: plan.loss });
    let wiring =
        if far.is_some() { Wiring::without_rails(count) } else { Wiring { hosts: count, rails, rate: plan.rate } };
    let hosts = Hosts::make(PREFIX, wiring)?;
    // Before there are other threads, which have the same mask.
    let signals = far.is_some().then(block_signals);
    let lines = far.map(|distance| Lines::between(&hosts, count, distance)).transpose()?;
    for host in 1..=count {
        let addresses: Vec<String> = (0..rails).map(|rail| address(rail, host)).collect();
        println!("{}: {}", hosts.name(host), addresses.join(" "));
    }
    let (first, last) = (hosts.name(1), hosts.name(count));
    println!("{}", plan.rate.map_or_else(String::new, |rate| format!("each interface sends and receives {rate}\n")));
    println!("On a host: nsenter --net=/run/netns/{first} COMMAND");
    println!("(or `ip netns exec {first} COMMAND`, but what a command mounts there is seen by that command alone)\n");
    println!("nsenter --net=/run/netns/{first} forebay up DIR --no-mount --listen {}:4500", address(0, 1));
    println!("nsenter --net=/run/netns/{first} forebay token new DIR --role client");
    println!("nsenter --net=/run/netns/{last} forebay mount {}:4500 MNT --token TOKEN\n", address(0, 1));
    match lines.zip(signals) {
        None => {
            println!("Remove them: cargo run --release -p xtask -- hosts --remove");
            hosts.keep();
        }
        Some((lines, signals)) => {
            println!("Ctrl-C removes them.");
            // SAFETY: both live across the call.
            unsafe { libc::sigwait(&raw const signals, &mut 0) };
            let (dropped, latest) = lines.report();
            println!("\n{dropped} packets were dropped; the latest came {latest:.1?} after it was due");
        }
    }
    Ok(())
}

/// Keeps the signals that end a process for sigwait(3).
fn block_signals() -> libc::sigset_t {
    // SAFETY: the calls use memory of this stack; the mask is that of this thread, and of those that it starts.
    unsafe {
        let mut signals = std::mem::zeroed();
        libc::sigemptyset(&raw mut signals);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(&raw mut signals, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut());
        signals
    }
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number = digits.parse::<f64>().ok().filter(|number| (0.0..1e6).contains(number));
    let seconds = match &text[digits.len()..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => f64::NAN,
    };
    let time = number.and_then(|number| Duration::try_from_secs_f64(number * seconds).ok());
    time.ok_or_else(|| format!("'{text}' is not a time: give one as 19ms, 200us or 1s"))
}

fn remove() -> Outcome {
    if let Some(why) = namespaces::why_none() {
        return Err(why);
    }
    let names = [namespaces::existing(PREFIX), namespaces::abandoned(PREFIX)].concat();
    for name in &names {
        let processes = namespaces::processes(name);
        namespaces::remove(name)?;
        if !processes.is_empty() {
            let numbers: Vec<String> = processes.iter().map(u32::to_string).collect();
            println!("{name}: removed; these processes were on it, and go on without a network: {}", numbers.join(" "));
        }
    }
    println!("{} namespaces are removed", names.len());
    Ok(())
}
