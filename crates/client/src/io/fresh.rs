//! Requests under the truncate epoch and layout of now: an attempt that was refused as stale is repeated. And raises of a file's size.

use std::{
    rc::{Rc, Weak},
    time::Duration,
};

use forebay_proto::{
    Errno, Layout, Transno,
    message::{Attr, CommitLevel, GetAttr, RaiseSize},
};
use forebay_rpc::Call;

use crate::{
    Client, ClientError, ClientResult,
    errors::Trouble,
    file::{FileOwner, FileState},
    io::snapshot::Snapshot,
    leases::Ticket,
    limits,
};

impl Client {
    /// The state of a file just opened by the request `asked`.
    pub(crate) fn file_state(&self, asked: Ticket, attr: &Attr, layout: Layout) -> Rc<FileState> {
        if let Some(file) = self.inner.file(attr.fid) {
            file.adopt(asked, attr, Some(&layout));
            return file;
        }
        let owner: Weak<dyn FileOwner> = Rc::downgrade(&self.inner) as Weak<dyn FileOwner>;
        let file = Rc::new(FileState::new(owner, self.inner.options.max_rpc_bytes, attr, layout));
        file.adopt(asked, attr, None);
        if let Some(loss) = self.inner.losses.take(attr.fid) {
            file.lose(loss);
        }
        self.inner.opens.files.borrow_mut().insert(attr.fid, Rc::downgrade(&file));
        file
    }

    /// As [`Client::try_fresh`], for attempts that need no new OSTs.
    pub(crate) async fn fresh<T>(
        &self,
        file: &FileState,
        attempt: impl AsyncFn() -> Result<T, Trouble>,
    ) -> ClientResult<T> {
        Ok(self.try_fresh(file, attempt).await?)
    }

    /// Repeats `attempt` until its truncate epoch and layout generation were current.
    pub(crate) async fn try_fresh<T>(
        &self,
        file: &FileState,
        attempt: impl AsyncFn() -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        let mut pause = Duration::from_millis(1);
        for _ in 0..limits::STALE_ATTEMPTS {
            file.activity.reopening.ended().await;
            self.outline(file).await?;
            let before = file.version();
            match attempt().await {
                Err(Trouble::Stale(_)) => {}
                other => return other,
            }
            self.refresh(file).await?;
            if file.version() == before {
                // The OST is ahead of what the MDT replies: its reply to the MDT is on the way.
                self.env().sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(100));
            }
        }
        let words = format!("{} is truncated or moved again and again; try later", file.fid);
        Err(ClientError::new(Errno::EIO, words).into())
    }

    /// Fetches epochs and layout.
    pub(crate) async fn refresh(&self, file: &FileState) -> ClientResult<()> {
        let asked = self.inner.mdt.leases.ticket();
        let entry = self.mdt(file.fid, &GetAttr { fid: file.fid }).await?;
        file.adopt(asked, &entry.attr, entry.layout.as_ref());
        Ok(())
    }

    /// Returns when the home has replied to a raise of the size to at least `end`.
    ///
    /// Raises of one file go one after another; one raise serves all writes that ended while the last was under way.
    pub(crate) async fn raise(
        &self,
        file: &FileState,
        at: &Snapshot,
        end: u64,
        level: CommitLevel,
    ) -> Result<(), Trouble> {
        let epoch = at.object.truncate_epoch;
        if level != CommitLevel::Commit && file.size.borrow().covers(epoch, end) {
            return Ok(());
        }
        file.size.borrow_mut().want(epoch, end);
        let _turn = file.raises.turn.lock().await;
        let peer = self.ost_of(at, at.layout.home()).await?;
        if file.size.borrow().covers(epoch, end) {
            if level == CommitLevel::Commit {
                let (_, transno) = file.raises.last.get();
                peer.session.committed(transno).await?;
            }
            return Ok(());
        }
        if file.size.borrow().epoch() != epoch {
            return Err(Trouble::Stale(Errno::STALE_EPOCH.into()));
        }
        let file_bytes = file.size.borrow().next_raise(end);
        let (object, before) = (at.object.clone(), Vec::new());
        let request = RaiseSize { object, file_bytes, attr_epoch: at.attr_epoch, before };
        let call = Call { fid: Some(file.fid), ..Call::level(level) };
        let called = peer.call(&request, call).await?;
        file.raised(at, file_bytes, called.transno);
        file.size.borrow_mut().see(epoch, called.reply.file_bytes);
        file.told_time(called.reply.attr_epoch, called.reply.mtime_ns);
        Ok(())
    }
}

impl FileState {
    /// The home has replied to this client's raise, under the epochs of `at`.
    pub fn raised(&self, at: &Snapshot, file_bytes: u64, transno: Transno) {
        if at.instance != self.instance() {
            // It is for a session to bring back that is on its way out, and not the one that a sync asks.
            return;
        }
        let epoch = at.object.truncate_epoch;
        let mut size = self.size.borrow_mut();
        size.raised(epoch, file_bytes);
        // In another epoch another target may be the home, whose numbers are its own.
        let (of, before) = self.raises.last.get();
        if epoch > of {
            self.raises.last.set((epoch, transno));
        } else if epoch == of {
            self.raises.last.set((epoch, before.max(transno)));
        }
    }
}
