//! Objects through sessions, on simulated machines: written, read, cut, destroyed, and the server killed in between.

mod appends;
mod grants;
mod held;
mod layout_fences;
mod pieces;

use std::{cell::RefCell, rc::Rc, task::Poll, time::Duration};

use bytes::Bytes;
use forebay_env::{
    Address,
    sim::{NodeId, Sim},
};
use forebay_oss::Oss;
use forebay_proto::{
    Errno, Fid, TargetId, Uuid, WriteId, crc,
    limits::BLOCK_BYTES,
    message::{
        Allocate, CommitLevel, Destroy, GetObject, ListObjects, ObjectRef, ObjectReply, RaiseSize, ReadObject,
        ReadReply, TruncateObject, WriteObject,
    },
};
use forebay_rpc::{Call, ClientSession, PinBudget, RpcError, SessionOptions};
use forebay_store::{FormatOptions, OpenOptions, Store};
use forebay_target::{Target, TargetMetrics, TargetOptions};

const CLUSTER: Uuid = Uuid([7; 16]);
/// Upper bound of the seeds of the test whose target is nearly full.
const FULL_SEEDS: u64 = 44;
const FID: Fid = Fid { high: 0, low: 5 << 20 | 9 };

struct World {
    sim: Sim,
    server: NodeId,
    client: NodeId,
    session: ClientSession,
    writes: std::cell::Cell<u64>,
    /// The target of the last boot.
    target: Rc<RefCell<Option<Target>>>,
}

fn address() -> Address {
    Address::Mem("OST0000".into())
}

/// Starts a session of the client with this number.
fn connect(sim: &Sim, node: NodeId, number: u8) -> ClientSession {
    let options = SessionOptions {
        cluster: CLUSTER,
        target: TargetId::ost(0),
        resolve: Rc::new(vec![address()]),
        client: Uuid([number; 16]),
        description: "test".into(),
        pins: PinBudget::new(16 << 20),
    };
    ClientSession::start(&sim.env(node), options)
}

impl World {
    fn new(seed: u64) -> World {
        let sim = Sim::new(seed);
        let (server, client) = (sim.add_node("oss"), sim.add_node("client"));
        sim.block_on(async {
            let options = FormatOptions {
                slab_bytes: 1 << 20,
                journal_bytes: 4 << 20,
                ..FormatOptions::new(CLUSTER, TargetId::ost(0), 64 << 20)
            };
            Store::format(&sim.env(server), "/ost", &options).await.expect("formats");
        });
        sim.crash(server);
        let session = connect(&sim, client, 1);
        let world = World { sim, server, client, session, writes: std::cell::Cell::new(0), target: Rc::default() };
        world.boot();
        world
    }

    fn boot(&self) {
        let booted = self.target.clone();
        self.sim.start(self.server, |env| async move {
            let store = Store::open(&env, "/ost", &OpenOptions::default()).await.expect("opens");
            let listener = env.listen(&address()).await.expect("listens");
            let (_oss, target) = Oss::start(&env, store, TargetOptions::default()).await.expect("starts");
            *booted.borrow_mut() = Some(target.clone());
            target.serve(listener).await;
        });
    }

    fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.sim.block_on(future)
    }

    fn metrics(&self) -> TargetMetrics {
        self.target.borrow().as_ref().expect("it was booted").metrics()
    }

    fn object(&self, truncate_epoch: u64) -> ObjectRef {
        ObjectRef { fid: FID, layout_generation: 1, truncate_epoch }
    }

    async fn write(&self, epoch: u64, offset: u64, bytes: &[u8]) -> Result<u64, RpcError> {
        self.write_at(CommitLevel::Data, epoch, offset, bytes).await
    }

    async fn write_at(&self, level: CommitLevel, epoch: u64, offset: u64, bytes: &[u8]) -> Result<u64, RpcError> {
        self.writes.set(self.writes.get() + 1);
        let write_id = WriteId { client: 1, sequence: self.writes.get() };
        let sums = crc::blocks(offset, bytes.len() as u64, BLOCK_BYTES)
            .map(|(at, length)| {
                let start = (at - offset) as usize;
                crc::block_sum(FID, at, write_id, &bytes[start..start + length as usize])
            })
            .collect();
        let request = WriteObject {
            object: self.object(epoch),
            offset,
            length: bytes.len() as u32,
            write_id,
            sums,
            file_bytes: offset + bytes.len() as u64,
            attr_epoch: 0,
            granted_bytes: 0,
        };
        let bulk = vec![Bytes::copy_from_slice(bytes)];
        Ok(self.session.call(&request, Call { bulk, fid: Some(FID), ..Call::level(level) }).await?.reply.file_bytes)
    }

    async fn read(&self, epoch: u64, offset: u64, length: u32) -> Result<Vec<u8>, RpcError> {
        self.read_by(&self.session, epoch, offset, length).await
    }

    async fn read_by(&self, by: &ClientSession, epoch: u64, offset: u64, length: u32) -> Result<Vec<u8>, RpcError> {
        let request = ReadObject { object: self.object(epoch), offset, length };
        let called = by.call(&request, Call::level(CommitLevel::Data)).await?;
        Ok(verified(called.reply, called.bulk))
    }

    async fn glimpse(&self, epoch: u64) -> Result<ObjectReply, RpcError> {
        let request = GetObject { object: self.object(epoch) };
        Ok(self.session.call(&request, Call::level(CommitLevel::Data)).await?.reply)
    }

    async fn allocate(&self, epoch: u64, offset: u64, length: u64) -> Result<u64, RpcError> {
        let request = Allocate { object: self.object(epoch), offset, length, attr_epoch: 0 };
        Ok(self.session.call(&request, Call::level(CommitLevel::Data)).await?.reply.end)
    }

    async fn truncate(&self, epoch: u64, bytes: u64) {
        let request = TruncateObject {
            fid: FID,
            truncate_epoch: epoch,
            object_bytes: bytes,
            file_bytes: bytes,
            attr_epoch: epoch,
        };
        self.session.call(&request, Call::level(CommitLevel::Commit)).await.expect("truncates");
    }
}

/// Runs two futures side by side.
async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    let (mut first, mut second) = (None, None);
    std::future::poll_fn(|cx| {
        if first.is_none()
            && let Poll::Ready(value) = a.as_mut().poll(cx)
        {
            first = Some(value);
        }
        if second.is_none()
            && let Poll::Ready(value) = b.as_mut().poll(cx)
        {
            second = Some(value);
        }
        match (first.take(), second.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (first, second) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}

/// The bytes of a reply, each block verified.
fn verified(reply: ReadReply, mut bulk: Bytes) -> Vec<u8> {
    let mut bytes = Vec::new();
    for segment in reply.segments {
        if !segment.data {
            bytes.resize(bytes.len() + segment.length as usize, 0);
            continue;
        }
        let part = bulk.split_to(segment.length as usize);
        for ((at, length), sum) in
            crc::blocks(segment.offset, u64::from(segment.length), BLOCK_BYTES).zip(&segment.sums)
        {
            let start = (at - segment.offset) as usize;
            let block = &part[start..start + length as usize];
            assert_eq!(crc::block_sum(FID, at, segment.write_id, block), *sum, "block at {at}");
        }
        bytes.extend_from_slice(&part);
    }
    bytes
}

fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

#[test]
fn overlapping_writes_are_read_back_with_sums_their_reader_can_check() {
    let world = World::new(1);
    world.run(async {
        assert_eq!(world.write(0, 1000, &pattern(1, 200_000)).await.unwrap(), 201_000);
        world.write(0, 50_000, &pattern(2, 30_000)).await.unwrap();
        let bytes = world.read(0, 0, 300_000).await.unwrap();
        assert_eq!(&bytes[..1000], &[0; 1000]);
        assert_eq!(&bytes[1000..50_000], &pattern(1, 200_000)[..49_000]);
        assert_eq!(&bytes[50_000..80_000], &pattern(2, 30_000)[..]);
        assert_eq!(&bytes[80_000..201_000], &pattern(1, 200_000)[79_000..]);
        assert_eq!(&bytes[201_000..], &[0; 99_000][..]);
    });
}

/// write, write |X| | replay
#[test]
fn acknowledged_writes_survive_the_servers_death_by_replay() {
    for seed in 0..20 {
        let world = World::new(seed);
        world.run(async {
            world.write(0, 0, &pattern(1, 100_000)).await.unwrap();
            world.write(0, 64_000, &pattern(2, 100_000)).await.unwrap();
            world.sim.power_cut(world.server);
            world.sim.sleep(Duration::from_millis(5)).await;
            world.boot();
            let bytes = world.read(0, 0, 164_000).await.unwrap();
            assert_eq!(&bytes[..64_000], &pattern(1, 100_000)[..64_000], "seed {seed}");
            assert_eq!(&bytes[64_000..], &pattern(2, 100_000)[..], "seed {seed}");
        });
    }
}

#[test]
fn a_write_of_before_a_truncate_is_sent_back_and_one_of_after_it_waits() {
    let world = World::new(3);
    world.run(async {
        world.write(0, 0, &pattern(1, 100_000)).await.unwrap();
        let cut = async {
            world.sim.sleep(Duration::from_millis(50)).await;
            world.truncate(1, 10_000).await;
        };
        let (late, ()) = both(world.write(1, 70_000, b"new"), cut).await;
        assert_eq!(late.unwrap(), 70_003);
        assert_eq!(world.write(0, 0, b"old").await.unwrap_err().errno(), Errno::STALE_EPOCH);
        let bytes = world.read(1, 0, 70_003).await.unwrap();
        assert_eq!(&bytes[..10_000], &pattern(1, 10_000)[..]);
        assert!(bytes[10_000..70_000].iter().all(|b| *b == 0));
        assert_eq!(&bytes[70_000..], b"new");
    });
}

#[test]
fn raises_only_grow_the_size() {
    let world = World::new(4);
    world.run(async {
        let object = world.object(0);
        let level = || Call::level(CommitLevel::Data);
        let raise = RaiseSize { object: object.clone(), file_bytes: 500, attr_epoch: 0, before: Vec::new() };
        assert_eq!(world.session.call(&raise, level()).await.unwrap().reply.file_bytes, 500);
        let lower = RaiseSize { object, file_bytes: 10, attr_epoch: 0, before: Vec::new() };
        assert_eq!(world.session.call(&lower, level()).await.unwrap().reply.file_bytes, 500);
    });
}

/// write, destroy |X|
#[test]
fn destroyed_objects_are_gone_and_their_room_comes_back() {
    let world = World::new(5);
    world.run(async {
        for round in 0..12 {
            for at in 0..10 {
                world.write(0, at << 20, &pattern(round, 1 << 20)).await.unwrap();
            }
            let list = ListObjects {
                from: forebay_proto::FidSequence(0),
                to: forebay_proto::FidSequence(1 << 30),
                after: Fid::default(),
                limit: 10,
            };
            let listed = world.session.call(&list, Call::level(CommitLevel::Data)).await.unwrap().reply;
            assert_eq!((listed.fids, listed.end), (vec![FID], true));
            let destroy = Destroy { fids: vec![FID] };
            world.session.call(&destroy, Call::level(CommitLevel::Commit)).await.unwrap();
            assert_eq!(world.glimpse(0).await.unwrap_err().errno(), Errno::ESTALE);
            assert_eq!(world.write(0, 0, b"late").await.unwrap_err().errno(), Errno::ESTALE);
            // A fid is never reused in earnest. A restart forgets the destroyed fids, so the test can go on with this
            // one.
            world.sim.crash(world.server);
            world.boot();
            assert!(!world.glimpse(0).await.unwrap().exists);
        }
    });
}

/// fill | ENOSPC | destroy | write
#[test]
fn a_full_target_says_so_at_once_and_takes_writes_again_after_a_destroy() {
    let world = World::new(6);
    world.run(async {
        let mut written = 0u64;
        let refused = loop {
            match world.write(0, written, &pattern(9, 1 << 20)).await {
                Ok(_) => written += 1 << 20,
                Err(e) => break e,
            }
            assert!(written < 80 << 20, "a device of 64 MiB took {written} bytes");
        };
        assert_eq!(refused.errno(), Errno::ENOSPC);
        assert!(written > 40 << 20, "ENOSPC after {written} bytes of 64 MiB");
        let bytes = world.read(0, written - (1 << 20), 1 << 20).await.unwrap();
        assert_eq!(bytes, pattern(9, 1 << 20));
        world.truncate(1, 1 << 20).await;
        for at in 1..20 {
            world.write(1, at << 20, &pattern(3, 1 << 20)).await.unwrap();
        }
        assert_eq!(world.read(1, 5 << 20, 1 << 20).await.unwrap(), pattern(3, 1 << 20));
    });
}

/// fill, overwrite |X| all of it
#[test]
fn overwrites_on_a_full_target_survive_a_crash() {
    for seed in 40..FULL_SEEDS {
        let world = World::new(seed);
        world.run(async {
            let mut expected = Vec::new();
            loop {
                let bytes = pattern(seed as u8, 1 << 20);
                match world.write(0, expected.len() as u64, &bytes).await {
                    Ok(_) => expected.extend(bytes),
                    Err(_) => break,
                }
            }
            expected.truncate(expected.len() - (1 << 20));
            world.truncate(1, expected.len() as u64).await;
            let (mut written, mut replayed) = (0, 0);
            for round in 0..12 {
                for write in 0..8u8 {
                    let length = 20_000 + world.sim.random_below(400_000) as usize;
                    let at = world.sim.random_below((expected.len() - length) as u64) as usize;
                    let bytes = pattern(round * 8 + write, length);
                    // The overwritten bytes are freed only when the write is applied, so there may be no space for it.
                    if world.write(1, at as u64, &bytes).await.is_ok() {
                        expected[at..at + length].copy_from_slice(&bytes);
                        written += 1;
                    }
                }
                world.sim.crash(world.server);
                world.boot();
                for at in (0..expected.len()).step_by(1 << 20) {
                    let read = world.read(1, at as u64, 1 << 20).await.expect("reads");
                    assert!(read == expected[at..at + (1 << 20)], "seed {seed}, round {round}, MiB {}", at >> 20);
                }
                replayed += world.metrics().replays;
            }
            assert!(written > 20 && replayed > 20, "{written} writes, {replayed} replays");
        });
    }
}

/// allocate, fill | ENOSPC |X| write
#[test]
fn allocated_space_on_a_full_target_survives_a_crash() {
    let world = World::new(7);
    world.run(async {
        let too_much = world.allocate(0, 0, 1 << 40).await.unwrap_err();
        assert_eq!(too_much.errno(), Errno::ENOSPC);
        assert_eq!(world.allocate(0, 1 << 30, 16 << 20).await.unwrap(), (1 << 30) + (16 << 20));
        assert_eq!(world.allocate(0, 1 << 30, 8 << 20).await.unwrap(), (1 << 30) + (8 << 20));
        let mut written = 0u64;
        while world.write(0, written, &pattern(9, 1 << 20)).await.is_ok() {
            written += 1 << 20;
        }
        assert!((24 << 20..44 << 20).contains(&written), "{written} bytes beside 16 MiB of 64");
        world.sim.crash(world.server);
        world.boot();
        assert_eq!(world.write(0, written, &pattern(9, 1 << 20)).await.unwrap_err().errno(), Errno::ENOSPC);
        for at in 0..64 {
            world.write(0, (1 << 30) + (at << 18), &pattern(at as u8, 1 << 18)).await.expect("room was set aside");
        }
        assert_eq!(world.read(0, (1 << 30) + (5 << 18), 1 << 18).await.unwrap(), pattern(5, 1 << 18));
        // A truncate frees reserved space, written or not.
        world.truncate(1, 1 << 20).await;
        assert_eq!(world.allocate(1, 0, 30 << 20).await.unwrap(), 30 << 20);
        world.truncate(2, 0).await;
        for at in 0..30 {
            world.write(2, at << 20, &pattern(3, 1 << 20)).await.unwrap();
        }
    });
}

#[test]
fn sizes_that_were_asked_for_add_up_to_what_was_written_and_read() {
    let world = World::new(31);
    world.run(async {
        let lengths = [1usize, 4096, 4096, 5000, 65_536, 300_000, 1 << 20];
        let mut at = 0;
        for length in lengths {
            world.write(0, at, &vec![3; length]).await.expect("writes");
            at += length as u64;
        }
        let refused = world.read(0, 0, u32::MAX).await;
        assert!(refused.is_err(), "and is not counted");
        world.read(0, 0, 4096).await.expect("reads");
        world.read(0, 5000, 70_000).await.expect("reads");
        let metrics = world.metrics();
        let (writes, reads) = (&metrics.asked.writes, &metrics.asked.reads);
        assert_eq!((writes.count(), writes.sum()), (7, at));
        assert_eq!((writes.count_within(0, 4096), writes.count_within(1 << 19, 1 << 20)), (3, 1));
        assert_eq!((reads.count(), reads.sum(), reads.max()), (2, 74_096, 70_000));
        assert_eq!(metrics.store.user_bytes, at, "the store placed the same bytes");
        let data = &metrics.devices[0];
        assert!(data.part == "data" && data.requests.writes.sum() >= at && data.requests.reads.sum() >= 74_096);
        assert!(metrics.pinned_bytes >= at, "nothing is committed yet");
    });
}
