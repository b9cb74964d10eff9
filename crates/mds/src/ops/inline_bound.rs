//! The inline bound of a file or directory, as the extended attribute `user.forebay.inline`.
//!
//! It is part of the inode, like the commit level ([`super::level`]) and for the same reasons: clients get it with the
//! attributes, and files and directories inherit it from the directory when they are created. It is listed where it is
//! set, so that copies with attributes preserve it.
//! Not here: enforcing it. It advises clients what to send ([`super::inline`]); the MDT takes what they send.

use forebay_proto::{
    Errno, ErrorReply, Fid,
    message::{Empty, InlineBound, SetXattr, XattrReply},
};

use super::xattr;
use crate::{halt::Step, inode::Inode, tx::Tx};

/// Errors: ENODATA if the inode has no bound of its own.
pub fn get(inode: &Inode) -> Result<XattrReply, Errno> {
    let bound = inode.inline_bound.ok_or(Errno::ENODATA)?;
    Ok(XattrReply { value: bound.name().into() })
}

/// Errors: EINVAL for an invalid bound, EEXIST, ENODATA, ENOSPC.
pub fn set(tx: &mut Tx<'_>, request: &SetXattr, inode: &mut Inode) -> Step<Empty> {
    let bound = std::str::from_utf8(&request.value).ok().and_then(InlineBound::named);
    let words = "user.forebay.inline is whole KiB up to 16KiB, or 0 to have every file on the OSTs; remove it to have the \
                 mount's bound again";
    let bound = bound.ok_or_else(|| ErrorReply::new(Errno::EINVAL, words))?;
    xattr::may_set(request, inode.inline_bound.is_some())?;
    tx.need_room()?;
    put(tx, request.fid, inode, Some(bound))
}

/// Errors: ENODATA.
pub fn remove(tx: &mut Tx<'_>, fid: Fid, inode: &mut Inode) -> Step<Empty> {
    if inode.inline_bound.is_none() {
        return Err(Errno::ENODATA.into());
    }
    put(tx, fid, inode, None)
}

fn put(tx: &mut Tx<'_>, fid: Fid, inode: &mut Inode, bound: Option<InlineBound>) -> Step<Empty> {
    inode.inline_bound = bound;
    inode.changed_at(tx.origin.now_ns);
    tx.put_inode_touched(fid, inode);
    Ok(Empty {})
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        inode::S_IFLNK,
        ops::{
            self,
            xattr::{CREATE, REPLACE},
        },
        testing::{World, root, user},
    };
    use forebay_proto::message::{COMMIT_XATTR, Caller, CommitLevel, GetXattr, INLINE_XATTR, ListXattr, RemoveXattr};

    fn put(fid: Fid, value: &str, flags: u32) -> SetXattr {
        let (name, value) = (Bytes::from_static(INLINE_XATTR), value.to_owned().into());
        SetXattr { caller: root(), fid, name, value, flags }
    }

    fn give(world: &mut World, fid: Fid, bound: &str) {
        world.run(|tx| xattr::set(tx, &put(fid, bound, 0)));
    }

    /// The bound in the attributes, the extended attribute, and whether that is listed.
    fn seen(world: &mut World, fid: Fid) -> (Option<usize>, Step<Bytes>, bool) {
        let get = GetXattr { caller: root(), fid, name: Bytes::from_static(INLINE_XATTR) };
        let bound = world.run(|tx| Ok(tx.attr(fid, &tx.inode(fid)?))).inline_bound();
        let names = world.run(|tx| xattr::list(tx, &ListXattr { fid })).names;
        let value = world.attempt(|tx| xattr::get(tx, &get)).map(|reply| reply.value);
        (bound.map(InlineBound::bytes), value, names.contains(&get.name))
    }

    fn take(fid: Fid, caller: Caller) -> RemoveXattr {
        RemoveXattr { caller, fid, name: Bytes::from_static(INLINE_XATTR) }
    }

    #[test]
    fn a_bound_is_set_seen_and_removed_and_the_change_time_tells() {
        let mut world = World::new();
        let (file, dir) = (world.file(Fid::ROOT, "f"), world.mkdir(Fid::ROOT, "d"));
        for fid in [file, dir] {
            let none = (None, Err(Errno::ENODATA.into()), false);
            assert_eq!(seen(&mut world, fid), none);
            let before = world.run(|tx| tx.inode(fid));
            for (size, bytes, name) in [("0", 0, "0"), ("4096", 4096, "4KiB"), ("16k", 16_384, "16KiB")] {
                give(&mut world, fid, size);
                assert_eq!(seen(&mut world, fid), (Some(bytes), Ok(name.into()), true));
            }
            let after = world.run(|tx| tx.inode(fid));
            assert!(after.ctime_ns > before.ctime_ns && after.mtime_ns == before.mtime_ns && !after.xattrs);
            world.run(|tx| xattr::remove(tx, &take(fid, root())));
            assert_eq!(seen(&mut world, fid), none);
            assert_eq!(world.errno(|tx| xattr::remove(tx, &take(fid, root()))), Errno::ENODATA);
        }
    }

    #[test]
    fn an_invalid_inline_bound_or_one_of_another_owner_is_refused() {
        let mut world = World::new();
        let file = world.file(Fid::ROOT, "f");
        for wrong in ["", "inherit", "17KiB", "1000", "4KiB\n", "4KiB\0"] {
            let refused = world.attempt(|tx| xattr::set(tx, &put(file, wrong, 0)));
            let words = format!("{refused:?}");
            assert!(words.contains("EINVAL") && words.contains("up to 16KiB"), "{wrong:?}: {words}");
        }
        assert_eq!(world.errno(|tx| xattr::set(tx, &put(file, "0", REPLACE))), Errno::ENODATA);
        give(&mut world, file, "1KiB");
        assert_eq!(world.errno(|tx| xattr::set(tx, &put(file, "0", CREATE))), Errno::EEXIST);
        let request = SetXattr { caller: user(7), ..put(file, "0", 0) };
        assert_eq!(world.errno(|tx| xattr::set(tx, &request)), Errno::EACCES);
        assert_eq!(world.errno(|tx| xattr::remove(tx, &take(file, user(7)))), Errno::EACCES);
        let mut link = world.make(&root(), Fid::ROOT, "l", S_IFLNK | 0o777);
        link.symlink = "x".into();
        world.run(|tx| ops::make::apply(tx, &link));
        assert_eq!(world.errno(|tx| xattr::set(tx, &put(link.fid, "0", 0))), Errno::EPERM);
        world.has_room = false;
        assert_eq!(world.errno(|tx| xattr::set(tx, &put(file, "0", 0))), Errno::ENOSPC);
        world.run(|tx| xattr::remove(tx, &take(file, root())));
    }

    #[test]
    fn files_and_directories_have_the_bound_of_where_they_are_made_and_links_none() {
        let mut world = World::new();
        let dir = world.mkdir(Fid::ROOT, "d");
        let before = world.file(dir, "before");
        give(&mut world, dir, "2KiB");
        let (file, below) = (world.file(dir, "f"), world.mkdir(dir, "below"));
        let deeper = world.file(below, "f");
        let mut link = world.make(&root(), dir, "l", S_IFLNK | 0o777);
        link.symlink = "x".into();
        world.run(|tx| ops::make::apply(tx, &link));
        let mut bound = |fid| world.run(|tx| tx.inode(fid)).inline_bound.map(InlineBound::bytes);
        assert_eq!([file, below, deeper].map(&mut bound), [Some(2048); 3]);
        assert_eq!([before, link.fid, Fid::ROOT].map(bound), [None; 3]);
    }

    #[test]
    fn a_bound_and_a_level_leave_each_other_alone() {
        let mut world = World::new();
        let dir = world.mkdir(Fid::ROOT, "d");
        let level = |value: &'static str| SetXattr { name: COMMIT_XATTR.into(), ..put(dir, value, 0) };
        world.run(|tx| xattr::set(tx, &level("memory")));
        give(&mut world, dir, "0");
        let file = world.file(dir, "f");
        let both = |inode: Inode| (inode.level, inode.inline_bound.map(InlineBound::bytes));
        for fid in [dir, file] {
            assert_eq!(both(world.run(|tx| tx.inode(fid))), (Some(CommitLevel::Memory), Some(0)));
        }
        world.run(|tx| xattr::remove(tx, &RemoveXattr { name: COMMIT_XATTR.into(), ..take(dir, root()) }));
        assert_eq!(both(world.run(|tx| tx.inode(dir))), (None, Some(0)));
        world.run(|tx| xattr::set(tx, &level("data")));
        world.run(|tx| xattr::remove(tx, &take(dir, root())));
        assert_eq!(both(world.run(|tx| tx.inode(dir))), (Some(CommitLevel::Data), None));
    }
}
