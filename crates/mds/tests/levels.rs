//! Commit levels of files and directories: the server enforces them, whatever level the requests carry.

use std::{cell::Cell, rc::Rc, time::Duration};

use crate::common::*;
use forebay_proto::{
    Errno, Fid,
    message::{COMMIT_XATTR, Rename, SetXattr},
};

fn level(fid: Fid, level: &str) -> SetXattr {
    SetXattr { caller: root(), fid, name: COMMIT_XATTR.into(), value: level.to_owned().into(), flags: 0 }
}

fn slow() -> Setup {
    // Nothing is committed in the background while the tests check.
    Setup { commit_interval: Duration::from_secs(20), ..Setup::default() }
}

/// create, rename, unlink |MDT without power, client dead| there with level commit, not with data
#[test]
fn replies_leave_when_the_change_is_committed() {
    for (name, is_there) in [("commit", true), ("data", false)] {
        for change in 0..3 {
            let world = World::new(11, slow());
            let (client, other) = (world.client("a"), world.client("b"));
            let dir = world.sim.block_on(async {
                let dir = client.mkdir(Fid::ROOT, "d").await.unwrap();
                client.mknod(dir, "old").await.unwrap();
                client.ask(&level(dir, name)).await.unwrap();
                // What the other client looks at is committed first.
                assert_eq!(other.getattr(dir).await.unwrap().level().map(|level| level.name()), Some(name));
                assert!(other.lookup(dir, "old").await.is_ok());
                client.give_back(dir).await;
                other.give_back(dir).await;
                match change {
                    0 => client.create(dir, "new").await.map(drop).unwrap(),
                    1 => client.unlink(dir, "old").await.unwrap(),
                    _ => {
                        let (from_name, to_name) = ("old".into(), "new".into());
                        let (from_parent, to_parent) = (dir, dir);
                        let request = Rename { caller: root(), from_parent, from_name, to_parent, to_name, flags: 0 };
                        client.ask(&request).await.map(drop).unwrap();
                    }
                }
                dir
            });
            world.sim.crash(client.node);
            world.power_cut_mds();
            world.start_mds();
            world.sim.run_for(Duration::from_secs(10));
            let found = ["old", "new"].map(|name| world.sim.block_on(other.lookup(dir, name)).map(drop));
            let gone = Err(Errno::ENOENT);
            let after = [[Ok(()), Ok(())], [gone, gone], [gone, Ok(())]][change];
            assert_eq!(found, if is_there { after } else { [Ok(()), gone] }, "{name}, change {change}");
        }
    }
}

/// A reply that waits for a commit delays other replies only for as long as the commit takes.
#[test]
fn a_reply_that_waits_for_a_commit_starts_it_at_once() {
    let world = World::new(12, slow());
    let client = world.client("a");
    world.sim.block_on(async {
        let dir = client.mkdir(Fid::ROOT, "d").await.unwrap();
        client.ask(&level(dir, "commit")).await.unwrap();
        let waiting = Rc::new(Cell::new(8));
        for number in 0..8 {
            let (client, waiting) = (client.clone(), waiting.clone());
            drop(client.env.clone().spawn(async move {
                client.mknod(dir, &format!("f{number}")).await.unwrap();
                waiting.set(waiting.get() - 1);
            }));
        }
        client.env.sleep(Duration::from_millis(500)).await;
        assert_eq!(waiting.get(), 0);
    });
}
