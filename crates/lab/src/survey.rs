//! obdfilter-survey: threads on the servers write to the OSTs without a network in between.
//!
//! Thread counts are over all OSTs, and the threads are assigned to OSTs in turn. Each thread appends transfers of 1
//! MiB to its own object, one at a time. It uses the client's session code over the server's loopback.

use std::rc::Rc;

use forebay_env::sim::{CpuCosts, Sim};
use forebay_proto::{
    Fid, FidSequence, TargetId, Uuid, WriteId,
    message::{ObjectRef, WriteObject},
};
use forebay_rpc::{Call, ClientSession, PinBudget, SessionOptions};

use super::{
    Machine, Mode, Outcome, Window,
    payload::{TRANSFER_BYTES, Zeros},
    site::{Load, MdtPlace, Meter, Site},
};

/// Pins take no memory here, and the servers' own threads pin nothing.
const PINS_BYTES: u64 = 1 << 40;

/// Measures one point: `threads` threads for the window. Errors: text for the user.
pub fn survey(
    machine: &Machine,
    mode: Mode,
    costs: &CpuCosts,
    threads: u32,
    window: Window,
    seed: u64,
) -> Result<Outcome, String> {
    let sim = Sim::new(seed);
    sim.block_on(async {
        let site = Site::build(&sim, machine, mode, costs, MdtPlace::Nowhere).await?;
        let (meter, zeros) = (Meter::default(), Zeros::new());
        let osts = site.osts.len() as u32;
        let mut loads = Vec::new();
        for (index, ost) in (0..osts).zip(&site.osts) {
            let own = threads / osts + u32::from(index < threads % osts);
            if own == 0 {
                continue;
            }
            let env = sim.env(ost.node);
            let client = Uuid::from_random(sim.random_u64(), sim.random_u64());
            let options = SessionOptions {
                cluster: site.uuid,
                target: TargetId::ost(index),
                resolve: Rc::new(vec![ost.address.clone()]),
                client,
                description: "obdfilter-survey".into(),
                pins: PinBudget::new(PINS_BYTES),
            };
            let session = ClientSession::start(&env, options);
            session.ready().await.map_err(|e| e.to_string())?;
            let load = Load::new(&env);
            for thread in 0..own {
                let object =
                    Rc::new(Thread { session: session.clone(), fid: fid(thread), zeros: zeros.clone(), client });
                let meter = meter.clone();
                load.repeat(move |number| {
                    let (object, meter) = (object.clone(), meter.clone());
                    async move {
                        object.append(number, mode).await?;
                        meter.replied(TRANSFER_BYTES);
                        Ok(())
                    }
                });
            }
            loads.push(load);
        }
        let outcome = site.measure(&meter, window).await;
        loads.iter().try_for_each(Load::check)?;
        Ok(outcome)
    })
}

fn fid(thread: u32) -> Fid {
    Fid::new(0, FidSequence(1000), thread)
}

struct Thread {
    session: ClientSession,
    fid: Fid,
    zeros: Zeros,
    client: Uuid,
}

impl Thread {
    async fn append(&self, number: u64, mode: Mode) -> Result<(), String> {
        let offset = number * TRANSFER_BYTES;
        let low = u64::from_le_bytes(self.client.0[..8].try_into().expect("eight of sixteen bytes"));
        let write_id = WriteId { client: low, sequence: self.fid.low << 32 | number };
        let request = WriteObject {
            object: ObjectRef { fid: self.fid, layout_generation: 1, truncate_epoch: 0 },
            offset,
            length: TRANSFER_BYTES as u32,
            write_id,
            sums: self.zeros.sums(self.fid, offset, write_id),
            file_bytes: offset + TRANSFER_BYTES,
            attr_epoch: 0,
            granted_bytes: 0,
        };
        let call = Call { bulk: vec![self.zeros.bytes()], ..Call::level(mode.level) };
        self.session.call(&request, call).await.map(drop).map_err(|e| e.to_string())
    }
}
