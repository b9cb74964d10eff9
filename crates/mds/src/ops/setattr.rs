//! Changes attributes; a new size truncates. If a time is set while other clients write, the OSTs are notified before
//! the reply: those writers do not know of it, and what they write afterwards moves the time.

use forebay_env::{Bug, planted};
use forebay_proto::{
    Errno, ErrorReply, Fid,
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
    if request.mask == set_attr::ACCESSED {
        return accessed(tx, request);
    }
    tx.wait_for_truncate(request.fid)?;
    if !is_delayed_valid(tx, request) {
        let words = "attributes were set under a lease on the file's data that has ended since";
        return Err(ErrorReply::new(Errno::ESTALE, words).into());
    }
    let mut inode = tx.inode(request.fid)?;
    let before = inode.attr_epoch;
    set(tx, request, &mut inode)?;
    tx.put_inode_touched(request.fid, &mut inode);
    if inode.attr_epoch > before && is_written_by_others(tx, request.fid, &inode) && !planted(Bug::SetTimeNotReported) {
        tx.log_set_time(request.fid, &inode);
    }
    Ok(tx.entry_reply(request.fid, &inode))
}

/// True if other sessions may write to the file's objects under the attribute epoch that they know.
fn is_written_by_others(tx: &Tx<'_>, fid: Fid, inode: &Inode) -> bool {
    inode.is_file() && inode.written && !inode.inline && !tx.memory.opens.is_sole_writer(fid, tx.origin.session)
}

/// Sets only the access time (deferred atime). No other session waits for that, and no lease is recalled.
fn accessed(tx: &mut Tx<'_>, request: &SetAttr) -> Step<EntryReply> {
    let mut inode = tx.inode(request.fid)?;
    if access(request, &mut inode) {
        tx.put_inode_accessed(request.fid, &inode);
    }
    Ok(tx.entry_reply(request.fid, &inode))
}

/// Takes over the client's access time if it is later.
pub fn access(request: &SetAttr, inode: &mut Inode) -> bool {
    let is_later = request.mask & set_attr::ACCESSED != 0 && request.atime_ns > inode.atime_ns;
    if is_later {
        inode.atime_ns = request.atime_ns;
        if planted(Bug::AccessMovesChangeTime) {
            inode.ctime_ns = request.atime_ns;
        }
    }
    is_later
}

/// Whether a delayed SETATTR is valid: the client held a data lease all along, so no other session could see the file.
pub fn is_delayed_valid(tx: &Tx<'_>, request: &SetAttr) -> bool {
    request.at_ns == 0 || tx.origin.is_replay || tx.memory.leases.data.has(tx.origin.session, request.fid)
}

/// Changes `inode` as requested; the caller writes its row. Errors: those of [`apply`].
pub fn set(tx: &mut Tx<'_>, request: &SetAttr, inode: &mut Inode) -> Step<()> {
    check(tx, request, inode)?;
    let has = |bit| request.mask & bit != 0;
    if has(set_attr::UID | set_attr::GID) {
        change_owner(request, inode);
    }
    if has(set_attr::MODE) {
        let bits = perm::chmod(&request.caller, inode.gid, request.mode);
        let bits = tx.tenant.as_ref().map_or(bits, |tenant| tenant.strip_setgid(inode.gid, bits));
        inode.mode = inode.mode & !0o7777 | bits;
        xattr::chmod_acl(tx, request.fid, inode)?;
    }
    if has(set_attr::SIZE) {
        tx.resize(request.fid, inode, request.size, request.caller.uid == 0)?;
    }
    change_times(tx, request, inode);
    match request.at_ns {
        0 => inode.changed_at(tx.origin.now_ns),
        // No client was shown a later one. A client that lost the reply and repeats the request may send a later time than at
        // first.
        told => inode.ctime_ns = told,
    }
    Ok(())
}

fn check(tx: &Tx<'_>, request: &SetAttr, inode: &Inode) -> Result<(), Errno> {
    let (caller, has) = (&request.caller, |bits| request.mask & bits != 0);
    if has(set_attr::MODE | set_attr::ATIME | set_attr::MTIME) {
        perm::owner(caller, inode)?;
    }
    if has(set_attr::UID | set_attr::GID) {
        let given = |bit, value| if request.mask & bit != 0 { Some(value) } else { None };
        let (uid, gid) = (given(set_attr::UID, request.uid), given(set_attr::GID, request.gid));
        perm::chown(caller, inode, uid, gid)?;
        tx.tenant.as_ref().map_or(Ok(()), |tenant| tenant.check_owner(inode, uid, gid))?;
    }
    if has(set_attr::ATIME_NOW | set_attr::MTIME_NOW) && perm::owner(caller, inode).is_err() {
        perm::access(caller, inode, perm::WRITE)?;
    }
    if has(set_attr::SIZE) && !came_through_writer(tx, request) {
        perm::access(caller, inode, perm::WRITE)?;
    }
    Ok(())
}

/// ftruncate(2): a caller with the file open for writing needs no further permission.
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
    use forebay_proto::{SessionId, message::Caller};

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
    fn a_delayed_setattr_without_its_lease_is_estale_and_sets_nothing() {
        let mut world = World::new();
        let fid = owned(&mut world, 7);
        let told = SetAttr { mode: 0o600, at_ns: 12, ..request(root(), fid, set_attr::MODE) };
        assert_eq!(world.errno(|tx| apply(tx, &told)), Errno::ESTALE);
        world.memory.leases.data.grant(world.session, fid);
        let attr = world.run(|tx| apply(tx, &told)).attr;
        assert_eq!((attr.mode, attr.ctime_ns), (0o100_600, 12));
        world.memory.leases.data.end(world.session, fid);
        world.is_replay = true;
        world.run(|tx| apply(tx, &told));
    }

    #[test]
    fn an_access_moves_the_access_time_forward_and_nothing_else() {
        let mut world = World::new();
        let fid = owned(&mut world, 7);
        let before = world.run(|tx| tx.inode(fid));
        let other = forebay_proto::SessionId(world.session.0 + 1);
        world.memory.leases.grant(other, fid);
        let accessed = |atime_ns| SetAttr { atime_ns, ..request(root(), fid, set_attr::ACCESSED) };
        let later = before.atime_ns + 5;
        assert_eq!(world.run(|tx| apply(tx, &accessed(later))).attr.atime_ns, later);
        assert!(world.effects.changes().all(|changed| changed != fid), "others keep what they know");
        assert_eq!(world.run(|tx| apply(tx, &accessed(later - 1))).attr.atime_ns, later);
        let after = world.run(|tx| tx.inode(fid));
        assert_eq!(after, Inode { atime_ns: later, ..before });
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
    fn osts_are_notified_of_a_time_that_is_set_while_others_write_and_of_nothing_else() {
        let mut world = World::new();
        let create = world.create(&user(7), Fid::ROOT, "a", 3);
        let fid = world.run(|tx| crate::ops::create::apply(tx, &create)).attr.fid;
        let explicit = SetAttr { mtime_ns: 5, ..request(root(), fid, set_attr::MTIME) };
        let now = request(root(), fid, set_attr::MTIME_NOW);
        let mode = SetAttr { mode: 0o600, ..request(root(), fid, set_attr::MODE | set_attr::ATIME) };
        for (session, request, told) in [(1, &explicit, 0), (2, &mode, 0), (2, &explicit, 1)] {
            world.session = SessionId(session);
            world.run(|tx| apply(tx, request));
            assert_eq!(world.count(keys::TRUNCATE), told, "session {session}: {request:?}");
        }
        assert_eq!(world.effects.truncate, Some(fid));
        world.run(|tx| {
            tx.delete(keys::truncate(fid));
            Ok(())
        });
        world.run(|tx| apply(tx, &now));
        assert_eq!(world.count(keys::TRUNCATE), 1);
    }

    #[test]
    fn the_change_time_does_not_go_back_with_a_clock_that_is_behind() {
        let mut world = World::new();
        let fid = owned(&mut world, 7);
        let ahead = world.now_ns + 5_000_000_000;
        world.run(|tx| {
            let mut inode = tx.inode(fid)?;
            inode.ctime_ns = ahead;
            tx.put_inode(fid, &mut inode);
            Ok(())
        });
        let changes =
            [SetAttr { mode: 0o600, ..request(root(), fid, set_attr::MODE) }, request(root(), fid, set_attr::SIZE)];
        for change in changes {
            assert!(world.run(|tx| apply(tx, &change)).attr.ctime_ns >= ahead, "{change:?}");
        }
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
