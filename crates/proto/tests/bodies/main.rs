//! The bodies of messages, byte for byte: what each looks like (`golden`), that docs/protocol.md says the same (`page`), and
//! what a decoder does with bytes that no sum vouches for (`mutated`).

mod common;
mod counted;
mod golden;
mod mds;
mod mutated;
mod oss;
mod page;
mod sample;
