//! Layout fences: requests under a layout from before a move.

use super::*;
use forebay_proto::message::FenceLayout;

async fn fence(world: &World, layout_generation: u32) {
    let request = FenceLayout { fid: FID, layout_generation };
    world.session.call(&request, Call::level(CommitLevel::Data)).await.expect("it is set");
}

async fn read_under(world: &World, layout_generation: u32, length: u32) -> Result<Vec<u8>, Errno> {
    let request = ReadObject { object: ObjectRef { layout_generation, ..world.object(0) }, offset: 0, length };
    let called = world.session.call(&request, Call::level(CommitLevel::Data)).await;
    called.map(|called| verified(called.reply, called.bulk)).map_err(|error| error.errno())
}

#[test]
fn reads_and_writes_under_a_layout_from_before_a_fence_are_refused() {
    let world = World::new(1);
    world.run(async {
        world.write(0, 0, b"moved").await.unwrap();
        // Extended layouts, which other clients need not know.
        assert_eq!(read_under(&world, 3, 5).await.unwrap(), b"moved");
        world.write(0, 0, b"MOVED").await.unwrap();
        fence(&world, 2).await;
        assert_eq!(world.write(0, 0, b"late").await.unwrap_err().errno(), Errno::STALE_LAYOUT);
        assert_eq!(world.glimpse(0).await.unwrap_err().errno(), Errno::STALE_LAYOUT);
        assert_eq!(read_under(&world, 1, 5).await, Err(Errno::STALE_LAYOUT));
        assert_eq!(read_under(&world, 2, 5).await.unwrap(), b"MOVED");
    });
}

#[test]
fn a_write_beside_a_fence_is_either_applied_before_it_or_refused() {
    for (seed, level) in (0..60).map(|seed| (seed, if seed % 2 == 0 { CommitLevel::Memory } else { CommitLevel::Data }))
    {
        let world = World::new(seed);
        world.run(async {
            world.write(0, 0, b"before").await.unwrap();
            let evictions = world.session.stats().evictions;
            let seen = async {
                world.sim.sleep(Duration::from_micros(20 * seed)).await;
                fence(&world, 2).await;
                // What was not applied by now never will be.
                read_under(&world, 2, 6).await.unwrap()
            };
            let (written, seen) = both(world.write_at(level, 0, 0, b"beside"), seen).await;
            match written {
                Ok(_) => assert_eq!(seen, b"beside", "seed {seed}"),
                Err(error) => {
                    assert_eq!((error.errno(), &seen[..]), (Errno::STALE_LAYOUT, &b"before"[..]), "seed {seed}")
                }
            }
            assert_eq!(read_under(&world, 2, 6).await.unwrap(), seen, "seed {seed}");
            assert_eq!(world.session.stats().evictions, evictions, "seed {seed}");
        });
    }
}

/// write, fence |power| replay
#[test]
fn a_write_from_before_a_fence_is_replayed() {
    let world = World::new(2);
    world.run(async {
        world.write(0, 0, b"bytes").await.unwrap();
        fence(&world, 2).await;
        world.sim.power_cut(world.server);
        world.boot();
        assert_eq!(read_under(&world, 2, 5).await.unwrap(), b"bytes");
        assert!(world.session.stats().replays > 0);
    });
}
