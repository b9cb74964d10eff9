//! Block devices that fail with EIO, or have no space behind them. No program gets a false success. The server says
//! what happened and what to do. What was synced before is there afterwards, and so is all space.
//!
//! Needs root and devices of the kernel (see `common/device.rs`); without them a test says so and is skipped.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

use std::time::Duration;

use crate::common::{
    device::{Small, Zram},
    forebay,
    site::Site,
    words,
    writer::{self, Busy},
};
use forebay_client::{ClientResult, parse_layout};
use forebay_proto::{Errno, Fid};
use serde_json::Value;

const MIB: u64 = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(60);

/// The state of target `name` in the output of `status`.
fn target<'s>(status: &'s Value, name: &str) -> &'s Value {
    let targets = status["targets"].as_array().expect("targets");
    targets.iter().find(|target| target["name"] == name).expect("it is listed")
}

/// Waits until `name` has stopped. `status` and the log must say so, with the reason and what to do.
fn says_why_it_stopped(site: &Site, name: &str, device: &str) {
    let began = std::time::Instant::now();
    let (status, said, code) = loop {
        let all = site.status();
        if target(&all.0, name)["state"] == "stopped" {
            break all;
        }
        assert!(began.elapsed() < TIMEOUT, "{name} does not stop: {}\n{}", all.1, site.log());
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(code, Some(1), "{said}");
    let reason = target(&status, name)["reason"].as_str().expect("a reason").to_owned();
    for word in [name, device, "Input/output error", "once its device is well"] {
        assert!(reason.contains(word) && said.contains(word), "no '{word}' in {said}");
    }
    assert!(said.contains("`forebay up` starts it again"), "{said}");
    assert!(site.log().contains(&reason), "{}", site.log());
}

/// Syncs files of `numbers` until one fails. Returns that number and the outcome.
async fn sync_until_it_fails(
    client: &forebay_client::Client,
    numbers: std::ops::Range<u64>,
) -> (u64, ClientResult<()>) {
    for number in numbers.clone() {
        if let Err(error) = writer::write_synced(client, number).await {
            return (number, Err(error));
        }
    }
    (numbers.end, Ok(()))
}

/// A device whose writes fail while a program writes. The program waits, and every reply that it got is true. When the
/// device works again and `up` was called, the program continues without an error.
fn waits_and_goes_on(name: &str, sick: &Zram, site: &Site) {
    site.comes_up();
    let busy = Busy::start(&site.mgs());
    busy.reach(10);
    sick.fail_writes();
    says_why_it_stopped(site, name, &sick.path());
    let synced = busy.synced();
    let output = site.up();
    let said = words(&output);
    for word in [name, "Input/output error", &sick.path(), "check the device"] {
        assert!(said.contains(word), "still sick: no '{word}' in {said}");
    }
    match output.status.success() {
        // A start writes only to the journal: a failing data device is noticed at the first write.
        true => says_why_it_stopped(site, name, &sick.path()),
        false => assert!(said.contains("did not start"), "{said}"),
    }
    assert_eq!(busy.synced(), synced, "nothing can have been synced meanwhile");
    sick.heal();
    site.comes_up();
    busy.reach(synced + 10);
    let synced = busy.die();
    writer::all_there(&site.mgs(), synced);
    site.down();
    let (code, said) = site.fsck("", &["--verify-data"]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn an_ost_whose_journal_answers_eio_stops_and_all_goes_on_when_it_is_well() {
    let Some((data, journal)) = Zram::new(256 * MIB).zip(Zram::new(16 * MIB)) else { return };
    let site = Site::new("ost-journal-eio");
    site.put_on("OST0000", &data.path(), &journal.path());
    waits_and_goes_on("OST0000", &journal, &site);
}

#[test]
fn an_ost_whose_data_device_answers_eio_stops_and_keeps_its_space() {
    let Some((data, journal)) = Zram::new(256 * MIB).zip(Zram::new(16 * MIB)) else { return };
    let site = Site::new("ost-data-eio");
    site.put_on("OST0000", &data.path(), &journal.path());
    let total = |site: &Site| target(&site.status().0, "OST0000")["space"]["total_bytes"].as_u64().expect("a number");
    site.comes_up();
    let before = total(&site);
    site.down();
    waits_and_goes_on("OST0000", &data, &site);
    site.comes_up();
    assert_eq!(total(&site), before, "no slab was given up for a device that was sick as a whole");
    site.down();
}

#[test]
fn an_mdt_whose_journal_answers_eio_stops_and_all_goes_on_when_it_is_well() {
    let Some((data, journal)) = Zram::new(128 * MIB).zip(Zram::new(16 * MIB)) else { return };
    let site = Site::new("mdt-journal-eio");
    site.put_on("MDT0000", &data.path(), &journal.path());
    waits_and_goes_on("MDT0000", &journal, &site);
}

#[test]
fn a_thin_device_without_room_answers_enospc_and_takes_more_when_it_grows() {
    let site = Site::new("thin");
    let Some(data) = Small::file(&site.scratch, 256 * MIB, 12 * MIB) else { return };
    let journal = site.path("OST0000.journal");
    site.put_on("OST0000", &data.path(), journal.to_str().expect("UTF-8"));
    site.comes_up();
    // Otherwise the following writes would go to the other OST.
    let pool = forebay().args(["pool", "new", site.scratch.path(), "thin", "OST0000"]).output().expect("it runs");
    assert!(pool.status.success(), "{}", words(&pool));
    let fill = |from: u64| {
        let filled = writer::with_client(&site.mgs(), TIMEOUT, |client, _| async move {
            let thin = parse_layout(b"-p thin").expect("a layout");
            client.set_layout(&writer::root(), Fid::ROOT, thin).await.expect("set");
            let (failed, outcome) = sync_until_it_fails(&client, from..from + 400).await;
            (failed, outcome.map_err(|error| error.errno))
        });
        filled.expect("it does not hang")
    };
    let (failed, outcome) = fill(0);
    assert_eq!(outcome, Err(Errno::ENOSPC), "after {failed} files");
    assert!(failed > 20, "{failed}");
    for word in ["OST0000", &data.path(), "No space left", "free space in the file system under it"] {
        assert!(site.log().contains(word), "no '{word}' in {}", site.log());
    }
    writer::all_there(&site.mgs(), failed);
    data.grow();
    // If the store itself had something to write, it retries at intervals, and refuses writes until it succeeds.
    let begun = std::time::Instant::now();
    let (mut next, mut filled) = (failed + 1, fill(failed + 1));
    while filled == (next, Err(Errno::ENOSPC)) && begun.elapsed() < TIMEOUT {
        std::thread::sleep(std::time::Duration::from_millis(500));
        next += 1;
        filled = fill(next);
    }
    assert_eq!(filled, (next + 400, Ok(())), "{}", site.log());
    site.down();
    let (code, said) = site.fsck("", &["--verify-data"]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn bytes_that_a_device_cannot_read_are_eio_and_the_rest_is_served() {
    let site = Site::new("unreadable");
    let Some(data) = Small::device(&site.scratch, 128 * MIB) else { return };
    let journal = site.path("OST0000.journal");
    site.put_on("OST0000", &data.path(), journal.to_str().expect("UTF-8"));
    site.comes_up();
    let busy = Busy::start(&site.mgs());
    busy.reach(200);
    let synced = busy.die();
    // The device fails with EIO from the head of a file in the middle on.
    let lost = (synced / 2..synced).find_map(|number| data.find(&writer::head(number))).expect("one lies there");
    let kept = std::fs::read(data.backing()).expect("a copy");
    data.cut(lost);
    let outcomes = writer::with_client(&site.mgs(), TIMEOUT, |client, _| async move {
        let mut outcomes = Vec::new();
        for number in 0..synced {
            outcomes.push(writer::read_back(&client, number).await.map_err(|error| error.errno));
        }
        outcomes
    });
    let outcomes = outcomes.expect("it does not hang");
    let count = |wanted: Result<bool, Errno>| outcomes.iter().filter(|outcome| **outcome == wanted).count() as u64;
    let (right, failed) = (count(Ok(true)), count(Err(Errno::EIO)));
    assert!(right > synced / 4 && failed > 0 && right + failed == synced, "{outcomes:?}");
    site.kill();
    let (code, said) = site.fsck("OST0000", &["--verify-data"]);
    assert!(code == Some(4) && said.contains("Input/output error") && said.contains("replace the device"), "{said}");
    std::fs::write(data.backing(), kept).expect("brought back");
    site.comes_up();
    writer::all_there(&site.mgs(), synced);
    site.down();
}
