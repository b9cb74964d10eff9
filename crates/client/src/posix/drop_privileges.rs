//! Drops the privileges of a file whose bytes a process changes: see [`super::privileges`].

use forebay_env::Boxed;
use forebay_proto::{Errno, Fid, message::attr_flags};

use super::privileges::{CAPABILITY_XATTR, Process};
use crate::{
    Attr, Caller, Client, ClientResult, Dropped, OpenFile, SetAttributes,
    mode::{self, has_set_ids, without_set_ids},
};

/// Privileges go whoever owns the file.
const SUPERUSER: Caller = Caller { uid: 0, gid: 0, groups: Vec::new() };

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
            self.drop_known_capabilities(process, file).await
        })
    }

    async fn drop_known_capabilities(&self, process: &dyn Process, file: &OpenFile) -> ClientResult<()> {
        let capabilities = &file.inner.privileges.capabilities;
        let given = capabilities.times();
        if given > 0 && !process.has_removed_capabilities() {
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
                Some(file) => self.drop_known_capabilities(process, file).await?,
                None if attr.flags & attr_flags::XATTRS != 0 && !process.has_removed_capabilities() => {
                    self.drop_capabilities(attr.fid).await?;
                }
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
        // No program requested a change of the mode: a kernel does not expect one.
        self.inner.tell_again(self.inner.mdt.leases.tell(vec![Dropped::Attributes(attr.fid)]));
        Ok(attr)
    }

    async fn drop_capabilities(&self, fid: Fid) -> ClientResult<()> {
        match self.removexattr(&SUPERUSER, fid, CAPABILITY_XATTR).await {
            Err(error) if error.errno != Errno::ENODATA => Err(error),
            _ => Ok(()),
        }
    }
}
