//! Sizes of files that are open here and that others may make larger, for a kernel that acts by the size that it knows.
//!
//! As long as this client has a lease on the inode, nobody else writes to the file. Without one, it watches the size at
//! the file's home: a client that extends the file gets its reply once the hook was notified ([`Client::set_grown`]).
//!
//! Invariant: a size that the hook received was the file's, or will be when the OST has replied to the client that
//! extended it.
//! Invariant: bounded ([`limits::WATCHES`]). Without a hook nothing is watched.
//! Not here: files that this client writes to itself meanwhile, and sizes that become smaller: a read returns those.

use std::rc::{Rc, Weak};

use forebay_env::{Boxed, Bug, planted};
use forebay_proto::{
    Errno, Fid,
    message::{ObjectRef, WatchSize},
};
use forebay_rpc::RpcError;

use super::watches::Hook;
use crate::{Client, file::FileState, limits};

/// A file that is watched.
struct Watch {
    file: Weak<FileState>,
    fid: Fid,
    object: ObjectRef,
    home: u32,
    /// The size that whoever acts by it knows.
    known: u64,
    /// The time of the last change from here, when it began.
    written: Option<(u64, i64)>,
    hook: Hook,
}

/// How a request is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ask {
    AtOnce,
    Waits,
    Ends,
}

impl Client {
    /// `hook` is notified of files that are open here and that other clients have extended: which, the size that was
    /// known, and the new one. The client that extended the file waits until the hook has returned.
    pub fn set_grown(&self, hook: impl Fn(Fid, u64, u64) -> Boxed<'static, ()> + 'static) {
        *self.inner.watches.hook.borrow_mut() = Some(Rc::new(hook));
    }

    /// The lease on `fid` is about to end.
    pub(crate) async fn watch_after_recall(&self, fid: Fid) {
        if let Some(file) = self.inner.file(fid) {
            self.watch(&file).await;
        }
    }

    /// No lease is left of what is open.
    pub(crate) async fn watch_sizes(&self) {
        if self.inner.watches.hook.borrow().is_some() {
            for file in self.inner.open_files() {
                self.watch_size(&file).await;
            }
        }
    }

    /// Watches the size of a file on whose inode there is no lease. Returns when its home knows that.
    pub(crate) async fn watch_size(&self, file: &Rc<FileState>) {
        if !self.inner.mdt.leases.is_leased(file.fid) {
            self.watch(file).await;
        }
    }

    async fn watch(&self, file: &Rc<FileState>) {
        let watches = &self.inner.watches;
        let Some(hook) = watches.hook.borrow().clone().filter(|_| !planted(Bug::SizesNotWatched)) else { return };
        if file.activity.handles.get() == 0 || watches.files.borrow().len() >= limits::WATCHES {
            return;
        }
        if !watches.files.borrow_mut().insert(file.fid) {
            return;
        }
        let at = file.snapshot();
        let (fid, home, known) = (file.fid, at.layout.home(), at.seen);
        let written = file.told();
        let mut watch = Watch { file: Rc::downgrade(file), fid, object: at.object, home, known, written, hook };
        let begun = async {
            // A session that begins just now is not there at once.
            while let Err(error) = watch.ask(self, Ask::AtOnce).await {
                if is_for_good(&error) {
                    return;
                }
                self.env().sleep(limits::WATCH_RETRY).await;
            }
        };
        let _ = self.env().timeout(limits::WATCH_BEGIN, begun).await;
        let client = self.clone();
        drop(self.env().spawn(async move {
            watch.follow(&client).await;
            client.inner.watches.files.borrow_mut().remove(&watch.fid);
        }));
    }
}

impl Watch {
    /// Until the file is closed, leased, or written to from here.
    async fn follow(&mut self, client: &Client) {
        let Some(file) = self.file.upgrade() else { return self.end(client).await };
        let (mut used, mut unused) = (file.reading.size_used.get(), 0);
        drop(file);
        loop {
            let Some(file) = self.file.upgrade().filter(|file| file.activity.handles.get() > 0) else { break };
            if file.told() != self.written || client.inner.mdt.leases.is_leased(self.fid) {
                break;
            }
            self.look_where(&file);
            drop(file);
            let before = self.known;
            match self.ask(client, Ask::Waits).await {
                Ok(()) if self.known > before => unused += 1,
                Ok(()) => {}
                Err(error) if is_for_good(&error) => break,
                // The OST is away, or recovers; so it is for who would make the file larger.
                Err(_) => client.env().sleep(limits::WATCH_AGAIN).await,
            }
            let now = self.file.upgrade().map_or(used, |file| file.reading.size_used.get());
            if now != used {
                (used, unused) = (now, 0);
            }
            if unused >= limits::WATCH_UNUSED {
                unused = 0;
                self.end(client).await;
                client.env().sleep(limits::WATCH_PAUSE).await;
            }
        }
        self.end(client).await;
    }

    /// Its bytes may lie elsewhere by now.
    fn look_where(&mut self, file: &FileState) {
        let at = file.snapshot();
        (self.object, self.home) = (at.object, at.layout.home());
    }

    async fn end(&mut self, client: &Client) {
        // If the request is lost, the OST drops this watcher too.
        let _ = self.ask(client, Ask::Ends).await;
    }

    /// Sends one request. The hook is notified of a larger size before anything else is sent.
    async fn ask(&mut self, client: &Client, how: Ask) -> Result<(), RpcError> {
        let unreachable = |error: crate::ClientError| RpcError::Unreachable(error.message);
        let peer = client.inner.peers.ost(self.home).await.map_err(unreachable)?;
        let (object, known_bytes) = (self.object.clone(), self.known);
        let (waits, ends) = (how == Ask::Waits, how == Ask::Ends);
        let told = peer.session.ask(&WatchSize { object, known_bytes, waits, ends }).await?.file_bytes;
        if told > self.known && how != Ask::Ends {
            // Not for what this client writes: the reply to the client that extended the file may be lost with the OST.
            // And the kernel knows what its own programs write.
            if self.file.upgrade().is_some_and(|file| file.told() == self.written) {
                (self.hook)(self.fid, self.known, told).await;
            }
            self.known = told;
        }
        Ok(())
    }
}

/// Asked again it would be the same: the OST does not know the question, has too many to answer, or the object is gone.
fn is_for_good(error: &RpcError) -> bool {
    match error {
        RpcError::Reply(reply) => matches!(reply.errno, Errno::EOPNOTSUPP | Errno::ENOSPC | Errno::ESTALE),
        RpcError::Refused(_) | RpcError::Closed | RpcError::Protocol(_) => true,
        _ => false,
    }
}
