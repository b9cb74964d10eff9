use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

use crate::{
    Disk, Env, OpenDisk, SECTOR_BYTES,
    real::{
        self, Disks, disk,
        forgetful::{Habit, serve_with},
    },
    sim::Chance,
    testing::scratch_dir,
};

const SECTORS: usize = 64;
const BYTES: usize = SECTORS * SECTOR_BYTES;
/// Names the directory of a test's child process, see `a_child_that_will_be_killed`.
const CHILD_DIR: &str = "FOREBAY_TEST_FORGETFUL";

fn make(bytes: usize) -> OpenDisk {
    OpenDisk { create_bytes: Some(bytes as u64), ..OpenDisk::default() }
}

async fn open(path: &str, bytes: usize, habit: Habit, seed: u64) -> Disk {
    let serve = move |queue: &_, opened: &_| serve_with(queue, opened, habit, Chance::new(seed, 0));
    disk::open_served(path, make(bytes), serve).await.unwrap()
}

async fn fill(disk: &Disk, sector: usize, count: usize, fill: u8) {
    let bytes = vec![fill; count * SECTOR_BYTES];
    disk.write((sector * SECTOR_BYTES) as u64, vec![bytes.into()]).await.unwrap();
}

async fn contents(disk: &Disk) -> Vec<u8> {
    disk.read(0, disk.info().bytes as usize).await.unwrap().to_vec()
}

fn on_file(env: &Env, path: &str) -> Vec<u8> {
    env.read_file(path).unwrap()
}

/// write, flush, write |the process ends|
#[test]
fn a_forgetful_disk_keeps_flushed_bytes_only_and_reads_return_all() {
    real::run(|env| async move {
        let dir = scratch_dir(&env);
        let path = format!("{dir}/data");
        let disk = open(&path, BYTES, Habit::Waits, 1).await;
        fill(&disk, 0, 4, 1).await;
        assert_eq!(on_file(&env, &path)[0], 0, "before the flush");
        disk.flush().await.unwrap();
        fill(&disk, 2, 4, 2).await;
        disk.write_durable(3 * SECTOR_BYTES as u64, vec![vec![3; SECTOR_BYTES].into()]).await.unwrap();
        let expect = |fills: [u8; 7]| fills.iter().flat_map(|fill| vec![*fill; SECTOR_BYTES]).collect::<Vec<_>>();
        assert!(contents(&disk).await[..7 * SECTOR_BYTES] == expect([1, 1, 2, 3, 2, 2, 0]));
        drop(disk);
        assert!(on_file(&env, &path)[..7 * SECTOR_BYTES] == expect([1, 1, 1, 3, 0, 0, 0]));
    });
}

#[test]
fn a_flush_covers_no_write_that_was_not_answered_before_it() {
    real::run(|env| async move {
        let (dir, mut covered) = (scratch_dir(&env), 0);
        for round in 0..50 {
            let path = format!("{dir}/{round}");
            let disk = open(&path, BYTES, Habit::Waits, round).await;
            fill(&disk, 0, 1, 1).await;
            let in_flight = disk.write(0, vec![vec![2; SECTOR_BYTES].into()]);
            disk.flush().await.unwrap();
            in_flight.await.unwrap();
            drop(disk);
            match on_file(&env, &path)[0] {
                1 => {}
                2 => covered += 1,
                other => panic!("the flush lost the write before it: {other}"),
            }
        }
        // The thread finds both at once, unless it is awake early.
        assert!(covered < 50, "{covered} of 50 flushes made a write durable that was in flight");
    });
}

/// After any writes and flushes, each 512 bytes are as at the last flush or as at a later write. Some sectors are
/// neither all old nor all new.
#[test]
fn a_disk_that_trickles_keeps_any_part_of_what_was_not_flushed_and_all_that_was() {
    real::run(|env| async move {
        let (dir, mut parts) = (scratch_dir(&env), 0);
        for seed in 0..30 {
            let (path, chance) = (format!("{dir}/{seed}"), Chance::new(seed, 1));
            let disk = open(&path, BYTES, Habit::Trickles, seed).await;
            // For each sector: what the last flush made durable, and what was written since.
            let mut allowed: Vec<Vec<u8>> = vec![vec![0]; SECTORS];
            for number in 1..=200 {
                if chance.chance(0.1) {
                    disk.flush().await.unwrap();
                    allowed.iter_mut().for_each(|fills| drop(fills.drain(..fills.len() - 1)));
                    continue;
                }
                let sector = chance.below(SECTORS as u64) as usize;
                let count = 1 + chance.below(SECTORS.min(8).min(SECTORS - sector) as u64) as usize;
                fill(&disk, sector, count, number).await;
                allowed[sector..sector + count].iter_mut().for_each(|fills| fills.push(number));
            }
            let seen = contents(&disk).await;
            assert!(seen.chunks(SECTOR_BYTES).zip(&allowed).all(|(s, a)| s.iter().all(|byte| a.last() == Some(byte))));
            drop(disk);
            for (sector, fills) in on_file(&env, &path).chunks(SECTOR_BYTES).zip(&allowed) {
                let mut pieces = sector.chunks(512);
                assert!(pieces.all(|piece| fills.contains(&piece[0]) && piece.iter().all(|byte| *byte == piece[0])));
                parts += usize::from(sector.iter().any(|byte| *byte != sector[0]));
            }
        }
        assert!(parts > 0, "no sector of 4 KiB was ever torn");
    });
}

#[test]
fn memory_is_bounded_and_the_oldest_go_to_the_file() {
    real::run(|env| async move {
        let (dir, mib) = (scratch_dir(&env), 1 << 20);
        let path = format!("{dir}/data");
        let disk = open(&path, 80 * mib, Habit::Waits, 1).await;
        for at in 0..80 {
            fill(&disk, at * mib / SECTOR_BYTES, mib / SECTOR_BYTES, 7).await;
        }
        drop(disk);
        let disk = env.open_disk(&path, OpenDisk::default()).await.unwrap();
        let kept = contents(&disk).await.chunks(mib).map(|mib| mib[0] == 7).collect::<Vec<_>>();
        assert!(kept[0] && !kept[79] && kept.iter().filter(|kept| **kept).count() >= 16, "{kept:?}");
    });
}

/// Not a test of its own: writes rounds of 16 sectors, flushes them and prints that, until it is killed.
#[test]
fn a_child_that_will_be_killed() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let path = format!("{}/data", dir.to_str().unwrap());
    real::run_with(Disks::Forget, |env| async move {
        let disk = env.open_disk(&path, make(BYTES)).await.unwrap();
        for round in 1..=255 {
            for sector in 0..16 {
                fill(&disk, sector * 3, 1, round).await;
            }
            disk.flush().await.unwrap();
            println!("flushed {round}");
        }
        std::process::abort();
    });
}

/// writes, flushes |SIGKILL at any time|
#[test]
fn a_killed_process_leaves_what_it_flushed_and_a_part_of_the_flush_it_was_in() {
    real::run(|env| async move {
        let mut torn = 0;
        for kill in 0..25 {
            let dir = scratch_dir(&env);
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", "real::tests::forgetful::a_child_that_will_be_killed", "--nocapture"]);
            let mut child = child.env(CHILD_DIR, &*dir).stdout(Stdio::piped()).spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
            assert!(lines.any(|line| line.ends_with("flushed 1")));
            std::thread::sleep(Duration::from_micros(kill * 700));
            child.kill().unwrap();
            child.wait().unwrap();
            let number = |line: String| line.rsplit_once("flushed ").map(|(_, number)| number.parse::<u8>().unwrap());
            let flushed = lines.filter_map(number).last().unwrap_or(1);
            let bytes = on_file(&env, &format!("{dir}/data"));
            let written = bytes.chunks(SECTOR_BYTES).step_by(3).take(16).flatten();
            // The next flush may have ended unacknowledged, and the one after it may have begun.
            assert!(written.clone().all(|byte| (flushed..=flushed.saturating_add(2)).contains(byte)), "kill {kill}");
            torn += usize::from(written.clone().min() != written.max());
        }
        println!("{torn} of 25 kills left a part of a flush");
        assert!(torn > 0);
    });
}
