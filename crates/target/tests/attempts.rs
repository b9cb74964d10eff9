//! Attempts to execute a request: aborted ones change nothing, and the one that is done is applied once.

use std::time::Duration;

use forebay_proto::{Errno, ErrorReply};
use forebay_target::{Abort, Retry};

use crate::toy::*;

/// Runs the test with changes that are applied at once, and with changes that take tickets.
fn both_ways(test: impl Fn(World)) {
    for tickets in [false, true] {
        test(World::new(1, Setup { tickets, commit_interval: Duration::from_secs(3600), ..Setup::default() }));
    }
}

fn abort_next(world: &World, aborts: impl IntoIterator<Item = Abort>) {
    world.toy().aborts.borrow_mut().extend(aborts);
}

#[test]
fn attempts_to_be_retried_change_nothing_and_the_one_that_is_done_is_applied_once() {
    both_ways(|world| {
        let (client, other) = (world.client("a"), world.client("b"));
        world.sim.block_on(async {
            client.session.ready().await.unwrap();
            abort_next(&world, [Retry::NotResident, Retry::JournalFull, Retry::NotResident].map(Abort::Retry));
            let called = client.add(1).await.unwrap();
            assert_eq!((called.reply.file_bytes, world.toy().attempts.get()), (0, 4));
            assert_eq!((world.target().last_applied(), world.target().metrics().reruns), (called.transno, 3));
            assert_eq!(other.add(1).await.unwrap().reply.file_bytes, 1);
            assert_eq!((client.get(1).await.unwrap(), world.toy().attempts.get()), (2, 5));
        });
    });
}

#[test]
fn a_failed_attempt_is_not_repeated_and_changes_nothing() {
    both_ways(|world| {
        let (client, other) = (world.client("a"), world.client("b"));
        world.sim.block_on(async {
            let before = client.add(1).await.unwrap();
            let failed = ErrorReply::new(Errno::ENOSPC, "as the test says");
            abort_next(&world, [Abort::Retry(Retry::NotResident), Abort::Failed(failed)]);
            assert_eq!(client.add(2).await.unwrap_err().errno(), Errno::ENOSPC);
            assert_eq!((world.toy().attempts.get(), world.target().last_applied()), (3, before.transno));
            assert_eq!((client.get(1).await.unwrap(), client.get(2).await.unwrap()), (1, 0));
            // No other session waits for a commit of what only aborted attempts have changed.
            assert_eq!(other.get(2).await.unwrap(), 0);
            assert!(world.target().store().last_committed() < before.transno);
        });
    });
}

#[test]
fn a_request_that_is_aborted_again_and_again_fails_and_changes_nothing() {
    both_ways(|world| {
        let client = world.client("a");
        world.sim.block_on(async {
            client.session.ready().await.unwrap();
            let applied = world.target().last_applied();
            abort_next(&world, std::iter::repeat_n(Abort::Retry(Retry::NotResident), 2000));
            assert_eq!(client.add(1).await.unwrap_err().errno(), Errno::EAGAIN);
            assert_eq!(world.target().last_applied(), applied);
            world.toy().aborts.borrow_mut().clear();
            assert_eq!((client.get(1).await.unwrap(), client.add(1).await.unwrap().reply.file_bytes), (0, 0));
        });
    });
}
