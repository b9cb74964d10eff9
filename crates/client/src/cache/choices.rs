//! Choices of a file beside the mount's options: its commit level (`ops/levels.rs`), its inline bound
//! (`cache/inline.rs`).
//!
//! Such choices stand in the inode, come with the attributes, and are made by extended attributes. They go before the mount's.

use forebay_proto::message::{COMMIT_XATTR, CommitLevel, INLINE_XATTR, InlineBound};

use crate::leases::Ticket;

/// A choice of a file, and of when it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<T> {
    own: Option<T>,
    asked: Ticket,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self { own: None, asked: Ticket::default() }
    }
}

impl<T: Copy> Known<T> {
    /// As a change by the request `asked` set it.
    pub fn new(own: Option<T>, asked: Ticket) -> Self {
        Self { own, asked }
    }

    /// `None`: the mount's option applies.
    pub fn own(&self) -> Option<T> {
        self.own
    }

    /// As the reply to the request `asked` has it. Replies come in any order: an earlier request counts less.
    pub fn see(&mut self, own: Option<T>, asked: Ticket) {
        if asked >= self.asked {
            *self = Self { own, asked };
        }
    }
}

impl Known<CommitLevel> {
    /// Changes of the inode are durable when they are answered.
    pub fn commits(&self) -> bool {
        self.own == Some(CommitLevel::Commit)
    }
}

/// What an extended attribute chooses. `None`: the mount's option.
pub(crate) enum Choice {
    Level(Option<CommitLevel>),
    InlineBound(Option<InlineBound>),
}

impl Choice {
    /// That of the attribute `name`, which becomes `value`, or goes. `None`: it chooses nothing. What is no choice the MDT refuses.
    pub fn made(name: &[u8], value: Option<&[u8]>) -> Option<Self> {
        let text = value.and_then(|value| std::str::from_utf8(value).ok());
        match name {
            COMMIT_XATTR => Some(Self::Level(text.and_then(CommitLevel::named))),
            INLINE_XATTR => Some(Self::InlineBound(text.and_then(InlineBound::named))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
