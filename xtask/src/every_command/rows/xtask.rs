//! `xtask`, on its page and on clusters that it makes.

use super::{Row, xtask};

/// On the smallest scale.
pub const ROWS: &[Row] = &[
    xtask("check --print", "cargo clippy --workspace"),
    xtask("test a_name_finds_functions_before_files --print", "cargo test --release -p xtask --bin xtask"),
    xtask("test no_test_has_this_name --print", "no test function or test file").ends_with(1),
    xtask("seed 7 --print", "FOREBAY_SEED=7 cargo test"),
    xtask("seed 7 --of disasters --print", "one_seed"),
    xtask("seed 7 --of mirror --trace --print", "FOREBAY_MIRROR=1 FOREBAY_TRACE=1"),
    xtask("seed 7 --of histories --print", "one_history"),
    xtask("bless --print", "FOREBAY_BLESS=1"),
    xtask("code --against HEAD", "longest functions of the client in HEAD"),
    xtask("histories --seconds 1 --mounts 2 --workers 1 --seed 2 --dir {d}/h --program {forebay}", "histories:"),
    xtask("histories --rounds 1 --dir {d}/h2 --program {forebay}", "histories: 1 rounds"),
    xtask("histories --rounds 1 --hosts --dir {d}/h4 --program {forebay}", "histories: 1 rounds"),
    xtask("histories --minutes 0 --dir {d}/h3 --program {forebay}", "histories: 0 rounds"),
    xtask(
        "crashes --kills 1 --power-cuts 1 --pauses 0 --mounts 1 --workers 1 --seed 2 --dir {d}/c --program {forebay}",
        "crashes: seed 2",
    ),
    xtask(
        "crashes --kills 1 --power-cuts 1 --pauses 0 --mounts 1 --workers 1 --hosts --dir {d}/c3 --program {forebay}",
        "crashes: seed 1",
    ),
    xtask("crashes --recovery 1 --dir {d}/c2 --program {forebay}", "recovery:").long("replays 256 MiB of 8 mounts"),
    xtask(
        "suites --quick --only fsx,fsx-two,fsx-mmap,fsx-two-mmap --operations 100 --seeds 1 --dir {d}/s --program {forebay}",
        "fsx-two-mmap: passed",
    )
    .long("installs fsx; xtask/tests/suites.rs runs it"),
    xtask("suites --quick --only pjdfstest,programs --hosts --dir {d}/s2 --program {forebay}", "pjdfstest: passed")
        .long("installs pjdfstest and runs whole programs; xtask/tests/suites.rs runs pjdfstest"),
    xtask("pairs --seconds 1 --threads 2 --seed 2 --dir {d}/p --program {forebay}", "no difference"),
    xtask("pairs --seconds 1 --threads 2 --dir {d}/p2 --local {d}", "no difference"),
    xtask(
        "differential --seeds 3 --steps 40 --mounts 2 --options rpcs_in_flight=4 --striped --restarts --without flock --until 30 --trace --shrink \
         --dir {d}/d --program {forebay}",
        "differential:",
    ),
    xtask("planted --list", "read-sum-skipped"),
    xtask("planted --only read-sum-skipped --skip-sound", "1 of 1 planted bugs").long("builds all tests anew, with the bugs"),
    xtask("sensitivity --only tier.elevator --quick --print --program {forebay}", "`tier.elevator` 0 to 1"),
    xtask("figures --only store,namespace --least --print --dir {d}/f --program {forebay}", "% of raw"),
    xtask("figures --only memory,syscalls --least --print --dir {d}/f2 --program {forebay}", "peak memory"),
    xtask("figures --only protection --least --print --dir {d}/f7 --program {forebay}", "stats per second"),
    xtask("figures --only mount --least --print --dir {d}/f3 --program {forebay}", "file per process, Forebay"),
    xtask("figures --only names-mount,trees,distance --least --print --dir {d}/f4 --program {forebay}", "% of fuse-floor")
        .long("starts hundreds of programs, and servers again and again"),
    xtask("figures --only prediction,levels --least --print --dir {d}/f5 --program {forebay}", "predicted")
        .long("measures a quiet machine, and twelve devices that are made slow"),
    xtask(
        "figures --only against,before-leases --quick --against HEAD~1 --print --dir {d}/f6 --program {forebay}",
        "earlier",
    )
    .long("builds two earlier commits"),
    xtask("laboratory --quick --only wall --tasks 64 --files 100 --program {forebay}", "stat, 64 tasks: SSD / SATA"),
    xtask("laboratory --quick --only spider --program {forebay}", "gtc-bandwidth").long("simulates a program on 1,344 cores"),
    xtask("laboratory --page", "").long("writes docs/laboratory.md; a test compares that page with the results"),
    xtask("hosts 2 --rails 2 --rate 1gbit", "fb-host2: 10.77.0.2 10.77.1.2"),
    xtask("hosts --remove", "namespaces are removed"),
    xtask("hosts 2 --rate 2gbit --round-trip 19ms --loss 0.001", "packets were dropped").beside("Ctrl-C removes them", &[]),
    xtask("every-command --list --only cluster,targets,bench,sim,xtask --dir {d}/e --program {forebay}", "forebay sim wall"),
    xtask("every-command --long --list --dir {d}/e2 --program {forebay}", "with --long"),
    xtask("package --dir {d}/deb --program {forebay}", "forebay_0.1.0_"),
    // Programs that histories and crashes start.
    xtask("histories-worker no words", "five numbers are missing").ends_with(1),
    xtask("crashes-worker no words at all", "four numbers are missing").ends_with(1),
    xtask("crashes-probe no", "crashes starts its probes itself").ends_with(1),
    xtask("command-tree", "\"every-command\""),
];
