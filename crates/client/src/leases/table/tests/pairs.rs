//! Every two events, in both orders and one during the other, from an empty table and from one that holds all leases.
//!
//! What has to hold after each step: `world`.

use super::{
    world::{EVENTS, Event, Subject, World},
    *,
};

const SUBJECT: Subject = Subject { dir: DIR, file: FILE, name: b"a" };

/// How the first event, `0`, and the second, `1`, begin and end.
const ORDERS: [[usize; 4]; 3] = [[0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 1, 0]];

/// All leases are held, and the kernel believes a name and attributes.
fn all_leased() -> World {
    let mut world = World::new();
    let grants = [Event::GrantInodes, Event::GrantEntriesWrite, Event::GrantData(Holds::All), Event::GrantInodes];
    for event in grants {
        let open = world.begin(event, SUBJECT);
        world.end(open);
    }
    assert!(world.table.answers_for(DIR).is_some() && world.table.holds(FILE) == Holds::All);
    world
}

fn run(mut world: World, events: [Event; 2], order: [usize; 4], hears: bool) {
    world.hears = hears;
    let mut open = [None, None];
    for which in order {
        match open[which].take() {
            None => open[which] = Some(world.begin(events[which], SUBJECT)),
            Some(begun) => world.end(begun),
        }
    }
    world.drain(&[FILE]);
}

#[test]
fn every_two_events_in_every_order_leave_nothing_believed_that_may_not_be_and_nothing_that_is_not_returned() {
    for (one, other) in EVENTS.iter().flat_map(|one| EVENTS.iter().map(move |other| (*one, *other))) {
        for order in ORDERS {
            for hears in [true, false] {
                println!("{one:?}, {other:?} in the order {order:?}; the kernel hears: {hears}");
                run(World::new(), [one, other], order, hears);
                run(all_leased(), [one, other], order, hears);
            }
        }
    }
}
