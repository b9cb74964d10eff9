//! Bytes of pages: as documented, and safe to read whatever they are.

use super::device::{Chance, Device};
use crate::table::codec::{self, PageKind};
use crate::table::rows::Rows;
use crate::table::{PageId, PageLocation, Table};

fn small_rows() -> Rows {
    let mut rows = Rows::default();
    rows.put(b"key-b", &[7; 130]);
    rows.put(b"key-a", b"one");
    rows
}

/// Three witnesses: the codec, docs/format.md (index pages), and these bytes.
#[test]
fn leaf_page_bytes_are_golden() {
    let mut expected = b"FBIX\x01\0\x01\x04".to_vec();
    expected.extend([24 + 4 + 6 + 134, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend(b"key-\x01\x03aone\x01\x82\x01b");
    expected.extend([7; 130]);
    assert_eq!(codec::encode_leaf(PageId(5), &small_rows()), expected);
}

#[test]
fn root_page_bytes_are_golden() {
    let (mut device, mut table) = (Device::default(), Table::empty());
    table.put(b"k", b"v").unwrap();
    let root = device.checkpoint(&mut table);
    let (inner, _) = device.pages.iter().find(|(_, (id, _))| *id == PageId(2)).unwrap();
    let mut expected = b"FBIX\x01\0\x03\0".to_vec();
    expected.extend([62, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend([0, 36, 2, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend(inner.epoch.to_le_bytes());
    expected.extend(inner.sum.to_le_bytes());
    expected.extend(inner.slab.to_le_bytes());
    expected.extend(inner.offset.to_le_bytes());
    expected.extend([62, 0, 0, 0]);
    assert_eq!(device.pages[&root].1, expected);
}

#[test]
fn a_leaf_page_is_read_as_it_was_written() {
    let mut rows = Rows::default();
    let mut chance = Chance(3);
    for _ in 0..400 {
        let (key, value) = (chance.bytes(30), chance.bytes(1));
        rows.put(&key, &vec![1; value[0] as usize]);
    }
    let bytes = codec::encode_leaf(PageId(9), &rows);
    assert_eq!(bytes.len(), codec::page_bytes(&rows));
    assert_eq!(codec::encode_leaf(PageId(9), &codec::decode_leaf(PageId(9), &bytes).unwrap()), bytes);
    assert_eq!(codec::decode_leaf(PageId(8), &bytes).err().unwrap().reason, "it is another page");
}

#[test]
fn damaged_pages_are_refused_or_read_but_never_panic() {
    let (mut device, mut table) = (Device::default(), Table::empty());
    for row in 0..3_000u32 {
        table.put(format!("name {row:5}").as_bytes(), &row.to_le_bytes()).unwrap();
    }
    device.checkpoint(&mut table);
    let mut chance = Chance(4);
    for (id, bytes) in device.pages.values() {
        for _ in 0..300 {
            let mut damaged = bytes.to_vec();
            for _ in 0..1 + chance.below(3) {
                let at = chance.below(damaged.len().min(100) as u64) as usize;
                damaged[at] = chance.next() as u8;
            }
            damaged.truncate(if chance.one_in(3) { chance.below(damaged.len() as u64) as usize } else { usize::MAX });
            if let Ok(rows) = codec::decode_leaf(*id, &damaged) {
                (0..rows.len()).for_each(|index| assert!(rows.locate(&rows.key(index)).is_ok()));
            }
            let _ = codec::decode_branch(PageKind::Inner, *id, &damaged);
            let _ = codec::decode_branch(PageKind::Root, *id, &damaged);
        }
    }
}

#[test]
fn a_page_whose_sum_differs_is_not_installed() {
    let (mut device, mut table) = (Device::default(), Table::empty());
    table.put(b"k", b"v").unwrap();
    let root = device.checkpoint(&mut table);
    table.evict(0);
    let missing = table.get(b"k").unwrap_err();
    let mut bytes = device.pages[&missing.location].1.to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    assert!(table.install(missing.page, &missing.location, &bytes).is_err());
    assert!(Table::from_root(&bytes, root).is_err());
    device.load(&mut table, missing);
    assert_eq!(table.get(b"k").unwrap(), Some(&b"v"[..]));
}

#[test]
fn a_page_read_from_a_place_it_has_left_is_ignored() {
    let (mut device, mut table) = (Device::default(), Table::empty());
    table.put(b"k", b"v").unwrap();
    device.checkpoint(&mut table);
    table.evict(0);
    let missing = table.get(b"k").unwrap_err();
    let elsewhere = PageLocation { offset: missing.location.offset + 4096, ..missing.location };
    assert_eq!(table.install(missing.page, &elsewhere, b"what was there"), Ok(false));
    assert_eq!(table.install(PageId(77), &missing.location, b"what was there"), Ok(false));
}
