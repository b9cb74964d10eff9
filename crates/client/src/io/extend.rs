//! OSTs for what is written where a file has none yet, or behind its end when those it lies on are full.

use forebay_proto::{
    Errno,
    message::{ExtendLayout, FinishDestroys},
};

use crate::{Client, ClientResult, OpenFile, delayed::queue::Scope, errors::Trouble, limits};

impl Client {
    /// Repeats `attempt` (see [`Client::try_fresh`]) with the OSTs that it was found to need. Where there are none with room,
    /// it fails as it did.
    pub(crate) async fn roomy<T>(
        &self,
        file: &OpenFile,
        attempt: impl AsyncFn() -> Result<T, Trouble>,
    ) -> ClientResult<T> {
        let (mut full, mut asked): (Vec<u32>, Vec<u32>) = Default::default();
        let mut waits = 0..limits::SPACE_ATTEMPTS;
        for _ in 0..limits::EXTENSIONS {
            match self.try_fresh(file.state(), &attempt).await {
                Err(Trouble::Bare(offset, length)) => self.extend(file, offset, length, &[]).await?,
                Err(Trouble::Full(offset, osts, error)) => {
                    if self.give_room_back(&osts).await {
                        continue;
                    }
                    let has_made = self.made_room(file, file.state().snapshot().layout.osts()).await;
                    // Destroys may have ended between the refusal and that: each OST is tried once more in any case.
                    let is_first = osts.iter().any(|ost| !asked.contains(ost));
                    asked.extend(&osts);
                    if is_first || has_made && waits.next().is_some() {
                        continue;
                    }
                    full.extend(osts);
                    if self.extend(file, offset, 1, &full).await.is_err() {
                        // Those that were full may have room by now.
                        full.clear();
                        if !self.made_room(file, Vec::new()).await {
                            return Err(error);
                        }
                    }
                }
                // Of what was granted to this client, and is not counted on.
                Err(Trouble::Failed(error))
                    if error.errno == Errno::ENOSPC && self.give_room_back(&file.state().layout().osts()).await => {}
                other => return Ok(other?),
            }
        }
        Ok(self.try_fresh(file.state(), &attempt).await?)
    }

    /// Objects of deleted files were still to be destroyed on these OSTs (none: on any), and are now: a caller that
    /// received ENOSPC may find space.
    pub(crate) async fn made_room(&self, file: &OpenFile, osts: Vec<u32>) -> bool {
        // Files that were removed and closed here may be among them. Not for ever: what is flushed may wait for this very write.
        let flush = async {
            self.flush_delayed(Scope::All).await;
            // A handle that is being closed would wait for itself.
            if file.is_open() {
                self.flush_delayed(Scope::Closes).await;
            }
        };
        let _ = self.env().timeout(limits::UNLINKS_WAIT, flush).await;
        self.mdt(file.fid(), &FinishDestroys { osts }).await.is_ok_and(|reply| reply.objects > 0)
    }

    /// Asks the MDT for OSTs. Errors: ENOSPC if none has room.
    pub(crate) async fn extend(&self, file: &OpenFile, offset: u64, length: u64, full: &[u32]) -> ClientResult<()> {
        let (fid, handle) = (file.fid(), file.handle());
        let request = ExtendLayout { fid, handle, offset, length, full: full.to_vec() };
        match self.mdt(fid, &request).await {
            Ok(_) => {}
            // The handle was lost with the MDT's session and is being opened again.
            Err(error) if error.errno() == Errno::EBADF => {
                self.env().sleep(limits::REOPEN_PAUSE).await;
                file.check()?;
            }
            Err(error) => return Err(error.into()),
        }
        self.refresh(file.state()).await
    }
}
