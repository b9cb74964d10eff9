//! The laboratory on a small scale: the baseline matches its calibration, the modes are in the right order, and the
//! same seed gives the same numbers.

use std::time::Duration;

use forebay_lab::{self as lab, CPU_COSTS, Machine, MeasuredCosts, SPIDER, SpiderOptions, Window};

/// The allocator of the real program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The paper's tiers, behind one server with two of them.
fn small() -> Machine {
    let mut machine = Machine::parse(SPIDER).expect("a machine");
    machine.servers.nodes.value = 1.0;
    machine.servers.osts_per_node.value = 2.0;
    machine.clients.nodes.value = 2.0;
    machine
}

fn window() -> Window {
    Window { warm_up: Duration::from_millis(500), length: Duration::from_millis(1500) }
}

#[test]
fn the_baseline_is_what_it_was_calibrated_on() {
    let machine = Machine::parse(SPIDER).expect("a machine");
    let lun = lab::xdd(&machine, false, 1).expect("xdd");
    let published = [(lun.read, 685.62), (lun.write, 235.45), (lun.random_read, 101.74), (lun.random_write, 96.77)];
    for (ours, theirs) in published {
        assert!((ours / theirs - 1.0).abs() < 0.03, "{ours} MB/s, and {theirs} were measured");
    }
}

#[test]
fn a_journal_that_nobody_waits_for_costs_less_than_one_on_the_same_heads() {
    let (machine, costs) = (small(), MeasuredCosts::parse(CPU_COSTS).expect("costs").table(1.0));
    let rate = |name: &str| {
        let mode = lab::mode(name).expect("a mode");
        lab::survey(&machine, mode, &costs, 8, window(), 3).expect("a survey").mb_s
    };
    let (sync, ssd, asynchronous) = (rate("sync-internal"), rate("external-ssd"), rate("async-internal"));
    assert!(sync < ssd && ssd < asynchronous, "{sync} {ssd} {asynchronous}");
}

#[test]
#[allow(clippy::disallowed_methods)] // plain threads, each with simulators of its own
fn two_runs_of_a_seed_give_the_same_table() {
    let options = |seed| SpiderOptions {
        seed,
        threads: vec![8],
        modes: lab::MODES.to_vec(),
        window: window(),
        gtc_steps: 1,
        cpu_factor: 1.0,
    };
    let run = |seed| format!("{:?}", lab::spider(&small(), &options(seed), &mut |_, _, _| {}).expect("an experiment"));
    let [first, again, other] = std::thread::scope(|scope| {
        [5, 5, 6].map(|seed| scope.spawn(move || run(seed))).map(|running| running.join().expect("an experiment"))
    });
    assert_eq!(first, again);
    assert_ne!(first, other);
}

#[test]
fn described_machines_write_and_read() {
    let costs = MeasuredCosts::parse(CPU_COSTS).expect("costs").table(1.0);
    for text in [
        include_str!("../../../machines/hdd.toml"),
        include_str!("../../../machines/laptop.toml"),
        include_str!("../../../machines/nvme.toml"),
        include_str!("../../../machines/raid6-cache.toml"),
    ] {
        let mut machine = Machine::parse(text).expect("a machine");
        machine.servers.nodes.value = 1.0;
        machine.servers.osts_per_node.value = 2.0;
        machine.clients.nodes.value = 2.0;
        let mode = lab::mode("default").expect("a mode");
        let window = Window { warm_up: Duration::from_millis(100), length: Duration::from_millis(400) };
        let ior = lab::ior(&machine, mode, &costs, window, true, 1).expect("ior");
        assert!(ior.write.mb_s > 20.0 && ior.read.is_some_and(|read| read.mb_s > 20.0), "{}: {ior:?}", machine.name);
    }
}

#[test]
fn programs_on_one_machine_share_its_cores_and_wait_for_their_files_to_grow() {
    let costs = MeasuredCosts::parse(CPU_COSTS).expect("costs").table(1.0);
    let machine = |cores: u32, wake_us: u32| {
        let text = include_str!("../../../machines/laptop.toml")
            .replacen("nodes = { value = 4,", "nodes = { value = 1,", 1)
            .replacen("cores = { value = 8,", &format!("cores = {{ value = {cores},"), 1);
        let costs = ["program_write", "program_read", "write", "gather", "read", "kept"].map(|name| {
            format!(
                "{name}_us = {{ value = 5, source = \"the test\" }}\n\
                 {name}_byte_ns = {{ value = 0.05, source = \"the test\" }}\n"
            )
        });
        let mount = format!(
            "\n[mount]\nprograms = {{ value = 4, source = \"the test\" }}\n{}wake_us = {{ value = {wake_us}, source = \"the test\" }}\nwake_work_us = {{ value = 1, source = \"the test\" }}\n",
            costs.concat()
        );
        let mut machine = Machine::parse(&(text + &mount)).expect("a machine");
        // Make sure that the device is not the limit.
        for rate in ["tier.read_mb_s", "tier.write_mb_s", "port.mb_s", "network.node_mb_s"] {
            machine.set(rate, 20_000.0).expect("a parameter");
        }
        machine
    };
    let mode = lab::mode("default").expect("a mode");
    let [own, shared] = lab::PATTERNS.map(|pattern| lab::Pattern { transfers: pattern.transfers / 16, ..pattern });
    let run =
        |machine: &Machine, pattern| lab::mounted(machine, mode, (&costs, 1.0), pattern, 1).expect("a prediction");
    let few = run(&machine(1, 10), own);
    assert_eq!(few, run(&machine(1, 10), own), "the same seed, the same numbers");
    let many = run(&machine(8, 10), own);
    assert!(few.write_mb_s < many.write_mb_s && few.read_mb_s < many.read_mb_s, "{few:?} {many:?}");
    let (awake, asleep) = (run(&machine(8, 10), shared), run(&machine(8, 60), shared));
    assert!(asleep.write_mb_s < 0.6 * awake.write_mb_s, "each record waits for the one before: {awake:?} {asleep:?}");
}
