//! The bodies of messages, byte for byte: their bytes (`golden`), that docs/protocol.md describes the same (`page`),
//! and what a decoder does with untrusted bytes (`mutated`).

mod cluster;
mod common;
mod counted;
mod damage;
mod golden;
mod mds;
mod mutated;
mod oss;
mod page;
mod sample;
