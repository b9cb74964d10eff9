//! Adds another name to a file.

use forebay_proto::{
    Errno, limits,
    message::{EntryReply, Link},
};

use crate::{dirent::Entry, halt::Step, inode::S_IFMT, keys, keys::Key, name, perm, tx::Tx};

/// Rows worth prefetching together.
pub fn keys(request: &Link) -> [Key; 2] {
    [keys::inode(request.parent), keys::inode(request.fid)]
}

/// Errors: EEXIST, EPERM for directories, EMLINK, ENOENT for a file that lost its last name or may never have one,
/// EACCES, ENOSPC.
pub fn apply(tx: &mut Tx<'_>, request: &Link) -> Step<EntryReply> {
    let mut dir = tx.dir(request.parent)?;
    name::check(&request.name, Errno::EEXIST)?;
    perm::access(&request.caller, &dir, perm::SEARCH)?;
    tx.wait_for_truncate(request.fid)?;
    let mut inode = tx.inode(request.fid)?;
    let found = tx.find(request.parent, &dir, &request.name)?;
    if found.entry().is_some() {
        return Err(Errno::EEXIST.into());
    }
    if inode.is_dir() {
        return Err(Errno::EPERM.into());
    }
    tx.may_add(&request.caller, &dir)?;
    Tx::check_project(&dir, &inode)?;
    match inode.nlink {
        0 => tx.adopt_orphan(request.fid)?,
        limits::LINKS.. => return Err(Errno::EMLINK.into()),
        _ => {}
    }
    inode.nlink += 1;
    inode.changed_at(tx.origin.now_ns);
    let entry = Entry { fid: request.fid, mode: inode.mode & S_IFMT, name: request.name.clone() };
    tx.add_name(&found, entry)?;
    tx.put_inode_touched(request.fid, &mut inode);
    tx.put_changed_dir(request.parent, &mut dir, 1, 0);
    let parent = tx.cached_parent(request.parent)?;
    Ok(EntryReply { parent, ..tx.entry_reply(request.fid, &inode) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, root};
    use forebay_proto::Fid;

    fn link(fid: Fid, name: &str) -> Link {
        Link { caller: root(), fid, parent: Fid::ROOT, name: name.to_owned().into() }
    }

    #[test]
    fn both_names_are_the_same_file() {
        let mut world = World::new();
        let fid = world.file(Fid::ROOT, "a");
        assert_eq!(world.run(|tx| apply(tx, &link(fid, "b"))).attr.nlink, 2);
        let lookup = forebay_proto::message::Lookup { caller: root(), parent: Fid::ROOT, name: "b".into() };
        assert_eq!(world.run(|tx| crate::ops::lookup::apply(tx, &lookup)).entry.unwrap().attr.fid, fid);
        assert_eq!(world.memory.inodes, 2);
    }

    #[test]
    fn directories_full_counts_and_taken_names_are_refused() {
        let mut world = World::new();
        let (dir, file) = (world.mkdir(Fid::ROOT, "d"), world.file(Fid::ROOT, "a"));
        assert_eq!(world.errno(|tx| apply(tx, &link(dir, "x"))), Errno::EPERM);
        assert_eq!(world.errno(|tx| apply(tx, &link(file, "d"))), Errno::EEXIST);
        world.run(|tx| {
            let mut inode = tx.inode(file)?;
            inode.nlink = limits::LINKS;
            tx.put_inode(file, &mut inode);
            Ok(())
        });
        assert_eq!(world.errno(|tx| apply(tx, &link(file, "x"))), Errno::EMLINK);
    }
}
