//! What a handle allows, and which losses it reports to which call: read(2) and write(2), close(2), and fsync(2) hear of each loss once.
//!
//! Not here: what is known of the file (see `file`).

use std::rc::Rc;

use forebay_proto::{Errno, Fid, Layout};

use crate::{
    ClientError, ClientResult, OpenFile, OpenMode,
    file::{FileState, Stage},
    session::instance::ClientInstance,
};

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

    /// Somebody acts by the size that it knows of the file, without a request.
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

    /// [`OpenFile::check`] for close(2), whatever other calls have reported: if a write of several requests fails, the
    /// kernel reports what was written before the failure, and a copy reports what it copied.
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

    /// Fails if acknowledged changes were lost and this handle has not reported that.
    pub(crate) fn report(&self) -> ClientResult<()> {
        let losses = self.inner.state.losses();
        if self.inner.reported.replace(losses) == losses { Ok(()) } else { Err(self.inner.state.loss()) }
    }

    pub(crate) fn report_to_close(&self) -> ClientResult<()> {
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
        self.check().map(|()| self.inner.owner.instance())
    }

    pub(crate) fn check_read(&self) -> ClientResult<()> {
        if self.inner.mode.read { self.check() } else { Err(Errno::EBADF.into()) }
    }
}
