//! A short run of `xtask crashes`: real processes killed, paused, without power.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod common;

/// workers on mounts of each level, servers and mounts |SIGKILL, power cut, SIGSTOP| read
///
/// Programs write files on mounts of each commit level while servers and mounts are killed, paused or lose power.
/// Nothing that was synced is lost, and nothing that a surviving mount acknowledged.
#[test]
fn acknowledged_and_synced_files_survive_kills_and_power_cuts() {
    let args = ["crashes", "--kills", "4", "--power-cuts", "6", "--pauses", "2", "--seed", "3"];
    // A short path, as sockets are made in it whose names have at most 107 bytes.
    common::run(&args, std::env::temp_dir(), "forebay-crashes");
}
