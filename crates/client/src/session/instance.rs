//! Eras of a mount: each time the MDT ends its session, the client goes on as another.
//!
//! The MDT fences a client that it has evicted on the OSTs, under the id that it had, so that nothing late arrives. So with its next
//! session the client has another id, at the MDT and at every OST: what it does from then on nobody refuses.
//!
//! Invariant: what was begun in an instance is sent in that one, or fails. A call that changes bytes counts from when its handle was found to
//! be good; bytes that were kept back, from when they were acknowledged. Nothing of an instance is sent to an OST under the id of a
//! later one: others may have been given since what it was done under. Nor to the MDT, where it rests on locks (ftruncate); what changes
//! names and attributes rests on nothing, and waits for the next session.
//! Invariant: nothing that was acknowledged in an instance is lost silently: the sessions of then go on until all of it is committed, or
//! reported as lost, and who syncs waits for that.
//! Not here: handles and locks (see `open`, `locks`), fids (see `fids`).

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
