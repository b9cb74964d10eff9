//! fsck over stores that the real store made: clean ones, damaged ones, crashed ones, mutated ones.
//!
//! The store is the witness of fsck and fsck that of the store: they share no code.

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
