//! Thousands of events at random, several at a time, against the history of what was granted and lost (`world`).

use super::{
    world::{EVENTS, Subject, World},
    *,
};
use crate::testing::Dice;

const DIRS: [Fid; 2] = [DIR, Fid { high: 0, low: 17 }];
const FILES: [Fid; 3] = [FILE, Fid { high: 0, low: 18 }, Fid { high: 0, low: 28 }];
const NAMES: [&[u8]; 2] = [b"a", b"b"];
/// Events that may be under way at a time.
const AT_A_TIME: usize = 5;

fn one_of<T: Copy>(dice: &mut Dice, all: &[T]) -> T {
    all[dice.below(all.len() as u64) as usize]
}

fn run(seed: u64) {
    println!("seed {seed}");
    let (mut dice, mut world, mut open) = (Dice::new(seed), World::new(), Vec::new());
    for _ in 0..400 {
        world.hears = !dice.one_in(3);
        world.now = world.now + Duration::from_millis(dice.below(200));
        if open.len() < AT_A_TIME && dice.one_in(2) {
            let subject = Subject {
                dir: one_of(&mut dice, &DIRS),
                file: one_of(&mut dice, &FILES),
                name: one_of(&mut dice, &NAMES),
            };
            // Leases are granted more often than they are lost.
            let event = if dice.one_in(2) { one_of(&mut dice, &EVENTS[..4]) } else { one_of(&mut dice, &EVENTS) };
            open.push(world.begin(event, subject));
        } else if !open.is_empty() {
            let ended = open.swap_remove(dice.below(open.len() as u64) as usize);
            world.end(ended);
        }
    }
    open.into_iter().for_each(|open| world.end(open));
    world.drain(&FILES);
    assert!(world.believed > 100, "it holds leases most of the time: {}", world.believed);
}

#[test]
fn thousands_of_events_leave_nothing_believed_that_may_not_be_and_nothing_that_is_not_returned() {
    (0..40).for_each(run);
}
