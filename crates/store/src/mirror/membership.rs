//! Which copies hold everything: leaving a copy behind, and the labels that say so.
//!
//! Invariant: one change at a time, and nothing is acknowledged between a change and its label.
//! Invariant: if a label cannot be written, neither copy continues: what the other copy's label says stays true.

use forebay_env::{Disk, EnvError, EnvErrorKind, EnvResult};

use super::{
    label::{Label, Standing},
    mirror::{Mirror, Role, State, closed},
};
use crate::space::OnDrop;

impl Mirror {
    /// Leaves a copy behind: its mate's label says so before this returns. Does nothing if that has happened already.
    ///
    /// Errors: the mate does not hold everything, or its label cannot be written: neither copy can continue.
    pub(super) async fn lose(&self, copy: usize, life: u64, reason: &str) -> EnvResult<()> {
        let _turn = self.labels.lock().await;
        self.lose_in_turn(copy, life, reason).await
    }

    pub(super) async fn lose_in_turn(&self, copy: usize, life: u64, reason: &str) -> EnvResult<()> {
        self.check()?;
        let (disk, farewell) = {
            let mut state = self.state.borrow_mut();
            let of = &state.copies[copy];
            if of.life != life || of.role == Role::Out {
                drop(state);
                return self.check();
            }
            if state.copies[1 - copy].role != Role::Member {
                return Err(EnvError::new(EnvErrorKind::Medium, format!("the last copy fails: {reason}")));
            }
            (state.epoch, state.position, state.copied) = (state.epoch + 1, 0, 0);
            let now = self.env.now();
            let of = &mut state.copies[copy];
            (of.role, of.reason, of.out_since) = (Role::Out, reason.to_owned(), now);
            let disk = of.disk.take();
            of.seq += 1;
            (disk, self.label(&state, copy))
        };
        let words =
            format!("{} goes on with one copy: {}: {reason}", self.name(), self.dirs.path(copy, self.owner.part));
        self.env.log(&words);
        self.tell(&[1 - copy]).await?;
        // The copy's own label, if it can still be written; nothing relies on it.
        if let Some(disk) = disk {
            let write = disk.write(farewell.offset(), vec![farewell.encode().freeze()]);
            drop(self.env.spawn(async move { drop(write.await) }));
        }
        Ok(())
    }

    /// Writes the labels of `copies`, one after the other, and then the witness. Acknowledgements wait meanwhile. A
    /// failure stops the pair.
    pub(super) async fn tell(&self, copies: &[usize]) -> EnvResult<()> {
        self.state.borrow_mut().settling = true;
        self.changed.notify_waiters();
        let settled = OnDrop(|| {
            self.state.borrow_mut().settling = false;
            self.changed.notify_waiters();
        });
        let mut told = Ok(());
        for copy in copies {
            told = match told {
                Ok(()) => self.write_label(*copy).await,
                failed => failed,
            };
        }
        let told = told.and_then(|()| self.dirs.tell_witness(self.owner.part, self.state.borrow().epoch));
        let failure = |error: EnvError| {
            let words = format!("{} cannot say durably which copy goes on: {}", self.name(), error.message);
            EnvError::new(EnvErrorKind::FlushFailed, words)
        };
        let told = told.map_err(failure);
        if let Err(error) = &told {
            self.state.borrow_mut().failed.get_or_insert(error.clone());
        }
        drop(settled);
        told
    }

    /// Writes a copy's next label durably.
    pub(super) async fn write_label(&self, copy: usize) -> EnvResult<()> {
        let (disk, label) = self.next_label(copy)?;
        disk.write_durable(label.offset(), vec![label.encode().freeze()]).await
    }

    /// As [`Mirror::write_label`], for a copy that the pair can do without: it may fail to answer.
    pub(super) async fn write_label_of_other(&self, copy: usize) -> EnvResult<()> {
        let (disk, label) = self.next_label(copy)?;
        let write = async move { disk.write_durable(label.offset(), vec![label.encode().freeze()]).await };
        self.within(copy, write).await
    }

    fn next_label(&self, copy: usize) -> EnvResult<(Disk, Label)> {
        let mut state = self.state.borrow_mut();
        state.copies[copy].seq += 1;
        let label = self.label(&state, copy);
        Ok((state.copies[copy].disk.clone().ok_or_else(closed)?, label))
    }

    fn label(&self, state: &State, copy: usize) -> Label {
        let standing = |role| match role {
            Role::Member => Standing::Member,
            Role::Syncing => Standing::Syncing,
            Role::Out => Standing::Out,
        };
        let (of, mate) = (&state.copies[copy], &state.copies[1 - copy]);
        Label {
            target: self.owner.target,
            part: self.owner.part,
            seq: of.seq,
            epoch: state.epoch,
            copy: of.id,
            standing: standing(of.role),
            mate: mate.id,
            mate_standing: standing(mate.role),
            position: state.position,
            bytes: self.owner.bytes,
        }
    }
}
