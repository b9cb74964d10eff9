//! What a node knows of its cluster's membership: the epoch of the map, and who is banned. All shards of a process share
//! it, as they share its keys.

use std::{
    fmt,
    sync::{
        Arc, RwLock,
        atomic::{AtomicU32, Ordering},
    },
};

use forebay_proto::message::{Ban, Bans};

use crate::{NodeName, PublicKey};

/// What a node knows of its cluster's membership.
#[derive(Default)]
pub struct Membership {
    /// The highest epoch that another node has named.
    heard: AtomicU32,
    /// The epoch of the bans; so a connection sees without a lock that they have changed.
    epoch: AtomicU32,
    bans: RwLock<Arc<[Ban]>>,
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {} with {} bans", self.epoch(), self.bans().len())
    }
}

impl Membership {
    /// Epoch of the map that this node knows; 0 if it knows none.
    pub fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Another node named this epoch.
    pub fn hear(&self, epoch: u32) {
        // Most frames name the epoch that is known.
        if epoch > self.heard.load(Ordering::Relaxed) {
            self.heard.fetch_max(epoch, Ordering::Relaxed);
        }
    }

    /// True if another node knows a newer map.
    pub fn is_outdated(&self) -> bool {
        self.heard.load(Ordering::Relaxed) > self.epoch()
    }

    /// Another node named an epoch that the MGS does not know: it counts no longer.
    pub fn forget_rumours(&self) {
        self.heard.store(self.epoch(), Ordering::Relaxed);
    }

    /// Takes the bans of a map, unless those of a later one are known.
    pub fn adopt(&self, bans: &Bans) {
        let mut known = self.bans.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if bans.epoch >= self.epoch() {
            *known = bans.bans.clone().into();
            self.epoch.store(bans.epoch, Ordering::Release);
        }
        drop(known);
        self.hear(bans.epoch);
    }

    /// Who is banned.
    pub fn bans(&self) -> Arc<[Ban]> {
        self.bans.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// True if nobody may talk to the node of this name with this key.
    pub fn is_banned(&self, node: &NodeName, key: &PublicKey) -> bool {
        self.bans().iter().any(|ban| match ban.key.is_empty() {
            true => ban.role == node.role.word() && ban.name == node.name(),
            false => ban.key == key.0[..],
        })
    }
}
