//! Executor-neutral primitives for the tasks of one shard, and the channels between shards.
//!
//! They wake tasks in the order in which the tasks began to wait, so they keep the simulator's trace deterministic.

pub use tokio::select; // always `biased;`, so that the order of arms is the order of choice
pub use tokio::sync::{Mutex, Notify, RwLock, Semaphore, SemaphorePermit, mpsc, oneshot, watch};
