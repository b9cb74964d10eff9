//! Simulates whole clusters: the real servers and clients on simulated machines, with workloads, faults, and an oracle
//! that knows what was acknowledged and what was synced.
//!
//! Invariant: the same seed gives the same trace and the same report.
//! Invariant: every run has an oracle. It checks what programs see, immediately and after the end.

pub mod cluster;
pub mod damage;
pub mod disaster;
mod disks;
pub mod faults;
pub mod histories;
mod links;
mod mirror;
pub mod model;
pub mod moments;
mod runs;
mod setup;
mod stop;
pub mod tls;
mod verify;
mod victims;
mod workload;

pub use cluster::{Cluster, ClusterOptions};
pub use disaster::{DisasterOptions, Report, run_seed};
pub use histories::{HistoryOptions, HistoryReport, run_history};
