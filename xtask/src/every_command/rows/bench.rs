//! Benchmarks on the smallest scale.

use std::fs;

use super::{Row, ok, prepare};
use crate::{every_command::site::Site, figures::Outcome};

/// In the directory of the section, and on devices that are files.
pub const ROWS: &[Row] = &[
    ok(
        "bench ior {d} -o some -N 2 -F -t 4KiB -b 64KiB -s 2 -w -r -W -R --stamp -e -D 5s -i 1 -C -z --seed 2 -B --keep-caches --cpu-of \
         {pid} --json",
        "\"bench\":\"ior\"",
    ),
    ok("bench ior {d} -t 64KiB -b 64KiB -k", "2 processes, one shared file"),
    ok(
        "bench mdtest {d} -o tree -N 2 -n 5 -b 2 -z 1 -L -u -F -C -T -E -r -w 1K -e 1K -y --stride 1 -R --seed 2 -i 1 --cpu-of {pid} \
         --json",
        "\"bench\":\"mdtest\"",
    ),
    ok("bench mdtest {d} -I 3 -D", "3 directories each in one shared tree"),
    ok("bench metarates {d} -N 2 -n 5 -u --stride 1 -i 1 --cpu-of {pid} --json", "\"bench\":\"metarates\""),
    ok(
        "bench xdd {d} --op write,read --access sequential,random --request 64KiB --depth 2 --bytes 1MiB --size 1MiB -i 1 --seed 2 \
         --buffered --sync --json",
        "random-read",
    ),
    prepare(|site| used_file(site, "used")),
    ok("bench xdd {d}/used --op write --seconds 100ms --size 1MiB --overwrite", "1 target"),
    ok(
        "bench obdfilter-survey {d}/survey --case disk,network,netdisk,striped --osts 1 --size 2MiB --rsz 256KiB --nobjlo 1 --nobjhi 1 \
         --thrlo 1 --thrhi 1 -i 1 --listen 127.0.0.1:{port} --json",
        "\"bench\":\"obdfilter-survey\"",
    ),
    ok(
        "bench obdfilter-survey {d}/survey --case network,netdisk --osts 1 --size 2MiB --rsz 256KiB --nobjhi 1 --thrhi 1 --tls \
         --listen 127.0.0.1:{port}",
        "netdisk",
    ),
    ok(
        "bench obdfilter-survey {d}/survey --case network,netdisk --osts 1 --size 2MiB --rsz 256KiB --nobjhi 1 --thrhi 1 \
         --integrity-only --listen 127.0.0.1:{port}",
        "netdisk",
    ),
    ok(
        "bench store {d} --size 256MiB --bytes 16MiB --object 16MiB --depth 4 --age --rest 1 --overwrites 0.02 -i 1 --sums --seed 2 --json",
        "aged-of-fresh",
    ),
    ok("bench store {device} --dir {d} --overwrite --bytes 16MiB -i 1", "fresh-store").on_device(),
    ok(
        "bench namespace {d} --files 1k --per-directory 1000 --remove --depth 8 --lookups 10 --before-crash 1k --cache 256MiB --store 512MiB \
         --json",
        "\"bench\":\"namespace\"",
    ),
    // The programs that it starts for each of its phases.
    prepare(|site| make_dir(site, "phases/forebay-bench-namespace")),
    ok(
        "format mdt {d}/phases/forebay-bench-namespace/MDT0000 --cluster 11111111-2222-3333-4444-555555555555 --size 256MiB",
        "MDT0000",
    ),
    ok(
        "format ost {d}/phases/forebay-bench-namespace/OST0000 --cluster 11111111-2222-3333-4444-555555555555 --size 256MiB",
        "OST0000",
    ),
    ok("bench namespace {d}/phases --files 1k --lookups 10 --phase create", "table_bytes"),
    ok("bench namespace {d}/phases --files 1k --lookups 10 --phase restart", "lookup_us"),
    ok("bench namespace {d}/phases --files 1k --before-crash 1k --phase crash", "peak_bytes").ends_with(-libc::SIGKILL),
    ok("bench namespace {d}/phases --files 1k --phase remove", "longest_page_ms"),
    ok("bench fuse-floor {d}/floor -N 1 --files 10 -i 1 --transport dev --json", "\"bench\":\"fuse-floor\""),
    ok("bench fuse-floor {d}/floor --hold", "mounted at").beside("mounted at {d}/floor", &[]),
    ok(
        "bench cpu-costs {d}/costs --files 100 --bytes 64MiB --depth 8 -i 1 --listen 127.0.0.1:{port+8} --toml {d}/costs.toml --json",
        "\"bench\":\"cpu-costs\"",
    ),
    ok("bench machine {d}/parts --toml {d}/here.toml --osts 2 -N 1 --bytes 64MiB -i 1", "forebay sim {d}/here.toml")
        .long("measures a quiet machine for ten seconds; crates/cli/tests/bench.rs runs it"),
    // The programs that ior, mdtest and metarates start for each process. They end with their input.
    ok("bench-ior-task", ""),
    ok("bench-names-task", ""),
];

fn used_file(site: &Site, name: &str) -> Outcome {
    let path = site.dir().join(name);
    fs::write(&path, vec![7; 1 << 20]).map_err(|error| format!("{}: {error}", path.display()))
}

fn make_dir(site: &Site, name: &str) -> Outcome {
    let path = site.dir().join(name);
    fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))
}
