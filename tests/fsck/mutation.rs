//! Whatever bytes a target has, fsck ends in a reasonable time, does not panic, and reports damage or finds none.
//!
//! More runs: `FOREBAY_FSCK_MUTATIONS=N`. One seed again: `FOREBAY_FSCK_SEED=N`.

use forebay_env::sim::{DiskImage, Sim};
use forebay_fsck::Report;
use forebay_proto::crc::crc64;

use crate::world::*;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Flips bits, overwrites, moves and cuts. Where a structure has its own sum, half of the time the sum is made right
/// again, so that the decoders behind it get random fields.
fn mutate(sim: &Sim, image: &mut Image, interesting: &[Vec<u64>]) {
    for _ in 0..=sim.random_below(4) {
        match sim.random_below(20) {
            0 => {
                let identity = image.files.get_mut("target/identity").unwrap();
                mutate_bytes(sim, identity);
                if sim.chance(0.7) && identity.len() >= 512 {
                    let sum = crc64(&identity[..504]);
                    identity[504..512].copy_from_slice(&sum.to_le_bytes());
                }
            }
            1 => {
                let disk = &mut image.disks[sim.random_below(2) as usize];
                *disk = cut(disk, sim.random_below(disk.bytes() / 4096 + 1) * 4096);
            }
            _ => {
                let which = sim.random_below(2) as usize;
                mutate_disk(sim, &mut image.disks[which], &interesting[which]);
            }
        }
    }
}

fn cut(disk: &DiskImage, bytes: u64) -> DiskImage {
    let bytes = bytes.max(4096);
    let mut short = DiskImage::zeroed(bytes);
    short.write(0, &disk.read(0, bytes.min(disk.bytes()) as usize));
    short
}

fn mutate_bytes(sim: &Sim, bytes: &mut Vec<u8>) {
    match sim.random_below(4) {
        0 => bytes.truncate(sim.random_below(bytes.len() as u64 + 1) as usize),
        _ => {
            for _ in 0..=sim.random_below(8) {
                let at = sim.random_below(bytes.len() as u64) as usize;
                bytes[at] = wild(sim, bytes[at]);
            }
        }
    }
}

fn wild(sim: &Sim, byte: u8) -> u8 {
    match sim.random_below(4) {
        0 => byte ^ 1 << sim.random_below(8),
        1 => 0xff,
        2 => 0,
        _ => sim.random_u64() as u8,
    }
}

fn mutate_disk(sim: &Sim, disk: &mut DiskImage, interesting: &[u64]) {
    let sectors = disk.bytes() / 4096;
    if sectors < 2 {
        return;
    }
    let pick = || match interesting.is_empty() || sim.chance(0.2) {
        true => sim.random_below(sectors) * 4096,
        false => interesting[sim.random_below(interesting.len() as u64) as usize].min((sectors - 1) * 4096),
    };
    let at = pick();
    match sim.random_below(6) {
        // Splice: sectors from another offset.
        0 => {
            let (from, count) = (pick(), 1 + sim.random_below(4));
            let count = count.min((disk.bytes() - at.max(from)) / 4096);
            let moved = disk.read(from, (count * 4096) as usize);
            disk.write(at, &moved);
        }
        1 => disk.write(at, &[0; 4096]),
        _ => {
            let mut sector = disk.read(at, 4096);
            for _ in 0..=sim.random_below(5) {
                // Most structures begin at a sector's start.
                let byte = if sim.chance(0.8) { sim.random_below(256) } else { sim.random_below(4096) } as usize;
                sector[byte] = wild(sim, sector[byte]);
            }
            if sim.chance(0.6) {
                reseal(disk, at, &mut sector);
            }
            disk.write(at, &sector);
        }
    }
}

/// Makes the sum right again for the structure that the sector seems to be.
fn reseal(disk: &DiskImage, at: u64, sector: &mut [u8]) {
    let put = |sector: &mut [u8], at: usize, sum: u64| sector[at..at + 8].copy_from_slice(&sum.to_le_bytes());
    if sector[8..16] == *b"FBanchor" {
        let sum = crc64(&sector[8..]);
        put(sector, 0, sum);
    } else if sector[8..12] == *b"FBjr" {
        let salt = u64::from_le_bytes(disk.read(48, 8).try_into().unwrap());
        let length = u64::from(u32::from_le_bytes(sector[40..44].try_into().unwrap()));
        let rest = length.saturating_sub(4096).min(disk.bytes() - at - 4096);
        let whole = [&sector[8..], &disk.read(at + 4096, rest as usize)].concat();
        put(sector, 0, crc64(&whole) ^ salt);
    } else if sector[..8] == *b"FBYRUN01" {
        let length = u64::from(u32::from_le_bytes(sector[12..16].try_into().unwrap()));
        let rest = length.saturating_sub(4096).min(disk.bytes() - at - 4096);
        sector[80..88].fill(0);
        let sum = crc64(&[&sector[..], &disk.read(at + 4096, rest as usize)].concat());
        put(sector, 80, sum);
    } else {
        let sum = crc64(&sector[..4088]);
        put(sector, 4088, sum);
    }
}

/// Offsets where structures begin.
fn interesting(disk: &DiskImage) -> Vec<u64> {
    let starts = |at: &u64| {
        let head = disk.read(*at, 24);
        head.starts_with(b"FBY") || &head[8..12] == b"FBjr" || &head[8..16] == b"FBanchor" || head.starts_with(b"FBIX")
    };
    (0..disk.bytes() / 4096).map(|n| n * 4096).filter(starts).collect()
}

/// The journal has many changes that no checkpoint has, and the slabs have some of everything.
fn base(seed: u64) -> World {
    let world = ost(seed);
    world.open(async |store| {
        for number in 0..300u64 {
            put(store, &object_key(crate::common::fid(100 + number)), object(0, 1)).await;
        }
        store.checkpoint().await.unwrap();
        for number in 0..30u64 {
            put(store, &object_key(crate::common::fid(100 + number)), object(1, 1)).await;
            if number % 5 == 0 {
                store.sync().await.unwrap();
            }
        }
    });
    world
}

#[test]
fn no_bytes_make_fsck_panic_or_run_on() {
    let world = base(1);
    let image = world.image();
    let interesting: Vec<_> = image.disks.iter().map(interesting).collect();
    assert_clean(&world.check(ALL), "before");
    let seeds = match number("FOREBAY_FSCK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FOREBAY_FSCK_MUTATIONS").unwrap_or(3000),
    };
    let (mut told, mut clean, mut refused) = (0u64, 0u64, 0u64);
    for seed in seeds {
        let chance = Sim::new(seed);
        let mut mutated = image.clone();
        mutate(&chance, &mut mutated, &interesting);
        world.set_image(&mutated);
        eprintln!("repeat with FOREBAY_FSCK_SEED={seed}");
        match world.try_check(ALL) {
            Ok(report) => {
                let _ = (report.to_text(forebay_fsck::Severity::Info), report.to_json().to_string());
                *if report.is_clean() { &mut clean } else { &mut told } += 1;
                check_bounds(&report);
            }
            Err(error) => {
                assert!(!error.message.is_empty());
                refused += 1;
            }
        }
    }
    println!("{told} told, {clean} clean (what was hit is garbage), {refused} refused");
}

fn check_bounds(report: &Report) {
    assert!(report.findings.len() <= forebay_fsck::limits::FINDINGS_OF_A_KIND * forebay_fsck::Kind::ALL.len());
    assert!(report.stats.passes <= 2, "{:?}", report.stats);
}

#[test]
fn repair_of_mutated_targets_does_not_panic_and_leaves_nothing_worse() {
    let world = base(2);
    let image = world.image();
    let interesting: Vec<_> = image.disks.iter().map(interesting).collect();
    for seed in 0..number("FOREBAY_FSCK_MUTATIONS").unwrap_or(3000) / 10 {
        let chance = Sim::new(seed ^ 0xfeed);
        let mut mutated = image.clone();
        mutate(&chance, &mut mutated, &interesting);
        world.set_image(&mutated);
        let Ok(before) = world.try_check(ALL) else { continue };
        if world.repair(true).is_ok() {
            let after = world.check(ALL);
            assert!(
                after.count(forebay_fsck::Severity::Error) <= before.count(forebay_fsck::Severity::Error),
                "seed {seed}"
            );
        }
    }
}
