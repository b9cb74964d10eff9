//! Makes a regular file and opens it, or opens the one that is there.

use forebay_proto::{
    Errno, Fid, Layout,
    message::{Create, LayoutSpec, OpenReply, UMASK_SHIFT, open_flags},
};

use super::{entry::NewInode, open};
use crate::{
    halt::{Halt, Step},
    inode::{Body, Inode, S_IFREG},
    keys,
    keys::Key,
    name, perm, placement,
    tx::Tx,
};

/// Rows worth prefetching together.
pub fn keys(request: &Create) -> [Key; 2] {
    [keys::inode(request.parent), keys::inode(request.fid)]
}

/// Errors: EEXIST (`EXCLUSIVE`), EISDIR, ELOOP, EACCES, ENOENT in a removed directory, ENOSPC.
pub fn apply(tx: &mut Tx<'_>, request: &Create) -> Step<OpenReply> {
    let mut dir = tx.dir(request.parent)?;
    name::check(&request.name, Errno::EISDIR)?;
    perm::access(&request.caller, &dir, perm::SEARCH)?;
    let found = tx.find(request.parent, &dir, &request.name)?;
    if let Some(entry) = found.entry() {
        if request.flags & open_flags::EXCLUSIVE != 0 {
            return Err(Errno::EEXIST.into());
        }
        return open::existing(tx, &request.caller, entry.fid, request.flags, request.handle, true);
    }
    tx.may_add(&request.caller, &dir)?;
    tx.check_new_fid(request.fid)?;
    let layout = choose_layout(tx, request.fid, &dir, &request.layout, 1)?;
    let writes = request.handle != 0 && request.flags & open_flags::WRITE != 0;
    let new = NewInode {
        caller: &request.caller,
        fid: request.fid,
        mode: S_IFREG | request.mode & 0o7777,
        umask: request.mode >> UMASK_SHIFT & 0o777,
        body: Body::File(layout),
        written: writes,
    };
    let inode = tx.add_inode(&found, &mut dir, &request.name, new)?;
    if request.handle != 0 {
        open::add_handle(tx, request.fid, request.handle, request.flags);
    }
    Ok(tx.open_reply(request.fid, &inode, writes, true))
}

/// The layout of `fid` in `dir`: always the same one for the same transno.
pub fn choose_layout(tx: &Tx<'_>, fid: Fid, dir: &Inode, asked: &LayoutSpec, generation: u32) -> Step<Layout> {
    if tx.memory.placing && !tx.origin.is_replay {
        return Err(Halt::Placing);
    }
    let default = &tx.memory.default_layout;
    let inherited = dir.dir().and_then(|dir| dir.default_layout.as_ref());
    let spec = placement::resolve(asked, inherited, default.stripe_bytes, default.stripe_count);
    let wheel = tx.memory.placement.at(tx.origin.transno).ok_or_else(|| {
        Halt::Fail(forebay_proto::ErrorReply::new(Errno::ENOSPC, "no OST is known yet; see `forebay status`"))
    })?;
    Ok(placement::choose(fid, &spec, wheel, generation)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, root, user};
    use forebay_proto::message::attr_flags;

    #[test]
    fn a_new_file_has_an_inode_a_name_a_layout_and_a_handle() {
        let mut world = World::new();
        let request = world.create(&user(7), Fid::ROOT, "a", 1);
        let reply = world.run(|tx| apply(tx, &request));
        assert!(reply.created);
        assert_eq!(
            (reply.attr.uid, reply.attr.nlink, reply.attr.flags),
            (7, 1, attr_flags::SIZE_ON_OST | attr_flags::SOLE_WRITER)
        );
        assert_eq!(reply.layout.unwrap().generation, 1);
        assert_eq!(world.memory.opens.count(request.fid).writers, 1);
        assert_eq!((world.count(keys::HANDLE), world.memory.inodes), (1, 2));
    }

    #[test]
    fn an_existing_file_is_opened_unless_it_must_be_new() {
        let mut world = World::new();
        let fid = world.file(Fid::ROOT, "a");
        let mut request = world.create(&root(), Fid::ROOT, "a", 1);
        let reply = world.run(|tx| apply(tx, &request));
        assert_eq!((reply.created, reply.attr.fid), (false, fid));
        request.flags |= open_flags::EXCLUSIVE;
        assert_eq!(world.errno(|tx| apply(tx, &request)), Errno::EEXIST);
    }

    #[test]
    fn a_replay_gives_the_same_layout_whatever_the_osts_are_like_now() {
        let mut world = World::new();
        let request = world.create(&root(), Fid::ROOT, "a", 0);
        let before = world.rows.clone();
        let first = world.run(|tx| apply(tx, &request)).layout;
        world.rows = before;
        world
            .memory
            .placement
            .push(forebay_proto::Transno(1 << 30), &crate::placement::Table { weights: [(9, 1)].into() });
        assert_eq!(world.run(|tx| apply(tx, &request)).layout, first);
    }

    #[test]
    fn a_foreign_fid_a_full_target_and_a_closed_directory_refuse() {
        let mut world = World::new();
        let mut request = world.create(&user(7), Fid::ROOT, "a", 0);
        request.fid.low += 1 << 20;
        assert_eq!(world.errno(|tx| apply(tx, &request)), Errno::EINVAL);
        let request = world.create(&user(7), Fid::ROOT, "a", 0);
        world.has_room = false;
        assert_eq!(world.errno(|tx| apply(tx, &request)), Errno::ENOSPC);
        world.has_room = true;
        let dir = world.mkdir(Fid::ROOT, "d");
        let request = world.create(&user(7), dir, "a", 0);
        assert_eq!(world.errno(|tx| apply(tx, &request)), Errno::EACCES);
    }

    #[test]
    fn a_directory_of_that_name_is_no_file() {
        let mut world = World::new();
        world.mkdir(Fid::ROOT, "d");
        let request = world.create(&root(), Fid::ROOT, "d", 1);
        assert_eq!(world.errno(|tx| apply(tx, &request)), Errno::EISDIR);
    }

    #[test]
    fn the_directory_changes_its_times_and_its_count() {
        let mut world = World::new();
        world.file(Fid::ROOT, "a");
        let dir = world.run(|tx| tx.inode(Fid::ROOT));
        assert_eq!(dir.dir().unwrap().entries, 1);
        assert_eq!(dir.mtime_ns, world.now_ns - 1_000_000_000);
    }
}
