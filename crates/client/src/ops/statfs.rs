//! Space of the whole cluster.

use forebay_env::Boxed;
use forebay_proto::{
    Fid,
    message::{MdtStatFs, OstStatFs},
};
use forebay_rpc::Call;

use crate::{Client, ClientResult, tasks::try_all};

/// Space of the whole cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes that can hold file data, used or not.
    pub total_bytes: u64,
    /// Bytes that hold nothing: what clients were granted for writes to come is given back where they write nothing.
    pub free_bytes: u64,
    /// Bytes of them that fallocate(2) could set aside, which counts what each write takes beside its bytes.
    pub available_bytes: u64,
    /// Bytes that any client can write now.
    pub ungranted_bytes: u64,
    /// Inodes there are.
    pub files: u64,
    /// Inodes that can still be made.
    pub files_free: u64,
}

impl Client {
    /// Space of all OSTs together, inodes of the MDT.
    pub fn statfs(&self) -> Boxed<'_, ClientResult<StatFs>> {
        Box::pin(async move {
            let asks = self.inner.peers.osts().into_iter().map(|ost| {
                let client = self.clone();
                async move { client.ost(ost, &OstStatFs {}, Call::default()).await.map(|called| called.reply) }
            });
            let names = self.mdt(Fid::ROOT, &MdtStatFs {}).await?;
            let osts = try_all(self.env(), asks).await?;
            Ok(StatFs {
                total_bytes: osts.iter().map(|ost| ost.total_bytes).sum(),
                free_bytes: osts.iter().map(|ost| ost.available_bytes + ost.granted_bytes).sum(),
                available_bytes: osts.iter().map(|ost| ost.promisable_bytes).sum(),
                ungranted_bytes: osts.iter().map(|ost| ost.available_bytes).sum(),
                files: names.files,
                files_free: names.files_free,
            })
        })
    }
}
