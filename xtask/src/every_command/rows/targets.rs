//! Targets that are made, served, moved, mirrored and checked without `up`.

use std::{
    fs::{self, File},
    process::Command,
};

use serde_json::Value;

use super::{Row, ok, prepare};
use crate::{
    every_command::{site::Site, surface::Program},
    figures::{Outcome, process::output},
};

/// A cluster with journals and data in unusual places.
pub const ROWS: &[Row] = &[
    prepare(|site| file(site, "shared", 64 << 20, false)),
    prepare(|site| file(site, "disk", 64 << 20, true)),
    prepare(|site| file(site, "used", 16 << 20, true)),
    ok(
        "format mdt {d}/MDT0000 --cluster 11111111-2222-3333-4444-555555555555 --index 0 --size 64MiB --journal {d}/shared \
         --journal-size 16MiB --slab-size 1MiB --full-stripe 64KiB",
        "MDT0000 of cluster 11111111-2222-3333-4444-555555555555 is ready",
    ),
    ok(
        "format ost {d}/OST0000 --cluster 11111111-2222-3333-4444-555555555555 --size 64MiB --journal {d}/shared --journal-size 16MiB",
        "OST0000 of cluster",
    ),
    ok(
        "format ost {d}/OST0001 --cluster 11111111-2222-3333-4444-555555555555 --index 1 --size 64MiB --data {d}/disk \
         --overwrite-data --journal {d}/used --overwrite-journal",
        "OST0001 of cluster",
    ),
    ok("journal list {d}/shared", "OST0000"),
    ok("journal list {d}/shared --json", "\"slots\""),
    // A target that is gone leaves its part of the shared device behind.
    ok(
        "format ost {d}/OST0002 --cluster 11111111-2222-3333-4444-555555555555 --index 2 --size 64MiB --journal {d}/shared \
         --journal-size 16MiB",
        "OST0002 of cluster",
    ),
    prepare(lose_target),
    ok("journal free {d}/shared {gone}", "is free"),
    prepare(describe),
    ok("keys new {d}/keys --cluster 11111111-2222-3333-4444-555555555555", "the keys of cluster 11111111"),
    ok("keys for {d}/keys {d}/for --role client --name n1", "client n1"),
    ok("serve {d}/MDT0000 --listen tcp:127.0.0.1:{port} --keys {d}/none", "cannot read {d}/none").ends_with(1),
    ok(
        "serve {d}/MDT0000 {d}/OST0000 --listen tcp:127.0.0.1:{port} --insecure-loopback --map {d}/cluster.toml --recovery-window 2s --mdt-cache 256MiB \
         --metrics 127.0.0.1:{port+8} --metrics-public --forgetful-disks",
        "metrics at http://127.0.0.1:{port+8}/metrics",
    )
    .beside("serving MDT0000 at tcp:127.0.0.1:{port}", &[ok("df --insecure-loopback 127.0.0.1:{port}", "OST0000")]),
    ok("journal move {d}/OST0000 {d}/moved", "lies in {d}/moved now"),
    // An OST that has lost its journal.
    prepare(|site| remove(site, "moved")),
    ok("fsck --repair --journal {d}/anew {d}/OST0000 {d}/MDT0000", "journal-lost (repaired)").ends_with(1),
    // Mirrored targets.
    ok(
        "format mdt {d}/twice --size 64MiB --mirror {d}/copy --mirror-data {d}/copy-data --mirror-journal {d}/copy-journal --witness \
         {d}/witness",
        "MDT0000 of cluster",
    ),
    prepare(|site| file(site, "third-data", 80 << 20, true)),
    prepare(|site| file(site, "third-journal", 20 << 20, true)),
    ok(
        "mirror replace {d}/twice {d}/third --data {d}/third-data --journal {d}/third-journal --overwrite",
        "{d}/third will be filled from {d}/twice",
    ),
    ok("format mdt {d}/one --size 64MiB --mirror {d}/other", "MDT0000 of cluster"),
    prepare(|site| remove(site, "other")),
    ok("mirror alone {d}/one", "{d}/one goes on alone"),
];

/// A file of zeros, or one with contents.
fn file(site: &Site, name: &str, bytes: u64, used: bool) -> Outcome {
    let path = site.dir().join(name);
    let made = match used {
        true => fs::write(&path, vec![0xa5; bytes as usize]),
        false => File::create(&path).and_then(|file| file.set_len(bytes)),
    };
    made.map_err(|error| format!("{}: {error}", path.display()))
}

fn remove(site: &Site, name: &str) -> Outcome {
    let path = site.dir().join(name);
    let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
    removed.map_err(|error| format!("{}: {error}", path.display()))
}

/// Removes a target. Its part of the shared device stays; `{gone}` is the part's name.
fn lose_target(site: &Site) -> Outcome {
    let said = output(Command::new(site.path(Program::Forebay)).args([
        "journal",
        "list",
        "--json",
        &site.fill("{d}/shared"),
    ]))?;
    let told: Value = serde_json::from_str(&said).map_err(|error| format!("journal list: {error}"))?;
    let slot = told["slots"].as_array().into_iter().flatten().find(|slot| slot["name"] == "OST0002");
    let target = slot.and_then(|slot| slot["target"].as_str()).ok_or("the shared device has no part of OST0002")?;
    site.remember("{gone}", target);
    remove(site, "OST0002")
}

/// Writes the cluster's description, as `up` would.
fn describe(site: &Site) -> Outcome {
    let target = |name: &str, port: &str| {
        format!("[[target]]\nname = \"{name}\"\ndir = \"{name}\"\nlisten = [\"tcp:127.0.0.1:{port}\"]\n")
    };
    let text = format!(
        "cluster = \"11111111-2222-3333-4444-555555555555\"\n{}{}",
        target("MDT0000", "{port}"),
        target("OST0000", "{port+1}")
    );
    let path = site.dir().join("cluster.toml");
    fs::write(&path, site.fill(&text)).map_err(|error| format!("{}: {error}", path.display()))
}
