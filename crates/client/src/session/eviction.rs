//! What happens when a target ends a session: acknowledged changes that are lost are reported, and where it was the MDT's session,
//! the client goes on as another instance ([`super::instance`]).

use std::rc::Rc;

use forebay_env::{Bug, planted};
use forebay_proto::{Errno, Fid, TargetId, TargetKind, message::Reclaim};
use forebay_rpc::Lost;

use crate::{
    Client, ClientError,
    client::Inner,
    errors::Trouble,
    file::FileState,
    io::snapshot::Snapshot,
    session::{
        instance::{ClientInstance, instance_is_over},
        peers::{Peer, Peers, SessionOwner},
    },
};

fn loss_of(fid: Fid, errno: Errno, reason: &str) -> ClientError {
    ClientError::new(errno, format!("acknowledged changes of {fid} were lost: {reason}"))
}

impl Inner {
    /// An acknowledged change of `fid` is lost: its handles report that, or the next one that is opened, or a directory's next fsync.
    pub fn note_loss(&self, fid: Fid, errno: Errno, reason: &str) -> ClientError {
        let loss = loss_of(fid, errno, reason);
        match self.file(fid) {
            Some(file) => file.lose(loss.clone()),
            None => self.losses.remember(fid, loss.clone()),
        }
        loss
    }

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
        // Taken out before the current instance's bytes are added: it does not arrive any more, and its handles report
        // that.
        Client { inner: self.clone() }.start_sending_everything();
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

impl SessionOwner for Inner {
    fn peers(&self) -> &Peers {
        &self.peers
    }

    fn lose_leases(self: Rc<Self>) {
        Inner::lose_leases(&self);
    }

    fn reclaim(&self) -> Reclaim {
        Inner::reclaim(self)
    }

    fn counted_on(&self, ost: u32) -> u64 {
        self.write_back.counted_on(ost)
    }

    fn lost(self: Rc<Self>, target: TargetId, lost: &Lost) {
        let what = if lost.ended { "ended the session" } else { "lost a change" };
        self.env.log(&format!("client: {target} {what} ({}); {} requests lost", lost.reason, lost.requests));
        self.losses.lose(lost.requests);
        for fid in &lost.fids {
            self.note_loss(*fid, Errno::EIO, &lost.reason);
        }
        match target.kind {
            TargetKind::Mdt => {
                Inner::lose_leases(&self);
                // Handles and locks are brought back where the session goes on.
                if lost.ended {
                    self.begin_instance();
                    self.lose_all_set(&lost.reason);
                    self.mdt.leases.lose_data();
                    self.mdt.fids.forget();
                    self.lose_locks();
                    self.reopen_all();
                    self.mdt.instance_begun.set(self.mdt.leases.ticket());
                }
            }
            TargetKind::Ost => {
                let first = |file: &Rc<FileState>| file.layout().home() == target.index;
                if lost.ended {
                    self.write_back.room.forget(target.index);
                }
                self.open_files().iter().filter(|file| first(file)).for_each(|file| {
                    file.size.borrow_mut().forget_raises();
                });
            }
        }
    }
}
