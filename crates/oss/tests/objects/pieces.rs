//! Reads of several pieces, and of bytes that were written in tiny pieces.

use forebay_proto::{
    Errno,
    limits::{FILE_BYTES, OBJECT_PIECES},
    message::{CommitLevel, Piece, ReadPieces},
};
use forebay_rpc::{Call, RpcError};

use super::{World, pattern, verified};

impl World {
    async fn read_pieces(&self, pieces: &[(u64, u32)]) -> Result<Vec<u8>, RpcError> {
        let pieces = pieces.iter().map(|(offset, length)| Piece { offset: *offset, length: *length }).collect();
        let request = ReadPieces { object: self.object(0), pieces };
        let called = self.session.call(&request, Call::level(CommitLevel::Data)).await?;
        Ok(verified(called.reply, called.bulk))
    }
}

/// Overlapping writes, with holes, read up to beyond the end.
#[test]
fn pieces_are_read_as_each_by_itself_would_be() {
    let world = World::new(31);
    world.run(async {
        world.write(0, 400_000, &pattern(3, 150_000)).await.unwrap();
        world.write(0, 1000, &pattern(1, 200_000)).await.unwrap();
        world.write(0, 50_000, &pattern(2, 30_000)).await.unwrap();
        let pieces =
            [(0, 10), (900, 200), (49_000, 40_000), (199_990, 20), (300_000, 7), (399_999, 70_000), (549_000, 5000)];
        let mut each = Vec::new();
        for (offset, length) in pieces {
            each.extend(world.read(0, offset, length).await.unwrap());
        }
        assert!(world.read_pieces(&pieces).await.unwrap() == each);
        assert_eq!(world.read_pieces(&[(600_000, 10), (700_000, 10)]).await.unwrap(), [0; 20]);
        assert_eq!(world.read_pieces(&[(1000, 5), (1005, 5)]).await.unwrap(), pattern(1, 10), "they may touch");
    });
}

#[test]
fn pieces_that_no_reader_asks_for_are_refused() {
    let world = World::new(32);
    world.run(async {
        world.write(0, 0, &pattern(1, 200_000)).await.unwrap();
        let many: Vec<(u64, u32)> = (0..=OBJECT_PIECES as u64).map(|i| (2 * i, 1)).collect();
        // One byte in each of so many blocks that together they exceed 8 MiB.
        let blocks: Vec<(u64, u32)> = (0..129).map(|i| (i << 16, 1)).collect();
        let large = [(0, 3 << 20), (4 << 20, 2 << 20)];
        let bad: [&[(u64, u32)]; 8] = [
            &[],
            &[(0, 0)],
            &[(10, 5), (14, 5)],
            &[(10, 5), (0, 5)],
            &[(0, 5), (u64::MAX - 2, 5)],
            &[(FILE_BYTES - 2, 3)],
            &many,
            &large,
        ];
        for pieces in bad.into_iter().chain([&*blocks]) {
            let refused = world.read_pieces(pieces).await.unwrap_err();
            assert_eq!(refused.errno(), Errno::EINVAL, "{:?}: {refused}", &pieces[..pieces.len().min(3)]);
        }
        assert_eq!(world.read_pieces(&blocks[..128]).await.unwrap().len(), 128);
        assert_eq!(world.read_pieces(&many[1..]).await.unwrap().len(), OBJECT_PIECES);
    });
}

/// A reply could not hold all of the segments.
#[test]
fn a_range_written_in_tiny_pieces_is_read_whole() {
    let world = World::new(33);
    world.run(async {
        let mut expected = vec![0; 208_000];
        for at in (0..expected.len()).step_by(16) {
            let bytes = pattern(at as u8, 8);
            world.write(0, at as u64, &bytes).await.unwrap();
            expected[at..at + 8].copy_from_slice(&bytes);
        }
        assert!(world.read(0, 0, 208_000).await.unwrap() == expected);
        assert!(world.read(0, 5, 207_995).await.unwrap() == expected[5..]);
        let pieces = world.read_pieces(&[(3, 70_000), (80_001, 120_000), (207_000, 1002)]).await.unwrap();
        assert!(pieces == [&expected[3..70_003], &expected[80_001..200_001], &expected[207_000..], &[0, 0]].concat());
    });
}
