//! Extended attributes: `user.`, `trusted.` and `security.`; ACLs are not supported yet.
//!
//! All of an inode's lie in one row, sorted: they are few and small, and their bound (128 KiB) fits in a row.

use bytes::Bytes;
use forebay_proto::{
    DecodeError, Errno, Fid, Reader, limits,
    message::{Caller, Empty, GetXattr, ListXattr, ListXattrReply, RemoveXattr, SetXattr, XattrReply},
};

use crate::{
    halt::{Step, corrupt},
    inode::{Inode, S_ISVTX},
    keys,
    keys::Key,
    perm,
    tx::Tx,
    varint,
};

/// `XATTR_CREATE` of setxattr(2).
pub const CREATE: u32 = 1;
/// `XATTR_REPLACE` of setxattr(2).
pub const REPLACE: u32 = 2;
/// Argument list too long: what Linux answers to a value beyond the limit.
const E2BIG: Errno = Errno(7);
const VERSION: u8 = 1;
/// What an attribute takes beside its name and value.
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
    let list = read(tx, request.fid, &inode)?;
    let at = find(&list, &request.name).map_err(|_| Errno::ENODATA)?;
    Ok(XattrReply { value: list[at].1.clone() })
}

/// Errors: ESTALE.
pub fn list(tx: &mut Tx<'_>, request: &ListXattr) -> Step<ListXattrReply> {
    let inode = tx.inode(request.fid)?;
    let list = read(tx, request.fid, &inode)?;
    Ok(ListXattrReply { names: list.into_iter().map(|(name, _)| name).collect() })
}

/// Errors: EEXIST, ENODATA, EOPNOTSUPP, EPERM, EACCES, ERANGE, E2BIG, ENOSPC.
pub fn set(tx: &mut Tx<'_>, request: &SetXattr) -> Step<Empty> {
    let mut inode = tx.inode(request.fid)?;
    check(&request.caller, &inode, &request.name, true)?;
    if request.value.len() > limits::XATTR_BYTES {
        return Err(E2BIG.into());
    }
    tx.need_room()?;
    let mut list = read(tx, request.fid, &inode)?;
    match (find(&list, &request.name), request.flags) {
        (Ok(_), CREATE) => return Err(Errno::EEXIST.into()),
        (Err(_), REPLACE) => return Err(Errno::ENODATA.into()),
        (Ok(at), _) => list[at].1 = request.value.clone(),
        (Err(at), _) => list.insert(at, (request.name.clone(), request.value.clone())),
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
    let mut list = read(tx, request.fid, &inode)?;
    list.remove(find(&list, &request.name).map_err(|_| Errno::ENODATA)?);
    write(tx, request.fid, &mut inode, &list);
    Ok(Empty {})
}

fn find(list: &List, name: &[u8]) -> Result<usize, usize> {
    list.binary_search_by(|(at, _)| at[..].cmp(name))
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

/// Names and values, sorted by name.
type List = Vec<(Bytes, Bytes)>;

fn read(tx: &Tx<'_>, fid: Fid, inode: &Inode) -> Step<List> {
    let key = keys::xattrs(fid);
    let row = if inode.xattrs { tx.row(key)? } else { None };
    row.map_or(Ok(List::new()), |row| decode(&row).map_err(|error| corrupt(key.as_ref(), error)))
}

fn write(tx: &mut Tx<'_>, fid: Fid, inode: &mut Inode, list: &List) {
    if list.is_empty() {
        tx.delete(keys::xattrs(fid));
    } else {
        tx.put_with(keys::xattrs(fid), |out| encode(list, out));
    }
    inode.xattrs = !list.is_empty();
    inode.ctime_ns = tx.origin.now_ns;
    tx.put_inode_touched(fid, inode);
}

fn encode(list: &List, out: &mut Vec<u8>) {
    out.push(VERSION);
    for (name, value) in list {
        out.push(name.len() as u8);
        out.extend_from_slice(name);
        varint::put(out, value.len() as u64);
        out.extend_from_slice(value);
    }
}

fn decode(row: &Bytes) -> Result<List, DecodeError> {
    let mut r = Reader::new(row);
    if r.u8()? != VERSION {
        return Err(DecodeError::new("extended attributes: a version this program does not know"));
    }
    let mut list = List::new();
    while !r.is_empty() {
        let length = usize::from(r.u8()?);
        let name = row.slice_ref(r.take(length)?);
        let length = usize::try_from(varint::get(&mut r)?).map_err(|_| DecodeError::new("a value is too long"))?;
        list.push((name, row.slice_ref(r.take(length)?)));
    }
    Ok(list)
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

    /// The golden bytes of docs/format-mdt.md.
    #[test]
    fn attributes_have_the_bytes_of_the_format() {
        let list = vec![("user.a".into(), "xy".into()), ("user.b".into(), Bytes::new())];
        let mut out = Vec::new();
        encode(&list, &mut out);
        assert_eq!(out, b"\x01\x06user.a\x02xy\x06user.b\x00");
        assert_eq!(decode(&out.into()), Ok(list));
        assert!(decode(&Bytes::from_static(b"\x01\x06use")).is_err());
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
