//! Client instances: each time the MDT ends a mount's session, the client continues under a new id.
//!
//! The MDT fences an evicted client on the OSTs by its id, so that no late request is applied. With its next session the client takes
//! a new id, at the MDT and at every OST. Nobody refuses requests under that one.
//!
//! Invariant: an operation is sent under the instance in which it began, or fails. A call that changes bytes begins when its handle was
//! checked; buffered bytes, when they were acknowledged. Requests of an earlier instance are never sent to an OST under a later id:
//! another client may hold the lease or lock by now. The same holds for requests to the MDT that depend on a lock (ftruncate).
//! Changes of names and attributes depend on none, and wait for the next session.
//! Invariant: no acknowledged change is lost silently. Sessions of earlier instances go on until all of it is committed or reported
//! as lost, and every sync waits for that.
//! Not here: handles and locks (`ops`), fids (`fids`).

use std::rc::Rc;

use forebay_env::{Bug, planted};
use forebay_proto::Errno;

use crate::{
    Client, ClientError, client::Inner, errors::Trouble, file::Snapshot, ops::handle::OpenFile, session::peers::Peer,
};

/// How often the MDT had ended the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClientInstance(u64);

impl ClientInstance {
    /// The one after it.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Inner {
    /// The one of now.
    pub fn instance(&self) -> ClientInstance {
        self.peers.instance()
    }

    /// The MDT has ended the session: what comes is another client's.
    pub fn begin_instance(self: &Rc<Self>) {
        self.peers.begin_instance();
        self.write_back.room.forget_all();
        self.env.log(&format!("client: it goes on as client {}", self.peers.client()));
        // As the sessions of before bring them back, or do not.
        self.open_files().iter().for_each(|file| file.size.borrow_mut().forget_raises());
        // Taken out before anything of now is put beside it: it does not arrive any more, and its handles tell that.
        Client { inner: self.clone() }.start_sending_everything();
    }
}

impl OpenFile {
    /// What the requests of one attempt carry, of something that was begun in `instance`. Errors: EIO if that is over, ESTALE if the handle
    /// could not be opened again.
    pub(crate) fn snapshot_in(&self, instance: ClientInstance) -> Result<Snapshot, Trouble> {
        self.check_not_gone()?;
        Ok(self.state().snapshot().of_instance(instance))
    }
}

impl Client {
    /// The session in which an attempt goes on. Errors: EIO if the MDT has ended its session since the call was begun.
    pub(crate) async fn ost_of(&self, at: &Snapshot, ost: u32) -> Result<Rc<Peer>, Trouble> {
        // It may wait for a new map; afterwards nothing does until the request is on its way.
        let peer = self.inner.peers.ost(ost).await?;
        if at.instance != self.inner.instance() && !planted(Bug::InstanceSurvived) {
            return Err(instance_is_over().into());
        }
        Ok(peer)
    }
}

/// What was begun in an earlier instance fails with.
pub(crate) fn instance_is_over() -> ClientError {
    ClientError::new(Errno::EIO, "the MDT ended this mount's session meanwhile: do it again")
}
