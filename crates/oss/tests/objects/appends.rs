//! Appends at a file's home: the size moves with the bytes, and reservations that are given up leave nothing.

use forebay_env::sim::Fault;
use forebay_proto::message::{
    AT_END, AppendObject, AppendReply, CompleteAppend, RemoveWritten, ReserveAppend, ReserveReply, WriteReserved,
};

use super::*;

/// Up to here, the bytes have the same offset in the object as in the file.
const AT_HOME: u64 = 1 << 20;

impl World {
    async fn append_by(&self, by: &ClientSession, bytes: &[u8]) -> Result<AppendReply, RpcError> {
        self.writes.set(self.writes.get() + 1);
        let write_id = WriteId { client: 1, sequence: self.writes.get() };
        let request = AppendObject {
            object: self.object(0),
            file_bytes: 0,
            from: 0,
            to: AT_HOME,
            offset: 0,
            length: bytes.len() as u32,
            write_id,
            sum: crc::block_sum(FID, 0, write_id, bytes),
            attr_epoch: 0,
            file_offset: AT_END,
            before: Vec::new(),
        };
        let call = Call { bulk: vec![Bytes::copy_from_slice(bytes)], ..Call::level(CommitLevel::Data) };
        by.call(&request, call).await.map(|called| called.reply)
    }

    async fn append(&self, bytes: &[u8]) -> AppendReply {
        self.append_by(&self.session, bytes).await.expect("appended")
    }

    async fn reserve(&self, by: &ClientSession, length: u32) -> ReserveReply {
        let request = ReserveAppend { object: self.object(0), file_bytes: 0, length };
        by.call(&request, Call::default()).await.expect("a place").reply
    }

    async fn write_place(&self, by: &ClientSession, place: &ReserveReply, bytes: &[u8]) -> Result<(), RpcError> {
        self.writes.set(self.writes.get() + 1);
        let (offset, write_id) = (place.file_offset, WriteId { client: 2, sequence: self.writes.get() }.reserved());
        let sums = crc::blocks(offset, bytes.len() as u64, BLOCK_BYTES)
            .map(|(at, length)| crc::block_sum(FID, at, write_id, &bytes[(at - offset) as usize..][..length as usize]));
        let write = WriteObject {
            object: self.object(0),
            offset,
            length: bytes.len() as u32,
            write_id,
            sums: sums.collect(),
            file_bytes: 0,
            attr_epoch: 0,
            granted_bytes: 0,
        };
        let call = Call { bulk: vec![Bytes::copy_from_slice(bytes)], ..Call::level(CommitLevel::Data) };
        by.call(&WriteReserved { write, generation: place.generation }, call).await.map(drop)
    }

    async fn fill(&self, by: &ClientSession, place: &ReserveReply, length: u32) -> bool {
        let (number, file_offset) = (place.number, place.file_offset);
        let request =
            CompleteAppend { object: self.object(0), number, file_offset, length, attr_epoch: 0, before: Vec::new() };
        by.call(&request, Call::level(CommitLevel::Data)).await.expect("told").reply.filled
    }

    async fn size(&self) -> u64 {
        self.glimpse(0).await.expect("it is there").file_bytes
    }

    fn other(&self) -> ClientSession {
        connect(&self.sim, self.sim.add_node("other"), 2)
    }
}

#[test]
fn an_append_lies_at_the_end_with_sums_its_reader_can_check() {
    let world = World::new(70);
    world.run(async {
        let (first, second) = (pattern(1, 100_000), pattern(2, 70_000));
        assert_eq!(world.append(&first).await.file_offset, 0);
        assert_eq!(world.append(&second).await.file_offset, 100_000);
        assert_eq!(world.read(0, 0, 170_000).await.unwrap(), [first, second].concat());
        assert_eq!(world.size().await, 170_000);
    });
}

#[test]
fn an_append_that_does_not_fit_at_home_changes_nothing_and_tells_the_end() {
    let world = World::new(71);
    world.run(async {
        world.write(0, AT_HOME - 10, b"the end").await.unwrap();
        let told = world.append(b"too long").await;
        assert_eq!((told.appended, told.file_offset), (false, AT_HOME - 3));
        assert_eq!(world.size().await, AT_HOME - 3);
        assert!(world.append(b"xyz").await.appended);
    });
}

/// The journal is stuck, and nothing is committed meanwhile.
#[test]
fn an_append_of_level_data_does_not_wait_for_a_commit() {
    let world = World::new(77);
    world.run(async {
        let other = world.other();
        world.append(b"log").await;
        let place = world.reserve(&other, 10).await;
        world.write_place(&other, &place, &[1; 10]).await.expect("written");
        world.sim.disk_fault(world.server, "/ost/journal", Fault::Stuck(Duration::from_secs(3)));
        let begun = world.sim.env(world.client).now();
        assert!(world.fill(&other, &place, 10).await);
        for number in 0..10 {
            let by = if number % 2 == 0 { &world.session } else { &other };
            world.append_by(by, &pattern(number, 1000)).await.expect("appended");
        }
        let took = world.sim.env(world.client).now().since(begun);
        assert!(took < Duration::from_secs(1), "it took {took:?}");
    });
}

/// append, append |X| | replayed where they were
#[test]
fn appends_keep_their_offsets_over_a_server_crash() {
    for seed in 0..20 {
        let world = World::new(seed);
        world.run(async {
            let other = world.other();
            for number in 0..6 {
                let by = if number % 2 == 0 { &world.session } else { &other };
                let told = world.append_by(by, &pattern(number, 1000)).await.expect("appended");
                assert_eq!(told.file_offset, u64::from(number) * 1000);
            }
            world.sim.power_cut(world.server);
            world.boot();
            let all: Vec<u8> = (0..6).flat_map(|number| pattern(number, 1000)).collect();
            assert_eq!(world.read(0, 0, 6000).await.unwrap(), all, "seed {seed}");
            assert_eq!((world.size().await, world.append(b"next").await.file_offset), (6000, 6000), "seed {seed}");
        });
    }
}

#[test]
fn a_reservation_does_not_extend_the_file_before_it_is_complete() {
    let world = World::new(72);
    world.run(async {
        world.append(b"log").await;
        let (mine, other) = (&world.session, world.other());
        let (first, second) = (world.reserve(mine, 10).await, world.reserve(&other, 20).await);
        assert_eq!((first.file_offset, second.file_offset), (3, 13));
        world.write_place(&other, &second, &[2; 20]).await.expect("written");
        assert_eq!(world.size().await, 3);
        // The second waits for the first, and an append at the home waits for both.
        let filled = async {
            world.sim.sleep(Duration::from_millis(50)).await;
            assert_eq!(world.size().await, 3);
            world.write_place(mine, &first, &[1; 10]).await.expect("written");
            assert!(world.fill(mine, &first, 10).await);
        };
        let later = both(world.fill(&other, &second, 20), world.append_by(&other, b"next"));
        let ((), (is_filled, next)) = both(filled, later).await;
        assert_eq!((is_filled, next.expect("appended").file_offset), (true, 33));
        let bytes = [&b"log"[..], &[1; 10], &[2; 20], b"next"].concat();
        assert_eq!(world.read(0, 0, 37).await.unwrap(), bytes);
    });
}

#[test]
fn a_cancelled_reservation_frees_its_offset_for_the_next_append() {
    let world = World::new(73);
    world.run(async {
        world.append(b"log").await;
        let (mine, other) = (&world.session, world.other());
        let (first, second) = (world.reserve(mine, 10).await, world.reserve(&other, 20).await);
        world.write_place(&other, &second, &[2; 20]).await.expect("written");
        assert!(!world.fill(mine, &first, 0).await, "given up");
        assert!(!world.fill(&other, &second, 20).await, "it would lie behind nothing");
        assert_eq!(world.size().await, 3);
        let again = world.reserve(&other, 20).await;
        assert_eq!(again.file_offset, 3);
        world.write_place(&other, &again, &[3; 20]).await.expect("written");
        assert!(world.fill(&other, &again, 20).await);
        assert_eq!(world.read(0, 0, 23).await.unwrap(), [&b"log"[..], &[3; 20]].concat());
    });
}

#[test]
fn timed_out_reservation_is_cancelled_and_its_late_bytes_are_refused() {
    for restarts in [false, true] {
        let world = World::new(74);
        world.run(async {
            world.append(b"log").await;
            let (mine, other) = (&world.session, world.other());
            let (first, second) = (world.reserve(mine, 10).await, world.reserve(&other, 20).await);
            let begun = world.sim.env(world.client).now();
            assert!(!world.fill(&other, &second, 20).await);
            assert!(world.sim.env(world.client).now().since(begun) >= Duration::from_secs(4));
            let again = world.reserve(&other, 20).await;
            world.write_place(&other, &again, &[3; 20]).await.expect("written");
            assert!(world.fill(&other, &again, 20).await);
            if restarts {
                world.sim.power_cut(world.server);
                world.boot();
            }
            let late = world.write_place(mine, &first, &[1; 10]).await.unwrap_err();
            assert_eq!(late.errno(), Errno::STALE_EPOCH);
            assert!(!world.fill(mine, &first, 10).await);
            assert_eq!(world.read(0, 0, 23).await.unwrap(), [&b"log"[..], &[3; 20]].concat());
        });
    }
}

/// reserve, given up or |X|; append of another at the home; late bytes | they do not overwrite it, nor after |X| again
#[test]
fn late_bytes_of_a_cancelled_reservation_do_not_overwrite_a_home_append() {
    for (restarts, dies_again) in [(false, false), (false, true), (true, false), (true, true)] {
        let world = World::new(79);
        world.run(async {
            world.append(b"log").await;
            let (mine, other) = (&world.session, world.other());
            let place = world.reserve(mine, 10).await;
            if restarts {
                world.sim.power_cut(world.server);
                world.boot();
            } else {
                assert!(!world.fill(mine, &place, 0).await, "given up");
            }
            assert_eq!(world.append_by(&other, &[2; 10]).await.expect("appended").file_offset, 3);
            if dies_again {
                world.sim.power_cut(world.server);
                world.boot();
            }
            let late = world.write_place(mine, &place, &[1; 10]).await.unwrap_err();
            assert_eq!(late.errno(), Errno::STALE_EPOCH);
            assert_eq!(world.read(0, 0, 13).await.unwrap(), [&b"log"[..], &[2; 10]].concat());
            // Current reservations do not block each other, nor an append between them.
            let next = world.reserve(mine, 5).await;
            world.write_place(mine, &next, &[3; 5]).await.expect("written");
            let both_of_them = both(world.append_by(&other, b"end"), world.fill(mine, &next, 5)).await;
            assert_eq!((both_of_them.0.expect("appended").file_offset, both_of_them.1), (18, true));
            let last = world.reserve(mine, 2).await;
            world.write_place(mine, &last, b"!!").await.expect("written");
            assert!(world.fill(mine, &last, 2).await);
        });
    }
}

/// reserve |X| fill | its client has to ask again
#[test]
fn reservations_end_with_a_restart_of_the_home() {
    let world = World::new(75);
    world.run(async {
        world.append(b"log").await;
        let place = world.reserve(&world.session, 10).await;
        world.write_place(&world.session, &place, &[1; 10]).await.expect("written");
        world.sim.power_cut(world.server);
        world.boot();
        assert!(!world.fill(&world.session, &place, 10).await);
        assert_eq!(world.size().await, 3);
        let again = world.reserve(&world.session, 10).await;
        assert_eq!(again.file_offset, 3);
        assert!(again.generation > place.generation && again.number > place.number);
    });
}

/// reserve, bytes, given up; others' bytes in the same place |X| truncate to more | a hole, and the bytes of the others
#[test]
fn remove_written_removes_only_bytes_of_the_cancelled_reservation() {
    let world = World::new(78);
    world.run(async {
        world.append(b"log").await;
        let place = world.reserve(&world.session, 20).await;
        world.write_place(&world.session, &place, &[1; 20]).await.expect("written");
        let sequence = world.writes.get() | WriteId::RESERVED;
        world.write_place(&world.session, &ReserveReply { file_offset: 10, ..place }, &[2; 4]).await.expect("written");
        let removal = |offset, length, client, sequence| RemoveWritten {
            object: world.object(0),
            offset,
            length,
            client,
            sequence,
        };
        let remove = async |removal| world.session.call(&removal, Call::level(CommitLevel::Data)).await.map(drop);
        remove(removal(3, 20, 1, sequence)).await.expect("there is none of that writer");
        remove(removal(3, 20, 2, sequence)).await.expect("removed");
        assert_eq!(remove(removal(3, u64::MAX, 2, 0)).await.unwrap_err().errno(), Errno::EINVAL);
        world.sim.power_cut(world.server);
        world.boot();
        world.truncate(1, 30).await;
        assert_eq!(world.read(1, 0, 30).await.unwrap(), [&b"log"[..], &[0; 7], &[2; 4], &[0; 16]].concat());
        remove(removal(0, 30, 2, 0)).await.expect("all that it wrote");
        assert_eq!(world.read(1, 0, 30).await.unwrap(), [&b"log"[..], &[0; 27]].concat());
    });
}

#[test]
fn truncate_waits_for_a_reservation_that_is_being_filled() {
    let world = World::new(76);
    world.run(async {
        world.append(b"log").await;
        let place = world.reserve(&world.session, 10).await;
        let filled = async {
            world.sim.sleep(Duration::from_millis(50)).await;
            world.write_place(&world.session, &place, &[1; 10]).await.expect("written");
            world.fill(&world.session, &place, 10).await
        };
        let ((), filled) = both(world.truncate(1, 5), filled).await;
        assert!(filled);
        assert_eq!(world.read(1, 0, 5).await.unwrap(), b"log\x01\x01");
        assert_eq!(world.glimpse(1).await.unwrap().file_bytes, 5);
    });
}
