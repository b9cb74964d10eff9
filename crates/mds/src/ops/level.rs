//! The commit level of a file or directory, as the extended attribute `user.forebay.commit`.
//!
//! It is part of the inode, not of the extended attributes. Operations check it whenever they write an inode
//! ([`Tx::insist_on_commit`]). Clients get it with the attributes, and files and directories inherit it from the
//! directory when they are created. It is listed where it is set, so that copies with attributes preserve it.

use bytes::Bytes;
use forebay_proto::{
    Errno, ErrorReply, Fid,
    message::{CommitLevel, Empty, SetXattr, XattrReply},
};

use super::xattr;
use crate::{halt::Step, inode::Inode, tx::Tx};

/// Errors: ENODATA if the inode has no level of its own.
pub fn get(inode: &Inode) -> Result<XattrReply, Errno> {
    let level = inode.level.ok_or(Errno::ENODATA)?;
    Ok(XattrReply { value: Bytes::from_static(level.name().as_bytes()) })
}

/// Errors: EINVAL for an invalid level, EEXIST, ENODATA, ENOSPC.
pub fn set(tx: &mut Tx<'_>, request: &SetXattr, inode: &mut Inode) -> Step<Empty> {
    let level = std::str::from_utf8(&request.value).ok().and_then(CommitLevel::named);
    let words = "user.forebay.commit is commit, data or memory; remove it to have the mount's level again";
    let level = level.ok_or_else(|| ErrorReply::new(Errno::EINVAL, words))?;
    xattr::may_set(request, inode.level.is_some())?;
    tx.need_room()?;
    put(tx, request.fid, inode, Some(level))
}

/// Errors: ENODATA.
pub fn remove(tx: &mut Tx<'_>, fid: Fid, inode: &mut Inode) -> Step<Empty> {
    if inode.level.is_none() {
        return Err(Errno::ENODATA.into());
    }
    put(tx, fid, inode, None)
}

fn put(tx: &mut Tx<'_>, fid: Fid, inode: &mut Inode, level: Option<CommitLevel>) -> Step<Empty> {
    // The removal of the level is the last change under it.
    tx.insist_on_commit(inode);
    inode.level = level;
    inode.changed_at(tx.origin.now_ns);
    tx.put_inode_touched(fid, inode);
    Ok(Empty {})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        inode::{S_IFDIR, S_IFLNK},
        ops::{
            self,
            xattr::{CREATE, REPLACE},
        },
        testing::{World, root, user},
    };
    use forebay_proto::message::{
        COMMIT_XATTR, Caller, GetXattr, Link, ListXattr, Open, RemoveXattr, Rename, Unlink, lease_flags, open_flags,
    };

    fn put(fid: Fid, value: &str, flags: u32) -> SetXattr {
        let (name, value) = (Bytes::from_static(COMMIT_XATTR), value.to_owned().into());
        SetXattr { caller: root(), fid, name, value, flags }
    }

    fn give(world: &mut World, fid: Fid, level: CommitLevel) {
        world.run(|tx| xattr::set(tx, &put(fid, level.name(), 0)));
    }

    fn seen(world: &mut World, fid: Fid) -> (Option<CommitLevel>, Step<Bytes>, bool) {
        let get = GetXattr { caller: root(), fid, name: Bytes::from_static(COMMIT_XATTR) };
        let level = world.run(|tx| Ok(tx.attr(fid, &tx.inode(fid)?))).level();
        let names = world.run(|tx| xattr::list(tx, &ListXattr { fid })).names;
        (level, world.attempt(|tx| xattr::get(tx, &get)).map(|reply| reply.value), names.contains(&get.name))
    }

    fn take(fid: Fid, caller: Caller) -> RemoveXattr {
        RemoveXattr { caller, fid, name: Bytes::from_static(COMMIT_XATTR) }
    }

    #[test]
    fn a_level_is_set_seen_and_removed_and_the_change_time_tells() {
        let mut world = World::new();
        let (file, dir) = (world.file(Fid::ROOT, "f"), world.mkdir(Fid::ROOT, "d"));
        for fid in [file, dir] {
            let none = (None, Err(Errno::ENODATA.into()), false);
            assert_eq!(seen(&mut world, fid), none);
            let before = world.run(|tx| tx.inode(fid));
            for level in CommitLevel::ALL {
                give(&mut world, fid, level);
                assert_eq!(seen(&mut world, fid), (Some(level), Ok(level.name().into()), true));
            }
            let after = world.run(|tx| tx.inode(fid));
            assert!(after.ctime_ns > before.ctime_ns && after.mtime_ns == before.mtime_ns && !after.xattrs);
            world.run(|tx| xattr::remove(tx, &take(fid, root())));
            assert_eq!(seen(&mut world, fid), none);
            assert_eq!(world.errno(|tx| xattr::remove(tx, &take(fid, root()))), Errno::ENODATA);
        }
    }

    #[test]
    fn an_invalid_commit_level_or_one_of_another_owner_is_refused() {
        let mut world = World::new();
        let file = world.file(Fid::ROOT, "f");
        for wrong in ["", "inherit", "Commit", "commit\n", "commit\0"] {
            assert_eq!(world.errno(|tx| xattr::set(tx, &put(file, wrong, 0))), Errno::EINVAL, "{wrong:?}");
        }
        assert_eq!(world.errno(|tx| xattr::set(tx, &put(file, "data", REPLACE))), Errno::ENODATA);
        give(&mut world, file, CommitLevel::Data);
        assert_eq!(world.errno(|tx| xattr::set(tx, &put(file, "data", CREATE))), Errno::EEXIST);
        let request = SetXattr { caller: user(7), ..put(file, "memory", 0) };
        assert_eq!(world.errno(|tx| xattr::set(tx, &request)), Errno::EACCES);
        assert_eq!(world.errno(|tx| xattr::remove(tx, &take(file, user(7)))), Errno::EACCES);
        let mut link = world.make(&root(), Fid::ROOT, "l", S_IFLNK | 0o777);
        link.symlink = "x".into();
        world.run(|tx| ops::make::apply(tx, &link));
        assert_eq!(world.errno(|tx| xattr::set(tx, &put(link.fid, "commit", 0))), Errno::EPERM);
        world.has_room = false;
        assert_eq!(world.errno(|tx| xattr::set(tx, &put(file, "memory", 0))), Errno::ENOSPC);
        world.run(|tx| xattr::remove(tx, &take(file, root())));
    }

    #[test]
    fn files_and_directories_have_the_level_of_where_they_are_made_and_links_none() {
        let mut world = World::new();
        let dir = world.mkdir(Fid::ROOT, "d");
        let before = world.file(dir, "before");
        give(&mut world, dir, CommitLevel::Memory);
        let (file, below) = (world.file(dir, "f"), world.mkdir(dir, "below"));
        let deeper = world.file(below, "f");
        let mut link = world.make(&root(), dir, "l", S_IFLNK | 0o777);
        link.symlink = "x".into();
        world.run(|tx| ops::make::apply(tx, &link));
        let mut level = |fid| world.run(|tx| tx.inode(fid)).level;
        assert_eq!([file, below, deeper].map(&mut level), [Some(CommitLevel::Memory); 3]);
        assert_eq!([before, link.fid, Fid::ROOT].map(level), [None; 3]);
    }

    /// Whether the reply to the last operation waits for its commit.
    fn waits(world: &World) -> bool {
        world.effects.durable
    }

    #[test]
    fn replies_to_changes_of_what_has_level_commit_wait_for_the_commit() {
        let mut world = World::new();
        let (dir, other) = (world.mkdir(Fid::ROOT, "d"), world.mkdir(Fid::ROOT, "other"));
        assert!(!waits(&world));
        give(&mut world, dir, CommitLevel::Commit);
        assert!(waits(&world), "what sets it is the first such change");
        let file = world.file(dir, "f");
        assert!(waits(&world));
        let rename = |from_parent, to_parent| Rename {
            caller: root(),
            from_parent,
            from_name: "f".into(),
            to_parent,
            to_name: "f".into(),
            flags: 0,
        };
        world.run(|tx| ops::rename::apply(tx, &rename(dir, other)));
        assert!(waits(&world));
        // It has the level in every directory.
        let link = Link { caller: root(), fid: file, parent: other, name: "g".into() };
        world.run(|tx| ops::link::apply(tx, &link));
        assert!(waits(&world));
        for name in ["g", "f"] {
            let unlink = Unlink { caller: root(), parent: other, name: name.into(), at_ns: 0 };
            world.run(|tx| ops::unlink::apply(tx, &unlink));
            assert!(waits(&world), "{name}");
        }
        world.file(other, "f");
        assert!(!waits(&world), "its directory has none");
        world.run(|tx| ops::rename::apply(tx, &rename(other, dir)));
        assert!(waits(&world), "a name comes to one that has");
        world.run(|tx| xattr::remove(tx, &take(dir, root())));
        assert!(waits(&world), "the last change under it");
        world.file(dir, "h");
        assert!(!waits(&world));
    }

    #[test]
    fn writing_open_at_level_commit_waits_reading_open_does_not() {
        let mut world = World::new();
        let request = world.create(&root(), Fid::ROOT, "f", 1);
        let fid = world.run(|tx| ops::create::apply(tx, &request)).attr.fid;
        give(&mut world, fid, CommitLevel::Commit);
        world.close(fid, 1, true);
        assert!(waits(&world));
        // A handle that the session opens again is known: the open only asks for a lease.
        let (write, read) = (open_flags::WRITE, open_flags::READ);
        for (flags, handle, is_new) in [(write, 2, true), (write, 2, false), (read, 3, true), (write, 3, true)] {
            world.run(|tx| ops::open::apply(tx, &Open { caller: root(), fid, flags, handle }));
            assert_eq!(waits(&world), flags == write && is_new, "{flags} {handle}");
        }
    }

    #[test]
    fn names_of_a_directory_of_level_commit_are_leased_to_nobody_for_changes() {
        let mut world = World::new();
        for (level, leased) in [(CommitLevel::Data, true), (CommitLevel::Commit, false)] {
            let request = world.make(&root(), Fid::ROOT, level.name(), S_IFDIR | 0o755);
            let dir = world.run(|tx| ops::make::apply(tx, &request)).attr.fid;
            give(&mut world, dir, level);
            let flags = world.run(|tx| {
                let inode = tx.inode(dir)?;
                tx.lease(dir, lease_flags::INODE);
                Ok(tx.lease_entries_write(dir, &inode, lease_flags::NAMES))
            });
            assert_eq!(flags == lease_flags::NAMES, leased, "{level:?}");
        }
    }
}
