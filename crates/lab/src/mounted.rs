//! Predicts `bench ior` on one machine: programs, a mount with the client library, and the servers, all on the same
//! cores.
//!
//! A program writes (reads) one transfer at a time. Three things are modelled:
//! - the kernel and the FUSE layer, by their costs (see [`Mount`]);
//! - a sleeping thread, by the time until it runs;
//! - the kernel's lock of a file, by an [`RwSem`]: exclusive for a write past the end, shared otherwise.
//!
//! Everything behind the mount is the production code.

use std::{cell::Cell, rc::Rc, time::Duration};

use bytes::Bytes;
use forebay_client::{
    Client, ClientResult, LayoutSpec, MountOptions, OpenFile, OpenMode,
    limits::{BUFFERED_WRITE_BYTES, CACHED_READ_BYTES},
};
use forebay_env::{
    AlignedBuf, Env,
    sim::{CpuCosts, NodeId, Sim},
};
use forebay_proto::{Errno, Fid, message::Caller};

use super::{
    Machine, Mode, Param, room,
    rwsem::RwSem,
    sections::Mount,
    site::{MdtPlace, Site},
};

/// Size of the kernel's read request.
const READ_REQUEST_BYTES: usize = 80;

/// Access pattern of the programs, as `bench ior`'s flags define it.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    /// Name of its row in the tables.
    pub name: &'static str,
    /// Bytes of a transfer (`-t`).
    pub transfer_bytes: u64,
    /// Transfers per program.
    pub transfers: u64,
    /// All programs write interleaved transfers to one file; otherwise each has its own file.
    pub shared: bool,
}

/// The two patterns that docs/benchmarks.md measures, with the same sizes.
pub const PATTERNS: [Pattern; 2] = [
    Pattern { name: "file per process", transfer_bytes: 1 << 20, transfers: 512, shared: false },
    Pattern { name: "shared file", transfer_bytes: 47_008, transfers: 11_422, shared: true },
];

impl Pattern {
    /// Most bytes written to one OST.
    fn of_ost(&self, programs: u32, osts: u32) -> u64 {
        let writers = if self.shared { programs } else { programs.div_ceil(osts) };
        u64::from(writers) * self.transfers * self.transfer_bytes
    }

    /// File offset of transfer `number` of program `rank`.
    fn offset(&self, programs: u64, rank: u64, number: u64) -> u64 {
        let place = if self.shared { number * programs + rank } else { number };
        place * self.transfer_bytes
    }
}

/// The predicted rates of a pattern.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    /// Name of the pattern.
    pub name: &'static str,
    /// 10^6 bytes a second, from the first write to the last fsync and close.
    pub write_mb_s: f64,
    /// The same for reading everything, with nothing in any cache.
    pub read_mb_s: f64,
}

/// Runs a pattern. The costs of the kernel and the FUSE layer are multiplied by `cpu_factor`. Errors: text for the
/// user.
pub fn mounted(
    machine: &Machine,
    mode: Mode,
    (costs, cpu_factor): (&CpuCosts, f64),
    pattern: Pattern,
    seed: u64,
) -> Result<Predicted, String> {
    let mount = machine.mount.as_ref().ok_or("the machine has no section [mount]")?;
    let bytes = (u64::from(mount.programs.count()) * pattern.transfers * pattern.transfer_bytes) as f64;
    room::check(machine, pattern.of_ost(mount.programs.count(), machine.osts()), "")?;
    let sim = Sim::new(seed);
    sim.block_on(async {
        let site = Site::build(&sim, machine, mode, costs, MdtPlace::Aside).await?;
        let mut rates = [0.0; 2];
        // Read through a new mount, which has nothing cached.
        for (rate, reading) in rates.iter_mut().zip([false, true]) {
            let mounted = Mounted::start(&site, machine, mode).await?;
            let programs = mounted.programs(&site, mount, (pattern, cpu_factor), reading).await?;
            let begun = sim.now();
            run(programs).await?;
            *rate = bytes / 1e6 / sim.now().since(begun).as_secs_f64();
            mounted.client.unmount().await.map_err(|e| e.to_string())?;
        }
        let [write_mb_s, read_mb_s] = rates;
        Ok(Predicted { name: pattern.name, write_mb_s, read_mb_s })
    })
}

/// Runs all programs to their end.
async fn run(programs: Vec<Program>) -> Result<(), String> {
    let start = |program: Program| program.env.clone().spawn(async move { program.run().await });
    let under_way: Vec<_> = programs.into_iter().map(start).collect();
    for program in under_way {
        program.await.ok_or("a program ended without a word")?.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// A mount.
#[derive(Clone)]
struct Mounted {
    sim: Sim,
    node: NodeId,
    env: Env,
    client: Client,
}

impl Mounted {
    async fn start(site: &Site, machine: &Machine, mode: Mode) -> Result<Self, String> {
        let node = site.add_node(machine, "mount", 1);
        let env = site.sim.env(node);
        let options = MountOptions {
            level: mode.level,
            description: "mount".into(),
            rpcs_in_flight: machine.clients.rpcs_in_flight.count() as usize,
            ..MountOptions::new(vec![site.mgs.clone()])
        };
        let client = Client::mount(&env, options).await.map_err(|e| e.to_string())?;
        Ok(Self { sim: site.sim.clone(), node, env, client })
    }

    /// The programs, with their files open.
    async fn programs(
        &self,
        site: &Site,
        costs: &Mount,
        (pattern, cpu_factor): (Pattern, f64),
        reading: bool,
    ) -> Result<Vec<Program>, String> {
        let bytes = AlignedBuf::zeroed(pattern.transfer_bytes.next_multiple_of(4096) as usize).freeze();
        let bytes = bytes.slice(..pattern.transfer_bytes as usize);
        let (inode, file_end) = (Rc::<RwSem>::default(), Rc::<Cell<u64>>::default());
        let mut programs = Vec::new();
        for rank in 0..u64::from(costs.programs.count()) {
            let name = if pattern.shared { "ior".to_owned() } else { format!("ior.{rank:08}") };
            let is_made = reading || (pattern.shared && rank > 0);
            let stripe_index = (rank % site.osts.len() as u64) as u32;
            let file = self.open(name.as_bytes(), is_made, reading, stripe_index).await.map_err(|e| e.to_string())?;
            programs.push(Program {
                env: site.sim.env(site.add_program(costs, &format!("program {rank}"))),
                mount: self.clone(),
                file,
                costs: costs.clone(),
                cpu_factor,
                pattern,
                rank,
                reading,
                inode: if pattern.shared { inode.clone() } else { Rc::default() },
                file_end: if pattern.shared { file_end.clone() } else { Rc::default() },
                bytes: bytes.clone(),
            });
        }
        Ok(programs)
    }

    async fn open(&self, name: &[u8], is_made: bool, reading: bool, stripe_index: u32) -> ClientResult<OpenFile> {
        let caller = Caller { uid: 0, gid: 0, groups: Vec::new() };
        let mode = if reading { OpenMode::READ } else { OpenMode::WRITE };
        if is_made {
            let found = self.client.lookup(&caller, Fid::ROOT, name).await?;
            return self.client.open(&caller, found.fid, mode).await;
        }
        let layout = LayoutSpec { stripe_count: 1, stripe_index, ..LayoutSpec::inherit() };
        let (_, file) = self.client.create(&caller, Fid::ROOT, name, 0o644, mode, layout).await?;
        Ok(file)
    }
}

/// A program with its file.
struct Program {
    /// The program's thread.
    env: Env,
    mount: Mounted,
    file: OpenFile,
    costs: Mount,
    cpu_factor: f64,
    pattern: Pattern,
    rank: u64,
    reading: bool,
    /// The kernel's lock of the file.
    inode: Rc<RwSem>,
    /// The end of the file according to the kernel.
    file_end: Rc<Cell<u64>>,
    bytes: Bytes,
}

impl Program {
    async fn run(self) -> ClientResult<()> {
        for number in 0..self.pattern.transfers {
            let offset = self.pattern.offset(u64::from(self.costs.programs.count()), self.rank, number);
            match self.reading {
                true => self.read(offset).await?,
                false => self.write(offset).await?,
            }
        }
        let (client, file, reading) = (self.mount.client.clone(), self.file.clone(), self.reading);
        self.ask(async move {
            if !reading {
                client.fsync(&file, false).await?;
            }
            client.close(file).await
        })
        .await
    }

    async fn write(&self, offset: u64) -> ClientResult<()> {
        let (costs, end) = (&self.costs, offset + self.pattern.transfer_bytes);
        // For a write past the end that the kernel knows, check again under the lock.
        let mut held = self.inode.lock(&self.env, self.inode_grows(end)).await;
        if !held.is_alone() && self.inode_grows(end) {
            drop(held);
            held = self.inode.lock(&self.env, true).await;
        }
        self.env.charge_cpu(self.cost(&costs.program_write_us, &costs.program_write_byte_ns)).await;
        let (mount, file, bytes) = (self.mount.clone(), self.file.clone(), self.bytes.clone());
        let (mut cost, shared) = (self.cost(&costs.write_us, &costs.write_byte_ns), self.pattern.shared);
        let small = bytes.len() <= BUFFERED_WRITE_BYTES;
        if small {
            cost += self.cost(&costs.gather_us, &costs.gather_byte_ns);
        }
        mount.sim.heard(mount.node, bytes.len());
        self.ask(async move {
            mount.env.charge_cpu(cost).await;
            mount.client.write(&file, offset, bytes).await?;
            if shared && small {
                // The mount polls for the next request (crates/fuse/src/turns.rs).
                mount.sim.heard(mount.node, 0);
            }
            Ok(())
        })
        .await?;
        self.file_end.set(end.max(self.file_end.get()));
        drop(held);
        Ok(())
    }

    fn inode_grows(&self, end: u64) -> bool {
        end > self.file_end.get()
    }

    async fn read(&self, offset: u64) -> ClientResult<()> {
        let costs = &self.costs;
        let program = self.cost(&costs.program_read_us, &costs.program_read_byte_ns);
        let (mount, file) = (self.mount.clone(), self.file.clone());
        let (mut cost, length) = (self.cost(&costs.read_us, &costs.read_byte_ns), self.pattern.transfer_bytes as usize);
        if length as u64 <= CACHED_READ_BYTES {
            cost += self.cost(&costs.kept_us, &costs.kept_byte_ns);
        }
        self.env.charge_cpu(program / 2).await;
        mount.sim.heard(mount.node, READ_REQUEST_BYTES);
        self.ask(async move {
            mount.client.read_parts(&file, offset, length).await?;
            mount.env.charge_cpu(cost).await;
            Ok(())
        })
        .await?;
        self.env.charge_cpu(program / 2).await;
        Ok(())
    }

    /// Runs `work` on the mount's thread while the program sleeps.
    async fn ask(&self, work: impl Future<Output = ClientResult<()>> + 'static) -> ClientResult<()> {
        self.mount.env.spawn(work).await.unwrap_or_else(|| Err(Errno::EIO.into()))
    }

    /// CPU time of one transfer.
    fn cost(&self, fixed: &Param, byte_ns: &Param) -> Duration {
        fixed.us().mul_f64(self.cpu_factor) + self.bytes_cost(byte_ns)
    }

    fn bytes_cost(&self, byte_ns: &Param) -> Duration {
        Duration::from_nanos((self.cpu_factor * byte_ns.value * self.pattern.transfer_bytes as f64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_a_shared_file_cover_it_in_turns() {
        let pattern = Pattern { name: "", transfer_bytes: 10, transfers: 3, shared: true };
        let mut all: Vec<u64> = (0..4).flat_map(|rank| (0..3).map(move |n| pattern.offset(4, rank, n))).collect();
        all.sort_unstable();
        assert_eq!(all, (0..12).map(|place| place * 10).collect::<Vec<_>>());
        assert_eq!(Pattern { shared: false, ..pattern }.offset(4, 2, 2), 20);
    }
}
