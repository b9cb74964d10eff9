//! Composite layouts, and files that grow past full OSTs.

use std::{rc::Rc, time::Duration};

use forebay_client::{Client, CommitLevel, LayoutSpec, OpenFile, OpenMode, SetAttributes};
use forebay_env::sim::Sim;
use forebay_proto::{
    Errno, FOR_EVER, Fid, Layout, TargetId, Uuid,
    message::{ComponentSpec, FenceLayout, GetObject, ObjectRef},
};
use forebay_rpc::{Call, ClientSession, PinBudget, SessionOptions};
use forebay_sim::{Cluster, ClusterOptions};

use crate::scene::{caller, create, striped};

const STEP: usize = 512 << 10;

fn part(end: u64, stripe_count: u32) -> ComponentSpec {
    ComponentSpec { end, stripe_count, stripe_bytes: 64 << 10, stripe_index: u32::MAX, pool: String::new() }
}

fn composite(end: u64) -> LayoutSpec {
    LayoutSpec { components: vec![part(end, 1), part(FOR_EVER, 3)], ..LayoutSpec::inherit() }
}

/// One stripe on OST0000.
fn on_the_first() -> LayoutSpec {
    LayoutSpec { stripe_index: 0, ..striped(1) }
}

fn step(number: usize) -> Vec<u8> {
    vec![number as u8 | 1; STEP]
}

async fn check_steps(client: &Client, file: &OpenFile, count: usize) {
    for number in 0..count {
        let read = client.read(file, (number * STEP) as u64, STEP).await.expect("it reads");
        assert!(read[..] == step(number)[..], "step {number} of {count}");
    }
}

fn small() -> ClusterOptions {
    ClusterOptions { ost_bytes: 24 << 20, ..ClusterOptions::default() }
}

/// A client, mounted on its own node.
async fn mount(sim: &Sim, cluster: &Cluster, name: &str) -> Client {
    cluster.mount(sim.add_node(name), CommitLevel::Data).await.expect("it mounts")
}

/// write to the end of an OST and on |power| read, delete
///
/// Two clients write in turn to a file on one OST. When that is full, the file grows on other OSTs until all are full.
/// All bytes are there, also after all servers lost power. After a delete the space comes back.
#[test]
fn a_file_on_a_full_ost_grows_on_others_until_all_are_full() {
    for seed in 0..4 {
        let sim = Sim::new(seed);
        sim.block_on(async {
            let cluster = Cluster::format(&sim, small()).await;
            cluster.boot_all();
            let (first, second) = (mount(&sim, &cluster, "first").await, mount(&sim, &cluster, "second").await);
            let file = create(&first, b"f", on_the_first()).await;
            let other = second.open(&caller(), file.fid(), OpenMode::READ_WRITE).await.expect("it opens");
            let mut steps = 0;
            let full = loop {
                // The clients take turns. Half of the steps leave a hole for the other client to fill.
                let (client, file) = if steps % 2 == 0 { (&first, &file) } else { (&second, &other) };
                match client.write(file, (steps * STEP) as u64, step(steps)).await {
                    Ok(STEP) => steps += 1,
                    Ok(_) => {}
                    Err(error) => break error,
                }
            };
            assert_eq!(full.errno, Errno::ENOSPC);
            let layout = first.get_layout(file.fid()).await.expect("it is told").0.expect("of a file");
            assert!(layout.components.len() >= 3, "seed {seed}: {layout:?}");
            // Three OSTs of 24 MiB hold more than two of them could.
            assert!(steps * STEP > 40 << 20, "seed {seed}: only {steps} steps fitted");
            check_steps(&second, &other, steps).await;
            first.fsync(&file, false).await.expect("synced");
            for server in 0..cluster.servers.len() {
                sim.power_cut(cluster.servers[server].node);
                cluster.boot(server);
            }
            check_steps(&first, &file, steps).await;
            // Part of the last step may have fitted.
            let size = second.getattr(file.fid(), Some(&other)).await.expect("told").size as usize;
            assert!((steps * STEP..(steps + 1) * STEP).contains(&size), "{size}");
            first.unlink(&caller(), Fid::ROOT, b"f").await.expect("gone");
            first.close(file).await.expect("closed");
            second.close(other).await.expect("closed");
            sim.sleep(Duration::from_secs(20)).await;
            let again = create(&first, b"g", on_the_first()).await;
            let written = first.write(&again, 0, step(0)).await;
            assert_eq!(written, Ok(STEP), "the space came back");
        });
    }
}

/// The first client has an empty file open for reading. The second client gives it another layout and writes 4 MiB. The
/// first client's handle reads those bytes.
#[test]
fn a_handle_of_an_unwritten_file_follows_the_new_layout_of_the_file() {
    // With the same home, and with another.
    for (seed, first_ost) in [(1, 0), (2, 1)] {
        let sim = Sim::new(seed);
        sim.block_on(async {
            let cluster = Cluster::format(&sim, ClusterOptions::default()).await;
            cluster.boot_all();
            let (first, second) = (mount(&sim, &cluster, "first").await, mount(&sim, &cluster, "second").await);
            let made = first.create(&caller(), Fid::ROOT, b"f", 0o644, OpenMode::READ, on_the_first()).await;
            let reader = made.expect("it is made").1;
            assert_eq!(first.read(&reader, 0, 100).await.expect("it reads").len(), 0);
            let wider = LayoutSpec { stripe_count: 2, stripe_index: first_ost, ..on_the_first() };
            second.set_layout(&caller(), reader.fid(), wider).await.expect("it has no data");
            let writer = second.open(&caller(), reader.fid(), OpenMode::READ_WRITE).await.expect("it opens");
            let bytes: Vec<u8> = (0..4 << 20).map(|i: u32| (i / 1000) as u8).collect();
            second.write(&writer, 0, bytes.clone()).await.expect("written");
            second.close(writer).await.expect("closed");
            let read = first.read(&reader, 0, bytes.len()).await.expect("it reads");
            assert!(read[..] == bytes[..], "{} bytes by a layout of before", read.len());
            second.unlink(&caller(), Fid::ROOT, b"f").await.expect("gone");
            first.close(reader).await.expect("closed");
        });
    }
}

/// A client writes 80 KiB behind a hole, from a stripe on a full OST into one with space. The file grows elsewhere: all
/// bytes are there, and no others.
#[test]
fn a_write_that_begins_on_a_full_ost_and_ends_on_another_goes_round() {
    for seed in 0..8 {
        let sim = Sim::new(seed);
        sim.block_on(async {
            let cluster = Cluster::format(&sim, small()).await;
            cluster.boot_all();
            let client = mount(&sim, &cluster, "client").await;
            let two = LayoutSpec { stripe_index: 0, ..striped(2) };
            let file = create(&client, b"two", two).await;
            let layout = client.get_layout(file.fid()).await.expect("it is told").0.expect("of a file");
            let second = layout.components[0].osts[1];
            for length in [STEP, 64 << 10, 4096] {
                fill(&client, second, length).await;
            }
            // The second stripe begins at 64 KiB; the third is on the first OST again.
            let start = (64 << 10) + 1000 * seed;
            let bytes: Vec<u8> = (0..(80 << 10)).map(|i| (i % 251) as u8).collect();
            let written = client.write(&file, start, bytes.clone()).await;
            assert_eq!(written, Ok(bytes.len()), "seed {seed}: another OST has room");
            let end = start + bytes.len() as u64;
            assert_eq!(client.getattr(file.fid(), Some(&file)).await.expect("told").size, end);
            let read = client.read(&file, 0, 1 << 20).await.expect("it reads");
            assert_eq!(read.len() as u64, end);
            assert!(read[..start as usize].iter().all(|byte| *byte == 0) && read[start as usize..] == bytes[..]);
        });
    }
}

/// Writes to OST `ost` until a piece of `length` does not fit there and the file continues on another OST.
async fn fill(client: &Client, ost: u32, length: usize) {
    let name = format!("fill{length}").into_bytes();
    let file = create(client, &name, LayoutSpec { stripe_index: ost, ..on_the_first() }).await;
    for number in 0.. {
        client.write(&file, (number * length) as u64, vec![9; length]).await.expect("another has room");
        let layout = client.get_layout(file.fid()).await.expect("it is told").0.expect("of a file");
        if layout.components.len() > 1 || !layout.components[0].osts.contains(&ost) {
            break;
        }
    }
    client.close(file).await.expect("closed");
}

/// A client appends records to a log on one OST until that is full, and on. No record is torn, lost, or behind zeros.
#[test]
fn appends_go_round_a_full_ost_without_leaving_zeros() {
    let sim = Sim::new(1);
    sim.block_on(async {
        let cluster = Cluster::format(&sim, small()).await;
        cluster.boot_all();
        let client = mount(&sim, &cluster, "client").await;
        let file = create(&client, b"log", on_the_first()).await;
        let mut records = 0;
        while records < 70 {
            let at = client.append(&file, step(records)).await.expect("there is room elsewhere");
            assert_eq!(at, (records * STEP) as u64);
            records += 1;
        }
        check_steps(&client, &file, records).await;
    });
}

/// The first client writes to the first component: only that one has OSTs. It writes to the second: that one gets OSTs
/// too, and the second client sees the bytes and the hole. After a truncate nothing of the second component comes back.
#[test]
fn a_component_is_instantiated_by_its_first_write_and_seen_by_all() {
    let sim = Sim::new(3);
    sim.block_on(async {
        let cluster = Cluster::format(&sim, ClusterOptions::default()).await;
        cluster.boot_all();
        let (first, second) = (mount(&sim, &cluster, "first").await, mount(&sim, &cluster, "second").await);
        let file = create(&first, b"f", composite(1 << 20)).await;
        let other = second.open(&caller(), file.fid(), OpenMode::READ_WRITE).await.expect("it opens");
        first.write(&file, 0, step(0)).await.expect("it writes");
        let bare = |layout: forebay_proto::Layout| layout.components.iter().filter(|part| !part.has_osts()).count();
        assert_eq!(bare(first.get_layout(file.fid()).await.unwrap().0.unwrap()), 1);
        assert_eq!(second.read(&other, 0, 4 * STEP).await.unwrap().len(), STEP);
        first.write(&file, (3 * STEP) as u64, step(3)).await.expect("it writes");
        assert_eq!(bare(first.get_layout(file.fid()).await.unwrap().0.unwrap()), 0);
        let read = second.read(&other, STEP as u64, 4 * STEP).await.expect("it reads");
        assert!(read.len() == 3 * STEP && read[..2 * STEP].iter().all(|byte| *byte == 0) && read[2 * STEP] == 3);
        assert_eq!(second.seek_data(&other, STEP as u64).await, Ok(3 * STEP as u64));
        assert_eq!(second.seek_hole(&other, 0).await, Ok(STEP as u64));
        // Truncated into the first component and extended again: nothing of the second comes back.
        let cut = |size| SetAttributes { size: Some(size), ..SetAttributes::default() };
        second.setattr(&caller(), file.fid(), cut(1000), None).await.expect("it cuts");
        second.setattr(&caller(), file.fid(), cut(4 << 20), None).await.expect("it grows");
        let read = first.read(&file, 0, 4 << 20).await.expect("it reads");
        assert!(read.len() == 4 << 20 && read[..1000].iter().all(|byte| *byte == 1));
        assert!(read[1000..].iter().all(|byte| *byte == 0));
    });
}

/// The second client changes the layout of an empty file that both have open for writing. The first client's write
/// follows it. With data in the file, the next change of layout gets EEXIST. The size stays right for both clients.
#[test]
fn an_open_file_without_data_takes_another_layout_and_one_with_data_does_not() {
    let sim = Sim::new(4);
    sim.block_on(async {
        let cluster = Cluster::format(&sim, ClusterOptions::default()).await;
        cluster.boot_all();
        let (first, second) = (mount(&sim, &cluster, "first").await, mount(&sim, &cluster, "second").await);
        let file = create(&first, b"f", on_the_first()).await;
        let other = second.open(&caller(), file.fid(), OpenMode::READ_WRITE).await.expect("it opens");
        let layout = LayoutSpec { stripe_index: 2, ..on_the_first() };
        second.set_layout(&caller(), file.fid(), layout.clone()).await.expect("it has no data");
        // The first client does not know of the new layout yet.
        first.write(&file, 0, step(0)).await.expect("it writes");
        let now = second.get_layout(file.fid()).await.unwrap().0.unwrap();
        assert_eq!((now.home(), &now.former[..]), (2, &[0][..]));
        assert!(second.read(&other, 0, STEP).await.expect("it reads")[..] == step(0)[..]);
        let refused = first.set_layout(&caller(), file.fid(), layout.clone()).await;
        assert_eq!(refused.map_err(|error| error.errno), Err(Errno::EEXIST));
        // Both clients see the same size, also after the writers have closed the file.
        let fid = file.fid();
        let size = async |client: &Client| client.getattr(fid, None).await.expect("it is there").size;
        assert_eq!((size(&first).await, size(&second).await), (STEP as u64, STEP as u64));
        first.close(file).await.expect("closed");
        assert_eq!(size(&second).await, STEP as u64);
        second.close(other).await.expect("closed");
        assert_eq!((size(&first).await, size(&second).await), (STEP as u64, STEP as u64));
    });
}

/// write, setlayout (refused), close |power, MDT| stat
///
/// The first client writes to a file. The second client's change of its layout gets EEXIST. The first client closes the
/// file: its size is right, also after the MDT lost power.
#[test]
fn a_file_that_is_refused_another_layout_while_it_is_written_keeps_its_size() {
    for (seed, layout) in [(1, LayoutSpec { stripe_index: 2, ..on_the_first() }), (2, composite(1 << 20))] {
        let sim = Sim::new(seed);
        sim.block_on(async {
            let cluster = Cluster::format(&sim, ClusterOptions::default()).await;
            cluster.boot_all();
            let (first, second) = (mount(&sim, &cluster, "first").await, mount(&sim, &cluster, "second").await);
            let file = create(&first, b"f", on_the_first()).await;
            let fid = file.fid();
            first.write(&file, 0, step(0)).await.expect("it writes");
            let refused = second.set_layout(&caller(), fid, layout.clone()).await;
            assert_eq!(refused.map_err(|error| error.errno), Err(Errno::EEXIST));
            first.close(file).await.expect("closed");
            let size = first.getattr(fid, None).await.expect("it is there").size;
            assert_eq!(size, STEP as u64);
            sim.power_cut(cluster.servers[0].node);
            cluster.boot(0);
            assert_eq!(second.getattr(fid, None).await.expect("it is there").size, STEP as u64);
        });
    }
}

/// A client makes small buffered writes without a pause. On the same mount a change of the layout is tried fifty times.
/// Each try gets EEXIST within 20 s, and no write is lost.
#[test]
fn a_refused_layout_change_does_not_wait_for_buffered_writes() {
    let sim = Sim::new(9);
    sim.block_on(async {
        let cluster = Cluster::format(&sim, ClusterOptions::default()).await;
        cluster.boot_all();
        let node = sim.add_node("first");
        let client = cluster.mount(node, CommitLevel::Data).await.expect("it mounts");
        let file = create(&client, b"f", on_the_first()).await;
        client.write(&file, 0, vec![1u8; 100]).await.expect("it writes");
        let env = sim.env(node);
        let (writer, open, clock) = (client.clone(), file.clone(), env.clone());
        let records = 2000u64;
        let written = env.spawn(async move {
            for number in 1..records {
                writer.write(&open, number * 100, vec![1u8; 100]).await.expect("it writes");
                clock.sleep(Duration::from_millis(1)).await;
            }
        });
        let layout = LayoutSpec { stripe_index: 2, ..on_the_first() };
        for _ in 0..50 {
            let caller = caller();
            let asked = client.set_layout(&caller, file.fid(), layout.clone());
            let refused = env.timeout(Duration::from_secs(20), asked).await.expect("it ends");
            assert_eq!(refused.map_err(|error| error.errno), Err(Errno::EEXIST));
            env.sleep(Duration::from_millis(7)).await;
        }
        written.await.expect("it ends");
        client.fsync(&file, false).await.expect("synced");
        let read = client.read(&file, 0, 1 << 20).await.expect("it reads");
        assert!(read.len() == records as usize * 100 && read.iter().all(|byte| *byte == 1));
    });
}

/// write, migrate, migrate back |power| read
///
/// The first client migrates a file with data to another layout and back, with a reader open. A migrate gets EBUSY
/// while a writer has the file open, and EAGAIN if the file has changed since. The reader sees the same bytes
/// throughout, also after all servers lost power.
#[test]
fn a_file_with_data_moves_to_another_layout_and_keeps_what_it_is() {
    let sim = Sim::new(5);
    sim.block_on(async {
        let cluster = Cluster::format(&sim, ClusterOptions::default()).await;
        cluster.boot_all();
        let (first, second) = (mount(&sim, &cluster, "first").await, mount(&sim, &cluster, "second").await);
        let file = create(&first, b"f", on_the_first()).await;
        let fid = file.fid();
        for number in 0..3 {
            first.write(&file, (number * STEP) as u64, step(number)).await.expect("it writes");
        }
        assert_eq!(first.migrate_start(fid).await.map_err(|error| error.errno), Err(Errno::EBUSY));
        first.close(file).await.expect("closed");
        let before = first.getattr(fid, None).await.expect("told");
        let reader = first.open(&caller(), fid, OpenMode::READ).await.expect("it opens");
        check_steps(&first, &reader, 3).await;
        for (generation, layout) in [(1, composite(1 << 20)), (2, on_the_first())] {
            let version = first.migrate_start(fid).await.expect("it is idle");
            let (copy, keeper) = copied(&first, &reader, layout).await;
            first.migrate(&caller(), fid, copy, version).await.expect("it moves");
            first.close(keeper).await.expect("closed");
            let layout = first.get_layout(fid).await.expect("told").0.expect("of a file");
            assert!(layout.generation > generation && layout.objects == Some(copy), "{layout:?}");
            check_steps(&first, &reader, 3).await;
        }
        let after = first.getattr(fid, None).await.expect("told");
        assert_eq!((after.mtime_ns, after.size, after.mode), (before.mtime_ns, before.size, before.mode));
        // The second client opens the file for writing and changes it after the copy was made: the file stays where it
        // is.
        let version = first.migrate_start(fid).await.expect("it is idle");
        let (copy, keeper) = copied(&first, &reader, composite(1 << 20)).await;
        let other = second.open(&caller(), fid, OpenMode::WRITE).await.expect("it opens");
        let refused = first.migrate(&caller(), fid, copy, version).await.map_err(|error| error.errno);
        assert_eq!(refused, Err(Errno::EBUSY));
        second.write(&other, 0, step(0)).await.expect("it writes");
        second.close(other).await.expect("closed");
        let refused = first.migrate(&caller(), fid, copy, version).await.map_err(|error| error.errno);
        assert_eq!(refused, Err(Errno::EAGAIN));
        first.close(keeper).await.expect("closed");
        first.fsync(&reader, false).await.expect("synced");
        for server in 0..cluster.servers.len() {
            sim.power_cut(cluster.servers[server].node);
            cluster.boot(server);
        }
        check_steps(&first, &reader, 3).await;
        first.close(reader).await.expect("closed");
        first.unlink(&caller(), Fid::ROOT, b"f").await.expect("gone");
        first.sync_all().await.expect("synced");
    });
}

/// Makes a nameless file with another layout and the bytes of `reader`. A read-only handle keeps it.
async fn copied(client: &Client, reader: &OpenFile, layout: LayoutSpec) -> (Fid, OpenFile) {
    let made = client.create_nameless(&caller(), Fid::ROOT, 0o600, OpenMode::READ_WRITE).await;
    let (attr, copy) = made.expect("it is made");
    client.set_layout(&caller(), attr.fid, layout).await.expect("it has no data");
    let bytes = client.read(reader, 0, 8 * STEP).await.expect("it reads");
    let length = bytes.len();
    assert_eq!(client.write(&copy, 0, bytes).await, Ok(length));
    client.fsync(&copy, false).await.expect("synced");
    let keeper = client.open(&caller(), attr.fid, OpenMode::READ).await.expect("it opens");
    client.close(copy).await.expect("closed");
    (attr.fid, keeper)
}

/// A session with an OST that sends what no client does: one for each OST, as all have the same client's id.
async fn session(sim: &Sim, cluster: &Cluster, ost: u32) -> ClientSession {
    let options = SessionOptions {
        cluster: Uuid::default(),
        target: TargetId::ost(ost),
        resolve: Rc::new(vec![cluster.servers[ost as usize + 1].address.clone()]),
        client: Uuid([9; 16]),
        description: "raw".into(),
        pins: PinBudget::new(1 << 20),
    };
    let session = ClientSession::start(&sim.env(sim.add_node("raw")), options);
    session.ready().await.expect("it serves");
    session
}

/// The error for a look at the object under the current truncate epoch and this generation of the layout.
async fn look(session: &ClientSession, fid: Fid, layout_generation: u32, truncate_epoch: u64) -> Option<Errno> {
    let object = ObjectRef { fid, layout_generation, truncate_epoch };
    let looked = session.call(&GetObject { object }, Call::default()).await;
    looked.err().map(|error| error.errno())
}

/// The second client changes the layout of an empty open file, then migrates it once it has data. Each time the OSTs of
/// the file refuse requests under older layouts, even if these have the current truncate epoch.
#[test]
fn the_osts_of_a_file_that_moved_refuse_requests_under_its_former_layouts() {
    let sim = Sim::new(10);
    sim.block_on(async {
        let cluster = Cluster::format(&sim, ClusterOptions::default()).await;
        cluster.boot_all();
        let (first, second) = (mount(&sim, &cluster, "first").await, mount(&sim, &cluster, "second").await);
        let file = create(&first, b"f", on_the_first()).await;
        let fid = file.fid();
        let other = second.open(&caller(), fid, OpenMode::READ_WRITE).await.expect("it opens");
        second.set_layout(&caller(), fid, LayoutSpec { stripe_index: 2, ..on_the_first() }).await.expect("it is empty");
        let known = async || {
            let layout: Layout = second.get_layout(fid).await.expect("told").0.expect("of a file");
            let epoch = second.getattr(fid, None).await.expect("told").truncate_epoch;
            (layout.objects_of(fid), layout.generation, epoch)
        };
        let (objects, generation, epoch) = known().await;
        let [on_the_first_ost, on_the_third] = [session(&sim, &cluster, 0).await, session(&sim, &cluster, 2).await];
        for session in [&on_the_first_ost, &on_the_third] {
            assert_eq!(look(session, objects, generation - 1, epoch).await, Some(Errno::STALE_LAYOUT));
            assert_eq!(look(session, objects, generation, epoch).await, None);
        }
        first.write(&file, 0, step(0)).await.expect("it writes");
        first.close(file).await.expect("closed");
        second.close(other).await.expect("closed");
        let reader = second.open(&caller(), fid, OpenMode::READ).await.expect("it opens");
        let version = second.migrate_start(fid).await.expect("it is idle");
        let (copy, keeper) = copied(&second, &reader, on_the_first()).await;
        let (left, left_generation, epoch) = known().await;
        second.migrate(&caller(), fid, copy, version).await.expect("it moves");
        // The objects that the file had are the copy's now.
        assert_eq!(look(&on_the_third, left, left_generation, epoch + 1).await, Some(Errno::STALE_LAYOUT));
        let (objects, generation, epoch) = known().await;
        assert_eq!(look(&on_the_third, left, generation, epoch - 1).await, None);
        assert_eq!(look(&on_the_first_ost, objects, generation - 1, epoch).await, Some(Errno::STALE_LAYOUT));
        check_steps(&second, &reader, 1).await;
        second.close(keeper).await.expect("closed");
    });
}

/// Two clients have a file open whose second component has no OSTs. The second client writes there: that raises the
/// generation, and the first client goes on under the older one. Once the OST is fenced, it fetches the layout and goes
/// on.
#[test]
fn a_client_with_an_older_layout_goes_on_until_a_fence_and_after_it_with_the_new_layout() {
    let sim = Sim::new(11);
    sim.block_on(async {
        let cluster = Cluster::format(&sim, ClusterOptions::default()).await;
        cluster.boot_all();
        let (first, second) = (mount(&sim, &cluster, "first").await, mount(&sim, &cluster, "second").await);
        let file = create(&first, b"f", composite(1 << 20)).await;
        let other = second.open(&caller(), file.fid(), OpenMode::READ_WRITE).await.expect("it opens");
        first.write(&file, 0, step(0)).await.expect("it writes");
        let before = first.get_layout(file.fid()).await.expect("told").0.expect("of a file");
        second.write(&other, (3 * STEP) as u64, step(3)).await.expect("it writes");
        let layout = second.get_layout(file.fid()).await.expect("told").0.expect("of a file");
        assert!(layout.generation > before.generation, "{before:?} {layout:?}");
        first.write(&file, STEP as u64, step(1)).await.expect("it writes");
        let epoch = second.getattr(file.fid(), None).await.expect("told").truncate_epoch;
        let session = session(&sim, &cluster, layout.home()).await;
        assert_eq!(look(&session, file.fid(), before.generation, epoch).await, None);
        let request = FenceLayout { fid: file.fid(), layout_generation: layout.generation };
        session.call(&request, Call::default()).await.expect("it is set");
        assert_eq!(look(&session, file.fid(), before.generation, epoch).await, Some(Errno::STALE_LAYOUT));
        first.write(&file, 0, step(5)).await.expect("it writes under the new layout");
        first.fsync(&file, false).await.expect("synced");
        assert!(second.read(&other, 0, STEP).await.expect("it reads")[..] == step(5)[..]);
        assert!(second.read(&other, STEP as u64, STEP).await.expect("it reads")[..] == step(1)[..]);
    });
}
