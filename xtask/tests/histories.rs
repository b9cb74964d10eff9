//! A short run of `xtask histories`: two mounts, real processes, servers killed, servers and mounts stopped.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod common;

/// two mounts, servers |SIGKILL| no stale read, no lost append, one winner for every lock and name
///
/// Programs on two mounts use the same names, bytes and locks while servers are killed and servers and mounts are
/// stopped. Some order explains every answer.
#[test]
fn processes_on_two_mounts_see_one_file_system_while_its_servers_die() {
    common::run(&["histories", "--seconds", "10"], env!("CARGO_TARGET_TMPDIR").into(), "histories");
}
