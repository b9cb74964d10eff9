//! A pair of disks that hold the same, as one.
//!
//! A write is begun on every copy, and complete when it is on each that is in sync; the same of flushes. A copy that fails
//! while another succeeds is left behind: the label of the one that goes on says so, durably, before anything is
//! acknowledged that only that one has. Copies may differ in what was in flight at a crash: the store checks all it reads,
//! asks both copies where it recovers, and makes both hold what it accepted before it builds on it (see `journal::recover`).
//!
//! Invariant: nothing is acknowledged that is not on every member, nor without a durable label that tells who is one.
//! Invariant: the last member is never left behind; what it answers then is the pair's answer.
//! Not here: who is a member (`membership`), reads and mending (`reads`), filling a copy (`resync`), copies that come and go (`watch`).

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    pin::Pin,
    rc::{Rc, Weak},
};

use bytes::Bytes;
use forebay_env::{
    Disk, Env, EnvError, EnvErrorKind, EnvResult, Task, Time,
    sync::{Mutex, Notify, oneshot, select},
};
use forebay_proto::{TargetId, Uuid};

use super::{dirs::Dirs, label::Part};
use crate::{limits::MIRROR_STUCK, space::OnDrop};

/// What a copy is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Holds everything.
    Member,
    /// Is being filled; takes every write.
    Syncing,
    /// Lost or left behind.
    Out,
}

/// One of the two.
pub(super) struct Copy {
    /// None: it is out.
    pub disk: Option<Disk>,
    pub role: Role,
    /// As its label says.
    pub id: u64,
    pub seq: u64,
    /// Counts what lay in this place: an answer of an earlier disk says nothing of this one.
    pub life: u64,
    /// Where it could not be mended: known by where a read began.
    pub bad_places: BTreeSet<u64>,
    /// Why it is out, and since when.
    pub reason: String,
    pub out_since: Time,
}

pub(super) struct State {
    pub copies: [Copy; 2],
    pub epoch: u64,
    /// Bytes that a copy being filled holds; as the last durable label says.
    pub copied: u64,
    pub position: u64,
    /// The label that tells of a change is on its way: acknowledgements wait.
    pub settling: bool,
    /// The label could not be written: nothing is acknowledged any more.
    pub failed: Option<EnvError>,
    /// Bytes that are being made the same on both: writes there wait.
    copying: Option<Range<u64>>,
    in_flight: BTreeMap<u64, InFlight>,
    /// Requests that the disks in each place have not answered, those of disks that were left behind among them.
    pub unanswered: [u32; 2],
    numbers: u64,
    /// Paths that were looked at and have not answered.
    pub looking: BTreeSet<String>,
    pub stopped: bool,
    pub mended: u64,
}

/// A write under way.
struct InFlight {
    range: Range<u64>,
    since: Time,
    /// Copies that have not answered.
    waits_for: [bool; 2],
}

/// Whose and of what.
#[derive(Clone)]
pub(super) struct Owner {
    pub target: Uuid,
    pub name: TargetId,
    pub part: Part,
    pub bytes: u64,
}

/// See the module.
pub(crate) struct Mirror {
    pub(super) env: Env,
    pub(super) owner: Owner,
    pub(super) dirs: Rc<Dirs>,
    pub(super) state: RefCell<State>,
    pub(super) changed: Notify,
    /// Held while it changes who is a member.
    pub(super) labels: Mutex<()>,
    /// Held by whoever makes one copy as the other is.
    pub(super) copier: Mutex<()>,
    pub(super) this: Weak<Mirror>,
}

type Request = Pin<Box<dyn Future<Output = EnvResult<()>>>>;

/// What one copy was asked.
pub(super) struct Asked {
    pub copy: usize,
    pub life: u64,
    pub task: Task<EnvResult<()>>,
}

/// A write that was begun.
struct Begun {
    number: u64,
    asked: Vec<Asked>,
}

/// What one copy answered.
pub(super) type Answer = (usize, u64, EnvResult<()>);

impl Mirror {
    pub(super) fn new(env: &Env, owner: Owner, dirs: Rc<Dirs>, copies: [Copy; 2], epoch: u64) -> Rc<Self> {
        let state = State {
            copies,
            epoch,
            copied: 0,
            position: 0,
            settling: false,
            failed: None,
            copying: None,
            in_flight: BTreeMap::new(),
            unanswered: [0, 0],
            numbers: 0,
            looking: BTreeSet::new(),
            stopped: false,
            mended: 0,
        };
        Rc::new_cyclic(|this| Self {
            env: env.clone(),
            owner,
            dirs,
            state: RefCell::new(state),
            changed: Notify::new(),
            labels: Mutex::new(()),
            copier: Mutex::new(()),
            this: this.clone(),
        })
    }

    /// Size of the part.
    pub(crate) fn bytes(&self) -> u64 {
        self.owner.bytes
    }

    /// Copies that hold everything.
    pub(crate) fn members(&self) -> Vec<usize> {
        let state = self.state.borrow();
        (0..2).filter(|copy| state.copies[*copy].role == Role::Member).collect()
    }

    pub(crate) fn is_being_filled(&self) -> bool {
        self.state.borrow().copies.iter().any(|copy| copy.role == Role::Syncing)
    }

    /// Begun before this returns, unless the place is just being mended; goes on if the future is dropped.
    pub(crate) fn write(
        &self,
        offset: u64,
        parts: Vec<Bytes>,
        durable: bool,
    ) -> impl Future<Output = EnvResult<()>> + 'static {
        let (done, answer) = oneshot::channel();
        let mirror = self.shared();
        let range = offset..offset + parts.iter().map(|part| part.len() as u64).sum::<u64>();
        let begun = self.begin(&range, &parts, durable);
        drop(self.env.spawn(async move {
            let begun = match begun {
                Some(begun) => begun,
                None => mirror.begin_when_free(&range, &parts, durable).await,
            };
            let answers = mirror.answers(begun.asked, begun.number).await;
            mirror.landed(begun.number);
            drop(done.send(mirror.settle(answers).await));
        }));
        async move { answer.await.unwrap_or_else(|_| Err(closed())) }
    }

    /// Makes what completed before durable on every copy in sync.
    pub(crate) async fn flush(&self) -> EnvResult<()> {
        let asked = self.ask(|disk| -> Request {
            let disk = disk.clone();
            Box::pin(async move { disk.flush().await })
        });
        // Of no place, so that nobody's write waits for it; but whoever does not answer is left behind, as with a write.
        let (mirror, number) = (self.shared(), self.note(0..0, &asked));
        // A task of its own: what a copy answers must be heard, also if nobody waits any more.
        let task = self.env.spawn(async move {
            let answers = mirror.answers(asked, number).await;
            mirror.landed(number);
            mirror.settle(answers).await
        });
        task.await.unwrap_or_else(|| Err(closed()))
    }

    fn begin(&self, range: &Range<u64>, parts: &[Bytes], durable: bool) -> Option<Begun> {
        if self.state.borrow().copying.as_ref().is_some_and(|copying| overlap(copying, range)) {
            return None;
        }
        let offset = range.start;
        let asked = self.ask(|disk| -> Request {
            let parts = parts.to_vec();
            if !durable {
                // Submitted here and now.
                return Box::pin(disk.write(offset, parts));
            }
            let disk = disk.clone();
            Box::pin(async move { disk.write_durable(offset, parts).await })
        });
        let number = self.note(range.clone(), &asked);
        Some(Begun { number, asked })
    }

    /// Notes what was asked until it has landed.
    fn note(&self, range: Range<u64>, asked: &[Asked]) -> u64 {
        let mut state = self.state.borrow_mut();
        state.numbers += 1;
        let number = state.numbers;
        let waits_for = [0, 1].map(|copy| asked.iter().any(|asked| asked.copy == copy));
        state.in_flight.insert(number, InFlight { range, since: self.env.now(), waits_for });
        number
    }

    /// One request to a copy that the pair can do without. One that is not answered for long goes on by itself, but is counted,
    /// so that it lands before anything else is brought there.
    pub(super) async fn within<T: 'static>(
        &self,
        copy: usize,
        request: impl Future<Output = EnvResult<T>> + 'static,
    ) -> EnvResult<T> {
        self.state.borrow_mut().unanswered[copy] += 1;
        let this = self.this.clone();
        let task = self.env.spawn(async move {
            let answer = request.await;
            if let Some(mirror) = this.upgrade() {
                mirror.state.borrow_mut().unanswered[copy] -= 1;
            }
            answer
        });
        match self.env.timeout(MIRROR_STUCK, task).await {
            Ok(answer) => answer.unwrap_or_else(|| Err(closed())),
            Err(_) => Err(EnvError::new(EnvErrorKind::Medium, "it does not answer")),
        }
    }

    async fn begin_when_free(&self, range: &Range<u64>, parts: &[Bytes], durable: bool) -> Begun {
        loop {
            let changed = self.changed.notified();
            if let Some(begun) = self.begin(range, parts, durable) {
                return begun;
            }
            changed.await;
        }
    }

    /// Asks every copy that is in use.
    fn ask(&self, request: impl Fn(&Disk) -> Request) -> Vec<Asked> {
        let state = self.state.borrow();
        if state.failed.is_some() {
            return Vec::new();
        }
        let in_use = (0..2).filter_map(|copy| {
            let of = &state.copies[copy];
            Some((copy, of.life, of.disk.as_ref()?))
        });
        let asked: Vec<Asked> = in_use
            .map(|(copy, life, disk)| {
                let (request, this) = (request(disk), self.this.clone());
                let task = self.env.spawn(async move {
                    let answer = request.await;
                    if let Some(mirror) = this.upgrade() {
                        mirror.state.borrow_mut().unanswered[copy] -= 1;
                    }
                    answer
                });
                Asked { copy, life, task }
            })
            .collect();
        drop(state);
        let mut state = self.state.borrow_mut();
        asked.iter().for_each(|asked| state.unanswered[asked.copy] += 1);
        drop(state);
        asked
    }

    /// What the copies answered; of one that is left behind meanwhile nothing is awaited.
    async fn answers(&self, asked: Vec<Asked>, number: u64) -> Vec<Answer> {
        let mut answers = Vec::with_capacity(asked.len());
        for Asked { copy, life, mut task } in asked {
            let answer = loop {
                let changed = self.changed.notified();
                if !self.is_in_use(copy, life) {
                    break Err(EnvError::new(EnvErrorKind::Other, "this copy was left behind"));
                }
                select! {
                    biased;
                    answer = &mut task => break answer.unwrap_or_else(|| Err(closed())),
                    () = changed => {}
                }
            };
            self.state.borrow_mut().in_flight.entry(number).and_modify(|write| write.waits_for[copy] = false);
            answers.push((copy, life, answer));
        }
        answers
    }

    fn landed(&self, number: u64) {
        self.state.borrow_mut().in_flight.remove(&number);
        self.changed.notify_waiters();
    }

    fn is_in_use(&self, copy: usize, life: u64) -> bool {
        let state = self.state.borrow();
        state.copies[copy].life == life && state.copies[copy].role != Role::Out
    }

    /// The pair's answer: that of its members, once those that failed are known, durably, to be left behind.
    pub(super) async fn settle(&self, answers: Vec<Answer>) -> EnvResult<()> {
        let member = |copy: usize, life: u64| {
            let state = self.state.borrow();
            state.copies[copy].life == life && state.copies[copy].role == Role::Member
        };
        if !answers.iter().any(|(copy, life, answer)| answer.is_ok() && member(*copy, *life)) {
            self.check()?;
            // Of those that failed, a member's words count; a failed flush is the worst.
            let errors =
                || answers.iter().filter_map(|(copy, life, answer)| Some((*copy, *life, answer.as_ref().err()?)));
            let worst = errors().find(|(.., error)| error.kind == EnvErrorKind::FlushFailed);
            let error =
                worst.or_else(|| errors().find(|(copy, life, _)| member(*copy, *life))).or_else(|| errors().next());
            return Err(error.map_or_else(closed, |(.., error)| error.clone()));
        }
        for (copy, life, answer) in answers {
            if let Err(error) = answer {
                self.lose(copy, life, &error.message).await?;
            }
        }
        self.until_settled().await
    }

    /// Errors once a label could not be written.
    pub(super) fn check(&self) -> EnvResult<()> {
        self.state.borrow().failed.clone().map_or(Ok(()), Err)
    }

    async fn until_settled(&self) -> EnvResult<()> {
        loop {
            let changed = self.changed.notified();
            self.check()?;
            if !self.state.borrow().settling {
                return Ok(());
            }
            changed.await;
        }
    }

    /// Keeps writes out of `range`, when those under way have landed, until what is returned goes.
    pub(super) async fn exclude(&self, range: Range<u64>) -> impl Drop + '_ {
        self.state.borrow_mut().copying = Some(range.clone());
        let free = OnDrop(|| {
            self.state.borrow_mut().copying = None;
            self.changed.notify_waiters();
        });
        loop {
            let changed = self.changed.notified();
            if !self.state.borrow().in_flight.values().any(|write| overlap(&write.range, &range)) {
                return free;
            }
            changed.await;
        }
    }

    /// The copy that has not answered since `long_ago`, while the other one has.
    pub(super) fn stuck_since(&self, long_ago: Time) -> Option<(usize, u64)> {
        let state = self.state.borrow();
        let old = state.in_flight.values().filter(|write| write.since <= long_ago);
        let mut stuck = old.filter_map(|write| match write.waits_for {
            [true, false] => Some(0),
            [false, true] => Some(1),
            _ => None,
        });
        stuck.next().map(|copy| (copy, state.copies[copy].life))
    }

    /// Target and part, for people.
    pub(super) fn name(&self) -> String {
        format!("{}: {}", self.owner.name, self.owner.part.name())
    }

    pub(super) fn shared(&self) -> Rc<Self> {
        self.this.upgrade().expect("a mirror that is used exists")
    }

    /// Background work ends.
    pub(crate) fn stop(&self) {
        self.state.borrow_mut().stopped = true;
        self.changed.notify_waiters();
    }

    /// Background work has ended when this returns.
    pub(crate) async fn close(&self) {
        self.stop();
        drop(self.labels.lock().await);
        drop(self.copier.lock().await);
    }
}

pub(super) fn closed() -> EnvError {
    EnvError::new(EnvErrorKind::Other, "the store is closed")
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}
