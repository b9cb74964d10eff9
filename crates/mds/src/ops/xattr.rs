//! Extended attributes: `user.`, `trusted.` and `security.`; ACLs are not supported yet.
//!
//! Values and the list of names lie in rows of their own, cut in pieces; the list has the sizes of the values too, so that
//! bounds and removal need no scan.

use bytes::Bytes;
use forebay_proto::{
    Errno, Fid, Reader, limits,
    message::{Caller, Empty, GetXattr, ListXattr, ListXattrReply, RemoveXattr, SetXattr, XattrReply},
};

use crate::{
    halt::{Step, corrupt},
    inode::{Inode, S_ISVTX},
    keys,
    keys::Key,
    perm, pieces,
    tx::Tx,
    varint,
};

/// `XATTR_CREATE` of setxattr(2).
pub const CREATE: u32 = 1;
/// `XATTR_REPLACE` of setxattr(2).
pub const REPLACE: u32 = 2;
/// Argument list too long: what Linux answers to a value beyond the limit.
const E2BIG: Errno = Errno(7);

/// Rows worth prefetching together.
pub fn keys(fid: Fid) -> [Key; 1] {
    [keys::inode(fid)]
}

/// Names and sizes of values, sorted.
type Names = Vec<(Bytes, u64)>;

/// Errors: ENODATA, EOPNOTSUPP, EACCES.
pub fn get(tx: &mut Tx<'_>, request: &GetXattr) -> Step<XattrReply> {
    let inode = tx.inode(request.fid)?;
    check(&request.caller, &inode, &request.name, false)?;
    if !inode.xattrs {
        return Err(Errno::ENODATA.into());
    }
    let value = pieces::get(tx, &keys::xattr(request.fid, &request.name))?.ok_or(Errno::ENODATA)?;
    Ok(XattrReply { value: value.into() })
}

/// Errors: ESTALE.
pub fn list(tx: &mut Tx<'_>, request: &ListXattr) -> Step<ListXattrReply> {
    let inode = tx.inode(request.fid)?;
    let names = names(tx, request.fid, &inode)?;
    Ok(ListXattrReply { names: names.into_iter().map(|(name, _)| name).collect() })
}

/// Errors: EEXIST, ENODATA, EOPNOTSUPP, EPERM, EACCES, ERANGE, E2BIG, ENOSPC.
pub fn set(tx: &mut Tx<'_>, request: &SetXattr) -> Step<Empty> {
    let mut inode = tx.inode(request.fid)?;
    check(&request.caller, &inode, &request.name, true)?;
    if request.value.len() > limits::XATTR_BYTES {
        return Err(E2BIG.into());
    }
    tx.need_room()?;
    let mut names = names(tx, request.fid, &inode)?;
    let at = names.binary_search_by(|(name, _)| name.cmp(&request.name));
    match (at, request.flags) {
        (Ok(_), CREATE) => return Err(Errno::EEXIST.into()),
        (Err(_), REPLACE) => return Err(Errno::ENODATA.into()),
        (Ok(at), _) => names[at].1 = request.value.len() as u64,
        (Err(at), _) => names.insert(at, (request.name.clone(), request.value.len() as u64)),
    }
    let total: u64 = names.iter().map(|(name, bytes)| name.len() as u64 + bytes).sum();
    if total > limits::XATTRS_BYTES as u64 {
        return Err(Errno::ENOSPC.into());
    }
    pieces::put(tx, &keys::xattr(request.fid, &request.name), &request.value)?;
    put_names(tx, request.fid, &mut inode, &names)?;
    Ok(Empty {})
}

/// Errors: ENODATA, EOPNOTSUPP, EPERM, EACCES.
pub fn remove(tx: &mut Tx<'_>, request: &RemoveXattr) -> Step<Empty> {
    let mut inode = tx.inode(request.fid)?;
    check(&request.caller, &inode, &request.name, true)?;
    let mut names = names(tx, request.fid, &inode)?;
    let at = names.binary_search_by(|(name, _)| name.cmp(&request.name)).map_err(|_| Errno::ENODATA)?;
    names.remove(at);
    pieces::delete(tx, &keys::xattr(request.fid, &request.name))?;
    put_names(tx, request.fid, &mut inode, &names)?;
    Ok(Empty {})
}

/// Removes the rows of all extended attributes of an inode that ends.
pub fn remove_all(tx: &mut Tx<'_>, fid: Fid) -> Step<()> {
    for (name, _) in read_names(tx, fid)? {
        pieces::delete(tx, &keys::xattr(fid, &name))?;
    }
    pieces::delete(tx, &keys::xattr_names(fid))
}

/// Who may see or change which name.
fn check(caller: &Caller, inode: &Inode, name: &[u8], change: bool) -> Result<(), Errno> {
    if name.len() > limits::NAME_BYTES {
        return Err(Errno::ERANGE);
    }
    let denied = if change { Errno::EPERM } else { Errno::ENODATA };
    let is_root = caller.uid == 0;
    let namespace = name.iter().position(|byte| *byte == b'.').map_or(name, |dot| &name[..dot]);
    match namespace {
        _ if name.len() <= namespace.len() + 1 => Err(Errno::EOPNOTSUPP),
        b"user" => check_user(caller, inode, change, denied),
        b"trusted" if is_root => Ok(()),
        b"trusted" => Err(denied),
        b"security" if is_root || !change => Ok(()),
        b"security" => Err(Errno::EPERM),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// `user.` is for files and directories, by their permissions; in a sticky directory only the owner sets.
fn check_user(caller: &Caller, inode: &Inode, change: bool, denied: Errno) -> Result<(), Errno> {
    if !inode.is_file() && !inode.is_dir() {
        return Err(denied);
    }
    if change && inode.is_dir() && inode.mode & S_ISVTX != 0 {
        perm::owner(caller, inode)?;
    }
    perm::access(caller, inode, if change { perm::WRITE } else { perm::READ })
}

fn names(tx: &Tx<'_>, fid: Fid, inode: &Inode) -> Step<Names> {
    if inode.xattrs { read_names(tx, fid) } else { Ok(Names::new()) }
}

fn read_names(tx: &Tx<'_>, fid: Fid) -> Step<Names> {
    let key = keys::xattr_names(fid);
    let Some(list) = pieces::get(tx, &key)? else { return Ok(Names::new()) };
    let mut r = Reader::new(&list);
    let mut names = Names::new();
    while !r.is_empty() {
        let mut next = || {
            let length = usize::from(r.u8()?);
            let name = Bytes::copy_from_slice(r.take(length)?);
            Ok((name, varint::get(&mut r)?))
        };
        names.push(next().map_err(|error| corrupt(&key, error))?);
    }
    Ok(names)
}

fn put_names(tx: &mut Tx<'_>, fid: Fid, inode: &mut Inode, names: &Names) -> Step<()> {
    let mut list = Vec::new();
    for (name, bytes) in names {
        list.push(name.len() as u8);
        list.extend_from_slice(name);
        varint::put(&mut list, *bytes);
    }
    if names.is_empty() {
        pieces::delete(tx, &keys::xattr_names(fid))?;
    } else {
        pieces::put(tx, &keys::xattr_names(fid), &list)?;
    }
    inode.xattrs = !names.is_empty();
    inode.ctime_ns = tx.origin.now_ns;
    tx.put_inode_touched(fid, inode);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
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
        assert_eq!(world.errno(|tx| set(tx, &put(fid, "user.x", 65_537, 0))), E2BIG);
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
        let unlink = forebay_proto::message::Unlink { caller: root(), parent: Fid::ROOT, name: "a".into() };
        world.run(|tx| crate::ops::unlink::apply(tx, &unlink));
        assert_eq!(world.rows.len(), before.len());
    }

    #[test]
    fn create_and_replace_mean_what_they_say() {
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
            ("system.posix_acl_access", Errno::EOPNOTSUPP),
            ("plain", Errno::EOPNOTSUPP),
            ("user.", Errno::EOPNOTSUPP),
            ("trusted.x", Errno::EPERM),
            ("security.x", Errno::EPERM),
            ("user.x", Errno::EACCES),
        ] {
            let request = SetXattr { caller: user(7), ..put(fid, name, 1, 0) };
            assert_eq!(world.errno(|tx| set(tx, &request)), errno, "{name}");
        }
    }

    #[test]
    fn all_of_one_inode_are_bounded() {
        let mut world = World::new();
        let fid = world.file(Fid::ROOT, "a");
        world.run(|tx| set(tx, &put(fid, "user.1", 65_000, 0)));
        world.run(|tx| set(tx, &put(fid, "user.2", 65_000, 0)));
        assert_eq!(world.errno(|tx| set(tx, &put(fid, "user.3", 65_000, 0))), Errno::ENOSPC);
    }
}
