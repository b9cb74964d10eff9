//! Filling a copy while the store is served.
//!
//! The copy takes every write from the first moment. A walk over all bytes brings what it lacks, chunk by chunk; writes
//! to a chunk wait while it is copied. The label of the source copy records the progress, so that a restart continues
//! there. Everything before that position took part in every flush since.
//!
//! Invariant: a copy counts as a member only after all that was copied to it is flushed, and its mate's label says so.

use std::{rc::Rc, time::Duration};

use forebay_env::{Disk, EnvResult};

use super::mirror::{Copy, Mirror, Role};
use crate::limits::{MIRROR_CHUNK_BYTES, MIRROR_SAVE_BYTES};

impl Mirror {
    /// Begins to fill copy `to` on `disk`, whose last label was `seq`.
    pub(super) async fn begin_sync(&self, to: usize, disk: Disk, id: u64, seq: u64) -> EnvResult<()> {
        let _turn = self.labels.lock().await;
        let life = {
            let mut state = self.state.borrow_mut();
            if state.stopped || state.copies[to].role != Role::Out {
                return Ok(());
            }
            (state.epoch, state.position, state.copied) = (state.epoch + 1, 0, 0);
            let life = state.copies[to].life + 1;
            let now = self.env.now();
            let (reason, bad_places) = Default::default();
            state.copies[to] =
                Copy { disk: Some(disk), role: Role::Syncing, id, seq, life, bad_places, reason, out_since: now };
            life
        };
        let path = self.dirs.path(to, self.owner.part);
        self.env.log(&format!("{}: the copy in {path} is being brought up to date", self.name()));
        self.tell(&[1 - to]).await?;
        if let Err(error) = self.write_label_of_other(to).await {
            return self.lose_in_turn(to, life, &error.message).await;
        }
        drop(self.env.spawn(self.shared().resync(to, life)));
        Ok(())
    }

    /// Fills a copy; ends when it is a member, or lost.
    pub(super) async fn resync(self: Rc<Self>, to: usize, life: u64) {
        let mut unreadable = 0;
        loop {
            let (at, saved) = {
                let state = self.state.borrow();
                if state.stopped || state.copies[to].life != life || state.copies[to].role != Role::Syncing {
                    return;
                }
                (state.copied, state.position)
            };
            let began = self.env.now();
            let end = (at + MIRROR_CHUNK_BYTES).min(self.owner.bytes);
            let outcome = match at < self.owner.bytes {
                true => self.fill_to(to, life, at, end).await,
                false => return self.finish_sync(to, life, unreadable).await,
            };
            match outcome {
                Ok(sectors) => unreadable += sectors,
                Err(words) => {
                    // An error here is one of its mate: the store's requests get it, too.
                    drop(self.lose(to, life, &words).await);
                    return;
                }
            }
            if end - saved >= MIRROR_SAVE_BYTES {
                self.save_position(to, life).await;
            }
            // Polite: it rests as long as it worked, at most 100 ms.
            let took = self.env.now().since(began).min(Duration::from_millis(100));
            self.env.sleep(took).await;
        }
    }

    async fn fill_to(&self, to: usize, life: u64, at: u64, end: u64) -> Result<u64, String> {
        let _turn = self.copier.lock().await;
        let filled = match self.fill(at..end, 1 - to).await {
            Ok(filled) => filled.map_err(|error| error.message)?,
            Err(error) => return Err(format!("it cannot be filled: {}", error.message)),
        };
        let mut state = self.state.borrow_mut();
        if state.copies[to].life == life {
            state.copied = end;
        }
        Ok(filled)
    }

    /// Makes the copied bytes durable, and records the position.
    async fn save_position(&self, to: usize, life: u64) {
        let copied = self.state.borrow().copied;
        if !self.flush_copy(to, life).await {
            return;
        }
        let _turn = self.labels.lock().await;
        {
            let mut state = self.state.borrow_mut();
            if state.stopped || state.copies[to].life != life || state.copies[to].role != Role::Syncing {
                return;
            }
            state.position = copied;
        }
        // An error here is one of the member: the next flush gets it, too.
        drop(self.write_label(1 - to).await);
    }

    /// Flushes the copy. False if it is lost.
    async fn flush_copy(&self, to: usize, life: u64) -> bool {
        let disk = self.state.borrow().copies[to].disk.clone();
        let flushed = match disk {
            Some(disk) => {
                let flushed = self.within(to, async move { disk.flush().await }).await;
                flushed.map_err(|error| error.message)
            }
            None => return false,
        };
        if let Err(words) = flushed {
            drop(self.lose(to, life, &words).await);
            return false;
        }
        true
    }

    async fn finish_sync(&self, to: usize, life: u64, unreadable: u64) {
        if !self.flush_copy(to, life).await {
            return;
        }
        let _turn = self.labels.lock().await;
        {
            let mut state = self.state.borrow_mut();
            if state.stopped || state.copies[to].life != life || state.copies[to].role != Role::Syncing {
                return;
            }
            (state.epoch, state.position, state.copied) = (state.epoch + 1, 0, 0);
            state.copies[to].role = Role::Member;
        }
        // The label of the source copy says so first: until then only that one may continue alone.
        if self.tell(&[1 - to]).await.is_err() {
            return;
        }
        if let Err(error) = self.write_label_of_other(to).await {
            drop(self.lose_in_turn(to, life, &error.message).await);
            return;
        }
        let path = self.dirs.path(to, self.owner.part);
        let gaps = match unreadable {
            0 => String::new(),
            many => format!("; {many} sectors of the other could not be read, and are what they were"),
        };
        self.env.log(&format!("{}: both copies are in sync again, with {path}{gaps}", self.name()));
    }
}
