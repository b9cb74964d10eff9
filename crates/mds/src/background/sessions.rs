//! Cleans up after ended sessions: closes the handles that a client left open.
//!
//! Order: an evicted writer is fenced on the OSTs of its files. Then the OSTs report size and times, and remove what
//! the client wrote behind the end of file for unfinished appends. Then the handle is removed (with an orphan's last
//! handle, the file too), and so are the data leases that blocked other sessions. So nothing is destroyed, and no size
//! is accepted, while the client can still write.

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

/// What the OSTs report of a file, with the epochs that they know.
#[derive(Default)]
struct Glimpse {
    /// Truncate epoch and size.
    size: Option<(u64, u64)>,
    /// Attribute epoch and modification time of each object.
    times: Vec<(u64, i64)>,
}

/// A session that is being ended.
struct Ending {
    session: SessionId,
    client: ClientId,
    evicted: bool,
    /// OSTs on which the client is fenced already.
    fenced: RefCell<BTreeSet<u32>>,
}

/// A file that a session has open.
#[derive(Default)]
struct Held {
    /// Handle numbers and flags.
    handles: Vec<(u64, u32)>,
    writes: bool,
}

/// Files that a session has open, by the OSTs that report their sizes before the files are closed.
type Groups = BTreeMap<Vec<u32>, Vec<(Fid, Held)>>;

impl Mds {
    /// Ends sessions that had ended before a crash but whose handles are still here.
    pub(crate) fn end_lost_sessions(self: &Rc<Self>) {
        let Ok(target) = self.target() else { return };
        let holders = self.memory.borrow().opens.sessions();
        for (session, client) in holders.into_iter().filter(|(session, _)| !target.has_session(*session)) {
            let mds = self.clone();
            self.env.spawn(async move { mds.end_session(session, client, true).await });
        }
    }

    /// Closes a session's handles. A client that disconnects gives its sequences up; those of other clients are scanned
    /// first (see `leases`).
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
        // The session can change no more entries, even if late writes of its client still arrive.
        self.memory.borrow_mut().leases.data.end_names(ending.session);
        self.memory_changed();
        // An OST that is away delays only the files that lie on it.
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
            memory.leases.data.end_session(ending.session);
            memory.leases.claims.end_session(ending.session);
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
            // Creates of an earlier incarnation may not have been replayed: their objects belong to no inode.
            self.collect(&sequences).await?;
        }
        self.give_up(&sequences).await
    }

    /// The files that a session has open, by the OSTs that report their sizes first. A file that the session does not write needs none.
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

    /// Closes the session's handles of files on the same OSTs, one file after another.
    async fn end_files(&self, ending: &Ending, osts: Vec<u32>, files: Vec<(Fid, Held)>) -> Result<(), ErrorReply> {
        if ending.evicted && !planted(Bug::GrantedBeforeFence) {
            self.fence(ending.client, &osts, &ending.fenced).await;
        }
        let nothing = Glimpse::default();
        for (fid, held) in files {
            let glimpse = if held.writes { self.last_words(ending, fid).await? } else { Glimpse::default() };
            if held.writes {
                // Its buffered writes cannot arrive any more. Its own handles could not be closed before this either.
                self.memory.borrow_mut().leases.data.end(ending.session, fid);
                self.memory_changed();
            }
            for (handle, flags) in held.handles {
                let glimpse = if flags & open_flags::WRITE != 0 { &glimpse } else { &nothing };
                self.end_handle(ending.session, handle, fid, glimpse).await?;
            }
        }
        Ok(())
    }

    /// Collects what the OSTs know of the writes of a writer that is gone.
    async fn last_words(&self, ending: &Ending, fid: Fid) -> Result<Glimpse, ErrorReply> {
        let Some(inode) = self.change(|tx| tx.find_inode(fid)).await? else { return Ok(Glimpse::default()) };
        let Some(layout) = inode.layout() else { return Ok(Glimpse::default()) };
        if ending.evicted && !planted(Bug::GrantedBeforeFence) {
            // The file may have other OSTs by now.
            self.fence(ending.client, &layout.osts(), &ending.fenced).await;
        }
        if inode.inline {
            // No OST has any of the file. If it was cut in place, none knows its epoch either.
            return Ok(Glimpse::default());
        }
        // An OST that cannot truncate the file does not reply here either.
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

    /// Removes what `client` wrote behind the end of file for appends that it did not complete. If an OST refuses, the
    /// bytes stay.
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
        // The home may have lost a size that it reported before.
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
            // Its writes may have left holes, and the client can no longer report that.
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
            // ESTALE (a destroyed object), STALE_EPOCH and STALE_LAYOUT (a newer epoch or layout) mean that this OST has
            // nothing to report. If any other error were taken for that, the file would be cut to the size that the MDT
            // knows.
            let has_nothing = |errno| matches!(errno, Errno::ESTALE | Errno::STALE_EPOCH | Errno::STALE_LAYOUT);
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
