//! Extended attributes.

use crate::{
    Caller, Client, ClientResult, cache::choices::Choice, mode, ops::layouts::LAYOUT_XATTR,
    posix::privileges::CAPABILITY_XATTR, tasks::detached,
};
use bytes::Bytes;
use forebay_env::Boxed;
use forebay_proto::{
    Errno, Fid,
    limits::NAME_BYTES,
    message::{GetXattr, ListXattr, Operation, RemoveXattr, SetXattr, attr_flags},
};

impl Client {
    /// Value of an extended attribute. ENODATA if there is none.
    pub fn getxattr<'a>(&'a self, caller: &'a Caller, fid: Fid, name: &'a [u8]) -> Boxed<'a, ClientResult<Bytes>> {
        Box::pin(async move {
            if name == LAYOUT_XATTR {
                return self.layout_xattr(fid).await;
            }
            if caller.uid == 0 && self.lacks_xattr(fid, name) {
                return Err(Errno::ENODATA.into());
            }
            let request = GetXattr { caller: caller.clone(), fid, name: Bytes::copy_from_slice(name) };
            Ok(self.mdt(fid, &request).await?.value)
        })
    }

    /// It certainly has none of that name: `ls -l` looks for access control lists and labels of every file. Attributes
    /// that only the superuser may read, and those without a row of their own (layout, level, inline bound), are read
    /// from the MDT.
    fn lacks_xattr(&self, fid: Fid, name: &[u8]) -> bool {
        let is_label = name.starts_with(b"security.") && (10..=NAME_BYTES).contains(&name.len());
        let is_plain = is_label || name == b"system.posix_acl_access" || name == b"system.posix_acl_default";
        let kept = || self.inner.mdt.leases.entry(fid).map(|entry| entry.attr).or_else(|| self.known_but_times(fid));
        is_plain.then(kept).flatten().is_some_and(|attr| {
            (mode::is_dir(attr.mode) || mode::is_file(attr.mode)) && attr.flags & attr_flags::XATTRS == 0
        })
    }

    /// Sets an extended attribute. `flags`: XATTR_CREATE (1), XATTR_REPLACE (2).
    pub fn setxattr<'a>(
        &'a self,
        caller: &'a Caller,
        fid: Fid,
        name: &'a [u8],
        value: &'a [u8],
        flags: u32,
    ) -> Boxed<'a, ClientResult<()>> {
        Box::pin(async move {
            if name == LAYOUT_XATTR {
                return self.set_layout_xattr(caller, fid, value).await;
            }
            let (choice, gives) = (Choice::made(name, Some(value)), name == CAPABILITY_XATTR);
            let (name, value) = (Bytes::copy_from_slice(name), Bytes::copy_from_slice(value));
            let request = SetXattr { caller: caller.clone(), fid, name, value, flags };
            let client = self.clone();
            detached(self.env(), async move {
                client.clone().change_xattr(fid, request, choice).await?;
                if gives {
                    client.got_capabilities(fid);
                }
                Ok(())
            })
            .await
        })
    }

    /// Run it to its end: what is known of the attributes follows the change. `choice`: what the attribute chooses, if it does.
    async fn change_xattr<O: Operation>(self, fid: Fid, request: O, choice: Option<Choice>) -> ClientResult<()> {
        let outside = if let Some(Choice::Level(_)) = choice { self.see_others(fid).await? } else { None };
        self.change(fid, &request).await?;
        match choice {
            Some(Choice::Level(level)) => self.level_changed(fid, level).await,
            Some(Choice::InlineBound(bound)) => self.inline_bound_changed(fid, bound),
            None => {}
        }
        drop(outside);
        Ok(())
    }

    /// Names of the extended attributes, sorted.
    pub fn listxattr(&self, fid: Fid) -> Boxed<'_, ClientResult<Vec<Bytes>>> {
        Box::pin(async move { Ok(self.mdt(fid, &ListXattr { fid }).await?.names) })
    }

    /// Removes an extended attribute.
    pub fn removexattr<'a>(&'a self, caller: &'a Caller, fid: Fid, name: &'a [u8]) -> Boxed<'a, ClientResult<()>> {
        Box::pin(async move {
            if name == LAYOUT_XATTR {
                // It is what the file is; who makes two sets of attributes equal need not fail.
                return Ok(());
            }
            let choice = Choice::made(name, None);
            let request = RemoveXattr { caller: caller.clone(), fid, name: Bytes::copy_from_slice(name) };
            detached(self.env(), self.clone().change_xattr(fid, request, choice)).await
        })
    }
}
