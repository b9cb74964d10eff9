//! Tests of the real half alone; `both_halves` at the crate's root tests what both have.

mod devices;
mod files;
mod forgetful;
mod sockets;
