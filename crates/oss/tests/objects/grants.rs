//! Space that was granted to clients, which they claim again after a restart.

use forebay_proto::message::{Grant, Sync};

use super::*;

const WANTED: u64 = 4 << 20;

async fn write_from(by: &ClientSession, fid: Fid, offset: u64, length: usize, granted: u32) -> Result<(), Errno> {
    let (bytes, write_id) = (pattern(1, length), WriteId { client: 9, sequence: offset + 1 });
    let object = ObjectRef { fid, layout_generation: 1, truncate_epoch: 0 };
    let sums = crc::blocks(offset, length as u64, BLOCK_BYTES)
        .map(|(at, part)| crc::block_sum(fid, at, write_id, &bytes[(at - offset) as usize..][..part as usize]))
        .collect();
    let request = WriteObject {
        object,
        offset,
        length: length as u32,
        write_id,
        sums,
        file_bytes: offset + length as u64,
        attr_epoch: 0,
        granted_bytes: granted,
    };
    let call = Call { bulk: vec![bytes.into()], fid: Some(fid), ..Call::level(CommitLevel::Data) };
    by.call(&request, call).await.map(drop).map_err(|error| error.errno())
}

/// Writes until it is refused; returns the bytes written.
async fn fill(by: &ClientSession, fid: Fid) -> u64 {
    const REQUEST: u64 = 256 << 10;
    for number in 0.. {
        if let Err(errno) = write_from(by, fid, number * REQUEST, REQUEST as usize, 0).await {
            assert_eq!(errno, Errno::ENOSPC);
            return number * REQUEST;
        }
    }
    unreachable!()
}

/// full, cut, granted |X before the cut is committed| replay, full again | what was granted is there
#[test]
fn a_reclaimed_grant_gets_the_space_that_replays_free() {
    let world = World::new(60);
    world.run(async {
        let (mine, other) = (&world.session, connect(&world.sim, world.sim.add_node("other"), 2));
        let (small, large, more) = (Fid { low: 1, ..FID }, FID, Fid { low: 3, ..FID });
        write_from(mine, small, 0, 4096, 0).await.expect("there is room");
        let filled = fill(&other, large).await;
        other.call(&Sync { fid: None }, Call::level(CommitLevel::Commit)).await.expect("it syncs");
        let cut = TruncateObject { fid: large, truncate_epoch: 1, object_bytes: 0, file_bytes: 0, attr_epoch: 1 };
        other.call(&cut, Call::level(CommitLevel::Data)).await.expect("it is cut");
        let granted = mine.call(&Grant { bytes: WANTED }, Call::default()).await.expect("asked").reply.bytes;
        assert_eq!(granted, WANTED);
        mine.set_granted(move || granted);
        world.sim.power_cut(world.server);
        world.sim.sleep(Duration::from_millis(5)).await;
        world.boot();
        let again = fill(&other, more).await;
        assert!(again > filled / 2, "{again} of {filled} bytes: the cut was replayed");
        for number in 0..WANTED >> 20 {
            let (offset, granted) = (number << 20, 1 << 20);
            write_from(mine, small, offset, (1 << 20) - (64 << 10), granted).await.expect("what was granted is there");
        }
    });
}
