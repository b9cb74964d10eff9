//! Two file systems and the programs on them: plays steps on both and compares.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use super::{
    actor::{Actor, Done, of_answer},
    answer::{self, Differ, Fact},
    call::{Call, Step, User},
    known::{Case, Setup, known},
    looks::{self, Looks},
    sequence::ACTORS,
};
use crate::figures::Outcome;

/// A step with both answers, and their differences.
pub struct Failure {
    /// The step.
    pub step: Step,
    /// The differences that are not documented.
    pub differs: Vec<Differ>,
    /// Both answers.
    pub answers: [String; 2],
}

/// How often each kind of call was made, and how often it succeeded.
pub type Tally = BTreeMap<String, (u64, u64)>;

/// A run's directories on both file systems, and the actors in them.
pub struct Stage {
    actors: Vec<Actor>,
    looks: [Looks; 2],
    /// Local inodes whose change the mount refused, as documented. Their attributes are not compared.
    apart: BTreeSet<(u64, i128)>,
    setup: Setup,
    pens: [PathBuf; 2],
    /// True if every step is printed.
    trace: bool,
    /// The calls made.
    pub tally: Tally,
}

impl Stage {
    /// Makes new directories of that name: below the local one, and below a directory that all mounts show.
    pub fn make(local: &Path, mounts: &[PathBuf], name: &str, trace: bool) -> Outcome<Self> {
        let pens = [local.join(name), mounts[0].join(name)];
        for pen in &pens {
            let root = pen.join("root");
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            let made = fs::create_dir_all(&root).and_then(|()| fs::set_permissions(&root, open));
            made.map_err(|error| format!("{}: {error}", root.display()))?;
        }
        let setup = Setup { mounts: mounts.len() };
        let actors = (0..ACTORS).map(|actor| {
            let mount = mounts[actor % mounts.len()].join(name).join("root");
            Actor::start(&pens[0].join("root"), &mount, setup)
        });
        let actors = actors.collect();
        Ok(Self {
            actors,
            looks: [Looks::new(), Looks::new()],
            apart: BTreeSet::new(),
            setup,
            pens,
            trace,
            tally: Tally::new(),
        })
    }

    /// Plays a step on both file systems. Returns the differences, if any.
    pub fn play(&mut self, step: &Step) -> Outcome<Option<Failure>> {
        Ok(self.play_and_tell(step)?.1)
    }

    fn play_and_tell(&mut self, step: &Step) -> Outcome<(Done, Option<Failure>)> {
        let done = self.actors[step.actor].play(step)?;
        let count = self.tally.entry(step.call.kind()).or_default();
        *count = (count.0 + 1, count.1 + u64::from(done.mount.result.is_ok()));
        let mut differs = answer::compare(&done.local, &done.mount);
        for pair in done.local.facts.iter().zip(&done.mount.facts) {
            if let (Fact::Stat(local), Fact::Stat(mount)) = pair
                && !self.apart.contains(&local.inode)
            {
                differs.extend(looks::compare(&mut self.looks, local, mount));
            }
        }
        let about = of_answer(&done.local, done.about);
        let answers = [done.local.shown(), done.mount.shown()];
        if self.trace {
            println!("{step}\n    local: {}\n    mount: {}", answers[0], answers[1]);
            done.asked.iter().for_each(|says| println!("    asked once more, as documented: {says}"));
        }
        differs.retain(|differ| match known(&Case { setup: self.setup, call: &step.call, about, differ }) {
            Some(says) if self.trace => {
                println!("    {} differs, as documented: {says}", differ.what);
                false
            }
            known => known.is_none(),
        });
        if differs.is_empty() && done.local.result.is_ok() && done.mount.result.is_err() {
            self.apart.insert(about.inode);
        }
        let failure = (!differs.is_empty()).then(|| Failure { step: step.clone(), differs, answers });
        Ok((done, failure))
    }

    /// Compares both trees, as each actor sees them.
    pub fn compare_trees(&mut self) -> Outcome<Option<Failure>> {
        for actor in 0..ACTORS {
            if let Some(failure) = self.compare_tree(actor, &super::call::Path(b".".to_vec()))? {
                return Ok(Some(failure));
            }
        }
        Ok(None)
    }

    fn compare_tree(&mut self, actor: usize, path: &super::call::Path) -> Outcome<Option<Failure>> {
        let step = |call| Step { number: usize::MAX, actor, user: User::Root, umask: 0, call };
        let of = super::call::Target::Link(path.clone());
        let calls = [
            Call::Lstat { path: path.clone() },
            Call::Listxattr { of },
            Call::Readlink { path: path.clone() },
            Call::Contents { path: path.clone() },
        ];
        for call in calls {
            if let Some(failure) = self.play(&step(call))? {
                return Ok(Some(failure));
            }
        }
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let (done, failure) = self.play_and_tell(&step(Call::List { path: path.clone(), flags }))?;
        if failure.is_some() {
            return Ok(failure);
        }
        let entries = done.local.facts.into_iter().find_map(|fact| match fact {
            Fact::Entries(entries) => Some(entries),
            _ => None,
        });
        for (name, _) in entries.unwrap_or_default() {
            if name != b"." && name != b".." {
                let below = super::call::Path([&path.0[..], b"/", &name].concat());
                if let Some(failure) = self.compare_tree(actor, &below)? {
                    return Ok(Some(failure));
                }
            }
        }
        Ok(None)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.actors.clear();
        for pen in &self.pens {
            let _ = fs::remove_dir_all(pen);
        }
    }
}
