//! How many requests a write or a read of several objects is.

use forebay_client::{Client, OpenFile, OpenMode};
use forebay_proto::Fid;

use crate::scene::{Scene, caller, create, on_ost, striped};

/// Bytes of the largest request of the simulated clients.
const REQUEST: usize = 128 << 10;
const STRIPE: u64 = 64 << 10;

/// A file with some bytes: OSTs have granted space, and the MDT the lease.
async fn begun(client: &Client, name: &[u8], stripe_count: u32) -> OpenFile {
    let layout = if stripe_count == 1 { on_ost(0) } else { striped(stripe_count) };
    let file = create(client, name, layout).await;
    client.write(&file, 0, vec![1; 3000]).await.expect("it is written");
    client.fsync(&file, false).await.expect("it syncs");
    file
}

async fn requests_of<T>(client: &Client, call: impl Future<Output = T>) -> u64 {
    let before = client.stats().rpcs;
    call.await;
    client.stats().rpcs - before
}

async fn write(client: &Client, file: &OpenFile, offset: u64, length: usize) {
    let written = client.write(file, offset, vec![7; length]).await;
    assert_eq!(written, Ok(length), "at {offset}");
}

/// Each write makes the file longer, and is three requests to its objects, on one OST or on three, and one to the home
/// for the size.
#[test]
fn sequential_writes_are_one_request_per_piece_and_one_for_the_size() {
    let scene = Scene::new(1, &["writer"]);
    scene.sim.block_on(async {
        let client = scene.mount(0).await;
        for stripe_count in [1, 3] {
            let file = begun(&client, format!("f{stripe_count}").as_bytes(), stripe_count).await;
            for number in 0..4 {
                let offset = (number * 3 * REQUEST) as u64;
                let requests = requests_of(&client, write(&client, &file, offset, 3 * REQUEST)).await;
                assert_eq!(requests, 4, "write {number} to {stripe_count} OSTs");
            }
        }
    });
}

/// Durable writes, which are not buffered, at the end of the file. The request that has the bytes has the size, too.
#[test]
fn a_small_durable_write_at_home_is_one_request() {
    let scene = Scene::new(4, &["writer"]);
    scene.sim.block_on(async {
        let client = scene.mount(0).await;
        let mode = OpenMode { sync: true, ..OpenMode::READ_WRITE };
        let (_, file) = client.create(&caller(), Fid::ROOT, b"f", 0o644, mode, on_ost(0)).await.expect("it is made");
        write(&client, &file, 0, 1000).await;
        for number in 1..5 {
            assert_eq!(requests_of(&client, write(&client, &file, number * 1000, 1000)).await, 1, "write {number}");
        }
    });
}

/// The file is as long as four requests to each OST. Reads of large ranges are as many requests as they need, and so is a stream of them.
#[test]
fn a_read_of_several_stripes_is_one_request_per_object() {
    let scene = Scene::new(2, &["reader"]);
    scene.sim.block_on(async {
        let client = scene.mount(0).await;
        let file = begun(&client, b"f", 3).await;
        write(&client, &file, 0, 12 * REQUEST).await;
        for (offset, length, expected) in [(3 * STRIPE, 3 * REQUEST, 3), (STRIPE, 6 * REQUEST, 6)] {
            let read = async { assert_eq!(client.read(&file, offset, length).await.expect("it reads").len(), length) };
            assert_eq!(requests_of(&client, read).await, expected, "{length} bytes at {offset}");
        }
        client.fsync(&file, false).await.expect("it syncs");
        let stream = async {
            for number in 0..4 {
                let read = client.read(&file, number * 3 * REQUEST as u64, 3 * REQUEST).await.expect("it reads");
                assert_eq!(read.len(), 3 * REQUEST);
            }
        };
        assert_eq!(requests_of(&client, stream).await, 12, "a stream");
    });
}

/// The client syncs one buffered record, then twelve that lie far apart on three OSTs. A sync itself is a request to each
/// OST and to the MDT.
#[test]
fn buffered_records_far_apart_are_no_more_requests_than_a_write_to_each_object() {
    let scene = Scene::new(3, &["writer"]);
    scene.sim.block_on(async {
        let client = scene.mount(0).await;
        let file = begun(&client, b"f", 3).await;
        write(&client, &file, 0, 12 * REQUEST).await;
        let mut requests = Vec::new();
        for records in [1, 12] {
            let buffer = async {
                for record in 0..records {
                    write(&client, &file, record * STRIPE + 100, 1000).await;
                }
            };
            assert_eq!(requests_of(&client, buffer).await, 0, "{records} records are buffered");
            let sync = async { client.fsync(&file, false).await.expect("it syncs") };
            requests.push(requests_of(&client, sync).await);
        }
        assert_eq!(requests, [1 + 4, 3 + 4]);
    });
}
