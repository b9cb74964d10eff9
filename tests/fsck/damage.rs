//! Each kind of damage is found and reported as such.

use forebay_env::sim::{DiskImage, Fault};
use forebay_fsck::{Kind, Severity, check_cluster};
use forebay_proto::{crc::crc64, limits::BLOCK_BYTES};

use crate::{common::*, world::*};

/// Device offset of slab 0.
const FIRST_SLAB: u64 = 64 << 10;
const SLAB: u64 = 128 << 10;

fn flip(disk: &mut DiskImage, at: u64) {
    let byte = disk.read(at, 1)[0];
    disk.write(at, &[byte ^ 0x20]);
}

/// Device offsets of sectors that begin with `magic`.
pub fn sectors(disk: &DiskImage, magic: &[u8]) -> Vec<u64> {
    (0..disk.bytes() / 4096).map(|n| n * 4096).filter(|at| disk.read(*at, magic.len()) == magic).collect()
}

/// Offsets of pages of this kind, at any alignment.
fn pages(disk: &DiskImage, kind: u8) -> Vec<u64> {
    let bytes = disk.read(0, disk.bytes() as usize);
    (0..bytes.len() - 8)
        .filter(|at| bytes[*at..at + 7] == [b'F', b'B', b'I', b'X', 1, 0, kind])
        .map(|at| at as u64)
        .collect()
}

fn damaged(seed: u64, damage: impl FnOnce(&mut Image)) -> forebay_fsck::Report {
    let world = ost(seed);
    let mut image = world.image();
    damage(&mut image);
    world.set_image(&image);
    world.check(ALL)
}

#[test]
fn a_rotten_identity_is_found() {
    let report = damaged(1, |image| image.files.get_mut("target/identity").unwrap()[60] ^= 1);
    assert_finds(&report, Kind::Identity, "identity");
    assert_eq!(report.exit_code(), forebay_fsck::exit::LEFT);
}

#[test]
fn a_rotten_device_header_is_found_and_the_rest_is_checked() {
    let report = damaged(2, |image| flip(&mut image.disks[0], 40));
    assert_finds(&report, Kind::DeviceHeader, "header");
    assert_eq!(report.stats.files, 6);
}

#[test]
fn swapped_data_and_journal_devices_are_named() {
    let (a, b) = (ost(3), ost(4));
    let (mut left, mut right) = (a.image(), b.image());
    std::mem::swap(&mut left.disks[0], &mut right.disks[0]);
    a.set_image(&left);
    b.set_image(&right);
    let reports = [a.check(ALL), b.check(ALL)];
    reports.iter().for_each(|report| assert_finds(report, Kind::WrongDevice, "data"));
    let cluster = check_cluster(&reports, Default::default());
    assert_eq!(cluster.count_of(Kind::WrongDevice), 2);
    std::mem::swap(&mut left.disks, &mut right.disks);
    std::mem::swap(&mut left.disks[0], &mut right.disks[0]);
    a.set_image(&left);
    let report = a.check(ALL);
    assert_finds(&report, Kind::WrongDevice, "all of another");
}

#[test]
fn anothers_journal_is_named() {
    let other = ost(5).image();
    let report = damaged(6, |image| image.disks[1] = other.disks[1].clone());
    assert_finds(&report, Kind::WrongDevice, "journal");
    assert_eq!(report.foreign.len(), 1);
}

#[test]
fn the_newest_anchor_gone_is_corruption_and_the_older_one_is_not() {
    let world = ost(7);
    let image = world.image();
    let seq = |slot: u64| u64::from_le_bytes(image.disks[1].read(slot * 4096 + 40, 8).try_into().unwrap());
    let newest = u64::from(seq(1) > seq(0));
    for (slot, kind) in [(newest, Kind::Anchor), (1 - newest, Kind::SpareAnchor)] {
        let mut image = image.clone();
        flip(&mut image.disks[1], slot * 4096 + 100);
        world.set_image(&image);
        let report = world.check(ALL);
        assert!(report.count_of(kind) > 0, "{}", report.to_text(Severity::Info));
        assert_eq!(report.is_clean(), kind == Kind::SpareAnchor);
    }
    let mut image = image;
    image.disks[1].write(0, &[0; 8192]);
    world.set_image(&image);
    assert_finds(&world.check(ALL), Kind::JournalLost, "both gone");
}

#[test]
fn a_durable_record_that_rots_is_corruption() {
    let world = World::new(8);
    let env = world.env();
    world.sim.block_on(async {
        let store = fresh(&env, &tiny(), &quick()).await;
        for number in 0..5 {
            put(&store, b"\x20row", vec![number; 100]).await;
            store.sync().await.unwrap();
        }
        std::mem::forget(store);
    });
    world.sim.power_cut(world.node);
    let image = world.image();
    let at: Vec<u64> = (2..64).map(|n| n * 4096).filter(|at| image.disks[1].read(at + 8, 4) == b"FBjr").collect();
    assert!(at.len() > 4);
    // No record attests the last one: without it the journal is just shorter, as after a crash.
    for at in &at[..at.len() - 1] {
        let mut image = image.clone();
        flip(&mut image.disks[1], at + 200);
        world.set_image(&image);
        assert_finds(&world.check(STORE), Kind::Journal, "record");
    }
}

#[test]
fn every_kind_of_page_that_rots_is_found() {
    for kind in 1..=3u8 {
        let world = ost(9);
        let image = world.image();
        let mut found = 0;
        for at in pages(&image.disks[0], kind) {
            let mut image = image.clone();
            flip(&mut image.disks[0], at + 40);
            world.set_image(&image);
            found += world.check(STORE).count_of(Kind::Page);
        }
        // Pages of old checkpoints are garbage; those of the last one are not.
        assert!(found >= 1, "kind {kind}");
    }
}

#[test]
fn rotten_data_is_found_where_it_lies_and_only_if_it_lives() {
    let world = ost(10);
    let image = world.image();
    let bytes = image.disks[0].read(0, image.disks[0].bytes() as usize);
    let stamped = stamped(fid(3), 15_000, 4096, 4);
    let at = bytes.windows(4096).position(|window| *window == stamped[..]).expect("it lies somewhere") as u64;
    let mut image = image;
    flip(&mut image.disks[0], at + 1000);
    world.set_image(&image);
    let report = world.check(ALL);
    assert_finds(&report, Kind::Data, "data");
    assert!(
        report.to_text(Severity::Error).contains("object bytes 15000 to 65536"),
        "{}",
        report.to_text(Severity::Error)
    );
    assert_clean(&world.check(forebay_fsck::CheckOptions { verify_data: false, rows: true }), "without reading data");
}

#[test]
fn a_rotten_run_header_under_living_data_is_found() {
    let world = ost(11);
    let image = world.image();
    let mut found = 0;
    for at in sectors(&image.disks[0], b"FBYRUN01") {
        let mut image = image.clone();
        flip(&mut image.disks[0], at + 100);
        world.set_image(&image);
        let report = world.check(ALL);
        assert!(report.count_of(Kind::TornRun) > 0);
        found += u64::from(report.count_of(Kind::Mismatch) > 0);
    }
    assert!(found >= 4, "{found}");
}

#[test]
fn a_rotten_slab_header_under_living_data_is_found() {
    let report = damaged(12, |image| {
        (0..10).for_each(|slab| flip(&mut image.disks[0], FIRST_SLAB + slab * SLAB + 20));
    });
    assert_finds(&report, Kind::SlabHeader, "slab headers");
}

#[test]
fn a_lost_slab_with_older_valid_content_is_found() {
    // Row 12 of the faults: the device lost all writes to a slab since an earlier epoch. All sums in it are right.
    let world = World::new(13);
    let mut old = None;
    world.filled(&tiny(), &quick(), async |store| {
        for round in 0..400u64 {
            write(store, fid(round % 5), 0, 60_000, round + 1).await.unwrap();
            if round == 60 {
                old = Some(world.sim.disk_image(world.node, DISKS[0]));
            }
        }
    });
    let (mut image, old) = (world.image(), old.unwrap());
    for slab in 0..40 {
        let at = FIRST_SLAB + slab * SLAB;
        image.disks[0].write(at, &old.read(at, SLAB as usize));
    }
    world.set_image(&image);
    let report = world.check(STORE);
    assert!(!report.is_clean());
}

#[test]
fn a_misdirected_write_of_a_valid_block_is_found() {
    let world = ost(14);
    let mut image = world.image();
    let bytes = image.disks[0].read(0, image.disks[0].bytes() as usize);
    let find =
        |stamped: &[u8]| bytes.windows(4096).position(|window| window == stamped).expect("it lies somewhere") as u64;
    let (from, to) = (find(&stamped(fid(3), 15_000, 4096, 4)), find(&stamped(fid(4), 20_000, 4096, 5)));
    let block = image.disks[0].read(from, (BLOCK_BYTES - 20_000) as usize);
    image.disks[0].write(to, &block);
    world.set_image(&image);
    assert_finds(&world.check(ALL), Kind::Data, "misdirected");
}

#[test]
fn a_checkpoint_that_miscounts_its_slabs_is_found() {
    let world = ost(15);
    let image = world.image();
    // The anchor lists the snapshot's piece. Change the live bytes in it, and make all sums right.
    let mut image = image;
    let seq = |slot: u64| u64::from_le_bytes(image.disks[1].read(slot * 4096 + 40, 8).try_into().unwrap());
    let anchor = if seq(1) > seq(0) { 4096 } else { 0 };
    let mut sector = image.disks[1].read(anchor, 4096);
    let piece = 512 + 5;
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let at = FIRST_SLAB + u64::from(word(&sector, piece)) * SLAB + u64::from(word(&sector, piece + 12));
    let length = word(&sector, piece + 16) as usize;
    let mut snapshot = image.disks[0].read(at, length);
    snapshot[length - 17 + 8] ^= 8;
    let sum = crc64(&snapshot);
    sector[piece + 20..piece + 28].copy_from_slice(&sum.to_le_bytes());
    let anchor_sum = crc64(&sector[8..]);
    sector[..8].copy_from_slice(&anchor_sum.to_le_bytes());
    image.disks[0].write(at, &snapshot);
    image.disks[1].write(anchor, &sector);
    world.set_image(&image);
    let report = world.check(ALL);
    assert!(report.count_of(Kind::SlabCount) > 0, "{}", report.to_text(Severity::Info));
}

#[test]
fn devices_cut_short_are_found() {
    for disk in 0..2 {
        let world = ost(16);
        let mut image = world.image();
        let bytes = image.disks[disk].read(0, (image.disks[disk].bytes() / 2 / 4096 * 4096) as usize);
        let mut short = DiskImage::zeroed(bytes.len() as u64);
        short.write(0, &bytes);
        image.disks[disk] = short;
        world.set_image(&image);
        assert_finds(&world.check(ALL), Kind::WrongDevice, "short");
    }
}

#[test]
fn rows_of_an_ost_that_disagree_are_found() {
    let world = ost(17);
    world.open(async |store| {
        put(store, &object_key(fid(0)), object(10, 1)).await;
        delete(store, &object_key(fid(3))).await;
        put(store, &object_key(fid(9)), vec![1, 2]).await;
        put(store, b"\x82what", "is this").await;
        put(store, b"\x11\0\0\0\0\0\0\0\x07\0\0", vec![9]).await;
        put(store, &object_key(fid(10)), object(0, 1 << 50)).await;
    });
    let report = world.check(ALL);
    for kind in [Kind::ObjectSize, Kind::ObjectMissing, Kind::Row, Kind::UnknownRow, Kind::Ahead] {
        assert_finds(&report, kind, "rows");
    }
}

#[test]
fn sectors_that_cannot_be_read_are_told() {
    let world = ost(18);
    world.sim.disk_fault(world.node, DISKS[0], Fault::ReadEio { range: FIRST_SLAB..FIRST_SLAB + SLAB });
    let report = world.check(ALL);
    assert!(!report.is_clean() && report.count_of(Kind::Unreadable) + report.count_of(Kind::Data) > 0);
}
