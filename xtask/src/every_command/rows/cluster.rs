//! Clusters and mounts, from `up` to `down`, and the demo.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    process::Command,
};

use super::{Row, ok, prepare};
use crate::{
    every_command::{site::Site, surface::Program},
    figures::Outcome,
};

/// Most rows use one cluster, the others a second one over TCP.
pub const ROWS: &[Row] = &[
    ok(
        "up {d}/c --osts 2 --mdts 1 --ost-size 256MiB --mdt-size 256MiB --mount {d}/m --commit data --metrics 127.0.0.1:{port} \
         --metrics-public --recovery-window 2s",
        "in {d}/c",
    ),
    prepare(ask_for_metrics),
    ok("status {d}/c", "OST0001  serving"),
    ok("status {d}/c --devices", "OST0001  serving"),
    ok("status {d}/c --json", "\"state\":\"serving\""),
    ok("health", "{d}/m: works"),
    ok("health {d}/c {d}/m --timeout 5s --json", "\"healthy\":true"),
    ok("health-probe {d}/m", ""),
    ok("df {d}/c", "OST0001"),
    ok("df -h {d}/m", "MiB"),
    ok("df -i {d}/c", "objects"),
    ok("df --json {d}/c", "\"available_bytes\""),
    ok("sync {d}/c", ""),
    // Pools.
    ok("pool new {d}/c fast 0 --keys {d}/c/keys", ""),
    ok("pool add {d}/c fast OST0001 --keys {d}/c/keys", ""),
    ok("pool add {d}/c fast --insecure-loopback", "name the OSTs").is_refused(),
    ok("pool list {d}/c --keys {d}/c/keys", "fast  OST0000 OST0001"),
    ok("pool list {d}/c fast --json --insecure-loopback", "\"osts\":[0,1]"),
    ok("df -p fast {d}/c", "OST0001"),
    ok("pool remove {d}/c fast 0-1 --keys {d}/c/keys", ""),
    ok("pool remove {d}/c fast --insecure-loopback", "name the OSTs").is_refused(),
    ok("pool destroy {d}/c fast 0 --keys {d}/c/keys", "destroy takes no OSTs").is_refused(),
    ok("pool destroy {d}/c fast --insecure-loopback", ""),
    ok("pool_new {d}/c slow 0 --keys {d}/c/keys", ""),
    ok("pool_new {d}/c slow 0 --insecure-loopback", "pool slow").ends_with(1),
    ok("pool_add {d}/c slow 1 --keys {d}/c/keys", ""),
    ok("pool_add {d}/c slow --insecure-loopback", "name the OSTs").is_refused(),
    ok("pool_list {d}/c slow --keys {d}/c/keys", "OST0001"),
    ok("pool_list {d}/c --json --insecure-loopback", "\"name\":\"slow\""),
    ok("pool_remove {d}/c slow 0-1 --keys {d}/c/keys", ""),
    ok("pool_remove {d}/c slow --insecure-loopback", "name the OSTs").is_refused(),
    ok("pool_destroy {d}/c slow 0 --keys {d}/c/keys", "destroy takes no OSTs").is_refused(),
    ok("pool_destroy {d}/c slow --insecure-loopback", ""),
    ok("pool new {d}/c fast 0-1 --insecure-loopback", ""),
    // Layouts.
    prepare(|site| make_dir(site, "m/dir")),
    ok("setstripe -c 2 -S 64KiB -i 0 {d}/m/two", ""),
    ok("setstripe --stripe-count 1 --pool fast {d}/m/dir", ""),
    ok("setstripe --count 1 --size 128KiB --index 0 {d}/m/a1", ""),
    ok("setstripe --offset 1 {d}/m/a2", ""),
    ok("setstripe -o 1 {d}/m/a3", ""),
    ok("setstripe --ost-list 1 {d}/m/a4", ""),
    ok("setstripe --ost-index 1 {d}/m/a5", ""),
    ok("setstripe -E 1MiB -c 1 -E -1 -c 2 {d}/m/comp", ""),
    ok("setstripe --copy {d}/m/comp {d}/m/like", ""),
    ok("getstripe --component-count {d}/m/like", "2"),
    ok("getstripe -i {d}/m/a4", "1"),
    ok("getstripe --stripe-offset {d}/m/a5", "1"),
    ok("getstripe -c {d}/m/two", "2"),
    ok("getstripe -S {d}/m/two", "65536"),
    ok("getstripe -p -d {d}/m/dir", "fast"),
    ok("setstripe -d {d}/m/dir", ""),
    prepare(|site| write(site, "m/comp", 3_000_000)),
    ok("getstripe -L {d}/m/comp", "raid0"),
    ok("getstripe -g {d}/m/comp", ""),
    ok("getstripe -m {d}/m/comp", "0"),
    ok("getstripe --mdt {d}/m/comp", "0"),
    ok("getstripe -F {d}/m/comp", "[0x"),
    ok("getstripe -I {d}/m/comp", "1 2"),
    ok("getstripe --component-id=2 {d}/m/comp", "lmm_stripe_count:  2"),
    ok("getstripe --component-start 1MiB {d}/m/comp", "lmm_stripe_count:  2"),
    ok("getstripe -E 1MiB {d}/m/comp", "lmm_stripe_count:  1"),
    ok("getstripe -O 1 {d}/m/comp", "l_ost_idx: 1"),
    ok("getstripe --obd 1 {d}/m/comp", "l_ost_idx: 1"),
    ok("getstripe -r {d}/m", "{d}/m/comp"),
    ok("getstripe -q {d}/m/comp", "lcm_entry_count:   2"),
    ok("getstripe -v {d}/m/comp", "lcm_entry_count:   2"),
    ok("getstripe -y {d}/m/comp", "- {"),
    ok("getstripe --json {d}/m/comp", "\"generation\""),
    ok("migrate -v -c 1 -S 128KiB -i 0 {d}/m/comp", "{d}/m/comp"),
    ok("migrate -n --retries 2 -o 1 {d}/m/comp", ""),
    ok("migrate --non-direct --count 1 --size 64KiB --index 0 {d}/m/comp", ""),
    ok("migrate --offset 1 {d}/m/comp", ""),
    ok("migrate --ost-list 0 {d}/m/comp", ""),
    ok("migrate --ost-index 1 {d}/m/comp", ""),
    ok("migrate --copy {d}/m/two {d}/m/comp", ""),
    ok("getstripe -c {d}/m/comp", "2"),
    ok("migrate -E 1MiB -c 1 -E -1 -c 2 -p fast {d}/m/comp", ""),
    ok("getstripe --component-count {d}/m/comp", "2"),
    ok("setattr --commit commit {d}/m/comp", ""),
    ok("setattr --inline 4KiB {d}/m/dir", ""),
    // All tests of files that find(1) and lfs have.
    ok(
        "find {d}/m -name comp -iname COMP -type f -size +1M -blocks +1k -links 1 -mtime -1 -atime -1 -ctime -1 -newer \
         {d}/c/cluster.toml -newermt @0 -user root -uid 0 -group root -gid 0 -perm -400 -mindepth 1 -maxdepth 1 -print",
        "{d}/m/comp",
    ),
    ok("find {d}/m ! -type d -empty -name two -print0", "{d}/m/two"),
    ok(
        "find {d}/m -stripe-count 2 -c 2 -stripe-size 64K -S 64K -stripe-index 0 -i 0 -ost 0 -O 1 -layout raid0 -L raid0 -0",
        "{d}/m/two",
    ),
    ok("find {d}/m -pool fast -component-count 2 -component-start 1M -component-end 1M", "{d}/m/comp"),
    ok("getstripe -c {d}/m/two", "2").called("lfs"),
    // More mounts.
    prepare(|site| make_dir(site, "m2")),
    ok(
        "mount {d}/c {d}/m2 -o ro,commit=commit,pin=64MiB,rpc=1MiB,rpcs_in_flight=4,writeback=0,readcache=0,inline=0,suid,dev,noexec,\
         allow_other,transport=dev",
        "",
    ),
    ok("mount {d}/c {d}/m2 -o remount,rw", ""),
    ok("umount {d}/m2", ""),
    ok("mount {d}/c {d}/m2 -o noatime,nodiratime", ""),
    prepare(|site| read_moves(site, "m2/comp", false)),
    ok("umount {d}/m2", ""),
    ok("mount {d}/c {d}/m2 -o strictatime", ""),
    prepare(|site| read_moves(site, "m2/comp", true)),
    ok("umount {d}/m2", ""),
    ok("mount {d}/c {d}/m2 -o relatime", ""),
    ok("umount {d}/m2", ""),
    ok("mount --sloppy {d}/c {d}/m2 -o nosuchoption", ""),
    ok("umount -l {d}/m2", ""),
    ok("{d}/c {d}/m2 -o rw", "").called("mount.forebay"),
    ok("umount -f {d}/m2", ""),
    ok("mount -f {d}/c {d}/m2", "unmounted").beside("is mounted at {d}/m2", &[ok("df {d}/m2", "OST0001")]),
    ok("mount -f --background {d}/c {d}/m2", "unmounted").beside("is mounted at {d}/m2", &[]),
    ok("down {d}/c", "is down"),
    ok("up {d}/c --commit memory", "mounted at {d}/m"),
    ok("down {d}/c", "is down"),
    ok("up {d}/c --commit commit", "mounted at {d}/m"),
    ok("down {d}/c", "is down"),
    ok("up --foreground {d}/c", "serving MDT0000 at unix:").beside(
        "serving MDT0000",
        &[ok("status {d}/c", "serving"), ok("up --foreground {d}/c", "is served already, by process").ends_with(1)],
    ),
    ok("up --foreground --separate {d}/c", "cannot be used with").is_refused(),
    ok("fsck -v --verify-data {d}/c", "cluster: clean"),
    ok("fsck --json {d}/c", "\"exit\":0"),
    ok("fsck --repair --remove-leaks {d}/c", "cluster: clean"),
    // Over TCP, with one process per target, on disks that lose unflushed writes.
    ok(
        "up {d}/far --osts 1 --ost-size 256MiB --mdt-size 256MiB --no-mount --listen 127.0.0.1:{port+8} --separate \
         --forgetful-disks",
        "in {d}/far",
    ),
    ok("mount 127.0.0.1:{port+8} {d}/m2", "TCP needs the cluster's keys").ends_with(1),
    ok("mount 127.0.0.1:{port+8} {d}/m2 -o noatime,keys={d}/far/keys", ""),
    ok("umount {d}/m2", ""),
    ok("mount --keys {d}/far/keys 127.0.0.1:{port+8} {d}/m2", ""),
    ok("df {d}/m2", "TCP needs the cluster's keys").ends_with(1),
    ok("df --keys {d}/far/keys {d}/m2", "OST0000"),
    ok("status --keys {d}/far/keys 127.0.0.1:{port+8}", "OST0000"),
    ok("sync --keys {d}/far/keys 127.0.0.1:{port+8}", ""),
    ok("df --keys {d}/c/keys 127.0.0.1:{port+8}", "another cluster").ends_with(1),
    ok("keys protection {d}/far/keys integrity-only", "not encrypted where the other side"),
    ok("df --keys {d}/far/keys 127.0.0.1:{port+8}", "OST0000"),
    ok("keys protection {d}/far/keys encryption", "are encrypted"),
    ok("keys protection {d} encryption", "holds no keys").ends_with(1),
    // `down` does not know of a mount by addresses.
    ok("umount {d}/m2", ""),
    // Another host joins, and a client.
    ok("token new 127.0.0.1:{port+8} --role ost --ttl 1h --keys {d}/far/keys", "forebay-token-"),
    ok("token new {d}/far --role client --insecure-loopback", "").ends_with(1),
    prepare(|site| new_token(site, "ost", "{token}")),
    ok("join 127.0.0.1:{port+8} {token} {d}/joined --osts 1 --mdt", "one MDT per cluster").is_refused(),
    ok("join 127.0.0.1:{port+8} {token} {d}/joined --osts 1 --router", "no routers").is_refused(),
    ok(
        "join 127.0.0.1:{port+8} {token} {d}/joined --osts 1 --ost-size 256MiB --listen 127.0.0.1:{port+16} --name h2 \
         --integrity-only",
        "OST0001 serve in {d}/joined",
    ),
    ok("join 127.0.0.1:{port+8} {token} {d}/joined", "OST0001 serve in {d}/joined"),
    ok("status {d}/joined", "OST0001"),
    prepare(|site| new_token(site, "client", "{token}")),
    ok("mount 127.0.0.1:{port+8} {d}/m2 --token {token}", ""),
    ok("df {d}/m2", "OST0001"),
    ok("umount {d}/m2", ""),
    // Tenants.
    ok("mount {d}/far {d}/m2", ""),
    prepare(|site| make_dir(site, "m2/bio")),
    prepare(|site| make_dir(site, "m2/map")),
    ok("umount {d}/m2", ""),
    ok(
        "tenant new {d}/far bio --subtree /bio --users 1000-1999,2500 --groups 100 --squash-uid 99 --squash-gid 98 \
         --read-only --no-root-squash --ttl 90d",
        "tenant bio has /bio",
    ),
    ok("tenant new 127.0.0.1:{port+8} geo --subtree /none --keys {d}/far/keys", "there is no none").ends_with(1),
    ok("tenant new 127.0.0.1:{port+8} geo --subtree /none --insecure-loopback", "").ends_with(1),
    ok(
        "tenant new {d}/far mapped --subtree /map --map-uid 1000:70000:100,7:80000 --map-gid 1000:70000:100",
        "tenant mapped has /map",
    ),
    ok("tenant new {d}/far zero --subtree /map --map-uid 0:70000", "never mapped").ends_with(1),
    ok("tenant list {d}/far", "mapped: user 7 of its hosts is 80000"),
    ok("tenant list {d}/far", "1000-1999,2500"),
    ok("tenant list 127.0.0.1:{port+8} --json --keys {d}/far/keys", "\"squash_uid\":99"),
    ok("tenant list 127.0.0.1:{port+8} --insecure-loopback", "").ends_with(1),
    ok("token new {d}/far --role client --tenant bio", "forebay-token-"),
    ok("token new {d}/far --role client --tenant geo", "no tenant is called geo").ends_with(1),
    ok("tenant remove 127.0.0.1:{port+8} bio --keys {d}/far/keys", "tokens that nobody has used").ends_with(1),
    ok("tenant remove 127.0.0.1:{port+8} bio --insecure-loopback", "").ends_with(1),
    ok("node list {d}/far", "OST0001"),
    ok("node list 127.0.0.1:{port+8} --json --keys {d}/far/keys", "\"name\":\"h2\""),
    ok("node list 127.0.0.1:{port+8} --insecure-loopback", "").ends_with(1),
    ok("node ban {d}/far n7 --role client", "n7 is banned"),
    ok("node ban 127.0.0.1:{port+8} n7 --role client --lift --keys {d}/far/keys", "no longer banned"),
    ok("node ban 127.0.0.1:{port+8} n7 --insecure-loopback", "").ends_with(1),
    ok("node remove {d}/far h2 --role ost", "files may lie on OST0001").ends_with(1),
    ok("node remove 127.0.0.1:{port+8} n9 --keys {d}/far/keys", "no node called n9").ends_with(1),
    ok("node remove 127.0.0.1:{port+8} n9 --insecure-loopback", "").ends_with(1),
    prepare(remove_client),
    ok("down {d}/joined", "is down"),
    ok("down --force {d}/far", "is down"),
    // With integrity only.
    ok(
        "up {d}/clear --osts 1 --ost-size 256MiB --mdt-size 256MiB --no-mount --listen 127.0.0.1:{port+8} --listen 127.0.0.2:{port+8} \
         --integrity-only",
        "in {d}/clear",
    ),
    ok(
        "up {d}/clear --no-mount --listen 127.0.0.1:{port+8} --listen 127.0.0.2:{port+8} --integrity-only",
        "in {d}/clear",
    ),
    ok("up {d}/clear --no-mount --listen 127.0.0.1:{port+8}", "at tcp:127.0.0.1:{port+8} and tcp:127.0.0.2:{port+8}")
        .ends_with(2),
    ok("up {d}/c --listen 127.0.0.1:{port+8} --integrity-only", "is for the first use").ends_with(2),
    ok("mount {d}/clear {d}/m2", ""),
    ok("umount {d}/m2", ""),
    ok("down {d}/clear", "is down"),
    // The same without keys.
    ok(
        "up {d}/near --osts 1 --ost-size 256MiB --mdt-size 256MiB --no-mount --listen 127.0.0.1:{port+8} --insecure-loopback",
        "in {d}/near",
    ),
    ok("mount 127.0.0.1:{port+8} {d}/m2 -o insecure-loopback", ""),
    ok("df --insecure-loopback {d}/m2", "OST0000"),
    ok("status --insecure-loopback {d}/m2", "OST0000"),
    ok("sync --insecure-loopback {d}/m2", ""),
    ok("umount {d}/m2", ""),
    ok("mount --insecure-loopback 127.0.0.1:{port+8} {d}/m2", ""),
    ok("umount {d}/m2", ""),
    ok("down {d}/near", "is down"),
    // The demo, with a mount and without.
    ok("demo {d}/demo --quick --tree {root}/docs/decisions --checkpoint-size 1MiB --keep", "Kept in {d}/demo"),
    ok(
        "demo {d}/demo2 --quick --tree {root}/docs/decisions --checkpoint-size 1MiB --library",
        "client library instead",
    ),
    ok("demo {d}/demo3 --quick --tree {root}/docs/decisions --checkpoint-size 1MiB --hosts 2", "2 OSTs on 2 hosts"),
    // Programs that our own start. They end with their input.
    ok("demo-copier", "not a task of a copier").ends_with(1),
    ok("command-tree", "\"bench\""),
    ok("manual {d}/share", ""),
];

/// Makes a token of the cluster `far`.
fn new_token(site: &Site, role: &str, name: &str) -> Outcome {
    let said = run(site, &["token", "new", &site.fill("{d}/far"), "--role", role])?;
    site.remember(name, said.lines().last().unwrap_or_default());
    Ok(())
}

/// Removes the client that has joined, whatever this machine is called.
fn remove_client(site: &Site) -> Outcome {
    let far = site.fill("{d}/far");
    let listed = run(site, &["node", "list", &far])?;
    let name = listed.lines().find(|line| line.contains(" client ")).and_then(|line| line.split(' ').next());
    let name = name.ok_or_else(|| format!("no client has joined: {listed}"))?;
    run(site, &["node", "remove", &far, name, "--role", "client"]).map(drop)
}

fn run(site: &Site, words: &[&str]) -> Outcome<String> {
    let output = Command::new(site.path(Program::Forebay)).args(words).output();
    let output = output.map_err(|error| format!("{words:?}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{words:?}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

fn make_dir(site: &Site, name: &str) -> Outcome {
    let path = site.dir().join(name);
    fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(site: &Site, name: &str, bytes: usize) -> Outcome {
    let path = site.dir().join(name);
    fs::write(&path, vec![7; bytes]).map_err(|error| format!("{}: {error}", path.display()))
}

/// Checks whether a read moves the access time, as the mount's options say.
fn read_moves(site: &Site, name: &str, wanted: bool) -> Outcome {
    let path = site.dir().join(name);
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let accessed = || fs::metadata(&path).and_then(|meta| meta.accessed());
    let before = accessed().map_err(failed)?;
    fs::read(&path).map_err(failed)?;
    let moved = accessed().map_err(failed)? > before;
    if moved == wanted { Ok(()) } else { Err(format!("{}: a read moved its access time: {moved}", path.display())) }
}

/// Fetches the page that `up --metrics` announces.
fn ask_for_metrics(site: &Site) -> Outcome {
    let page = || -> std::io::Result<String> {
        let mut connection = TcpStream::connect(site.fill("127.0.0.1:{port}"))?;
        connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")?;
        let mut page = String::new();
        connection.read_to_string(&mut page)?;
        Ok(page)
    };
    let page = page().map_err(|error| format!("the page of metrics: {error}"))?;
    if page.contains("forebay_") { Ok(()) } else { Err(format!("the page of metrics has none: {page}")) }
}
