//! The kernel's pages of a file, beside what reads and changes the file past them.
//!
//! A mapping has pages in the kernel, and what is written with write(2) passes them by. The kernel drops the pages of a range before it
//! asks for a write there; but a program that touches one meanwhile has it read again, from before the write. Such a copy would
//! hide the write from its mapping, and, written back whole, undo it. So here the two take turns (`table`); and where the kernel may
//! have copies from before a change, the change is answered when it has dropped them.
//!
//! Invariant: a change that was answered is shown by mappings from then on, and nothing that a mapping writes back undoes it.
//! Invariant: who reads the file past the pages sees no change that a mapping does not show yet.
//! Invariant: a file without pages costs two entries of a table for each change, and no request of the kernel.
//! Not here: what other mounts change (docs/posix.md, "Mappings").

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
    /// Something has ended.
    ended: Notify,
    /// Changes that wait for the kernel, and reads that wait for those.
    settling: Cell<usize>,
    reading: Cell<usize>,
}

/// When a change is answered, if the kernel may have copies of pages from before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// When they are dropped.
    Settled,
    /// At once: the kernel drops them before its program goes on, and writes none back before it has the answer.
    AtOnce,
}

/// A request under way, until this is dropped.
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
    /// Waits for those that came before it and may not run beside it.
    async fn alone(&self) {
        while self.pages.table.borrow().is_blocked(self.turn) {
            self.pages.ended.notified().await;
        }
    }
}

/// One more that waits, until this is dropped.
struct Counted<'a>(&'a Cell<usize>);

impl<'a> Counted<'a> {
    /// `None`: there are too many.
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
        // SAFETY: a number is asked for.
        let page_bytes = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).expect("pages have a size");
        let (settling, reading) = Default::default();
        Self { table: Table::new(page_bytes).into(), drops: notifier.drops(), ended: Notify::new(), settling, reading }
    }

    fn begin(&self, ino: u64, kind: Kind, bytes: &Range<u64>) -> Running<'_> {
        Running { pages: self, turn: self.table.borrow_mut().begin(ino, kind, bytes) }
    }

    /// The kernel may have pages of the file.
    pub fn are_there(&self, ino: u64) -> bool {
        self.table.borrow().has_pages(ino)
    }

    /// Files for which `is_open` is false have no mapping any more, nor pages that anybody sees again.
    pub fn closed(&self, is_open: impl Fn(u64) -> bool) {
        let closed: Vec<u64> = self.table.borrow().files().filter(|ino| !is_open(*ino)).collect();
        closed.into_iter().for_each(|ino| self.table.borrow_mut().closed(ino));
    }

    /// Waits until what changed `bytes` before is shown by mappings too.
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

    /// Has the kernel drop its copies of `bytes` from before the change of `turn`.
    async fn drop_stale(&self, turn: Turn, bytes: &Range<u64>) {
        let number = self.table.borrow_mut().turn(turn.ino).number;
        // An error: it cannot be told, and no thread has begun.
        let _ = self.drops.drop_pages(turn.ino, bytes).await;
        self.table.borrow_mut().dropped(turn, number);
        self.ended.notify_waiters();
    }
}

impl Server {
    /// Runs `change`, which may give `touched` other values past the kernel's pages, and returns which bytes it did.
    pub async fn change<T>(
        self: &Rc<Self>,
        ino: u64,
        touched: Range<u64>,
        answered: Answered,
        change: impl AsyncFnOnce() -> ClientResult<(T, Range<u64>)>,
    ) -> ClientResult<T> {
        let running = self.pages.begin(ino, Kind::Change, &touched);
        running.alone().await;
        // Of a change that failed some may be done: that is neither to be hidden nor to be kept.
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

    /// Another mount made a file larger than it was `before`: the kernel decides by the size that it knows how far it sends, copies
    /// and maps.
    pub async fn grown(&self, ino: u64, before: u64, bytes: u64) {
        // An error: no thread has begun, and the kernel learns of it when it asks.
        let _ = self.pages.drops.grow(ino, before, bytes, self.pages.are_there(ino)).await;
    }

    /// Bytes for a program: not before a mapping would show them too.
    pub async fn read(&self, ino: u64, handle: FileHandle, offset: u64, bytes: u32) -> ClientResult<Vec<Bytes>> {
        self.pages.settled(ino, &(offset..offset + u64::from(bytes))).await;
        self.client.read_parts(&self.file(handle)?.file().await?, offset, bytes as usize).await
    }

    /// Bytes for pages of the kernel.
    pub async fn read_pages(&self, ino: u64, handle: FileHandle, offset: u64, bytes: u32) -> ClientResult<Vec<Bytes>> {
        let running = self.pages.begin(ino, Kind::PageRead, &(offset..offset + u64::from(bytes)));
        running.alone().await;
        self.pages.table.borrow_mut().read(running.turn);
        let file = self.file(handle)?.file().await?;
        file.size_is_used();
        self.client.read_parts(&file, offset, bytes as usize).await
    }

    /// What mappings changed in pages, which the kernel hands over whole.
    pub async fn write_pages(&self, ino: u64, file: &OpenFile, offset: u64, data: Bytes) -> ClientResult<()> {
        let bytes = offset..offset + data.len() as u64;
        let running = self.pages.begin(ino, Kind::PageWrite, &bytes);
        running.alone().await;
        let parts = self.pages.table.borrow().own_parts(ino, &bytes);
        for part in parts {
            let mut at = part.start;
            // A page that is answered counts as clean: none of it may be left.
            while at < part.end {
                let rest = data.slice((at - offset) as usize..(part.end - offset) as usize);
                at += self.client.write(file, at, rest).await? as u64;
            }
        }
        Ok(())
    }
}
