//! Callers that stop waiting for a change. It goes on, and the client caches nothing from before it.

use std::time::Duration;

use forebay_client::{Client, ClientResult};
use forebay_env::Boxed;
use forebay_proto::{Errno, Fid};

use crate::scene::{Scene, caller, make};

/// The clients' machines.
const CLIENTS: &[&str] = &["changer", "other"];
const SHORT: Duration = Duration::from_millis(50);

/// What a client finds: the error of a lookup, or the number of names.
async fn found(client: &Client, dir: Fid, name: &[u8]) -> Result<u32, Errno> {
    client.lookup(&caller(), dir, name).await.map(|attr| attr.nlink).map_err(|error| error.errno)
}

/// The other client has leases on a directory and on a file in it, and is cut off. So the MDT executes a change of them
/// only some seconds later, when it has evicted the other. Nobody waits for the change, and the changer looks at the file
/// again and again. In the end it sees what the other sees when it is back.
fn check(what: &str, change: impl for<'a> Fn(&'a Client, Fid, Fid) -> Boxed<'a, ClientResult<()>>) {
    for seed in 0..10 {
        let scene = Scene::new(seed, CLIENTS);
        scene.sim.block_on(async {
            let (changer, other) = scene.mounts().await;
            make(&other, b"f", b"bytes").await;
            let dir = other.mkdir(&caller(), Fid::ROOT, b"d", 0o755).await.expect("it is made").fid;
            let file = other.lookup(&caller(), Fid::ROOT, b"f").await.expect("it is there").fid;
            other.readdir(Fid::ROOT, 0, 1 << 16, true).await.expect("it is listed");
            other.getattr(file, None).await.expect("it is there");
            scene.sim.cut_both(scene.nodes[1], scene.mdt());
            let env = scene.sim.env(scene.nodes[0]);
            let ended = env.timeout(SHORT, change(&changer, dir, file)).await;
            assert!(ended.is_err(), "{what}, seed {seed}: it waits for the other's leases");
            for _ in 0..400 {
                for name in [&b"f"[..], b"g"] {
                    let _ = env.timeout(SHORT, changer.lookup(&caller(), Fid::ROOT, name)).await;
                }
                let _ = env.timeout(SHORT, changer.getattr(file, None)).await;
                scene.sim.sleep(SHORT).await;
            }
            scene.sim.heal(scene.nodes[1], scene.mdt());
            let mut seen = Vec::new();
            for client in [&other, &changer] {
                let links = client.getattr(file, None).await.map(|attr| attr.nlink).map_err(|error| error.errno);
                let names = [found(client, Fid::ROOT, b"f").await, found(client, Fid::ROOT, b"g").await];
                seen.push((links, names, found(client, dir, b"g").await));
            }
            assert_eq!(seen[0], seen[1], "{what}, seed {seed}");
            assert_ne!(seen[0], (Ok(1), [Ok(1), Err(Errno::ENOENT)], Err(Errno::ENOENT)), "{what}: it was made");
        });
    }
}

#[test]
fn an_unlink_that_nobody_waits_for() {
    check("unlink", |client, _, _| Box::pin(async move { client.unlink(&caller(), Fid::ROOT, b"f").await }));
}

#[test]
fn a_link_that_nobody_waits_for() {
    check("link", |client, dir, file| Box::pin(async move { client.link(&caller(), file, dir, b"g").await.map(drop) }));
}

#[test]
fn a_rename_that_nobody_waits_for() {
    check("rename", |client, dir, _| {
        Box::pin(async move { client.rename(&caller(), (Fid::ROOT, b"f"), (dir, b"g"), 0).await })
    });
}

#[test]
fn a_mkdir_that_nobody_waits_for() {
    check("mkdir", |client, _, _| {
        Box::pin(async move { client.mkdir(&caller(), Fid::ROOT, b"g", 0o755).await.map(drop) })
    });
}
