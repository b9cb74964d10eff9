//! The MDT's server over simulated disks and networks. One program: a server takes half a minute to compile.

mod common;
mod crashes;
mod levels;
mod stuck;
