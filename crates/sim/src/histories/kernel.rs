//! What the kernel above a mount makes of what it is told: it believes a name for as long as it may, until the mount has it
//! forget all names, and learns of its own changes by their answers, which take a while to reach it.
//!
//! So a client's workers may see what was before its own change when everybody else must not yet see what is after it: that
//! a lease is recalled even from who made the change shows only here.

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

/// Longest time between an answer and what the program's thread makes of it, in virtual microseconds.
const ANSWER_US: u64 = 3_000;

/// One mount's.
pub struct Kernel {
    env: Env,
    client: Client,
    names: RefCell<BTreeMap<(Fid, Vec<u8>), Believed>>,
    /// Counts up whenever all names are forgotten: what was asked before does not count afterwards.
    epoch: Cell<u64>,
    /// Of a directory: who changes its names has it alone, who is told of them shares it.
    locks: RefCell<BTreeMap<Fid, Rc<RwLock<()>>>>,
}

#[derive(Clone, Copy)]
struct Believed {
    /// The number of the file it leads to.
    file: Option<u64>,
    until: Time,
    epoch: u64,
}

/// When something was asked.
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

    /// The directory's lock.
    pub fn lock_of(&self, dir: Fid) -> Rc<RwLock<()>> {
        self.locks.borrow_mut().entry(dir).or_default().clone()
    }

    /// Before a request is sent.
    pub fn asks(&self) -> Asked {
        Asked(self.epoch.get())
    }

    /// The file a name leads to, as the kernel believes, or as it is told now.
    pub async fn look(&self, dir: Fid, name: &[u8]) -> ClientResult<Option<u64>> {
        if let Some(file) = self.believes(dir, name) {
            return Ok(file);
        }
        let lock = self.lock_of(dir);
        let _shared = lock.read().await;
        self.look_locked(dir, name).await
    }

    /// The same for who has the directory's lock.
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

    /// An answer says where `name` leads.
    pub async fn told(&self, Asked(epoch): Asked, dir: Fid, name: &[u8], found: Option<Fid>) {
        let until = self.env.now() + self.client.name_for(dir, name, found);
        self.think().await;
        let believed = Believed { file: found.map(|fid| fid.low), until, epoch };
        self.names.borrow_mut().insert((dir, name.to_vec()), believed);
    }

    /// An answer says that these were changed.
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
