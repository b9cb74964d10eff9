//! An OST that suffers two losses at once, is repaired with what its MDT knows, and is served again.
//!
//! Oracle: the synced bytes. A reader gets them or an error, or the list of the repair and of the later checks names
//! the file and the location. Zeros or older bytes that no list names are a failure.

use std::{collections::BTreeMap, ops::Range, rc::Rc, time::Duration};

use forebay_client::{Allocate, Caller, Client, LayoutSpec, MountOptions, OpenFile, OpenMode, SetAttributes};
use forebay_env::{
    Address, Env,
    sim::{DiskImage, NodeId, Sim},
};
use forebay_fsck::{
    CheckOptions, ClusterOptions, Finding, FsckErrorKind, Kind, Place, RepairOptions, Report, Severity, check,
    check_cluster, exit, repair,
};
use forebay_mds::{Mds, MdsOptions};
use forebay_oss::Oss;
use forebay_proto::{
    Fid, TargetId, TargetKind, Uuid,
    message::{ClusterMap, MapTarget},
};
use forebay_store::{FormatOptions, OpenOptions, Store};
use forebay_target::TargetOptions;

use crate::{common::stamp, world::Image};

const DIR: &str = "target";
const CLUSTER: Uuid = Uuid([5; 16]);
const MDT: usize = 0;
/// The damaged OST.
const HURT: usize = 1;
const TARGETS: [TargetId; 3] = [TargetId::mdt(0), TargetId::ost(0), TargetId::ost(1)];
const PIECE: usize = 64 << 10;
/// A read that takes longer than this has failed: its OST is down.
const PATIENCE: Duration = Duration::from_secs(30);
/// Number of seeds for each pair of losses.
const SEEDS: u64 = 4;

fn address(target: TargetId) -> Address {
    Address::Mem(target.to_string())
}

fn map() -> ClusterMap {
    let target =
        |id: &TargetId| MapTarget { id: *id, uuid: Uuid::default(), addresses: vec![address(*id).to_string()] };
    ClusterMap { cluster: CLUSTER, epoch: 1, targets: TARGETS.iter().map(target).collect() }
}

fn caller() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new() }
}

async fn serve(env: &Env, id: TargetId) {
    let open = OpenOptions { commit_interval: Duration::from_millis(50), ..OpenOptions::default() };
    let store = Store::open(env, DIR, &open).await.unwrap();
    let listener = env.listen(&address(id)).await.unwrap();
    let options =
        TargetOptions { recovery_window: Duration::from_secs(5), map: Some(Rc::new(map)), ..TargetOptions::default() };
    let target = match id.kind {
        TargetKind::Mdt => {
            let osts = TARGETS[1..].iter().map(|ost| (ost.index, vec![address(*ost)])).collect();
            let (_mds, target) =
                Mds::start(env, store, MdsOptions { target: options, ..MdsOptions::new(CLUSTER, osts) }).await.unwrap();
            target
        }
        TargetKind::Ost => Oss::start(env, store, options).await.unwrap().1,
    };
    target.serve(listener).await;
}

/// One MDT and two OSTs.
struct Cluster {
    sim: Sim,
    nodes: Vec<NodeId>,
}

/// The synced contents of a file.
struct Synced {
    /// The fid of its objects.
    fid: Fid,
    bytes: Vec<u8>,
    /// All of it is on the damaged OST.
    one_object: bool,
}

type Files = BTreeMap<String, Synced>;

impl Cluster {
    fn new(seed: u64) -> Self {
        let sim = Sim::new(seed);
        let nodes: Vec<NodeId> = TARGETS.iter().map(|target| sim.add_node(&target.to_string())).collect();
        Self { sim, nodes }
    }

    fn formatted(seed: u64) -> Self {
        let cluster = Self::new(seed);
        for (target, node) in TARGETS.iter().zip(&cluster.nodes) {
            let options = FormatOptions {
                slab_bytes: 256 << 10,
                stripe_bytes: 64 << 10,
                journal_bytes: 1 << 20,
                ..FormatOptions::new(CLUSTER, *target, 16 << 20)
            };
            cluster.sim.block_on(Store::format(&cluster.sim.env(*node), DIR, &options)).unwrap();
            cluster.sim.crash(*node);
        }
        cluster
    }

    /// A cluster with these targets.
    fn of(seed: u64, images: &[Image]) -> Self {
        let cluster = Self::new(seed);
        for (node, image) in cluster.nodes.iter().zip(images) {
            cluster.put(*node, DIR, image);
        }
        cluster
    }

    fn put(&self, node: NodeId, dir: &str, image: &Image) {
        let mut files = self.sim.files(node);
        files.extend(image.files.iter().map(|(name, bytes)| (name.replacen(DIR, dir, 1), bytes.clone())));
        self.sim.set_files(node, files);
        for (part, disk) in ["data", "journal"].iter().zip(&image.disks) {
            self.sim.set_disk_image(node, &format!("{dir}/{part}"), disk.clone());
        }
    }

    fn image(&self, target: usize) -> Image {
        let node = self.nodes[target];
        let disks = ["target/data", "target/journal"].map(|path| self.sim.disk_image(node, path));
        Image { files: self.sim.files(node), disks: disks.to_vec() }
    }

    fn boot(&self) {
        for (target, node) in TARGETS.iter().zip(&self.nodes) {
            let target = *target;
            self.sim.start(*node, move |env| async move { serve(&env, target).await });
        }
    }

    fn stop(&self) {
        self.nodes.iter().for_each(|node| self.sim.power_cut(*node));
    }

    async fn mount(&self, name: &str) -> Client {
        let env = self.sim.env(self.sim.add_node(name));
        Client::mount(&env, MountOptions::new(vec![address(TARGETS[MDT])])).await.unwrap()
    }

    /// Writes a checkpoint that has everything in the journal.
    fn checkpoint(&self, target: usize) {
        let env = self.sim.env(self.nodes[target]);
        self.sim.block_on(async {
            let store = Store::open(&env, DIR, &OpenOptions::default()).await.unwrap();
            store.checkpoint().await.unwrap();
        });
        self.sim.power_cut(self.nodes[target]);
    }
}

fn content(number: u64, round: u64, range: Range<u64>) -> Vec<u8> {
    range.map(|at| stamp(Fid { high: 7, low: number }, at, round)).collect()
}

/// A program that makes files of each kind in two rounds.
struct Program<'a> {
    client: &'a Client,
    files: Files,
    open: Vec<OpenFile>,
}

impl Program<'_> {
    async fn write(&mut self, file: &OpenFile, path: &str, offset: usize, bytes: Vec<u8>) {
        let end = offset + bytes.len();
        let whole = &mut self.files.get_mut(path).expect("a file").bytes;
        whole.resize(whole.len().max(end), 0);
        whole[offset..end].copy_from_slice(&bytes);
        for (at, piece) in (offset..).step_by(100_000).zip(bytes.chunks(100_000)) {
            self.client.write(file, at as u64, piece.to_vec()).await.unwrap();
        }
    }

    async fn make(&mut self, path: &str, stripes: u32) -> OpenFile {
        let layout =
            LayoutSpec { stripe_count: stripes, stripe_bytes: 64 << 10, stripe_index: 0, ..LayoutSpec::inherit() };
        let name = path.trim_start_matches('/').as_bytes();
        let made = self.client.create(&caller(), Fid::ROOT, name, 0o644, OpenMode::WRITE, layout).await;
        let (attr, file) = made.unwrap();
        self.files.insert(path.to_owned(), Synced { fid: attr.fid, bytes: Vec::new(), one_object: stripes == 1 });
        file
    }

    async fn synced(&self, file: OpenFile) {
        self.client.fsync(&file, false).await.unwrap();
        self.client.close(file).await.unwrap();
    }

    async fn first(&mut self) {
        for (number, (path, stripes)) in
            [("/one", 1), ("/striped", 2), ("/over", 1), ("/cut", 1), ("/punched", 1)].into_iter().enumerate()
        {
            let file = self.make(path, stripes).await;
            self.write(&file, path, 0, content(number as u64, 1, 0..250_000)).await;
            self.synced(file).await;
        }
    }

    async fn second(&mut self) {
        for (number, (path, stripes, bytes)) in
            [("/new", 1, 300_000), ("/new-striped", 2, 500_000), ("/small", 1, 900), ("/new-over", 1, 200_000)]
                .into_iter()
                .enumerate()
        {
            let file = self.make(path, stripes).await;
            self.write(&file, path, 0, content(10 + number as u64, 2, 0..bytes)).await;
            self.synced(file).await;
        }
        for path in ["/over", "/new-over"] {
            let file = self.client.open_path(&caller(), path, OpenMode::WRITE).await.unwrap();
            self.write(&file, path, 50_000, content(20, 3, 50_000..180_000)).await;
            self.synced(file).await;
        }
        let file = self.client.open_path(&caller(), "/cut", OpenMode::WRITE).await.unwrap();
        let size = SetAttributes { size: Some(120_000), ..SetAttributes::default() };
        self.client.setattr(&caller(), file.fid(), size, Some(&file)).await.unwrap();
        self.files.get_mut("/cut").expect("a file").bytes.truncate(120_000);
        self.synced(file).await;
        let file = self.client.open_path(&caller(), "/punched", OpenMode::WRITE).await.unwrap();
        self.client.fallocate(&file, 70_000, 80_000, Allocate::Punch).await.unwrap();
        self.files.get_mut("/punched").expect("a file").bytes[70_000..150_000].fill(0);
        self.synced(file).await;
        let file = self.make("/open", 1).await;
        self.write(&file, "/open", 0, content(30, 4, 0..180_000)).await;
        self.client.fsync(&file, false).await.unwrap();
        self.open.push(file);
        self.client.sync_all().await.unwrap();
    }
}

/// What a used cluster left: the synced files, its targets, and an older copy of the damaged OST.
struct Left {
    files: Files,
    images: Vec<Image>,
    older: Image,
}

fn used(seed: u64) -> Left {
    let cluster = Cluster::formatted(seed);
    cluster.boot();
    let files = cluster.sim.block_on(async {
        let client = cluster.mount("first").await;
        let mut program = Program { client: &client, files: Files::new(), open: Vec::new() };
        program.first().await;
        let files = program.files;
        client.unmount().await.unwrap();
        files
    });
    cluster.sim.run_for(Duration::from_secs(2));
    cluster.stop();
    if seed.is_multiple_of(2) {
        cluster.checkpoint(HURT);
    }
    let older = cluster.image(HURT);
    cluster.boot();
    let files = cluster.sim.block_on(async {
        let client = cluster.mount("second").await;
        let mut program = Program { client: &client, files, open: Vec::new() };
        program.second().await;
        let files = program.files;
        std::mem::forget(program.open);
        files
    });
    // Wait until everything that was read from the MDT is committed.
    cluster.sim.run_for(Duration::from_secs(1));
    cluster.stop();
    let images = (0..TARGETS.len()).map(|target| cluster.image(target)).collect();
    Left { files, images, older }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Loss {
    Journal,
    Pages,
    Headers,
    Bytes,
    OlderCopy,
}

const LOSSES: [Loss; 5] = [Loss::OlderCopy, Loss::Pages, Loss::Headers, Loss::Bytes, Loss::Journal];

fn flip(disk: &mut DiskImage, at: u64) {
    let byte = disk.read(at, 1)[0];
    disk.write(at, &[byte ^ 0x10]);
}

/// Flips bits in some of the sectors of the data device that `is_one` selects.
fn rot(sim: &Sim, disk: &mut DiskImage, is_one: impl Fn(&[u8]) -> bool, within: u64, one_in: u64) {
    for at in (0..disk.bytes() / 4096).map(|n| n * 4096) {
        if !is_one(&disk.read(at, 4096)) || sim.random_below(one_in) != 0 {
            continue;
        }
        match sim.random_below(3) {
            0 => disk.write(at, &[0xa5; 4096]),
            _ => flip(disk, at + sim.random_below(within)),
        }
    }
}

impl Loss {
    fn befalls(self, sim: &Sim, image: &mut Image, left: &Left) {
        let is_page = |sector: &[u8]| sector.windows(4).any(|four| four == b"FBIX");
        match self {
            Self::OlderCopy => *image = left.older.clone(),
            Self::Journal => image.disks[1] = DiskImage::zeroed(image.disks[1].bytes()),
            Self::Pages => rot(sim, &mut image.disks[0], is_page, 4096, 2),
            Self::Headers => rot(sim, &mut image.disks[0], |sector| sector.starts_with(b"FBYRUN01"), 300, 3),
            Self::Bytes => {
                let is_data = |sector: &[u8]| {
                    sector.iter().any(|byte| *byte != 0) && !sector.starts_with(b"FBY") && !is_page(sector)
                };
                rot(sim, &mut image.disks[0], is_data, 4096, 12);
            }
        }
    }
}

/// What was reported about the damaged OST: by its repair, by the check after it, and by the comparison with the MDT.
struct Told {
    reports: Vec<Report>,
    refused: Option<String>,
}

impl Told {
    /// True if a report names these bytes of the object. For a striped file any bytes of it count.
    fn names(&self, file: &Synced, range: &Range<u64>) -> bool {
        let of_object = |finding: &&Finding| match &finding.place {
            Place::Row(key) => finding.kind != Kind::UnknownOst && key.get(1..17) == Some(&file.fid.to_key()[..]),
            _ => false,
        };
        let covers = |finding: &Finding| {
            let numbers: Vec<u64> =
                finding.what.split(' ').filter_map(|word| word.trim_end_matches([',', ':']).parse().ok()).collect();
            match numbers[..] {
                [from, to, ..] if file.one_object => from <= range.start && to >= range.end,
                _ => true,
            }
        };
        let mut findings = self.reports.iter().flat_map(|report| &report.findings).filter(of_object);
        findings.any(covers)
    }

    /// True if a report lists an unreadable run, or says that the target may be an older copy.
    fn has_lost_a_run(&self) -> bool {
        let mut findings = self.reports.iter().flat_map(|report| &report.findings);
        findings.any(|finding| finding.kind == Kind::MayBeMissing && !matches!(finding.place, Place::Row(_)))
    }

    fn text(&self) -> String {
        let texts = self.reports.iter().map(|report| report.to_text(Severity::Info));
        texts.chain(self.refused.clone()).collect::<Vec<_>>().join("\n")
    }
}

/// Repairs the OST like `forebay fsck --repair`, and checks it twice.
fn mend(cluster: &Cluster, mdt: &Image, what: &str) -> Told {
    let node = cluster.nodes[HURT];
    cluster.put(node, "mdt", mdt);
    let every = CheckOptions { verify_data: true, rows: true };
    let checked = |dir: &str| {
        let report = cluster.sim.block_on(check(&cluster.sim.env(node), dir, every));
        cluster.sim.power_cut(node);
        report.unwrap_or_else(|error| panic!("{what}: {error}"))
    };
    let options = RepairOptions { check: CheckOptions::default(), remove_leaks: false, mdt: Some("mdt".into()) };
    let mut told = Told { reports: Vec::new(), refused: None };
    match cluster.sim.block_on(repair(&cluster.sim.env(node), DIR, options)) {
        Ok(report) => told.reports.push(report),
        Err(error) => {
            assert_eq!(error.kind, FsckErrorKind::CannotRepair, "{what}: {error}");
            told.refused = Some(error.message);
        }
    }
    cluster.sim.power_cut(node);
    let again = checked(DIR);
    assert_eq!(checked(DIR).to_text(Severity::Info), again.to_text(Severity::Info), "{what}: it says the same again");
    let expected = if again.is_clean() { exit::CLEAN } else { exit::LEFT };
    assert_eq!(again.exit_code(), expected, "{what}");
    told.reports.push(check_cluster(&[checked("mdt"), again.clone()], ClusterOptions::default()));
    told.reports.push(again);
    told
}

/// Results of the reads, piece by piece.
#[derive(Default)]
struct Tally {
    right: u64,
    errors: u64,
    listed: u64,
    /// In an unreadable run that is listed without the names of its files.
    unnamed: u64,
    refused: u64,
    silent: Vec<String>,
}

/// Reads all files through the servers, if the OST can be served.
fn read_all(cluster: &Cluster, left: &Left, told: &Told, tally: &mut Tally, what: &str) {
    let node = cluster.nodes[HURT];
    let opened = cluster.sim.block_on(Store::open(&cluster.sim.env(node), DIR, &OpenOptions::default())).map(drop);
    cluster.sim.power_cut(node);
    if opened.is_err() {
        assert!(!told.reports.iter().all(Report::is_clean), "{what}: it is not served, and nothing says why");
        tally.refused += 1;
        return;
    }
    cluster.boot();
    cluster.sim.block_on(async {
        let env = cluster.sim.env(cluster.sim.add_node("reader"));
        let client = Client::mount(&env, MountOptions::new(vec![address(TARGETS[MDT])])).await.unwrap();
        for (path, file) in &left.files {
            // An OST that stopped because of damage counts as down.
            let open = env.timeout(PATIENCE, client.open_path(&caller(), path, OpenMode::READ)).await;
            let Ok(Ok(open)) = open else {
                tally.errors += 1;
                continue;
            };
            for at in (0..file.bytes.len()).step_by(PIECE) {
                let right = &file.bytes[at..file.bytes.len().min(at + PIECE)];
                match env.timeout(PATIENCE, client.read(&open, at as u64, right.len())).await {
                    Err(_) | Ok(Err(_)) => tally.errors += 1,
                    Ok(Ok(got)) if got[..] == *right => tally.right += 1,
                    Ok(Ok(got)) => {
                        let wrong = |n: &usize| got.get(*n) != Some(&right[*n]);
                        let first = (0..right.len()).find(wrong).unwrap_or(0);
                        let last = (0..right.len()).rev().find(wrong).unwrap_or(first);
                        let range = (at + first) as u64..(at + last) as u64 + 1;
                        let zeros = got.get(first).is_none_or(|byte| *byte == 0);
                        if told.names(file, &range) {
                            tally.listed += 1;
                        } else if told.has_lost_a_run() {
                            tally.unnamed += 1;
                        } else {
                            tally.silent.push(format!("{what}: {path} {range:?}, zeros: {zeros}\n{}", told.text()));
                        }
                    }
                }
            }
            let _ = env.timeout(PATIENCE, client.close(open)).await;
        }
    });
    cluster.stop();
}

fn suffer(seed: u64, losses: &[Loss]) -> Tally {
    let left = used(seed);
    let mut images = left.images.clone();
    let chance = Sim::new(seed ^ 0x70);
    losses.iter().for_each(|loss| loss.befalls(&chance, &mut images[HURT], &left));
    let cluster = Cluster::of(seed + 1000, &images);
    let what = format!("seed {seed}, {losses:?}");
    let told = mend(&cluster, &images[MDT], &what);
    // The repair ran on disks of another machine than the MDT's.
    let served = Cluster::of(seed + 2000, &[images[MDT].clone(), cluster.image(HURT), images[2].clone()]);
    let mut tally = Tally::default();
    read_all(&served, &left, &told, &mut tally, &what);
    tally
}

#[test]
fn synced_bytes_after_two_losses_are_right_or_an_error_or_listed_by_fsck() {
    let mut silent = Vec::new();
    for (first, one) in LOSSES.iter().enumerate() {
        for other in &LOSSES[first..] {
            let mut sum = Tally::default();
            let losses: &[Loss] = if one == other { &[*one] } else { &[*one, *other] };
            for seed in 0..SEEDS {
                let tally = suffer(seed, losses);
                sum.right += tally.right;
                sum.errors += tally.errors;
                sum.listed += tally.listed;
                sum.unnamed += tally.unnamed;
                sum.refused += tally.refused;
                sum.silent.extend(tally.silent);
            }
            println!(
                "{losses:?}: {} pieces right, {} with an error, {} listed, {} listed without a name, {} targets not served, {} \
                 silent",
                sum.right,
                sum.errors,
                sum.listed,
                sum.unnamed,
                sum.refused,
                sum.silent.len()
            );
            assert!(sum.right + sum.errors + sum.refused > 0, "{losses:?} was not tried");
            if losses.iter().all(|loss| matches!(loss, Loss::Journal | Loss::Pages)) && losses.contains(&Loss::Journal)
            {
                assert!(sum.errors + sum.listed == 0, "{losses:?}: the slabs hold everything");
            }
            let is_named = !losses.iter().any(|loss| matches!(loss, Loss::OlderCopy | Loss::Headers));
            assert!(sum.unnamed == 0 || !is_named, "{losses:?}: the list does not say which files");
            silent.extend(sum.silent);
        }
    }
    assert!(silent.is_empty(), "{} pieces are wrong in silence; the first: {}", silent.len(), silent[0]);
}
