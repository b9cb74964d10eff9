//! What a client that is gone leaves behind: open handles.
//!
//! Order: an evicted writer is fenced on the OSTs of its files; then the OSTs tell size and times, and remove what it wrote beyond the
//! end for appends; then the handle goes (and
//! with the last one of an orphan, the file), and leases on data that stood in the way of others. So nothing is destroyed, and no size is believed, under a hand that still
//! writes.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use forebay_env::{Bug, planted};
use forebay_proto::{
    ClientId, Errno, ErrorReply, Fid, Layout, SessionId,
    message::{Fence, GetObject, ObjectRef, RemoveWritten, open_flags},
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
    fenced: RefCell<BTreeSet<u32>>,
}

/// A file that a session has open.
#[derive(Default)]
struct Held {
    /// Numbers and flags.
    handles: Vec<(u64, u32)>,
    writes: bool,
}

/// Files that a session has open, by the OSTs that have to be asked before it is closed.
type Groups = BTreeMap<Vec<u32>, Vec<(Fid, Held)>>;

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
    pub(crate) async fn end_session(self: &Rc<Self>, session: SessionId, client: ClientId, evicted: bool) {
        if !self.ending.borrow_mut().insert(session) {
            return;
        }
        let ending = Ending { session, client, evicted, fenced: RefCell::default() };
        if let Err(error) = self.try_end_session(ending).await {
            self.log_failure(&format!("what session {session} left waits for the next start"), &error);
        }
        self.ending.borrow_mut().remove(&session);
    }

    async fn try_end_session(self: &Rc<Self>, ending: Ending) -> Result<(), ErrorReply> {
        let ending = Rc::new(ending);
        // Names it can change no more, whatever its writes may still do.
        self.memory.borrow_mut().kept.data.end_names(ending.session);
        self.memory_changed();
        // An OST that is away holds up the files that lie on it, and no others.
        let groups = self.held_files(ending.session).await?;
        let end_group = |(osts, files)| {
            let (mds, ending) = (self.clone(), ending.clone());
            self.env.spawn(async move { mds.end_files(&ending, osts, files).await })
        };
        let tasks: Vec<_> = groups.into_iter().map(end_group).collect();
        let mut ended = Ok(());
        for task in tasks {
            ended = ended.and(task.await.unwrap_or(Ok(())));
        }
        ended?;
        {
            let mut memory = self.memory.borrow_mut();
            memory.opens.forget_session(ending.session);
            memory.kept.data.end_session(ending.session);
            memory.kept.claims.end_session(ending.session);
        }
        self.memory_changed();
        self.end_locks(ending.session).await?;
        if ending.evicted {
            self.evicted.borrow_mut().insert(ending.client);
            return Ok(());
        }
        let sequences = self.sequences_of(ending.client);
        let was_evicted = self.evicted.borrow_mut().remove(&ending.client);
        if was_evicted {
            // Its creates of then may not have been replayed: nobody knows of what it wrote to them.
            self.collect(&sequences).await?;
        }
        self.give_up(&sequences).await
    }

    /// What a session has open, by the OSTs that have to be asked first: none where it does not write.
    async fn held_files(&self, session: SessionId) -> Result<Groups, ErrorReply> {
        let mut files: BTreeMap<Fid, Held> = BTreeMap::new();
        for (handle, fid, flags) in self.memory.borrow().opens.of_session(session) {
            let held = files.entry(fid).or_default();
            held.handles.push((handle, flags));
            held.writes |= flags & open_flags::WRITE != 0;
        }
        let mut groups = Groups::new();
        for (fid, held) in files {
            let mut osts = Vec::new();
            if held.writes
                && let Some(inode) = self.change(|tx| tx.find_inode(fid)).await?
            {
                osts = inode.layout().map_or(osts, Layout::osts);
            }
            groups.entry(osts).or_default().push((fid, held));
        }
        Ok(groups)
    }

    /// Ends what the session has of files on the same OSTs, one after another.
    async fn end_files(&self, ending: &Ending, osts: Vec<u32>, files: Vec<(Fid, Held)>) -> Result<(), ErrorReply> {
        if ending.evicted && !planted(Bug::GrantedBeforeFence) {
            self.fence(ending.client, &osts, &ending.fenced).await;
        }
        let nothing = Glimpse::default();
        for (fid, held) in files {
            let glimpse = if held.writes { self.last_words(ending, fid).await? } else { Glimpse::default() };
            if held.writes {
                // What it kept back will not come any more: not even its own handles could be closed before.
                self.memory.borrow_mut().kept.data.end(ending.session, fid);
                self.memory_changed();
            }
            for (handle, flags) in held.handles {
                let glimpse = if flags & open_flags::WRITE != 0 { &glimpse } else { &nothing };
                self.end_handle(ending.session, handle, fid, glimpse).await?;
            }
        }
        Ok(())
    }

    /// What a writer that is gone left of the file.
    async fn last_words(&self, ending: &Ending, fid: Fid) -> Result<Glimpse, ErrorReply> {
        let Some(inode) = self.change(|tx| tx.find_inode(fid)).await? else { return Ok(Glimpse::default()) };
        let Some(layout) = inode.layout() else { return Ok(Glimpse::default()) };
        if ending.evicted && !planted(Bug::GrantedBeforeFence) {
            // It may lie elsewhere by now.
            self.fence(ending.client, &layout.osts(), &ending.fenced).await;
        }
        if inode.inline {
            // No OST has any of it, nor knows of its epoch where it was cut in place.
            return Ok(Glimpse::default());
        }
        // An OST that cannot do a truncate of it does not answer either.
        let is_stuck = self.wait_until(|memory| memory.stuck.contains(&fid));
        let told = async {
            let glimpse = self.glimpse(fid, layout, inode.truncate_epoch).await;
            if let Some(size) = glimpse.size {
                self.remove_beyond(fid, layout, size, ending.client).await?;
            }
            Ok(glimpse)
        };
        forebay_env::sync::select! {
            biased;
            glimpse = told => glimpse,
            () = is_stuck => Ok(Glimpse::default()),
        }
    }

    /// Removes what `client` wrote beyond the end of the file for appends that it did not come to the end of. Where an OST refuses, it stays.
    async fn remove_beyond(
        &self,
        fid: Fid,
        layout: &Layout,
        (truncate_epoch, size): (u64, u64),
        client: ClientId,
    ) -> Result<(), ErrorReply> {
        let Some(inode) = self.change(|tx| tx.find_inode(fid)).await? else { return Ok(()) };
        if inode.truncate_epoch != truncate_epoch || inode.layout() != Some(layout) {
            return Ok(());
        }
        // The home may have lost a size that was told before.
        let size = size.max(inode.size);
        let object = ObjectRef { fid: layout.objects_of(fid), layout_generation: layout.generation, truncate_epoch };
        for (ost, offset) in layout.object_ends(size) {
            let length = u64::MAX - offset;
            let removal = RemoveWritten { object: object.clone(), offset, length, client: client.low(), sequence: 0 };
            self.osts.insist_unless_damaged(ost, &removal, |errno| errno != Errno::RECOVERING).await;
        }
        Ok(())
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
    pub(crate) async fn fence(&self, client: ClientId, osts: &[u32], fenced: &RefCell<BTreeSet<u32>>) {
        for ost in osts {
            if !fenced.borrow().contains(ost) {
                self.osts.insist(*ost, &Fence { client }).await;
                fenced.borrow_mut().insert(*ost);
            }
        }
    }

    async fn glimpse(&self, fid: Fid, layout: &Layout, truncate_epoch: u64) -> Glimpse {
        let mut glimpse = Glimpse::default();
        for ost in layout.osts() {
            let fid = layout.objects_of(fid);
            let object = ObjectRef { fid, layout_generation: layout.generation, truncate_epoch };
            // A destroyed object, or a newer epoch, means that this OST has nothing to tell. Any other error, believed, would cut
            // the file to what the MDT has of its size.
            let has_nothing = |errno| matches!(errno, Errno::ESTALE | Errno::STALE_EPOCH);
            let asked = self.osts.insist_unless_damaged(ost, &GetObject { object }, has_nothing).await;
            let Some(reply) = asked.and_then(Result::ok).filter(|reply| reply.exists) else { continue };
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
