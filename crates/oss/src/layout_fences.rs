//! Layout fences: the oldest layout generation under which requests for an object are served.
//!
//! The MDT sets a fence ([`forebay_proto::message::FenceLayout`]) after a change of layout that moved bytes of the file.
//! Other changes of layout set none: `ExtendLayout` raises the generation while other clients go on, rightly, under the
//! older one for ranges that have not changed.
//!
//! Invariant: once a fence was replied to, no request of an older generation is applied. Replays are the exception: they
//! were executed before the fence, and are executed as they were.
//! Invariant: a fence never falls.
//! Not here: durability. The memory is bounded and does not survive a restart: the MDT sets the fence again if the change
//! of layout was not complete. Every such change also raises the truncate epoch, which is durable.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
};

use forebay_env::{Bug, planted};
use forebay_proto::{Errno, ErrorReply, Fid, message::ObjectRef};

use crate::limits;

/// The last [`limits::LAYOUT_FENCES`] objects with a fence.
#[derive(Default)]
pub struct LayoutFences {
    known: RefCell<Known>,
}

#[derive(Default)]
struct Known {
    oldest_served: BTreeMap<Fid, u32>,
    order: VecDeque<Fid>,
}

impl LayoutFences {
    /// From now on, requests under generations below `generation` are refused. Forgets the oldest fence if there are too
    /// many.
    pub fn raise(&self, fid: Fid, generation: u32) {
        let mut known = self.known.borrow_mut();
        let fence = known.oldest_served.entry(fid).or_insert(0);
        let is_new = *fence == 0;
        *fence = generation.max(*fence);
        if !is_new {
            known.order.retain(|known| *known != fid);
        }
        known.order.push_back(fid);
        if known.order.len() > limits::LAYOUT_FENCES
            && let Some(oldest) = known.order.pop_front()
        {
            known.oldest_served.remove(&oldest);
        }
    }

    /// Called when a request is admitted and before it is replied to early (`admission.rs`), and again when a change is applied
    /// (`ops/change.rs`). A client that is refused fetches attributes and layout, and repeats (the client's `io/fresh.rs`).
    ///
    /// Errors: STALE_LAYOUT if the request's layout is from before the object's fence.
    pub fn check(&self, object: &ObjectRef) -> Result<(), ErrorReply> {
        let (fid, generation) = (object.fid, object.layout_generation);
        match self.known.borrow().oldest_served.get(&fid) {
            Some(fence) if generation < *fence && !planted(Bug::LayoutFenceIgnored) => {
                let words =
                    format!("{fid} was moved: its layout has generation {fence} or later, the request's {generation}");
                Err(ErrorReply::new(Errno::STALE_LAYOUT, words))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(low: u64, layout_generation: u32) -> ObjectRef {
        ObjectRef { fid: Fid { high: 0, low }, layout_generation, truncate_epoch: 0 }
    }

    #[test]
    fn older_generations_than_the_fence_are_refused_and_a_fence_never_falls() {
        let fences = LayoutFences::default();
        assert_eq!(fences.check(&object(1, 1)), Ok(()));
        fences.raise(object(1, 0).fid, 3);
        fences.raise(object(1, 0).fid, 2);
        assert_eq!(fences.check(&object(1, 2)).unwrap_err().errno, Errno::STALE_LAYOUT);
        assert_eq!(fences.check(&object(1, 3)), Ok(()));
        // An extended layout, which only some clients know.
        assert_eq!(fences.check(&object(1, 4)), Ok(()));
        assert_eq!(fences.check(&object(1, 3)), Ok(()));
        assert_eq!(fences.check(&object(2, 1)), Ok(()));
    }

    #[test]
    fn the_oldest_fence_is_forgotten_when_there_are_too_many() {
        let fences = LayoutFences::default();
        (0..=limits::LAYOUT_FENCES as u64).for_each(|low| fences.raise(object(low, 0).fid, 2));
        assert_eq!(fences.check(&object(0, 1)), Ok(()));
        assert!(fences.check(&object(1, 1)).is_err());
    }
}
