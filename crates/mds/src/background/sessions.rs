//! What a client that is gone leaves behind: open handles, and leased sequences.
//!
//! Order: an evicted writer is fenced on the OSTs of its files; then the OSTs tell size and times; then the handle goes (and
//! with the last one of an orphan, the file). So nothing is destroyed, and no size is believed, under a hand that still
//! writes.

use std::{collections::BTreeSet, rc::Rc};

use forebay_proto::{
    ClientId, ErrorReply, Fid, FidSequence, Layout, SessionId,
    message::{Fence, GetObject, ObjectRef, open_flags},
};

use crate::{Mds, keys, ops::close};

/// What the OSTs know of a file, in the epochs they know it in.
#[derive(Default)]
struct Glimpse {
    /// Truncate epoch, size.
    size: Option<(u64, u64)>,
    /// Attribute epoch, modification time of each stripe.
    times: Vec<(u64, i64)>,
}

impl Mds {
    /// Sessions that ended while a crash was under way: their handles are here, they are not.
    pub(crate) fn end_lost_sessions(self: &Rc<Self>) {
        let sessions = self.memory.borrow().opens.sessions();
        let Ok(target) = self.target() else { return };
        let alive: BTreeSet<ClientId> = target.sessions().iter().map(|session| session.client).collect();
        let lost = sessions.into_iter().filter(|(session, _)| !target.has_session(*session)).collect::<Vec<_>>();
        let holders: BTreeSet<ClientId> = self.memory.borrow().leases.values().copied().collect();
        let silent = holders.into_iter().filter(|client| !alive.contains(client));
        let without_handles = silent.filter(|client| !lost.iter().any(|(_, of)| of == client)).collect::<Vec<_>>();
        let ended = lost.clone().into_iter().chain(without_handles.into_iter().map(|client| (SessionId(0), client)));
        for (session, client) in ended.collect::<Vec<_>>() {
            let mds = self.clone();
            self.env.spawn(async move { mds.end_session(session, client, true).await });
        }
    }

    /// Closes a session's handles, gives its sequences up.
    pub(crate) async fn end_session(&self, session: SessionId, client: ClientId, evicted: bool) {
        if let Err(error) = self.try_end_session(session, client, evicted).await {
            self.log_failure(&format!("what session {session} left waits for the next start"), &error);
        }
    }

    async fn try_end_session(&self, session: SessionId, client: ClientId, evicted: bool) -> Result<(), ErrorReply> {
        let handles = self.memory.borrow().opens.of_session(session);
        let mut fenced = BTreeSet::new();
        for (handle, fid, flags) in handles {
            let wrote = flags & open_flags::WRITE != 0;
            self.end_handle(session, client, handle, fid, evicted && wrote, wrote, &mut fenced).await?;
        }
        self.memory.borrow_mut().opens.forget_session(session);
        let sequences = self.sequences_of(client);
        if evicted && !sequences.is_empty() {
            self.fence(client, &self.osts.indices(), &mut fenced).await;
            self.collect(&sequences).await?;
        }
        self.give_up(&sequences).await
    }

    #[allow(clippy::too_many_arguments)]
    async fn end_handle(
        &self,
        session: SessionId,
        client: ClientId,
        handle: u64,
        fid: Fid,
        fence: bool,
        wrote: bool,
        fenced: &mut BTreeSet<u32>,
    ) -> Result<(), ErrorReply> {
        let inode = self.change(|tx| tx.find_inode(fid)).await?;
        let glimpse = match inode.as_ref().and_then(|inode| inode.layout()) {
            Some(layout) if wrote => {
                if fence {
                    self.fence(client, &layout.osts, fenced).await;
                }
                let epoch = inode.as_ref().map_or(0, |inode| inode.truncate_epoch);
                self.glimpse(fid, layout, epoch).await
            }
            _ => Glimpse::default(),
        };
        self.change(|tx| {
            let Some(mut inode) = tx.find_inode(fid)? else {
                tx.delete(keys::handle(fid, session, handle));
                return Ok(());
            };
            learn(&mut inode, &glimpse);
            if !tx.drop_handle(fid, session, handle, &inode)? {
                tx.put_inode(fid, &mut inode);
            }
            Ok(())
        })
        .await
    }

    /// Fences `client` on `osts`, each once.
    async fn fence(&self, client: ClientId, osts: &[u32], fenced: &mut BTreeSet<u32>) {
        for ost in osts {
            if fenced.insert(*ost) {
                self.osts.insist(*ost, &Fence { client }).await;
            }
        }
    }

    async fn glimpse(&self, fid: Fid, layout: &Layout, truncate_epoch: u64) -> Glimpse {
        let mut glimpse = Glimpse::default();
        for (stripe, ost) in layout.osts.iter().enumerate() {
            let object = ObjectRef { fid, layout_generation: layout.generation, truncate_epoch };
            // An error (a destroyed object, a newer epoch) only means that this OST has nothing to tell.
            let Ok(reply) = self.osts.ask(*ost, &GetObject { object }).await else { continue };
            if !reply.exists {
                continue;
            }
            glimpse.times.push((reply.attr_epoch, reply.mtime_ns));
            if stripe == 0 {
                glimpse.size = Some((reply.truncate_epoch, reply.file_bytes));
            }
        }
        glimpse
    }

    fn sequences_of(&self, client: ClientId) -> Vec<FidSequence> {
        let memory = self.memory.borrow();
        memory.leases.iter().filter(|(_, of)| **of == client).map(|(sequence, _)| *sequence).collect()
    }

    async fn give_up(&self, sequences: &[FidSequence]) -> Result<(), ErrorReply> {
        if sequences.is_empty() {
            return Ok(());
        }
        self.change(|tx| {
            sequences.iter().for_each(|sequence| tx.delete(keys::lease(*sequence)));
            Ok(())
        })
        .await?;
        let mut memory = self.memory.borrow_mut();
        sequences.iter().for_each(|sequence| drop(memory.leases.remove(sequence)));
        Ok(())
    }
}

fn learn(inode: &mut crate::inode::Inode, glimpse: &Glimpse) {
    let size = glimpse.size.filter(|(epoch, _)| *epoch == inode.truncate_epoch).map(|(_, size)| size);
    let of_this_epoch = glimpse.times.iter().filter(|(epoch, _)| *epoch == inode.attr_epoch);
    close::learn(inode, size, of_this_epoch.map(|(_, mtime_ns)| *mtime_ns).max());
}
