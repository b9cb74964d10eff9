//! Lost targets: their directories no longer hold them, because they were deleted or their disk is missing.
//!
//! A lost target is never formatted again automatically, and no message suggests that: its files would seem never to
//! have existed. The other targets are served without it.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // looks for directories; nothing here serves

use std::io::ErrorKind;

use forebay_command::cluster::Target;
use forebay_proto::TargetKind;

/// A lost target, with what is wrong and what to do.
pub struct Lost {
    /// The target.
    pub target: Target,
    words: String,
}

impl Lost {
    /// The lost ones of `targets`.
    pub fn among(targets: Vec<Target>) -> Vec<Self> {
        targets.into_iter().filter_map(|target| why(&target).map(|words| Self { target, words })).collect()
    }

    /// A text that also says what to do.
    pub fn words(&self) -> &str {
        &self.words
    }
}

/// The texts of all of them, one a line.
pub fn show(lost: &[Lost]) -> String {
    lost.iter().map(Lost::words).collect::<Vec<_>>().join("\n")
}

/// Why a target is lost, and what to do, if it is lost. The advice is never to format it.
pub fn why(target: &Target) -> Option<String> {
    let is_gone = |name: &str| {
        let kind = target.dir.join(name).symlink_metadata().map_err(|error| error.kind());
        matches!(kind, Err(ErrorKind::NotFound | ErrorKind::NotADirectory))
    };
    let dir = target.dir.display();
    if !target.dir.exists() && is_gone("") {
        return Some(words(target, &format!("there is no {dir}")));
    }
    if is_gone("identity") {
        return Some(words(target, &format!("{dir} holds no target")));
    }
    // Its data may be elsewhere, or mirrored.
    let is_whole = !is_gone("data") || !is_gone("data.path") || !is_gone("mirror.path");
    (!is_whole).then(|| words(target, &format!("there is no {dir}/data")))
}

fn words(target: &Target, what: &str) -> String {
    let id = target.id;
    match target.id.kind {
        TargetKind::Mdt => format!(
            "{id} is lost: {what}. Bring that back, or mount its disk, and do not format it: it has the names of all files. \
             Of a mirrored one the other copy's directory can be served in its place"
        ),
        TargetKind::Ost => format!(
            "{id} is lost: {what}. Bring that back, or mount its disk, then `forebay up` again; until then who uses files \
             on it waits (`forebay find MNT -ost {}` lists them)",
            target.id.index
        ),
    }
}

#[cfg(test)]
mod tests {
    use forebay_proto::TargetId;

    use super::*;

    #[test]
    fn a_lost_target_is_not_to_be_formatted() {
        let target = |id| Target { id, dir: "/no/such".into(), addresses: Vec::new() };
        let lost = Lost::among(vec![target(TargetId::mdt(0)), target(TargetId::ost(10))]);
        let said = show(&lost);
        assert_eq!((lost.len(), said.lines().count()), (2, 2), "{said}");
        assert!(said.contains("MDT0000 is lost: there is no /no/such") && said.contains("-ost 10"), "{said}");
        assert!(!said.contains("forebay format"), "{said}");
    }
}
