//! Tests of grants, recalls and returns of leases.

use super::*;
use forebay_proto::message::Pieces;
use std::time::Duration;

const A: SessionId = SessionId(1);
const B: SessionId = SessionId(2);

fn fid(low: u64) -> Fid {
    Fid { high: 0, low }
}

fn at(ms: u64) -> Time {
    Time(0) + Duration::from_millis(ms)
}

fn uses(fid: Fid, wanted: Use) -> BTreeMap<Fid, Use> {
    BTreeMap::from([(fid, wanted)])
}

fn told(leases: &mut Leases) -> (Vec<Fid>, u64) {
    let told = leases.recalls(A);
    (told.fids, told.sequence)
}

fn said(acknowledged: u64, returned: &[Fid]) -> AwaitRecalls {
    AwaitRecalls { acknowledged, returned: returned.to_vec(), flushed: Vec::new() }
}

/// `A` sends a request once a second from `from` to `until`, in seconds.
fn hear(leases: &mut Leases, from: u64, until: u64) {
    for second in from..=until {
        leases.note_request(A, at(1000 * second));
        leases.expire(at(1000 * second));
    }
}

/// No session sends a request, and the server runs.
fn serve(leases: &mut Leases, from: u64, until: u64) {
    for second in from..=until {
        leases.expire(at(1000 * second));
    }
}

fn held_by_a() -> Leases {
    let mut leases = Leases::default();
    leases.note_request(A, at(1000));
    leases.grant(A, fid(5));
    leases
}

#[test]
fn a_lease_blocks_the_changes_of_others_until_it_is_given_back() {
    let mut leases = held_by_a();
    assert!(leases.conflicts(B, fid(5), Use::Changes));
    assert!(!leases.conflicts(B, fid(5), Use::Shows) && !leases.conflicts(A, fid(5), Use::Changes));
    assert_eq!(leases.recall(B, &uses(fid(5), Use::Changes), at(1100)), Some(at(3000)));
    assert_eq!(told(&mut leases), (vec![fid(5)], 1));
    assert_eq!(leases.acknowledge(A, &said(1, &[])), [fid(5)]);
    assert_eq!(leases.recall(B, &uses(fid(5), Use::Changes), at(1200)), None);
    assert_eq!(leases.counters(), (0, 1, 1));
}

#[test]
fn an_inode_that_its_lease_holder_changed_is_not_shown_to_another_session() {
    let mut leases = held_by_a();
    leases.changed(A, fid(5));
    assert!(leases.conflicts(B, fid(5), Use::Shows) && !leases.conflicts(A, fid(5), Use::Shows));
}

#[test]
fn a_silent_session_loses_its_leases_and_one_that_sends_requests_keeps_them() {
    let mut leases = held_by_a();
    leases.note_request(A, at(2500));
    assert_eq!(leases.recall(B, &uses(fid(5), Use::Changes), at(3100)), Some(at(4500)));
    assert_eq!(leases.recall(B, &uses(fid(5), Use::Changes), at(4500)), None);
    assert_eq!(told(&mut leases), (vec![], 0));
    let mut leases = held_by_a();
    leases.note_request(A, at(3000));
    assert!(!leases.conflicts(B, fid(5), Use::Changes), "it came too late");
}

#[test]
fn no_lease_is_granted_while_a_session_waits_for_the_inode_and_shortly_afterwards() {
    let mut leases = held_by_a();
    leases.await_end(fid(5));
    assert!(!leases.is_free(B, fid(5)) && leases.is_free(B, fid(6)));
    leases.recall(B, &uses(fid(5), Use::Changes), at(1100));
    leases.acknowledge(A, &said(1, &[]));
    leases.stop_awaiting(fid(5));
    assert!(!leases.is_free(B, fid(5)));
    leases.note_request(B, at(1100) + limits::CONTENDED);
    assert!(leases.is_free(B, fid(5)));
}

#[test]
fn waiters_for_an_inode_with_many_leases_are_woken_when_the_last_two_end() {
    let mut leases = Leases::default();
    let sessions = || (1..=100).map(SessionId);
    for session in sessions() {
        leases.note_request(session, at(1000));
        leases.grant(session, fid(5));
    }
    let wanted = uses(fid(5), Use::Changes);
    // Each of them wants to change the inode.
    for session in sessions() {
        assert_eq!(leases.recall(session, &wanted, at(1000 + session.0)), Some(at(3000)));
    }
    assert_eq!(leases.counters(), (100, 100, 100));
    let acknowledge = |leases: &mut Leases, session| {
        let sequence = leases.recalls(session).sequence;
        leases.acknowledge(session, &said(sequence, &[]))
    };
    let told: Vec<SessionId> = sessions().filter(|session| !acknowledge(&mut leases, *session).is_empty()).collect();
    assert_eq!(told, [SessionId(99), SessionId(100)]);
    assert!(sessions().all(|session| leases.recall(session, &wanted, at(1200)).is_none()));
}

#[test]
fn one_silent_session_among_many_loses_its_lease_at_the_end_of_the_term() {
    let mut leases = held_by_a();
    leases.note_request(B, at(1500));
    leases.grant(B, fid(5));
    let (wanted, third, fourth) = (uses(fid(5), Use::Changes), SessionId(3), SessionId(4));
    assert_eq!(leases.recall(third, &wanted, at(1600)), Some(at(3000)));
    leases.note_request(B, at(2900));
    assert_eq!(leases.recall(fourth, &wanted, at(2950)), Some(at(3000)));
    assert_eq!(leases.recall(fourth, &wanted, at(3000)), Some(at(4900)), "that of A is over");
    assert_eq!(leases.recall(third, &wanted, at(3001)), Some(at(4900)));
    assert_eq!(leases.recall(third, &wanted, at(4900)), None);
}

#[test]
fn recalls_are_repeated_until_they_are_acknowledged() {
    let mut leases = held_by_a();
    leases.grant(A, fid(6));
    leases.recall(B, &uses(fid(5), Use::Changes), at(1100));
    leases.recall(B, &uses(fid(5), Use::Changes), at(1100));
    leases.recall(B, &uses(fid(6), Use::Changes), at(1100));
    assert_eq!(told(&mut leases), (vec![fid(5), fid(6)], 2));
    leases.acknowledge(A, &said(1, &[]));
    assert_eq!(told(&mut leases), (vec![fid(6)], 2));
    leases.acknowledge(A, &said(1, &[fid(6)]));
    assert_eq!(leases.counters().0, 0);
}

#[test]
fn a_recall_of_data_waits_as_long_as_the_holder_sends_requests() {
    let mut leases = Leases::default();
    leases.note_request(A, at(1000));
    leases.grant_data(A, fid(5));
    let wanted = uses(fid(5), Use::Shows);
    assert!(leases.conflicts(B, fid(5), Use::Shows));
    assert_eq!(leases.recall(B, &wanted, at(1100)), Some(at(1100) + limits::RECALL_TIMEOUT_SILENT));
    let recall = leases.recalls(A).data[0].clone();
    leases.acknowledge(A, &said(recall.sequence, &[]));
    assert!(leases.conflicts(B, fid(5), Use::Shows), "it was heard, and not yet done");
    hear(&mut leases, 2, 9);
    serve(&mut leases, 10, 15);
    assert_eq!(leases.recall(B, &wanted, at(15_000)), Some(at(9000) + limits::RECALL_TIMEOUT_SILENT));
    assert!(leases.take_overdue().is_empty());
    serve(&mut leases, 16, 19);
    leases.recall(B, &wanted, at(9000) + limits::RECALL_TIMEOUT_SILENT);
    assert_eq!(leases.take_overdue(), BTreeMap::from([(A, Overdue::Silent)]));
    leases.acknowledge(A, &AwaitRecalls { acknowledged: 0, returned: Vec::new(), flushed: vec![recall] });
    assert_eq!(leases.recall(B, &wanted, at(30_000)), None);
}

#[test]
fn a_session_that_sends_requests_but_no_buffered_data_is_overdue_after_a_term_without_server_trouble() {
    let mut leases = Leases::default();
    hear(&mut leases, 0, 10);
    leases.grant_data(A, fid(5));
    let wanted = uses(fid(5), Use::Shows);
    leases.recall(B, &wanted, at(10_000));
    let recall = leases.recalls(A).data[0].clone();
    leases.acknowledge(A, &said(recall.sequence, &[]));
    hear(&mut leases, 11, 200);
    leases.trouble(at(200_000));
    let end = 200 + limits::RECALL_TIMEOUT.as_secs();
    hear(&mut leases, 201, end - 1);
    assert_eq!(leases.recall(B, &wanted, at(1000 * (end - 1))), Some(at(1000 * end)));
    assert!(leases.take_overdue().is_empty(), "an OST was away: it had to wait for that");
    leases.recall(B, &wanted, at(1000 * end));
    assert_eq!(leases.take_overdue(), BTreeMap::from([(A, Overdue::Keeps)]));
}

#[test]
fn a_session_that_sends_requests_but_acknowledges_no_recall_is_overdue() {
    let mut leases = Leases::default();
    hear(&mut leases, 0, 10);
    leases.grant(A, fid(5));
    leases.recall(B, &uses(fid(5), Use::Changes), at(10_000));
    let end = 10 + limits::RECALL_TIMEOUT.as_secs();
    hear(&mut leases, 11, end - 1);
    assert!(leases.take_overdue().is_empty() && leases.conflicts(B, fid(5), Use::Changes));
    hear(&mut leases, end, end);
    assert_eq!(leases.take_overdue(), BTreeMap::from([(A, Overdue::Keeps)]));
}

#[test]
fn a_server_that_was_paused_gives_lease_holders_their_recall_timeout_again() {
    let mut leases = Leases::default();
    hear(&mut leases, 0, 10);
    leases.grant(A, fid(5));
    leases.recall(B, &uses(fid(5), Use::Changes), at(10_000));
    leases.grant_data(A, fid(6));
    let wanted = uses(fid(6), Use::Shows);
    leases.recall(B, &wanted, at(10_000));
    assert_eq!(leases.recall(B, &wanted, at(1_000_000)), Some(at(1_000_000) + limits::RECALL_TIMEOUT_SILENT));
    hear(&mut leases, 1000, 1001);
    assert!(leases.take_overdue().is_empty());
}

#[test]
fn each_returned_lease_of_a_recall_gives_a_session_time_for_the_next_one() {
    let mut leases = Leases::default();
    hear(&mut leases, 0, 10);
    let fids: BTreeMap<Fid, Use> = (1..4).map(|file| (fid(file), Use::Shows)).collect();
    fids.keys().for_each(|fid| leases.grant_data(A, *fid));
    leases.recall(B, &fids, at(10_000));
    let recalls = leases.recalls(A).data;
    for (recall, second) in recalls.into_iter().zip([200, 400]) {
        hear(&mut leases, second - 190, second);
        let done = AwaitRecalls { acknowledged: recall.sequence, returned: Vec::new(), flushed: vec![recall] };
        leases.acknowledge(A, &done);
        leases.recall(B, &fids, at(1000 * second));
    }
    hear(&mut leases, 401, 699);
    leases.recall(B, &fids, at(699_000));
    assert!(leases.take_overdue().is_empty());
    leases.recall(B, &fids, at(700_000));
    assert_eq!(leases.take_overdue(), BTreeMap::from([(A, Overdue::Keeps)]));
}

#[test]
fn returning_other_leases_does_not_postpone_a_recall_without_bound() {
    let mut leases = Leases::default();
    hear(&mut leases, 0, 10);
    leases.grant_data(A, fid(1));
    leases.recall(B, &uses(fid(1), Use::Shows), at(10_000));
    let mut second = 10;
    while leases.take_overdue().is_empty() {
        leases.grant_data(A, fid(2));
        leases.recall(B, &uses(fid(2), Use::Shows), at(1000 * second));
        let recall = leases.recalls(A).data.last().expect("it is asked").clone();
        let done = AwaitRecalls { acknowledged: recall.sequence, returned: Vec::new(), flushed: vec![recall] };
        leases.acknowledge(A, &done);
        hear(&mut leases, second + 1, second + 100);
        second += 100;
        leases.recall(B, &uses(fid(1), Use::Shows), at(1000 * second));
        assert!(second < 2000);
    }
    let all = limits::RECALL_TIMEOUT * (limits::RECALL_EXTENSIONS + 1);
    assert!(second > 1000 && second >= 10 + all.as_secs() - 100, "{second}");
}

#[test]
fn a_recall_of_a_lease_that_ended_by_a_close_makes_no_session_overdue() {
    let mut leases = Leases::default();
    hear(&mut leases, 0, 10);
    leases.grant_data(A, fid(5));
    leases.grant(A, fid(7));
    leases.recall(B, &uses(fid(5), Use::Shows), at(10_000));
    assert!(leases.data.closed(fid(5)));
    hear(&mut leases, 11, 20 + limits::RECALL_TIMEOUT.as_secs());
    assert!(leases.take_overdue().is_empty() && leases.holders[&A].queue.is_empty());
}

#[test]
fn each_of_twenty_sessions_gets_leases_on_new_inodes_when_the_bound_is_reached() {
    let (mut leases, mut made) = (Leases::default(), 0);
    let sessions: Vec<SessionId> = (1..=20).map(SessionId).collect();
    let (mut now, mut granted) = (0, BTreeMap::<SessionId, u32>::new());
    for round in 0..300 {
        now += limits::SHRINK_INTERVAL.as_millis() as u64;
        for session in &sessions {
            leases.note_request(*session, at(now));
            let told = leases.recalls(*session);
            leases.acknowledge(*session, &said(told.sequence, &[]));
            for _ in 0..200 {
                made += 1;
                if leases.is_free(*session, fid(made)) {
                    leases.grant(*session, fid(made));
                    *granted.entry(*session).or_default() += u32::from(round >= 250);
                }
            }
        }
    }
    assert!(leases.count >= limits::CROWDED_LEASES - limits::SHRINK, "it is crowded: {}", leases.count);
    assert!(sessions.iter().all(|session| granted[session] > 500), "{granted:?}");
}

#[test]
fn one_client_cannot_have_all_leases() {
    let mut leases = Leases::default();
    leases.note_request(A, at(1000));
    let mut made = 0;
    let mut next = || {
        made += 1;
        fid(made)
    };
    while leases.is_free(A, fid(u64::MAX)) {
        leases.grant(A, next());
    }
    assert_eq!(leases.count, limits::CROWDED_LEASES, "alone, it may have nearly all");
    assert!(leases.is_free(B, fid(1)), "there is room for others");
    let (mut now, mut refused) = (1000, 0);
    while leases.holder(B).fids.len() < leases.share() {
        now += limits::SHRINK_INTERVAL.as_millis() as u64;
        leases.note_request(B, at(now));
        for _ in 0..limits::SHRINK / 2 {
            match leases.is_free(B, fid(u64::MAX)) {
                true => leases.grant(B, next()),
                false => refused += 1,
            }
            assert!(leases.count <= limits::CLIENT_LEASES);
        }
        leases.note_request(A, at(now));
        let told = leases.recalls(A);
        leases.acknowledge(A, &said(told.sequence, &[]));
        assert!(now < 60_000, "{refused} refused, {} to go", leases.share() - leases.holder(B).fids.len());
    }
    assert!(refused == 0 && leases.holder(A).fids.len() > leases.share());
}

#[test]
fn a_silent_session_loses_inode_leases_but_not_data_write_leases() {
    let mut leases = held_by_a();
    leases.grant_data(A, fid(6));
    assert!(leases.expire(at(9000)) && !leases.expire(at(9000)));
    leases.note_request(A, at(9001));
    assert!(!leases.conflicts(B, fid(5), Use::Changes) && leases.conflicts(B, fid(6), Use::Shows));
    leases.forget(A);
    assert!(!leases.conflicts(B, fid(6), Use::Shows) && leases.counters().0 == 0);
}

/// Two sessions with byte-range write leases on a file.
fn shared() -> Leases {
    let mut leases = Leases::default();
    for (session, start) in [(A, 0), (B, 10)] {
        leases.note_request(session, at(1000));
        let pieces = vec![Pieces { start, length: 10, stride: 20, count: 9 }];
        assert!(leases.claims.claim(session, fid(5), pieces) && leases.may_share_ranges(fid(5)));
    }
    leases.grant_data(A, fid(5));
    leases.grant_data(B, fid(5));
    leases
}

#[test]
fn holders_of_byte_range_leases_do_not_wait_for_each_other_and_a_third_session_waits_for_all() {
    let mut leases = shared();
    let (wanted, third) = (uses(fid(5), Use::Changes), SessionId(3));
    assert!(!leases.conflicts(A, fid(5), Use::Changes) && leases.conflicts(third, fid(5), Use::Shows));
    assert_eq!(leases.recall(A, &wanted, at(1100)), None);
    assert!(leases.recall(third, &wanted, at(1100)).is_some() && !leases.may_share_ranges(fid(5)));
    for session in [A, B] {
        assert!(leases.conflicts(third, fid(5), Use::Shows));
        let flushed = leases.recalls(session).data;
        leases.acknowledge(session, &AwaitRecalls { acknowledged: 0, returned: Vec::new(), flushed });
    }
    assert_eq!(leases.recall(third, &wanted, at(1200)), None);
}

#[test]
fn withdrawing_a_range_claim_waits_for_the_leases_of_the_other_sessions() {
    let mut leases = shared();
    leases.claims.end(A, fid(5));
    assert!(leases.recall_from_others(A, fid(5), at(1100)).is_some());
    assert!(!leases.may_share_ranges(fid(5)), "one of its holders has no claim");
    let flushed = leases.recalls(B).data;
    leases.acknowledge(B, &AwaitRecalls { acknowledged: 0, returned: Vec::new(), flushed });
    assert!(leases.recall_from_others(A, fid(5), at(1200)).is_none() && leases.recalls(A).data.is_empty());
    leases.forget(A);
    assert!(leases.may_share_ranges(fid(5)) && !leases.claims.has(A, fid(5)));
}
