//! Operator commands for a mirrored target, served or not: prepare a new copy, declare the other one lost.
//!
//! A running server notices the new copy within a moment (see `watch`); a stopped one finds it at its next start.

use forebay_env::{Disk, Env, EnvErrorKind, OpenDisk};

use super::{
    dirs::{Dirs, MIRROR_PATH_FILE, WITNESS_PATH_FILE, pointer},
    judge::{Found, Verdict, judge},
    label::{self, Label, Part, Standing},
    mirror::Owner,
    open::look,
};
use crate::{
    Identity, StoreError, StoreResult,
    format::{self, LOCK_FILE, join, part_path},
    identity, slots,
};

/// Where a copy of a target is to lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirrorPlace {
    /// Its directory.
    pub dir: String,
    /// A device or file for its data instead of `DIR/data`.
    pub data_path: Option<String>,
    /// A device or file for its journal instead of `DIR/journal`.
    pub journal_path: Option<String>,
    /// A small file in a third place, which tells after a crash whether a copy that is found alone is the last one.
    pub witness: Option<String>,
}

/// Prepares `place` for a new copy. It replaces the lost copy; or, if none is lost, the one that `dir` names as the
/// other. Returns the directory of the copy that stays.
pub(crate) async fn replace(env: &Env, dir: &str, place: &MirrorPlace, overwrite: bool) -> StoreResult<String> {
    let identity = mirrored(env, dir)?;
    let other = pointer(env, dir)?;
    let dirs = [dir.to_owned(), other];
    let stays = surviving_copy(env, &dirs, &identity).await?;
    let keep = &dirs[stays.unwrap_or(0)];
    if *keep == place.dir {
        return refuse(format!("{keep} holds the copy that stays; give another directory for the new one"));
    }
    if stays.is_none() && place.dir == dirs[1] {
        return refuse(format!("the copy in {} is in sync; there is nothing to replace", place.dir));
    }
    refuse_foreign(env, &place.dir, &identity)?;
    for owner in owners(&identity) {
        let path = match owner.part {
            Part::Data => &place.data_path,
            Part::Journal => &place.journal_path,
        };
        let Some(path) = path else { continue };
        let there = look(env, path, &owner, OpenDisk { read_only: true, ..OpenDisk::default() }).await;
        if !matches!(there.found, Found::Copy(_)) {
            slots::refuse_taken(env, path, "--overwrite", overwrite).await?;
        }
    }
    env.create_dir(&place.dir)?;
    format::remember_paths(env, &place.dir, place.data_path.as_deref(), place.journal_path.as_deref())?;
    for owner in owners(&identity) {
        prepare(env, &place.dir, &owner).await?;
    }
    let kept_identity = env.read_file(&join(keep, identity::FILE))?;
    env.write_file(&join(&place.dir, identity::FILE), &kept_identity)?;
    if let Ok(witness) = env.read_file(&join(keep, WITNESS_PATH_FILE)) {
        env.write_file(&join(&place.dir, WITNESS_PATH_FILE), &witness)?;
    }
    env.write_file(&join(&place.dir, MIRROR_PATH_FILE), format!("{keep}\n").as_bytes())?;
    // Last: from now on the new copy counts.
    env.write_file(&join(keep, MIRROR_PATH_FILE), format!("{}\n", place.dir).as_bytes())?;
    Ok(keep.clone())
}

/// Declares, durably, that the missing copy is lost for good: the present one continues alone.
pub(crate) async fn alone(env: &Env, dir: &str) -> StoreResult<()> {
    let identity = mirrored(env, dir)?;
    let _lock = env.lock_file(&join(dir, LOCK_FILE))?;
    let dirs = [dir.to_owned(), pointer(env, dir)?];
    let mut declared = Vec::new();
    for owner in owners(&identity) {
        let looks = [
            look(env, &part_path(env, &dirs[0], owner.part), &owner, OpenDisk::default()).await,
            look(env, &part_path(env, &dirs[1], owner.part), &owner, OpenDisk::default()).await,
        ];
        let found = [looks[0].found.clone(), looks[1].found.clone()];
        let Some(current) = only_member(&found) else {
            match judge(&found, None) {
                Ok(_) => continue,
                Err(words) => return refuse(format!("{} of {}: {words}", owner.part.name(), identity.target)),
            }
        };
        let (Found::Copy(label), Some(disk)) = (&found[current], &looks[current].disk) else { continue };
        declared.push((label.clone(), disk.clone()));
    }
    if declared.is_empty() {
        return refuse(format!("{} knows which copy counts; there is nothing to declare", identity.target));
    }
    let told = Dirs::of(env, dir)?;
    for (label, disk) in declared {
        let next = Label { seq: label.seq + 1, epoch: label.epoch + 1, mate_standing: Standing::Out, ..label };
        disk.write_durable(next.offset(), vec![next.encode().freeze()]).await?;
        told.tell_witness(next.part, next.epoch)?;
    }
    Ok(())
}

fn refuse<T>(words: String) -> StoreResult<T> {
    Err(StoreError::invalid(words))
}

fn mirrored(env: &Env, dir: &str) -> StoreResult<Identity> {
    let identity = format::read_identity(env, dir)?;
    match identity.is_mirrored() {
        true => Ok(identity),
        false => refuse(format!(
            "{} in {dir} is not mirrored; `forebay format mdt DIR --mirror PATH` makes one",
            identity.target
        )),
    }
}

fn owners(identity: &Identity) -> [Owner; 2] {
    let owner = |part, bytes| Owner { target: identity.uuid, name: identity.target, part, bytes };
    [owner(Part::Data, identity.data_bytes), owner(Part::Journal, identity.journal_bytes)]
}

/// The copy that says it holds everything, if the other one is missing and the labels do not decide.
fn only_member(found: &[Found; 2]) -> Option<usize> {
    let member = |found: &Found| matches!(found, Found::Copy(label) if label.standing == Standing::Member);
    let nothing = |found: &Found| matches!(found, Found::Nothing(_));
    let undecided = judge(found, None).is_err();
    (0..2).find(|copy| undecided && member(&found[*copy]) && nothing(&found[1 - copy]))
}

/// Which directory's copies stay. None: both are in sync.
async fn surviving_copy(env: &Env, dirs: &[String; 2], identity: &Identity) -> StoreResult<Option<usize>> {
    let mut stays = None;
    for owner in owners(identity) {
        let options = OpenDisk { read_only: true, ..OpenDisk::default() };
        let one = look(env, &part_path(env, &dirs[0], owner.part), &owner, options).await;
        let two = look(env, &part_path(env, &dirs[1], owner.part), &owner, options).await;
        let found = [one.found, two.found];
        let of_part = match (only_member(&found), judge(&found, None)) {
            (Some(copy), _) => Some(copy),
            (None, Ok(Verdict::Both { .. })) => None,
            (None, Ok(Verdict::Sync { from, .. })) => Some(from),
            (None, Ok(Verdict::Alone { current, .. })) => Some(current),
            (None, Err(words)) => return refuse(format!("{} of {}: {words}", owner.part.name(), identity.target)),
        };
        match (stays, of_part) {
            (Some(before), Some(now)) if before != now => {
                return refuse(format!(
                    "{}: of the data one copy counts and of the journal the other; wait until what can be brought up to \
                     date is, see `forebay status`",
                    identity.target
                ));
            }
            (before, now) => stays = before.or(now),
        }
    }
    Ok(stays)
}

fn refuse_foreign(env: &Env, dir: &str, identity: &Identity) -> StoreResult<()> {
    match env.read_file(&join(dir, identity::FILE)) {
        Err(error) if error.kind == EnvErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
        Ok(bytes) if Identity::decode(&bytes).is_ok_and(|there| there.uuid == identity.uuid) => Ok(()),
        Ok(_) => refuse(format!("{dir} holds another target; remove it first, or give another directory")),
    }
}

/// Prepares the location of a part to be filled; its contents are lost.
async fn prepare(env: &Env, dir: &str, owner: &Owner) -> StoreResult<()> {
    let path = part_path(env, dir, owner.part);
    let bytes = owner.bytes + label::BYTES;
    let create = OpenDisk { create_bytes: Some(bytes), ..OpenDisk::default() };
    let ours = path == join(dir, owner.part.name());
    let opened = match owner.part {
        Part::Journal if !ours && slots::look(env, &path).await? == slots::Found::Slots => {
            let words =
                "has slots of several targets, which a copy cannot be given later: give it a journal of its own";
            return refuse(format!("{path} {words}"));
        }
        _ => env.open_disk(&path, create).await,
    };
    let disk = match opened {
        Ok(disk) if disk.info().bytes >= bytes => disk,
        Ok(disk) if !ours => {
            let words = format!("{path} has {} bytes; {bytes} are needed", disk.info().bytes);
            return refuse(words);
        }
        // A file of ours that was cut short or emptied.
        Ok(_) => make_anew(env, &path, create).await?,
        Err(error) if ours && error.kind == EnvErrorKind::InvalidInput => make_anew(env, &path, create).await?,
        Err(error) => return Err(error.into()),
    };
    let before = look(env, &path, owner, OpenDisk { read_only: true, ..OpenDisk::default() }).await;
    let seq = if let Found::Copy(label) = before.found { label.seq + 1 } else { 1 };
    let new = Label {
        target: owner.target,
        part: owner.part,
        seq,
        epoch: 0,
        copy: env.random_u64().max(1),
        standing: Standing::New,
        mate: 0,
        mate_standing: Standing::Out,
        position: 0,
        bytes: owner.bytes,
    };
    disk.write_durable(new.offset(), vec![new.encode().freeze()]).await?;
    // The older label is replaced, too: if the new one were torn, the older one would count.
    let again = Label { seq: seq + 1, ..new };
    disk.write_durable(again.offset(), vec![again.encode().freeze()]).await?;
    Ok(())
}

async fn make_anew(env: &Env, path: &str, create: OpenDisk) -> StoreResult<Disk> {
    env.remove_file(path)?;
    Ok(env.open_disk(path, create).await?)
}
