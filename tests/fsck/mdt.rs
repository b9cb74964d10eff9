//! An MDT's rows, made by hand from docs/format-mdt.md: a small tree is clean, and each error in it is reported.

use std::collections::BTreeMap;

use forebay_fsck::{Inventory, Kind, Report, Severity, rows::mdt::first_cookie};
use forebay_proto::{Fid, TargetId};

use crate::{common::*, world::*};

/// Rows of an MDT.
pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

const SECRET: u64 = 0x5ec2e7;

pub fn at(low: u64) -> Fid {
    Fid { high: 0, low: 1 << 20 | low }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn row(kind: u8, fid: Fid) -> Vec<u8> {
    [&[kind][..], &fid.to_key()].concat()
}

/// An inode of user 0 that has no optional fields but these.
fn inode(mode: u16, nlink: Option<u64>, more: u16, body: &[u8]) -> Vec<u8> {
    let fields = u16::from(nlink.is_some()) | more;
    let mut out = vec![1];
    out.extend(fields.to_le_bytes());
    out.extend(mode.to_le_bytes());
    out.extend(1_700_000_000_000_000_000i64.to_le_bytes());
    out.extend([0, 1]);
    if let Some(nlink) = nlink {
        varint(&mut out, nlink);
    }
    out.extend(body);
    out
}

pub fn file(nlink: Option<u64>) -> Vec<u8> {
    inode(0o100_644, nlink, 1024, &[1, 16, 2, 0, 1])
}

fn seed(fid: Fid) -> u64 {
    forebay_fsck::rows::mdt::seed_of(SECRET, fid)
}

fn directory(fid: Fid, parent: Fid, nlink: Option<u64>, entries: u64) -> Vec<u8> {
    let mut body = Vec::new();
    varint(&mut body, parent.high);
    varint(&mut body, parent.low);
    body.extend(seed(fid).to_le_bytes());
    varint(&mut body, entries);
    inode(0o040_755, nlink, 0, &body)
}

fn name_key(parent: Fid, name: &str, number: u64) -> Vec<u8> {
    let cookie = first_cookie(seed(parent), name.as_bytes()) + number;
    [&row(0x22, parent)[..], &cookie.to_be_bytes()].concat()
}

fn name_value(fid: Fid, file_type: u8, name: &str) -> Vec<u8> {
    let mut out = vec![1, file_type];
    varint(&mut out, fid.high);
    varint(&mut out, fid.low);
    out.extend(name.as_bytes());
    out
}

fn add_name(rows: &mut Rows, parent: Fid, name: &str, fid: Fid, file_type: u8) {
    rows.insert(name_key(parent, name, 0), name_value(fid, file_type, name));
}

/// `/a` (a file), `/d` with `/d/b` and `/d/c` (one file with two names), an open file without a name, and a session.
pub fn tree() -> Rows {
    let mut rows = Rows::new();
    rows.insert(vec![0x20], [&[1][..], &SECRET.to_le_bytes()].concat());
    rows.insert(row(0x21, Fid::ROOT), directory(Fid::ROOT, Fid::ROOT, Some(3), 2));
    rows.insert(row(0x21, at(1)), file(None));
    rows.insert(row(0x21, at(2)), directory(at(2), Fid::ROOT, None, 2));
    rows.insert(row(0x21, at(3)), file(Some(2)));
    rows.insert(row(0x21, at(4)), file(Some(0)));
    rows.insert(row(0x21, at(5)), inode(0o120_777, None, 4096, b"to"));
    rows.insert(row(0x21, Fid::ROOT), directory(Fid::ROOT, Fid::ROOT, Some(3), 3));
    add_name(&mut rows, Fid::ROOT, "a", at(1), 8);
    add_name(&mut rows, Fid::ROOT, "d", at(2), 4);
    add_name(&mut rows, Fid::ROOT, "l", at(5), 10);
    add_name(&mut rows, at(2), "b", at(3), 8);
    add_name(&mut rows, at(2), "c", at(3), 8);
    rows.insert(row(0x23, at(5)), b"\x01\x06user.a\x02hi".to_vec());
    rows.insert(row(0x24, at(4)), vec![1, 0]);
    let handle = [&row(0x25, at(4))[..], &5u64.to_be_bytes(), &1u64.to_be_bytes()].concat();
    rows.insert(handle, [&[1, 3][..], &[9; 16]].concat());
    rows.insert(b"\x10\0\0\0\0\0\0\0\x05".to_vec(), session(1));
    rows.insert([&[0x26][..], &1u64.to_be_bytes()].concat(), [&[1][..], &[9; 16]].concat());
    rows.insert([&[0x27][..], &1u32.to_be_bytes(), &at(9).to_key()].concat(), vec![1]);
    rows.insert(vec![0x29, 0], vec![1, 6]);
    rows.insert(vec![0x29, 1], vec![1, 2]);
    rows.insert([&[0x2a][..], &0u64.to_be_bytes()].concat(), vec![2, 2, 0, 16, 1, 16, 0]);
    rows
}

/// An MDT with these rows.
pub fn world(rows: &Rows) -> World {
    let world = World::new(1);
    let format = forebay_store::FormatOptions { target: TargetId::mdt(0), ..tiny() };
    world.filled(&format, &quick(), async |store| {
        for (key, value) in rows {
            put(store, key, value.clone()).await;
        }
        let mut txn = store.begin();
        store.prefetch(&[b"\x20"]).await.unwrap();
        txn.set_transno(forebay_proto::Transno(1));
        txn.put(b"\x20", rows[&[0x20][..]].clone());
        txn.apply().unwrap();
    });
    world
}

fn check(change: impl FnOnce(&mut Rows)) -> Report {
    let mut rows = tree();
    change(&mut rows);
    world(&rows).check(ALL)
}

fn told(kind: Kind, severity: Severity, what: &str, change: impl FnOnce(&mut Rows)) {
    let report = check(change);
    let found = report.findings.iter().any(|finding| (finding.kind, finding.severity) == (kind, severity));
    assert!(found, "{what}: no {kind} in\n{}", report.to_text(Severity::Info));
}

#[test]
fn a_small_tree_is_clean() {
    let report = check(|_| {});
    assert_clean(&report, "tree");
    assert!(report.findings.is_empty(), "{}", report.to_text(Severity::Info));
    assert_eq!((report.stats.files, report.stats.names), (6, 5));
    let Inventory::Mdt(mdt) = &report.inventory else { panic!("an MDT has files") };
    assert_eq!((mdt.files.len(), mdt.osts(at(3)), mdt.osts(at(7))), (3, Some(&[0, 1][..]), None));
    assert!(mdt.destroys.contains(&(1, at(9))));
}

#[test]
fn names_without_inodes_and_inodes_without_names_are_told() {
    told(Kind::DanglingName, Severity::Error, "dangling", |rows| drop(rows.remove(&row(0x21, at(1)))));
    told(Kind::LostInode, Severity::Error, "lost", |rows| drop(rows.remove(&name_key(Fid::ROOT, "a", 0))));
    told(Kind::LostInode, Severity::Error, "lost directory", |rows| drop(rows.remove(&name_key(Fid::ROOT, "d", 0))));
    told(Kind::Tree, Severity::Error, "names of no directory", |rows| add_name(rows, at(40), "x", at(1), 8));
    told(Kind::Tree, Severity::Error, "names in a file", |rows| add_name(rows, at(1), "x", at(3), 8));
}

#[test]
fn wrong_counts_are_told() {
    told(Kind::LinkCount, Severity::Warning, "file", |rows| drop(rows.insert(row(0x21, at(3)), file(Some(5)))));
    told(Kind::LinkCount, Severity::Warning, "directory", |rows| {
        rows.insert(row(0x21, at(2)), directory(at(2), Fid::ROOT, Some(7), 2));
    });
    told(Kind::EntryCount, Severity::Warning, "entries", |rows| {
        rows.insert(row(0x21, at(2)), directory(at(2), Fid::ROOT, None, 9));
    });
    told(Kind::Counter, Severity::Warning, "inodes", |rows| drop(rows.insert(vec![0x29, 0], vec![1, 70])));
    told(Kind::Counter, Severity::Warning, "sequence", |rows| drop(rows.insert(vec![0x29, 1], vec![1, 1])));
}

#[test]
fn a_broken_tree_is_told() {
    told(Kind::ParentLink, Severity::Error, "parent", |rows| {
        rows.insert(row(0x21, at(2)), directory(at(2), at(1), None, 2));
    });
    told(Kind::Tree, Severity::Error, "two names", |rows| add_name(rows, Fid::ROOT, "e", at(2), 4));
    told(Kind::Tree, Severity::Error, "a ring", |rows| {
        rows.remove(&name_key(Fid::ROOT, "d", 0));
        rows.insert(row(0x21, at(2)), directory(at(2), at(2), Some(3), 3));
        add_name(rows, at(2), "self", at(2), 4);
    });
    told(Kind::Tree, Severity::Error, "no root", |rows| drop(rows.remove(&row(0x21, Fid::ROOT))));
}

#[test]
fn names_in_the_wrong_place_are_told() {
    told(Kind::NamePlace, Severity::Error, "another hash", |rows| {
        let value = rows.remove(&name_key(Fid::ROOT, "a", 0)).unwrap();
        rows.insert(name_key(Fid::ROOT, "zzz", 0), value);
    });
    told(Kind::NamePlace, Severity::Error, "first row missing", |rows| {
        let value = rows.remove(&name_key(Fid::ROOT, "a", 0)).unwrap();
        rows.insert(name_key(Fid::ROOT, "a", 1), value);
    });
    told(Kind::NamePlace, Severity::Error, "uncounted", |rows| {
        rows.insert(row(0x21, at(1)), file(Some(2)));
        rows.insert(name_key(Fid::ROOT, "a", 1), name_value(at(1), 8, "a"));
    });
    told(Kind::NamePlace, Severity::Error, "no name", |rows| add_name(rows, Fid::ROOT, "x/y", at(1), 8));
    told(Kind::NameType, Severity::Error, "type", |rows| add_name(rows, Fid::ROOT, "a", at(1), 10));
}

#[test]
fn orphans_handles_and_logs_that_disagree_are_told() {
    told(Kind::Orphan, Severity::Warning, "no orphan row", |rows| drop(rows.remove(&row(0x24, at(4)))));
    told(Kind::Orphan, Severity::Error, "orphan with a name", |rows| drop(rows.insert(row(0x24, at(1)), vec![1, 0])));
    told(Kind::Orphan, Severity::Warning, "orphan of nothing", |rows| drop(rows.insert(row(0x24, at(50)), vec![1, 0])));
    told(Kind::Orphan, Severity::Info, "not open", |rows| {
        rows.retain(|key, _| key[0] != 0x25);
    });
    told(Kind::Handle, Severity::Info, "no session", |rows| rows.retain(|key, _| key[0] != 0x10));
    told(Kind::Destroy, Severity::Error, "alive", |rows| {
        rows.insert([&[0x27][..], &1u32.to_be_bytes(), &at(1).to_key()].concat(), vec![1]);
    });
    told(Kind::Truncate, Severity::Error, "ahead", |rows| drop(rows.insert(row(0x28, at(1)), vec![2, 3, 4, 0, 0])));
    told(Kind::Xattr, Severity::Warning, "no attributes", |rows| drop(rows.remove(&row(0x23, at(5)))));
    told(Kind::Xattr, Severity::Warning, "unknown ones", |rows| {
        rows.insert(row(0x23, at(1)), b"\x01\x06user.a\x02hi".to_vec());
    });
}

/// A file with one component on OST 1, whose objects have the fid `objects`.
fn with_objects_of(objects: Fid) -> Vec<u8> {
    let mut body = vec![1, 0, 1];
    varint(&mut body, objects.high);
    varint(&mut body, objects.low);
    body.extend([0, 1, 0, 16, 1, 0, 0, 1, 1]);
    inode(0o100_644, None, 1024, &body)
}

#[test]
fn objects_that_are_called_otherwise_need_a_row_that_says_so() {
    let owner = |rows: &mut Rows, objects: Fid, file: Fid| {
        let mut value = vec![1];
        varint(&mut value, file.high);
        varint(&mut value, file.low);
        rows.insert(row(0x2b, objects), value);
    };
    let report = check(|rows| {
        rows.insert(row(0x21, at(1)), with_objects_of(at(8)));
        owner(rows, at(8), at(1));
        // The file's own fid is free by now: its former objects are in the destroy log.
        rows.insert([&[0x27][..], &1u32.to_be_bytes(), &at(1).to_key()].concat(), vec![1]);
    });
    assert_clean(&report, "exchanged");
    told(Kind::Row, Severity::Error, "nobody says so", |rows| {
        drop(rows.insert(row(0x21, at(1)), with_objects_of(at(8))));
    });
    told(Kind::Row, Severity::Warning, "nobody's", |rows| owner(rows, at(8), at(1)));
    told(Kind::Destroy, Severity::Error, "in use", |rows| {
        rows.insert(row(0x21, at(1)), with_objects_of(at(8)));
        owner(rows, at(8), at(1));
        rows.insert([&[0x27][..], &1u32.to_be_bytes(), &at(8).to_key()].concat(), vec![1]);
    });
}

#[test]
fn rows_that_cannot_be_understood_are_told() {
    for kind in 0x20..=0x2bu8 {
        told(Kind::Row, Severity::Error, "garbage", |rows| {
            drop(rows.insert([&[kind][..], &[0xff; 11]].concat(), vec![9, 9]))
        });
    }
    told(Kind::UnknownRow, Severity::Error, "unknown", |rows| drop(rows.insert(vec![0x30], vec![1])));
    told(Kind::UnknownRow, Severity::Error, "an object on an MDT", |rows| {
        rows.insert(row(0x80, at(1)), object(1, 1));
    });
    told(Kind::Ahead, Severity::Error, "transno", |rows| {
        let mut value = file(None);
        value[13..15].copy_from_slice(&[7, 1]);
        rows.insert(row(0x21, at(1)), value);
    });
}

#[test]
fn collisions_of_a_hash_are_followed() {
    // Two names with the same hash cannot be found by hand. A head row without a name and with the right count can be
    // made.
    let report = check(|rows| {
        let value = rows.remove(&name_key(Fid::ROOT, "a", 0)).unwrap();
        rows.insert(name_key(Fid::ROOT, "a", 0), vec![1, 0x30, 2]);
        rows.insert(name_key(Fid::ROOT, "a", 2), value);
    });
    assert_clean(&report, "collisions");
}
