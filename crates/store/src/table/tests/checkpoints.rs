//! What a checkpoint holds, what it frees, and what remains when it fails.

use super::device::{Chance, Device};
use crate::table::{PageId, Table};

fn filled(rows: u32) -> Table {
    let mut table = Table::empty();
    for row in 0..rows {
        table.put(&row.to_be_bytes(), &[row as u8; 100]).unwrap();
    }
    table
}

#[test]
fn a_checkpoint_writes_only_the_pages_that_changed() {
    let (mut device, mut table) = (Device::default(), filled(50_000));
    device.checkpoint(&mut table);
    table.put(&7u32.to_be_bytes(), b"new").unwrap();
    assert_eq!(table.begin_checkpoint(), 3, "a leaf, its inner page, the root");
    table.abandon_checkpoint();
    device.checkpoint(&mut table);
    assert_eq!(table.begin_checkpoint(), 1, "the root");
}

#[test]
fn after_a_checkpoint_every_place_not_freed_is_live() {
    let (mut device, mut table) = (Device::default(), filled(20_000));
    let mut chance = Chance(1);
    for _ in 0..10 {
        device.checkpoint(&mut table);
        for _ in 0..5_000 {
            table.delete(&(chance.below(20_000) as u32).to_be_bytes()).unwrap();
        }
    }
    device.checkpoint(&mut table);
    device.checkpoint(&mut table);
    assert!(device.pages.iter().all(|(location, (id, _))| table.is_live(*id, location)));
    table.evict(0);
    let reached = table.missing_in(b"", &[0xff; 64], usize::MAX).len() + table.begin_checkpoint();
    assert!(device.pages.len() <= reached + 4, "{} pages stay, {reached} are reached", device.pages.len());
}

#[test]
fn leaves_dropped_while_a_checkpoint_runs_are_in_it_and_free_after_the_next() {
    let (mut device, mut table) = (Device::default(), filled(10_000));
    device.checkpoint(&mut table);
    table.begin_checkpoint();
    for row in 0..10_000u32 {
        table.delete(&row.to_be_bytes()).unwrap();
    }
    let root = std::iter::from_fn(|| Some(device.write_pages(&mut table, usize::MAX))).flatten().next().unwrap();
    device.finish(&mut table);
    assert_eq!(device.all_rows(&mut device.open(&root)).len(), 10_000);
    assert!(device.pages.len() > 50);
    device.checkpoint(&mut table);
    assert_eq!(device.pages.len(), 3, "an empty leaf, its inner page, the root");
}

#[test]
fn an_abandoned_checkpoint_frees_nothing_and_loses_nothing() {
    let (mut device, mut table) = (Device::default(), filled(10_000));
    let durable = device.checkpoint(&mut table);
    for row in 0..10_000u32 {
        table.put(&row.to_be_bytes(), b"second").unwrap();
    }
    table.begin_checkpoint();
    device.write_pages(&mut table, 20);
    table.abandon_checkpoint();
    assert_eq!(device.all_rows(&mut device.open(&durable))[&0u32.to_be_bytes()[..]], [0; 100]);
    let root = device.checkpoint(&mut table);
    assert!(device.all_rows(&mut device.open(&root)).values().all(|value| value == b"second"));
}

#[test]
fn relocated_pages_leave_their_slab_with_the_next_checkpoint() {
    let (mut device, mut table) = (Device::default(), filled(20_000));
    device.checkpoint(&mut table);
    table.evict(0);
    let slab = device.pages.keys().next().unwrap().slab;
    let pages: Vec<_> = device.pages.iter().filter(|(at, _)| at.slab == slab).map(|(at, (id, _))| (*id, *at)).collect();
    assert!(pages.len() > 5);
    for (id, location) in pages {
        assert!(table.is_live(id, &location));
        assert!(device.with(&mut table, |table| table.relocate(id, &location)));
    }
    device.checkpoint(&mut table);
    assert!(device.pages.keys().all(|at| at.slab != slab));
    assert_eq!(device.all_rows(&mut table).len(), 20_000);
}

#[test]
fn the_root_is_live_where_it_was_written_last() {
    let (mut device, mut table) = (Device::default(), filled(10));
    let first = device.checkpoint(&mut table);
    assert!(table.is_live(PageId::ROOT, &first));
    let second = device.checkpoint(&mut table);
    assert!(!table.is_live(PageId::ROOT, &first) && table.is_live(PageId::ROOT, &second));
}

#[test]
fn dirty_bytes_return_to_nothing_and_only_clean_leaves_are_evicted() {
    let (mut device, mut table) = (Device::default(), filled(10_000));
    assert_eq!(table.dirty_bytes(), table.resident_bytes());
    assert_eq!(table.evict(0), 0);
    table.begin_checkpoint();
    table.put(b"\0\0\0\0", b"changed before its turn").unwrap();
    assert!(table.dirty_bytes() > table.resident_bytes());
    while device.write_pages(&mut table, 7).is_none() {}
    device.finish(&mut table);
    assert!(table.dirty_bytes() < 40 << 10);
    table.evict(0);
    assert_eq!(table.resident_bytes(), table.dirty_bytes());
}
