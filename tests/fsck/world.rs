//! Simulated disks with a store on them, fsck for them, and rows as the servers write them.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_env::{
    Env,
    sim::{DiskImage, NodeId, Sim},
};
use forebay_fsck::{CheckOptions, FsckResult, Kind, RepairOptions, Report, Severity};
use forebay_proto::Fid;
use forebay_store::{FormatOptions, OpenOptions, Store};

use crate::common::{DIR, DISKS, quick, tiny};

/// Check everything.
pub const ALL: CheckOptions = CheckOptions { verify_data: true, rows: true };
/// Check everything but the contents of the servers' rows.
pub const STORE: CheckOptions = CheckOptions { verify_data: true, rows: false };

/// A machine with one target.
pub struct World {
    pub sim: Sim,
    pub node: NodeId,
}

/// The disks and files of a target.
#[derive(Clone)]
pub struct Image {
    pub files: BTreeMap<String, Vec<u8>>,
    pub disks: Vec<DiskImage>,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let sim = Sim::new(seed);
        let node = sim.add_node("target");
        Self { sim, node }
    }

    pub fn env(&self) -> Env {
        self.sim.env(self.node)
    }

    /// Formats a store and lets `fill` use it; closes it cleanly.
    pub fn filled<F: AsyncFnOnce(&Store)>(&self, format: &FormatOptions, open: &OpenOptions, fill: F) {
        let env = self.env();
        self.sim.block_on(async {
            Store::format(&env, DIR, format).await.unwrap();
            let store = Store::open(&env, DIR, open).await.unwrap();
            fill(&store).await;
            store.close().await.unwrap();
        });
        // Wait until the last tasks have released the lock.
        self.sim.run_for(std::time::Duration::from_millis(1));
    }

    pub fn image(&self) -> Image {
        let disks = DISKS.iter().map(|path| self.sim.disk_image(self.node, path)).collect();
        Image { files: self.sim.files(self.node), disks }
    }

    pub fn set_image(&self, image: &Image) {
        self.sim.set_files(self.node, image.files.clone());
        for (path, disk) in DISKS.iter().zip(&image.disks) {
            self.sim.set_disk_image(self.node, path, disk.clone());
        }
    }

    pub fn try_check(&self, options: CheckOptions) -> FsckResult<Report> {
        let env = self.env();
        self.sim.block_on(forebay_fsck::check(&env, DIR, options))
    }

    pub fn check(&self, options: CheckOptions) -> Report {
        self.try_check(options).expect("fsck does its work")
    }

    pub fn repair(&self, remove_leaks: bool) -> FsckResult<Report> {
        let env = self.env();
        self.sim.block_on(forebay_fsck::repair(&env, DIR, RepairOptions { check: ALL, remove_leaks, mdt: None }))
    }

    /// Opens the store like a server, and uses it.
    pub fn open<T>(&self, with: impl AsyncFnOnce(&Store) -> T) -> T {
        let env = self.env();
        let result = self.sim.block_on(async {
            let store = Store::open(&env, DIR, &quick()).await.unwrap();
            let result = with(&store).await;
            store.close().await.unwrap();
            result
        });
        self.sim.run_for(std::time::Duration::from_millis(1));
        result
    }
}

/// A small OST with a few objects, as its server leaves them.
pub fn ost(seed: u64) -> World {
    let world = World::new(seed);
    world.filled(&tiny(), &quick(), async |store| {
        for number in 0..6u64 {
            crate::common::write(store, crate::common::fid(number), number * 5000, 90_000, number + 1).await.unwrap();
            put(store, &object_key(crate::common::fid(number)), object(number * 5000 + 90_000, number + 1)).await;
        }
        crate::common::write(store, crate::common::fid(1), 20_000, 10_000, 7).await.unwrap();
        crate::common::punch(store, crate::common::fid(2), 30_000..40_000, 8).await.unwrap();
        put(store, b"\x10\0\0\0\0\0\0\0\x05", session(1)).await;
    });
    world
}

/// Writes one row.
pub async fn put(store: &Store, key: &[u8], value: impl Into<Bytes>) {
    store.prefetch(&[key]).await.unwrap();
    let mut txn = store.begin();
    txn.put(key, value.into());
    txn.apply().unwrap();
}

/// Deletes one row.
pub async fn delete(store: &Store, key: &[u8]) {
    store.prefetch(&[key]).await.unwrap();
    let mut txn = store.begin();
    txn.delete(key);
    txn.apply().unwrap();
}

pub fn object_key(fid: Fid) -> Vec<u8> {
    [&[0x80][..], &fid.to_key()].concat()
}

/// The row of an OST's object.
pub fn object(object_bytes: u64, transno: u64) -> Vec<u8> {
    let words = [object_bytes, object_bytes, 0, 0, 0, 5, transno];
    [vec![2], words.iter().flat_map(|word| word.to_le_bytes()).collect(), vec![0]].concat()
}

/// The row of a session that began in this generation.
pub fn session(generation: u32) -> Vec<u8> {
    let mut body = vec![9; 16];
    body.extend(b"\x04\0\0\0test");
    body.extend(7i64.to_le_bytes());
    body.extend(generation.to_le_bytes());
    [&[1][..], &(body.len() as u32).to_le_bytes(), &body].concat()
}

/// Panics with the report if anything is wrong.
pub fn assert_clean(report: &Report, what: &str) {
    assert!(report.is_clean(), "{what}:\n{}", report.to_text(Severity::Info));
}

/// Panics if this kind of damage is not reported as an error.
pub fn assert_finds(report: &Report, kind: Kind, what: &str) {
    let found = report.findings.iter().any(|finding| finding.kind == kind && finding.severity == Severity::Error);
    assert!(found, "{what}: no {kind} in\n{}", report.to_text(Severity::Info));
}
