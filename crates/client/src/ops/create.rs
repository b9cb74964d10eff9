//! Create of a regular file, with a name or without one.

use crate::{Attr, Caller, Client, ClientResult, OpenFile, OpenMode, delayed::queue::Scope, tasks::detached};
use bytes::Bytes;
use forebay_env::Boxed;
use forebay_proto::{
    Fid,
    message::{Create, LayoutSpec, open_flags},
};

impl Client {
    /// Makes a regular file and opens it; opens the one that is there unless `open.exclusive`.
    ///
    /// `mode`: permission bits, umask applied or in it ([`mode::with_umask`]). `layout`: the requested one, or the
    /// directory's default.
    pub fn create<'a>(
        &'a self,
        caller: &'a Caller,
        parent: Fid,
        name: &'a [u8],
        mode: u32,
        open: OpenMode,
        layout: LayoutSpec,
    ) -> Boxed<'a, ClientResult<(Attr, OpenFile)>> {
        Box::pin(async move {
            let (client, caller, name) = (self.clone(), caller.clone(), Bytes::copy_from_slice(name));
            detached(self.env(), async move {
                let (handle, flags) = (client.new_handle()?, open.flags());
                if open.truncate && !open.exclusive && client.buffers_any() {
                    // It may be one that is open here: a look has what is kept of it sent, by others too.
                    let _ = client.lookup(&caller, parent, &name).await;
                }
                client.flush_delayed(Scope::Entries(parent)).await;
                let asked = client.inner.mdt.leases.ticket();
                let make = async |fid| {
                    let (caller, name, layout) = (caller.clone(), name.clone(), layout.clone());
                    let request = Create { caller, parent, name, fid, mode, flags, handle, layout, at_ns: 0 };
                    client.change_name(parent, &request.name, client.change_mdt(fid, parent, &request)).await
                };
                let called = client.with_new_fid(make).await?;
                let reply = &called.reply;
                if reply.created {
                    client.inner.mdt.leases.learn_file(asked, reply);
                    client.inner.mdt.leases.learn_changes(asked, reply.leases, parent, Some(reply.attr.fid));
                    client.inner.listen();
                } else if open.write || open.truncate {
                    client.inner.mdt.leases.touch(reply.attr.fid);
                }
                if open.truncate && !reply.created {
                    drop(client.all_bytes_change(reply.attr.fid));
                }
                let (attr, created) = (reply.attr.clone(), reply.created);
                let file = client.opened(caller, asked, called, handle, open)?;
                if created {
                    // Nobody can have written to it before this reply left the MDT.
                    return Ok((attr, file));
                }
                Ok((client.with_sizes(attr, Some(&file.layout())).await?, file))
            })
            .await
        })
    }

    /// Makes a regular file without a name, as if in `parent`, and opens it. It ends with its last handle, unless
    /// [`Client::link`] gives it a name; with `open.exclusive` it never gets one.
    pub fn create_nameless<'a>(
        &'a self,
        caller: &'a Caller,
        parent: Fid,
        mode: u32,
        open: OpenMode,
    ) -> Boxed<'a, ClientResult<(Attr, OpenFile)>> {
        Box::pin(async move {
            let (client, caller) = (self.clone(), caller.clone());
            detached(self.env(), async move {
                let (handle, flags) = (client.new_handle()?, open.flags() | open_flags::NAMELESS);
                client.flush_delayed(Scope::Entries(parent)).await;
                let asked = client.inner.mdt.leases.ticket();
                let make = async |fid| {
                    let (caller, name, layout) = (caller.clone(), Bytes::new(), LayoutSpec::inherit());
                    let request = Create { caller, parent, name, fid, mode, flags, handle, layout, at_ns: 0 };
                    client.call_mdt(fid, &request).await
                };
                let called = client.with_new_fid(make).await?;
                Ok((called.reply.attr.clone(), client.opened(caller, asked, called, handle, open)?))
            })
            .await
        })
    }
}
