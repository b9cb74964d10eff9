//! Journals on separate devices: shared by several targets, moved, lost. User errors are refused with a message that
//! says what to do, and lose no data.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, Instant},
};

use forebay_client::OpenMode;
use forebay_proto::Errno;

use crate::common::{
    forebay, json,
    site::Site,
    words,
    writer::{self, Busy},
};

const MINUTE: Duration = Duration::from_secs(60);

fn blank(path: &Path, mib: u64) {
    File::create(path).expect("made").set_len(mib << 20).expect("room");
}

/// The command `format ost` for the stopped target `name`, with `flags`.
fn format(site: &Site, name: &str, flags: &[&str]) -> Command {
    let map = fs::read_to_string(site.path("cluster.toml")).expect("a description");
    let cluster = map.split('"').nth(1).expect("its uuid").to_owned();
    let index = name.trim_start_matches("OST").parse::<u32>().expect("a number").to_string();
    let mut command = forebay();
    command.args(["format", "ost", "--index", &index, "--cluster", &cluster, "--size", "128MiB"]);
    command.args(flags).arg(site.path(name));
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &words(output)
}

fn works(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{command:?}: {}", words(&output));
    said(&output)
}

/// The command must end with exit code `code` (2: the arguments are wrong) and these words.
fn is_refused(command: &mut Command, code: i32, expected: &[&str]) {
    let output = command.output().expect("it runs");
    assert_eq!(output.status.code(), Some(code), "{command:?}: {}", words(&output));
    for word in expected {
        assert!(words(&output).contains(word), "{command:?}: no '{word}' in {}", words(&output));
    }
}

fn journal(arguments: &[&str], paths: &[&Path]) -> Command {
    let mut command = forebay();
    command.arg("journal").args(arguments).args(paths);
    command
}

fn slots(device: &Path) -> Vec<(String, u64)> {
    let told = json(&mut journal(&["list", "--json"], &[device]));
    let slots = told["slots"].as_array().expect("slots").iter();
    slots
        .map(|slot| (slot["name"].as_str().expect("a name").to_owned(), slot["bytes"].as_u64().expect("bytes")))
        .collect()
}

/// A site whose two OSTs have their journals on one device, made by two formats in parallel.
fn shared(name: &str) -> (Site, PathBuf) {
    let site = Site::new(name);
    let device = site.path("fast");
    blank(&device, 40);
    let flags = ["--journal", device.to_str().expect("UTF-8"), "--journal-size", "8MiB"];
    let formats = ["OST0000", "OST0001"].map(|target| {
        fs::remove_dir_all(site.path(target)).expect("removed");
        format(&site, target, &flags).spawn().expect("it runs")
    });
    for mut format in formats {
        assert!(format.wait().expect("it ends").success());
    }
    let mut taken = slots(&device);
    taken.sort();
    assert_eq!(taken, [("OST0000".to_owned(), 8 << 20), ("OST0001".to_owned(), 8 << 20)]);
    (site, device)
}

/// Rewrites files with O_TRUNC, so that truncates lie between the writes. The files of the last round are synced.
fn rewrite(site: &Site, rounds: u8) {
    let written = writer::with_client(&site.mgs(), MINUTE, |client, _| async move {
        for round in 0..rounds {
            for number in 0..8u8 {
                let bytes = vec![round * 8 + number + 1; 50_000 - usize::from(round) * 1000];
                client.write_file(&writer::root(), &format!("/again-{number}"), bytes).await.expect("written");
            }
        }
        client.sync_all().await.expect("synced");
    });
    assert!(written.is_some(), "within a minute");
}

fn is_rewritten(site: &Site, rounds: u8) {
    let read = writer::with_client(&site.mgs(), MINUTE, |client, _| async move {
        for number in 0..8u8 {
            let bytes = client.read_file(&writer::root(), &format!("/again-{number}")).await.expect("read");
            let round = rounds - 1;
            assert_eq!(bytes.len(), 50_000 - usize::from(round) * 1000, "file {number}");
            assert!(bytes.iter().all(|byte| *byte == round * 8 + number + 1), "file {number}");
        }
        // They accept new writes.
        client.write_file(&writer::root(), "/again-0", vec![1; 10]).await.expect("written");
        assert_eq!(client.read_file(&writer::root(), "/again-0").await.expect("read").len(), 10);
    });
    assert!(read.is_some(), "within a minute");
}

fn is_clean(site: &Site) {
    let (code, said) = site.fsck("", &["--verify-data"]);
    assert_eq!(code, Some(0), "{said}");
}

/// Waits until fsck is clean. Objects that a crashed client wrote for files without a committed create are collected
/// half a minute after its end.
fn becomes_clean(site: &Site) {
    let (code, said) = site.fsck("", &["--verify-data"]);
    if code == Some(0) {
        return;
    }
    let wrong: Vec<&str> = said.lines().filter(|line| line.contains(": error: ")).collect();
    assert!(wrong.iter().all(|line| line.contains("leaked-object")), "{said}");
    site.comes_up();
    let collected = || {
        let (status, ..) = site.status();
        let mdt = &status["targets"][0];
        mdt["leased_sequences"] == 0 && mdt["collecting"] == 0
    };
    let begun = Instant::now();
    while !collected() {
        assert!(begun.elapsed() < Duration::from_secs(180), "{}", site.status().0);
        std::thread::sleep(Duration::from_millis(500));
    }
    site.down();
    is_clean(site);
}

#[test]
fn two_osts_share_a_journal_device_and_are_killed_on_it() {
    let (site, device) = shared("share");
    site.comes_up();
    let busy = Busy::start(&site.mgs());
    for files in [15, 30] {
        busy.reach(files);
        site.kill();
        site.comes_up();
    }
    busy.reach(45);
    let synced = busy.die();
    // While the targets are served no journal can be freed or moved.
    let ost = site.path("OST0000");
    let uuid = json(&mut journal(&["list", "--json"], &[&device]))["slots"][0]["target"].clone();
    is_refused(journal(&["free"], &[&device]).arg(uuid.as_str().expect("a uuid")), 1, &["in use"]);
    is_refused(&mut journal(&["move"], &[&ost, &site.path("elsewhere")]), 1, &["stop it first"]);
    site.kill();
    site.comes_up();
    writer::all_there(&site.mgs(), synced);
    site.down();
    is_clean(&site);
}

#[test]
fn a_journal_moves_to_a_device_and_back_and_everything_is_there() {
    let site = Site::new("move");
    let ost = site.path("OST0000");
    let (shared, file, own) = (site.path("shared"), site.path("file"), site.path("OST0000/journal"));
    blank(&shared, 40);
    site.comes_up();
    let busy = Busy::start(&site.mgs());
    busy.reach(10);
    let synced = busy.die();
    site.kill();
    is_refused(&mut journal(&["move"], &[&ost, &shared]), 1, &["not stopped cleanly"]);
    site.comes_up();
    site.down();
    for place in [&shared, &file, &own] {
        let told = works(&mut journal(&["move"], &[&ost, place]));
        assert!(told.contains(place.to_str().expect("UTF-8")), "{told}");
        assert_eq!(own.exists(), *place == own);
        is_refused(&mut journal(&["move"], &[&ost, place]), 1, &["already"]);
        is_clean(&site);
        site.comes_up();
        writer::all_there(&site.mgs(), synced);
        site.down();
    }
    assert_eq!(slots(&shared), []);
    // The bytes that the move left in the file are no longer a journal.
    fs::write(site.path("OST0000/journal.path"), format!("{}\n", file.display())).expect("written");
    site.refuses("no intact anchor");
    fs::remove_file(site.path("OST0000/journal.path")).expect("removed");
    site.is_well();
}

#[test]
fn a_device_that_cannot_hold_a_journal_is_refused_and_not_written() {
    let (site, device) = shared("refused");
    site.is_well();
    let before = fs::read(&device).expect("read");
    let path = device.to_str().expect("UTF-8");
    let fresh = |flags: &[&str]| {
        let mut command = format(&site, "OST0007", flags);
        command.args(["--full-stripe", "4KiB"]);
        command
    };
    // Not enough space; too small.
    is_refused(&mut fresh(&["--journal", path, "--journal-size", "30MiB"]), 1, &["no room", "smaller --journal-size"]);
    is_refused(&mut fresh(&["--journal", path, "--journal-size", "32KiB"]), 1, &["journal", "at least"]);
    // The journal of a target that uses the whole device.
    let whole = site.path("whole");
    works(&mut format(&site, "OST0005", &["--journal", whole.to_str().expect("UTF-8")]));
    let theirs = fs::read(&whole).expect("read");
    for flags in [&[][..], &["--journal-size", "1MiB"]] {
        let mut command = fresh(&["--journal", whole.to_str().expect("UTF-8")]);
        is_refused(command.args(flags), 1, &["holds the journal of target", "--journal-size", "--overwrite-journal"]);
    }
    // A user's file.
    let thesis = site.path("thesis.tex");
    let text = vec![b'x'; 2 << 20];
    fs::write(&thesis, &text).expect("written");
    is_refused(
        &mut fresh(&["--journal", thesis.to_str().expect("UTF-8")]),
        1,
        &["holds something", "--overwrite-journal"],
    );
    is_refused(&mut journal(&["list"], &[&thesis]), 1, &["no directory of slots"]);
    is_refused(&mut journal(&["move"], &[&site.path("OST0000"), &thesis]), 1, &["holds something"]);
    is_refused(&mut journal(&["move"], &[&site.path("OST0000"), &whole]), 1, &["holds the journal of target"]);
    is_refused(&mut journal(&["move"], &[&site.path("OST0000"), &device]), 1, &["already"]);
    assert!(fs::read(&thesis).expect("read") == text && fs::read(&whole).expect("read") == theirs);
    assert!(fs::read(&device).expect("read") == before);
    assert!(!site.path("OST0007/identity").exists());
    // The flag allows overwriting it.
    works(&mut fresh(&["--journal", thesis.to_str().expect("UTF-8"), "--overwrite-journal"]));
    site.is_well();
}

#[test]
fn a_target_with_anothers_journal_is_refused() {
    let (site, device) = shared("anothers");
    let named = site.path("OST0001/journal.path");
    let right = fs::read(&named).expect("a path");
    let (whole, mdt) = (site.path("whole"), site.path("MDT0000/journal"));
    works(&mut format(&site, "OST0005", &["--journal", whole.to_str().expect("UTF-8")]));
    for (wrong, said) in [(&whole, "another journal"), (&mdt, "another journal"), (&site.path("none"), "fsck --repair")]
    {
        fs::write(&named, format!("{}\n", wrong.display())).expect("written");
        site.refuses(said);
        let before = fs::read(wrong).ok();
        let (code, told) = site.fsck("OST0001", &["--repair"]);
        assert!(matches!(code, Some(4 | 8)), "{}: {code:?} {told}", wrong.display());
        assert!(fs::read(wrong).ok() == before, "{}: {told}", wrong.display());
    }
    // A device with slots, but none of this target.
    let other = site.path("other");
    blank(&other, 40);
    works(&mut format(&site, "OST0006", &["--journal", other.to_str().expect("UTF-8"), "--journal-size", "8MiB"]));
    fs::write(&named, format!("{}\n", other.display())).expect("written");
    site.refuses("forebay journal list");
    // Two directories with one journal: the second one is refused.
    fs::write(&named, &right).expect("brought back");
    site.comes_up();
    let twin = site.path("twin");
    fs::create_dir(&twin).expect("made");
    for file in ["identity", "journal.path"] {
        fs::copy(site.path("OST0000").join(file), twin.join(file)).expect("copied");
    }
    fs::write(twin.join("data.path"), format!("{}\n", site.path("OST0000/data").display())).expect("written");
    let mut serve = forebay();
    serve.args(["serve", "--insecure-loopback", "--listen", "tcp:127.0.0.1:0"]).arg(&twin);
    is_refused(&mut serve, 1, &["in use by another process", device.to_str().expect("UTF-8")]);
    site.down();
    site.is_well();
}

#[test]
fn a_lost_journal_is_told_and_made_anew_and_what_was_synced_is_there() {
    let site = Site::new("lost");
    site.comes_up();
    let busy = Busy::start(&site.mgs());
    rewrite(&site, 3);
    busy.reach(60);
    site.kill();
    let synced = busy.die();
    for target in ["OST0000", "OST0001"] {
        fs::remove_file(site.path(target).join("journal")).expect("removed");
    }
    site.refuses("forebay fsck --repair");
    let (code, told) = site.fsck("", &[]);
    assert!(code == Some(4) && told.matches("journal-lost").count() == 2, "{code:?}: {told}");
    assert!(!site.path("OST0000/journal").exists());
    let (code, told) = site.fsck("", &["--repair", "--verify-data"]);
    assert_eq!(code, Some(1), "{told}");
    println!("{told}");
    let missing = told.matches("may-be-missing").count();
    site.comes_up();
    writer::all_there(&site.mgs(), synced);
    is_rewritten(&site, 3);
    site.down();
    becomes_clean(&site);
    println!("{synced} synced files of {} bytes are whole; {missing} listed as perhaps missing", writer::FILE_BYTES);
}

/// Bytes in which no two sectors are the same.
fn noise(length: usize) -> Vec<u8> {
    let step = |state: &mut u64| {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Some((*state >> 56) as u8)
    };
    std::iter::repeat_n((), length).scan(7, |state, ()| step(state)).collect()
}

/// Flips a bit of the byte behind `part` on the device, if the device holds `part`.
fn rots_behind(device: &Path, part: &[u8]) -> bool {
    let bytes = fs::read(device).expect("read");
    let Some(at) = bytes.windows(part.len()).position(|window| window == part) else { return false };
    let at = at + part.len();
    let file = File::options().write(true).open(device).expect("opened");
    file.write_all_at(&[bytes[at] ^ 1], at as u64).expect("written");
    true
}

#[test]
fn a_rotten_byte_of_a_synced_file_is_reported_after_its_ost_lost_its_journal() {
    const BLOCK: usize = 64 << 10;
    let site = Site::new("rotten-and-lost");
    site.comes_up();
    let content = noise(5 * BLOCK + 100);
    let written = writer::with_client(&site.mgs(), MINUTE, |client, _| async move {
        client.write_file(&writer::root(), "/file", noise(5 * BLOCK + 100)).await.expect("written");
        client.sync_all().await.expect("synced");
    });
    assert!(written.is_some(), "within a minute");
    site.kill();
    let rotten = &content[2 * BLOCK + 1000..][..64];
    let ost = ["OST0000", "OST0001"].into_iter().find(|ost| rots_behind(&site.path(ost).join("data"), rotten));
    let ost = ost.expect("one of them has the file");
    fs::remove_file(site.path(ost).join("journal")).expect("removed");
    let (code, told) = site.fsck("", &["--repair"]);
    assert_eq!(code, Some(5), "repaired, and something is left: {told}");
    let listed = format!("bytes {} to {}", 2 * BLOCK, 3 * BLOCK);
    assert!(told.lines().any(|line| line.contains("may-be-missing") && line.contains(&listed)), "{told}");
    for _ in 0..2 {
        let (code, told) = site.fsck("", &["--verify-data"]);
        assert!(code == Some(4) && told.matches("do not match their sum").count() == 1, "{code:?}: {told}");
    }
    site.comes_up();
    let read = writer::with_client(&site.mgs(), MINUTE, |client, _| async move {
        let file = client.open_path(&writer::root(), "/file", OpenMode::READ).await.expect("opened");
        for (number, right) in content.chunks(BLOCK).enumerate() {
            let got = client.read(&file, (number * BLOCK) as u64, right.len()).await;
            match number {
                2 => assert_eq!(got.expect_err("it is rotten").errno, Errno::EIO),
                _ => assert!(got.expect("the others are well")[..] == *right, "block {number}"),
            }
        }
    });
    assert!(read.is_some(), "within a minute");
}

#[test]
fn a_shared_device_that_is_lost_is_replaced_by_another() {
    let (site, device) = shared("replaced");
    site.comes_up();
    let busy = Busy::start(&site.mgs());
    busy.reach(30);
    site.kill();
    let synced = busy.die();
    fs::rename(&device, site.path("away")).expect("away");
    site.refuses("is not at");
    let another = site.path("another");
    blank(&another, 40);
    // Not at the old path: a plain file there would be mistaken for the device.
    let (code, told) = site.fsck("OST0000", &["--repair"]);
    assert!(code == Some(8) && told.contains("--journal PATH") && !device.exists(), "{code:?}: {told}");
    let place = another.to_str().expect("UTF-8");
    let (code, told) = site.fsck("", &["--repair", "--journal", place]);
    assert!(code == Some(8) && told.contains("for one target"), "{code:?}: {told}");
    for target in ["OST0000", "OST0001"] {
        let (code, told) = site.fsck(target, &["--repair", "--journal", place]);
        assert_eq!(code, Some(1), "{told}");
    }
    assert_eq!(slots(&another).len(), 2);
    // The old device is back: it no longer belongs to the targets, and is not used.
    fs::rename(site.path("away"), &device).expect("back");
    let (code, told) = site.fsck("OST0000", &["--repair", "--journal", device.to_str().expect("UTF-8")]);
    assert!(code == Some(8) && told.contains("forebay journal move"), "{code:?}: {told}");
    site.comes_up();
    writer::all_there(&site.mgs(), synced);
    site.down();
    becomes_clean(&site);
}

#[test]
fn an_mdt_without_its_journal_is_refused_and_left_as_it_is() {
    let site = Site::new("lost-mdt");
    let journal = site.path("MDT0000/journal");
    let bytes = fs::read(&journal).expect("read");
    let file = File::options().write(true).open(&journal).expect("opened");
    file.write_all_at(&[0; 8192], 0).expect("written");
    let (code, told) = site.fsck("MDT0000", &["--repair"]);
    assert!(code == Some(8) && told.contains("--mirror"), "{code:?}: {told}");
    fs::write(&journal, bytes).expect("brought back");
    site.is_well();
}
