//! The members of the cluster: how hosts join, who is banned, tenants, and the map that is made of them. MDT0000's server is the MGS,
//! and keeps them as rows.
//!
//! The targets that the cluster's description names are part of the map without rows: an MDT of a cluster that nobody
//! has joined has no rows of members.
//!
//! Invariant: what a requester is told, and what the map shows, is durable.

mod confine;
mod id_maps;
mod members;
mod requests;
mod rows;
mod tenants;

use std::{cell::RefCell, collections::BTreeSet, rc::Rc};

use forebay_env::{Env, sync::Semaphore};
use forebay_keys::Authority;
use forebay_proto::{
    DecodeError, Errno, ErrorReply, TargetId, TargetKind,
    message::{Bans, ClusterMap},
};

use crate::keys;
use members::Members;

/// The map that the cluster's description gives, of now.
pub type Described = Rc<dyn Fn() -> ClusterMap>;

/// The members, and what is needed to change them.
pub struct Membership {
    env: Env,
    members: Rc<RefCell<Members>>,
    described: Option<Described>,
    authority: Option<std::sync::Arc<Authority>>,
    /// Held by the request that changes the members.
    turn: Semaphore,
}

impl Membership {
    /// Without members yet: [`Membership::row`] brings them.
    pub fn new(env: &Env, described: Option<Described>, authority: Option<std::sync::Arc<Authority>>) -> Self {
        Self { env: env.clone(), members: Rc::default(), described, authority, turn: Semaphore::new(1) }
    }

    /// A row that was read at the start.
    pub fn row(&self, key: &[u8], value: &[u8]) -> Result<(), DecodeError> {
        self.members.borrow_mut().row(key, Some(value))
    }

    /// The map of now, for as long as it is asked for.
    pub fn map(&self) -> Option<Described> {
        let (described, members) = (self.described.clone()?, self.members.clone());
        Some(Rc::new(move || members.borrow().map(described())))
    }

    /// OSTs that have registered.
    pub fn osts(&self) -> Vec<u32> {
        let map = self.map().map(|map| map().targets).unwrap_or_default();
        map.into_iter().filter(|target| target.id.kind == TargetKind::Ost).map(|target| target.id.index).collect()
    }

    /// Who is banned; `None` if the map has never changed.
    pub fn bans(&self) -> Option<Bans> {
        let described = self.described.as_ref()?();
        let members = self.members.borrow();
        let epoch = members.map(described.clone()).epoch;
        (epoch != described.epoch).then(|| members.bans(epoch))
    }

    /// Connections of this server heed the bans of now.
    pub fn adopt_bans(&self) {
        if let (Some(membership), Some(bans)) = (self.env.membership(), self.bans()) {
            membership.adopt(&bans);
        }
    }

    /// Held by whoever changes the members: each builds on what the one before has made durable.
    pub async fn turn(&self) -> impl Drop + '_ {
        self.turn.acquire().await.expect("the semaphore is never closed")
    }

    fn described_targets(&self) -> BTreeSet<TargetId> {
        let map = self.described.as_ref().map(|map| map());
        map.map(|map| map.targets.into_iter().map(|target| target.id).collect()).unwrap_or_default()
    }

    fn authority(&self) -> Result<&Authority, ErrorReply> {
        self.authority.as_deref().ok_or_else(|| {
            let words = "the MGS has no key of the cluster's authority, so nobody can join: a cluster of `forebay up --listen` \
                 has one in DIR/keys";
            ErrorReply::new(Errno::EOPNOTSUPP, words)
        })
    }
}

/// Loads the rows of the members.
pub async fn load(store: &forebay_store::Store, membership: &Membership) -> Result<(), ErrorReply> {
    crate::load::each_row(store, keys::MEMBER, |key, value| membership.row(key, value)).await
}
