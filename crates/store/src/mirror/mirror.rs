//! A pair of disks with equal contents, used as one.
//!
//! A write begins on every copy, and completes when it is on each copy in sync; the same goes for flushes. A copy that
//! fails while another succeeds is left behind. The label of the remaining copy says so, durably, before anything is
//! acknowledged that only that copy has.
//!
//! After a crash, copies may differ in what was in flight. The store checks all it reads, and reads both copies in
//! recovery. It makes both hold what it accepted before it builds on it (see `journal::recover`).
//!
//! Invariant: nothing is acknowledged that is not on every member, nor without a durable label that names the members.
//! Invariant: the last member is never left behind; its answer is then the pair's answer.
//! Not here: which copies are members (`membership`), reads and repairs (`reads`), filling a copy (`resync`), copies
//! that disappear or appear (`watch`).

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

/// State of a copy now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Holds everything.
    Member,
    /// Is being filled; takes every write.
    Syncing,
    /// Lost or left behind.
    Out,
}

/// One of the two copies.
pub(super) struct Copy {
    /// None: the copy is out.
    pub disk: Option<Disk>,
    pub role: Role,
    /// Id and sequence number, as its label says.
    pub id: u64,
    pub seq: u64,
    /// Counts the disks at this location: an answer of an earlier disk says nothing of this one.
    pub life: u64,
    /// Locations that could not be repaired: the offsets at which the reads began.
    pub bad_places: BTreeSet<u64>,
    /// Why it is out, and since when.
    pub reason: String,
    pub out_since: Time,
}

pub(super) struct State {
    pub copies: [Copy; 2],
    pub epoch: u64,
    /// Bytes that the copy being filled holds; `position`: as the last durable label says.
    pub copied: u64,
    pub position: u64,
    /// The label for a change of members is being written: acknowledgements wait.
    pub settling: bool,
    /// The label could not be written: nothing is acknowledged any more.
    pub failed: Option<EnvError>,
    /// The range that is being made equal on both: writes there wait.
    copying: Option<Range<u64>>,
    in_flight: BTreeMap<u64, InFlight>,
    /// Requests that the disks at each location have not answered, including those to disks that were left behind.
    pub unanswered: [u32; 2],
    numbers: u64,
    /// Paths that are being examined and have not answered.
    pub looking: BTreeSet<String>,
    pub stopped: bool,
    pub mended: u64,
}

/// A write in progress.
struct InFlight {
    range: Range<u64>,
    since: Time,
    /// Copies that have not answered.
    waits_for: [bool; 2],
}

/// The target and part that the pair belongs to.
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
    /// Held while the members change.
    pub(super) labels: Mutex<()>,
    /// Held while one copy is made equal to the other.
    pub(super) copier: Mutex<()>,
    pub(super) this: Weak<Mirror>,
}

type Request = Pin<Box<dyn Future<Output = EnvResult<()>>>>;

/// A request to one copy.
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

/// The answer of one copy.
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

    /// The write begins before this returns, unless its location is just being repaired. It continues if the future is
    /// dropped.
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
        // It has no range, so no write waits for it. But a copy that does not answer is left behind, as with a write.
        let (mirror, number) = (self.shared(), self.note(0..0, &asked));
        // A task of its own: a copy's answer must be handled even if the caller does not wait any more.
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

    /// Records a request until all copies have answered.
    fn note(&self, range: Range<u64>, asked: &[Asked]) -> u64 {
        let mut state = self.state.borrow_mut();
        state.numbers += 1;
        let number = state.numbers;
        let waits_for = [0, 1].map(|copy| asked.iter().any(|asked| asked.copy == copy));
        state.in_flight.insert(number, InFlight { range, since: self.env.now(), waits_for });
        number
    }

    /// Sends one request to a copy that the pair can do without. If it is not answered in time, it continues and stays
    /// counted, so that it ends before anything else is written there.
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

    /// Sends a request to every copy that is in use.
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

    /// The answers of the copies. A copy that is left behind meanwhile is not waited for.
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

    /// The pair's answer: that of its members, once a durable label says that the copies that failed are left behind.
    pub(super) async fn settle(&self, answers: Vec<Answer>) -> EnvResult<()> {
        let member = |copy: usize, life: u64| {
            let state = self.state.borrow();
            state.copies[copy].life == life && state.copies[copy].role == Role::Member
        };
        if !answers.iter().any(|(copy, life, answer)| answer.is_ok() && member(*copy, *life)) {
            self.check()?;
            // Of those that failed, a member's error counts; a failed flush is the worst.
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

    /// Returns an error once a label could not be written.
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

    /// Waits until writes in progress to `range` have ended. New ones wait until the guard is dropped.
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

    /// Target and part, for messages.
    pub(super) fn name(&self) -> String {
        format!("{}: {}", self.owner.name, self.owner.part.name())
    }

    pub(super) fn shared(&self) -> Rc<Self> {
        self.this.upgrade().expect("a mirror that is used exists")
    }

    /// Ends background work.
    pub(crate) fn stop(&self) {
        self.state.borrow_mut().stopped = true;
        self.changed.notify_waiters();
    }

    /// Ends background work; it has ended when this returns.
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
