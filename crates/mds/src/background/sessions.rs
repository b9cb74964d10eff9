//! What a client that is gone leaves behind: open handles.
//!
//! Order: an evicted writer is fenced on the OSTs of its files; then the OSTs tell size and times; then the handle goes (and
//! with the last one of an orphan, the file), and leases on data that stood in the way of others. So nothing is destroyed, and no size is believed, under a hand that still
//! writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use forebay_env::{Bug, planted};
use forebay_proto::{
    ClientId, ErrorReply, Fid, Layout, SessionId,
    message::{Fence, GetObject, ObjectRef, open_flags},
};

use crate::{Mds, keys, opens::OpenChange, ops::close};

/// What the OSTs know of a file, in the epochs they know it in.
#[derive(Default)]
struct Glimpse {
    /// Truncate epoch, size.
    size: Option<(u64, u64)>,
    /// Attribute epoch, modification time of each object.
    times: Vec<(u64, i64)>,
}

/// A session on its way out.
struct Ending {
    session: SessionId,
    client: ClientId,
    evicted: bool,
    /// OSTs on which the client is fenced by now.
    fenced: BTreeSet<u32>,
}

impl Mds {
    /// Sessions that ended while a crash was under way: their handles are here, they are not.
    pub(crate) fn end_lost_sessions(self: &Rc<Self>) {
        let Ok(target) = self.target() else { return };
        let holders = self.memory.borrow().opens.sessions();
        for (session, client) in holders.into_iter().filter(|(session, _)| !target.has_session(*session)) {
            let mds = self.clone();
            self.env.spawn(async move { mds.end_session(session, client, true).await });
        }
    }

    /// Closes a session's handles. Whoever says goodbye gives their sequences up; those of others are looked through first
    /// (see `leases`).
    pub(crate) async fn end_session(&self, session: SessionId, client: ClientId, evicted: bool) {
        if !self.ending.borrow_mut().insert(session) {
            return;
        }
        let ending = Ending { session, client, evicted, fenced: BTreeSet::new() };
        if let Err(error) = self.try_end_session(ending).await {
            self.log_failure(&format!("what session {session} left waits for the next start"), &error);
        }
        self.ending.borrow_mut().remove(&session);
    }

    async fn try_end_session(&self, mut ending: Ending) -> Result<(), ErrorReply> {
        // Names it can change no more, whatever its writes may still do.
        self.memory.borrow_mut().kept.data.end_names(ending.session);
        self.memory_changed();
        let handles = self.memory.borrow().opens.of_session(ending.session);
        let mut glimpses: BTreeMap<Fid, Glimpse> = BTreeMap::new();
        for (_, fid, _) in handles.iter().filter(|(_, _, flags)| flags & open_flags::WRITE != 0) {
            if !glimpses.contains_key(fid) {
                glimpses.insert(*fid, self.last_words(&mut ending, *fid).await?);
                // What it kept back will not come any more: not even its own handles could be closed before.
                self.memory.borrow_mut().kept.data.end(ending.session, *fid);
                self.memory_changed();
            }
        }
        let nothing = Glimpse::default();
        for (handle, fid, flags) in handles {
            let written = glimpses.get(&fid).filter(|_| flags & open_flags::WRITE != 0);
            self.end_handle(ending.session, handle, fid, written.unwrap_or(&nothing)).await?;
        }
        {
            let mut memory = self.memory.borrow_mut();
            memory.opens.forget_session(ending.session);
            memory.kept.data.end_session(ending.session);
            memory.kept.claims.end_session(ending.session);
        }
        self.memory_changed();
        self.end_locks(ending.session).await?;
        if ending.evicted { Ok(()) } else { self.give_up(&self.sequences_of(ending.client)).await }
    }

    /// What a writer that is gone left of the file.
    async fn last_words(&self, ending: &mut Ending, fid: Fid) -> Result<Glimpse, ErrorReply> {
        let Some(inode) = self.change(|tx| tx.find_inode(fid)).await? else { return Ok(Glimpse::default()) };
        let Some(layout) = inode.layout() else { return Ok(Glimpse::default()) };
        if ending.evicted && !planted(Bug::GrantedBeforeFence) {
            self.fence(ending.client, &layout.osts(), &mut ending.fenced).await;
        }
        Ok(self.glimpse(fid, layout, inode.truncate_epoch).await)
    }

    async fn end_handle(&self, session: SessionId, handle: u64, fid: Fid, glimpse: &Glimpse) -> Result<(), ErrorReply> {
        self.change(|tx| {
            if tx.memory.opens.flags(fid, session, handle).is_none() {
                return Ok(());
            }
            let Some(mut inode) = tx.find_inode(fid)? else {
                tx.delete(keys::handle(fid, session, handle));
                tx.effects.opens.push(OpenChange::Closed { fid, session, handle, wrote: true });
                return Ok(());
            };
            learn(&mut inode, glimpse);
            // What it wrote may have holes, and it can tell nobody any more.
            inode.sparse |= glimpse.size.is_some();
            if !tx.drop_handle(fid, session, handle, &inode, true)? {
                tx.put_inode(fid, &mut inode);
            }
            Ok(())
        })
        .await
    }

    /// Fences `client` on `osts`, each once.
    pub(crate) async fn fence(&self, client: ClientId, osts: &[u32], fenced: &mut BTreeSet<u32>) {
        for ost in osts {
            if fenced.insert(*ost) {
                self.osts.insist(*ost, &Fence { client }).await;
            }
        }
    }

    async fn glimpse(&self, fid: Fid, layout: &Layout, truncate_epoch: u64) -> Glimpse {
        let mut glimpse = Glimpse::default();
        for ost in layout.osts() {
            let fid = layout.objects_of(fid);
            let object = ObjectRef { fid, layout_generation: layout.generation, truncate_epoch };
            // An error (a destroyed object, a newer epoch) only means that this OST has nothing to tell.
            let Some(Ok(reply)) = self.osts.hear(ost, &GetObject { object }).await else { continue };
            if !reply.exists {
                continue;
            }
            glimpse.times.push((reply.attr_epoch, reply.mtime_ns));
            if ost == layout.home() {
                glimpse.size = Some((reply.truncate_epoch, reply.file_bytes));
            }
        }
        glimpse
    }
}

fn learn(inode: &mut crate::inode::Inode, glimpse: &Glimpse) {
    let size = glimpse.size.filter(|(epoch, _)| *epoch == inode.truncate_epoch).map(|(_, size)| size);
    let of_this_epoch = glimpse.times.iter().filter(|(epoch, _)| *epoch == inode.attr_epoch);
    close::learn(inode, size, of_this_epoch.map(|(_, mtime_ns)| *mtime_ns).max());
}
