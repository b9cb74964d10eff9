//! Pools of OSTs.

use forebay_env::Boxed;
use forebay_proto::{
    Fid,
    message::{GetPools, PoolsReply, SetPool},
};

use crate::{Caller, Client, ClientResult};

impl Client {
    /// The OSTs and the pools there are.
    pub fn pools(&self) -> Boxed<'_, ClientResult<PoolsReply>> {
        Box::pin(async move { Ok(self.mdt(Fid::ROOT, &GetPools {}).await?) })
    }

    /// Changes a pool. `change`: see `forebay_proto::message::pool_change`.
    pub fn set_pool<'a>(
        &'a self,
        caller: &'a Caller,
        name: &'a str,
        change: u32,
        osts: &'a [u32],
    ) -> Boxed<'a, ClientResult<()>> {
        Box::pin(async move {
            let request = SetPool { caller: caller.clone(), name: name.into(), change, osts: osts.to_vec() };
            Ok(self.mdt(Fid::ROOT, &request).await.map(drop)?)
        })
    }
}
