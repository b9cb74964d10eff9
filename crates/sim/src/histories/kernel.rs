//! A model of the kernel's name cache above a mount. The kernel trusts a cached name until it expires or the mount
//! invalidates all names. It learns of its own changes from the replies, and a reply takes a while to reach the
//! program's thread.
//!
//! So workers of one client may still see the state before its own change, while other clients must not yet see the
//! state after it. Only this model shows that leases must be recalled even from the client that makes the change.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};

use forebay_client::{Client, ClientResult, Dropped};
use forebay_env::{Env, Time, sync::RwLock};
use forebay_proto::{Errno, Fid};

use crate::workload::caller;

/// Longest time from a reply to its effect on the cache, in virtual microseconds.
const ANSWER_US: u64 = 3_000;

/// The name cache of one mount.
pub struct Kernel {
    env: Env,
    client: Client,
    names: RefCell<BTreeMap<(Fid, Vec<u8>), Believed>>,
    /// Raised whenever all names are invalidated: replies to earlier requests do not count afterwards.
    epoch: Cell<u64>,
    /// A lock per directory: a change of names holds it exclusively, a lookup holds it shared.
    locks: RefCell<BTreeMap<Fid, Rc<RwLock<()>>>>,
}

#[derive(Clone, Copy)]
struct Believed {
    /// The inode number of the file that the name refers to.
    file: Option<u64>,
    until: Time,
    epoch: u64,
}

/// The epoch when a request was sent.
#[derive(Clone, Copy)]
pub struct Asked(u64);

impl Kernel {
    /// The kernel above `client`.
    pub fn new(env: &Env, client: &Client) -> Rc<Self> {
        let (names, epoch) = (RefCell::default(), Cell::new(0));
        let kernel =
            Rc::new(Self { env: env.clone(), client: client.clone(), names, epoch, locks: RefCell::default() });
        let forgetful = Rc::downgrade(&kernel);
        client.set_dropped(move |dropped| {
            if let (Some(kernel), Dropped::Names) = (forgetful.upgrade(), dropped) {
                kernel.epoch.set(kernel.epoch.get() + 1);
            }
            true
        });
        kernel
    }

    /// The lock of a directory.
    pub fn lock_of(&self, dir: Fid) -> Rc<RwLock<()>> {
        self.locks.borrow_mut().entry(dir).or_default().clone()
    }

    /// Call this before sending a request.
    pub fn asks(&self) -> Asked {
        Asked(self.epoch.get())
    }

    /// The file of a name: from the cache, or from a new lookup.
    pub async fn look(&self, dir: Fid, name: &[u8]) -> ClientResult<Option<u64>> {
        if let Some(file) = self.believes(dir, name) {
            return Ok(file);
        }
        let lock = self.lock_of(dir);
        let _shared = lock.read().await;
        self.look_locked(dir, name).await
    }

    /// The same for a caller that holds the directory's lock.
    pub async fn look_locked(&self, dir: Fid, name: &[u8]) -> ClientResult<Option<u64>> {
        if let Some(file) = self.believes(dir, name) {
            return Ok(file);
        }
        let asked = self.asks();
        let found = match self.client.lookup(&caller(), dir, name).await {
            Ok(attr) => Some(attr.fid),
            Err(error) if error.errno == Errno::ENOENT => None,
            Err(error) => return Err(error),
        };
        self.told(asked, dir, name, found).await;
        Ok(found.map(|fid| fid.low))
    }

    /// Enters a reply: `name` refers to `found`.
    pub async fn told(&self, Asked(epoch): Asked, dir: Fid, name: &[u8], found: Option<Fid>) {
        let until = self.env.now() + self.client.name_for(dir, name, found);
        self.think().await;
        let believed = Believed { file: found.map(|fid| fid.low), until, epoch };
        self.names.borrow_mut().insert((dir, name.to_vec()), believed);
    }

    /// Enters a reply to a change: drops the cached entries of these names.
    pub async fn changed(&self, dir: Fid, names: &[&[u8]]) {
        self.think().await;
        let mut believed = self.names.borrow_mut();
        for name in names {
            believed.remove(&(dir, name.to_vec()));
        }
    }

    fn believes(&self, dir: Fid, name: &[u8]) -> Option<Option<u64>> {
        let names = self.names.borrow();
        let believed = names.get(&(dir, name.to_vec()))?;
        (believed.epoch == self.epoch.get() && believed.until > self.env.now()).then_some(believed.file)
    }

    async fn think(&self) {
        let us = self.env.random_u64() % ANSWER_US;
        self.env.sleep(Duration::from_micros(us)).await;
    }
}
