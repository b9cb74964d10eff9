//! Which commit level counts for the bytes of a file, and what follows when it changes.
//!
//! The level of the call precedes that of the file, and that precedes the mount's. The MDT enforces it for names and
//! attributes. A client knows the level of a file that it has open from the attributes that it received last. A client
//! that may buffer writes ([`crate::delayed::write_back`]) has received them since the level was set, as that recalls
//! every lease on the data.

use forebay_env::{Bug, planted};
use forebay_proto::{
    Fid,
    message::{Attr, CommitLevel},
};

use crate::{
    Client, ClientResult, OpenFile, cache::choices::Known, delayed::byte_ranges::claims::OutsideClaims, leases::Ticket,
};

impl Client {
    /// The commit level of bytes that are written through `file`.
    pub(crate) fn level_of(&self, file: &OpenFile) -> CommitLevel {
        let own = file.state().attributes.level.get().own().filter(|_| !planted(Bug::LevelOfInodeIgnored));
        match file.mode().sync {
            true => CommitLevel::Commit,
            false => own.unwrap_or(self.inner.options.level),
        }
    }

    /// Withdraws the byte-range write leases of other clients on `fid`, under which they would go on to buffer as long
    /// as this client claims ranges. What this client buffers stays: it is sent under the new level.
    pub(crate) async fn see_others(&self, fid: Fid) -> ClientResult<Option<OutsideClaims>> {
        match self.inner.file(fid) {
            Some(file) => Ok(Some(self.see_all(&file).await?)),
            None => Ok(None),
        }
    }

    /// This client has given the file another level, or none: it applies from the next write. What was buffered under
    /// the old one is sent under it.
    pub(crate) async fn level_changed(&self, fid: Fid, level: Option<CommitLevel>) {
        let Some(file) = self.inner.file(fid) else { return };
        file.attributes.level.set(Known::new(level, self.inner.mdt.leases.ticket()));
        // What is lost of it, its handles report.
        let _ = self.flush_writes(&file).await;
    }
}

impl Client {
    /// The reply to the request `asked` contains attributes of a file that may be open here.
    pub(crate) fn learn_choices(&self, asked: Ticket, attr: &Attr) {
        if let Some(file) = self.inner.file(attr.fid) {
            file.learn_choices(asked, attr);
        }
    }
}
