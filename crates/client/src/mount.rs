//! Start and end of a client.

use forebay_env::Env;

use crate::{Client, ClientResult, MountOptions};

impl Client {
    /// Fetches the map, connects to MDT0000 (to OSTs when they are first needed), leases fids.
    ///
    /// Waits while the MDT cannot be reached; put a timeout around it where that is not wanted.
    pub async fn mount(_env: &Env, _options: MountOptions) -> ClientResult<Client> {
        todo!()
    }

    /// Makes everything durable, closes what is open, ends the sessions. Calls made later fail.
    pub async fn unmount(&self) -> ClientResult<()> {
        todo!()
    }
}
