//! IOR: every client appends to its own file, then reads it, through the real client. Each file has one OST; OSTs are
//! assigned in turn.
//!
//! A client has as many transfers in flight as its limit of requests to one OST, as through a page cache.

use std::{cell::Cell, rc::Rc};

use forebay_client::{Client, LayoutSpec, MountOptions, OpenMode};
use forebay_env::sim::{CpuCosts, Sim};
use forebay_proto::{Fid, message::Caller};

use super::{
    Machine, Mode, Outcome, Window,
    payload::{TRANSFER_BYTES, Zeros},
    room,
    site::{Load, MdtPlace, Meter, Site},
};

/// Bytes that a client may pin; they take no memory here. The nodes of a real site have several GiB for it.
const PIN_BYTES: u64 = 4 << 30;

/// Results of IOR.
#[derive(Clone, Copy, Debug)]
pub struct Ior {
    /// The write phase.
    pub write: Outcome,
    /// The read phase, if it was requested.
    pub read: Option<Outcome>,
}

/// Runs the experiment. Errors: text for the user.
pub fn ior(
    machine: &Machine,
    mode: Mode,
    costs: &CpuCosts,
    window: Window,
    read: bool,
    seed: u64,
) -> Result<Ior, String> {
    room::check(machine, room::of_window(machine, window), "a shorter --window")?;
    let sim = Sim::new(seed);
    sim.block_on(async {
        let site = Site::build(&sim, machine, mode, costs, MdtPlace::Aside).await?;
        let (writes, reads, zeros) = (Meter::default(), Meter::default(), Zeros::new());
        let mut loads = Vec::new();
        let reading = Rc::new(Cell::new(false));
        for number in 0..machine.clients.nodes.count() {
            let node = site.add_node(machine, &format!("client{number}"), machine.clients.cores.count());
            let env = sim.env(node);
            let options = MountOptions {
                level: mode.level,
                description: "ior".into(),
                pin_bytes: PIN_BYTES,
                rpcs_in_flight: machine.clients.rpcs_in_flight.count() as usize,
                // What is measured is what servers take: a write counts when its OST has replied.
                write_back_bytes: 0,
                read_cache_bytes: 0,
                ..MountOptions::new(vec![site.mgs.clone()])
            };
            let client = Client::mount(&env, options).await.map_err(|e| e.to_string())?;
            let stripe_index = number % site.osts.len() as u32;
            let layout = LayoutSpec { stripe_count: 1, stripe_index, ..LayoutSpec::inherit() };
            let name = format!("ior.{number:08}");
            let caller = Caller { uid: 0, gid: 0, groups: Vec::new() };
            let made = client.create(&caller, Fid::ROOT, name.as_bytes(), 0o644, OpenMode::READ_WRITE, layout).await;
            let (_, file) = made.map_err(|e| e.to_string())?;
            let load = Load::new(&env);
            let (next, next_read) = (Rc::new(Cell::new(0u64)), Rc::new(Cell::new(0u64)));
            for _ in 0..machine.clients.rpcs_in_flight.count() {
                let (client, file, next, zeros) = (client.clone(), file.clone(), next.clone(), zeros.clone());
                let (writes, reads, next_read) = (writes.clone(), reads.clone(), next_read.clone());
                let reading = reading.clone();
                load.repeat(move |_| {
                    let (client, file, zeros) = (client.clone(), file.clone(), zeros.clone());
                    let (writes, reads) = (writes.clone(), reads.clone());
                    let reads_now = reading.get();
                    let place = if reads_now { &next_read } else { &next };
                    let offset = place.get();
                    place.set(offset + TRANSFER_BYTES);
                    let end = next.get();
                    async move {
                        if !reads_now {
                            client.write(&file, offset, zeros.bytes()).await.map_err(|e| e.to_string())?;
                            writes.replied(TRANSFER_BYTES);
                        } else if offset < end {
                            let read = client.read_parts(&file, offset, TRANSFER_BYTES as usize).await;
                            read.map_err(|e| e.to_string())?;
                            reads.replied(TRANSFER_BYTES);
                        } else {
                            std::future::pending::<()>().await;
                        }
                        Ok(())
                    }
                });
            }
            loads.push(load);
        }
        let write = site.measure(&writes, window).await;
        let read = if read {
            reading.set(true);
            let short = Window { warm_up: window.warm_up / 4, length: window.length / 2 };
            Some(site.measure(&reads, short).await)
        } else {
            None
        };
        loads.iter().try_for_each(Load::check)?;
        let phases = [("written", Some(&write), window.length), ("read", read.as_ref(), window.length / 2)];
        for (phase, outcome, length) in phases {
            if outcome.is_some_and(|outcome| outcome.writes == 0) {
                return Err(format!("no transfer of 1 MiB was {phase} within {length:?}: give a longer --window"));
            }
        }
        Ok(Ior { write, read })
    })
}
