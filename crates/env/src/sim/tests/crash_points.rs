use super::{open, sector};
use crate::sim::{CrashRecorder, DiskImage, Sim, TearChoice};

/// write 1, flush, write 2 and 3 (in flight together), flush, durable write 4
fn history() -> CrashRecorder {
    let sim = Sim::new(1);
    let node = sim.add_node("n");
    sim.record_disk(node, "data");
    let env = sim.env(node);
    sim.block_on(async {
        let disk = open(&env).await;
        disk.write(0, sector(1)).await.unwrap();
        disk.flush().await.unwrap();
        let two = disk.write(4096, sector(2));
        let three = disk.write(8192, sector(3));
        two.await.unwrap();
        three.await.unwrap();
        disk.flush().await.unwrap();
        disk.write_durable(0, sector(4)).await.unwrap();
    });
    sim.crash_images(node, &["data"])
}

fn first_bytes(recorder: &mut CrashRecorder, point: usize, tear: TearChoice) -> [u8; 3] {
    let image = &recorder.image(point, tear)[0];
    [0, 4096, 8192].map(|offset| image.read(offset, 1)[0])
}

#[test]
fn every_point_has_the_flushed_writes_and_the_chosen_part_of_the_rest() {
    let mut recorder = history();
    let (lost, kept) = (TearChoice::AllLost, TearChoice::AllKept);
    let expected = [
        ([0, 0, 0], [0, 0, 0], "before"),
        ([0, 0, 0], [1, 0, 0], "write"),
        ([1, 0, 0], [1, 0, 0], "flush"),
        ([1, 0, 0], [1, 2, 0], "write"),
        ([1, 0, 0], [1, 2, 3], "write"),
        ([1, 2, 3], [1, 2, 3], "flush"),
        ([1, 2, 3], [4, 2, 3], "write"),
        ([4, 2, 3], [4, 2, 3], "durable"),
    ];
    assert_eq!(recorder.points(), expected.len());
    for (point, (if_lost, if_kept, words)) in expected.into_iter().enumerate() {
        assert_eq!(first_bytes(&mut recorder, point, lost), if_lost, "{}", recorder.describe(point));
        assert_eq!(first_bytes(&mut recorder, point, kept), if_kept, "{}", recorder.describe(point));
        assert!(recorder.describe(point).contains(words), "{}", recorder.describe(point));
    }
    assert_eq!(first_bytes(&mut recorder, 1, kept), [1, 0, 0], "going back works too");
}

#[test]
fn images_have_the_same_fingerprint_if_and_only_if_their_contents_are_the_same() {
    let mut recorder = history();
    let tears = [TearChoice::AllLost, TearChoice::AllKept, TearChoice::LastTornAtSector(3), TearChoice::Random(5)];
    let images = (0..recorder.points()).flat_map(|point| tears.map(|tear| recorder.image(point, tear).remove(0)));
    let images: Vec<DiskImage> = images.collect();
    let contents: Vec<_> = images.iter().map(|image| image.read(0, image.bytes() as usize)).collect();
    for (a, b) in (0..images.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
        assert_eq!(images[a].fingerprint() == images[b].fingerprint(), contents[a] == contents[b], "{a}, {b}");
    }
    let mut image = images[0].clone();
    image.write(5000, &[1]);
    assert_ne!(image.fingerprint(), images[0].fingerprint());
    image.write(5000, &[0]);
    assert_eq!(image.fingerprint(), images[0].fingerprint(), "zeros are zeros, written or not");
}

#[test]
fn the_last_write_is_reported_while_a_power_cut_may_lose_its_bytes() {
    let mut recorder = history();
    let mut last = |point| recorder.last_write(point).map(|last| (last.offset, last.sectors, last.head[0]));
    assert_eq!([0, 2, 5, 7].map(&mut last), [None; 4], "nothing is pending");
    assert_eq!([1, 3, 4, 6].map(last), [(0, 8, 1), (4096, 8, 2), (8192, 8, 3), (0, 8, 4)].map(Some));
}

#[test]
fn the_last_write_is_torn_at_the_chosen_sector() {
    let mut recorder = history();
    let image = &recorder.image(4, TearChoice::LastTornAtSector(3))[0];
    assert_eq!(image.read(4096, 4096), [2; 4096], "only the last write is torn");
    assert_eq!(image.read(8192, 3 * 512), [3; 3 * 512]);
    assert_eq!(image.read(8192 + 3 * 512, 5 * 512), [0; 5 * 512]);
}

#[test]
fn a_seed_chooses_the_same_tear_again_and_seeds_choose_differently() {
    let mut recorder = history();
    let mut images = Vec::new();
    for seed in 0..20 {
        let image = recorder.image(4, TearChoice::Random(seed)).remove(0);
        assert!(image == recorder.image(4, TearChoice::Random(seed)).remove(0));
        assert_eq!(image.read(0, 1), [1]);
        if !images.contains(&image.read(4096, 8192)) {
            images.push(image.read(4096, 8192));
        }
    }
    assert!(images.len() > 3);
}
