//! What the session knows of each address of its target: whether it answers, and what goes over it.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};

use forebay_env::{Address, Env, Time};

use crate::{frame::Traffic, limits};

/// The streams of a session by one address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RailStats {
    /// The address.
    pub address: String,
    /// A stream is open now.
    pub is_open: bool,
    /// Streams that were opened.
    pub opened: u64,
    /// Bytes written to them.
    pub sent_bytes: u64,
    /// Bytes read from them.
    pub received_bytes: u64,
}

/// The addresses that were tried.
#[derive(Default)]
pub(super) struct ByAddress(RefCell<BTreeMap<Address, OneAddress>>);

#[derive(Default)]
struct OneAddress {
    traffic: Rc<Traffic>,
    open: u64,
    opened: u64,
    shunned_until: Option<Time>,
    /// No stream beside the first one is opened before.
    held_until: Option<Time>,
    pause: Duration,
    opened_at: Option<Time>,
    complaint: String,
}

/// A stream by an address, while it is open.
pub(super) struct OpenRail<'a> {
    all: &'a ByAddress,
    address: Address,
    pub traffic: Rc<Traffic>,
}

impl Drop for OpenRail<'_> {
    fn drop(&mut self) {
        self.all.with(&self.address, |one| one.open -= 1);
    }
}

impl ByAddress {
    fn with<T>(&self, address: &Address, change: impl FnOnce(&mut OneAddress) -> T) -> T {
        change(self.0.borrow_mut().entry(address.clone()).or_default())
    }

    /// A stream by `address` is open.
    pub fn open(&self, env: &Env, address: &Address) -> OpenRail<'_> {
        let traffic = self.with(address, |one| {
            (one.open, one.opened, one.opened_at) = (one.open + 1, one.opened + 1, Some(env.now()));
            one.complaint.clear();
            one.traffic.clone()
        });
        OpenRail { all: self, address: address.clone(), traffic }
    }

    /// What goes over the streams by `address`.
    pub fn traffic(&self, address: &Address) -> Rc<Traffic> {
        self.with(address, |one| one.traffic.clone())
    }

    /// Nothing answered at `address`: others are tried before it for a while.
    pub fn shun(&self, env: &Env, address: &Address) {
        self.with(address, |one| one.shunned_until = Some(env.now() + limits::SHUNNED));
    }

    /// A rail by `address` broke, or could not be opened: the next is tried after a pause, which grows until one works for a
    /// while.
    pub fn hold(&self, env: &Env, address: &Address) {
        self.with(address, |one| {
            let opened_at = one.opened_at.take();
            let worked = opened_at.is_some_and(|at| env.now().since(at) >= limits::RAIL_WORKS);
            let grown = (one.pause * 2).clamp(limits::RAIL_PAUSE, limits::RAIL_PAUSE_MAX);
            one.pause = if worked { limits::RAIL_PAUSE } else { grown };
            one.held_until = Some(env.now() + one.pause);
        });
    }

    /// How long no rail by `address` is to be opened.
    pub fn held_for(&self, env: &Env, address: &Address) -> Duration {
        let until = self.with(address, |one| one.held_until);
        until.filter(|until| *until > env.now()).map_or(Duration::ZERO, |until| until.since(env.now()))
    }

    /// The connection that began with a stream by `address` ended while it had rails. If that was soon, the next begins with
    /// another: this one may be the sick one.
    pub fn ended_with_rails(&self, env: &Env, address: &Address) {
        let opened_at = self.with(address, |one| one.opened_at);
        if opened_at.is_some_and(|at| env.now().since(at) < limits::RAIL_WORKS) {
            self.shun(env, address);
        }
    }

    /// In their order, but those that did not answer a while ago last.
    pub fn in_order(&self, env: &Env, mut addresses: Vec<Address>) -> Vec<Address> {
        let known = self.0.borrow();
        let is_shunned = |one: &OneAddress| one.shunned_until.is_some_and(|until| env.now() < until);
        addresses.sort_by_key(|address| known.get(address).is_some_and(is_shunned));
        addresses
    }

    /// True if this is not what was said of the address last.
    pub fn is_news(&self, address: &Address, words: &str) -> bool {
        self.with(address, |one| std::mem::replace(&mut one.complaint, words.to_owned()) != words)
    }

    /// What went over each.
    pub fn stats(&self) -> Vec<RailStats> {
        let known = self.0.borrow();
        let stats = known.iter().filter(|(_, one)| one.opened > 0).map(|(address, one)| RailStats {
            address: address.to_string(),
            is_open: one.open > 0,
            opened: one.opened,
            sent_bytes: one.traffic.sent_bytes.get(),
            received_bytes: one.traffic.received_bytes.get(),
        });
        stats.collect()
    }
}
