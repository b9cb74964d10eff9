//! Directory operations by several processes, on any directory: the common part of `bench mdtest` and
//! `bench metarates`.
//!
//! Not here: which operations run, their order and their names.

mod run;
mod site;
mod task;
mod tree;

pub use run::{Plan, Run, end_at_signals, or_interrupted};
pub use site::Site;
pub use task::{Op, Task, TaskConfig};
pub use tree::{DIRECTORIES, Layout, Tree};

/// Name of the hidden command that is one process of a run.
pub const TASK_COMMAND: &str = "bench-names-task";

/// Most processes of a run.
pub const TASKS: u32 = 4096;
