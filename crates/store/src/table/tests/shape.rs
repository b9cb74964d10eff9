//! How full pages are, and that they vanish with their rows.

use super::device::{Chance, Device};
use crate::table::limits::{LEAF_BYTES, PAGE_BYTES_MAX, VALUE_BYTES_MAX};
use crate::table::{PageId, Table};

fn key(number: u64) -> [u8; 24] {
    let mut key = [0x20; 24];
    key[16..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Leaves, and their share of full ones in percent.
fn fill(table: &mut Table, device: &mut Device) -> (usize, usize) {
    device.checkpoint(table);
    let sizes: Vec<usize> = device
        .pages
        .iter()
        .map(|(at, (_, bytes))| (at, bytes))
        .filter(|(_, bytes)| bytes[6] == 1)
        .map(|(at, _)| at.bytes as usize)
        .collect();
    (sizes.len(), sizes.iter().sum::<usize>() * 100 / (sizes.len() * LEAF_BYTES))
}

#[test]
fn ascending_puts_leave_full_leaves() {
    let mut table = Table::empty();
    (0..100_000).for_each(|n| drop(table.put(&key(n), &[1; 60]).unwrap()));
    let (leaves, percent) = fill(&mut table, &mut Device::default());
    assert!(percent >= 93, "{leaves} leaves {percent} % full");
}

#[test]
fn ascending_puts_at_several_places_leave_full_leaves() {
    let mut table = Table::empty();
    (0..20_000).for_each(|n| (0..5).for_each(|file| drop(table.put(&key(file << 32 | n), &[1; 60]).unwrap())));
    let (leaves, percent) = fill(&mut table, &mut Device::default());
    assert!(percent >= 90, "{leaves} leaves {percent} % full");
}

#[test]
fn random_puts_leave_leaves_two_thirds_full() {
    let (mut table, mut chance) = (Table::empty(), Chance(1));
    (0..100_000).for_each(|_| drop(table.put(&key(chance.next()), &[1; 60]).unwrap()));
    let (leaves, percent) = fill(&mut table, &mut Device::default());
    assert!(percent >= 64, "{leaves} leaves {percent} % full");
}

#[test]
fn thinned_out_leaves_merge_and_empty_ones_vanish() {
    let (mut table, mut device) = (Table::empty(), Device::default());
    (0..100_000).for_each(|n| drop(table.put(&key(n), &[1; 60]).unwrap()));
    (0..100_000).filter(|n| n % 20 != 0).for_each(|n| drop(table.delete(&key(n)).unwrap()));
    let (leaves, percent) = fill(&mut table, &mut device);
    assert!(percent >= 30, "{leaves} leaves {percent} % full");
    (0..100_000).step_by(20).for_each(|n| drop(table.delete(&key(n)).unwrap()));
    device.checkpoint(&mut table);
    assert_eq!(device.pages.len(), 3, "an empty leaf, its inner page, the root");
    assert!(table.resident_bytes() < 1 << 10);
}

#[test]
fn inner_pages_split_and_merge() {
    let (mut table, mut device) = (Table::empty(), Device::default());
    let mut chance = Chance(9);
    let rows = 20_000;
    let number = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..rows).for_each(|n| drop(table.put(&key(number(n)), &[1; 1500]).unwrap()));
    let root = device.checkpoint(&mut table);
    assert!(Table::from_root(&device.pages[&root].1, root).unwrap().needs().len() >= 3);
    let mut order: Vec<u64> = (0..rows).collect();
    (1..order.len()).rev().for_each(|i| order.swap(i, chance.below(i as u64 + 1) as usize));
    for (done, n) in order.into_iter().enumerate() {
        assert!(table.delete(&key(number(n))).unwrap().is_some());
        if done % 2_000 == 0 {
            device.checkpoint(&mut table);
            assert_eq!(device.all_rows(&mut table).len(), rows as usize - done - 1);
        }
    }
    device.checkpoint(&mut table);
    assert_eq!(device.pages.len(), 3);
}

#[test]
fn the_longest_values_fit_a_page_each() {
    let (mut table, mut device) = (Table::empty(), Device::default());
    for round in 0..3 {
        (0..50).for_each(|n| drop(table.put(&key(n), &vec![round; VALUE_BYTES_MAX]).unwrap()));
        (0..5_000).for_each(|n| drop(table.put(&key(n << 20), &[round; 100]).unwrap()));
        let root = device.checkpoint(&mut table);
        assert!(device.pages.keys().all(|at| at.bytes as usize <= PAGE_BYTES_MAX));
        let rows = device.all_rows(&mut device.open(&root));
        assert_eq!((rows.len(), rows[&key(49)[..]].len()), (50 + 4_999, VALUE_BYTES_MAX));
    }
}

#[test]
fn page_numbers_are_used_again() {
    let (mut table, mut device) = (Table::empty(), Device::default());
    for round in 0..20u64 {
        (0..10_000).for_each(|n| drop(table.put(&key(round << 32 | n), &[1; 60]).unwrap()));
        (0..10_000).for_each(|n| drop(table.delete(&key(round << 32 | n)).unwrap()));
        device.checkpoint(&mut table);
    }
    assert!(device.pages.values().all(|(id, _)| *id < PageId(200)));
    assert!(table.fixed_bytes() < 100 << 10);
}
