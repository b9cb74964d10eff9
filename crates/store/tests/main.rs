//! The store over simulated disks, and over files that are deleted under it. One program, as a store takes half a
//! minute to compile.

mod basics;
mod common;
mod crash_every_point;
mod deleted;
mod faults;
mod mirror;
mod moved_twice;
mod overlap;
mod restarts;
mod room;
mod slots;
mod thin;

/// The allocator of the real program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
