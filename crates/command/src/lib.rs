//! What commands of the program share: errors with exit codes, sizes and times, tables, progress, the description of a
//! cluster, new targets, processes in the background, system calls.
//!
//! Not here: commands and their options. Nothing here serves.

pub mod cluster;
pub mod error;
pub mod fresh;
pub mod keys;
pub mod paths;
pub mod posix;
pub mod processes;
pub mod progress;
pub mod summary;
pub mod table;
pub mod targets;
pub mod units;
