//! Coherence of the kernel's pages of a file with requests that read or change the file past them.
//!
//! A mapping has pages in the kernel, and write(2) bypasses them. The kernel drops the pages of a range before it sends
//! a write to that range. But if a program touches such a page meanwhile, the kernel reads it again, with the bytes
//! from before the write. That copy would hide the write from the mapping. If it were written back whole, it would undo
//! the write. So reads and write-backs of pages take turns with changes (`table`). Where the kernel may have copies
//! from before a change, the reply to the change waits until the kernel has dropped them.
//!
//! Invariant: once a change has its reply, mappings show it, and no write-back of a mapping undoes it.
//! Invariant: a request that reads past the pages sees no change that a mapping does not show yet.
//! Invariant: for a file without pages, a change costs two entries of a table, and no request of the kernel.
//! Not here: changes by other mounts (docs/posix.md, "Mappings").

#[cfg(test)]
mod model;
mod ranges;
mod table;

use std::{
    cell::{Cell, RefCell},
    ops::Range,
    rc::Rc,
};

use bytes::Bytes;
use forebay_client::{ClientResult, OpenFile};
use forebay_env::sync::Notify;
use fuser::FileHandle;

use self::table::{Kind, Table, Turn};
use crate::{
    kernel::{Drops, Notifier},
    limits,
    server::Server,
};

/// See the module.
pub(crate) struct Pages {
    table: RefCell<Table>,
    drops: Drops,
    /// Notified when a request ends or copies are dropped.
    ended: Notify,
    /// Number of changes that wait for the kernel to drop copies. `reading`: number of reads that wait for such
    /// changes.
    settling: Cell<usize>,
    reading: Cell<usize>,
}

/// When the reply to a change is sent, if the kernel may have copies of pages from before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// When the copies are dropped.
    Settled,
    /// At once. The kernel drops the copies itself before its program continues, and writes none back before it has the
    /// reply.
    AtOnce,
}

/// A request in flight, until this is dropped.
struct Running<'a> {
    pages: &'a Pages,
    turn: Turn,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.pages.table.borrow_mut().end(self.turn);
        self.pages.ended.notify_waiters();
    }
}

impl Running<'_> {
    /// Waits for earlier requests that may not run beside this one.
    async fn alone(&self) {
        while self.pages.table.borrow().is_blocked(self.turn) {
            self.pages.ended.notified().await;
        }
    }
}

/// Counts one waiting request until this is dropped.
struct Counted<'a>(&'a Cell<usize>);

impl<'a> Counted<'a> {
    /// `None`: too many are waiting already.
    fn new(count: &'a Cell<usize>) -> Option<Self> {
        (count.get() < limits::SETTLING).then(|| {
            count.set(count.get() + 1);
            Self(count)
        })
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Pages {
    pub fn new(notifier: &Notifier) -> Self {
        // SAFETY: the call returns a number and touches no memory.
        let page_bytes = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).expect("pages have a size");
        let (settling, reading) = Default::default();
        Self { table: Table::new(page_bytes).into(), drops: notifier.drops(), ended: Notify::new(), settling, reading }
    }

    fn begin(&self, ino: u64, kind: Kind, bytes: &Range<u64>) -> Running<'_> {
        Running { pages: self, turn: self.table.borrow_mut().begin(ino, kind, bytes) }
    }

    /// Whether the kernel may have pages of the file.
    pub fn are_there(&self, ino: u64) -> bool {
        self.table.borrow().has_pages(ino)
    }

    /// Forgets files for which `is_open` is false. They have no mapping any more, and nobody sees their pages again.
    pub fn closed(&self, is_open: impl Fn(u64) -> bool) {
        let closed: Vec<u64> = self.table.borrow().files().filter(|ino| !is_open(*ino)).collect();
        closed.into_iter().for_each(|ino| self.table.borrow_mut().closed(ino));
    }

    /// Waits until mappings show all earlier changes of `bytes`.
    async fn settled(&self, ino: u64, bytes: &Range<u64>) {
        let turn = self.table.borrow_mut().turn(ino);
        if !self.table.borrow().is_unsettled(turn, bytes) {
            return;
        }
        let Some(_counted) = Counted::new(&self.reading) else { return };
        while self.table.borrow().is_unsettled(turn, bytes) {
            self.ended.notified().await;
        }
    }

    /// Makes the kernel drop its copies of `bytes` from before the change of `turn`.
    async fn drop_stale(&self, turn: Turn, bytes: &Range<u64>) {
        let number = self.table.borrow_mut().turn(turn.ino).number;
        // An error: the kernel cannot be notified, because no thread could be started.
        let _ = self.drops.drop_pages(turn.ino, bytes).await;
        self.table.borrow_mut().dropped(turn, number);
        self.ended.notify_waiters();
    }
}

impl Server {
    /// Runs `change`, which may change any of `touched` past the kernel's pages. It returns the range that it did
    /// change.
    pub async fn change<T>(
        self: &Rc<Self>,
        ino: u64,
        touched: Range<u64>,
        answered: Answered,
        change: impl AsyncFnOnce() -> ClientResult<(T, Range<u64>)>,
    ) -> ClientResult<T> {
        let running = self.pages.begin(ino, Kind::Change, &touched);
        running.alone().await;
        // A failed change may be partly applied. Pages must not hide that part, and earlier copies of it may be written
        // back.
        let (done, changed, touched) = match change().await {
            Ok((value, changed)) => (Ok(value), changed.clone(), changed),
            Err(error) => (Err(error), 0..0, touched),
        };
        let turn = running.turn;
        let may_be_there = self.pages.table.borrow_mut().applied(turn, changed, &touched);
        drop(running);
        if !may_be_there {
            return done;
        }
        let waits = Counted::new(&self.pages.settling).filter(|_| answered == Answered::Settled);
        if waits.is_some() {
            self.pages.drop_stale(turn, &touched).await;
        } else {
            let server = self.clone();
            drop(self.env.spawn(async move { server.pages.drop_stale(turn, &touched).await }));
        }
        done
    }

    /// Another mount made a file larger; its size was `before`. The kernel uses the size that it knows to decide how
    /// far it sends, copies and maps.
    pub async fn grown(&self, ino: u64, before: u64, bytes: u64) {
        // An error: no thread could be started. The kernel learns the size when it next asks.
        let _ = self.pages.drops.grow(ino, before, bytes, self.pages.are_there(ino)).await;
    }

    /// Reads bytes for a program, once a mapping would show them too.
    pub async fn read(&self, ino: u64, handle: FileHandle, offset: u64, bytes: u32) -> ClientResult<Vec<Bytes>> {
        self.pages.settled(ino, &(offset..offset + u64::from(bytes))).await;
        self.client.read_parts(&self.file(handle)?.file().await?, offset, bytes as usize).await
    }

    /// Reads bytes for pages of the kernel.
    pub async fn read_pages(&self, ino: u64, handle: FileHandle, offset: u64, bytes: u32) -> ClientResult<Vec<Bytes>> {
        let running = self.pages.begin(ino, Kind::PageRead, &(offset..offset + u64::from(bytes)));
        running.alone().await;
        self.pages.table.borrow_mut().read(running.turn);
        let file = self.file(handle)?.file().await?;
        file.size_is_used();
        self.client.read_parts(&file, offset, bytes as usize).await
    }

    /// Writes back pages that mappings changed. The kernel sends whole pages.
    pub async fn write_pages(&self, ino: u64, file: &OpenFile, offset: u64, data: Bytes) -> ClientResult<()> {
        let bytes = offset..offset + data.len() as u64;
        let running = self.pages.begin(ino, Kind::PageWrite, &bytes);
        running.alone().await;
        let parts = self.pages.table.borrow().own_parts(ino, &bytes);
        for part in parts {
            let mut at = part.start;
            // After the reply the kernel treats the page as clean, so all of it must be written.
            while at < part.end {
                let rest = data.slice((at - offset) as usize..(part.end - offset) as usize);
                at += self.client.write(file, at, rest).await? as u64;
            }
        }
        Ok(())
    }
}
