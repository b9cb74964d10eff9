//! Making and opening pairs of copies.

use std::{collections::BTreeSet, rc::Rc, time::Duration};

use forebay_env::{Disk, Env, EnvErrorKind, OpenDisk, Time};

use super::{
    Device,
    dirs::{Dirs, pointer},
    judge::{Found, Verdict, judge},
    label::{self, Label, Part, Standing},
    mirror::{Copy, Mirror, Owner, Role},
};
use crate::{
    Identity, StoreError, StoreErrorKind, StoreResult,
    limits::{MIRROR_START, SECTOR},
    slots,
};

/// What lies at the location of a copy.
pub(super) struct Look {
    pub found: Found,
    pub disk: Option<Disk>,
}

impl Look {
    /// The result for a device that does not answer in time.
    pub fn silent(path: &str) -> Self {
        Self { found: Found::Nothing(format!("{path} does not answer")), disk: None }
    }
}

/// Makes a pair of two empty disks; both copies are members.
pub(crate) async fn make(
    env: &Env,
    identity: &Identity,
    dirs: &Rc<Dirs>,
    part: Part,
    disks: [Disk; 2],
    bytes: u64,
) -> StoreResult<Device> {
    let owner = owner(identity, part, bytes);
    let copies = disks.map(|disk| copy(Some(disk), Role::Member, env.random_u64().max(1), 0));
    let mirror = Mirror::new(env, owner, dirs.clone(), copies, 1);
    mirror.tell(&[0, 1]).await?;
    Ok(Device::Mirrored(mirror))
}

/// The identity of a mirrored target: of its two directories, the one with the later generation counts (a repair raises
/// it).
pub(crate) fn newer_identity(env: &Env, dir: &str, identity: Identity) -> Identity {
    let other = pointer(env, dir).ok().filter(|_| identity.is_mirrored());
    let other = other.and_then(|other| crate::format::read_identity(env, &other).ok());
    other.filter(|other| other.uuid == identity.uuid && other.generation > identity.generation).unwrap_or(identity)
}

/// Opens both parts of the target in `dir`, which the caller has locked: `data`, then `journal`.
///
/// Errors: `Foreign` if it is not clear which copy counts, `Busy` if another process serves the other directory.
pub(crate) async fn open(env: &Env, dir: &str, identity: &Identity) -> StoreResult<(Device, Device, Rc<Dirs>)> {
    let dirs = Rc::new(Dirs::of(env, dir)?);
    match dirs.lock(1) {
        Err(error) if error.kind == StoreErrorKind::Busy => return Err(error),
        // If the directory is missing, so are its copies: that is judged below.
        _ => {}
    }
    let (data_bytes, journal_bytes) = (identity.data_bytes, identity.journal_bytes);
    let data = Opening::look(env, &dirs, owner(identity, Part::Data, data_bytes)).await?;
    let journal = Opening::look(env, &dirs, owner(identity, Part::Journal, journal_bytes)).await?;
    // Nothing is written before both parts are judged.
    Ok((data.begin().await?, journal.begin().await?, dirs))
}

fn owner(identity: &Identity, part: Part, bytes: u64) -> Owner {
    Owner { target: identity.uuid, name: identity.target, part, bytes }
}

fn copy(disk: Option<Disk>, role: Role, id: u64, seq: u64) -> Copy {
    Copy { disk, role, id, seq, life: 1, bad_places: BTreeSet::new(), reason: String::new(), out_since: Time(0) }
}

/// A part about to be opened.
struct Opening {
    env: Env,
    dirs: Rc<Dirs>,
    owner: Owner,
    looks: [Look; 2],
    verdict: Verdict,
}

impl Opening {
    async fn look(env: &Env, dirs: &Rc<Dirs>, owner: Owner) -> StoreResult<Self> {
        let one = look(env, &dirs.path(0, owner.part), &owner, OpenDisk::default()).await;
        let two = look(env, &dirs.path(1, owner.part), &owner, OpenDisk::default()).await;
        let found = [one.found.clone(), two.found.clone()];
        let verdict = judge(&found, dirs.ask_witness(owner.part)).map_err(|words| {
            let (a, b) = (dirs.path(0, owner.part), dirs.path(1, owner.part));
            let words = format!("{}: the copies of the {} in {a} and {b}: {words}", owner.name, owner.part.name());
            StoreError::new(StoreErrorKind::Foreign, words)
        })?;
        Ok(Self { env: env.clone(), dirs: dirs.clone(), owner, looks: [one, two], verdict })
    }

    async fn begin(self) -> StoreResult<Device> {
        match self.verdict.clone() {
            Verdict::Both { epoch } => self.both(epoch).await,
            Verdict::Sync { from, position } => self.sync(from, position).await,
            Verdict::Alone { current, other, declare } => self.alone(current, &other, declare).await,
        }
    }

    async fn both(self, epoch: u64) -> StoreResult<Device> {
        let labels = self.labels();
        let Self { env, dirs, owner, looks, .. } = self;
        let [a, b] = labels.clone().map(|label| label.expect("both are there"));
        let [one, two] = looks.map(|look| look.disk);
        let copies = [copy(one, Role::Member, a.copy, a.seq), copy(two, Role::Member, b.copy, b.seq)];
        let mirror = Mirror::new(&env, owner, dirs, copies, epoch);
        for (number, label) in labels.into_iter().flatten().enumerate().filter(|(_, label)| label.epoch != epoch) {
            debug_assert_eq!(label.standing, Standing::Syncing);
            if let Err(error) = mirror.write_label(number).await {
                mirror.lose(number, 1, &error.message).await?;
            }
        }
        mirror.tell_again()?;
        Ok(started(mirror))
    }

    async fn sync(self, from: usize, position: u64) -> StoreResult<Device> {
        let labels = self.labels();
        let Self { env, dirs, owner, looks, .. } = self;
        let [a, b] = labels.map(|label| label.expect("both are there"));
        let (epoch, to) = (a.epoch.max(b.epoch), 1 - from);
        let goes_on = position > 0;
        let role = |number: usize| match number == from {
            true => Role::Member,
            false if goes_on => Role::Syncing,
            false => Role::Out,
        };
        let [one, two] = looks.map(|look| look.disk);
        let spare = [one.clone(), two.clone()];
        let target = if to == 0 { &a } else { &b };
        let (id, seq) = (target.copy, target.seq);
        let keep = |number: usize, disk: Option<Disk>| disk.filter(|_| role(number) != Role::Out);
        let copies = [copy(keep(0, one), role(0), a.copy, a.seq), copy(keep(1, two), role(1), b.copy, b.seq)];
        let mirror = Mirror::new(&env, owner, dirs, copies, epoch);
        {
            let mut state = mirror.state.borrow_mut();
            (state.position, state.copied) = (position, position);
        }
        mirror.tell_again()?;
        if goes_on {
            drop(env.spawn(mirror.clone().resync(to, 1)));
        } else {
            let [one, two] = spare;
            let disk = if to == 0 { one } else { two };
            mirror.begin_sync(to, disk.expect("both are there"), id, seq).await?;
        }
        Ok(started(mirror))
    }

    async fn alone(self, current: usize, other: &str, declare: bool) -> StoreResult<Device> {
        let labels = self.labels();
        let Self { env, dirs, owner, looks, .. } = self;
        let label = labels[current].clone().expect("the current one is there");
        let mut copies = looks.map(|look| copy(look.disk, Role::Out, 0, 0));
        copies[current] = copy(copies[current].disk.take(), Role::Member, label.copy, label.seq);
        copies[1 - current] =
            Copy { reason: other.to_owned(), out_since: env.now(), ..copy(None, Role::Out, label.mate, 0) };
        let mirror = Mirror::new(&env, owner, dirs, copies, label.epoch + u64::from(declare));
        if declare || label.mate_standing != Standing::Out {
            mirror.tell(&[current]).await?;
        }
        mirror.tell_again()?;
        let path = mirror.dirs.path(1 - current, mirror.owner.part);
        env.log(&format!("{} is served from one copy; {path}: {other}", mirror.name()));
        Ok(started(mirror))
    }

    fn labels(&self) -> [Option<Label>; 2] {
        [0, 1].map(|copy| match &self.looks[copy].found {
            Found::Copy(label) => Some(label.clone()),
            Found::Nothing(_) => None,
        })
    }
}

impl Mirror {
    /// Writes the current epoch to the witness, which may have been away when that epoch began.
    fn tell_again(&self) -> StoreResult<()> {
        let (part, epoch) = (self.owner.part, self.state.borrow().epoch);
        if self.dirs.ask_witness(part) != Some(epoch) {
            self.dirs.tell_witness(part, epoch)?;
        }
        Ok(())
    }
}

fn started(mirror: Rc<Mirror>) -> Device {
    drop(mirror.env.spawn(super::watch::watch(Rc::downgrade(&mirror), mirror.env.clone())));
    Device::Mirrored(mirror)
}

/// What lies at `path`, for a start or an operator: with a long timeout.
pub(super) async fn look(env: &Env, path: &str, owner: &Owner, options: OpenDisk) -> Look {
    look_within(MIRROR_START, env, path, owner, options).await
}

/// What lies at `path`. A device that does not answer within `timeout` counts as missing.
async fn look_within(timeout: Duration, env: &Env, path: &str, owner: &Owner, options: OpenDisk) -> Look {
    let task = {
        let (env, path, owner) = (env.clone(), path.to_owned(), owner.clone());
        // A task of its own: closing a disk takes as long as its last request.
        env.clone().spawn(async move { look_at(&env, &path, &owner, options).await })
    };
    env.timeout(timeout, task).await.ok().flatten().unwrap_or_else(|| Look::silent(path))
}

pub(super) async fn look_at(env: &Env, path: &str, owner: &Owner, options: OpenDisk) -> Look {
    let nothing = |words: String| Look { found: Found::Nothing(words), disk: None };
    let options = match owner.part {
        Part::Data => options,
        Part::Journal => match slots::resolve(env, path, owner.target, options).await {
            Ok(options) => options,
            Err(error) => return nothing(error.message),
        },
    };
    let disk = match slots::open(env, path, options).await {
        Ok(disk) => disk,
        Err(error) if error.kind == EnvErrorKind::NotFound => return nothing(format!("{path} does not exist")),
        Err(error) => return nothing(error.message),
    };
    let labels = match read_labels(&disk, owner.bytes).await {
        Ok(sectors) => sectors,
        Err(words) => return nothing(format!("{path}: {words}")),
    };
    match Label::newest(&labels, owner.bytes) {
        None => nothing(format!("{path} is not a copy of a mirrored target: it has no label")),
        Some(label) if label.target != owner.target || label.part != owner.part => {
            nothing(format!("{path} belongs to another target or part"))
        }
        Some(label) => Look { found: Found::Copy(label), disk: Some(disk) },
    }
}

/// Both label sectors. Errors: in words, also if only one of them cannot be read.
async fn read_labels(disk: &Disk, bytes: u64) -> Result<Vec<u8>, String> {
    if disk.info().bytes < bytes + label::BYTES {
        return Err(format!("it is too short: {} bytes instead of {}", disk.info().bytes, bytes + label::BYTES));
    }
    let mut sectors = Vec::new();
    let mut failed = None;
    for at in [bytes, bytes + SECTOR] {
        match disk.read(at, SECTOR as usize).await {
            Ok(sector) => sectors.extend_from_slice(&sector),
            Err(error) => {
                sectors.resize(sectors.len() + SECTOR as usize, 0);
                failed = Some(error.message);
            }
        }
    }
    // The newer one may be the one that cannot be read.
    failed.map_or(Ok(sectors), Err)
}
