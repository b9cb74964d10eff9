//! Polls the OSTs for their free space, and replaces the placement table when the weights move.

use std::{
    collections::BTreeSet,
    rc::{Rc, Weak},
    time::Duration,
};

use forebay_proto::{
    Decode, ErrorReply,
    message::{OstLatency, OstStatFs, SetLayout},
};
use forebay_target::Attempt;

use crate::{
    Mds, keys, limits,
    memory::Memory,
    placement::{OstSpace, Table, weigh},
};

/// Runs until the server ends.
pub async fn run(mds: Weak<Mds>) {
    loop {
        let Some(this) = mds.upgrade().filter(|this| !this.is_closed()) else { return };
        if let Err(error) = this.keep_capability_keys().await {
            this.log_failure("the keys of capabilities stay as they are", &error);
        }
        this.poll_all().await;
        if let Err(error) = this.update_placement().await {
            return this.log_failure("placement stays as it is until the next start", &error);
        }
        let env = this.env.clone();
        drop(this);
        env.sleep(limits::POLL_INTERVAL).await;
    }
}

impl Mds {
    /// Polls now. Returns how many OSTs have space that had none.
    pub(crate) async fn poll_for_space(self: &Rc<Self>) -> Result<u64, ErrorReply> {
        let known = || {
            let memory = self.memory.borrow();
            (memory.full.clone(), memory.exhausted.clone())
        };
        let before = known();
        let _ = self.env.timeout(limits::POLL_FOR_SPACE_TIMEOUT, self.poll_all()).await;
        self.update_placement().await?;
        let after = known();
        Ok((before.0.difference(&after.0).count() + before.1.difference(&after.1).count()) as u64)
    }

    /// Runs before a layout is set that asks for more stripes than there are OSTs with space. Checks whether OSTs that
    /// reply but had no space have some by now.
    pub(crate) async fn look_for_stripes(self: &Rc<Self>, body: &[u8]) -> Attempt<()> {
        let SetLayout { layout, .. } = Decode::from_bytes(body)?;
        let (count, pool) = match layout.components.first() {
            Some(part) => (part.stripe_count, &part.pool),
            None => (layout.stripe_count, &layout.pool),
        };
        let full: Vec<u32> = {
            let memory = self.memory.borrow();
            let Some(table) = memory.placement.newest_table() else { return Ok(()) };
            let members = table.pools.get(pool);
            let (with_room, without): (Vec<_>, Vec<_>) = table
                .weights
                .iter()
                .filter(|(ost, _)| members.is_none_or(|members| members.contains(ost)))
                .partition(|(_, weight)| **weight > 0);
            if count == u32::MAX || count as usize <= with_room.len() {
                return Ok(());
            }
            let spaces = self.spaces.borrow();
            let answers = |ost: &u32| spaces.get(ost).copied().flatten().is_some_and(|space| space.alive);
            without.into_iter().map(|(ost, _)| *ost).filter(answers).collect()
        };
        if !full.is_empty() {
            self.destroyed(full).await?;
            self.poll_for_space().await?;
        }
        Ok(())
    }

    /// Polls all OSTs concurrently, each with a timeout.
    async fn poll_all(self: &Rc<Self>) {
        let ask = |ost: u32| {
            let mds = self.clone();
            let poll = async move {
                mds.push_bans(ost).await;
                let asks = async {
                    let space = mds.osts.ask(ost, &OstStatFs {}).await?;
                    Ok::<_, ErrorReply>((space, mds.osts.ask(ost, &OstLatency {}).await))
                };
                if let Ok(Err(error)) = mds.env.timeout(limits::POLL_TIMEOUT, mds.push_capability_keys(ost)).await {
                    mds.log_failure(&format!("OST{ost:04x} does not take the keys of capabilities"), &error);
                }
                let answer = mds.env.timeout(limits::POLL_TIMEOUT, asks).await;
                mds.note_space(
                    ost,
                    answer.ok().and_then(Result::ok).map(|(space, pace)| OstSpace {
                        total_bytes: space.total_bytes,
                        available_bytes: space.available_bytes,
                        alive: true,
                        commit_us: pace.map_or(0, |pace| pace.commit_us),
                    }),
                );
            };
            self.env.spawn(poll)
        };
        let tasks: Vec<_> = self.osts.indices().into_iter().map(ask).collect();
        for task in tasks {
            task.await;
        }
        self.polled.set(self.env.now());
    }

    /// True if a server is away, its device is stuck, or there is no recent poll.
    pub(super) fn is_in_trouble(&self) -> bool {
        let is_stuck = |pace: Duration| pace >= limits::STUCK_COMMIT;
        let is_well = |ost: &OstSpace| ost.alive && !is_stuck(Duration::from_micros(ost.commit_us));
        let osts_are_well = self.spaces.borrow().values().all(|ost| ost.as_ref().is_some_and(is_well));
        let is_known = self.env.now().since(self.polled.get()) < limits::POLLED_LATELY;
        !osts_are_well || !is_known || self.target().is_ok_and(|target| is_stuck(target.store().commit_latency()))
    }

    fn note_space(&self, ost: u32, space: Option<OstSpace>) {
        if let Some(space) = space {
            let mut memory = self.memory.borrow_mut();
            let mut note = |of: fn(&mut Memory) -> &mut BTreeSet<u32>, is_so: bool| match is_so {
                true => of(&mut memory).insert(ost),
                false => of(&mut memory).remove(&ost),
            };
            note(|memory| &mut memory.full, !space.has_free_space());
            note(
                |memory| &mut memory.exhausted,
                !space.has_free_space() && space.available_bytes < limits::EXHAUSTED_BYTES,
            );
        }
        let mut spaces = self.spaces.borrow_mut();
        let Some(known) = spaces.get_mut(&ost) else { return };
        let silent = OstSpace { total_bytes: 0, available_bytes: 0, alive: false, commit_us: 0 };
        *known = space.or(Some(OstSpace { alive: false, ..known.unwrap_or(silent) }));
    }

    /// Logs which OSTs became slow, and which no longer are.
    fn note_slow_osts(&self, last: &Table) {
        let mut slow = self.slow_osts.borrow_mut();
        let before = slow.all().clone();
        slow.note(&self.spaces.borrow(), &last.pools);
        for ost in slow.all().difference(&before) {
            let took = self.spaces.borrow().get(ost).copied().flatten().map_or(0, |space| space.commit_us / 1000);
            let words = format!("commits take {took} ms there, much longer than elsewhere; new files avoid it");
            self.env.log(&format!("OST{ost:04x} is slow: {words}"));
        }
        for ost in before.difference(slow.all()) {
            self.env.log(&format!("OST{ost:04x} is no longer slow, or does not answer"));
        }
    }

    /// If the weights moved, makes a new table and commits it before the first create uses it.
    pub(crate) async fn update_placement(&self) -> Result<(), ErrorReply> {
        // A table with changed pools may be in the middle of its commit.
        self.wait_until(|memory| !memory.placing).await;
        let last = self.memory.borrow().placement.newest_table().cloned().unwrap_or_default();
        self.note_slow_osts(&last);
        let table = weigh(&self.spaces.borrow(), self.slow_osts.borrow().all(), &last);
        if table == last {
            return Ok(());
        }
        self.memory.borrow_mut().placing = true;
        let result = self.commit_placement(&table).await;
        self.memory.borrow_mut().placing = false;
        self.memory_changed();
        result
    }

    async fn commit_placement(&self, table: &Table) -> Result<(), ErrorReply> {
        let old = self.memory.borrow_mut().placement.prune(self.store.last_committed());
        let from = self
            .change(|tx| {
                let from = tx.origin.transno;
                old.iter().for_each(|from| tx.delete(keys::placement(*from)));
                tx.put_with(keys::placement(from), |out| out.extend_from_slice(&table.encode()));
                Ok(from)
            })
            .await?;
        self.target()?.wait_committed(from).await?;
        self.memory.borrow_mut().placement.push(from, table);
        Ok(())
    }
}
