//! A table beside the history of what happened to its leases: what may be believed follows from the history alone.
//!
//! Every event has a place in the history. Attributes carry a number in their size, of what they are from; for names,
//! data and changes the history lists what brought them. The kernel is a list of what it has received.

mod checks;

use super::*;

const FLAGS: u32 = lease_flags::PARENT_ENTRIES_WRITE | lease_flags::ALONE;

/// What happens. Each has a beginning and an end, between which other things may happen.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A lookup of a name, until its reply: leases on a directory and a file.
    GrantInodes,
    /// A request for changes of a directory's entries, until its reply.
    GrantEntriesWrite,
    /// An open, until its reply: a lease on the data of a file.
    GrantData(Holds),
    /// Until it is acknowledged, if the kernel was notified.
    RecallInodes,
    /// Until what was buffered is sent.
    RecallData,
    /// Until the names are given back.
    RecallNames,
    /// Of a directory and a file, with a pause of answers for the directory.
    ChangeAttributes,
    /// A change of an entry that the client waits for.
    ChangeName,
    /// A change that is acknowledged before it is sent; or that fails then.
    Answer { applies: bool },
    /// The MDT restarts, until it replies again.
    Restart,
    /// The MDT ends the session, until it replies again.
    SessionEnd,
    /// The MDT sends nothing for too long, until it replies again.
    Expiry,
    /// No inode is kept any more, until there is room again.
    Bound,
    /// Nothing is wanted for long.
    Idle,
    /// The client's question to the MDT, until its reply, or until it is lost.
    Return { heard: bool },
}

pub const EVENTS: [Event; 18] = [
    Event::GrantInodes,
    Event::GrantEntriesWrite,
    Event::GrantData(Holds::All),
    Event::GrantData(Holds::Ranges),
    Event::RecallInodes,
    Event::RecallData,
    Event::RecallNames,
    Event::ChangeAttributes,
    Event::ChangeName,
    Event::Answer { applies: true },
    Event::Answer { applies: false },
    Event::Restart,
    Event::SessionEnd,
    Event::Expiry,
    Event::Bound,
    Event::Idle,
    Event::Return { heard: true },
    Event::Return { heard: false },
];

/// What an event concerns.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    pub dir: Fid,
    pub file: Fid,
    pub name: &'static [u8],
}

/// An event that has begun.
pub struct Open {
    event: Event,
    subject: Subject,
    asked: Ticket,
    /// The place of its beginning in the history, and its time.
    place: u64,
    begun: Time,
    change: Option<Ticket>,
    /// What an answered change makes or takes away.
    changed: Option<(Fid, bool)>,
    question: Option<AwaitRecalls>,
}

/// What the kernel has received.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    Attributes(Fid),
    Names(Fid),
}

/// A recall of which the kernel may not have received everything; with a number if the MDT waits for it.
struct Pending {
    unheard: Vec<Dropped>,
    recalled: Option<(u64, Vec<Fid>, u64)>,
}

#[derive(Default)]
pub struct World {
    pub table: LeaseTable,
    pub now: Time,
    /// Whether the kernel takes notifications.
    pub hears: bool,
    place: u64,
    sequence: u64,
    transno: u64,
    contact: Option<Time>,
    /// Of attributes by their number: the places since when no loss, and no change, may have come between.
    seen: Vec<(u64, u64)>,
    /// What brought names, data, and changes of names: with its place.
    names: Vec<(Fid, &'static [u8], u64, Option<Fid>)>,
    data: Vec<(Fid, u64, Holds)>,
    writes: Vec<(Fid, u64)>,
    alone: Vec<(Fid, Fid, u64)>,
    /// The places of the last losses and changes.
    all_lost: u64,
    all_data_lost: u64,
    lost: BTreeMap<Fid, u64>,
    data_lost: BTreeMap<Fid, u64>,
    names_lost: BTreeMap<Fid, u64>,
    changed: BTreeMap<Fid, u64>,
    name_changed: BTreeMap<(Fid, &'static [u8]), u64>,
    under_way: BTreeMap<Fid, usize>,
    paused: BTreeMap<Fid, usize>,
    /// Changes that the client waits for, and changes of names.
    waited: BTreeMap<Fid, usize>,
    waited_names: BTreeMap<(Fid, &'static [u8]), usize>,
    kernel: BTreeMap<Told, (u64, Time)>,
    pending: Vec<Pending>,
    /// What the MDT counts as leased, since which place; and the directories that it counts as ours to change.
    mdt: BTreeMap<Fid, u64>,
    mdt_names: BTreeMap<Fid, u64>,
    to_flush: Vec<DataRecall>,
    /// How often something was believed.
    pub believed: u64,
    log: Vec<String>,
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.log.iter().for_each(|line| println!("{line}"));
        }
    }
}

fn of<K: Ord>(map: &BTreeMap<K, u64>, key: &K) -> u64 {
    map.get(key).copied().unwrap_or(0)
}

impl World {
    /// The MDT replied just now, and the kernel takes every notification.
    pub fn new() -> Self {
        let mut world = Self::default();
        world.hears = true;
        world.hear(Time(0));
        world
    }

    pub fn begin(&mut self, event: Event, subject: Subject) -> Open {
        self.log.push(format!("{:?} {event:?} of {subject:?} begins", self.now));
        let (asked, begun) = (self.table.ticket(), self.now);
        let place = self.next_place();
        let Subject { dir, file, name } = subject;
        let mut open = Open { event, subject, asked, place, begun, change: None, changed: None, question: None };
        match event {
            Event::GrantInodes | Event::GrantEntriesWrite | Event::GrantData(_) => {}
            Event::RecallInodes => {
                self.sequence += 1;
                self.lose(&[dir, file]);
                self.ends(|table| table.drop_recalled(&[dir, file]), Some((place, vec![dir, file], self.sequence)));
            }
            Event::RecallData => {
                self.data_lost.insert(file, place);
                self.step(|table| table.give_up_ranges(file));
            }
            Event::RecallNames => {
                self.names_lost.insert(dir, place);
                // Replies to earlier requests do not count, even if nothing is known of the directory.
                self.step(|table| match table.may_hold_names(dir) {
                    true => table.stop_answering(dir),
                    false => table.give_up_ranges(dir),
                });
            }
            Event::ChangeAttributes => {
                *self.paused.entry(dir).or_default() += 1;
                self.step(|table| table.pause_answering(dir));
                self.touch(&[dir, file]);
                open.change = Some(self.step(|table| table.change_begins(dir)));
                *self.waited.entry(dir).or_default() += 1;
            }
            Event::ChangeName => {
                self.changed.insert(dir, place);
                self.name_changed.insert((dir, name), place);
                open.change = Some(self.step(|table| table.name_changes(dir, name)));
                *self.waited.entry(dir).or_default() += 1;
                *self.waited_names.entry((dir, name)).or_default() += 1;
            }
            Event::Answer { .. } => self.answer(&mut open),
            Event::Restart | Event::SessionEnd => self.restart(matches!(event, Event::SessionEnd)),
            Event::Expiry => {
                self.now = self.now + LEASE_CLIENT_TERM;
            }
            Event::Bound => self.step(|table| table.keep_within(0)),
            Event::Idle => {
                self.now = self.now + limits::CACHE_IDLE;
                self.hear(self.now);
                self.step(LeaseTable::give_up_idle);
            }
            Event::Return { .. } => self.ask(&mut open),
        }
        open
    }

    pub fn end(&mut self, open: Open) {
        let Subject { dir, file, name } = open.subject;
        self.log.push(format!("{:?} {:?} of {:?} ends", self.now, open.event, open.subject));
        let place = self.next_place();
        match open.event {
            Event::GrantInodes => self.found(&open),
            Event::GrantEntriesWrite => {
                self.hear(open.begun);
                self.writes.push((dir, open.place));
                self.alone.push((dir, file, open.place));
                self.mdt_names.insert(dir, place);
                self.step(|table| table.learn_changes(open.asked, FLAGS, dir, Some(file)));
            }
            Event::GrantData(holds) => self.opened(&open, holds),
            Event::RecallInodes => self.acknowledge(),
            Event::RecallData => {
                let recall = DataRecall { fid: file, sequence: open.place };
                self.to_flush.push(recall.clone());
                self.step(|table| table.flushed(recall));
            }
            Event::RecallNames if self.is_changing(dir) => {}
            Event::RecallNames => {
                if self.table.may_hold_names(dir) {
                    self.names_lost.insert(dir, place);
                }
                self.mdt_names.remove(&dir);
                self.step(|table| table.gave_names_back(dir));
            }
            Event::ChangeAttributes => {
                self.hear(open.begun);
                self.touch(&[dir, file]);
                *self.waited.entry(dir).or_default() -= 1;
                let begun = open.change.expect("it has begun");
                self.step(|table| table.change_ends(begun));
                *self.paused.entry(dir).or_default() -= 1;
                self.step(|table| table.resume_answering(dir));
            }
            Event::ChangeName => {
                self.hear(open.begun);
                self.changed.insert(dir, place);
                self.names.push((dir, name, open.place, None));
                let begun = open.change.expect("it has begun");
                let attr = self.attributes(dir, open.place, place);
                let transno = self.next_transno();
                *self.waited.entry(dir).or_default() -= 1;
                *self.waited_names.entry((dir, name)).or_default() -= 1;
                self.step(|table| table.name_changed(begun, dir, name, Some(None)));
                self.step(|table| table.directory_changed(begun, &attr, transno));
            }
            Event::Answer { applies } => self.answered(&open, applies),
            Event::Expiry => {
                self.check_time();
                self.hear(self.now);
            }
            Event::Restart | Event::SessionEnd => self.hear(self.now),
            Event::Bound => self.step(|table| table.keep_within(u64::MAX)),
            Event::Idle => {}
            Event::Return { heard } => self.was_asked(open, heard),
        }
    }

    /// Everything is given up at the end: the MDT counts nothing as leased then, and waits for nothing.
    pub fn drain(&mut self, files: &[Fid]) {
        self.hears = true;
        self.hear(self.now);
        self.acknowledge();
        files.iter().for_each(|fid| {
            self.data_lost.insert(*fid, self.place);
            self.step(|table| table.end_data(*fid));
        });
        self.now = self.now + limits::CACHE_IDLE;
        self.hear(self.now);
        self.step(LeaseTable::give_up_idle);
        for _ in 0..3 {
            let subject = Subject { dir: Fid::ROOT, file: Fid::ROOT, name: b"" };
            let open = self.begin(Event::Return { heard: true }, subject);
            self.end(open);
        }
        assert_eq!(self.table.question(false), None, "nothing is left to be said");
        assert!(self.mdt.is_empty(), "returned: {:?}", self.mdt);
        assert!(self.mdt_names.is_empty(), "given back: {:?}", self.mdt_names);
        assert_eq!(self.to_flush, [], "what was sent after a recall is said");
        assert_eq!(self.table.kept(), (0, 0));
    }

    // ---- events

    fn found(&mut self, open: &Open) {
        self.hear(open.begun);
        let Subject { dir, file, name } = open.subject;
        let entries = [dir, file].map(|fid| self.attributes(fid, open.place, open.place));
        self.names.push((dir, name, open.place, Some(file)));
        self.granted(open, &[dir, file]);
        self.step(|table| {
            entries.iter().for_each(|attr| table.learn(open.asked, &entry_of(attr)));
            table.learn_name(open.asked, dir, name, BOTH, Some(file));
        });
        let is_waited = self.waited.values().chain(self.waited_names.values()).any(|changes| *changes > 0);
        let nothing_since = self.place == open.place + 1 && !self.is_changing(dir) && !is_waited;
        if nothing_since && self.table.most_bytes != Some(0) {
            // The opposite of what is checked otherwise: what counts is believed.
            assert_eq!(self.table.entry(file).map(|entry| entry.attr), Some(entries[1].clone()));
            assert_eq!(self.table.name(dir, name).map(|entry| entry.map(|entry| entry.attr.fid)), Some(Some(file)));
        }
        let (left, named) = (self.table.attributes_for(&entries[1]), self.table.name_for(dir, name, Some(file)));
        for (told, left) in [(Told::Attributes(file), left), (Told::Names(dir), named)] {
            if !left.is_zero() {
                let until = self.kernel.get(&told).map_or(Time(0), |(_, until)| *until).max(self.now + left);
                self.kernel.insert(told, (self.place, until));
            }
        }
        self.check();
    }

    /// The MDT counts inodes as leased: if it has not taken them back since.
    fn granted(&mut self, open: &Open, fids: &[Fid]) {
        for fid in fids {
            if self.loss(*fid) <= open.place {
                self.mdt.insert(*fid, self.place);
            }
        }
    }

    fn opened(&mut self, open: &Open, holds: Holds) {
        self.hear(open.begun);
        let file = open.subject.file;
        self.data.push((file, open.place, holds));
        self.granted(open, &[file]);
        let mut attr = self.attributes(file, open.place, open.place);
        attr.flags = attr_flags::SIZE_ON_OST | attr_flags::SOLE_WRITER;
        self.step(|table| table.learn_data(open.asked, file, holds));
        self.step(|table| table.learn(open.asked, &entry_of(&attr)));
    }

    /// A name that is known to lead somewhere is taken away, another is made: if that may be answered now.
    fn answer(&mut self, open: &mut Open) {
        let Subject { dir, name, .. } = open.subject;
        if self.table.answers_for(dir).is_none() {
            return;
        }
        let known = self.table.name(dir, name).flatten().map(|entry| entry.attr.fid);
        let fid = known.unwrap_or(Fid { high: 9, low: self.place });
        let told = self.attributes(dir, self.place, self.place);
        let made = known.is_none().then(|| attr(fid, mode::S_IFREG | 0o644, 1));
        for changed in [dir, fid] {
            self.changed.insert(changed, self.place);
        }
        self.name_changed.insert((dir, name), self.place);
        self.names.push((dir, name, self.place, made.as_ref().map(|_| fid)));
        *self.under_way.entry(dir).or_default() += 1;
        let change = EntryChange { dir: &told, name, fid, made: made.as_ref() };
        open.change = Some(self.step(|table| table.answer(&change)));
        open.changed = Some((fid, known.is_none()));
    }

    fn answered(&mut self, open: &Open, applies: bool) {
        let (Some(begun), Some((fid, is_made))) = (open.change, open.changed) else { return };
        let Subject { dir, name, .. } = open.subject;
        self.hear(open.begun);
        if applies {
            self.ends(|table| table.unless_leased(fid, lease_flags::INODE), None);
        }
        *self.under_way.entry(dir).or_default() -= 1;
        if !applies {
            for lost in [dir, fid] {
                self.lost.insert(lost, self.place);
            }
            self.names_lost.insert(dir, self.place);
            return self.step(|table| table.failed(dir, fid));
        }
        let attr = self.attributes(dir, open.place, self.place);
        let transno = self.next_transno();
        if is_made && self.table.leased(fid).is_some() {
            self.mdt.insert(fid, self.place);
        }
        self.step(|table| table.entry_applied(begun, (dir, name), Some(&attr), transno));
    }

    fn restart(&mut self, ends_session: bool) {
        self.all_lost = self.place;
        self.mdt.clear();
        self.sequence = 0;
        self.contact = None;
        self.pending.iter_mut().for_each(|pending| pending.recalled = None);
        // What is under way is replayed.
        let under_way = &self.under_way;
        self.mdt_names.retain(|dir, _| under_way.get(dir).is_some_and(|changes| *changes > 0));
        if ends_session {
            self.all_data_lost = self.place;
            self.to_flush.clear();
            self.step(LeaseTable::lose_data);
        }
        self.ends(LeaseTable::lost, None);
    }

    fn touch(&mut self, fids: &[Fid]) {
        for fid in fids {
            let place = self.next_place();
            self.changed.insert(*fid, place);
            let transno = self.next_transno();
            self.step(|table| table.touch_at(*fid, transno));
        }
    }

    /// A request is sent only when the kernel was notified of what was given up.
    fn ask(&mut self, open: &mut Open) {
        let undelivered = self.table.take_undelivered();
        let unheard = self.tell(undelivered);
        if !unheard.is_empty() {
            return self.table.not_heard(unheard);
        }
        let Some(question) = self.step(|table| table.question(false)) else { return };
        assert!(question.acknowledged <= self.sequence);
        for Pending { recalled, .. } in &self.pending {
            let awaited = recalled.as_ref().map(|(.., sequence)| *sequence);
            assert!(awaited.is_none_or(|awaited| question.acknowledged < awaited), "the kernel has not heard of it");
        }
        for fid in &question.returned {
            assert!(self.table.leased(*fid).is_none(), "{fid} is leased again");
            assert!(!self.is_changing(*fid), "{fid} has changes under way");
        }
        let place = self.next_place();
        for fid in &question.returned {
            self.lost.insert(*fid, place);
            self.names_lost.insert(*fid, place);
        }
        open.place = place;
        open.question = Some(question);
    }

    fn was_asked(&mut self, open: Open, heard: bool) {
        let Some(question) = open.question else { return };
        let AwaitRecalls { returned, flushed, .. } = question.clone();
        if !heard {
            flushed.into_iter().for_each(|recall| self.step(|table| table.flushed(recall)));
            return self.step(|table| table.return_later(returned));
        }
        self.hear(open.begun);
        self.to_flush.retain(|recall| !flushed.contains(recall));
        for counted in [&mut self.mdt, &mut self.mdt_names] {
            counted.retain(|fid, since| !returned.contains(fid) || *since > open.place);
        }
        self.step(|table| table.answered(&question));
    }

    /// The MDT has answered a request that was sent at `begun`.
    fn hear(&mut self, begun: Time) {
        if self.contact.is_some() && !self.is_alive() {
            self.all_lost = self.next_place();
            self.mdt.clear();
        }
        self.contact = self.contact.max(Some(begun));
        self.step(|table| table.heard(begun));
    }

    /// The kernel is notified again of what it has not received; recalls are acknowledged one after the other.
    fn acknowledge(&mut self) {
        let (mut waits, mut acknowledged) = (false, Vec::new());
        for Pending { unheard, recalled } in std::mem::take(&mut self.pending) {
            let unheard = self.tell(unheard);
            waits |= recalled.is_some() && !unheard.is_empty();
            match recalled {
                Some(recalled) if !waits => acknowledged.push(recalled),
                None if unheard.is_empty() => {}
                recalled => self.pending.push(Pending { unheard, recalled }),
            }
        }
        for (place, fids, sequence) in acknowledged {
            self.check_kernel_dropped(place, &fids);
            self.step(|table| table.acknowledge(sequence));
        }
    }

    // ---- steps

    fn next_place(&mut self) -> u64 {
        self.place += 1;
        self.place
    }

    fn next_transno(&mut self) -> Transno {
        self.transno += 1;
        Transno(self.transno)
    }

    fn step<T>(&mut self, run: impl FnOnce(&mut LeaseTable) -> T) -> T {
        let (result, Effects { ended, given_up }) = self.table.step(self.now, run);
        assert_eq!(ended, [], "only recalls and losses end leases");
        let unheard = self.tell(given_up);
        self.table.not_heard(unheard);
        self.check();
        result
    }

    /// A step that ends leases; with what has to be acknowledged.
    fn ends(&mut self, run: impl FnOnce(&mut LeaseTable), recalled: Option<(u64, Vec<Fid>, u64)>) {
        let ((), Effects { ended, given_up }) = self.table.step(self.now, run);
        let (unheard, not_heard) = (self.tell(ended), self.tell(given_up));
        self.table.not_heard(not_heard);
        self.pending.push(Pending { unheard, recalled });
        self.check();
    }

    /// What the kernel does not receive of it.
    fn tell(&mut self, dropped: Vec<Dropped>) -> Vec<Dropped> {
        if !self.hears {
            return dropped;
        }
        for dropped in dropped {
            self.kernel.retain(|told, _| !is_about(dropped, *told));
        }
        Vec::new()
    }

    fn lose(&mut self, fids: &[Fid]) {
        for fid in fids {
            self.lost.insert(*fid, self.place);
            self.mdt.remove(fid);
        }
    }

    fn attributes(&mut self, fid: Fid, not_lost: u64, not_changed: u64) -> Attr {
        self.seen.push((not_lost, not_changed));
        Attr { size: self.seen.len() as u64 - 1, ..attr(fid, mode::S_IFREG | 0o755, 1) }
    }
}

fn is_about(dropped: Dropped, told: Told) -> bool {
    match (dropped, told) {
        (Dropped::Attributes(fid), Told::Attributes(of)) => fid == of,
        (Dropped::Names, Told::Names(_)) => true,
        _ => false,
    }
}
