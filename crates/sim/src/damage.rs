//! Damage on the OSTs' data devices: rotten bytes, and writes that were acknowledged but lost or misdirected.
//!
//! Invariant: only file bytes and the headers of their runs are damaged. What a target needs to serve is left alone; a
//! target with that damaged refuses to start (`tests/fsck/damage.rs`).
//! Invariant: a read of damaged bytes returns EIO or the right bytes. No other call notices the damage.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    ops::Range,
    rc::Rc,
};

use forebay_env::sim::{Fault, Wanted};
use forebay_fsck::{
    Finding, Kind as FindingKind, Place, Report, Severity,
    format::{extent, identity::Identity, run::Fragment, run::RunHeader},
};
use forebay_proto::{Fid, Layout, TargetId, TargetKind, crc, limits::BLOCK_BYTES};

use crate::{
    Cluster,
    cluster::{STORE_DIR, data_path},
    runs::{self, PlacedRun},
};

/// How many random picks to try for a byte that is still current.
const TRIES: usize = 20;

/// How much was damaged, and how much of it was reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DamageCounts {
    /// Bytes that rotted.
    pub rotten: u64,
    /// Writes that were lost.
    pub lost: u64,
    /// Writes that were misdirected.
    pub misdirected: u64,
    /// Reads that returned EIO because of the damage.
    pub told: u64,
    /// Files with unreadable bytes at the end of the run.
    pub unreadable: u64,
}

impl DamageCounts {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.rotten += other.rotten;
        self.lost += other.lost;
        self.misdirected += other.misdirected;
        self.told += other.told;
        self.unreadable += other.unreadable;
    }
}

/// The damage of one run. Clones share their state.
#[derive(Clone, Default)]
pub struct Damage(Rc<Inner>);

#[derive(Default)]
struct Inner {
    places: RefCell<Vec<Damaged>>,
    counts: Cell<DamageCounts>,
    /// Objects that the last comparison could not read in full.
    unreadable: RefCell<BTreeSet<Fid>>,
}

/// A range of an object.
struct Damaged {
    ost: u32,
    object: Fid,
    range: Range<u64>,
}

impl Damage {
    /// The counts so far.
    pub fn counts(&self) -> DamageCounts {
        DamageCounts { unreadable: self.0.unreadable.borrow().len() as u64, ..self.0.counts.get() }
    }

    /// True if any of these bytes of a file may be damaged.
    pub fn touches(&self, layout: &Layout, file: Fid, range: Range<u64>) -> bool {
        let object = layout.objects_of(file);
        let is_touched = |damaged: &Damaged| {
            let stripes =
                layout.components.iter().flat_map(|part| part.osts.iter().enumerate().map(move |at| (part, at)));
            damaged.object == object
                && stripes.filter(|(_, (_, ost))| **ost == damaged.ost).any(|(part, (stripe, _))| {
                    let wanted = part.object_range(stripe, range.start, range.end);
                    wanted.start < damaged.range.end && damaged.range.start < wanted.end
                })
        };
        self.0.places.borrow().iter().any(is_touched)
    }

    /// Counts a read that returned EIO.
    pub fn told(&self) {
        self.count(|counts| counts.told += 1);
    }

    /// Starts a new comparison of all files.
    pub fn begin_audit(&self) {
        self.0.unreadable.borrow_mut().clear();
    }

    /// Records that some bytes of an object cannot be read.
    pub fn is_unreadable(&self, object: Fid) {
        self.0.unreadable.borrow_mut().insert(object);
    }

    fn count(&self, more: impl FnOnce(&mut DamageCounts)) {
        let mut counts = self.0.counts.get();
        more(&mut counts);
        self.0.counts.set(counts);
    }

    fn add(&self, ost: usize, fragment: &Fragment, range: Range<u64>) {
        self.0.places.borrow_mut().push(Damaged { ost: ost as u32 - 1, object: fragment.fid, range });
    }

    fn add_all(&self, ost: usize, fragments: &[Fragment]) {
        fragments
            .iter()
            .for_each(|fragment| self.add(ost, fragment, fragment.offset..fragment.offset + fragment.length));
    }

    /// Flips a bit of a file's bytes on an OST. Sometimes it is in a run's header instead, so that only the table knows
    /// what the run holds.
    pub fn rot(&self, cluster: &Cluster, ost: usize) {
        let sim = &cluster.sim;
        let runs = scan(cluster, ost);
        let Some((run, fragment, offset)) = some_bytes(cluster, &runs) else { return };
        let place = if sim.chance(0.2) {
            self.add_all(ost, &run.header.fragments);
            run.at + sim.random_below(96)
        } else {
            let mut blocks = crc::blocks(fragment.offset, fragment.length, BLOCK_BYTES);
            let block = blocks.find(|(at, length)| offset < at + length);
            let (at, length) = block.expect("a byte of the fragment is in one of its blocks");
            self.add(ost, fragment, at..at + length);
            run.at + u64::from(fragment.payload_at) + offset - fragment.offset
        };
        let bits = 1 << sim.random_below(8);
        sim.disk_fault(cluster.servers[ost].node, &data_path(), Fault::Rot { offset: place, bits });
        self.count(|counts| counts.rotten += 1);
    }

    /// The next write of file bytes to an OST's device is acknowledged but stored nowhere, whenever it comes.
    pub fn lose_write(&self, cluster: &Cluster, ost: usize) {
        let damage = self.clone();
        let wanted = wanted(cluster, ost, move |run, _| {
            damage.add_all(ost, &run.fragments);
            damage.count(|counts| counts.lost += 1);
            true
        });
        cluster.sim.disk_fault(cluster.servers[ost].node, &data_path(), Fault::LoseWrite { wanted });
    }

    /// The next such write that is short enough overwrites a run with other file bytes, if that run is still there.
    pub fn misdirect_write(&self, cluster: &Cluster, ost: usize) {
        let runs = scan(cluster, ost);
        let Some((there, ..)) = some_bytes(cluster, &runs) else { return };
        let range = there.range();
        let to = range.start + cluster.sim.random_below((range.end - range.start) / 4096) * 4096;
        let (sim, node, target) = (cluster.sim.clone(), cluster.servers[ost].node, identity(cluster, ost).uuid);
        let (damage, overwritten) = (self.clone(), there.header.clone());
        let wanted = wanted(cluster, ost, move |run, bytes| {
            let image = sim.disk_image(node, &data_path());
            let is_there = runs::header_at(&image, target, range.start).as_ref() == Some(&overwritten);
            let goes = is_there && bytes <= range.end - to;
            if goes {
                damage.add_all(ost, &run.fragments);
                damage.add_all(ost, &overwritten.fragments);
                damage.count(|counts| counts.misdirected += 1);
            }
            goes
        });
        cluster.sim.disk_fault(node, &data_path(), Fault::MisdirectWrite { wanted, to });
    }

    /// Ends all injected write faults.
    pub fn end(&self, cluster: &Cluster) {
        for server in cluster.servers.iter().filter(|server| server.target.kind == TargetKind::Ost) {
            cluster.sim.clear_disk_faults(server.node, &data_path());
        }
    }

    /// Compares with fsck: it must find only injected damage, and the objects with bad data must be those that reads
    /// could not return.
    pub fn explains(&self, reports: &[Report]) -> Result<(), String> {
        let mut found = BTreeSet::new();
        for report in reports {
            let wrong = report.findings.iter().filter(|finding| finding.severity > Severity::Info);
            for finding in wrong {
                let object = self.object_of(report, finding).ok_or_else(|| format!("fsck: {finding}"))?;
                if finding.kind == FindingKind::Data {
                    found.insert(object);
                }
            }
        }
        let unreadable = self.0.unreadable.borrow();
        if found == *unreadable {
            return Ok(());
        }
        Err(format!("fsck finds damage in {found:?}, reads were refused in {unreadable:?}"))
    }

    /// The damaged object that a finding is about, if the finding is about damaged bytes.
    fn object_of(&self, report: &Report, finding: &Finding) -> Option<Fid> {
        let Place::Row(key) = &finding.place else { return None };
        let TargetId { kind: TargetKind::Ost, index } = report.identity?.2 else { return None };
        let (object, offset) = extent::parse_key(key)?;
        let is_of_bytes = matches!(finding.kind, FindingKind::Data | FindingKind::Mismatch);
        let places = self.0.places.borrow();
        let is_it = |damaged: &Damaged| damaged.ost == index && damaged.object == object && offset < damaged.range.end;
        (is_of_bytes && places.iter().any(is_it)).then_some(object)
    }
}

fn identity(cluster: &Cluster, ost: usize) -> Identity {
    let file = cluster.sim.read_file(cluster.servers[ost].node, &format!("{STORE_DIR}/identity"));
    Identity::decode(&file.expect("it is formatted")).expect("nobody damages it")
}

fn scan(cluster: &Cluster, ost: usize) -> Vec<PlacedRun> {
    let (identity, image) = (identity(cluster, ost), cluster.sim.disk_image(cluster.servers[ost].node, &data_path()));
    runs::scan(&image, identity.uuid, identity.slab_bytes)
}

/// A random current byte of a file, in a run that holds only file bytes.
fn some_bytes<'a>(cluster: &Cluster, runs: &'a [PlacedRun]) -> Option<(&'a PlacedRun, &'a Fragment, u64)> {
    let sim = &cluster.sim;
    let of_files: Vec<&PlacedRun> = runs.iter().filter(|run| runs::is_of_files(&run.header)).collect();
    (0..TRIES).filter(|_| !of_files.is_empty()).find_map(|_| {
        let run = of_files[sim.random_below(of_files.len() as u64) as usize];
        let fragment = &run.header.fragments[sim.random_below(run.header.fragments.len() as u64) as usize];
        let offset = fragment.offset + sim.random_below(fragment.length);
        runs::counts(runs, fragment, offset).then_some((run, fragment, offset))
    })
}

/// Matches a write that begins with a run of only file bytes, if `is_damaged` accepts the run and the length of the
/// write.
fn wanted(cluster: &Cluster, ost: usize, is_damaged: impl Fn(&RunHeader, u64) -> bool + 'static) -> Wanted {
    let target = identity(cluster, ost).uuid;
    Wanted::when(move |bytes| {
        let run = runs::written(bytes, target).filter(runs::is_of_files);
        run.is_some_and(|run| is_damaged(&run, bytes.len() as u64))
    })
}
