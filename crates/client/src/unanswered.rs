//! What became of changes that a target has not answered before it ended the session: they were done, or they never will be.
//!
//! Whoever closes the file for the last time tells the MDT how long it is, and then all others believe the MDT. So a client that
//! lost any asks the OSTs before, as the MDT itself does for a client that is gone.

use std::time::Duration;

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
    /// The file was cut or moved, or the session ended once more.
    Later,
}

impl Client {
    /// Learns size and times of a file of which changes were lost. An OST that is away is waited for; one that cannot tell has
    /// nothing to tell.
    pub(crate) async fn learn_what_was_done(&self, file: &FileState) {
        let mut pause = Duration::from_millis(1);
        loop {
            match self.ask_what_was_done(file).await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    self.env().log(&format!("client: what became of changes of {} is not known: {error}", file.fid));
                    return;
                }
            }
            self.env().sleep(pause).await;
            pause = (pause * 2).min(limits::UNANSWERED_PAUSE);
        }
    }

    /// False: it has to be asked again.
    async fn ask_what_was_done(&self, file: &FileState) -> ClientResult<bool> {
        let asked = self.inner.leases.ticket();
        let entry = self.mdt(file.fid, &GetAttr { fid: file.fid }).await?;
        file.adopt(asked, &entry.attr, entry.layout.as_ref());
        if !size_is_on_osts(&entry.attr) {
            return Ok(true);
        }
        let at = file.snapshot();
        let asks = at.layout.osts().into_iter().map(|ost| {
            let (client, request) = (self.clone(), GetObject { object: at.object.clone() });
            async move {
                let called = client.inner.peers.ost(ost).await?.call(&request, Call::default()).await;
                ClientResult::Ok(told(called.map(|called| called.reply)))
            }
        });
        for told in try_all(self.env(), asks).await? {
            match told {
                Told::Later => return Ok(false),
                Told::Object(None) => {}
                Told::Object(Some(object)) => {
                    file.size.borrow_mut().see(at.object.truncate_epoch, object.file_bytes);
                    if object.mtime_ns != NEVER {
                        file.told_time(object.attr_epoch, object.mtime_ns);
                    }
                }
            }
        }
        Ok(true)
    }
}

fn told(reply: Result<ObjectReply, RpcError>) -> Told {
    match reply {
        Ok(object) => Told::Object(Some(object).filter(|object| object.exists)),
        Err(RpcError::Evicted(_)) => Told::Later,
        Err(RpcError::Reply(reply)) if matches!(reply.errno, Errno::STALE_EPOCH | Errno::STALE_LAYOUT) => Told::Later,
        Err(_) => Told::Object(None),
    }
}
