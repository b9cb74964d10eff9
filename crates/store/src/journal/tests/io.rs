//! The journal over simulated disks: power cuts, medium errors, failed flushes, callers that are dropped.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use forebay_env::{
    Disk, Env, OpenDisk,
    sim::{Fault, NodeId, Sim, TearChoice},
    testing::{on_both, scratch_dir},
};
use forebay_proto::Uuid;

use crate::journal::{
    Journal, JournalErrorKind, JournalResult, Lsn, Recovered, RootLocation, Transaction,
    limits::{RING_START, SECTOR},
};

const TARGET: Uuid = Uuid(*b"target's 16 byte");
const PATH: &str = "/journal";

async fn disk(env: &Env, ring_sectors: u64) -> Disk {
    let create_bytes = Some(RING_START + ring_sectors * SECTOR);
    env.open_disk(PATH, OpenDisk { create_bytes, ..OpenDisk::default() }).await.unwrap()
}

async fn recover(env: &Env, disk: &Disk) -> JournalResult<Recovered> {
    Journal::recover(env, disk, TARGET, 1, Lsn(0)).await
}

async fn redo(recovered: &mut Recovered) -> Vec<Transaction> {
    let mut transactions = Vec::new();
    while let Some(transaction) = recovered.next_transaction().await.unwrap() {
        transactions.push(transaction);
    }
    transactions
}

async fn open(env: &Env, disk: &Disk) -> (Vec<Transaction>, Journal) {
    let mut recovered = recover(env, disk).await.unwrap();
    let transactions = redo(&mut recovered).await;
    (transactions, recovered.open().await.unwrap())
}

async fn fresh(env: &Env, ring_sectors: u64) -> (Disk, Journal) {
    let disk = disk(env, ring_sectors).await;
    Journal::format(env, &disk, TARGET, 1).await.unwrap();
    let (_, journal) = open(env, &disk).await;
    (disk, journal)
}

async fn commit(journal: &Journal, payload: &[u8]) -> Transaction {
    let end = journal.append(payload).unwrap();
    assert!(journal.write_out().await.unwrap() >= end);
    Transaction { end, payload: Bytes::copy_from_slice(payload) }
}

fn on_a_node<F: Future<Output = ()>>(body: impl FnOnce(Sim, NodeId, Env) -> F) {
    on_a_node_of(1, body);
}

fn on_a_node_of<F: Future<Output = ()>>(seed: u64, body: impl FnOnce(Sim, NodeId, Env) -> F) {
    let sim = Sim::new(seed);
    let node = sim.add_node("server");
    let env = sim.env(node);
    sim.block_on(body(sim.clone(), node, env));
}

/// The kind of the error in `result`.
fn kind<T>(result: JournalResult<T>) -> JournalErrorKind {
    result.err().expect("an error").kind
}

#[test]
fn real_and_simulated_disks_give_back_what_was_committed() {
    on_both(|env| async move {
        let dir = scratch_dir(&env);
        let create_bytes = Some(RING_START + 64 * SECTOR);
        let options = OpenDisk { create_bytes, prewrite: true, ..OpenDisk::default() };
        let disk = env.open_disk(&format!("{dir}/journal"), options).await.unwrap();
        Journal::format(&env, &disk, TARGET, 1).await.unwrap();
        let mut last = Vec::new();
        for lap in 0..5u8 {
            let (redone, journal) = open(&env, &disk).await;
            assert!(redone == last);
            journal.set_checkpoint(journal.position(), None, Bytes::new()).await.unwrap();
            last = vec![commit(&journal, &[lap; 100_000]).await, commit(&journal, &[lap; 10]).await];
            journal.attest_clean().await.unwrap();
        }
        assert!(recover(&env, &disk).await.unwrap().clean);
    });
}

#[test]
fn committed_transactions_are_redone_after_a_power_cut() {
    on_a_node(|sim, node, env| async move {
        let (_, journal) = fresh(&env, 64).await;
        let mut committed = Vec::new();
        for length in [10, 5000, 100_000, 0] {
            committed.push(commit(&journal, &vec![length as u8; length]).await);
        }
        journal.append(b"never written").unwrap();
        sim.power_cut(node);
        let env = sim.env(node);
        let disk = disk(&env, 64).await;
        let (redone, journal) = open(&env, &disk).await;
        assert!(redone == committed);
        assert_eq!(journal.incarnation().0, 2);
    });
}

/// start |X| before the first commit
#[test]
fn an_incarnation_once_opened_is_never_opened_again() {
    on_a_node(|sim, node, env| async move {
        let (_, journal) = fresh(&env, 16).await;
        assert_eq!(journal.incarnation().0, 1);
        sim.power_cut(node);
        let env = sim.env(node);
        let disk = disk(&env, 16).await;
        assert_eq!(open(&env, &disk).await.1.incarnation().0, 2);
    });
}

/// commit |X| SIGKILL with the write in the drive's cache, restart |X| power cut
#[test]
fn records_accepted_by_a_restart_survive_a_power_cut_though_they_were_not_flushed() {
    on_a_node(|sim, node, env| async move {
        let (_, journal) = fresh(&env, 16).await;
        let before = sim.disk_image(node, PATH);
        let committed = commit(&journal, b"written, not flushed").await;
        let at = RING_START + committed.end.0 - SECTOR;
        let record = Bytes::from(sim.disk_image(node, PATH).read(at, SECTOR as usize));
        sim.power_cut(node);
        sim.set_disk_image(node, PATH, before);
        let again = sim.env(node);
        let cached = disk(&again, 16).await;
        cached.write(at, vec![record]).await.unwrap();
        assert!(open(&again, &cached).await.0 == std::slice::from_ref(&committed));
        for _ in 0..8 {
            sim.power_cut(node); // loses, by chance, what was not flushed
            let env = sim.env(node);
            let disk = disk(&env, 16).await;
            let mut recovered = recover(&env, &disk).await.unwrap();
            assert!(redo(&mut recovered).await == std::slice::from_ref(&committed));
        }
    });
}

#[test]
fn an_anchor_names_what_was_durable_beyond_its_checkpoint() {
    on_a_node(|sim, node, env| async move {
        let (disk, journal) = fresh(&env, 16).await;
        let checkpoint = journal.position();
        commit(&journal, b"damaged").await;
        journal.set_checkpoint(checkpoint, None, Bytes::new()).await.unwrap();
        sim.disk_fault(node, PATH, Fault::Rot { offset: RING_START + checkpoint.lsn.0 + 100, bits: 1 });
        assert_eq!(kind(recover(&env, &disk).await), JournalErrorKind::Corrupt);
    });
}

#[test]
fn a_checkpoint_ends_redo_and_frees_the_ring() {
    on_a_node(|_, _, env| async move {
        let (disk, journal) = fresh(&env, 16).await;
        let root = RootLocation { slab: 1, epoch: 2, offset: 4096, bytes: 100, sum: 7 };
        let mut last = Vec::new();
        for lap in 0..20u8 {
            while journal.room_for(5000) {
                journal.append(&[lap; 5000]).unwrap();
            }
            assert!(journal.used_fraction() > 0.5);
            journal.set_checkpoint(journal.position(), Some(root), Bytes::from(vec![lap; 3072])).await.unwrap();
            assert_eq!(journal.used_bytes(), 0);
            last = vec![commit(&journal, &[lap; 6000]).await];
        }
        let mut recovered = recover(&env, &disk).await.unwrap();
        assert_eq!((recovered.anchor.root, &recovered.anchor.extra[..]), (Some(root), &[19; 3072][..]));
        assert!(redo(&mut recovered).await == last);
    });
}

/// Several callers commit at once; then a power cut at every point of the disk's history.
#[test]
fn every_crash_point_of_concurrent_commits_recovers_a_prefix() {
    for seed in 0..6 {
        let sim = Sim::new(seed);
        let node = sim.add_node("server");
        sim.record_disk(node, PATH);
        let env = sim.env(node);
        let appended = sim.block_on(concurrent_commits(env));
        let mut recorder = sim.crash_images(node, &[PATH]);
        for point in 0..recorder.points() {
            for tear in
                [TearChoice::AllLost, TearChoice::AllKept, TearChoice::Random(seed), TearChoice::Random(seed + 99)]
            {
                let image = recorder.image(point, tear).remove(0);
                let words = format!("seed {seed}, point {point} ({}), {tear:?}", recorder.describe(point));
                let sim = Sim::new(0);
                let node = sim.add_node("reader");
                sim.set_disk_image(node, PATH, image);
                let env = sim.env(node);
                sim.block_on(assert_prefix(env, &appended, &words));
            }
        }
    }
}

async fn concurrent_commits(env: Env) -> Vec<Transaction> {
    let (_, journal) = fresh(&env, 32).await;
    let mut appended = Vec::new();
    let mut commits = Vec::new();
    for i in 0..24u8 {
        let payload = vec![i; usize::from(i % 7) * 3000];
        if !journal.room_for(payload.len() as u64) {
            journal.set_checkpoint(journal.position(), None, Bytes::new()).await.unwrap();
        }
        let end = journal.append(&payload).unwrap();
        appended.push(Transaction { end, payload: payload.into() });
        let journal = journal.clone();
        commits.push(env.spawn(async move { assert!(journal.write_out().await.unwrap() >= end) }));
        if i % 3 == 0 {
            env.sleep(Duration::from_micros(30)).await;
        }
    }
    for commit in commits {
        commit.await.unwrap();
    }
    journal.attest().await.unwrap();
    appended
}

async fn assert_prefix(env: Env, appended: &[Transaction], words: &str) {
    let disk = disk(&env, 32).await;
    let mut recovered = match recover(&env, &disk).await {
        Ok(recovered) => recovered,
        // Format was cut short: there is no journal yet.
        Err(error) if error.message.contains("no intact anchor") => return,
        Err(error) => panic!("{words}: {error}"),
    };
    let checkpoint = recovered.anchor.checkpoint.lsn;
    let since: Vec<Transaction> = appended.iter().filter(|t| t.end > checkpoint).cloned().collect();
    assert!(recovered.highest_durable <= recovered.cut);
    let redone = redo(&mut recovered).await;
    assert!(since.starts_with(&redone), "{words}");
    let journal = recovered.open().await.unwrap();
    let full = !journal.room_for(12);
    if full {
        journal.set_checkpoint(journal.position(), None, Bytes::new()).await.unwrap();
    }
    let last = commit(&journal, b"life goes on").await;
    let again = open(&env, &disk).await.0;
    assert!(again.split_last() == Some((&last, if full { &[] } else { &redone[..] })), "{words}");
}

#[test]
fn a_write_out_whose_caller_goes_away_completes_all_the_same() {
    on_a_node(|_, _, env| async move {
        let (_, journal) = fresh(&env, 16).await;
        let end = journal.append(b"x").unwrap();
        assert!(env.timeout(Duration::ZERO, journal.write_out()).await.is_err());
        env.sleep(Duration::from_millis(10)).await;
        assert_eq!(journal.durable(), end);
        commit(&journal, b"y").await;
    });
}

#[test]
fn a_medium_error_on_a_write_stops_the_journal_for_good() {
    on_a_node(|sim, node, env| async move {
        let (disk, journal) = fresh(&env, 16).await;
        let committed = commit(&journal, b"committed").await;
        sim.disk_fault(node, PATH, Fault::WriteEio { range: 0..RING_START + 16 * SECTOR });
        journal.append(b"refused").unwrap();
        assert_eq!(kind(journal.write_out().await), JournalErrorKind::Medium);
        sim.clear_disk_faults(node, PATH);
        assert_eq!(kind(journal.write_out().await), JournalErrorKind::Stopped);
        assert_eq!(kind(journal.append(b"x")), JournalErrorKind::Stopped);
        assert_eq!(kind(journal.attest_clean().await), JournalErrorKind::Stopped);
        assert_eq!(
            kind(journal.set_checkpoint(journal.position(), None, Bytes::new()).await),
            JournalErrorKind::Stopped
        );
        assert_eq!(journal.durable(), committed.end);
        assert!(open(&env, &disk).await.0 == [committed]);
    });
}

#[test]
fn a_medium_error_on_an_anchor_stops_the_journal_and_leaves_the_one_before() {
    on_a_node(|sim, node, env| async move {
        let (disk, journal) = fresh(&env, 16).await;
        let committed = commit(&journal, b"committed").await;
        sim.disk_fault(node, PATH, Fault::WriteEio { range: 0..RING_START });
        assert_eq!(
            kind(journal.set_checkpoint(journal.position(), None, Bytes::new()).await),
            JournalErrorKind::Medium
        );
        assert_eq!(kind(journal.append(b"x")), JournalErrorKind::Stopped);
        sim.clear_disk_faults(node, PATH);
        assert!(open(&env, &disk).await.0 == [committed]);
    });
}

#[test]
fn a_failed_flush_stops_the_journal_for_good() {
    on_a_node(|sim, node, env| async move {
        let (_, journal) = fresh(&env, 16).await;
        let durable = journal.durable();
        sim.disk_fault(node, PATH, Fault::FlushFails);
        journal.append(b"in doubt").unwrap();
        assert_eq!(kind(journal.write_out().await), JournalErrorKind::FlushFailed);
        assert_eq!(kind(journal.write_out().await), JournalErrorKind::Stopped);
        assert_eq!(journal.durable(), durable);
    });
}

/// commit, flush fails, SIGKILL; start: the record can be read, and later flushes succeed |X| power cut: what was
/// accepted is there
#[test]
fn records_in_doubt_after_a_failed_flush_are_rewritten_before_they_count() {
    for seed in 0..40 {
        on_a_node_of(seed, |sim, node, env| async move {
            let (_, journal) = fresh(&env, 64).await;
            let mut committed = vec![commit(&journal, b"durable").await];
            sim.disk_fault(node, PATH, Fault::FlushFails);
            journal.append(&vec![7; 50_000]).unwrap();
            assert_eq!(kind(journal.write_out().await), JournalErrorKind::FlushFailed);
            let (accepted, journal) = open(&env, &self::disk(&env, 64).await).await;
            committed.push(commit(&journal, b"built upon it").await);
            sim.power_cut(node);
            let env = sim.env(node);
            let again = self::disk(&env, 64).await;
            let expected: Vec<_> = accepted.iter().chain(&committed[1..]).cloned().collect();
            assert!(open(&env, &again).await.0 == expected, "seed {seed}");
        });
    }
}

/// checkpoint, flush of its anchor fails, SIGKILL; start: that anchor counts, the ring before it is reused |X| power
/// cut
#[test]
fn an_anchor_that_a_failed_flush_left_in_doubt_is_written_again_before_it_counts() {
    for seed in 0..40 {
        on_a_node_of(seed, |sim, node, env| async move {
            let (_, journal) = fresh(&env, 16).await;
            commit(&journal, &vec![1; 40_000]).await;
            sim.disk_fault(node, PATH, Fault::FlushFails);
            let anchored = journal.set_checkpoint(journal.position(), None, Bytes::new()).await;
            assert_eq!(kind(anchored), JournalErrorKind::FlushFailed);
            let (accepted, journal) = open(&env, &self::disk(&env, 16).await).await;
            let mut expected = accepted;
            while expected.len() < 4 && journal.room_for(10_000) {
                expected.push(commit(&journal, &vec![2; 10_000]).await);
            }
            sim.power_cut(node);
            let env = sim.env(node);
            let again = self::disk(&env, 16).await;
            assert!(open(&env, &again).await.0 == expected, "seed {seed}");
        });
    }
}

#[test]
fn a_sector_that_cannot_be_read_is_a_bad_record() {
    on_a_node(|sim, node, env| async move {
        let (disk, journal) = fresh(&env, 16).await;
        let first = commit(&journal, b"first").await;
        let second = commit(&journal, b"second").await;
        let unreadable = |lsn: Lsn| {
            let at = RING_START + lsn.0;
            sim.clear_disk_faults(node, PATH);
            sim.disk_fault(node, PATH, Fault::ReadEio { range: at..at + 1 });
        };
        unreadable(first.end); // the second record: nothing names it durable yet
        assert!(open(&env, &disk).await.0 == std::slice::from_ref(&first));
        sim.clear_disk_faults(node, PATH);
        let (_, journal) = open(&env, &disk).await;
        let third = commit(&journal, b"third").await;
        journal.attest().await.unwrap();
        unreadable(Lsn(first.end.0 - SECTOR));
        let error = recover(&env, &disk).await.err().unwrap();
        assert_eq!(error.kind, JournalErrorKind::Corrupt);
        assert!(error.message.contains("cannot read it"), "{error}");
        assert!(third.end > second.end);
    });
}

#[test]
fn an_unreadable_anchor_leaves_the_other_and_two_are_a_medium_error() {
    on_a_node(|sim, node, env| async move {
        let (disk, journal) = fresh(&env, 16).await;
        journal.set_checkpoint(journal.position(), None, Bytes::new()).await.unwrap();
        sim.disk_fault(node, PATH, Fault::ReadEio { range: 0..1 });
        assert_eq!(recover(&env, &disk).await.unwrap().anchor.seq, 2);
        sim.disk_fault(node, PATH, Fault::ReadEio { range: 0..RING_START });
        assert_eq!(kind(recover(&env, &disk).await), JournalErrorKind::Medium);
    });
}

#[test]
fn a_lost_write_beneath_a_later_one_is_corruption() {
    on_a_node(|sim, node, env| async move {
        let (disk, journal) = fresh(&env, 16).await;
        sim.disk_fault(node, PATH, Fault::LoseNextWrite);
        commit(&journal, b"acknowledged by a lying device").await;
        commit(&journal, b"names it durable").await;
        assert_eq!(kind(recover(&env, &disk).await), JournalErrorKind::Corrupt);
    });
}

#[test]
fn idleness_is_attested_once_and_a_clean_stop_is_told() {
    on_a_node(|_, _, env| async move {
        let (disk, journal) = fresh(&env, 16).await;
        commit(&journal, b"x").await;
        let attested = journal.attest().await.unwrap();
        assert_eq!(journal.attest().await.unwrap(), attested);
        assert!(!recover(&env, &disk).await.unwrap().clean);
        journal.attest_clean().await.unwrap();
        let recovered = recover(&env, &disk).await.unwrap();
        assert!(recovered.clean && !recovered.torn_tail);
    });
}

#[test]
fn the_wrong_device_is_refused_with_words() {
    on_a_node(|_, _, env| async move {
        let (disk, _) = fresh(&env, 16).await;
        let as_other = |target, generation| {
            let (env, disk) = (env.clone(), disk.clone());
            async move { Journal::recover(&env, &disk, target, generation, Lsn(0)).await.err().unwrap() }
        };
        let error = as_other(Uuid([9; 16]), 1).await;
        assert_eq!(error.kind, JournalErrorKind::Foreign);
        assert!(error.message.contains(&TARGET.to_string()), "{error}");
        assert_eq!(as_other(TARGET, 2).await.kind, JournalErrorKind::Foreign);
        let small = env.open_disk("/small", OpenDisk { create_bytes: Some(16 * SECTOR), ..OpenDisk::default() }).await;
        assert_eq!(kind(Journal::format(&env, &small.unwrap(), TARGET, 1).await), JournalErrorKind::Invalid);
    });
}

/// format, commits |X| format again
#[test]
fn formatting_again_forgets_what_was_there() {
    on_a_node(|_, _, env| async move {
        let (disk, journal) = fresh(&env, 16).await;
        commit(&journal, b"old").await;
        journal.set_checkpoint(journal.position(), None, Bytes::new()).await.unwrap();
        commit(&journal, b"older anchor's").await;
        Journal::format(&env, &disk, TARGET, 1).await.unwrap();
        let (redone, journal) = open(&env, &disk).await;
        assert!(redone.is_empty());
        assert_eq!((journal.incarnation().0, journal.position().lsn), (1, Lsn(SECTOR)));
    });
}
