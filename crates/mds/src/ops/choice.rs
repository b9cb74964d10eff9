//! Choices of a file or directory: its commit level (`user.forebay.commit`) and its inline bound
//! (`user.forebay.inline`).
//!
//! They are part of the inode, not of the extended attributes. Clients get them with the attributes, and files and
//! directories inherit them from the directory when they are created. They are listed where they are set, so that copies
//! with attributes preserve them.
//! Operations check the commit level whenever they write an inode ([`Tx::insist_on_commit`]).
//! Not here: enforcing the inline bound. It advises clients what to send ([`super::inline`]); the MDT takes what they
//! send.

use bytes::Bytes;
use forebay_proto::{
    Errno, ErrorReply, Fid,
    message::{CommitLevel, Empty, FileChoice, InlineBound, SetXattr, XattrReply},
};

use super::xattr_flags;
use crate::{halt::Step, inode::Inode, tx::Tx};

/// Where an inode has the choice.
pub trait InodeChoice: FileChoice {
    /// Its place in the inode.
    fn slot(inode: &mut Inode) -> &mut Option<Self>;

    /// The inode's own choice.
    fn of(inode: &Inode) -> Option<Self>;
}

impl InodeChoice for CommitLevel {
    fn slot(inode: &mut Inode) -> &mut Option<Self> {
        &mut inode.level
    }

    fn of(inode: &Inode) -> Option<Self> {
        inode.level
    }
}

impl InodeChoice for InlineBound {
    fn slot(inode: &mut Inode) -> &mut Option<Self> {
        &mut inode.inline_bound
    }

    fn of(inode: &Inode) -> Option<Self> {
        inode.inline_bound
    }
}

/// Errors: ENODATA if the inode has none of its own.
pub fn get<C: InodeChoice>(inode: &Inode) -> Result<XattrReply, Errno> {
    let choice = C::of(inode).ok_or(Errno::ENODATA)?;
    Ok(XattrReply { value: choice.text().into_owned().into() })
}

/// The attribute's name, if the inode has one of its own.
pub fn listed<C: InodeChoice>(inode: &Inode) -> Option<Bytes> {
    C::of(inode).map(|_| Bytes::from_static(C::XATTR))
}

/// Errors: EINVAL for an invalid value, EEXIST, ENODATA, ENOSPC.
pub fn set<C: InodeChoice>(tx: &mut Tx<'_>, request: &SetXattr, inode: &mut Inode) -> Step<Empty> {
    let choice = std::str::from_utf8(&request.value).ok().and_then(C::parse);
    let choice = choice.ok_or_else(|| ErrorReply::new(Errno::EINVAL, C::USAGE))?;
    xattr_flags::check(request.flags, C::of(inode).is_some())?;
    tx.need_space()?;
    put(tx, request.fid, inode, Some(choice))
}

/// Errors: ENODATA.
pub fn remove<C: InodeChoice>(tx: &mut Tx<'_>, fid: Fid, inode: &mut Inode) -> Step<Empty> {
    if C::of(inode).is_none() {
        return Err(Errno::ENODATA.into());
    }
    put::<C>(tx, fid, inode, None)
}

fn put<C: InodeChoice>(tx: &mut Tx<'_>, fid: Fid, inode: &mut Inode, choice: Option<C>) -> Step<Empty> {
    // The removal of a commit level is the last change under it.
    tx.insist_on_commit(inode);
    *C::slot(inode) = choice;
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
            self, xattr,
            xattr_flags::{CREATE, REPLACE},
        },
        testing::{World, root, user},
    };
    use forebay_proto::message::{
        Caller, GetXattr, Link, ListXattr, Open, RemoveXattr, Rename, Unlink, lease_flags, open_flags,
    };

    fn put<C: FileChoice>(fid: Fid, value: &str, flags: u32) -> SetXattr {
        let (name, value) = (Bytes::from_static(C::XATTR), value.to_owned().into());
        SetXattr { caller: root(), fid, name, value, flags }
    }

    fn give<C: FileChoice>(world: &mut World, fid: Fid, value: &str) {
        world.run(|tx| xattr::set(tx, &put::<C>(fid, value, 0)));
    }

    fn give_level(world: &mut World, fid: Fid, level: CommitLevel) {
        give::<CommitLevel>(world, fid, level.name());
    }

    fn take<C: FileChoice>(fid: Fid, caller: Caller) -> RemoveXattr {
        RemoveXattr { caller, fid, name: Bytes::from_static(C::XATTR) }
    }

    /// The texts of level and bound, as in the attributes.
    fn in_attributes(world: &mut World, fid: Fid) -> [Option<String>; 2] {
        let attr = world.run(|tx| Ok(tx.attr(fid, &tx.inode(fid)?)));
        [attr.level().map(|level| level.name().to_owned()), attr.inline_bound().map(InlineBound::name)]
    }

    /// The value of the extended attribute, and whether it is listed.
    fn seen<C: FileChoice>(world: &mut World, fid: Fid) -> (Step<Bytes>, bool) {
        let get = GetXattr { caller: root(), fid, name: Bytes::from_static(C::XATTR) };
        let names = world.run(|tx| xattr::list(tx, &ListXattr { fid })).names;
        (world.attempt(|tx| xattr::get(tx, &get)).map(|reply| reply.value), names.contains(&get.name))
    }

    /// `own`: which of the two in the attributes it is. `values`: as set, and as shown.
    fn check_set_seen_removed<C: FileChoice>(own: usize, values: &[(&str, &'static str)]) {
        let mut world = World::new();
        let (file, dir) = (world.file(Fid::ROOT, "f"), world.mkdir(Fid::ROOT, "d"));
        for fid in [file, dir] {
            let none = (Err(Errno::ENODATA.into()), false);
            assert_eq!(seen::<C>(&mut world, fid), none);
            let before = world.run(|tx| tx.inode(fid));
            for (value, shown) in values {
                give::<C>(&mut world, fid, value);
                assert_eq!(seen::<C>(&mut world, fid), (Ok((*shown).into()), true));
                let mut wanted = [None, None];
                wanted[own] = Some((*shown).to_owned());
                assert_eq!(in_attributes(&mut world, fid), wanted);
            }
            let after = world.run(|tx| tx.inode(fid));
            assert!(after.ctime_ns > before.ctime_ns && after.mtime_ns == before.mtime_ns && !after.xattrs);
            world.run(|tx| xattr::remove(tx, &take::<C>(fid, root())));
            assert_eq!((seen::<C>(&mut world, fid), in_attributes(&mut world, fid)), (none, [None, None]));
            assert_eq!(world.errno(|tx| xattr::remove(tx, &take::<C>(fid, root()))), Errno::ENODATA);
        }
    }

    #[test]
    fn a_choice_is_set_seen_and_removed_and_each_moves_the_change_time() {
        check_set_seen_removed::<CommitLevel>(0, &[("memory", "memory"), ("data", "data"), ("commit", "commit")]);
        check_set_seen_removed::<InlineBound>(1, &[("0", "0"), ("4096", "4KiB"), ("16k", "16KiB")]);
    }

    fn check_refusals<C: FileChoice>(valid: &str, invalid: &[&str], usage: &str) {
        let mut world = World::new();
        let file = world.file(Fid::ROOT, "f");
        for wrong in invalid {
            let refused = world.attempt(|tx| xattr::set(tx, &put::<C>(file, wrong, 0)));
            let words = format!("{refused:?}");
            assert!(words.contains("EINVAL") && words.contains(usage), "{wrong:?}: {words}");
        }
        assert_eq!(world.errno(|tx| xattr::set(tx, &put::<C>(file, valid, REPLACE))), Errno::ENODATA);
        give::<C>(&mut world, file, valid);
        assert_eq!(world.errno(|tx| xattr::set(tx, &put::<C>(file, valid, CREATE))), Errno::EEXIST);
        let request = SetXattr { caller: user(7), ..put::<C>(file, valid, 0) };
        assert_eq!(world.errno(|tx| xattr::set(tx, &request)), Errno::EACCES);
        assert_eq!(world.errno(|tx| xattr::remove(tx, &take::<C>(file, user(7)))), Errno::EACCES);
        let link = link_in(&mut world, Fid::ROOT);
        assert_eq!(world.errno(|tx| xattr::set(tx, &put::<C>(link, valid, 0))), Errno::EPERM);
        world.has_space = false;
        assert_eq!(world.errno(|tx| xattr::set(tx, &put::<C>(file, valid, 0))), Errno::ENOSPC);
        world.run(|tx| xattr::remove(tx, &take::<C>(file, root())));
    }

    fn link_in(world: &mut World, dir: Fid) -> Fid {
        let mut link = world.make(&root(), dir, "l", S_IFLNK | 0o777);
        link.symlink = "x".into();
        world.run(|tx| ops::make::apply(tx, &link));
        link.fid
    }

    #[test]
    fn an_invalid_choice_or_one_of_another_owner_is_refused() {
        let no_level = ["", "inherit", "Commit", "commit\n", "commit\0"];
        check_refusals::<CommitLevel>("data", &no_level, "commit, data or memory");
        let no_bound = ["", "inherit", "17KiB", "1000", "4KiB\n", "4KiB\0"];
        check_refusals::<InlineBound>("1KiB", &no_bound, "up to 16KiB");
    }

    fn check_inherited<C: FileChoice>(own: usize, value: &str) {
        let mut world = World::new();
        let dir = world.mkdir(Fid::ROOT, "d");
        let before = world.file(dir, "before");
        give::<C>(&mut world, dir, value);
        let (file, below) = (world.file(dir, "f"), world.mkdir(dir, "below"));
        let deeper = world.file(below, "f");
        let link = link_in(&mut world, dir);
        for fid in [file, below, deeper] {
            assert_eq!(in_attributes(&mut world, fid)[own].as_deref(), Some(value));
        }
        for fid in [before, link, Fid::ROOT] {
            assert_eq!(in_attributes(&mut world, fid), [None, None]);
        }
    }

    #[test]
    fn files_and_directories_have_the_choice_of_where_they_are_made_and_links_none() {
        check_inherited::<CommitLevel>(0, "memory");
        check_inherited::<InlineBound>(1, "2KiB");
    }

    #[test]
    fn a_bound_and_a_level_leave_each_other_alone() {
        let mut world = World::new();
        let dir = world.mkdir(Fid::ROOT, "d");
        give_level(&mut world, dir, CommitLevel::Memory);
        give::<InlineBound>(&mut world, dir, "0");
        let file = world.file(dir, "f");
        let both = |inode: Inode| (inode.level, inode.inline_bound.map(InlineBound::bytes));
        for fid in [dir, file] {
            assert_eq!(both(world.run(|tx| tx.inode(fid))), (Some(CommitLevel::Memory), Some(0)));
        }
        world.run(|tx| xattr::remove(tx, &take::<CommitLevel>(dir, root())));
        assert_eq!(both(world.run(|tx| tx.inode(dir))), (None, Some(0)));
        give_level(&mut world, dir, CommitLevel::Data);
        world.run(|tx| xattr::remove(tx, &take::<InlineBound>(dir, root())));
        assert_eq!(both(world.run(|tx| tx.inode(dir))), (Some(CommitLevel::Data), None));
    }

    /// Whether the reply to the last operation waits for its commit.
    fn waits(world: &World) -> bool {
        world.effects.durable
    }

    #[test]
    fn replies_to_changes_of_files_of_level_commit_wait_for_the_commit() {
        let mut world = World::new();
        let (dir, other) = (world.mkdir(Fid::ROOT, "d"), world.mkdir(Fid::ROOT, "other"));
        assert!(!waits(&world));
        give_level(&mut world, dir, CommitLevel::Commit);
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
        world.run(|tx| xattr::remove(tx, &take::<CommitLevel>(dir, root())));
        assert!(waits(&world), "the last change under it");
        world.file(dir, "h");
        assert!(!waits(&world));
    }

    #[test]
    fn writing_open_at_level_commit_waits_reading_open_does_not() {
        let mut world = World::new();
        let request = world.create(&root(), Fid::ROOT, "f", 1);
        let fid = world.run(|tx| ops::create::apply(tx, &request)).attr.fid;
        give_level(&mut world, fid, CommitLevel::Commit);
        world.close(fid, 1, true);
        assert!(waits(&world));
        // A handle that the session opens again is known: the open only requests a lease.
        let (write, read) = (open_flags::WRITE, open_flags::READ);
        for (flags, handle, is_new) in [(write, 2, true), (write, 2, false), (read, 3, true), (write, 3, true)] {
            world.run(|tx| ops::open::apply(tx, &Open { caller: root(), fid, flags, handle }));
            assert_eq!(waits(&world), flags == write && is_new, "{flags} {handle}");
        }
    }

    #[test]
    fn a_directory_of_level_commit_gets_no_entries_write_lease() {
        let mut world = World::new();
        for (level, leased) in [(CommitLevel::Data, true), (CommitLevel::Commit, false)] {
            let request = world.make(&root(), Fid::ROOT, level.name(), S_IFDIR | 0o755);
            let dir = world.run(|tx| ops::make::apply(tx, &request)).attr.fid;
            give_level(&mut world, dir, level);
            let flags = world.run(|tx| {
                let inode = tx.inode(dir)?;
                tx.lease(dir, lease_flags::INODE);
                Ok(tx.lease_entries_write(dir, &inode, lease_flags::NAMES))
            });
            assert_eq!(flags == lease_flags::NAMES, leased, "{level:?}");
        }
    }
}
