//! What is known of bytes of a file that lie with the MDT. Pure; reading and bringing them: `inline`.

use std::cell::RefCell;

use bytes::Bytes;
use forebay_proto::message::{Attr, attr_flags};

/// Bytes that lie with the MDT: as long as the truncate epoch is this one they are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inline {
    pub epoch: u64,
    /// What they are, if they came along.
    pub bytes: Option<Bytes>,
}

/// What is known of one file's.
#[derive(Default)]
pub(crate) struct InlineData(RefCell<Option<Inline>>);

impl InlineData {
    /// Takes over what the MDT replied about a file whose latest known truncate epoch is `epoch`. Replies may come in
    /// any order; within an epoch bytes come to the MDT, and never leave it.
    pub fn learn(&self, attr: &Attr, epoch: u64) {
        let mut inline = self.0.borrow_mut();
        let is_here = attr.flags & attr_flags::INLINE != 0;
        let known = inline.as_ref().map(|inline| inline.epoch);
        if known.is_some_and(|epoch| epoch > attr.truncate_epoch) || epoch > attr.truncate_epoch {
            return;
        }
        if is_here && known != Some(attr.truncate_epoch) {
            *inline = Some(Inline { epoch: attr.truncate_epoch, bytes: None });
        } else if !is_here && known.is_some_and(|epoch| epoch < attr.truncate_epoch) {
            *inline = None;
        }
    }

    /// The MDT had replied that they lie there, and now replies that they do not any more.
    pub fn left(&self, epoch: u64) {
        self.0.borrow_mut().take_if(|inline| inline.epoch <= epoch);
    }

    /// The bytes came with a reply that had `attr`.
    pub fn keep(&self, attr: &Attr, bytes: Bytes) {
        if let Some(inline) = self.0.borrow_mut().as_mut().filter(|inline| inline.epoch == attr.truncate_epoch) {
            inline.bytes = Some(bytes);
        }
    }

    /// What is known.
    pub fn known(&self) -> Option<Inline> {
        self.0.borrow().clone()
    }

    /// They lie with the MDT, as far as is known.
    pub fn is_there(&self) -> bool {
        self.0.borrow().is_some()
    }
}

#[cfg(test)]
mod tests;
