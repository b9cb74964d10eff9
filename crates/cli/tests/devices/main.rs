//! Journals and devices that are shared, lost, rotten, sick or full, under real servers. One program: its tests wait for servers more
//! than they compute, and two of them run at once.

#[path = "../common/mod.rs"]
mod common;
mod journals;
mod out_of_memory;
mod rotten_journal;
mod sick_device;
