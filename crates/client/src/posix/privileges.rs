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

use forebay_env::Boxed;
use forebay_proto::{Errno, Fid, message::attr_flags};

use crate::{
    Attr, Caller, Client, ClientResult, Dropped, OpenFile, SetAttributes,
    mode::{self, has_set_ids, without_set_ids},
};

/// Extended attribute of file capabilities: rights that a program file grants beyond those of its user.
pub const CAPABILITY_XATTR: &[u8] = b"security.capability";

/// Privileges go whoever owns the file.
const SUPERUSER: Caller = Caller { uid: 0, gid: 0, groups: Vec::new() };

/// Whoever changes a file's bytes. Asked only about files that have set-id bits.
pub trait Process {
    /// It holds CAP_FSETID: files that it changes keep their set-id bits.
    fn keeps_set_ids(&self) -> bool;
    /// `gid` is its group, or one of its supplementary groups.
    fn is_of_group(&self, gid: u32) -> bool;
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
    set_ids: Given,
    capabilities: Given,
}

/// How often a file may have got a privilege since a change last removed it.
struct Given(Cell<u32>);

impl Given {
    fn new(is_there: bool) -> Self {
        Self(Cell::new(is_there.into()))
    }

    fn times(&self) -> u32 {
        self.0.get()
    }

    fn again(&self) {
        self.0.set(self.0.get().saturating_add(1));
    }

    /// It is removed, as it was when it had been given so many `times`. If it was given again meanwhile, that counts.
    fn removed(&self, times: u32) {
        self.0.set(self.0.get().saturating_sub(times));
    }
}

impl Privileges {
    /// Of a file that is opened with `attr`. Any extended attribute may be the one of capabilities.
    pub fn of(attr: &Attr) -> Self {
        let has_xattrs = attr.flags & attr_flags::XATTRS != 0;
        Self { set_ids: Given::new(has_set_ids(attr.mode)), capabilities: Given::new(has_xattrs) }
    }

    fn are_there(&self) -> bool {
        self.set_ids.times() > 0 || self.capabilities.times() > 0
    }
}

impl Client {
    /// The file got set-id bits through this client.
    pub(crate) fn got_set_ids(&self, fid: Fid) {
        self.inner.handles_of(fid).iter().for_each(|file| file.inner.privileges.set_ids.again());
    }

    /// The file got capabilities through this client.
    pub(crate) fn got_capabilities(&self, fid: Fid) {
        self.inner.handles_of(fid).iter().for_each(|file| file.inner.privileges.capabilities.again());
    }

    /// Drops what `process` removes when it changes the file's bytes through this handle.
    pub(crate) async fn drop_privileges(&self, process: &impl Process, file: &OpenFile) -> ClientResult<()> {
        if !file.inner.privileges.are_there() {
            return Ok(());
        }
        self.drop_known(process, file).await
    }

    fn drop_known<'a>(&'a self, process: &'a dyn Process, file: &'a OpenFile) -> Boxed<'a, ClientResult<()>> {
        Box::pin(async move {
            let set_ids = &file.inner.privileges.set_ids;
            let given = set_ids.times();
            if given > 0 && !process.keeps_set_ids() {
                let attr = self.getattr(file.fid(), None).await?;
                if !has_set_ids(self.drop_set_ids(process, attr).await?.mode) {
                    set_ids.removed(given);
                }
            }
            self.drop_known_capabilities(file).await
        })
    }

    async fn drop_known_capabilities(&self, file: &OpenFile) -> ClientResult<()> {
        let capabilities = &file.inner.privileges.capabilities;
        let given = capabilities.times();
        if given > 0 {
            self.drop_capabilities(file.fid()).await?;
            capabilities.removed(given);
        }
        Ok(())
    }

    /// Drops what `process` has removed by a change of the file's size that left it with `attr`. `open`: the handle
    /// through which it did that. Returns the attributes then.
    pub(crate) fn drop_privileges_of<'a>(
        &'a self,
        process: &'a dyn Process,
        attr: Attr,
        open: Option<&'a OpenFile>,
    ) -> Boxed<'a, ClientResult<Attr>> {
        Box::pin(async move {
            match open {
                Some(file) => self.drop_known_capabilities(file).await?,
                None if attr.flags & attr_flags::XATTRS != 0 => self.drop_capabilities(attr.fid).await?,
                None => {}
            }
            if has_set_ids(attr.mode) && !process.keeps_set_ids() {
                return self.drop_set_ids(process, attr).await;
            }
            Ok(attr)
        })
    }

    /// Clears the set-id bits that the file with `attr` loses when `process` changes its bytes.
    async fn drop_set_ids(&self, process: &dyn Process, attr: Attr) -> ClientResult<Attr> {
        let permissions = attr.mode & mode::PERMISSIONS;
        let left = without_set_ids(permissions, || process.is_of_group(attr.gid));
        if left == permissions {
            return Ok(attr);
        }
        let changes = SetAttributes { mode: Some(left), ..SetAttributes::default() };
        let attr = self.setattr(&SUPERUSER, attr.fid, changes, None).await?;
        // Nobody asked for a change of the mode: a kernel does not expect one.
        self.deliver_dropped(self.inner.mdt.leases.tell(vec![Dropped::Attributes(attr.fid)]));
        Ok(attr)
    }

    async fn drop_capabilities(&self, fid: Fid) -> ClientResult<()> {
        match self.removexattr(&SUPERUSER, fid, CAPABILITY_XATTR).await {
            Err(error) if error.errno != Errno::ENODATA => Err(error),
            _ => Ok(()),
        }
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
