//! Removes an empty directory.

use forebay_proto::{
    Errno, Fid,
    message::{Changed, Rmdir, lease_flags},
};

use crate::{halt::Step, inode::Inode, keys, keys::Key, name, perm, tx::Tx};

/// Rows worth prefetching together.
pub fn keys(request: &Rmdir) -> [Key; 1] {
    [keys::inode(request.parent)]
}

/// Errors: ENOENT, ENOTDIR, ENOTEMPTY, EINVAL for `.`, EACCES, EPERM in a sticky directory.
pub fn apply(tx: &mut Tx<'_>, request: &Rmdir) -> Step<Changed> {
    tx.answered_at(request.parent, request.at_ns)?;
    let mut dir = tx.dir(request.parent)?;
    let dots = if &request.name[..] == b"." { Errno::EINVAL } else { Errno::ENOTEMPTY };
    name::check(&request.name, dots)?;
    perm::access(&request.caller, &dir, perm::SEARCH)?;
    let found = tx.find(request.parent, &dir, &request.name)?;
    let fid = found.entry().ok_or(Errno::ENOENT)?.fid;
    let mut victim = tx.named_inode(fid)?;
    perm::remove(&request.caller, &dir, &victim)?;
    if !victim.is_dir() {
        return Err(Errno::ENOTDIR.into());
    }
    check_empty(tx, fid, &victim)?;
    tx.remove_name(&found)?;
    tx.drop_link(fid, &mut victim)?;
    tx.put_changed_dir(request.parent, &mut dir, -1, -1);
    let parents = tx.cached_parent(request.parent)?.into_iter().collect();
    tx.effects.removed = Some(fid);
    let leases = tx.lease_entries_write(request.parent, &dir, lease_flags::PARENT_ENTRIES_WRITE);
    Ok(Changed { fids: vec![fid], parents, leases })
}

/// Refuses (ENOTEMPTY) a directory with names. That it is empty may be another session's uncommitted change.
pub fn check_empty(tx: &Tx<'_>, fid: Fid, dir: &Inode) -> Step<()> {
    tx.share_names(fid);
    if dir.dir().is_some_and(|dir| dir.entries > 0) { Err(Errno::ENOTEMPTY.into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, root};
    use forebay_proto::message::{Open, open_flags};

    fn rmdir(parent: Fid, name: &str) -> Rmdir {
        Rmdir { caller: root(), parent, name: name.to_owned().into(), at_ns: 0 }
    }

    #[test]
    fn an_empty_directory_goes_and_its_parent_loses_a_link() {
        let mut world = World::new();
        let before = world.rows.len();
        world.mkdir(Fid::ROOT, "d");
        world.run(|tx| apply(tx, &rmdir(Fid::ROOT, "d")));
        assert_eq!((world.rows.len(), world.run(|tx| tx.inode(Fid::ROOT)).nlink), (before, 2));
    }

    #[test]
    fn rmdir_removes_only_an_empty_directory_by_its_own_name() {
        let mut world = World::new();
        let dir = world.mkdir(Fid::ROOT, "d");
        world.file(dir, "f");
        for (parent, name, errno) in [
            (Fid::ROOT, "d", Errno::ENOTEMPTY),
            (dir, "f", Errno::ENOTDIR),
            (dir, ".", Errno::EINVAL),
            (dir, "..", Errno::ENOTEMPTY),
            (dir, "x", Errno::ENOENT),
        ] {
            assert_eq!(world.errno(|tx| apply(tx, &rmdir(parent, name))), errno, "{name}");
        }
    }

    #[test]
    fn an_open_directory_can_be_removed_but_takes_no_more_names() {
        let mut world = World::new();
        let dir = world.mkdir(Fid::ROOT, "d");
        let open = Open { caller: root(), fid: dir, flags: open_flags::READ, handle: 1 };
        world.run(|tx| crate::ops::open::apply(tx, &open));
        world.run(|tx| apply(tx, &rmdir(Fid::ROOT, "d")));
        let request = world.create(&root(), dir, "f", 0);
        assert_eq!(world.errno(|tx| crate::ops::create::apply(tx, &request)), Errno::ENOENT);
        assert_eq!(world.count(keys::ORPHAN), 1);
    }
}
