//! Tenants: makes them, and holds their nodes' requests to what they may do.
//!
//! Invariant: no operation of a tenant's node is executed before [`Mds::confine`] has looked at it, and put the file system's
//! ids for those of the node. What it reaches is checked where inodes are read (`Tx::find_inode`), and what it is shown is
//! in its own ids again (`Tx::attr`).

use bytes::Bytes;
use forebay_env::{Bug, PeerIdentity, planted};
use forebay_proto::{
    Decode, Encode, Errno, ErrorReply, Fid,
    message::{
        Caller, Close, Create, Empty, GetXattr, IdMaps, Link, Lookup, LookupStatahead, Make, Migrate, Op, Open,
        RemoveTenant, RemoveXattr, Rename, Rmdir, RootReply, SetAttr, SetLayout, SetPool, SetXattr, TenantInfo, Unlink,
        open_flags, set_attr,
    },
};
use forebay_target::{Attempt, Context};

use super::id_maps;
use crate::{
    Mds,
    acl::{self, Acl},
    halt::Step,
    inode::{S_IFBLK, S_IFCHR, S_IFMT},
    tenant::Tenant,
    tx::Tx,
};

impl Mds {
    /// The tenant of a request's node.
    pub(crate) fn tenant_of(&self, ctx: &Context) -> Option<Tenant> {
        ctx.with_peer(|peer| self.tenant_of_peer(peer))
    }

    fn tenant_of_peer(&self, peer: Option<&PeerIdentity>) -> Option<Tenant> {
        match peer {
            Some(PeerIdentity::Node { key, .. }) => self.members(|members| members.tenant_of(key)),
            _ => None,
        }
    }

    pub(super) fn root_of(&self, peer: &PeerIdentity) -> RootReply {
        match self.tenant_of_peer(Some(peer)) {
            Some(tenant) => RootReply { root: tenant.root, tenant: Some(tenant.shown()) },
            None => RootReply { root: Fid::ROOT, tenant: None },
        }
    }

    pub(super) async fn new_tenant(&self, tenant: &TenantInfo, maps: &IdMaps) -> Result<Bytes, ErrorReply> {
        let tenant = &id_maps::checked(tenant, maps)?;
        let project = self.members(|members| members.next_project(tenant))?;
        // The project is taken before an inode has it, and never given again, whatever happens in between.
        let taken = self.members(|members| members.new_tenant(project, (Fid::default(), false), (tenant, maps)));
        self.commit_new_members(taken).await?;
        let (root, transno) =
            self.change(|tx| Ok((set_project(tx, &tenant.path, project)?, tx.origin.transno))).await?;
        self.target()?.wait_committed(transno).await?;
        let edits = self.members(|members| members.new_tenant(project, (root, true), (tenant, maps)));
        self.commit_members(edits).await?;
        self.env.log(&format!("tenant {} has {} ({root})", tenant.name, tenant.path));
        Ok(Empty {}.to_bytes().into())
    }

    pub(super) async fn remove_tenant(&self, request: &RemoveTenant) -> Result<Bytes, ErrorReply> {
        let edits = self.members(|members| members.remove_tenant(&request.name))?;
        self.commit_members(edits).await?;
        Ok(Empty {}.to_bytes().into())
    }

    /// Errors: ESTALE if the requester cannot reach the inode. For operations that do not look at it.
    pub(crate) async fn check_reach(&self, ctx: &Context, fid: Fid) -> Attempt<()> {
        match self.tenant_of(ctx) {
            Some(_) => self.look_unshared(ctx, |tx| tx.check_reach(fid)).await,
            None => Ok(()),
        }
    }

    /// What a request of a tenant's node becomes: its ids are translated and its users squashed. Errors: the tenant may not
    /// do that.
    pub(crate) fn confine(&self, ctx: &Context, op: Op, body: Bytes) -> Result<Bytes, ErrorReply> {
        let Some(tenant) = self.tenant_of(ctx) else { return Ok(body) };
        if op == Op::Close {
            return confine_close(&tenant, self.env.unix_time().0, body);
        }
        // What was done in its time is recovered.
        let is_free = ctx.is_replay() || matches!(op, Op::AwaitRecalls | Op::Reclaim);
        if tenant.has_expired(self.env.unix_time().0) && !is_free {
            return Err(is_over(&tenant));
        }
        if tenant.is_read_only() && changes(op, &body)? {
            return Err(only_reads(&tenant));
        }
        check(&tenant, op, &body)?;
        squashed(&tenant, op, body)
    }
}

/// A handle can be closed at any time. Attributes that come along are a SetAttr.
fn confine_close(tenant: &Tenant, now_ns: i64, body: Bytes) -> Result<Bytes, ErrorReply> {
    let mut request = Close::from_bytes(&body)?;
    let Some(set) = &mut request.set else { return Ok(body) };
    let is_change = set.mask != set_attr::ACCESSED;
    if is_change && tenant.has_expired(now_ns) {
        return Err(is_over(tenant));
    }
    if is_change && tenant.is_read_only() {
        return Err(only_reads(tenant));
    }
    if !planted(Bug::IdMapForgottenAtClose) {
        set.translate(tenant)?;
    }
    set.caller = tenant.squash(&tenant.translate(&set.caller));
    if tenant.is_read_only() {
        request.set = None;
    }
    Ok(request.to_bytes().into())
}

fn is_over(tenant: &Tenant) -> ErrorReply {
    let words = format!("the time of tenant {} is over: the admin gives it more", tenant.info.name);
    ErrorReply::new(Errno::EACCES, words)
}

fn only_reads(tenant: &Tenant) -> ErrorReply {
    ErrorReply::new(Errno::EROFS, format!("tenant {} only reads", tenant.info.name))
}

/// Gives the directory of a new tenant its project.
fn set_project(tx: &mut Tx<'_>, path: &str, project: u32) -> Step<Fid> {
    let refused = |errno, words: String| Err(ErrorReply::new(errno, words).into());
    let mut fid = Fid::ROOT;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let dir = tx.dir(fid)?;
        match tx.find(fid, &dir, name.as_bytes())?.entry() {
            Some(entry) => fid = entry.fid,
            None => return refused(Errno::ENOENT, format!("{path}: there is no {name}: make the directory first")),
        }
    }
    let mut dir = tx.dir(fid)?;
    if fid == Fid::ROOT {
        return refused(Errno::EINVAL, "a tenant has a directory of its own, not the root".into());
    }
    if dir.project != 0 {
        return refused(Errno::EBUSY, format!("{path} is within the subtree of a tenant, or was"));
    }
    if dir.dir().is_none_or(|dir| dir.entries > 0) {
        let words = format!("{path} has entries: give the tenant an empty directory, then move them into it");
        return refused(Errno::ENOTEMPTY, words);
    }
    dir.project = project;
    tx.put_inode_touched(fid, &mut dir);
    Ok(fid)
}

/// Whether a request changes what others see.
fn changes(op: Op, body: &[u8]) -> Result<bool, ErrorReply> {
    Ok(match op {
        Op::Open => {
            let flags = Open::from_bytes(body)?.flags;
            flags & (open_flags::WRITE | open_flags::TRUNCATE) != 0
        }
        Op::Create => {
            let flags = Create::from_bytes(body)?.flags;
            flags & open_flags::EXISTING == 0 || flags & (open_flags::WRITE | open_flags::TRUNCATE) != 0
        }
        Op::SetAttr
        | Op::Make
        | Op::Link
        | Op::Unlink
        | Op::Rmdir
        | Op::Rename
        | Op::SetXattr
        | Op::RemoveXattr
        | Op::SetLayout
        | Op::ExtendLayout
        | Op::Outline
        | Op::Migrate => true,
        _ => false,
    })
}

/// What no tenant may do, whatever it reaches.
fn check(tenant: &Tenant, op: Op, body: &[u8]) -> Result<(), ErrorReply> {
    let refused = |words: &str| Err(ErrorReply::new(Errno::EPERM, words));
    match op {
        Op::SetPool => refused("pools are the admin's"),
        // What they say is obeyed by the kernels of other nodes too.
        Op::SetXattr if is_privileged(&SetXattr::from_bytes(body)?.name) && !tenant.has_root() => refused(XATTRS),
        Op::RemoveXattr if is_privileged(&RemoveXattr::from_bytes(body)?.name) && !tenant.has_root() => refused(XATTRS),
        Op::GetXattr if GetXattr::from_bytes(body)?.name.starts_with(b"trusted.") && !tenant.has_root() => {
            Err(Errno::ENODATA.into())
        }
        Op::Make => match Make::from_bytes(body)?.mode & S_IFMT {
            S_IFCHR | S_IFBLK => refused("a tenant's node makes no devices"),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

const XATTRS: &str = "the attributes of the system are the admin's";

fn is_privileged(name: &[u8]) -> bool {
    name.starts_with(b"trusted.") || name.starts_with(b"security.")
}

/// A request that says on whose behalf it is made.
trait Named: Decode + Encode {
    fn caller(&mut self) -> &mut Caller;

    /// Puts the file system's ids for all others in it. Errors: EINVAL if one has no mapping.
    fn translate(&mut self, _: &Tenant) -> Result<(), ErrorReply> {
        Ok(())
    }
}

macro_rules! named {
    ($($request:ident)*) => { $(impl Named for $request {
        fn caller(&mut self) -> &mut Caller {
            &mut self.caller
        }
    })* };
}

named! {
    Lookup Create Make Link Unlink Rmdir Rename Open GetXattr RemoveXattr SetLayout Migrate SetPool
}

impl Named for SetAttr {
    fn caller(&mut self) -> &mut Caller {
        &mut self.caller
    }

    fn translate(&mut self, tenant: &Tenant) -> Result<(), ErrorReply> {
        tenant.translate_owner(self)
    }
}

impl Named for SetXattr {
    fn caller(&mut self) -> &mut Caller {
        &mut self.caller
    }

    fn translate(&mut self, tenant: &Tenant) -> Result<(), ErrorReply> {
        // An empty value removes the list, and a malformed one is refused as everybody's.
        if acl::is_acl(&self.name)
            && let Ok(list) = Acl::parse(&self.value)
        {
            self.value = tenant.translate_acl(&list)?.encode();
        }
        Ok(())
    }
}

impl Named for LookupStatahead {
    fn caller(&mut self) -> &mut Caller {
        &mut self.lookup.caller
    }
}

fn squashed(tenant: &Tenant, op: Op, body: Bytes) -> Result<Bytes, ErrorReply> {
    fn squash<R: Named>(tenant: &Tenant, body: &Bytes) -> Result<Bytes, ErrorReply> {
        let mut request = R::from_bytes(body)?;
        let squashed = tenant.squash(&tenant.translate(request.caller()));
        if tenant.maps.is_empty() && squashed == *request.caller() {
            return Ok(body.clone());
        }
        request.translate(tenant)?;
        *request.caller() = squashed;
        Ok(request.to_bytes().into())
    }
    match op {
        Op::Lookup => squash::<Lookup>(tenant, &body),
        Op::LookupStatahead => squash::<LookupStatahead>(tenant, &body),
        Op::SetAttr => squash::<SetAttr>(tenant, &body),
        Op::Create => squash::<Create>(tenant, &body),
        Op::Make => squash::<Make>(tenant, &body),
        Op::Link => squash::<Link>(tenant, &body),
        Op::Unlink => squash::<Unlink>(tenant, &body),
        Op::Rmdir => squash::<Rmdir>(tenant, &body),
        Op::Rename => squash::<Rename>(tenant, &body),
        Op::Open => squash::<Open>(tenant, &body),
        Op::GetXattr => squash::<GetXattr>(tenant, &body),
        Op::SetXattr => squash::<SetXattr>(tenant, &body),
        Op::RemoveXattr => squash::<RemoveXattr>(tenant, &body),
        Op::SetLayout => squash::<SetLayout>(tenant, &body),
        Op::Migrate => squash::<Migrate>(tenant, &body),
        Op::SetPool => squash::<SetPool>(tenant, &body),
        _ => Ok(body),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{acl::tests::sample, tenant::tests::mapped};

    fn caller(uid: u32) -> Caller {
        Caller { uid, gid: 501, groups: Vec::new() }
    }

    fn owned_by(uid: u32) -> SetAttr {
        SetAttr {
            caller: caller(1007),
            fid: Fid::ROOT,
            mask: set_attr::UID,
            mode: 0,
            uid,
            gid: 0,
            size: 0,
            atime_ns: 0,
            mtime_ns: 0,
            handle: 5,
            at_ns: 0,
        }
    }

    fn closed_with(set: SetAttr) -> Bytes {
        let close = Close {
            fid: Fid::ROOT,
            handle: 5,
            wrote: false,
            size: 0,
            truncate_epoch: 0,
            mtime_ns: 0,
            attr_epoch: 0,
            sparse: false,
            inline: None,
            set: Some(set),
        };
        close.to_bytes().into()
    }

    #[test]
    fn owners_that_a_mapped_tenants_node_sets_are_translated_in_a_setattr_and_in_a_close() {
        let tenant = mapped(0);
        let set = squashed(&tenant, Op::SetAttr, owned_by(1020).to_bytes().into()).expect("it has a mapping");
        let set = SetAttr::from_bytes(&set).expect("a request");
        assert_eq!((set.caller.uid, set.caller.gid, set.uid), (70_007, 101, 70_020));
        let close = confine_close(&tenant, 0, closed_with(owned_by(1020))).expect("it has a mapping");
        assert_eq!(Close::from_bytes(&close).expect("a request").set, Some(set));
        for unmapped in [70_020, 0, 65_534] {
            let plain = squashed(&tenant, Op::SetAttr, owned_by(unmapped).to_bytes().into()).expect_err("no mapping");
            let close = confine_close(&tenant, 0, closed_with(owned_by(unmapped))).expect_err("no mapping");
            assert_eq!((plain.errno, close.errno), (Errno::EINVAL, Errno::EINVAL), "{unmapped}");
        }
    }

    #[test]
    fn lists_that_a_mapped_tenants_node_sets_are_translated_and_other_attributes_are_not() {
        let tenant = mapped(0);
        let request = |name: &[u8], value: Bytes| {
            let name = Bytes::copy_from_slice(name);
            Bytes::from(SetXattr { caller: caller(1007), fid: Fid::ROOT, name, value, flags: 0 }.to_bytes())
        };
        let refused = squashed(&tenant, Op::SetXattr, request(acl::ACCESS, sample().encode()));
        assert_eq!(refused.expect_err("user 5 has no mapping").errno, Errno::EINVAL);
        let own = tenant.show_acl(&tenant.translate_acl(&own_list()).expect("a list"));
        assert_eq!(own, own_list());
        let set = squashed(&tenant, Op::SetXattr, request(acl::DEFAULT, own.encode())).expect("it has a mapping");
        let set = SetXattr::from_bytes(&set).expect("a request");
        let translated = tenant.translate_acl(&own).expect("a list");
        assert_eq!((set.caller.uid, Acl::parse(&set.value)), (70_007, Ok(translated)));
        for (name, value) in [(acl::ACCESS, Bytes::new()), (b"user.x", own.encode())] {
            let set = squashed(&tenant, Op::SetXattr, request(name, value.clone())).expect("as it is");
            assert_eq!(SetXattr::from_bytes(&set).expect("a request").value, value);
        }
    }

    fn own_list() -> Acl {
        use crate::acl::Tag;
        let own = sample().with_tags(|tag| {
            Ok::<_, ()>(match tag {
                Tag::User(_) => Tag::User(1007),
                Tag::NamedGroup(_) => Tag::NamedGroup(501),
                tag => tag,
            })
        });
        own.expect("a list")
    }
}
