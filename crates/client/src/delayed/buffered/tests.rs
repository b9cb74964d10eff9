//! Buffered writes against byte arrays: each byte is sent once, bytes of one place in order, and the account is exact.

use std::time::Duration;

use forebay_env::Time;

use super::*;
use crate::{limits, testing::Dice};

const FILE_BYTES: usize = 240;
const UNIT: u64 = 40;
const FILES: u64 = 3;

/// A request on its way to the OSTs.
struct Request {
    number: u64,
    runs: Vec<Run>,
}

impl Request {
    fn length(&self) -> usize {
        self.runs.iter().map(Run::len).sum()
    }

    fn has(&self, at: u64) -> bool {
        self.runs.iter().any(|run| (run.offset..run.end()).contains(&at))
    }
}

/// One file: what the client knows, and arrays of what has to become of it.
struct File {
    client: BufferedWrites<u64>,
    /// The last byte that was written, for each place.
    written: Vec<u8>,
    /// Bytes that were acknowledged and not taken out to be sent.
    kept: Vec<Option<u8>>,
    sending: Vec<Request>,
    /// What the OSTs have.
    server: Vec<u8>,
    /// The last byte of the place was in a request that was lost.
    lost: Vec<bool>,
}

impl File {
    fn new() -> Self {
        Self {
            client: BufferedWrites::new(UNIT),
            written: vec![0; FILE_BYTES],
            kept: vec![None; FILE_BYTES],
            sending: Vec::new(),
            server: vec![0; FILE_BYTES],
            lost: vec![false; FILE_BYTES],
        }
    }

    /// Takes note of what was taken out: it is what the array has there, and is there no more.
    fn taken(&mut self, runs: &[Run], seed: u64) {
        for run in runs {
            assert!(run.len() > 0, "seed {seed}: a run without bytes");
            for (byte, at) in run.parts.concat().into_iter().zip(run.offset as usize..) {
                assert_eq!(self.kept[at].take(), Some(byte), "seed {seed}: byte {at} is sent twice, or an old one");
            }
        }
    }

    /// Sends what was taken out, under the next number.
    fn send(&mut self, runs: Vec<Run>, seed: u64) {
        self.taken(&runs, seed);
        if self.client.parts.is_empty() {
            self.client.by = None;
        }
        if runs.is_empty() {
            return;
        }
        let number = self.client.next;
        self.client.next += 1;
        let ranges = runs.iter().map(|run| (run.offset, run.end())).collect();
        self.client.sending.insert(number, Sending { ranges, pieces: pieces(&runs) });
        self.sending.push(Request { number, runs });
    }

    /// Whether an earlier request has a byte of one that is on its way.
    fn is_behind(&self, request: &Request) -> bool {
        let earlier = || self.sending.iter().filter(|before| before.number < request.number);
        (0..FILE_BYTES as u64).any(|at| request.has(at) && earlier().any(|before| before.has(at)))
    }

    fn is_somewhere(&self, at: u64) -> bool {
        self.kept[at as usize].is_some() || self.sending.iter().any(|request| request.has(at))
    }
}

/// All files of a client.
struct Model {
    dice: Dice,
    seed: u64,
    here: WriteBack,
    files: Vec<File>,
    writes: u64,
    now: Time,
}

impl Model {
    fn new(seed: u64) -> Self {
        let files = (0..FILES).map(|_| File::new()).collect();
        Self { dice: Dice::new(seed), seed, here: WriteBack::default(), files, writes: 0, now: Time(0) }
    }

    fn some_file(&mut self) -> usize {
        self.dice.below(FILES) as usize
    }

    /// A write of one or several buffers is acknowledged, as `Client::insert_buffered` does.
    fn write(&mut self, of: usize) {
        let offset = self.dice.below(FILE_BYTES as u64 - 1);
        let most = (FILE_BYTES as u64 - offset).min(60);
        let length = 1 + self.dice.below(most) as usize;
        let mut bytes = self.dice.bytes(length);
        self.now = Time(self.now.0 + self.dice.below(3));
        let file = &mut self.files[of];
        let (before, pieces_before) = (file.client.parts.bytes() as u64, file.client.parts.pieces() as u64);
        self.writes += 1;
        file.client.by = Some(self.writes);
        let mut at = offset;
        while !bytes.is_empty() {
            let rest = bytes.split_off(1 + self.dice.below(bytes.len() as u64) as usize);
            for (byte, at) in bytes.iter().zip(at as usize..) {
                (file.written[at], file.kept[at], file.lost[at]) = (*byte, Some(*byte), false);
            }
            at += bytes.len() as u64;
            file.client.parts.insert(at - bytes.len() as u64, bytes.into(), self.now);
            bytes = rest;
        }
        self.here.bytes.set(self.here.bytes.get() + file.client.parts.bytes() as u64 - before);
        self.here.pieces.set(self.here.pieces.get() + file.client.parts.pieces() as u64 - pieces_before);
        let end = offset + length as u64;
        let whole = self.here.take(&mut file.client.parts, |parts| parts.take_whole_units(offset, end));
        assert!(whole.iter().all(|run| run.len() as u64 == UNIT), "seed {}: a whole unit is a unit", self.seed);
        whole.into_iter().for_each(|unit| file.send(vec![unit], self.seed));
    }

    /// What is old, or everything, is sent.
    fn flush(&mut self, of: usize, all: bool) {
        let (now, age) = (self.now, Duration::from_nanos(self.dice.below(20)));
        let file = &mut self.files[of];
        let runs = self.here.take(&mut file.client.parts, |parts| match all {
            true => parts.take_all(),
            false => parts.take_older(now, age),
        });
        file.send(runs, self.seed);
        if all {
            assert!(file.client.parts.is_empty() && file.client.by.is_none(), "seed {}", self.seed);
        }
    }

    /// A request that need not wait for another one has arrived, or is lost.
    fn arrive(&mut self, of: usize, is_lost: bool) {
        let file = &mut self.files[of];
        let free = |at: &usize| !file.client.has_to_wait(file.sending[*at].number);
        let free: Vec<usize> = (0..file.sending.len()).filter(free).collect();
        assert!(!free.is_empty() || file.sending.is_empty(), "seed {}: each waits for another one", self.seed);
        if free.is_empty() {
            return;
        }
        let request = file.sending.remove(free[self.dice.below(free.len() as u64) as usize]);
        for run in &request.runs {
            for (byte, at) in run.parts.concat().into_iter().zip(run.offset as usize..) {
                match is_lost {
                    true => file.lost[at] = true,
                    false => (file.server[at], file.lost[at]) = (byte, false),
                }
            }
        }
        self.here.sent(&mut file.client, request.number, request.length());
    }

    fn step(&mut self) {
        let of = self.some_file();
        match self.dice.below(8) {
            0..3 => self.write(of),
            3 => self.flush(of, false),
            4 if self.dice.one_in(2) => self.flush(of, true),
            5 => {
                let is_lost = self.dice.one_in(6);
                self.arrive(of, is_lost);
            }
            _ => self.arrive(of, false),
        }
    }

    /// What the client counts is what there is.
    fn check(&mut self) {
        let seed = self.seed;
        let on_the_way = |file: &File| file.sending.iter().map(|request| request.length() as u64).sum::<u64>();
        let kept = |file: &File| file.kept.iter().flatten().count() as u64;
        let bytes: u64 = self.files.iter().map(|file| on_the_way(file) + kept(file)).sum();
        assert_eq!(self.here.bytes.get(), bytes, "seed {seed}: bytes");
        let sent_pieces = |file: &File| file.sending.iter().map(|request| pieces(&request.runs) as u64).sum::<u64>();
        let count: u64 = self.files.iter().map(|file| sent_pieces(file) + file.client.parts.pieces() as u64).sum();
        assert_eq!(self.here.pieces.get(), count, "seed {seed}: pieces");
        assert_eq!(self.here.held(), bytes + count * limits::PIECE_SPACE_BYTES, "seed {seed}: what they cost");
        let of = self.some_file();
        let (start, length) = (self.dice.below(FILE_BYTES as u64), 1 + self.dice.below(50));
        let file = &self.files[of];
        let end = (start + length).min(FILE_BYTES as u64);
        let touches = (start..end).any(|at| file.is_somewhere(at));
        assert_eq!(file.client.touches(start, end), touches, "seed {seed}: {start}..{end}");
        let last = (0..FILE_BYTES as u64).rev().find(|at| file.is_somewhere(*at)).map_or(0, |at| at + 1);
        assert_eq!(file.client.end(), last, "seed {seed}: where they end");
        assert_eq!(file.client.bytes() as u64, kept(file), "seed {seed}");
        assert_eq!(file.client.is_clean(), last == 0, "seed {seed}");
        assert_eq!(file.client.by.is_some(), kept(file) > 0, "seed {seed}: who wrote them");
        for request in &file.sending {
            let waits = file.client.has_to_wait(request.number);
            assert_eq!(waits, file.is_behind(request), "seed {seed}: request {}", request.number);
        }
        let next = file.client.next - self.dice.below(4).min(file.client.next);
        let has_sent = file.sending.iter().all(|request| request.number >= next);
        assert_eq!(file.client.has_sent(next), has_sent, "seed {seed}: all before {next}");
    }

    /// Everything is sent, and arrives.
    fn settle(&mut self) {
        for of in 0..FILES as usize {
            self.flush(of, true);
            while !self.files[of].sending.is_empty() {
                self.arrive(of, false);
            }
        }
    }
}

#[test]
fn the_account_of_buffered_writes_is_exact_at_every_step_also_if_some_are_lost() {
    for seed in 0..60 {
        let mut model = Model::new(seed);
        for _ in 0..200 {
            model.step();
            model.check();
        }
        model.settle();
        assert_eq!((model.here.bytes.get(), model.here.pieces.get(), model.here.held()), (0, 0, 0), "seed {seed}");
    }
}

#[test]
fn servers_get_each_buffered_byte_once_and_the_last_one_of_a_place_last() {
    for seed in 0..200 {
        let mut model = Model::new(1000 + seed);
        (0..150).for_each(|_| model.step());
        model.settle();
        for file in &model.files {
            assert!(file.kept.iter().all(Option::is_none), "seed {}: some stay", model.seed);
            let differs = |at: &usize| !file.lost[*at] && file.server[*at] != file.written[*at];
            assert_eq!((0..FILE_BYTES).find(differs), None, "seed {}: an old byte came last", model.seed);
            assert!(file.client.is_clean() && file.client.end() == 0, "seed {}", model.seed);
        }
    }
}

#[test]
fn a_lost_request_holds_back_none_that_wait_for_it() {
    let (here, mut file) = (WriteBack::default(), File::new());
    for byte in 1..=3_u8 {
        file.client.parts.insert(10, vec![byte; 20].into(), Time(0));
        file.kept[10..30].fill(Some(byte));
        here.add(20, 1);
        let runs = here.take(&mut file.client.parts, Parts::take_all);
        file.send(runs, 0);
    }
    assert_eq!([0, 1, 2].map(|number| file.client.has_to_wait(number)), [false, true, true]);
    here.sent(&mut file.client, 0, 20);
    assert_eq!([0, 1, 2].map(|number| file.client.has_to_wait(number)), [false, false, true]);
    // The second one is lost.
    here.sent(&mut file.client, 1, 20);
    assert!(!file.client.has_to_wait(2) && file.client.has_sent(2) && !file.client.has_sent(3));
    here.sent(&mut file.client, 2, 20);
    assert_eq!((here.bytes.get(), here.pieces.get(), file.client.is_clean()), (0, 0, true));
}

#[test]
fn a_file_goes_inline_exactly_once_and_only_if_all_its_bytes_are_buffered() {
    let mut taken_count = 0;
    for seed in 0..400 {
        let (mut dice, here, mut client) = (Dice::new(seed), WriteBack::default(), BufferedWrites::<u64>::new(UNIT));
        let mut bytes: Vec<Option<u8>> = vec![None; FILE_BYTES];
        let most = 1 + dice.below(FILE_BYTES as u64) as usize;
        for write in 0..1 + dice.below(6) {
            // Mostly onwards, so that some are whole.
            let next = bytes.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
            let offset = if dice.one_in(4) { dice.below(150) as usize } else { next.min(200) };
            let length = 1 + dice.below(40) as usize;
            let new = dice.bytes(length);
            new.iter().zip(offset..).for_each(|(byte, at)| bytes[at] = Some(*byte));
            let before = (client.parts.bytes(), client.parts.pieces());
            client.parts.insert(offset as u64, new.into(), Time(0));
            client.by = Some(write);
            here.bytes.set(here.bytes.get() + (client.parts.bytes() - before.0) as u64);
            here.pieces.set(here.pieces.get() + client.parts.pieces() as u64 - before.1 as u64);
        }
        let length = bytes.iter().flatten().count();
        let is_whole = bytes[..length].iter().all(Option::is_some) && length <= most;
        assert_eq!(client.is_whole(most), is_whole, "seed {seed}: {length} bytes of at most {most}");
        let by = client.by;
        let Some(taken) = client.take_whole(most) else {
            assert!(!is_whole && client.bytes() == length && client.by == by, "seed {seed}: it is as it was");
            continue;
        };
        taken_count += 1;
        let expected: Vec<u8> = bytes.into_iter().flatten().collect();
        assert_eq!((&taken.bytes, Some(taken.by)), (&Bytes::from(expected.clone()), by), "seed {seed}");
        assert!(!client.is_clean() && client.touches(0, 1) && !client.is_whole(most), "seed {seed}: on their way");
        assert!(client.take_whole(most).is_none(), "seed {seed}: they go twice");
        assert_eq!(here.bytes.get(), length as u64, "seed {seed}: they count until the close is replied");
        let (number, bytes) = (taken.number, taken.bytes.len());
        if dice.one_in(2) {
            // The MDT does not take them: to the OSTs, under the same number.
            let (_, again, run) = taken.into_run();
            assert_eq!((again, run.offset, run.parts.concat()), (number, 0, expected), "seed {seed}");
        }
        here.sent(&mut client, number, bytes);
        assert_eq!((here.bytes.get(), here.pieces.get(), client.is_clean()), (0, 0, true), "seed {seed}");
    }
    assert!(taken_count > 50, "{taken_count} went inline");
}

#[test]
fn a_file_does_not_go_inline_while_some_of_it_is_on_its_way_or_without_bytes() {
    let mut client = BufferedWrites::<u64>::new(UNIT);
    assert!(!client.is_whole(100) && client.take_whole(100).is_none(), "it has none");
    client.parts.insert(0, vec![1; 10].into(), Time(0));
    client.by = Some(1);
    client.sending.insert(0, Sending { ranges: vec![(10, 20)], pieces: 1 });
    assert!(!client.is_whole(100) && client.take_whole(100).is_none(), "10 to 20 is on its way");
    client.sending.clear();
    assert!(client.is_whole(10) && !client.is_whole(9));
    client.parts.insert(20, vec![1; 10].into(), Time(0));
    assert!(!client.is_whole(100), "it has a hole");
}

#[test]
fn bytes_wait_only_for_earlier_ones_of_their_own_place() {
    let mut client = BufferedWrites::<()>::new(UNIT);
    let all = [vec![(0, 10), (20, 30)], vec![(10, 20)], vec![(29, 31)], vec![(30, 40)], vec![(5, 6), (50, 60)]];
    for (number, ranges) in all.into_iter().enumerate() {
        client.sending.insert(number as u64, Sending { ranges, pieces: 1 });
    }
    let waits = |client: &BufferedWrites<()>| [0, 1, 2, 3, 4].map(|number| client.has_to_wait(number));
    assert_eq!(waits(&client), [false, false, true, true, true]);
    assert!(!client.has_to_wait(9), "it was never sent");
    client.sending.remove(&2);
    assert_eq!(waits(&client), [false, false, false, false, true]);
    assert!(client.touches(55, 100) && !client.touches(40, 50) && !client.touches(60, 100));
    assert_eq!((client.end(), client.has_sent(0), client.has_sent(1)), (60, true, false));
}

#[test]
fn what_may_be_buffered_is_bounded_by_bytes_on_their_way_too() {
    let here = WriteBack::default();
    here.add(60, 2);
    assert!(here.has_room_for(40, 100) && !here.has_room_for(41, 100));
    here.subtract(20, 1);
    assert!(here.has_room_for(60, 100) && !here.has_room_for(61, 100));
    assert_eq!(here.held(), 40 + limits::PIECE_SPACE_BYTES);
    // Only what an OST has granted is counted on, and no more than is held.
    here.room.with(3, |share| share.left = 10_000);
    here.room.with(4, |share| share.left = 30);
    assert_eq!((here.counted_on(3), here.counted_on(4), here.counted_on(5)), (here.held(), 30, 0));
    here.files.borrow_mut().insert(Fid { high: 0, low: 9 });
    here.forget(Fid { high: 0, low: 8 });
    assert_eq!(here.files.borrow().len(), 1);
    here.forget(Fid { high: 0, low: 9 });
    assert!(here.files.borrow().is_empty(), "nothing of it grows old");
}
