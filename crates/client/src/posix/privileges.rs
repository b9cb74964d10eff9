//! Privileges that a program file grants: set-id bits and file capabilities. A change of the file's bytes removes them,
//! as they were given to other bytes.
//!
//! | privilege | removed by |
//! |---|---|
//! | set-user-id | a process without CAP_FSETID |
//! | set-group-id | the same; it stays where the group may not execute the file and the process is of that group |
//! | capabilities | every process |
//!
//! A handle counts how often the file got privileges, as far as this client knows: with the open, and through this
//! client since. So a change through a handle sends no request for them to a file that has none. A file whose create is
//! pending has none: what gives privileges to an inode is not delayed, and waits for the create.
//!
//! Not here: chown(2), and truncates by users other than 0. There the MDT drops set-id bits itself.

use std::cell::Cell;

use forebay_proto::message::{Attr, Caller, attr_flags};

use crate::mode::has_set_ids;

/// Extended attribute of file capabilities: rights that a program file grants beyond those of its user.
pub const CAPABILITY_XATTR: &[u8] = b"security.capability";

/// Whoever changes a file's bytes. Asked only about files that have set-id bits.
pub trait Process {
    /// It holds CAP_FSETID: files that it changes keep their set-id bits.
    fn keeps_set_ids(&self) -> bool;
    /// `gid` is its group, or one of its supplementary groups.
    fn is_of_group(&self, gid: u32) -> bool;
    /// Its kernel removed the file's capabilities before it sent the change.
    fn has_removed_capabilities(&self) -> bool {
        false
    }
}

/// A process that has the rights of its user and groups, and no others.
impl Process for Caller {
    fn keeps_set_ids(&self) -> bool {
        self.uid == 0
    }

    fn is_of_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// What one handle knows of its file's privileges.
pub(crate) struct Privileges {
    pub set_ids: Given,
    pub capabilities: Given,
}

/// How often a file may have got a privilege since a change last removed it.
pub(crate) struct Given(Cell<u32>);

impl Given {
    fn new(is_there: bool) -> Self {
        Self(Cell::new(is_there.into()))
    }

    pub fn times(&self) -> u32 {
        self.0.get()
    }

    pub fn again(&self) {
        self.0.set(self.0.get().saturating_add(1));
    }

    /// It is removed, as it was when it had been given so many `times`. If it was given again meanwhile, that counts.
    pub fn removed(&self, times: u32) {
        self.0.set(self.0.get().saturating_sub(times));
    }
}

impl Privileges {
    /// Of a file that is opened with `attr`. Any extended attribute may be the one of capabilities.
    pub fn of(attr: &Attr) -> Self {
        let has_xattrs = attr.flags & attr_flags::XATTRS != 0;
        Self { set_ids: Given::new(has_set_ids(attr.mode)), capabilities: Given::new(has_xattrs) }
    }

    pub fn are_there(&self) -> bool {
        self.set_ids.times() > 0 || self.capabilities.times() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_privilege_that_is_given_again_while_it_is_removed_counts() {
        let given = Given::new(true);
        let before = given.times();
        given.again();
        given.removed(before);
        assert_eq!(given.times(), 1);
        given.removed(given.times());
        assert_eq!(given.times(), 0);
        given.removed(1);
        assert_eq!(given.times(), 0, "two writes may remove the same one");
    }

    #[test]
    fn of_callers_only_the_superuser_keeps_set_ids() {
        let caller = |uid| Caller { uid, gid: 7, groups: vec![9] };
        assert!(caller(0).keeps_set_ids() && !caller(1).keeps_set_ids());
        assert!(caller(1).is_of_group(7) && caller(1).is_of_group(9) && !caller(1).is_of_group(8));
    }
}
