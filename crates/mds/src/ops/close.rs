//! Closes a handle. A writer's close brings size and time, and attributes that were set meanwhile.

use forebay_proto::{
    Errno, ErrorReply,
    limits::FILE_BYTES,
    message::{Close, Closed, NEVER, lease_flags, open_flags, set_attr},
};

use super::{inline, setattr};
use crate::{halt::Step, inode::Inode, keys, keys::Key, tx::Tx};

/// Rows worth prefetching together.
pub fn keys(request: &Close) -> [Key; 1] {
    [keys::inode(request.fid)]
}

/// Errors: EBADF for a handle that is not open in this session; those of [`inline::take`]. With attributes also: EBUSY
/// for a file with a truncate in progress, or whose data is not leased to the client; those of [`setattr::apply`].
pub fn apply(tx: &mut Tx<'_>, request: &Close) -> Step<Closed> {
    let session = tx.origin.session;
    let flags = tx.memory.opens.flags(request.fid, session, request.handle).ok_or(Errno::EBADF)?;
    let writes = request.wrote || request.inline.is_some();
    if tx.tenant.is_some() && writes && flags & open_flags::WRITE == 0 {
        return Err(Errno::EBADF.into());
    }
    check_set(tx, request)?;
    let mut inode = tx.inode(request.fid)?;
    let before = inode.clone();
    let is_inline = inline::take(tx, request, &mut inode)?;
    if request.wrote {
        // The handle is removed in any case; a size that no file can have is ignored.
        let known = request.truncate_epoch == inode.truncate_epoch && request.size <= FILE_BYTES;
        let size = known.then_some(request.size);
        let mtime_ns = (request.attr_epoch == inode.attr_epoch).then_some(request.mtime_ns);
        learn(&mut inode, size, mtime_ns);
        inode.sparse |= request.sparse;
    }
    if let Some(set) = request.set.as_ref().filter(|set| set.mask != set_attr::ACCESSED) {
        let written_ns = inode.ctime_ns;
        setattr::set(tx, set, &mut inode)?;
        if set.mask & set_attr::MTIME == 0 {
            // The last write may be later than the SETATTR.
            inode.ctime_ns = inode.ctime_ns.max(written_ns);
        }
        tx.touch(keys::inode(request.fid));
    }
    // Inline bytes were written to no OST.
    let wrote = request.wrote && !is_inline;
    let ended = tx.drop_handle(request.fid, session, request.handle, &inode, wrote)?;
    if ended {
        return Ok(Closed { attr: None });
    }
    // An overwrite may change neither size nor time, but it changes the content: see `migrate`.
    let is_changed = request.wrote || inode != before;
    let is_accessed = request.set.as_ref().is_some_and(|set| setattr::access(set, &mut inode));
    if is_changed {
        tx.put_inode(request.fid, &mut inode);
    } else if is_accessed {
        tx.put_inode_accessed(request.fid, &inode);
    }
    // Until now no client could cache its attributes. The writer is the one most likely to read them next.
    let was_last = flags & open_flags::WRITE != 0 && tx.memory.opens.count(request.fid).writers == 1;
    let is_whole = was_last && !tx.memory.truncating.contains(&request.fid);
    let leases = if is_whole { tx.lease_anyway(request.fid, lease_flags::INODE) } else { 0 };
    Ok(Closed { attr: (leases != 0).then(|| tx.attr_of(request.fid, &inode, false)) })
}

/// Checks that the attributes may be set with this close.
fn check_set(tx: &Tx<'_>, request: &Close) -> Step<()> {
    let Some(set) = &request.set else { return Ok(()) };
    if set.fid != request.fid || set.mask & set_attr::SIZE != 0 {
        return Err(ErrorReply::new(Errno::EINVAL, "a close sets no size, nor anything of another file").into());
    }
    if set.mask == set_attr::ACCESSED {
        return Ok(());
    }
    // At the first execution there may have been no truncate in progress.
    let is_cut = tx.memory.truncating.contains(&request.fid) && !tx.origin.is_replay;
    if is_cut || !setattr::is_delayed_valid(tx, set) {
        return Err(ErrorReply::new(Errno::EBUSY, "the attributes have to be set by themselves").into());
    }
    Ok(())
}

/// Takes over what the OSTs reported of a file. Within a truncate epoch the size only grows, and within an attribute
/// epoch the time. But a write's time replaces one that a client set or that the file got at its creation, as that is
/// of another clock. If the modification time moves, the change time moves with it, and it never goes back.
pub fn learn(inode: &mut Inode, size: Option<u64>, mtime_ns: Option<i64>) {
    if let Some(size) = size {
        inode.size = inode.size.max(size);
    }
    if let Some(mtime_ns) = mtime_ns.filter(|ns| *ns != NEVER) {
        let told = if inode.mtime_set { mtime_ns } else { inode.mtime_ns.max(mtime_ns) };
        if told != inode.mtime_ns {
            inode.ctime_ns = mtime_ns.max(inode.ctime_ns.saturating_add(1));
        }
        (inode.mtime_ns, inode.mtime_set) = (told, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, root};
    use forebay_proto::{
        Fid, SessionId,
        message::{Open, SetAttr},
    };

    fn close(fid: Fid, handle: u64) -> Close {
        Close {
            fid,
            handle,
            wrote: true,
            size: 4096,
            truncate_epoch: 0,
            mtime_ns: i64::MAX / 2,
            attr_epoch: 0,
            sparse: false,
            inline: None,
            set: None,
        }
    }

    fn opened(world: &mut World, name: &str) -> Fid {
        let request = world.create(&root(), Fid::ROOT, name, 1);
        world.run(|tx| crate::ops::create::apply(tx, &request)).attr.fid
    }

    #[test]
    fn a_writer_brings_size_and_time() {
        let mut world = World::new();
        let fid = opened(&mut world, "a");
        world.run(|tx| apply(tx, &close(fid, 1)));
        let inode = world.run(|tx| tx.inode(fid));
        assert_eq!((inode.size, inode.mtime_ns), (4096, i64::MAX / 2));
        assert_eq!(world.count(keys::HANDLE), 0);
    }

    #[test]
    fn a_close_after_writes_in_place_changes_the_version_of_the_content() {
        let mut world = World::new();
        let fid = opened(&mut world, "a");
        world.run(|tx| apply(tx, &close(fid, 1)));
        for wrote in [true, false] {
            let before = world.run(|tx| tx.inode(fid));
            let open = Open { caller: root(), fid, flags: open_flags::WRITE, handle: 2 };
            world.run(|tx| crate::ops::open::apply(tx, &open));
            world.run(|tx| apply(tx, &Close { wrote, size: 1, mtime_ns: 1, ..close(fid, 2) }));
            let after = world.run(|tx| tx.inode(fid));
            assert_eq!((after.size, after.mtime_ns), (before.size, before.mtime_ns));
            assert_eq!(after.transno > before.transno, wrote);
        }
    }

    #[test]
    fn a_close_sets_a_deferred_atime_without_a_recall() {
        let mut world = World::new();
        let fid = opened(&mut world, "a");
        world.run(|tx| apply(tx, &close(fid, 1)));
        let open = Open { caller: root(), fid, flags: open_flags::READ, handle: 2 };
        world.run(|tx| crate::ops::open::apply(tx, &open));
        let before = world.run(|tx| tx.inode(fid));
        let atime_ns = before.atime_ns + 9;
        let set = SetAttr {
            caller: root(),
            fid,
            mask: set_attr::ACCESSED,
            mode: 0,
            uid: 0,
            gid: 0,
            size: 0,
            atime_ns,
            mtime_ns: 0,
            handle: 0,
            at_ns: 0,
        };
        let read = Close { wrote: false, attr_epoch: u64::MAX, set: Some(set), ..close(fid, 2) };
        world.run(|tx| apply(tx, &read));
        assert!(world.effects.changes().all(|changed| changed != fid));
        assert_eq!(world.run(|tx| tx.inode(fid)), Inode { atime_ns, ..before });
    }

    #[test]
    fn size_and_time_of_an_older_epoch_do_not_count() {
        let mut world = World::new();
        let fid = opened(&mut world, "a");
        world.run(|tx| {
            let mut inode = tx.inode(fid)?;
            (inode.truncate_epoch, inode.attr_epoch, inode.mtime_ns) = (1, 1, 5);
            tx.put_inode(fid, &mut inode);
            Ok(())
        });
        world.run(|tx| apply(tx, &close(fid, 1)));
        let inode = world.run(|tx| tx.inode(fid));
        assert_eq!((inode.size, inode.mtime_ns), (0, 5));
    }

    #[test]
    fn only_the_close_of_the_last_writer_returns_attributes_under_a_lease() {
        let mut world = World::new();
        let fid = opened(&mut world, "a");
        let open = Open { caller: root(), fid, flags: open_flags::WRITE, handle: 2 };
        world.run(|tx| crate::ops::open::apply(tx, &open));
        let open = Open { caller: root(), fid, flags: open_flags::READ, handle: 3 };
        world.run(|tx| crate::ops::open::apply(tx, &open));
        assert_eq!(world.run(|tx| apply(tx, &close(fid, 1))).attr, None, "another may write to it");
        assert_eq!(world.run(|tx| apply(tx, &close(fid, 3))).attr, None, "that one had it only for reading");
        let attr = world.run(|tx| apply(tx, &close(fid, 2))).attr.unwrap();
        assert_eq!((attr.size, attr.nlink, attr.flags, world.effects.granted.clone()), (4096, 1, 0, vec![fid]));
    }

    #[test]
    fn a_close_during_a_truncate_returns_no_attributes() {
        let mut world = World::new();
        let fid = opened(&mut world, "a");
        world.memory.truncating.insert(fid);
        assert_eq!(world.run(|tx| apply(tx, &close(fid, 1))).attr, None);
    }

    fn owned(fid: Fid, mtime_ns: i64) -> SetAttr {
        let mask = set_attr::UID | set_attr::GID | set_attr::MODE | set_attr::MTIME;
        SetAttr {
            caller: root(),
            fid,
            mask,
            mode: 0o640,
            uid: 5,
            gid: 6,
            size: 0,
            atime_ns: 0,
            mtime_ns,
            handle: 1,
            at_ns: 0,
        }
    }

    #[test]
    fn attributes_that_come_with_a_close_override_the_times_of_the_writes() {
        let mut world = World::new();
        let fid = opened(&mut world, "a");
        let told = world.now_ns + 1;
        world.memory.leases.data.grant(world.session, fid);
        let set = Some(SetAttr { at_ns: told, ..owned(fid, 77) });
        let attr = world.run(|tx| apply(tx, &Close { set, ..close(fid, 1) })).attr.unwrap();
        assert_eq!((attr.size, attr.mtime_ns, attr.attr_epoch), (4096, 77, 1));
        assert_eq!((attr.mode, attr.uid, attr.gid, attr.ctime_ns), (0o100_640, 5, 6, told));
        let inode = world.run(|tx| tx.inode(fid));
        assert_eq!((inode.uid, inode.mtime_set), (5, true));
    }

    #[test]
    fn a_close_without_writes_sets_the_attributes_that_come_with_it() {
        let mut world = World::new();
        let fid = opened(&mut world, "a");
        world.run(|tx| apply(tx, &Close { wrote: false, set: Some(owned(fid, 77)), ..close(fid, 1) }));
        let inode = world.run(|tx| tx.inode(fid));
        assert_eq!((inode.size, inode.mtime_ns, inode.gid), (0, 77, 6));
    }

    #[test]
    fn a_close_refuses_a_size_or_another_fid_and_does_not_wait_for_a_truncate() {
        let mut world = World::new();
        let fid = opened(&mut world, "a");
        let cut = SetAttr { mask: set_attr::SIZE, ..owned(fid, 1) };
        for set in [cut, owned(Fid::ROOT, 1)] {
            assert_eq!(world.errno(|tx| apply(tx, &Close { set: Some(set), ..close(fid, 1) })), Errno::EINVAL);
        }
        world.memory.truncating.insert(fid);
        let request = Close { set: Some(owned(fid, 1)), ..close(fid, 1) };
        let told = Close { set: Some(SetAttr { at_ns: 5, ..owned(fid, 1) }), ..close(fid, 1) };
        assert_eq!(world.errno(|tx| apply(tx, &told)), Errno::EBUSY);
        assert_eq!(world.errno(|tx| apply(tx, &request)), Errno::EBUSY);
        // No truncate was in progress at the first execution.
        world.is_replay = true;
        world.run(|tx| apply(tx, &request));
    }

    #[test]
    fn a_smaller_size_never_shrinks_a_file() {
        let mut inode = crate::inode::tests::plain_file();
        learn(&mut inode, Some(10), None);
        learn(&mut inode, Some(5), None);
        assert_eq!(inode.size, 10);
    }

    #[test]
    fn a_write_after_utimens_sets_the_time_even_back() {
        let mut inode = crate::inode::tests::plain_file();
        (inode.mtime_ns, inode.mtime_set) = (i64::MAX, true);
        learn(&mut inode, None, Some(5));
        assert_eq!(inode.mtime_ns, 5);
    }

    #[test]
    fn a_write_moves_both_times_of_a_file_that_was_made_by_a_clock_that_is_ahead() {
        let mut world = World::new();
        let fid = opened(&mut world, "a");
        let made = world.run(|tx| tx.inode(fid));
        let mut before = made.clone();
        for mtime_ns in [made.mtime_ns - 1_000_000, made.mtime_ns - 999_999] {
            let mut after = before.clone();
            learn(&mut after, None, Some(mtime_ns));
            assert_eq!((after.mtime_ns, after.ctime_ns), (mtime_ns, before.ctime_ns + 1));
            before = after;
        }
        // A writer that closes later but wrote earlier.
        let mut after = before.clone();
        learn(&mut after, None, Some(made.mtime_ns - 1_000_000));
        assert_eq!(after, before);
    }

    #[test]
    fn only_the_session_that_opened_closes_and_only_once() {
        let mut world = World::new();
        let fid = opened(&mut world, "a");
        world.session = SessionId(2);
        assert_eq!(world.errno(|tx| apply(tx, &close(fid, 1))), Errno::EBADF);
        world.session = SessionId(1);
        world.run(|tx| apply(tx, &close(fid, 1)));
        assert_eq!(world.errno(|tx| apply(tx, &close(fid, 1))), Errno::EBADF);
    }

    /// unlink, close
    #[test]
    fn the_last_close_of_an_unlinked_file_removes_the_inode() {
        let mut world = World::new();
        let fid = opened(&mut world, "a");
        let unlink = forebay_proto::message::Unlink { caller: root(), parent: Fid::ROOT, name: "a".into(), at_ns: 0 };
        world.run(|tx| crate::ops::unlink::apply(tx, &unlink));
        assert_eq!((world.count(keys::ORPHAN), world.count(keys::DESTROY), world.memory.inodes), (1, 0, 2));
        world.run(|tx| apply(tx, &close(fid, 1)));
        assert_eq!((world.count(keys::ORPHAN), world.count(keys::DESTROY), world.memory.inodes), (0, 1, 1));
        assert!(world.effects.destroys);
    }
}
