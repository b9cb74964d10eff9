//! What a file says of itself beside what the mount was told: its commit level (`ops/levels.rs`), its inline bound
//! (`cache/inline.rs`).
//!
//! Such choices stand in the inode, come with the attributes, and are made by extended attributes. They go before the mount's.

use forebay_proto::message::{COMMIT_XATTR, CommitLevel, INLINE_XATTR, InlineBound};

use crate::leases::Ticket;

/// What a file says of itself, and of when that is.
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
    /// As it was given the file by a change that was `asked`.
    pub fn new(own: Option<T>, asked: Ticket) -> Self {
        Self { own, asked }
    }

    /// None: what the mount says counts.
    pub fn own(&self) -> Option<T> {
        self.own
    }

    /// As a reply to what was `asked` says. Replies come in any order: what was asked for before counts less.
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

/// What an extended attribute chooses. None: what the mount says.
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
