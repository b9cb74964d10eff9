//! Creates a directory, symbolic link, fifo, socket or device.

use bytes::Bytes;
use forebay_proto::{
    Errno, ErrorReply,
    message::{EntryReply, Make, UMASK_SHIFT, lease_flags},
};

use super::entry::NewInode;
use crate::{
    dirent,
    halt::Step,
    inode::{Body, Directory, Inode, S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFSOCK},
    keys,
    keys::Key,
    limits, name, perm,
    tx::Tx,
};

/// Rows worth prefetching together.
pub fn keys(request: &Make) -> [Key; 2] {
    [keys::inode(request.parent), keys::inode(request.fid)]
}

/// Errors: EEXIST, EACCES, EPERM for a device if the caller is not user 0, ENOENT in a removed directory, ENOSPC,
/// EMLINK.
pub fn apply(tx: &mut Tx<'_>, request: &Make) -> Step<EntryReply> {
    tx.answered_at(request.parent, request.at_ns)?;
    let mut dir = tx.dir(request.parent)?;
    name::check(&request.name, Errno::EEXIST)?;
    perm::access(&request.caller, &dir, perm::SEARCH)?;
    let found = tx.find(request.parent, &dir, &request.name)?;
    if found.entry().is_some() {
        return Err(Errno::EEXIST.into());
    }
    tx.may_add(&request.caller, &dir)?;
    tx.check_new_fid(request.fid)?;
    let body = body(tx, request, &dir)?;
    let umask = request.mode >> UMASK_SHIFT & 0o777;
    let (caller, mode) = (&request.caller, request.mode & 0o177_777);
    let new = NewInode { caller, fid: request.fid, mode, umask, body, written: false };
    let inode = tx.add_inode(&found, &mut dir, &request.name, new)?;
    let parent = tx.cached_parent(request.parent)?;
    let reply = tx.leased_reply(request.fid, &inode);
    let mut leases = tx.lease_exclusive(request.fid, request.parent, reply.leases);
    leases |= tx.lease_entries_write(request.parent, &dir, lease_flags::PARENT_ENTRIES_WRITE);
    if inode.is_dir() {
        leases |= tx.lease_entries_write(request.fid, &inode, lease_flags::NAMES);
    }
    Ok(EntryReply { parent, leases, ..reply })
}

fn body(tx: &Tx<'_>, request: &Make, dir: &Inode) -> Result<Body, ErrorReply> {
    match request.mode & S_IFMT {
        S_IFDIR => Ok(Body::Dir(Directory {
            parent: request.parent,
            seed: dirent::seed(tx.memory.secret, request.fid),
            entries: 0,
            default_layout: dir.dir().and_then(|dir| dir.default_layout.clone()),
        })),
        S_IFLNK => symlink(&request.symlink).map(Body::Symlink).map_err(Into::into),
        S_IFIFO | S_IFSOCK => Ok(Body::Special(0)),
        // Any user may make an overlay's whiteout (Linux 5.8).
        S_IFCHR if request.rdev == 0 => Ok(Body::Special(0)),
        S_IFCHR | S_IFBLK if request.caller.uid == 0 => Ok(Body::Special(request.rdev)),
        S_IFCHR | S_IFBLK => Err(Errno::EPERM.into()),
        _ => Err(ErrorReply::new(Errno::EINVAL, format!("mode {:o} names no type that Make makes", request.mode))),
    }
}

fn symlink(target: &Bytes) -> Result<Bytes, Errno> {
    match target.len() {
        0 => Err(Errno::ENOENT),
        length if length > limits::SYMLINK_BYTES => Err(Errno::ENAMETOOLONG),
        _ if target.contains(&0) => Err(Errno::EINVAL),
        _ => Ok(target.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, root, user};
    use forebay_proto::{Fid, message::LayoutSpec};

    #[test]
    fn a_directory_counts_as_a_link_of_its_parent() {
        let mut world = World::new();
        let fid = world.mkdir(Fid::ROOT, "d");
        let (parent, dir) = world.run(|tx| Ok((tx.inode(Fid::ROOT)?, tx.inode(fid)?)));
        assert_eq!((parent.nlink, dir.nlink), (3, 2));
        assert_eq!(dir.dir().unwrap().parent, Fid::ROOT);
    }

    #[test]
    fn a_directory_inherits_the_layout_of_its_parent() {
        let mut world = World::new();
        let spec = LayoutSpec { stripe_count: 2, ..LayoutSpec::inherit() };
        world.run(|tx| {
            let mut inode = tx.inode(Fid::ROOT)?;
            inode.dir_mut().unwrap().default_layout = Some(spec.clone());
            tx.put_inode(Fid::ROOT, &mut inode);
            Ok(())
        });
        let dir = world.mkdir(Fid::ROOT, "d");
        assert_eq!(world.run(|tx| tx.inode(dir)).dir().unwrap().default_layout, Some(spec));
        let file = world.file(dir, "f");
        assert_eq!(world.run(|tx| tx.inode(file)).layout().unwrap().osts().len(), 2);
    }

    #[test]
    fn devices_are_for_user_0_and_fifos_for_all() {
        let mut world = World::new();
        let mut request = world.make(&user(7), Fid::ROOT, "n", S_IFCHR | 0o600);
        request.rdev = 0x103;
        assert_eq!(world.errno(|tx| apply(tx, &request)), Errno::EPERM);
        request.caller = root();
        assert_eq!(world.run(|tx| apply(tx, &request)).attr.rdev, 0x103);
        let request = world.make(&user(7), Fid::ROOT, "p", S_IFIFO | 0o600);
        assert_eq!(world.run(|tx| apply(tx, &request)).attr.mode, S_IFIFO | 0o600);
    }

    #[test]
    fn symbolic_links_have_a_target_of_at_most_4095_bytes() {
        let mut world = World::new();
        let mut request = world.make(&user(7), Fid::ROOT, "l", S_IFLNK | 0o777);
        assert_eq!(world.errno(|tx| apply(tx, &request)), Errno::ENOENT);
        request.symlink = "x".repeat(4096).into();
        assert_eq!(world.errno(|tx| apply(tx, &request)), Errno::ENAMETOOLONG);
        request.symlink = "x".repeat(4095).into();
        assert_eq!(world.run(|tx| apply(tx, &request)).attr.size, 4095);
    }

    #[test]
    fn making_an_existing_name_or_a_dot_name_is_eexist() {
        let mut world = World::new();
        world.file(Fid::ROOT, "a");
        for name in ["a", ".", ".."] {
            let request = world.make(&root(), Fid::ROOT, name, S_IFDIR | 0o755);
            assert_eq!(world.errno(|tx| apply(tx, &request)), Errno::EEXIST, "{name}");
        }
    }
}
