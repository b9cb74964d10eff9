//! Changes attributes; a new size truncates.

use forebay_proto::{
    Errno, ErrorReply,
    message::{EntryReply, SetAttr, open_flags, set_attr},
};

use super::xattr;
use crate::{halt::Step, inode::Inode, keys, keys::Key, perm, tx::Tx};

/// Rows worth prefetching together.
pub fn keys(request: &SetAttr) -> [Key; 1] {
    [keys::inode(request.fid)]
}

/// Errors: EPERM, EACCES, EISDIR, EINVAL, EFBIG, ESTALE.
pub fn apply(tx: &mut Tx<'_>, request: &SetAttr) -> Step<EntryReply> {
    tx.wait_for_truncate(request.fid)?;
    if !may_be_told(tx, request) {
        let words = "attributes were set under a lease on the file's data that has ended since";
        return Err(ErrorReply::new(Errno::ESTALE, words).into());
    }
    let mut inode = tx.inode(request.fid)?;
    set(tx, request, &mut inode)?;
    tx.put_inode_touched(request.fid, &mut inode);
    Ok(tx.entry_reply(request.fid, &inode))
}

/// Whether the client may have answered it: nobody else could see the file, nor can now.
pub fn may_be_told(tx: &Tx<'_>, request: &SetAttr) -> bool {
    request.at_ns == 0 || tx.origin.is_replay || tx.memory.kept.data.has(tx.origin.session, request.fid)
}

/// Changes `inode`, which is then to be put, as asked for. Errors: those of [`apply`].
pub fn set(tx: &mut Tx<'_>, request: &SetAttr, inode: &mut Inode) -> Step<()> {
    check(tx, request, inode)?;
    let has = |bit| request.mask & bit != 0;
    if has(set_attr::UID | set_attr::GID) {
        change_owner(request, inode);
    }
    if has(set_attr::MODE) {
        inode.mode = inode.mode & !0o7777 | perm::chmod(&request.caller, inode.gid, request.mode);
        xattr::chmod_acl(tx, request.fid, inode)?;
    }
    if has(set_attr::SIZE) {
        tx.resize(request.fid, inode, request.size, request.caller.uid == 0)?;
    }
    change_times(tx, request, inode);
    inode.ctime_ns = match request.at_ns {
        0 => tx.origin.now_ns,
        // Nobody was shown a later one: a replay may have made the file later than it was made at first.
        told => told,
    };
    Ok(())
}

fn check(tx: &Tx<'_>, request: &SetAttr, inode: &Inode) -> Result<(), Errno> {
    let (caller, has) = (&request.caller, |bits| request.mask & bits != 0);
    if has(set_attr::MODE | set_attr::ATIME | set_attr::MTIME) {
        perm::owner(caller, inode)?;
    }
    if has(set_attr::UID | set_attr::GID) {
        let given = |bit, value| if request.mask & bit != 0 { Some(value) } else { None };
        perm::chown(caller, inode, given(set_attr::UID, request.uid), given(set_attr::GID, request.gid))?;
    }
    if has(set_attr::ATIME_NOW | set_attr::MTIME_NOW) && perm::owner(caller, inode).is_err() {
        perm::access(caller, inode, perm::WRITE)?;
    }
    if has(set_attr::SIZE) && !came_through_writer(tx, request) {
        perm::access(caller, inode, perm::WRITE)?;
    }
    Ok(())
}

/// ftruncate(2): who has the file open for writing needs no permission any more.
fn came_through_writer(tx: &Tx<'_>, request: &SetAttr) -> bool {
    let flags = tx.memory.opens.flags(request.fid, tx.origin.session, request.handle);
    request.handle != 0 && flags.is_some_and(|flags| flags & open_flags::WRITE != 0)
}

fn change_owner(request: &SetAttr, inode: &mut Inode) {
    if request.mask & set_attr::UID != 0 {
        inode.uid = request.uid;
    }
    if request.mask & set_attr::GID != 0 {
        inode.gid = request.gid;
    }
    inode.mode = perm::drop_set_ids(inode.mode);
}

fn change_times(tx: &Tx<'_>, request: &SetAttr, inode: &mut Inode) {
    let (now_ns, has) = (tx.origin.now_ns, |bit| request.mask & bit != 0);
    if has(set_attr::ATIME) {
        inode.atime_ns = request.atime_ns;
    } else if has(set_attr::ATIME_NOW) {
        inode.atime_ns = now_ns;
    }
    if has(set_attr::MTIME) {
        inode.mtime_ns = request.mtime_ns;
    } else if has(set_attr::MTIME_NOW) {
        inode.mtime_ns = now_ns;
    }
    if has(set_attr::MTIME | set_attr::MTIME_NOW) {
        inode.attr_epoch += 1;
        inode.mtime_set = inode.is_file();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, root, user};
    use forebay_proto::{Fid, message::Caller};

    fn request(caller: Caller, fid: Fid, mask: u32) -> SetAttr {
        SetAttr { caller, fid, mask, mode: 0, uid: 0, gid: 0, size: 0, atime_ns: 0, mtime_ns: 0, handle: 0, at_ns: 0 }
    }

    fn owned(world: &mut World, uid: u32) -> Fid {
        let request = world.create(&user(uid), Fid::ROOT, "a", 0);
        world.run(|tx| crate::ops::create::apply(tx, &request)).attr.fid
    }

    #[test]
    fn the_owner_changes_the_mode_and_nobody_else() {
        let mut world = World::new();
        let fid = owned(&mut world, 7);
        let chmod = |caller| SetAttr { mode: 0o600, ..request(caller, fid, set_attr::MODE) };
        assert_eq!(world.errno(|tx| apply(tx, &chmod(user(8)))), Errno::EPERM);
        assert_eq!(world.run(|tx| apply(tx, &chmod(user(7)))).attr.mode, 0o100_600);
    }

    #[test]
    fn what_was_answered_without_the_lease_is_not_set() {
        let mut world = World::new();
        let fid = owned(&mut world, 7);
        let told = SetAttr { mode: 0o600, at_ns: 12, ..request(root(), fid, set_attr::MODE) };
        assert_eq!(world.errno(|tx| apply(tx, &told)), Errno::ESTALE);
        world.memory.kept.data.grant(world.session, fid);
        let attr = world.run(|tx| apply(tx, &told)).attr;
        assert_eq!((attr.mode, attr.ctime_ns), (0o100_600, 12));
        world.memory.kept.data.end(world.session, fid);
        world.is_replay = true;
        world.run(|tx| apply(tx, &told));
    }

    #[test]
    fn a_new_owner_loses_the_set_id_bits() {
        let mut world = World::new();
        let fid = owned(&mut world, 7);
        world.run(|tx| apply(tx, &SetAttr { mode: 0o6755, ..request(root(), fid, set_attr::MODE) }));
        let reply = world.run(|tx| apply(tx, &SetAttr { uid: 8, ..request(root(), fid, set_attr::UID) }));
        assert_eq!((reply.attr.uid, reply.attr.gid, reply.attr.mode), (8, 7, 0o100_755));
    }

    #[test]
    fn explicit_times_are_the_owners_and_raise_the_epoch_while_now_is_every_writers() {
        let mut world = World::new();
        let fid = owned(&mut world, 7);
        let explicit = |caller| SetAttr { mtime_ns: 5, ..request(caller, fid, set_attr::MTIME) };
        let now = |caller| request(caller, fid, set_attr::MTIME_NOW | set_attr::ATIME_NOW);
        assert_eq!(world.errno(|tx| apply(tx, &explicit(user(8)))), Errno::EPERM);
        assert_eq!(world.errno(|tx| apply(tx, &now(user(8)))), Errno::EACCES);
        let reply = world.run(|tx| apply(tx, &explicit(user(7))));
        assert_eq!((reply.attr.mtime_ns, reply.attr.attr_epoch, reply.attr.ctime_ns), (5, 1, world.now_ns));
        world.run(|tx| apply(tx, &SetAttr { mode: 0o666, ..request(root(), fid, set_attr::MODE) }));
        assert_eq!(world.run(|tx| apply(tx, &now(user(8)))).attr.mtime_ns, world.now_ns);
    }

    #[test]
    fn a_size_needs_write_permission_or_a_handle_that_has_it() {
        let mut world = World::new();
        let create = world.create(&user(7), Fid::ROOT, "a", 3);
        let fid = world.run(|tx| crate::ops::create::apply(tx, &create)).attr.fid;
        let cut = SetAttr { size: 100, ..request(user(8), fid, set_attr::SIZE) };
        assert_eq!(world.errno(|tx| apply(tx, &cut)), Errno::EACCES);
        let reply = world.run(|tx| apply(tx, &SetAttr { handle: 3, ..cut }));
        assert_eq!((reply.attr.size, reply.attr.truncate_epoch), (100, 1));
        assert_eq!((world.count(keys::TRUNCATE), world.effects.truncate), (1, Some(fid)));
    }

    #[test]
    fn a_file_never_opened_for_writing_is_resized_without_the_osts() {
        let mut world = World::new();
        let fid = owned(&mut world, 7);
        let reply = world.run(|tx| apply(tx, &SetAttr { size: 9, ..request(user(7), fid, set_attr::SIZE) }));
        assert_eq!((reply.attr.size, reply.attr.truncate_epoch, world.effects.truncate), (9, 1, None));
    }

    #[test]
    fn directories_and_endless_files_have_no_such_size() {
        let mut world = World::new();
        let (dir, file) = (world.mkdir(Fid::ROOT, "d"), owned(&mut world, 7));
        assert_eq!(world.errno(|tx| apply(tx, &request(root(), dir, set_attr::SIZE))), Errno::EISDIR);
        let endless = SetAttr { size: (1 << 60) + 1, ..request(root(), file, set_attr::SIZE) };
        assert_eq!(world.errno(|tx| apply(tx, &endless)), Errno::EFBIG);
    }
}
