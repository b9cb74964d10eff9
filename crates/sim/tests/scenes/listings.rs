//! Statahead and the directory cache: a client that lists a directory and looks at each name sends few requests, and
//! sees what other clients change meanwhile.

use std::{cell::Cell, cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};

use bytes::Bytes;
use forebay_client::{Attr, Client, CommitLevel, DirEntry, LayoutSpec, OpenMode, SetAttributes};
use forebay_env::sim::Sim;
use forebay_proto::{Errno, Fid};
use forebay_sim::{Cluster, ClusterOptions};

use crate::scene::caller;

fn name(number: u64) -> Vec<u8> {
    format!("f{number}").into_bytes()
}

async fn make(client: &Client, dir: Fid, name: &[u8]) -> Attr {
    let (attr, file) = client
        .create(&caller(), dir, name, 0o644, OpenMode::READ_WRITE, LayoutSpec::inherit())
        .await
        .expect("it is made");
    client.close(file).await.expect("it is closed");
    attr
}

/// Reads the directory like a kernel, without attributes.
async fn list(client: &Client, dir: Fid) -> Vec<DirEntry> {
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        let page = client.readdir(dir, cookie, 4096, false).await.expect("it can be read");
        cookie = page.entries.last().map_or(cookie, |entry| entry.cookie);
        all.extend(page.entries);
        if page.end {
            all.retain(|entry| !entry.name.starts_with(b"."));
            return all;
        }
    }
}

/// A cluster with two clients: the maker and the looker.
async fn two(sim: &Sim) -> (Client, Client) {
    let cluster = Cluster::format(sim, ClusterOptions::default()).await;
    cluster.boot_all();
    let maker = cluster.mount(sim.add_node("maker"), CommitLevel::Data).await.expect("it mounts");
    let looker = cluster.mount(sim.add_node("looker"), CommitLevel::Data).await.expect("it mounts");
    (maker, looker)
}

/// The maker makes 1000 files. The looker lists the directory and looks up each name: that takes fewer than 20 requests
/// besides the listing. The maker then changes, removes and replaces some files, and the looker sees it at once.
#[test]
fn a_listing_and_a_look_at_each_name_take_few_requests() {
    const FILES: u64 = 1000;
    let sim = Sim::new(1);
    sim.clone().block_on(async move {
        let (maker, looker) = two(&sim).await;
        let dir = maker.mkdir(&caller(), Fid::ROOT, b"d", 0o755).await.expect("it is made").fid;
        for number in 0..FILES {
            make(&maker, dir, &name(number)).await;
        }
        // Before that the maker has the files' leases, and the MDT would have to recall them.
        sim.sleep(Duration::from_secs(30)).await;
        let before = looker.stats().rpcs;
        let listed = list(&looker, dir).await;
        assert_eq!(listed.len() as u64, FILES);
        let pages = looker.stats().rpcs - before;
        for entry in &listed {
            let attr = looker.lookup(&caller(), dir, &entry.name).await.expect("it is there");
            assert_eq!((attr.fid, attr.nlink, attr.size), (entry.fid, 1, 0));
            let label = looker.getxattr(&caller(), attr.fid, b"security.selinux").await;
            assert_eq!(label.expect_err("it has none").errno, Errno::ENODATA);
        }
        let rpcs = looker.stats().rpcs - before;
        assert!(rpcs < pages + FILES / 50, "{rpcs} requests, {pages} of them for the listing");

        // The looker sees later changes at once.
        let (one, two, three) = (&listed[500], &listed[501], &listed[502]);
        let changes = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
        maker.setattr(&caller(), one.fid, changes, None).await.expect("it is changed");
        maker.unlink(&caller(), dir, &two.name).await.expect("it is taken away");
        maker.unlink(&caller(), dir, &three.name).await.expect("it is taken away");
        let again = make(&maker, dir, &three.name).await;
        maker.setxattr(&caller(), listed[503].fid, b"security.x", b"y", 0).await.expect("it is set");
        let look = async |entry: &DirEntry| looker.lookup(&caller(), dir, &entry.name).await;
        assert_eq!(look(one).await.expect("it is there").mode & 0o777, 0o600);
        assert_eq!(look(two).await.expect_err("it went").errno, Errno::ENOENT);
        assert_eq!(look(three).await.expect("it is there again").fid, again.fid);
        let value = looker.getxattr(&caller(), listed[503].fid, b"security.x").await;
        assert_eq!(value.expect("it is there"), "y");
    });
}

/// The maker has just made 1000 files and holds their leases. The looker's listing recalls none of them. Its lookups
/// recall them in batches: they take fewer than 500 requests.
#[test]
fn lookups_of_files_that_another_client_just_made_recall_leases_in_batches() {
    const FILES: u64 = 1000;
    let sim = Sim::new(1);
    sim.clone().block_on(async move {
        let (maker, looker) = two(&sim).await;
        let dir = maker.mkdir(&caller(), Fid::ROOT, b"d", 0o755).await.expect("it is made").fid;
        maker.settled(dir).await;
        for number in 0..FILES {
            let open = OpenMode { exclusive: true, ..OpenMode::READ_WRITE };
            let coming = maker.create_delayed(&caller(), dir, &name(number), 0o644, open);
            let file = coming.expect("it is answered at once").1.file().await.expect("it is made");
            maker.write(&file, 0, Bytes::from_static(b"x")).await.expect("it is written");
            maker.close(file).await.expect("it is closed");
        }
        let kept = maker.stats().cached_inodes;
        let listed = list(&looker, dir).await;
        // The listing shows the directory, not the files.
        assert!(kept > FILES && maker.stats().cached_inodes + 2 >= kept, "a listing takes nothing else back");
        let before = looker.stats().rpcs;
        for entry in &listed {
            let attr = looker.lookup(&caller(), dir, &entry.name).await.expect("it is there");
            assert_eq!((attr.fid, attr.nlink, attr.size), (entry.fid, 1, 1));
        }
        let rpcs = looker.stats().rpcs - before;
        assert!(rpcs < FILES / 2, "{rpcs} requests");
    });
}

/// The keeper has one inode cached. The other client changes that inode: the recall of the keeper's last lease takes
/// less than 100 ms.
#[test]
fn the_recall_of_the_last_lease_of_a_client_takes_no_time() {
    let sim = Sim::new(1);
    sim.clone().block_on(async move {
        let (keeper, other) = two(&sim).await;
        let file = make(&other, Fid::ROOT, b"f").await.fid;
        // The first look recalls the lease from the client that made the file.
        for _ in 0..2 {
            keeper.getattr(file, None).await.expect("it is there");
            sim.sleep(Duration::from_millis(200)).await;
        }
        assert_eq!(keeper.stats().cached_inodes, 1);
        let (before, changes) = (sim.now(), SetAttributes { mode: Some(0o600), ..SetAttributes::default() });
        other.setattr(&caller(), file, changes, None).await.expect("it is changed");
        let waited = sim.now().since(before);
        assert!(waited < Duration::from_millis(100), "a lease that was taken back was waited for {waited:?}");
    });
}

/// The maker replaces the files of 40 names again and again, while the looker lists the directory and looks up each
/// name. Returns how many lookups took no request.
fn race(seed: u64) -> u64 {
    const NAMES: u64 = 40;
    let sim = Sim::new(seed);
    sim.set_trace(std::env::var("FOREBAY_TRACE").is_ok());
    sim.clone().block_on(async move {
        let (maker, looker) = two(&sim).await;
        let dir = maker.mkdir(&caller(), Fid::ROOT, b"d", 0o755).await.expect("it is made").fid;
        // The version of each file, and for each name the newest version that has been visible.
        let versions = Rc::new(RefCell::new(BTreeMap::<Fid, u64>::new()));
        let seen = Rc::new(RefCell::new(vec![0; NAMES as usize]));
        for number in 0..NAMES {
            let made = make(&maker, dir, &name(number)).await;
            versions.borrow_mut().insert(made.fid, 0);
        }
        let over = Rc::new(Cell::new(false));
        let (ended, known, newest, clock) = (over.clone(), versions.clone(), seen.clone(), sim.clone());
        let change = maker.clone();
        drop(sim.env(sim.add_node("program")).spawn(async move {
            for version in 1..120 {
                let number = clock.random_below(NAMES);
                let new = make(&change, Fid::ROOT, b"new").await;
                known.borrow_mut().insert(new.fid, version);
                let (from, to) = ((Fid::ROOT, &b"new"[..]), (dir, &name(number)[..]));
                change.rename(&caller(), from, to, 0).await.expect("it is moved");
                newest.borrow_mut()[number as usize] = version;
                clock.sleep(Duration::from_micros(clock.random_below(300_000))).await;
            }
            ended.set(true);
        }));
        let mut kept = 0;
        while !over.get() {
            let listed = list(&looker, dir).await;
            for entry in listed {
                let number: usize = String::from_utf8_lossy(&entry.name[1..]).parse().expect("a number");
                let (before, rpcs) = (seen.borrow()[number], looker.stats().rpcs);
                let attr = looker.lookup(&caller(), dir, &entry.name).await.expect("it is always there");
                let version = versions.borrow()[&attr.fid];
                assert!(version >= before, "seed {seed}: f{number} is version {version} after {before} was made");
                let newest = seen.borrow()[number].max(version);
                seen.borrow_mut()[number] = newest;
                kept += u64::from(looker.stats().rpcs == rpcs);
                if sim.random_below(8) == 0 {
                    sim.sleep(Duration::from_micros(sim.random_below(5000))).await;
                }
            }
        }
        kept
    })
}

/// The maker renames new files over listed names. The looker, with most names cached, never sees an older file than was
/// visible before.
#[test]
fn stat_of_listed_names_sees_the_renames_of_another_client() {
    let kept: u64 = (0..20).map(race).sum();
    assert!(kept > 20 * 100, "only {kept} looks were answered without a request");
}

/// The looker has all names of a directory cached. The maker moves the directory. The looker's lookup of `..` returns
/// the new parent: it is not taken from the cached names.
#[test]
fn lookup_of_the_parent_is_not_answered_from_cached_names() {
    let sim = Sim::new(1);
    sim.clone().block_on(async move {
        let (maker, looker) = two(&sim).await;
        let make_dir =
            async |parent: Fid, name: &[u8]| maker.mkdir(&caller(), parent, name, 0o755).await.expect("it is made").fid;
        let (one, two) = (make_dir(Fid::ROOT, b"one").await, make_dir(Fid::ROOT, b"two").await);
        let dir = make_dir(one, b"d").await;
        let up = async |client: &Client, dir: Fid| client.lookup(&caller(), dir, b"..").await.map(|attr| attr.fid);
        assert_eq!(up(&maker, dir).await, Ok(one), "of one that was just made, and has no names");
        assert_eq!((up(&maker, one).await, up(&maker, Fid::ROOT).await), (Ok(Fid::ROOT), Ok(Fid::ROOT)));
        make(&maker, dir, b"f").await;
        list(&looker, dir).await;
        assert_eq!(looker.lookup(&caller(), dir, b"g").await.expect_err("there is none").errno, Errno::ENOENT);
        assert_eq!(up(&looker, dir).await, Ok(one));
        maker.rename(&caller(), (one, b"d"), (two, b"d"), 0).await.expect("it is moved");
        assert_eq!((up(&looker, dir).await, up(&maker, dir).await), (Ok(two), Ok(two)));
        let here = looker.lookup(&caller(), dir, b".").await.map(|attr| attr.fid);
        assert_eq!(here, Ok(dir));
    });
}
