//! Directories that were listed lately, and how many names to bring with the next lookup. Pure; the requests:
//! `statahead`.

use std::{cell::RefCell, collections::BTreeMap};

use forebay_env::Time;
use forebay_proto::Fid;

use crate::limits;

/// Directories that were listed a short while ago.
#[derive(Default)]
pub(crate) struct Listings(RefCell<BTreeMap<Fid, Listing>>);

#[derive(Clone, Copy)]
struct Listing {
    /// When it was listed, or last brought names.
    used: Time,
    /// Names that were listed and not brought.
    left: u64,
    /// How many to request next.
    names: u32,
    /// None are requested before.
    quiet_until: Time,
    /// Some are on their way.
    coming: bool,
}

impl Listings {
    /// A page of `names` was read; `first`: a new listing begins.
    pub fn listed(&self, dir: Fid, first: bool, names: usize, now: Time) {
        let mut listings = self.0.borrow_mut();
        let new = Listing { used: now, left: 0, names: limits::STATAHEAD_NAMES_LEAST, quiet_until: now, coming: false };
        let listing = listings.entry(dir).or_insert(new);
        if first {
            *listing = Listing { coming: listing.coming, ..new };
        }
        (listing.used, listing.left) = (now, listing.left + names as u64);
        if listings.len() > limits::LISTED {
            let oldest = listings.iter().min_by_key(|(_, listing)| listing.used).map(|(dir, _)| *dir);
            oldest.and_then(|dir| listings.remove(&dir));
        }
    }

    /// A name is looked up: how many others to request with it. Then [`Listings::brought`] is due.
    pub fn begin(&self, dir: Fid, now: Time) -> Option<u32> {
        let mut listings = self.0.borrow_mut();
        let listing = listings.get_mut(&dir)?;
        if listing.left <= 1 || now.since(listing.used) >= limits::LISTED_TERM {
            listings.remove(&dir);
            return None;
        }
        if listing.coming || now < listing.quiet_until {
            return None;
        }
        listing.coming = true;
        let names = u64::from(listing.names).min(listing.left - 1) as u32;
        listing.names = (listing.names * 2).min(limits::STATAHEAD_NAMES);
        Some(names)
    }

    /// So many came; `any_new`: some of them were not known.
    pub fn brought(&self, dir: Fid, names: usize, any_new: bool, now: Time) {
        let mut listings = self.0.borrow_mut();
        let Some(listing) = listings.get_mut(&dir) else { return };
        listing.coming = false;
        listing.left = listing.left.saturating_sub(1 + names as u64);
        match any_new {
            false => {
                (listing.names, listing.quiet_until) = (limits::STATAHEAD_NAMES_LEAST, now + limits::STATAHEAD_PAUSE)
            }
            true => listing.used = now,
        }
    }
}

#[cfg(test)]
mod tests;
