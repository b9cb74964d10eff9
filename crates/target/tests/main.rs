//! Attempts, sessions and recovery with a service of the tests' own. One program: it takes half a minute to compile.

mod attempts;
mod forged;
mod recovery;
mod sessions;
mod toy;
