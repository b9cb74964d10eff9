//! Detects that a target has lost its journal: the journal is missing, or has no anchor of the target.

use forebay_env::{Env, EnvErrorKind, OpenDisk};

use crate::{
    FsckResult,
    format::{
        anchor::{self, Slot},
        identity::Identity,
    },
    limits::SECTOR,
    media::{part_path, read_identity, resolve_journal},
};

/// A target without its journal.
pub(crate) struct Lost {
    pub(crate) identity: Identity,
    pub(crate) identity_file: Vec<u8>,
    /// The reason, in words.
    pub(crate) why: String,
}

/// `None` if the target has a journal, or something that may be one (of another target or generation), or something
/// unreadable. Also without an identity to decide by.
pub(crate) async fn lost(env: &Env, dir: &str) -> FsckResult<Option<Lost>> {
    let identity_file = read_identity(env, dir)?;
    let Ok(identity) = Identity::decode(&identity_file) else { return Ok(None) };
    if identity.is_mirrored() {
        return Ok(None);
    }
    let path = part_path(env, dir, "journal");
    let why = why(env, &path, &identity).await?;
    Ok(why.map(|why| Lost { identity, identity_file, why: format!("the journal at {path} is lost: {why}") }))
}

async fn why(env: &Env, path: &str, identity: &Identity) -> FsckResult<Option<String>> {
    let read_only = OpenDisk { read_only: true, ..OpenDisk::default() };
    let options = resolve_journal(env, path, identity.uuid, read_only).await?;
    let disk = match env.open_disk(path, options).await {
        Ok(disk) => disk,
        Err(error) if error.kind == EnvErrorKind::NotFound => return Ok(Some("it does not exist".into())),
        Err(error) if error.kind == EnvErrorKind::InvalidInput => return Ok(Some("it is empty".into())),
        Err(error) => return Err(error.into()),
    };
    let mut seen = Vec::new();
    for slot in 0..2 {
        let words = match disk.read(slot * SECTOR, SECTOR as usize).await {
            // The anchor may be there, and readable again once the device works.
            Err(error) if error.kind == EnvErrorKind::Medium => return Ok(None),
            // Shorter than the anchors.
            Err(error) if error.kind == EnvErrorKind::InvalidInput => "it is cut short".to_owned(),
            read => match anchor::decode(&read?, slot) {
                Slot::Blank => "blank".to_owned(),
                Slot::Damaged(what) => format!("damaged: {what}"),
                // Left by an interrupted rebuild.
                Slot::Intact(found)
                    if found.uuid == identity.uuid && Some(found.generation) == identity.generation.checked_add(1) =>
                {
                    "of a repair that was not finished".to_owned()
                }
                Slot::Intact(_) | Slot::Newer(_) => return Ok(None),
            },
        };
        seen.push(words);
    }
    Ok(Some(format!("it has no anchor (A: {}; B: {})", seen[0], seen[1])))
}
