//! Extended attributes: `user.`, `trusted.`, `security.`, and of `system.` the access control lists.
//!
//! Setting an access list changes the mode too. A list that grants no more than a mode can express is stored as that mode
//! (`crate::acl`).
//!
//! All attributes of an inode are in one row, sorted: they are few and small, and their bound (128 KiB) fits in a row.
//! Not in that row: the inode's commit level and its inline bound ([`choice`]).

use bytes::Bytes;
use forebay_proto::{
    Errno, Fid, limits,
    message::{
        COMMIT_XATTR, Caller, CommitLevel, Empty, GetXattr, INLINE_XATTR, InlineBound, ListXattr, ListXattrReply,
        RemoveXattr, SetXattr, XattrReply,
    },
};

use super::{choice, xattr_flags};
use crate::{
    acl::{self, Acl},
    halt::Step,
    inode::{Body, Inode, S_IFDIR, S_IFLNK, S_IFMT, S_ISVTX},
    keys,
    keys::Key,
    perm,
    tx::Tx,
    xattr_row::{self, List},
};

/// The layout as text; clients define its format (`client::layouts`).
const LAYOUT: &[u8] = b"user.forebay.layout";
/// Bytes of an attribute in addition to its name and value.
const ENTRY_BYTES: usize = 4;

/// Rows worth prefetching together.
pub fn get_keys(request: &GetXattr) -> [Key; 2] {
    keys(request.fid)
}

/// Rows worth prefetching together.
pub fn set_keys(request: &SetXattr) -> [Key; 2] {
    keys(request.fid)
}

/// Rows worth prefetching together.
pub fn list_keys(request: &ListXattr) -> [Key; 2] {
    keys(request.fid)
}

/// Rows worth prefetching together.
pub fn remove_keys(request: &RemoveXattr) -> [Key; 2] {
    keys(request.fid)
}

fn keys(fid: Fid) -> [Key; 2] {
    [keys::inode(fid), keys::xattrs(fid)]
}

/// Errors: ENODATA, EOPNOTSUPP, EACCES.
pub fn get(tx: &mut Tx<'_>, request: &GetXattr) -> Step<XattrReply> {
    let inode = tx.inode(request.fid)?;
    check(&request.caller, &inode, &request.name, false)?;
    match &request.name[..] {
        COMMIT_XATTR => return Ok(choice::get::<CommitLevel>(&inode)?),
        INLINE_XATTR => return Ok(choice::get::<InlineBound>(&inode)?),
        _ => {}
    }
    let list = tx.xattrs(request.fid, &inode)?;
    let at = xattr_row::find(&list, &request.name).map_err(|_| Errno::ENODATA)?;
    let value = list[at].1.clone();
    if let Some(tenant) = tx.tenant.as_ref().filter(|_| acl::is_acl(&request.name)) {
        return Ok(XattrReply { value: tenant.show_acl(&Acl::parse(&value)?).encode() });
    }
    Ok(XattrReply { value })
}

/// Errors: ESTALE.
pub fn list(tx: &mut Tx<'_>, request: &ListXattr) -> Step<ListXattrReply> {
    let inode = tx.inode(request.fid)?;
    let list = tx.xattrs(request.fid, &inode)?;
    // An attribute of that name may have been set before the name had a meaning.
    let is_choice = |name: &Bytes| name == COMMIT_XATTR || name == INLINE_XATTR;
    let mut names: Vec<Bytes> = list.into_iter().map(|(name, _)| name).filter(|name| !is_choice(name)).collect();
    if has_layout_to_show(tx, &inode) {
        names.push(Bytes::from_static(LAYOUT));
    }
    names.extend(choice::listed::<CommitLevel>(&inode));
    names.extend(choice::listed::<InlineBound>(&inode));
    Ok(ListXattrReply { names })
}

/// True if the layout's attribute is listed: only if the layout is not the default. So copies of files with their own
/// layout carry it, and other files compare equal with files of other file systems.
fn has_layout_to_show(tx: &Tx<'_>, inode: &Inode) -> bool {
    match &inode.body {
        Body::File(layout) => {
            let default = &tx.memory.default_layout;
            let first = &layout.components[0];
            let usual = first.pool.is_empty()
                && first.stripe_bytes == default.stripe_bytes
                && (first.stripe_count == default.stripe_count || default.stripe_count == u32::MAX);
            let grown = |end: u64| !end.is_multiple_of(limits::STRIPE_BYTES_MIN.into());
            !usual || layout.components.windows(2).any(|pair| !grown(pair[0].end))
        }
        Body::Dir(dir) => dir.default_layout.is_some(),
        _ => false,
    }
}

/// Errors: EEXIST, ENODATA, EOPNOTSUPP, EPERM, EACCES, ERANGE, E2BIG, ENOSPC.
pub fn set(tx: &mut Tx<'_>, request: &SetXattr) -> Step<Empty> {
    let mut inode = tx.inode(request.fid)?;
    check(&request.caller, &inode, &request.name, true)?;
    match &request.name[..] {
        COMMIT_XATTR => return choice::set::<CommitLevel>(tx, request, &mut inode),
        INLINE_XATTR => return choice::set::<InlineBound>(tx, request, &mut inode),
        _ => {}
    }
    if request.value.len() > limits::XATTR_BYTES {
        return Err(Errno::E2BIG.into());
    }
    tx.need_space()?;
    let mut list = tx.xattrs(request.fid, &inode)?;
    let before = (inode.mode, list.len());
    if acl::is_acl(&request.name) && !set_acl(tx, request, &mut inode)? {
        list.retain(|(name, _)| *name != request.name);
        if (inode.mode, list.len()) != before {
            write(tx, request.fid, &mut inode, &list);
        }
        return Ok(Empty {});
    }
    let place = xattr_row::find(&list, &request.name);
    xattr_flags::check(request.flags, place.is_ok())?;
    match place {
        // As on ext4, this is no change, and does not move ctime.
        Ok(at) if list[at].1 == request.value && inode.mode == before.0 => return Ok(Empty {}),
        Ok(at) => list[at].1 = request.value.clone(),
        Err(at) => list.insert(at, (request.name.clone(), request.value.clone())),
    }
    let total: usize = list.iter().map(|(name, value)| name.len() + value.len() + ENTRY_BYTES).sum();
    if total > limits::XATTRS_BYTES {
        return Err(Errno::ENOSPC.into());
    }
    write(tx, request.fid, &mut inode, &list);
    Ok(Empty {})
}

/// Errors: ENODATA, EOPNOTSUPP, EPERM, EACCES.
pub fn remove(tx: &mut Tx<'_>, request: &RemoveXattr) -> Step<Empty> {
    let mut inode = tx.inode(request.fid)?;
    check(&request.caller, &inode, &request.name, true)?;
    match &request.name[..] {
        COMMIT_XATTR => return choice::remove::<CommitLevel>(tx, request.fid, &mut inode),
        INLINE_XATTR => return choice::remove::<InlineBound>(tx, request.fid, &mut inode),
        _ => {}
    }
    let mut list = tx.xattrs(request.fid, &inode)?;
    match xattr_row::find(&list, &request.name) {
        Ok(at) => drop(list.remove(at)),
        // Without a stored list, the mode is the list.
        Err(_) if acl::is_acl(&request.name) => return Ok(Empty {}),
        Err(_) => return Err(Errno::ENODATA.into()),
    }
    write(tx, request.fid, &mut inode, &list);
    Ok(Empty {})
}

/// Checks whether the caller may read or change an attribute.
fn check(caller: &Caller, inode: &Inode, name: &[u8], change: bool) -> Result<(), Errno> {
    if name.len() > limits::NAME_BYTES {
        return Err(Errno::ERANGE);
    }
    let denied = if change { Errno::EPERM } else { Errno::ENODATA };
    let is_root = caller.uid == 0;
    let namespace = name.iter().position(|byte| *byte == b'.').map_or(name, |dot| &name[..dot]);
    match namespace {
        b"user" | b"trusted" | b"security" if name.len() == namespace.len() + 1 => Err(Errno::EINVAL),
        _ if name.len() <= namespace.len() + 1 => Err(Errno::EOPNOTSUPP),
        b"user" => check_user(caller, inode, change, denied),
        b"system" if acl::is_acl(name) => check_acl(caller, inode, name, change),
        b"trusted" if is_root => Ok(()),
        b"trusted" => Err(denied),
        b"security" if is_root || !change => Ok(()),
        b"security" => Err(Errno::EPERM),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// `user.` is for files and directories, by their permissions; in a sticky directory only the owner may set it.
fn check_user(caller: &Caller, inode: &Inode, change: bool, denied: Errno) -> Result<(), Errno> {
    if !inode.is_file() && !inode.is_dir() {
        return Err(denied);
    }
    if change && inode.is_dir() && inode.mode & S_ISVTX != 0 {
        perm::owner(caller, inode)?;
    }
    perm::access(caller, inode, if change { perm::WRITE } else { perm::READ })
}

/// Any user may read a list, and the owner may change it. Symbolic links have none, and only directories have a default
/// list.
fn check_acl(caller: &Caller, inode: &Inode, name: &[u8], change: bool) -> Result<(), Errno> {
    match inode.mode & S_IFMT {
        S_IFLNK => Err(Errno::EOPNOTSUPP),
        _ if !change => Ok(()),
        S_IFDIR => perm::owner(caller, inode),
        _ if name == acl::DEFAULT => Err(Errno::EACCES),
        _ => perm::owner(caller, inode),
    }
}

/// Takes over an access list's mode. False if the list need not be stored: the mode expresses the same.
fn set_acl(tx: &Tx<'_>, request: &SetXattr, inode: &mut Inode) -> Result<bool, Errno> {
    if request.value.is_empty() {
        return Ok(false);
    }
    let list = Acl::parse(&request.value)?;
    if request.name == acl::DEFAULT {
        return Ok(true);
    }
    // A caller outside the group loses set-group-id, as with chmod.
    let bits = perm::chmod(&request.caller, inode.gid, inode.mode & 0o7000 | list.mode());
    let bits = tx.tenant.as_ref().map_or(bits, |tenant| tenant.strip_setgid(inode.gid, bits));
    inode.mode = inode.mode & S_IFMT | bits;
    Ok(list.is_extended())
}

/// After chmod(2) of an inode with an access list: updates the list from the mode.
pub fn chmod_acl(tx: &mut Tx<'_>, fid: Fid, inode: &mut Inode) -> Step<()> {
    let Some(mut access) = inode.acls.access.take() else { return Ok(()) };
    access.chmod(inode.mode);
    let mut list = tx.xattrs(fid, inode)?;
    if let Ok(at) = xattr_row::find(&list, acl::ACCESS) {
        list[at].1 = access.encode();
    }
    tx.put_with(keys::xattrs(fid), |out| xattr_row::encode(&list, out));
    inode.acls.access = Some(access);
    Ok(())
}

/// Gives a new inode the lists that it inherits from a directory's default list. The umask is not yet applied to the
/// mode of `inode`; it applies only without a default list.
pub fn inherit_acls(tx: &mut Tx<'_>, dir: &Inode, fid: Fid, inode: &mut Inode, umask: u32) {
    if inode.mode & S_IFMT == S_IFLNK {
        return;
    }
    let Some(default) = &dir.acls.default else {
        inode.mode &= !umask;
        return;
    };
    let (access, mode) = default.inherited(inode.mode);
    inode.mode = mode;
    let mut list = List::new();
    if access.is_extended() {
        list.push((Bytes::from_static(acl::ACCESS), access.encode()));
    }
    if inode.is_dir() {
        list.push((Bytes::from_static(acl::DEFAULT), default.encode()));
    }
    if !list.is_empty() {
        tx.put_with(keys::xattrs(fid), |out| xattr_row::encode(&list, out));
        (inode.xattrs, inode.has_acl) = (true, true);
    }
}

fn write(tx: &mut Tx<'_>, fid: Fid, inode: &mut Inode, list: &List) {
    if list.is_empty() {
        tx.delete(keys::xattrs(fid));
    } else {
        tx.put_with(keys::xattrs(fid), |out| xattr_row::encode(list, out));
    }
    inode.xattrs = !list.is_empty();
    inode.has_acl = list.iter().any(|(name, _)| acl::is_acl(name));
    inode.changed_at(tx.origin.now_ns);
    tx.put_inode_touched(fid, inode);
}

#[cfg(test)]
mod tests {
    use super::{
        xattr_flags::{CREATE, REPLACE},
        *,
    };
    use crate::testing::{World, root, user};

    fn put(fid: Fid, name: &str, bytes: usize, flags: u32) -> SetXattr {
        let value = (0..bytes).map(|at| at as u8).collect::<Vec<_>>().into();
        SetXattr { caller: root(), fid, name: name.to_owned().into(), value, flags }
    }

    fn value(world: &mut World, fid: Fid, name: &str) -> Step<Bytes> {
        let request = GetXattr { caller: root(), fid, name: name.to_owned().into() };
        world.attempt(|tx| get(tx, &request)).map(|reply| reply.value)
    }

    #[test]
    fn values_up_to_64_kib_come_back_and_shrink_without_a_trace() {
        let mut world = World::new();
        let fid = world.file(Fid::ROOT, "a");
        for bytes in [0, 1, 4096, 65_536, 5] {
            let request = put(fid, "user.x", bytes, 0);
            world.run(|tx| set(tx, &request));
            assert_eq!(value(&mut world, fid, "user.x"), Ok(request.value));
        }
        assert_eq!(world.count(keys::XATTR), 1);
        assert_eq!(world.errno(|tx| set(tx, &put(fid, "user.x", 65_537, 0))), Errno::E2BIG);
    }

    #[test]
    fn names_are_listed_in_order_and_go_with_the_file() {
        let mut world = World::new();
        let before = world.rows.clone();
        let fid = world.file(Fid::ROOT, "a");
        for name in ["user.b", "user.a", "security.selinux"] {
            world.run(|tx| set(tx, &put(fid, name, 3, 0)));
        }
        let names = world.run(|tx| list(tx, &ListXattr { fid })).names;
        assert_eq!(names, ["security.selinux", "user.a", "user.b"]);
        let unlink = forebay_proto::message::Unlink { caller: root(), parent: Fid::ROOT, name: "a".into(), at_ns: 0 };
        world.run(|tx| crate::ops::unlink::apply(tx, &unlink));
        assert_eq!(world.rows.len(), before.len());
    }

    #[test]
    fn create_refuses_an_existing_name_and_replace_an_absent_one() {
        let mut world = World::new();
        let fid = world.file(Fid::ROOT, "a");
        assert_eq!(world.errno(|tx| set(tx, &put(fid, "user.x", 1, REPLACE))), Errno::ENODATA);
        world.run(|tx| set(tx, &put(fid, "user.x", 1, CREATE)));
        assert_eq!(world.errno(|tx| set(tx, &put(fid, "user.x", 1, CREATE))), Errno::EEXIST);
        let request = RemoveXattr { caller: root(), fid, name: "user.x".into() };
        world.run(|tx| remove(tx, &request));
        assert_eq!(world.errno(|tx| remove(tx, &request)), Errno::ENODATA);
        assert_eq!(value(&mut world, fid, "user.x"), Err(Errno::ENODATA.into()));
    }

    #[test]
    fn namespaces_have_their_own_rules() {
        let mut world = World::new();
        let fid = world.file(Fid::ROOT, "a");
        for (name, errno) in [
            ("system.posix_acl_access", Errno::EPERM),
            ("system.nfs4_acl", Errno::EOPNOTSUPP),
            ("plain", Errno::EOPNOTSUPP),
            ("user.", Errno::EINVAL),
            ("user", Errno::EOPNOTSUPP),
            ("trusted.x", Errno::EPERM),
            ("security.x", Errno::EPERM),
            ("user.x", Errno::EACCES),
        ] {
            let request = SetXattr { caller: user(7), ..put(fid, name, 1, 0) };
            assert_eq!(world.errno(|tx| set(tx, &request)), errno, "{name}");
        }
    }

    /// owner rwx, user 7 rw-, group r-x, mask rwx, others ---
    fn acl_of_user_7() -> Bytes {
        let entries = [(1u16, 7u16, u32::MAX), (2, 6, 7), (4, 5, u32::MAX), (0x10, 7, u32::MAX), (0x20, 0, u32::MAX)];
        let mut value = 2u32.to_le_bytes().to_vec();
        for (tag, bits, id) in entries {
            value.extend([tag.to_le_bytes(), bits.to_le_bytes()].concat());
            value.extend(id.to_le_bytes());
        }
        value.into()
    }

    fn set_list(world: &mut World, fid: Fid, name: &[u8], value: Bytes) {
        let request = SetXattr { caller: root(), fid, name: Bytes::copy_from_slice(name), value, flags: 0 };
        world.run(|tx| set(tx, &request));
    }

    #[test]
    fn an_access_list_is_the_mode_and_chmod_is_the_list() {
        let mut world = World::new();
        let fid = world.file(Fid::ROOT, "a");
        set_list(&mut world, fid, acl::ACCESS, acl_of_user_7());
        let inode = world.run(|tx| tx.inode(fid));
        assert_eq!((inode.mode & 0o777, inode.has_acl), (0o770, true));
        assert_eq!(perm::access(&user(7), &inode, perm::READ | perm::WRITE), Ok(()));
        assert_eq!(perm::access(&user(8), &inode, perm::READ), Err(Errno::EACCES));
        let mask = forebay_proto::message::set_attr::MODE;
        let chmod = forebay_proto::message::SetAttr {
            caller: root(),
            fid,
            mask,
            mode: 0o740,
            uid: 0,
            gid: 0,
            size: 0,
            atime_ns: 0,
            mtime_ns: 0,
            handle: 0,
            at_ns: 0,
        };
        world.run(|tx| crate::ops::setattr::apply(tx, &chmod));
        let inode = world.run(|tx| tx.inode(fid));
        assert_eq!(perm::access(&user(7), &inode, perm::READ), Ok(()));
        assert_eq!(perm::access(&user(7), &inode, perm::WRITE), Err(Errno::EACCES), "the mask is r--");
        assert_ne!(value(&mut world, fid, "system.posix_acl_access"), Ok(acl_of_user_7()));
        // If the list is removed, the mode stays.
        set_list(&mut world, fid, acl::ACCESS, Bytes::new());
        let inode = world.run(|tx| tx.inode(fid));
        assert_eq!((inode.mode & 0o777, inode.has_acl, world.count(keys::XATTR)), (0o740, false, 0));
    }

    #[test]
    fn a_value_or_list_that_is_set_already_moves_no_ctime() {
        let mut world = World::new();
        let dir = world.mkdir(Fid::ROOT, "d");
        let inode = |world: &mut World| world.run(|tx| tx.inode(dir));
        let mode = inode(&mut world).mode;
        let list_of = |mode: u32| {
            let entries = [(1u16, mode >> 6), (4, mode >> 3), (0x20, mode)].map(|(tag, bits)| {
                [&tag.to_le_bytes()[..], &(bits as u16 & 7).to_le_bytes(), &u32::MAX.to_le_bytes()].concat()
            });
            Bytes::from([2u32.to_le_bytes().to_vec(), entries.concat()].concat())
        };
        let before = inode(&mut world).ctime_ns;
        for (name, value) in [(acl::ACCESS, list_of(mode)), (acl::ACCESS, Bytes::new()), (acl::DEFAULT, Bytes::new())] {
            set_list(&mut world, dir, name, value);
            assert_eq!(inode(&mut world).ctime_ns, before);
        }
        for (name, value) in [
            (acl::ACCESS, list_of(mode ^ 0o1)),
            (acl::ACCESS, acl_of_user_7()),
            (acl::DEFAULT, acl_of_user_7()),
            (b"user.a", Bytes::from_static(b"x")),
        ] {
            let before = inode(&mut world).ctime_ns;
            set_list(&mut world, dir, name, value.clone());
            let changed = inode(&mut world).ctime_ns;
            set_list(&mut world, dir, name, value);
            assert!(changed > before && inode(&mut world).ctime_ns == changed);
        }
    }

    #[test]
    fn a_default_list_is_inherited_instead_of_the_umask() {
        let mut world = World::new();
        let dir = world.mkdir(Fid::ROOT, "d");
        set_list(&mut world, dir, acl::DEFAULT, acl_of_user_7());
        let mut request = world.create(&root(), dir, "f", 0);
        request.mode = 0o664 | 0o022 << 16;
        let file = world.run(|tx| crate::ops::create::apply(tx, &request)).attr;
        assert_eq!(file.mode & 0o777, 0o660);
        let inode = world.run(|tx| tx.inode(file.fid));
        assert_eq!(perm::access(&user(7), &inode, perm::WRITE), Ok(()));
        let below = world.mkdir(dir, "e");
        assert_eq!(value(&mut world, below, "system.posix_acl_default"), Ok(acl_of_user_7()));
        // Without a default list the umask applies.
        let mut request = world.create(&root(), Fid::ROOT, "g", 0);
        request.mode = 0o664 | 0o022 << 16;
        assert_eq!(world.run(|tx| crate::ops::create::apply(tx, &request)).attr.mode & 0o777, 0o644);
    }

    #[test]
    fn lists_belong_to_their_owner_and_a_default_to_directories() {
        let mut world = World::new();
        let fid = world.file(Fid::ROOT, "a");
        let mut request =
            SetXattr { caller: user(7), fid, name: Bytes::from_static(acl::ACCESS), value: acl_of_user_7(), flags: 0 };
        assert_eq!(world.errno(|tx| set(tx, &request)), Errno::EPERM);
        (request.caller, request.name) = (root(), Bytes::from_static(acl::DEFAULT));
        assert_eq!(world.errno(|tx| set(tx, &request)), Errno::EACCES);
        (request.name, request.value) = (Bytes::from_static(acl::ACCESS), Bytes::from_static(b"\x02\0\0\0x"));
        assert_eq!(world.errno(|tx| set(tx, &request)), Errno::EINVAL);
        assert_eq!(value(&mut world, fid, "system.posix_acl_access"), Err(Errno::ENODATA.into()));
    }

    #[test]
    fn the_extended_attributes_of_an_inode_are_bounded_together() {
        let mut world = World::new();
        let fid = world.file(Fid::ROOT, "a");
        world.run(|tx| set(tx, &put(fid, "user.1", 65_000, 0)));
        world.run(|tx| set(tx, &put(fid, "user.2", 65_000, 0)));
        assert_eq!(world.errno(|tx| set(tx, &put(fid, "user.3", 65_000, 0))), Errno::ENOSPC);
    }
}
