//! What became of changes that a target has not answered before it ended the session: they were done, or they never will be.
//!
//! Whoever closes the file for the last time tells the MDT how long it is, and then all others believe the MDT. So a client that
//! lost any asks the OSTs before, as the MDT itself does for a client that is gone.

use std::time::Duration;

use forebay_env::{Bug, planted};
use forebay_proto::{
    Errno,
    message::{GetAttr, GetObject, NEVER, ObjectReply},
};
use forebay_rpc::{Call, RpcError};

use crate::{Client, ClientResult, attributes::size_is_on_osts, file::FileState, limits, tasks::try_all};

/// What an OST answered.
enum Told {
    /// What it has of the file, if anything.
    Object(Option<ObjectReply>),
    /// The file was cut or moved meanwhile.
    Later,
}

impl Client {
    /// Learns size and times of a file of which changes were lost. The answer: truncate epoch, and the size in it as others are told
    /// it. `None`: nothing was lost, or nobody can tell; then what was synced must not be cut, whatever else there is.
    ///
    /// OSTs that are away are waited for.
    pub(crate) async fn learn_what_was_done(&self, file: &FileState) -> Option<(u64, u64)> {
        if file.losses() == 0 || planted(Bug::UnansweredNotAsked) {
            return None;
        }
        file.reopened().await;
        let mut pause = Duration::from_millis(1);
        loop {
            match self.ask_what_was_done(file).await {
                Ok(Told::Object(home)) => return home.map(|home| (home.truncate_epoch, home.file_bytes)),
                Ok(Told::Later) => {}
                Err(error) => {
                    self.env().log(&format!("client: what became of changes of {} is not known: {error}", file.fid));
                    return None;
                }
            }
            self.env().sleep(pause).await;
            pause = (pause * 2).min(limits::UNANSWERED_PAUSE);
        }
    }

    /// What the home told, if any of it was there.
    async fn ask_what_was_done(&self, file: &FileState) -> ClientResult<Told> {
        let asked = self.inner.leases.ticket();
        let entry = self.mdt(file.fid, &GetAttr { fid: file.fid }).await?;
        file.adopt(asked, &entry.attr, entry.layout.as_ref());
        if !size_is_on_osts(&entry.attr) {
            return Ok(Told::Object(None));
        }
        let at = file.snapshot();
        // Where it has never been it has changed nothing.
        let osts = at.layout.osts().into_iter().filter(|ost| self.inner.peers.is_started(*ost));
        let asks = osts.map(|ost| {
            let (client, request) = (self.clone(), GetObject { object: at.object.clone() });
            async move {
                let called = client.inner.peers.ost(ost).await?.call(&request, Call::default()).await;
                ClientResult::Ok((ost, told(called.map(|called| called.reply))))
            }
        });
        let mut home = None;
        for (ost, told) in try_all(self.env(), asks).await? {
            let object = match told {
                Told::Later => return Ok(Told::Later),
                Told::Object(None) => continue,
                Told::Object(Some(object)) => object,
            };
            if object.exists && object.mtime_ns != NEVER {
                file.told_time(object.attr_epoch, object.mtime_ns);
            }
            if ost == at.layout.home() {
                let told = ObjectReply { truncate_epoch: at.object.truncate_epoch, ..object };
                file.size.borrow_mut().see(told.truncate_epoch, told.file_bytes);
                home = Some(told);
            }
        }
        Ok(Told::Object(home))
    }
}

fn told(reply: Result<ObjectReply, RpcError>) -> Told {
    match reply {
        Ok(object) => Told::Object(Some(object)),
        Err(RpcError::Reply(reply)) if matches!(reply.errno, Errno::STALE_EPOCH | Errno::STALE_LAYOUT) => Told::Later,
        // Destroyed, damaged; or this client is fenced.
        Err(_) => Told::Object(None),
    }
}
