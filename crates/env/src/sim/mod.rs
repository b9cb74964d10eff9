//! The simulated half: machines, links and disks on virtual time, in which a seed decides all chances.
//!
//! A test creates a [`Sim`], adds nodes, starts the real servers and clients on them, and injects faults:
//!
//! ```
//! use forebay_env::{OpenDisk, sim::Sim};
//!
//! let sim = Sim::new(7);
//! let node = sim.add_node("oss0");
//! let env = sim.env(node);
//! sim.block_on(async {
//!     let options = OpenDisk { create_bytes: Some(1 << 20), ..OpenDisk::default() };
//!     let disk = env.open_disk("data", options).await.unwrap();
//!     disk.write(0, vec![vec![1; 4096].into()]).await.unwrap();
//! });
//! sim.power_cut(node);
//! ```
//!
//! Invariant: the same seed and the same calls give the same trace ([`Sim::trace_hash`]).
//! Invariant: a future is never polled or dropped while the world's state is borrowed.
//! Not here: whole clusters, workloads and checkers (see the crate `forebay-sim`).

mod chance;
mod control;
mod cpu;
mod device;
mod disk;
mod disk_model;
mod env;
mod executor;
mod image;
mod link;
mod locks;
mod medium;
mod net;
mod node;
mod recorder;
mod stream;
#[cfg(test)]
mod tests;
mod thread;
mod tier;
mod trace;
mod world;
mod write_cache;

pub(crate) use chance::Chance;
pub use control::Sim;
pub use cpu::{CpuCosts, MessageCost};
pub use disk_model::{DiskModel, Fault, Wanted};
pub use image::DiskImage;
pub use link::Link;
pub use medium::{ControllerCache, Heads, Medium, QueueOrder, Solid, TierModel, TierStats};
pub use recorder::{CrashRecorder, LastWrite};
pub use thread::{Processors, Waking};
pub use tier::{BulkJournal, JournalShape, Placement, Port, Tier};
pub use write_cache::TearChoice;

pub(crate) use disk::{SimDisk, SimWriteTicket};
pub(crate) use env::SimEnv;
pub(crate) use net::SimListener;
pub(crate) use stream::{SimReadHalf, SimWriteHalf};

/// A simulated machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u32);
