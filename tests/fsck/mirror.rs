//! A mirrored target: fsck checks both copies, reports damage of only one of them, and repairs both.

use forebay_env::{
    Env,
    sim::{Fault, NodeId, Sim, TearChoice},
};
use forebay_fsck::{CheckOptions, Finding, Kind, RepairOptions, Report, Severity, exit};
use forebay_store::Store;

use crate::{
    common::{history, *},
    world::*,
};

/// A mirrored OST with a few objects, stopped cleanly.
fn filled(seed: u64) -> (Sim, NodeId) {
    let sim = Sim::new(seed);
    let node = sim.add_node("target");
    let env = sim.env(node);
    sim.block_on(async {
        let store = fresh(&env, &mirrored(tiny()), &quick()).await;
        for number in 0..6u64 {
            write(&store, fid(number), 0, 60_000, number + 1).await.unwrap();
            put(&store, &object_key(fid(number)), object(60_000, number + 1)).await;
        }
        store.close().await.unwrap();
    });
    sim.crash(node);
    (sim, node)
}

fn check(sim: &Sim, node: NodeId, dir: &str, options: CheckOptions) -> Report {
    let env = sim.env(node);
    let report = sim.block_on(forebay_fsck::check(&env, dir, options)).expect("fsck does its work");
    sim.crash(node);
    report
}

fn of_mirror(report: &Report) -> Vec<&Finding> {
    report.findings.iter().filter(|finding| finding.kind == Kind::Mirror).collect()
}

fn take_away(sim: &Sim, node: NodeId, dir: &str) {
    let env: Env = sim.env(node);
    let paths = sim.disks(node).into_iter().chain(sim.files(node).into_keys());
    paths.filter(|path| path.starts_with(&format!("{dir}/"))).for_each(|path| env.remove_file(&path).unwrap());
    sim.crash(node);
}

#[test]
fn two_copies_that_agree_are_clean_from_either_side() {
    let (sim, node) = filled(1);
    for dir in [DIR, MIRROR] {
        let report = check(&sim, node, dir, ALL);
        assert!(report.is_clean() && report.findings.is_empty(), "{}", report.to_text(Severity::Info));
        assert_eq!(report.stats.files, 6);
    }
}

#[test]
fn damage_to_one_copy_is_a_warning_and_damage_to_both_an_error() {
    let (sim, node) = filled(2);
    let data = sim.disk_bytes(node, "target/data");
    let at =
        data.windows(64).position(|window| window == &stamped(fid(3), 0, 64, 4)[..]).expect("it lies there") as u64;
    sim.disk_fault(node, "target/data", Fault::Rot { offset: at, bits: 1 });
    let report = check(&sim, node, DIR, ALL);
    assert_eq!(
        (report.count(Severity::Error), report.exit_code()),
        (0, exit::LEFT),
        "{}",
        report.to_text(Severity::Info)
    );
    assert!(of_mirror(&report).iter().any(|finding| finding.what.contains("in one copy only")));
    sim.disk_fault(node, "mirror/data", Fault::Rot { offset: at, bits: 1 });
    assert_finds(&check(&sim, node, DIR, ALL), Kind::Data, "the same bytes");
}

#[test]
fn a_missing_copy_is_told_and_the_other_one_is_checked() {
    let (sim, node) = filled(3);
    take_away(&sim, node, MIRROR);
    let report = check(&sim, node, DIR, ALL);
    assert_eq!((report.stats.files, report.exit_code()), (6, exit::LEFT));
    assert!(of_mirror(&report).iter().all(|finding| finding.what.contains("cannot know whether it was left behind")));
}

#[test]
fn repair_mends_both_copies() {
    for lost in [DIR, MIRROR] {
        let (sim, node) = filled(4);
        let env = sim.env(node);
        sim.block_on(async {
            let store = Store::open(&env, DIR, &quick()).await.unwrap();
            delete(&store, &object_key(fid(2))).await;
            store.close().await.unwrap();
            let options = RepairOptions { check: ALL, remove_leaks: true, mdt: None };
            env.sleep(std::time::Duration::from_millis(1)).await;
            let report = forebay_fsck::repair(&env, DIR, options).await.unwrap();
            assert_eq!(report.exit_code(), exit::REPAIRED, "{}", report.to_text(Severity::Info));
        });
        sim.crash(node);
        take_away(&sim, node, lost);
        let kept = if lost == DIR { MIRROR } else { DIR };
        let env = sim.env(node);
        sim.block_on(async {
            Store::mirror_alone(&env, kept).await.unwrap();
            let store = Store::open(&env, kept, &quick()).await.unwrap();
            assert_eq!(store.identity().generation, 2);
            store.close().await.unwrap();
        });
        sim.crash(node);
        let report = check(&sim, node, kept, ALL);
        assert!(
            report.findings.iter().all(|finding| finding.kind == Kind::Mirror),
            "{}",
            report.to_text(Severity::Info)
        );
    }
}

/// |X| at writes
#[test]
fn fsck_finds_both_copies_clean_after_a_crash() {
    for seed in 0..4 {
        let mut history = history::record_on(seed, &mirrored(history::format_options()), &MIRRORED_DISKS);
        let checker = Sim::new(seed);
        let node = checker.add_node("target");
        for point in (seed as usize % 7..history.recorder.points()).step_by(7) {
            let images = history.recorder.image(point, TearChoice::Random(point as u64));
            checker.set_files(node, history.files.clone());
            MIRRORED_DISKS.iter().zip(images).for_each(|(path, image)| checker.set_disk_image(node, path, image));
            let report = check(&checker, node, DIR, STORE);
            assert_clean(&report, &format!("seed {seed}, {}", history.recorder.describe(point)));
        }
    }
}
