//! What became of changes that a target has not answered before it ended the session: they were done, or they never will be.
//!
//! The client that closes the file last sends its size to the MDT, and then all others rely on the MDT. So a client
//! that lost changes fetches size and times from the OSTs first, as the MDT itself does for a client that is gone.

use forebay_env::{Bug, planted};
use forebay_proto::message::{GetAttr, GetObject, NEVER};
use forebay_rpc::Call;

use crate::{
    Client,
    errors::{ClientResult, Trouble},
    file::FileState,
    ops::getattr::size_is_on_osts,
    tasks::try_all,
};

impl Client {
    /// Fetches size and times of a file of which changes were lost. Returns the truncate epoch, and the size in it as
    /// others are shown it. `None`: nothing was lost, or nobody knows; then what was synced must not be cut, whatever
    /// else there is.
    ///
    /// OSTs that are away are waited for.
    pub(crate) async fn learn_what_was_done(&self, file: &FileState) -> Option<(u64, u64)> {
        if file.losses() == 0 || file.inline.is_there() || planted(Bug::UnansweredNotAsked) {
            return None;
        }
        let asked: ClientResult<_> = self.fresh(file, async || self.ask_what_was_done(file).await).await;
        asked.unwrap_or_else(|error| {
            self.env().log(&format!("client: what became of changes of {} is not known: {error}", file.fid));
            None
        })
    }

    async fn ask_what_was_done(&self, file: &FileState) -> Result<Option<(u64, u64)>, Trouble> {
        let asked = self.inner.mdt.leases.ticket();
        let entry = self.mdt(file.fid, &GetAttr { fid: file.fid }).await?;
        file.adopt(asked, &entry.attr, entry.layout.as_ref());
        if !size_is_on_osts(&entry.attr) {
            return Ok(None);
        }
        let at = file.snapshot();
        // Where it has never been it has changed nothing.
        let osts = at.layout.osts().into_iter().filter(|ost| self.inner.peers.is_reached(*ost));
        let asks = osts.map(|ost| {
            let (client, request) = (self.clone(), GetObject { object: at.object.clone() });
            async move {
                match client.ost(ost, &request, Call::default()).await {
                    Ok(called) => Ok(Some((ost, called.reply))),
                    Err(trouble @ Trouble::Stale(_)) => Err(trouble),
                    // Destroyed, damaged.
                    Err(_) => Ok(None),
                }
            }
        });
        let (mut told, epoch) = (None, at.object.truncate_epoch);
        for (ost, object) in try_all(self.env(), asks).await?.into_iter().flatten() {
            if object.exists && object.mtime_ns != NEVER {
                file.told_time(object.attr_epoch, object.mtime_ns);
            }
            if ost == at.layout.home() {
                file.size.borrow_mut().see(epoch, object.file_bytes);
                told = Some((epoch, object.file_bytes));
            }
        }
        Ok(told)
    }
}
