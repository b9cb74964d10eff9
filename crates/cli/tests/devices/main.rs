//! Journals and devices that are shared, lost, corrupt, failing or full, under real servers. One test program, because
//! its tests wait for servers more than they compute, and two of them run at once.

#[path = "../common/mod.rs"]
mod common;
mod journals;
mod out_of_memory;
mod rotten_journal;
mod sick_device;
