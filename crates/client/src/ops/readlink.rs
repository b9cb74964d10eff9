//! Target of a symbolic link.

use crate::{Client, ClientResult};
use bytes::Bytes;
use forebay_env::Boxed;
use forebay_proto::{Fid, message::ReadLink};

impl Client {
    /// Target of a symbolic link.
    pub fn readlink(&self, fid: Fid) -> Boxed<'_, ClientResult<Bytes>> {
        Box::pin(async move { Ok(self.mdt(fid, &ReadLink { fid }).await?.target) })
    }
}
