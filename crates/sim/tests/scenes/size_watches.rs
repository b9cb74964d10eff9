//! Size watches: a client that extends a file gets its reply once all other clients that have the file open know the
//! new size.

use std::{cell::Cell, rc::Rc, time::Duration};

use forebay_client::{Client, OpenFile, OpenMode};
use forebay_proto::Fid;

use crate::scene::{Scene, caller, striped};

/// The clients' machines.
const CLIENTS: &[&str] = &["reader", "writer"];

impl Scene {
    /// The file `f` with `bytes` bytes, open on the first client. Also returns the size that the client's kernel knows.
    async fn opened(&self, stripes: u32, bytes: usize) -> (Client, OpenFile, Rc<Cell<u64>>) {
        let (client, known) = (self.mount(0).await, Rc::new(Cell::new(bytes as u64)));
        let hears = known.clone();
        client.set_grown(move |_, before, now| {
            assert!(before < now, "{before} {now}");
            hears.set(now);
            Box::pin(async {})
        });
        let layout = striped(stripes);
        let made = client.create(&caller(), Fid::ROOT, b"f", 0o644, OpenMode::READ_WRITE, layout).await;
        let file = made.expect("it is made").1;
        client.write(&file, 0, vec![1; bytes]).await.expect("written");
        let fid = file.fid();
        client.close(file).await.expect("closed");
        let file = client.open(&caller(), fid, OpenMode::READ_WRITE).await.expect("it opens");
        (client, file, known)
    }
}

async fn open(client: &Client) -> OpenFile {
    let fid = client.lookup(&caller(), Fid::ROOT, b"f").await.expect("it is there").fid;
    client.open(&caller(), fid, OpenMode::READ_WRITE).await.expect("it opens")
}

/// The reader has a file open. The writer extends it with writes and appends: when each returns, the reader's kernel
/// knows the new size.
#[test]
fn a_write_that_makes_a_file_larger_returns_when_another_client_that_has_it_open_knows() {
    for stripes in [1, 3] {
        let scene = Scene::new(u64::from(stripes), CLIENTS);
        scene.sim.block_on(async {
            let (_reader, _file, known) = scene.opened(stripes, 1000).await;
            let writer = scene.mount(1).await;
            let file = open(&writer).await;
            for end in [2000u64, 300_000, 1_000_000] {
                writer.write(&file, end - 500, vec![2; 500]).await.expect("written");
                assert_eq!(known.get(), end, "{stripes} stripes");
            }
            writer.append(&file, vec![3; 100]).await.expect("appended");
            assert_eq!(known.get(), 1_000_100);
            writer.close(file).await.expect("closed");
            let file = open(&writer).await;
            writer.append(&file, vec![3; 100]).await.expect("appended");
            assert_eq!(known.get(), 1_000_200, "after another open");
        });
    }
}

/// The reader has been idle for so long that it has returned its leases. It learns of the writer's new size all the
/// same.
#[test]
fn a_client_without_leases_is_notified_of_a_larger_size() {
    let scene = Scene::new(5, CLIENTS);
    scene.sim.block_on(async {
        let (_reader, _file, known) = scene.opened(1, 1000).await;
        scene.sim.sleep(Duration::from_secs(100)).await;
        let writer = scene.mount(1).await;
        let file = open(&writer).await;
        writer.write(&file, 1000, vec![2; 500]).await.expect("written");
        assert_eq!(known.get(), 1500);
    });
}

/// The writer extends a file that the reader has open, while no program of the reader uses its size. After a few writes
/// the writer does not wait any more, and the reader learns of the size later. Once a program uses the size, every
/// write waits again.
#[test]
fn a_watched_size_that_is_not_used_delays_writers_a_few_times_only() {
    let scene = Scene::new(6, CLIENTS);
    scene.sim.block_on(async {
        let (reader, used, known) = scene.opened(1, 1000).await;
        let writer = scene.mount(1).await;
        let file = open(&writer).await;
        let mut behind = 0;
        for n in 0..60u64 {
            writer.write(&file, 1000 + n * 10, vec![2; 10]).await.expect("written");
            behind += u64::from(known.get() != 1010 + n * 10);
        }
        assert!(behind > 30, "only {behind} of 60 writes were not waited for");
        scene.sim.sleep(Duration::from_secs(3)).await;
        assert_eq!(known.get(), 1600, "it learns of it all the same");
        for n in 60..160u64 {
            used.size_is_used();
            writer.write(&file, 1000 + n * 10, vec![2; 10]).await.expect("written");
            assert_eq!(known.get(), 1010 + n * 10, "it is made use of");
        }
        drop(reader);
    });
}
