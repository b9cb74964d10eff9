//! The cleaner: empties slabs in which much is garbage, and slabs that went bad.
//!
//! A round empties several victims. The cleaner reads each as a whole and moves their live bytes in parallel. Then it
//! makes one checkpoint for all their index pages, and one commit. A victim's run headers say what was written there;
//! the index says what of it is still live. Tombstones are written again while other slabs hold older bytes.
//!
//! Background cleaning runs while callers are quiet, so that a burst finds space. When free slabs run short, or a
//! request waits, the cleaner works whatever callers do.
//!
//! Invariant: a row is changed only if it still has the value that was moved.
//! Not here: when an emptied slab may be opened again (see `slab::allocator`).

mod image;
mod moves;
mod victims;

use std::rc::Rc;

use forebay_env::Task;

pub(crate) use self::moves::piece_extent;
use self::{
    moves::Content,
    victims::{Need, Stuck, Victim},
};
use crate::{StoreError, StoreErrorKind, StoreResult, core::Core, limits};

/// The cleaner's work since it began, and its result: bytes that pack badly must not be moved around forever.
#[derive(Default)]
struct Effort {
    most_free: u32,
    grants: u64,
    slabs_since: u32,
    waited_for: bool,
}

impl Effort {
    /// Work without gain before a request waited does not count.
    fn begin_round(&mut self, waited_for: bool) {
        if waited_for && !self.waited_for {
            *self = Self { waited_for, ..Self::default() };
        }
    }

    /// True if the cleaner has emptied more slabs than exist (in the background: far fewer), no more are free than
    /// before, and no request got space meanwhile.
    fn is_fruitless(&mut self, core: &Core, need: Need, cleaned: u32) -> bool {
        let (free, grants) = (core.alloc.borrow().free_count(), core.promises.grants());
        let progress = free > self.most_free || grants > self.grants;
        self.slabs_since = if progress { 0 } else { self.slabs_since + cleaned };
        (self.most_free, self.grants) =
            if grants > self.grants { (free, grants) } else { (self.most_free.max(free), grants) };
        let most = if need == Need::Ahead { limits::BACKGROUND_FRUITLESS } else { core.geometry.slab_count };
        self.slabs_since > most
    }
}

/// The result of a round.
struct Round {
    /// Number of victims.
    victims: u32,
    /// True if something was gained, or may be by another round.
    gained: bool,
}

/// Waits for all of `tasks`.
async fn all<T>(tasks: Vec<Task<StoreResult<T>>>) -> Vec<StoreResult<T>> {
    let mut outcomes = Vec::with_capacity(tasks.len());
    for task in tasks {
        let closed = || Err(StoreError::new(StoreErrorKind::Stopped, "the store is closed"));
        outcomes.push(task.await.unwrap_or_else(closed));
    }
    outcomes
}

impl Core {
    /// The cleaner's task.
    pub(crate) async fn clean_loop(self: Rc<Self>) {
        let mut stuck = Stuck::default();
        let mut effort = Effort::default();
        // The count of calls when background cleaning gained nothing: until it changes, it would gain nothing again.
        let mut ahead_done_at = None;
        loop {
            let wake = self.wake_cleaner.notified();
            if self.check_running().is_err() {
                return;
            }
            let need = self.cleaning_need(&stuck, ahead_done_at);
            match need {
                Need::None => {
                    effort = Effort::default();
                    self.rest(wake).await;
                    continue;
                }
                Need::BackgroundIn(rest) => {
                    let _woken = self.env.timeout(rest, self.rest(wake)).await;
                    self.cleaner_rests.set(false);
                    continue;
                }
                Need::Ahead | Need::Now => (),
            }
            // For a waiting request, smaller gains are worth cleaning: that an earlier round gained nothing says
            // nothing about it.
            let waited_for = self.somebody_waits();
            let deaths = self.alloc.borrow().deaths();
            effort.begin_round(waited_for);
            let mut outcome = self.clean_round(need, &mut stuck).await;
            let vain = outcome.as_ref().is_ok_and(|it| it.gained && effort.is_fruitless(&self, need, it.victims));
            if vain && waited_for {
                // A slab that is free, but not durably so, would keep a request waiting that is to be refused.
                outcome = self.make_sure().await.and(outcome);
            }
            match outcome {
                Ok(round) if round.gained && !vain => (),
                Ok(_) if need == Need::Ahead => {
                    effort = Effort::default();
                    ahead_done_at = Some(self.calls.get());
                }
                Ok(_) => {
                    effort = Effort::default();
                    // What died during a round without gain may be worth another round. What the cleaner itself moved
                    // in vain is not.
                    let deaths = if vain { self.alloc.borrow().deaths() } else { deaths };
                    self.promises.set_nothing_to_clean(waited_for.then_some(deaths));
                    if self.writer.user_waits() {
                        if !waited_for || self.alloc.borrow().deaths() != deaths {
                            continue;
                        }
                        self.writer_gives_up();
                    }
                    if stuck.is_empty() {
                        self.rest(wake).await;
                    } else {
                        let _woken = self.env.timeout(limits::STUCK_FOR, self.rest(wake)).await;
                        self.cleaner_rests.set(false);
                    }
                }
                Err(error) if error.kind == StoreErrorKind::Full => {
                    self.writer.fail_user(&error);
                    self.rest(wake).await;
                }
                Err(error) if error.kind == StoreErrorKind::Busy => self.rest(wake).await,
                Err(error) => {
                    self.stop(&error);
                    return;
                }
            }
        }
    }

    /// Waits to be woken. Meanwhile no request waits for the cleaner.
    async fn rest(&self, wake: impl Future<Output = ()>) {
        self.cleaner_rests.set(true);
        self.progress.notify_waiters();
        wake.await;
        self.cleaner_rests.set(false);
    }

    /// A caller reads, places or changes something: background cleaning pauses for a while.
    pub(crate) fn note_call(&self) {
        self.calls.set(self.calls.get() + 1);
        self.called_at.set(self.env.now());
    }

    /// NeverWritten some slabs in parallel.
    async fn clean_round(&self, need: Need, stuck: &mut Stuck) -> StoreResult<Round> {
        if self.somebody_waits() {
            self.make_sure().await?;
        } else if self.checkpoint_makes_sure() {
            self.checkpoint_now().await?;
        }
        let victims = self.choose_victims(need, stuck);
        if victims.is_empty() {
            return Ok(Round { victims: 0, gained: self.settle_emptied().await? });
        }
        let read = |victim: &Victim| {
            let (core, victim) = (self.shared(), *victim);
            self.env.spawn(async move { core.read_victim(victim).await })
        };
        let contents: Vec<Content> =
            all(victims.iter().map(read).collect()).await.into_iter().collect::<StoreResult<_>>()?;
        // All of them before anything moves. Of equal tombstones in several victims only one is written, and an emptied
        // victim may be opened again at any time.
        self.carry_tombstones(&contents).await?;
        let clean = |content: Content| {
            let core = self.shared();
            self.env.spawn(async move { core.clean(&content).await })
        };
        let outcomes = all(contents.into_iter().map(clean).collect()).await;
        let mut pages = false;
        let mut whole = Vec::new();
        for (victim, outcome) in victims.iter().zip(outcomes) {
            let moved = match outcome {
                // A page of the index is damaged: what lives there is unknown. The slab stays as it is; readers get
                // errors.
                Err(error) if matches!(error.kind, StoreErrorKind::Corrupt | StoreErrorKind::Medium) => {
                    self.stats.borrow_mut().damaged_pieces += 1;
                    let (name, slab) = (self.identity.target, victim.slab);
                    self.env.log(&format!("{name}: slab {slab} cannot be cleaned: {}", error.message));
                    false
                }
                Err(error) => return Err(error),
                Ok(cleaned) => {
                    pages |= cleaned.pages;
                    !cleaned.damaged
                }
            };
            whole.push(moved);
        }
        if pages {
            self.checkpoint_now().await?;
        }
        for (victim, whole) in victims.iter().zip(whole) {
            let left =
                self.alloc.borrow().slab(victim.slab).is_some_and(|slab| slab.epoch == victim.epoch && slab.live() > 0);
            if left || !whole {
                stuck.add(*victim, self.env.now());
            } else {
                self.stats.borrow_mut().slabs_cleaned += 1;
            }
        }
        self.settle_emptied().await?;
        Ok(Round { victims: victims.len() as u32, gained: true })
    }

    /// Makes emptied slabs free, which takes a commit. True if more are free then.
    async fn settle_emptied(&self) -> StoreResult<bool> {
        let before = self.alloc.borrow().free_count();
        if self.alloc.borrow().awaits_commit(self.committed_group()) {
            self.sync().await?;
        }
        self.collect_slabs();
        Ok(self.alloc.borrow().free_count() > before)
    }

    /// Makes all free slabs durably free: with a checkpoint, if needed.
    async fn make_sure(&self) -> StoreResult<()> {
        let unsure = { self.alloc.borrow().sure_free_count() < self.alloc.borrow().free_count() };
        if unsure { self.checkpoint_now().await } else { Ok(()) }
    }

    fn writer_gives_up(&self) {
        self.writer.fail_user(&StoreError::full(format!("{} is full: no slab can be emptied", self.identity.target)));
    }
}
