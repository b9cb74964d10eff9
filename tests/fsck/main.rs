//! fsck on stores that the real store made: clean, damaged, crashed and mutated ones.
//!
//! The store and fsck check each other: they share no code.

#[path = "../../crates/store/tests/common/mod.rs"]
mod common;
mod world;

mod clean;
mod cluster;
mod crash;
mod damage;
mod lost_journal;
mod mdt;
mod mended;
mod mirror;
mod mutation;
mod two_losses;

/// The allocator of the real program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
