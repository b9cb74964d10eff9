//! A journal that is corrupted or truncated while a target is down. Committed changes are never dropped silently: the
//! target refuses to start, says what to do, and leaves its bytes unchanged. A tail that was torn by the crash itself
//! is cut off.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;

use crate::common::{
    journal::Journal,
    mounts::soon,
    site::Site,
    words,
    writer::{self, Busy},
};

/// A site whose servers were killed under load, after a client had synced `synced` files. The client crashed, too.
struct Crashed {
    site: Site,
    synced: u64,
}

impl Crashed {
    fn new(name: &str) -> Self {
        let site = Site::new(name);
        site.comes_up();
        let busy = Busy::start(&site.mgs());
        busy.reach(40);
        site.kill();
        let synced = busy.die();
        Self { site, synced }
    }

    fn journal(&self, target: &str) -> PathBuf {
        self.site.path(target).join("journal")
    }

    /// `up` and fsck must refuse with a message that says what to do, and leave every byte unchanged. Then the damage
    /// is undone.
    fn is_refused(&self, target: &str, damage: &str, rotten: &[u8], whole: &[u8]) {
        let path = self.journal(target);
        fs::write(&path, rotten).expect("damaged");
        let before = Touched::of(&self.site.path(target));
        let output = self.site.up();
        let said = words(&output);
        assert_eq!(output.status.code(), Some(1), "{target}, {damage}: {said}");
        for word in [target, "journal", "not served", "forebay fsck", "bring back a copy"] {
            assert!(said.contains(word), "{target}, {damage}: no '{word}' in {said}");
        }
        for flags in [&[][..], &["--repair"]] {
            let (code, said) = self.site.fsck(target, flags);
            assert_eq!(code, Some(4), "{target}, {damage}, {flags:?}: {said}");
            assert!(said.contains("do not serve the target"), "{target}, {damage}: {said}");
            assert!(!said.contains("--repair mends"), "it does not: {target}, {damage}: {said}");
        }
        assert!(fs::read(&path).expect("there") == rotten, "{target}, {damage}: the journal was touched");
        assert_eq!(Touched::of(&self.site.path(target)), before, "{target}, {damage}");
        fs::write(&path, whole).expect("brought back");
    }

    /// The site starts, and has all files that were synced.
    fn is_whole(&self) {
        self.site.comes_up();
        writer::all_there(&self.site.mgs(), self.synced);
        self.site.down();
        let (code, said) = self.site.fsck("", &["--verify-data"]);
        assert_eq!(code, Some(0), "{said}");
    }
}

/// Sizes and times of a target's files: changed by any write.
#[derive(Debug, PartialEq, Eq)]
struct Touched(Vec<(u64, i64, i64)>);

impl Touched {
    fn of(dir: &Path) -> Self {
        let one = |name| {
            let meta = fs::metadata(dir.join(name)).expect("it is there");
            (meta.len(), meta.mtime(), meta.mtime_nsec())
        };
        Self(["identity", "data", "journal"].map(one).into())
    }
}

/// Every kind of damage to what `target` had committed is refused. (A site for each target: an undamaged target starts
/// meanwhile, and leaves an empty journal.)
fn refuses_damage(name: &str, target: &str) {
    let crashed = Crashed::new(name);
    let journal = Journal::read(&crashed.journal(target));
    let transactions: Vec<_> = journal.records.iter().filter(|record| record.is_transaction).collect();
    assert!(transactions.len() >= 15, "{} transactions are not in a checkpoint", transactions.len());
    let (first, middle) = (transactions[0], transactions[transactions.len() / 2]);
    // The last transaction that a later record attests as durable.
    let durable = journal.records.iter().map(|record| record.durable).max().expect("records");
    let last = transactions.iter().rfind(|record| record.lsn < durable).expect("one");
    let older = journal.bytes[first.offset..first.offset + first.bytes].to_vec();
    for (damage, rotten) in [
        ("a bit in the middle", journal.flipped(middle.offset + 120)),
        ("a bit in the padding", journal.flipped(middle.offset + middle.bytes - 1)),
        ("a bit in the last one durable", journal.flipped(last.offset + 120)),
        ("an older record in the middle", journal.with(middle.offset, &older)),
        ("zeros from the middle on", journal.with(middle.offset, &vec![0; last.offset - middle.offset])),
    ] {
        crashed.is_refused(target, damage, &rotten, &journal.bytes);
    }
    crashed.is_whole();
}

#[test]
fn damage_to_what_an_ost_committed_is_refused_and_nothing_is_touched() {
    refuses_damage("rotten-ost", "OST0000");
}

#[test]
fn damage_to_what_the_mdt_committed_is_refused_and_nothing_is_touched() {
    refuses_damage("rotten-mdt", "MDT0000");
}

#[test]
fn a_journal_cut_short_is_refused_and_nothing_is_touched() {
    let crashed = Crashed::new("cut-journal");
    for target in ["OST0001", "MDT0000"] {
        let path = crashed.journal(target);
        let journal = Journal::read(&path);
        let middle = journal.records[journal.records.len() / 2];
        for (what, length) in [("within", middle.offset), ("behind", journal.end + (64 << 10)), ("to nothing", 0)] {
            fs::write(&path, &journal.bytes[..length]).expect("cut");
            let before = Touched::of(&crashed.site.path(target));
            crashed.site.refuses(target);
            let (code, said) = crashed.site.fsck(target, &[]);
            assert!(matches!(code, Some(4 | 8)) && said.contains("journal"), "{target}, {what}: {code:?} {said}");
            assert_eq!(Touched::of(&crashed.site.path(target)), before, "{target}, {what}");
        }
        fs::write(&path, &journal.bytes).expect("brought back");
    }
    crashed.is_whole();
}

#[test]
fn a_tail_torn_by_the_crash_is_cut_off_and_what_was_synced_is_there() {
    let crashed = Crashed::new("torn");
    for target in ["OST0000", "MDT0000"] {
        let path = crashed.journal(target);
        let journal = Journal::read(&path);
        // The record that was being written: its first half is new, its second half is the previous content.
        let like = journal.records.iter().rfind(|record| record.is_transaction).expect("one");
        let mut torn = journal.bytes[like.offset..like.offset + 2048].to_vec();
        torn[32..40].copy_from_slice(&(like.lsn + (journal.end - like.offset) as u64).to_le_bytes());
        fs::write(&path, journal.with(journal.end, &torn)).expect("torn");
    }
    crashed.is_whole();
    assert_eq!(crashed.site.log().matches("a torn record at its end was dropped").count(), 2, "{}", crashed.site.log());
}

/// For a moment nothing on disk attests the last commit before a crash. A client that was notified of the commit knows
/// of it.
#[test]
fn a_client_that_was_told_of_a_commit_does_not_let_it_vanish() {
    // The server attests a commit 100 ms later. On a busy machine a kill may come after that.
    let told = (0..10).find_map(|attempt| damaged_before_it_was_attested(&format!("told-{attempt}")));
    let (site, said, code, ost) = told.expect("a kill within 100 ms of a commit");
    assert_eq!(code, Some(1), "{said}");
    for word in [&ost[..], "lost committed changes", "bring back the newest", "umount --force"] {
        assert!(said.contains(word), "no '{word}' in {said}");
    }
    // The client is gone: as the message said, the target starts without these changes.
    site.comes_up();
    site.down();
    site.is_well();
}

/// A file is synced, its OST killed, and the record of the commit damaged; the OST stops when the client is back. The
/// site, what `status` says then with its exit code, and the OST. `None` if the commit was attested before the kill.
fn damaged_before_it_was_attested(name: &str) -> Option<(Site, String, Option<i32>, String)> {
    let site = Site::new(name);
    site.comes_up();
    // The MDT's session with the OST is a change, too. It must not be the last one.
    let is_connected = |target: &Value| target["kind"] != "ost" || target["sessions"] == 1;
    assert!(soon(|| site.status().0["targets"].as_array().expect("targets").iter().all(is_connected)));
    let mgs = site.mgs();
    let done = writer::with_client(&mgs, Duration::from_secs(60), |client, env| async move {
        writer::write_synced(&client, 0).await.expect("synced");
        let ost = format!("OST{:04x}", writer::ost_of(&client, 0).await);
        site.kill();
        let path = site.path(&ost).join("journal");
        let journal = Journal::read(&path);
        let last = *journal.records.last().expect("a record");
        if !last.is_transaction || last.durable > last.lsn {
            return None;
        }
        fs::write(&path, journal.flipped(last.offset + 120)).expect("damaged");
        site.comes_up();
        let mut status = site.status();
        while !status.0["targets"].as_array().expect("targets").iter().any(|target| target["state"] == "stopped") {
            env.sleep(Duration::from_millis(100)).await;
            status = site.status();
        }
        Some((site, status.1, status.2, ost))
    });
    done.expect("within a minute")
}
