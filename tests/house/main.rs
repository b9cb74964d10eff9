//! Checks the structure of the code: dependencies between crates point one way, modules of most crates form no circles,
//! `env` is the only door to the world, and documents name what exists.

#![allow(clippy::disallowed_methods)] // it reads the house's own sources, as a user's program would

mod cycles;
mod names;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::Command,
};

use forebay_tests::crates::read_files;

/// The allowed dependencies of each crate (ARCHITECTURE.md, "The house").
const ARROWS: &[(&str, &[&str])] = &[
    ("proto", &[]),
    ("keys", &["proto"]),
    ("env", &["proto", "keys"]),
    ("rpc", &["proto", "env"]),
    ("store", &["proto", "env"]),
    ("target", &["proto", "keys", "env", "rpc", "store"]),
    ("mds", &["proto", "keys", "env", "rpc", "store", "target"]),
    ("oss", &["proto", "keys", "env", "rpc", "store", "target"]),
    ("client", &["proto", "keys", "env", "rpc"]),
    ("fuse", &["proto", "env", "client"]),
    ("lab", &["proto", "env", "rpc", "store", "target", "mds", "oss", "client"]),
    ("fsck", &["proto", "env"]),
    ("history", &[]),
    ("command", &["proto", "keys", "env", "store"]),
    ("bench", &["proto", "env", "rpc", "store", "target", "mds", "oss", "client", "fuse", "command"]),
];

/// The top: these may depend on everything, and nothing may depend on them.
const TOP: &[&str] = &["cli", "decoders", "sim", "tests", "xtask"];

/// Files and folders that switch off a list of disallowed items, in a line that says why.
const EXEMPT: &[&str] = &[
    "crates/env/src/real/mod.rs",
    // /proc, mount(2), threads that a notification of the kernel blocks, and the kernel's clocks.
    "crates/fuse/src/below.rs",
    "crates/fuse/src/caller.rs",
    "crates/fuse/src/convert.rs",
    "crates/fuse/src/floor.rs",
    "crates/fuse/src/helper.rs",
    "crates/fuse/src/kernel/dispatch.rs",
    "crates/fuse/src/kernel/drops.rs",
    "crates/fuse/src/kernel/reply.rs",
    "crates/fuse/src/labels.rs",
    "crates/fuse/src/mount.rs",
    "crates/fuse/src/point.rs",
    "crates/fuse/src/signals.rs",
    "crates/fuse/src/transport.rs",
    // The user's program.
    "crates/bench/src/lib.rs",
    "crates/cli/src/demo/mod.rs",
    "crates/cli/src/layout/mod.rs",
    // Commands that manage this machine's processes, mounts and directories, and what they share.
    "crates/cli/src/cluster_arg.rs",
    "crates/cli/src/health.rs",
    "crates/cli/src/hides.rs",
    "crates/cli/src/holders.rs",
    "crates/cli/src/join.rs",
    "crates/cli/src/lost.rs",
    "crates/cli/src/manual.rs",
    "crates/cli/src/memory.rs",
    "crates/cli/src/mount.rs",
    "crates/cli/src/mount_point.rs",
    "crates/cli/src/mounts.rs",
    "crates/cli/src/remount.rs",
    "crates/cli/src/stop.rs",
    "crates/cli/src/up/mod.rs",
    "crates/command/src/cluster.rs",
    "crates/command/src/fresh.rs",
    "crates/command/src/keys.rs",
    "crates/command/src/posix.rs",
    "crates/command/src/processes.rs",
];

/// External crates that only the named crates may link.
const DOORS: &[(&str, &[&str])] = &[
    ("tokio", &["env"]),
    ("io-uring", &["env"]),
    ("rustls", &["env", "keys"]),
    ("rcgen", &["keys"]),
    ("aws-lc-rs", &["env", "keys"]),
    ("fuser", &["fuse"]),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Direct, non-dev dependencies of each crate of the workspace.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo metadata runs");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let short = |name: &str| name.strip_prefix("forebay-").unwrap_or(name).to_owned();
    metadata["packages"]
        .as_array()
        .expect("packages")
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"]
                .as_array()
                .expect("dependencies")
                .iter()
                .filter(|d| d["kind"].is_null())
                .map(|d| short(d["name"].as_str().expect("name")))
                .collect();
            (short(package["name"].as_str().expect("name")), dependencies)
        })
        .collect()
}

#[test]
fn arrows_between_crates_point_one_way() {
    let graph = dependencies();
    let ours: BTreeSet<&String> = graph.keys().collect();
    for (name, allowed) in ARROWS {
        let found = graph.get(*name).unwrap_or_else(|| panic!("crate {name} is missing from the house"));
        for dependency in found.iter().filter(|d| ours.contains(d)) {
            assert!(
                allowed.contains(&dependency.as_str()),
                "{name} depends on {dependency}, which the house does not allow; it may depend on {allowed:?}"
            );
        }
    }
}

#[test]
fn doors_to_the_world_stand_in_one_crate_each() {
    let graph = dependencies();
    for (library, owners) in DOORS {
        for (name, found) in &graph {
            assert!(
                !found.contains(*library) || owners.contains(&name.as_str()),
                "{name} links {library}; only {owners:?} may"
            );
        }
    }
}

#[test]
fn every_crate_has_its_place() {
    for (name, dependencies) in dependencies() {
        let is_top = TOP.contains(&name.as_str());
        assert!(is_top || ARROWS.iter().any(|(known, _)| *known == name), "{name} has no place in the house");
        let above = dependencies.iter().find(|dependency| !is_top && TOP.contains(&dependency.as_str()));
        assert_eq!(above, None, "{name} depends on what stands above it");
    }
}

#[test]
fn disallowed_lists_name_the_doors_and_every_lint_exemption_is_known() {
    let lists = std::fs::read_to_string(root().join("clippy.toml")).expect("clippy.toml is there");
    let doors = "std::time::Instant std::time::SystemTime std::thread::spawn std::thread::sleep std::thread::Builder \
                 std::collections::HashMap std::collections::HashSet std::net::TcpStream std::net::UdpSocket \
                 std::os::unix::net::UnixStream std::fs::File std::fs::OpenOptions tokio::spawn tokio::time::sleep \
                 tokio::task::spawn_blocking tokio::net::TcpStream";
    for name in doors.split(' ') {
        assert!(lists.contains(&format!("\"{name}\"")), "clippy.toml does not disallow {name}");
    }
    let files = read_files(&root(), &["crates"], "rs").expect("the sources are readable");
    let is_exempt = |text: &str| text.contains("allow(clippy::disallowed");
    let sources = files.iter().filter(|(path, _)| !path.contains("/tests/"));
    let exempt: BTreeSet<String> = sources.filter(|(_, text)| is_exempt(text)).map(|(path, _)| path.clone()).collect();
    let known: BTreeSet<String> = EXEMPT.iter().map(|path| (*path).to_owned()).collect();
    assert_eq!(exempt, known, "files that switch a disallowed list off, and those that may");
}
