//! The only door to the world: clock, randomness, network, disks, tasks.
//!
//! Everything above this crate receives an [`Env`] and reaches time, chance, disks and networks only through it.
//! An `Env` is real ([`real::run`]) or simulated ([`sim::Sim`]); the code that uses it cannot tell which.
//!
//! Invariant: with a simulated `Env`, the same seed gives the same trace.
//! Invariant: an `Env` belongs to one shard (one single-threaded executor); it is not `Send`.

mod address;
mod aligned;
mod arena;
#[cfg(test)]
mod both_halves;
mod clock;
mod disk;
mod env;
mod error;
mod files;
pub mod limits;
mod net;
mod network;
mod peer;
mod planted;
mod pool;
pub mod real;
pub mod sim;
pub mod sync;
mod task;
pub mod testing;
pub mod tls;

pub use address::Address;
pub use aligned::{AlignedBuf, SECTOR_BYTES, is_aligned};
pub use arena::Arena;
pub use clock::{Elapsed, Time, UnixTime};
pub use disk::{Disk, DiskInfo, DiskPart, DiskRequests, OpenDisk};
pub use env::{Env, Side};
pub use error::{EnvError, EnvErrorKind, EnvResult};
pub use files::FileLock;
pub use net::{Listener, ReadHalf, Stream, WriteHalf};
pub use network::{Accepted, Network};
pub use peer::PeerIdentity;
pub use planted::{Bug, CHOICE as PLANTED_CHOICE, planted};
pub use task::{Boxed, Task};
