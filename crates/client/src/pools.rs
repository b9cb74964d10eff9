//! Pools of OSTs.

use forebay_proto::{
    Fid,
    message::{GetPools, PoolsReply, SetPool},
};

use crate::{Caller, Client, ClientResult};

impl Client {
    /// The OSTs and the pools there are.
    pub async fn pools(&self) -> ClientResult<PoolsReply> {
        Ok(self.mdt(Fid::ROOT, &GetPools {}).await?)
    }

    /// Changes a pool. `change`: see `forebay_proto::message::pool_change`.
    pub async fn set_pool(&self, caller: &Caller, name: &str, change: u32, osts: &[u32]) -> ClientResult<()> {
        let request = SetPool { caller: caller.clone(), name: name.into(), change, osts: osts.to_vec() };
        Ok(self.mdt(Fid::ROOT, &request).await.map(drop)?)
    }
}
