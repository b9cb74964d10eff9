//! What programs mean by a call, said to the library as a mount says it: appends, synchronous writes, privileges that a
//! change of bytes removes, and running programs.

use std::ops::Range;

use bytes::Bytes;
use forebay_client::{
    Allocate, CAPABILITY_XATTR, Caller, Client, ClientResult, OpenFile, OpenMode, PendingFile, SetAttributes,
    WriteOptions,
};
use forebay_proto::{Errno, Fid};

use crate::scene::{Scene, begin, caller, content, open};

const OWNER: u32 = 5;
const GROUP: u32 = 6;

fn user(uid: u32, gid: u32) -> Caller {
    Caller { uid, gid, groups: Vec::new() }
}

async fn write(
    client: &Client,
    who: &Caller,
    file: &PendingFile,
    options: WriteOptions,
    bytes: Vec<u8>,
) -> ClientResult<Range<u64>> {
    client.write_as(who, file, options, Bytes::from(bytes)).await
}

async fn opened(client: &Client, name: &[u8]) -> PendingFile {
    open(client, name, OpenMode::READ_WRITE).await.into()
}

async fn set(client: &Client, fid: Fid, changes: SetAttributes) {
    client.setattr(&caller(), fid, changes, None).await.expect("it is set");
}

/// Gives a file these permissions, an owner and a group.
async fn give(client: &Client, fid: Fid, mode: u32) {
    set(client, fid, SetAttributes { uid: Some(OWNER), gid: Some(GROUP), ..SetAttributes::default() }).await;
    set(client, fid, SetAttributes { mode: Some(mode), ..SetAttributes::default() }).await;
}

async fn mode_of(client: &Client, fid: Fid) -> u32 {
    client.getattr(fid, None).await.expect("it is there").mode & 0o7777
}

async fn has_capabilities(client: &Client, fid: Fid) -> bool {
    match client.getxattr(&caller(), fid, CAPABILITY_XATTR).await {
        Err(error) if error.errno == Errno::ENODATA => false,
        value => !value.expect("it is told").is_empty(),
    }
}

/// Two clients append to one file in turns, each without knowing where it ends. The returned ranges follow one another,
/// and hold what was appended there.
#[test]
fn appends_of_two_clients_lie_one_after_another() {
    let scene = Scene::new(1, &["first", "second"]);
    scene.sim.block_on(async {
        let (first, second) = scene.mounts().await;
        let log = begin(&first, b"log").await.into();
        let same = opened(&second, b"log").await;
        let (mut end, mut all) = (0, Vec::new());
        for record in 0..20u8 {
            let (client, file) = if record % 2 == 0 { (&first, &log) } else { (&second, &same) };
            let bytes = vec![record + 1; 100 + usize::from(record)];
            all.extend_from_slice(&bytes);
            let place = write(client, &caller(), file, WriteOptions::END, bytes).await.expect("appended");
            assert_eq!((place.start, place.end), (end, all.len() as u64), "record {record}");
            end = place.end;
        }
        assert_eq!(content(&first, b"log").await, all);
    });
}

/// write (sync), write |writer and all servers die| read
///
/// The writer's first write asks to be durable, through a handle that was opened without that; its second one, to
/// another file, does not. Then the writer and all servers lose power. The first is there, the second is not.
#[test]
fn a_write_with_sync_is_durable_when_it_returns() {
    let scene = Scene::new(2, &["first", "second"]);
    scene.sim.block_on(async {
        let (writer, reader) = scene.mounts().await;
        let (kept, lost) = (begin(&writer, b"kept").await, begin(&writer, b"lost").await);
        writer.fsync(&lost, false).await.expect("its name is durable");
        let (kept, lost) = (kept.into(), lost.into());
        let durable = WriteOptions { sync: true, ..WriteOptions::at(0) };
        assert_eq!(write(&writer, &caller(), &kept, durable, vec![1; 1000]).await, Ok(0..1000));
        assert_eq!(write(&writer, &caller(), &lost, WriteOptions::at(0), vec![2; 1000]).await, Ok(0..1000));
        scene.sim.crash(scene.nodes[0]);
        scene.cluster.servers.iter().for_each(|server| scene.sim.power_cut(server.node));
        scene.cluster.boot_all();
        assert_eq!(content(&reader, b"kept").await, [1; 1000]);
        assert!(content(&reader, b"lost").await.is_empty());
    });
}

/// Makes a file with set-id bits, closes it, and opens it again: so the handle knows of them by its open.
async fn program(client: &Client, name: &[u8], mode: u32) -> OpenFile {
    let file = begin(client, name).await;
    give(client, file.fid(), mode).await;
    client.close(file).await.expect("it closes");
    open(client, name, OpenMode::READ_WRITE).await
}

/// Users write to files with set-id bits. The superuser leaves them, others clear them, and a member of the group leaves
/// set-group-id where the group may not execute the file.
#[test]
fn a_write_of_an_unprivileged_user_clears_set_ids() {
    let scene = Scene::new(3, &["first", "second"]);
    scene.sim.block_on(async {
        let (client, looker) = scene.mounts().await;
        for (number, (who, before, after)) in [
            (user(0, 0), 0o6777, 0o6777),
            (user(OWNER, GROUP), 0o6777, 0o777),
            (user(7, 7), 0o6777, 0o777),
            (user(7, GROUP), 0o6767, 0o2767),
            (user(7, 7), 0o6767, 0o767),
        ]
        .into_iter()
        .enumerate()
        {
            let file = program(&client, format!("f{number}").as_bytes(), before).await;
            let fid = file.fid();
            write(&client, &who, &file.into(), WriteOptions::at(0), vec![1; 10]).await.expect("written");
            for client in [&client, &looker] {
                assert_eq!(mode_of(client, fid).await, after, "{before:o} by {who:?}");
            }
        }
    });
}

/// Set-id bits and capabilities are given to a file that is open. The next change through its handle removes them,
/// whichever kind of change it is: an append, a punch, a copy, a truncate through the handle or by name.
#[test]
fn each_change_of_bytes_removes_privileges_given_to_an_open_file() {
    let scene = Scene::new(4, &["first", "second"]);
    scene.sim.block_on(async {
        let client = scene.mount(0).await;
        let (file, source) = (begin(&client, b"f").await, begin(&client, b"source").await);
        client.write(&source, 0, vec![1; 100]).await.expect("written");
        let (fid, who, pending) = (file.fid(), user(7, 7), PendingFile::from(file.clone()));
        for change in 0..5 {
            give(&client, fid, 0o4766).await;
            client.setxattr(&caller(), fid, CAPABILITY_XATTR, &[1; 20], 0).await.expect("it is set");
            assert!(mode_of(&client, fid).await == 0o4766 && has_capabilities(&client, fid).await);
            let size = SetAttributes { size: Some(9), ..SetAttributes::default() };
            match change {
                0 => {
                    let place = write(&client, &who, &pending, WriteOptions::END, vec![2; 10]).await;
                    assert_eq!(place, Ok(0..10));
                }
                1 => client.fallocate_as(&who, &file, 0, 5, Allocate::Punch).await.expect("punched"),
                2 => {
                    let copied = client.copy_range_as(&who, (&source, 0), (&file, 0), 50, || false).await;
                    assert_eq!(copied, Ok(50));
                }
                _ => {
                    let through = (change == 3).then_some(&file);
                    let cut = client.setattr_as(&who, &caller(), fid, size, through).await.expect("cut");
                    assert_eq!((cut.size, cut.mode & 0o7777), (9, 0o766));
                }
            }
            assert_eq!(mode_of(&client, fid).await, 0o766, "change {change}");
            assert!(!has_capabilities(&client, fid).await, "change {change}");
        }
    });
}

/// An open that truncates a file with privileges removes them, and returns a file without bytes.
#[test]
fn a_truncating_open_removes_privileges() {
    let scene = Scene::new(5, &["first", "second"]);
    scene.sim.block_on(async {
        let client = scene.mount(0).await;
        let file = program(&client, b"f", 0o4777).await;
        client.write(&file, 0, vec![1; 100]).await.expect("written");
        client.setxattr(&caller(), file.fid(), CAPABILITY_XATTR, &[1; 20], 0).await.expect("it is set");
        let mode = OpenMode { truncate: true, ..OpenMode::WRITE };
        client.open_as(&user(7, 7), &caller(), file.fid(), mode).await.expect("it opens");
        let attr = client.getattr(file.fid(), Some(&file)).await.expect("it is there");
        assert_eq!((attr.mode & 0o7777, attr.size), (0o777, 0));
        assert!(!has_capabilities(&client, file.fid()).await);
    });
}

/// A file without privileges is written, and privileges are not asked for: the writes are buffered, without a request.
#[test]
fn writes_to_a_file_without_privileges_send_no_request_about_them() {
    let scene = Scene::new(6, &["first", "second"]);
    scene.sim.block_on(async {
        let client = scene.mount(0).await;
        let file = PendingFile::from(begin(&client, b"f").await);
        write(&client, &user(7, 7), &file, WriteOptions::at(0), vec![1; 10]).await.expect("written");
        let (rpcs, now) = (client.stats().rpcs, scene.sim.now());
        for number in 1..10 {
            write(&client, &user(7, 7), &file, WriteOptions::at(number * 10), vec![1; 10]).await.expect("written");
        }
        assert_eq!((client.stats().rpcs, scene.sim.now()), (rpcs, now));
    });
}

/// A file is open to be executed. A reader's open that would truncate it is refused, and its bytes stay, until the
/// program has ended.
#[test]
fn a_running_program_is_not_truncated() {
    let scene = Scene::new(7, &["first", "second"]);
    scene.sim.block_on(async {
        let client = scene.mount(0).await;
        let file = begin(&client, b"program").await;
        client.write(&file, 0, vec![1; 100]).await.expect("written");
        client.close(file).await.expect("it closes");
        let running = open(&client, b"program", OpenMode { execute: true, ..OpenMode::READ }).await;
        let (fid, cut) = (running.fid(), OpenMode { truncate: true, ..OpenMode::READ });
        for _ in 0..2 {
            let refused = client.open_as(&caller(), &caller(), fid, cut).await.map(drop);
            assert_eq!(refused.map_err(|error| error.errno), Err(Errno::ETXTBSY));
        }
        assert_eq!(content(&client, b"program").await, [1; 100]);
        client.close(running).await.expect("it closes");
        client.open_as(&caller(), &caller(), fid, cut).await.expect("it runs no more");
        assert!(content(&client, b"program").await.is_empty());
    });
}
