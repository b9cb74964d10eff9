//! A truncate that an OST cannot do: no request waits for it for ever.

use std::{rc::Rc, time::Duration};

use crate::common::*;
use forebay_proto::{
    Errno, Fid,
    message::{GetContentVersion, GetObject, Migrate, ObjectRef, SetAttr, attr_flags, open_flags, set_attr},
};
use forebay_rpc::Call;

const INODE: u8 = 0x21;
const HANDLE: u8 = 0x25;
const TRUNCATE: u8 = 0x28;
/// No reply takes longer.
const SOON: Duration = Duration::from_secs(20);

fn cut(fid: Fid) -> SetAttr {
    let (mask, mode, uid, gid, size, atime_ns, mtime_ns, handle) = (set_attr::SIZE, 0, 0, 0, 10, 0, 0, 0);
    SetAttr { caller: root(), fid, mask, mode, uid, gid, size, atime_ns, mtime_ns, handle, at_ns: 0 }
}

/// A file of 100 bytes whose truncate to 10 waits; all other requests are answered in time from then on.
async fn stuck(world: &World, client: &Rc<Client>, name: &str) -> Fid {
    let (fid, handle, ost) = client.create(Fid::ROOT, name).await.unwrap();
    client.write(fid, ost, 100).await.unwrap();
    client.close(fid, handle, 100).await.unwrap();
    world.damage_osts(true);
    let asker = client.clone();
    drop(client.env.spawn(async move { drop(asker.ask(&cut(fid)).await) }));
    client.env.sleep(Duration::from_millis(10)).await;
    fid
}

/// write, damage, truncate | stat, open, MDT restart, unlink | all are answered, and nothing is left behind
#[test]
fn a_file_that_cannot_be_cut_is_seen_and_taken_away() {
    for restarts in [false, true] {
        let world = World::new(5, Setup::default());
        let client = world.client("a");
        let fid = world.sim.block_on(stuck(&world, &client, "f"));
        if restarts {
            world.power_cut_mds();
            world.start_mds();
        }
        world.sim.block_on(async {
            let timely = client.env.timeout(SOON, async {
                assert_eq!(client.lookup(Fid::ROOT, "f").await.map(|attr| attr.size), Ok(10));
                assert_eq!(client.open(fid, open_flags::READ).await.err(), Some(Errno::EIO));
                client.unlink(Fid::ROOT, "f").await.expect("gone");
            });
            timely.await.expect("nobody waits for the truncate");
        });
        world.sim.run_for(Duration::from_secs(200));
        assert_eq!((world.rows(INODE), world.rows(TRUNCATE), world.objects().len()), (1, 0, 0));
    }
}

/// write, damage, truncate | it can be read again | the truncate comes to its end
#[test]
fn a_truncate_of_damaged_objects_is_repeated_until_it_succeeds() {
    let world = World::new(6, Setup::default());
    let client = world.client("a");
    let fid = world.sim.block_on(stuck(&world, &client, "f"));
    world.sim.run_for(Duration::from_secs(30));
    world.damage_osts(false);
    world.sim.run_for(Duration::from_secs(100));
    assert_eq!(world.rows(TRUNCATE), 0);
    world.sim.block_on(async {
        let handle = client.open(fid, open_flags::READ).await.expect("it opens");
        assert_eq!(client.getattr(fid).await.map(|attr| attr.size), Ok(10));
        client.close(fid, handle, 0).await.expect("closed");
    });
}

/// write, damage, open with O_TRUNC, die | others look, the writer is evicted | all are answered, and nothing is left behind
#[test]
fn open_of_stuck_file_ends_with_its_session() {
    let setup = Setup { session_timeout: Duration::from_secs(20), ..Setup::default() };
    let world = World::new(7, setup);
    let (client, other) = (world.client("a"), world.client("b"));
    let (fid, later) = world.sim.block_on(async {
        let (fid, handle, ost) = client.create(Fid::ROOT, "f").await.unwrap();
        client.write(fid, ost, 100).await.unwrap();
        client.close(fid, handle, 100).await.unwrap();
        let (later, _, ost) = client.create(Fid::ROOT, "later").await.unwrap();
        client.write(later, ost, 50).await.unwrap();
        world.damage_osts(true);
        let asker = client.clone();
        let open = async move { asker.open(fid, open_flags::WRITE | open_flags::TRUNCATE).await };
        drop(client.env.spawn(open));
        client.env.sleep(Duration::from_secs(5)).await;
        (fid, later)
    });
    world.sim.crash(client.node);
    world.sim.block_on(async {
        let timely = other.env.timeout(Duration::from_secs(60), async {
            let attr = other.lookup(Fid::ROOT, "f").await.expect("there");
            assert_eq!((attr.size, attr.flags & attr_flags::SIZE_ON_OST), (0, 0));
            other.env.sleep(Duration::from_secs(40)).await;
            other.unlink(Fid::ROOT, "f").await.expect("gone");
            assert_eq!(other.getattr(later).await.map(|attr| attr.size), Ok(50), "it is closed too");
        });
        timely.await.expect("nobody waits for the truncate");
    });
    world.sim.run_for(Duration::from_secs(200));
    assert_eq!((world.rows(INODE), world.rows(HANDLE), world.rows(TRUNCATE), world.objects().len()), (2, 0, 0, 1));
    let _ = fid;
}

/// write, copy, damage, migrate, stat | it can be read again | the file moves
///
/// Whoever looked at the stuck file knows an epoch and the old layout. The objects that it leaves refuse that epoch.
#[test]
fn a_stuck_migration_goes_on_under_an_epoch_that_nobody_has_seen() {
    let world = World::new(8, Setup::default());
    let client = world.client("a");
    let (fid, ost, seen) = world.sim.block_on(async {
        let mut made = Vec::new();
        for name in ["f", "copy"] {
            let (fid, handle, ost) = client.create(Fid::ROOT, name).await.unwrap();
            client.write(fid, ost, 100).await.unwrap();
            client.close(fid, handle, 100).await.unwrap();
            made.push((fid, ost));
        }
        let [(fid, ost), (other, _)] = made[..] else { panic!("{made:?}") };
        let version = client.ask(&GetContentVersion { fid }).await.unwrap().version;
        world.damage_osts(true);
        let asker = client.clone();
        let migrate = Migrate { caller: root(), fid, other, version };
        drop(client.env.spawn(async move { drop(asker.ask(&migrate).await) }));
        client.env.sleep(Duration::from_millis(10)).await;
        (fid, ost, client.getattr(fid).await.unwrap().truncate_epoch)
    });
    world.sim.run_for(Duration::from_secs(30));
    world.damage_osts(false);
    world.sim.run_for(Duration::from_secs(100));
    assert_eq!(world.rows(TRUNCATE), 0);
    world.sim.block_on(async {
        let object = ObjectRef { fid, layout_generation: 1, truncate_epoch: 0 };
        let left = client.osts[ost as usize].call(&GetObject { object }, Call::default()).await.unwrap().reply;
        let moved = client.getattr(fid).await.unwrap().truncate_epoch;
        assert!(seen > 0 && left.truncate_epoch > seen && moved > left.truncate_epoch, "{seen} {left:?} {moved}");
    });
}
