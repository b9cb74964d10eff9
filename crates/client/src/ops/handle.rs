//! Open files: handles that the MDT knows, and what each has to report.

use super::open::OpenMode;
use crate::{
    Caller, Client, ClientError, ClientResult, cache::read_cache::Pattern, client::Inner, file::FileState,
    posix::privileges::Privileges, session::instance::ClientInstance,
};
use forebay_proto::{Errno, Fid, Layout, message::OpenHandle};
use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
};

/// An open regular file. Cheap to clone: all clones are one handle.
///
/// Close it with [`Client::close`], which reports errors; if the last clone is dropped, it is closed in the background.
#[derive(Clone)]
pub struct OpenFile {
    pub(crate) inner: Rc<OpenInner>,
}

pub(crate) struct OpenInner {
    pub(super) client: Client,
    pub(super) caller: Caller,
    pub state: Rc<FileState>,
    /// Those of the file that a change of its bytes removes.
    pub privileges: Privileges,
    pub(super) handle: u64,
    pub(super) mode: OpenMode,
    pub(super) stage: Cell<Stage>,
    /// Something was written through it: its close brings size and time.
    pub wrote: Rc<Cell<bool>>,
    /// How many names this client had given the file when its name was known to be durable (asked for by the first write of a
    /// `sync` handle). `None`: not known.
    pub named: Cell<Option<u64>>,
    /// A lock that was set through it is lost: it is good for nothing but its close.
    pub(super) lock_lost: Cell<bool>,
    /// Losses of the file that this handle has reported to whoever reads, writes or closes.
    pub(super) reported: Cell<u64>,
    /// Losses of the file that it has reported to fsync: nobody else's call uses up that report.
    pub(super) synced: Cell<u64>,
    /// How it is read.
    pub pattern: RefCell<Pattern>,
    /// Losses of the file that it has reported to close(2): a call that was cut short tells its program of none.
    pub(super) closed: Cell<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Open,
    Closed,
    /// The MDT lost the handle, and the file could not be opened again.
    Gone,
}

/// A handle in the client's table.
pub(crate) struct OpenHandleEntry {
    pub(super) open: OpenHandle,
    pub(super) inner: Weak<OpenInner>,
    /// Its Close is on its way.
    pub(super) closing: bool,
}

impl OpenFile {
    /// The file.
    pub fn fid(&self) -> Fid {
        self.inner.state.fid
    }

    /// The handle's number, unique in this client.
    pub fn handle(&self) -> u64 {
        self.inner.handle
    }

    /// How it was opened.
    pub fn mode(&self) -> OpenMode {
        self.inner.mode
    }

    /// The file's layout.
    pub fn layout(&self) -> Rc<Layout> {
        self.inner.state.layout()
    }

    /// How many of this client's handles write to the file.
    pub fn writers(&self) -> usize {
        self.inner.state.activity.writers.get()
    }

    /// Somebody acts by the size that it knows of the file, without asking.
    pub fn size_is_used(&self) {
        let used = &self.state().reading.size_used;
        used.set(used.get() + 1);
    }

    /// Whether a write at `offset` may leave a gap behind the file's end, as far as this client knows where that is.
    pub fn leaves_a_gap(&self, offset: u64) -> bool {
        let state = self.state();
        offset > state.size.borrow().seen().max(state.buffered.borrow().end())
    }

    pub(crate) fn state(&self) -> &Rc<FileState> {
        &self.inner.state
    }

    /// Nobody has begun to close it.
    pub(crate) fn is_open(&self) -> bool {
        self.inner.stage.get() != Stage::Closed
    }

    /// Fails if the handle is no longer good, or (once per loss) if acknowledged changes of the file were lost.
    pub(crate) fn check(&self) -> ClientResult<()> {
        self.check_handle().and_then(|()| self.report())
    }

    /// [`OpenFile::check`] for close(2), whatever other calls have told: of a write in several requests the kernel tells what was
    /// written before the one that failed, and a copy what it copied.
    pub(crate) fn check_close(&self) -> ClientResult<()> {
        self.check_handle().and_then(|()| self.report_to_close())
    }

    fn check_handle(&self) -> ClientResult<()> {
        match self.inner.stage.get() {
            Stage::Open if self.has_lost_lock() => {
                let words = format!("a lock of {} was lost with the MDT's session; open it again", self.fid());
                Err(ClientError::new(Errno::EIO, words))
            }
            Stage::Open => Ok(()),
            Stage::Closed => Err(Errno::EBADF.into()),
            Stage::Gone => self.check_not_gone(),
        }
    }

    /// Fails if the MDT has lost the handle for good.
    pub(crate) fn check_not_gone(&self) -> ClientResult<()> {
        if self.inner.stage.get() != Stage::Gone {
            return Ok(());
        }
        let words = format!("{} could not be opened again after the MDT ended the session", self.fid());
        Err(ClientError::new(Errno::ESTALE, words))
    }

    pub(crate) fn lose_lock(&self) {
        self.inner.lock_lost.set(true);
    }

    pub(crate) fn has_lost_lock(&self) -> bool {
        self.inner.lock_lost.get()
    }

    /// Fails if acknowledged changes were lost and this handle has not said so.
    pub(crate) fn report(&self) -> ClientResult<()> {
        let losses = self.inner.state.losses();
        if self.inner.reported.replace(losses) == losses { Ok(()) } else { Err(self.inner.state.loss()) }
    }

    pub(super) fn report_to_close(&self) -> ClientResult<()> {
        let losses = self.inner.state.losses();
        self.inner.reported.set(losses);
        if self.inner.closed.replace(losses) == losses { Ok(()) } else { Err(self.inner.state.loss()) }
    }

    /// [`OpenFile::report`] for fsync, which close(2) by another process that has the descriptor too must not silence.
    pub(crate) fn report_to_sync(&self) -> ClientResult<()> {
        let state = &self.inner.state;
        let losses = state.losses();
        self.inner.reported.set(losses);
        self.inner.closed.set(losses);
        state.losses.reported.set(losses);
        if self.inner.synced.replace(losses) == losses { Ok(()) } else { Err(state.loss()) }
    }

    /// [`OpenFile::check`], and the instance in which whatever is written now is begun.
    pub(crate) fn check_write(&self) -> ClientResult<ClientInstance> {
        if !self.inner.mode.write {
            return Err(Errno::EBADF.into());
        }
        self.check().map(|()| self.inner.client.inner.instance())
    }

    pub(crate) fn check_read(&self) -> ClientResult<()> {
        if self.inner.mode.read { self.check() } else { Err(Errno::EBADF.into()) }
    }
}

impl Inner {
    /// This client's handles of the file.
    pub(crate) fn handles_of(&self, fid: Fid) -> Vec<OpenFile> {
        let handles = self.opens.handles.borrow();
        let of_file = handles.values().filter(|handle| handle.open.fid == fid);
        of_file.filter_map(|handle| handle.inner.upgrade()).map(|inner| OpenFile { inner }).collect()
    }
}

impl OpenInner {
    /// Ends the handle at the MDT.
    pub(super) fn end(&self) -> impl Future<Output = ClientResult<()>> + use<> {
        let (client, begun) = (self.client.clone(), self.client.begin_close());
        client.end(self.state.clone(), self.handle, self.mode.write, self.wrote.clone(), begun)
    }
}

impl Drop for OpenInner {
    fn drop(&mut self) {
        if self.stage.get() == Stage::Open {
            drop(self.client.env().spawn(self.end()));
        }
    }
}
