//! Tests of what both halves promise alike, with the same bodies.

use std::{cell::Cell, rc::Rc, time::Duration};

use bytes::Bytes;

use crate::{
    Address, AlignedBuf, Elapsed, Env, EnvErrorKind, OpenDisk,
    testing::{on_both, scratch_dir},
};

const MS: Duration = Duration::from_millis(1);

fn addresses(env: &Env, dir: &str, test: &str) -> [Address; 3] {
    let name = if env.is_simulated() { "sim" } else { "real" };
    [format!("mem:{test}-{name}"), "tcp:127.0.0.1:0".into(), format!("unix:{dir}/socket")].map(|a| a.parse().unwrap())
}

#[test]
fn a_stream_carries_bytes_both_ways_and_ends_with_its_peer() {
    on_both(|env| async move {
        let dir = scratch_dir(&env);
        for address in addresses(&env, &dir, "both-ways") {
            let mut listener = env.listen(&address).await.unwrap();
            let to = listener.address();
            let client_env = env.clone();
            let client = env.spawn(async move {
                let (mut read, mut write) = client_env.connect(&to).await.unwrap().split();
                write.write_all(&[Bytes::from_static(b"he"), Bytes::new(), Bytes::from_static(b"llo")]).await.unwrap();
                read.read_aligned(100_000).await.unwrap().iter().filter(|byte| **byte == 7).count()
            });
            let accepted = listener.accept().await.unwrap();
            assert!(!accepted.peer().to_string().is_empty());
            let (stream, peer) = accepted.handshake(&env).await.unwrap();
            assert!(!peer.to_string().is_empty());
            let (mut read, mut write) = stream.split();
            let mut hello = [0; 5];
            read.read_exact(&mut hello[..2]).await.unwrap();
            read.read_exact(&mut hello[2..]).await.unwrap();
            assert_eq!(&hello, b"hello");
            write.write_all(&[vec![7; 100_000].into()]).await.unwrap();
            assert_eq!(client.await, Some(100_000));
            assert_eq!(read.read_exact(&mut hello).await.unwrap_err().kind, EnvErrorKind::Disconnected);
        }
    });
}

#[test]
fn an_address_in_use_is_refused_and_a_dead_one_does_not_answer() {
    on_both(|env| async move {
        let dir = scratch_dir(&env);
        for address in addresses(&env, &dir, "in-use") {
            let listener = env.listen(&address).await.unwrap();
            let address = listener.address();
            assert_eq!(env.listen(&address).await.err().unwrap().kind, EnvErrorKind::InUse, "{address}");
            drop(listener);
            let kind = env.connect(&address).await.err().unwrap().kind;
            assert!(matches!(kind, EnvErrorKind::Disconnected | EnvErrorKind::NotFound), "{address}: {kind:?}");
        }
    });
}

#[test]
fn a_disk_reads_what_was_written_whatever_the_parts() {
    on_both(|env| async move {
        let dir = scratch_dir(&env);
        let path = format!("{dir}/data");
        let options = OpenDisk { create_bytes: Some(1 << 20), prewrite: true, ..OpenDisk::default() };
        let disk = env.open_disk(&path, options).await.unwrap();
        assert_eq!(disk.info().bytes, 1 << 20);
        let aligned = AlignedBuf::padded_copy(&[1; 4096]).freeze();
        disk.write(4096, vec![vec![2; 100].into(), vec![3; 3996].into(), aligned.clone()]).await.unwrap();
        disk.write_durable(16384, vec![aligned]).await.unwrap();
        disk.flush().await.unwrap();
        let requests = disk.clone().requests();
        assert_eq!((requests.writes.count(), requests.writes.sum(), requests.durable_writes), (2, 12288, 1));
        assert_eq!((requests.reads.count(), requests.flushes), (0, 1));
        drop(disk);
        let disk = env.open_disk(&path, OpenDisk::default()).await.unwrap();
        let bytes = disk.read(0, 20480).await.unwrap();
        let expected: [(usize, u8); 7] =
            [(4095, 0), (4096, 2), (4196, 3), (8192, 1), (12287, 1), (12288, 0), (16384, 1)];
        for (at, byte) in expected {
            assert_eq!(bytes[at], byte, "at {at}");
        }
        assert!(crate::is_aligned(&bytes));
    });
}

#[test]
fn a_request_off_the_sectors_or_beyond_the_end_is_refused() {
    on_both(|env| async move {
        let dir = scratch_dir(&env);
        let path = format!("{dir}/data");
        let missing = env.open_disk(&path, OpenDisk::default()).await.err().unwrap();
        assert_eq!(missing.kind, EnvErrorKind::NotFound);
        let options = |bytes| OpenDisk { create_bytes: Some(bytes), ..OpenDisk::default() };
        assert_eq!(env.open_disk(&path, options(5000)).await.err().unwrap().kind, EnvErrorKind::InvalidInput);
        let disk = env.open_disk(&path, options(8192)).await.unwrap();
        for (offset, len) in [(1, 4096), (0, 100), (8192, 4096), (4096, 8192), (u64::MAX - 4095, 4096)] {
            assert_eq!(disk.read(offset, len).await.err().unwrap().kind, EnvErrorKind::InvalidInput);
            let write = disk.write(offset, vec![vec![0; len].into()]).await;
            assert_eq!(write.unwrap_err().kind, EnvErrorKind::InvalidInput);
        }
    });
}

#[test]
fn tasks_yield_their_value_and_aborted_ones_none() {
    on_both(|env| async move {
        assert_eq!(env.spawn(async { 7 }).await, Some(7));
        let task_env = env.clone();
        let task = env.spawn(async move { task_env.sleep(Duration::from_secs(3600)).await });
        env.yield_now().await;
        task.abort();
        assert_eq!(task.await, None);
        let ran = Rc::new(Cell::new(false));
        let in_task = ran.clone();
        drop(env.spawn(async move { in_task.set(true) }));
        env.sleep(MS).await;
        assert!(ran.get(), "a task whose handle is dropped runs on");
        assert_eq!(env.spawn_shard("shard", |env| async move { env.spawn(async { 8 }).await }).await.unwrap(), Some(8));
    });
}

#[test]
fn time_goes_on_and_timeouts_end_waits() {
    on_both(|env| async move {
        let (start, unix) = (env.now(), env.unix_time());
        env.sleep(MS * 3).await;
        assert!(env.now().since(start) >= MS * 3);
        assert!(env.unix_time() > unix);
        assert_eq!(env.timeout(MS, std::future::pending::<()>()).await, Err(Elapsed));
        assert_eq!(env.timeout(MS, async { 1 }).await, Ok(1));
        assert_ne!(env.random_u64(), env.random_u64());
        env.charge_cpu(MS).await;
    });
}

#[test]
fn small_files_are_replaced_whole_and_locked_by_one() {
    on_both(|env| async move {
        let dir = scratch_dir(&env);
        let sub = format!("{dir}/a/b");
        env.create_dir(&sub).unwrap();
        let path = format!("{sub}/id");
        assert_eq!(env.read_file(&path).unwrap_err().kind, EnvErrorKind::NotFound);
        env.write_file(&path, b"one").unwrap();
        env.write_file(&path, b"second").unwrap();
        assert_eq!(env.read_file(&path).unwrap(), b"second");
        env.remove_file(&path).unwrap();
        env.remove_file(&path).unwrap();
        assert!(env.read_file(&path).is_err());
        let lock = env.lock_file(&format!("{sub}/lock")).unwrap();
        assert_eq!(env.lock_file(&format!("{sub}/lock")).err().unwrap().kind, EnvErrorKind::InUse);
        drop(lock);
        env.lock_file(&format!("{sub}/lock")).unwrap();
    });
}

#[test]
fn parts_of_a_device_are_devices_of_their_own_and_each_is_open_once() {
    on_both(|env| async move {
        let dir = scratch_dir(&env);
        let path = format!("{dir}/shared");
        let make = OpenDisk { create_bytes: Some(64 << 10), ..OpenDisk::default() };
        drop(env.open_disk(&path, make).await.unwrap());
        let part = |offset, bytes| OpenDisk { part: Some(crate::DiskPart { offset, bytes }), ..OpenDisk::default() };
        let (one, two) = (part(8192, 8192), part(16_384, 4096));
        let first = env.open_disk(&path, one).await.unwrap();
        let second = env.open_disk(&path, two).await.unwrap();
        assert_eq!((first.info().bytes, second.info().bytes), (8192, 4096));
        assert_eq!(env.open_disk(&path, one).await.err().unwrap().kind, EnvErrorKind::InUse);
        first.write(4096, vec![AlignedBuf::padded_copy(&[1; 4096]).freeze()]).await.unwrap();
        second.write_durable(0, vec![AlignedBuf::padded_copy(&[2; 4096]).freeze()]).await.unwrap();
        for beyond in [8192, 4097, u64::MAX - 4095] {
            let sector = || vec![AlignedBuf::zeroed(4096).freeze()];
            assert_eq!(first.write(beyond, sector()).await.unwrap_err().kind, EnvErrorKind::InvalidInput);
            assert_eq!(first.write_durable(beyond, sector()).await.unwrap_err().kind, EnvErrorKind::InvalidInput);
            assert_eq!(first.read(beyond, 4096).await.err().unwrap().kind, EnvErrorKind::InvalidInput);
        }
        let read_only = env.open_disk(&path, OpenDisk { read_only: true, ..one }).await.unwrap();
        assert_eq!(read_only.read(4096, 4096).await.unwrap()[..], [1; 4096]);
        drop((first, read_only));
        drop(env.open_disk(&path, one).await.unwrap());
        let whole = env.open_disk(&path, OpenDisk { read_only: true, ..OpenDisk::default() }).await.unwrap();
        let bytes = whole.read(8192, 12_288).await.unwrap();
        assert_eq!([bytes[0], bytes[4096], bytes[8192]], [0, 1, 2]);
        assert_eq!(env.open_disk(&path, part(60 << 10, 8192)).await.err().unwrap().kind, EnvErrorKind::InvalidInput);
    });
}
