//! `xtask hosts`: hosts on this machine, to try a cluster over several.
//!
//! Other commands have hosts of their own: [`Hosts`] go when they are dropped. [`Apart`] is a cluster on them.

mod apart;
#[path = "../../../crates/cli/src/demo/hosts.rs"]
mod namespaces;

use clap::Args;

use crate::figures::Outcome;
pub use apart::{Apart, Protection};
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
    /// Remove the hosts again, and those that commands have left that were killed
    #[arg(long, conflicts_with_all = ["hosts", "rails", "rate"])]
    remove: bool,
}

/// Makes the hosts, or removes them.
pub fn run(plan: &Plan) -> Outcome {
    let Some(count) = plan.hosts else { return remove() };
    if let Some(name) = namespaces::existing(PREFIX).first() {
        return Err(format!("{name} is there already: `xtask hosts --remove` removes all of them"));
    }
    let wiring = Wiring { hosts: count.into(), rails: plan.rails.into(), rate: plan.rate };
    let hosts = Hosts::make(PREFIX, wiring)?;
    for host in 1..=wiring.hosts {
        let addresses: Vec<String> = (0..wiring.rails).map(|rail| address(rail, host)).collect();
        println!("{}: {}", hosts.name(host), addresses.join(" "));
    }
    let (first, last) = (hosts.name(1), hosts.name(wiring.hosts));
    println!("{}", wiring.rate.map_or_else(String::new, |rate| format!("each interface sends and receives {rate}\n")));
    println!("On a host: nsenter --net=/run/netns/{first} COMMAND");
    println!("(or `ip netns exec {first} COMMAND`, but what a command mounts there is seen by that command alone)\n");
    println!("nsenter --net=/run/netns/{first} forebay up DIR --no-mount --listen {}:4500", address(0, 1));
    println!("nsenter --net=/run/netns/{first} forebay token new DIR --role client");
    println!("nsenter --net=/run/netns/{last} forebay mount {}:4500 MNT --token TOKEN\n", address(0, 1));
    println!("Remove them: cargo run --release -p xtask -- hosts --remove");
    hosts.keep();
    Ok(())
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
