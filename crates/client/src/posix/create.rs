//! open(2) with O_CREAT: whether the new file is acknowledged before the MDT has made it.

use forebay_proto::Fid;

use crate::{Attr, Caller, Client, ClientResult, LayoutSpec, OpenMode, PendingFile};

impl Client {
    /// Makes a regular file and opens it, as [`Client::create`] does. Returns at once where the create can be delayed;
    /// the file is then open as soon as the MDT has made it.
    pub async fn create_pending(
        &self,
        caller: &Caller,
        parent: Fid,
        name: &[u8],
        mode: u32,
        open: OpenMode,
    ) -> ClientResult<(Attr, PendingFile)> {
        if let Some(pending) = self.with_slot(|| self.create_delayed(caller, parent, name, mode, open)).await {
            return Ok(pending);
        }
        let (attr, file) = self.create(caller, parent, name, mode, open, LayoutSpec::inherit()).await?;
        Ok((attr, file.into()))
    }
}
