//! Watches the copies while the store is served: files that were deleted or replaced, devices that do not answer, new
//! copies that the operator prepared, and copies that come back.
//!
//! At the location of a lost copy, only two things are written to: a copy that was prepared for it
//! (`forebay mirror replace`), and the lost copy itself.

use std::rc::Weak;

use forebay_env::{Env, OpenDisk};

use super::{
    judge::Found,
    label::{Label, Standing},
    mirror::{Mirror, Role},
    open::{Look, look_at},
};
use crate::limits::{MIRROR_RETRY, MIRROR_STUCK, MIRROR_WATCH};

/// Watches a pair until it is dropped or stopped.
pub(super) async fn watch(mirror: Weak<Mirror>, env: Env) {
    let mut last_words = String::new();
    loop {
        env.sleep(MIRROR_WATCH).await;
        let Some(mirror) = mirror.upgrade() else { return };
        if mirror.state.borrow().stopped {
            return;
        }
        mirror.leave_stuck().await;
        for copy in 0..2 {
            mirror.leave_missing(copy).await;
            mirror.leave_replaced(copy).await;
        }
        for copy in 0..2 {
            if let Err(words) = mirror.take_in(copy).await
                && words != last_words
            {
                env.log(&format!("{}: {words}", mirror.name()));
                last_words = words;
            }
        }
    }
}

impl Mirror {
    fn role(&self, copy: usize) -> (Role, u64) {
        let state = self.state.borrow();
        (state.copies[copy].role, state.copies[copy].life)
    }

    /// Examines `path`. A device that does not answer is not asked again before it does: each attempt holds
    /// descriptors.
    async fn look(&self, path: &str, options: OpenDisk) -> Look {
        if !self.state.borrow_mut().looking.insert(path.to_owned()) {
            return Look::silent(path);
        }
        let (this, env, owner, at) = (self.this.clone(), self.env.clone(), self.owner.clone(), path.to_owned());
        let task = self.env.spawn(async move {
            let look = look_at(&env, &at, &owner, options).await;
            if let Some(mirror) = this.upgrade() {
                mirror.state.borrow_mut().looking.remove(&at);
            }
            look
        });
        self.env.timeout(MIRROR_STUCK, task).await.ok().flatten().unwrap_or_else(|| Look::silent(path))
    }

    /// Leaves behind a device that does not answer, so that waiting requests continue with the other one.
    async fn leave_stuck(&self) {
        let now = self.env.now();
        let long_ago = forebay_env::Time(now.0.saturating_sub(MIRROR_STUCK.as_nanos() as u64));
        if let Some((copy, life)) = self.stuck_since(long_ago) {
            drop(self.lose(copy, life, "writes to it are not answered").await);
        }
    }

    /// Leaves behind a copy whose file was deleted or replaced. A deleted file still takes writes, and is gone after a
    /// restart.
    async fn leave_missing(&self, copy: usize) {
        let (role, life) = self.role(copy);
        if role == Role::Out || self.role(1 - copy).0 != Role::Member {
            return;
        }
        let path = self.dirs.path(copy, self.owner.part);
        let id = self.state.borrow().copies[copy].id;
        let look = self.look(&path, OpenDisk { read_only: true, ..OpenDisk::default() }).await;
        let words = match look.found {
            Found::Copy(label) if label.copy == id => return,
            Found::Copy(_) => format!("another copy lies at {path}"),
            Found::Nothing(words) => words,
        };
        drop(self.lose(copy, life, &words).await);
    }

    /// Leaves behind a copy for which the operator prepared a replacement.
    async fn leave_replaced(&self, copy: usize) {
        let (role, life) = self.role(copy);
        if role == Role::Out || self.role(1 - copy).0 != Role::Member {
            return;
        }
        let Some(named) = self.dirs.named_beside(1 - copy).filter(|named| *named != self.dirs.dir(copy)) else {
            return;
        };
        let path = crate::format::part_path(&self.env, &named, self.owner.part);
        let look = self.look(&path, OpenDisk { read_only: true, ..OpenDisk::default() }).await;
        if matches!(look.found, Found::Copy(label) if label.standing == Standing::New) {
            drop(self.lose(copy, life, &format!("{named} takes its place")).await);
        }
    }

    /// Fills the copy at the location of a lost one, if it may be written to. Errors: why not, in words.
    async fn take_in(&self, copy: usize) -> Result<(), String> {
        if self.role(copy).0 != Role::Out || self.role(1 - copy).0 != Role::Member {
            return Ok(());
        }
        let dir = self.dirs.named_beside(1 - copy).unwrap_or_else(|| self.dirs.dir(copy));
        let path = crate::format::part_path(&self.env, &dir, self.owner.part);
        let seen = self.look(&path, OpenDisk { read_only: true, ..OpenDisk::default() }).await;
        // A missing copy is known already.
        let Found::Copy(label) = seen.found else { return Ok(()) };
        drop(seen.disk);
        if !self.may_be_filled(copy, &label)? {
            return Ok(());
        }
        self.dirs.set_dir(copy, &dir);
        self.dirs.lock(copy).map_err(|error| error.message)?;
        let opened = self.look(&path, OpenDisk::default()).await;
        let (Found::Copy(again), Some(disk)) = (opened.found, opened.disk) else { return Ok(()) };
        if again == label {
            self.give_identity(copy);
            self.begin_sync(copy, disk, label.copy, label.seq).await.map_err(|error| error.message)?;
        }
        Ok(())
    }

    fn may_be_filled(&self, copy: usize, label: &Label) -> Result<bool, String> {
        let state = self.state.borrow();
        let (lost, mate) = (&state.copies[copy], &state.copies[1 - copy]);
        if label.standing == Standing::New {
            return Ok(true);
        }
        let went_alone = label.standing == Standing::Member && label.mate_standing == Standing::Out;
        if went_alone || label.copy != lost.id || label.mate != mate.id || label.epoch > state.epoch {
            return Err(format!(
                "what lies at {} holds bytes that this copy never had, or is an older copy; it is left alone \
                 (`forebay mirror replace` with an empty place makes a new one)",
                self.dirs.path(copy, self.owner.part)
            ));
        }
        // An earlier write that is still in flight must not land on later bytes.
        Ok(self.env.now().since(lost.out_since) >= MIRROR_RETRY && state.unanswered[copy] == 0)
    }

    /// Gives the other directory the identity of this one.
    fn give_identity(&self, copy: usize) {
        let name = crate::identity::FILE;
        let (from, to) = (self.dirs.dir(1 - copy), self.dirs.dir(copy));
        let (from, to) = (crate::format::join(&from, name), crate::format::join(&to, name));
        if let Ok(identity) = self.env.read_file(&from)
            && self.env.read_file(&to).ok().as_ref() != Some(&identity)
        {
            drop(self.env.write_file(&to, &identity));
        }
    }
}
