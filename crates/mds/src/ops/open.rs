//! Opens a fid.

use forebay_proto::{
    Errno, ErrorReply, Fid,
    message::{Caller, Open, OpenReply, lease_flags, open_flags},
};

use super::inline;
use crate::{
    halt::Step,
    inode::{Inode, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG},
    keys,
    keys::Key,
    limits,
    opens::{OpenChange, encode_handle},
    perm,
    tx::Tx,
};

/// Rows worth prefetching together.
pub fn keys(request: &Open) -> [Key; 1] {
    [keys::inode(request.fid)]
}

/// Errors: ESTALE, EACCES, EISDIR, ELOOP, ENFILE, EINVAL for handle 0.
pub fn apply(tx: &mut Tx<'_>, request: &Open) -> Step<OpenReply> {
    if request.handle == 0 {
        return Err(ErrorReply::new(Errno::EINVAL, "a handle is chosen by the client and not 0").into());
    }
    existing(tx, &request.caller, request.fid, request.flags, request.handle, false)
}

/// Opens an existing file. `creating`: open(2) with O_CREAT, which fails for directories. Handle 0: opens nothing, and
/// only returns the attributes.
pub fn existing(
    tx: &mut Tx<'_>,
    caller: &Caller,
    fid: Fid,
    flags: u32,
    handle: u64,
    creating: bool,
) -> Step<OpenReply> {
    // An open without reading needs no content. Inline bytes can be read whatever an OST cannot do.
    let changes = flags & (open_flags::WRITE | open_flags::TRUNCATE) != 0;
    let is_here = || Step::Ok(!changes && tx.memory.stuck.contains(&fid) && tx.inode(fid)?.inline);
    if flags & open_flags::READ == 0 && !changes || is_here()? {
        tx.wait_while_cut(fid)?;
    } else {
        tx.wait_for_truncate(fid)?;
    }
    let mut inode = tx.inode(fid)?;
    check(&inode, flags, creating)?;
    perm::access(caller, &inode, wanted(flags))?;
    let writes = handle != 0 && flags & open_flags::WRITE != 0;
    let before = inode.clone();
    // The truncate comes before the handle is counted: a new writing handle may create objects, but has none when the
    // file is cut.
    if flags & open_flags::TRUNCATE != 0 && inode.is_file() {
        tx.resize(fid, &mut inode, 0, caller.uid == 0)?;
        tx.touch(keys::inode(fid));
    }
    // The open must be durable. If it were lost, no truncate would reach the objects created under it, not even those
    // of the next session that opens the file.
    if writes && !inode.written {
        tx.effects.durable = true;
        tx.touch(keys::inode(fid));
    }
    // The level applies to new writing handles. If the handle were lost in a crash, nobody would fetch the size
    // from the OSTs. A handle that exists already is durable: it was opened under the level, or committed when the level was
    // set.
    let known = tx.memory.opens.flags(fid, tx.origin.session, handle);
    if writes && known.is_none_or(|known| known & open_flags::WRITE == 0) {
        tx.insist_on_commit(&inode);
    }
    inode.written |= writes;
    if inode != before {
        tx.put_inode(fid, &mut inode);
    }
    let mut leases = 0;
    if handle != 0 {
        may_open(tx)?;
        add_handle(tx, fid, handle, flags, false);
        leases = tx.lease_data(fid, flags);
    }
    if handle != 0 && inode.inline && flags & open_flags::READ != 0 && !tx.origin.is_replay {
        tx.effects.bulk = Some(inline::bytes(tx, fid, &inode)?);
        // With a lease on the attributes the client can cache the bytes beyond this moment.
        leases |= if writes { 0 } else { tx.lease(fid, lease_flags::INODE) };
    }
    Ok(OpenReply { leases, ..tx.open_reply(fid, &inode, writes, false) })
}

fn check(inode: &Inode, flags: u32, creating: bool) -> Result<(), Errno> {
    let writes = flags & (open_flags::WRITE | open_flags::TRUNCATE) != 0;
    if inode.is_dir() && (writes || creating) {
        return Err(Errno::EISDIR);
    }
    match inode.mode & S_IFMT {
        // Another client made the link after this kernel's lookup: the kernel looks again and follows it.
        S_IFLNK if creating => Err(Errno::ESTALE),
        S_IFLNK => Err(Errno::ELOOP),
        S_IFREG | S_IFDIR => Ok(()),
        // A kernel opens pipes, sockets and devices itself. This one does not know yet that the name is one: it looks
        // again.
        _ => Err(Errno::ESTALE),
    }
}

/// What an open with these flags needs.
pub fn wanted(flags: u32) -> u32 {
    let read = if flags & open_flags::READ != 0 { perm::READ } else { 0 };
    let write = if flags & (open_flags::WRITE | open_flags::TRUNCATE) != 0 { perm::WRITE } else { 0 };
    read | write
}

/// Refuses (ENFILE) more than [`limits::HANDLES`] handles of a session. A client refuses excess opens itself before it
/// delays any create.
pub fn may_open(tx: &Tx<'_>) -> Result<(), ErrorReply> {
    let session = tx.origin.session;
    if tx.origin.is_replay || tx.is_answered() || tx.memory.opens.held(session) < limits::HANDLES {
        return Ok(());
    }
    Err(ErrorReply::new(Errno::ENFILE, format!("{} files are open in session {session}: close some", limits::HANDLES)))
}

/// Writes a handle's row; `made`: this request creates the file.
pub fn add_handle(tx: &mut Tx<'_>, fid: Fid, handle: u64, flags: u32, made: bool) {
    let session = tx.origin.session;
    let client = tx.origin.client;
    let made = made && !tx.origin.is_replay;
    tx.put(keys::handle(fid, session, handle), &encode_handle(flags, client));
    tx.effects.opens.push(OpenChange::Opened { fid, session, handle, flags, client, made, transno: tx.origin.transno });
    if flags & open_flags::WRITE != 0 {
        tx.effects.opened = Some(fid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, root, user};

    fn open(caller: Caller, fid: Fid, flags: u32, handle: u64) -> Open {
        Open { caller, fid, flags, handle }
    }

    #[test]
    fn permissions_are_those_of_the_requested_mode() {
        let mut world = World::new();
        let fid = world.file(Fid::ROOT, "a");
        world.run(|tx| apply(tx, &open(user(7), fid, open_flags::READ, 1)));
        assert_eq!(world.errno(|tx| apply(tx, &open(user(7), fid, open_flags::WRITE, 2))), Errno::EACCES);
        world.run(|tx| apply(tx, &open(root(), fid, open_flags::WRITE, 2)));
        assert_eq!(world.memory.opens.count(fid).handles, 2);
    }

    #[test]
    fn a_session_has_only_so_many_files_open() {
        let mut world = World::new();
        let fid = world.file(Fid::ROOT, "a");
        world.run(|tx| apply(tx, &open(root(), fid, open_flags::READ, 1)));
        let session = world.run(|tx| Ok(tx.origin.session));
        for handle in 2..=limits::HANDLES as u64 {
            let (flags, client) = (open_flags::READ, Default::default());
            let opened =
                OpenChange::Opened { fid, session, handle, flags, client, made: false, transno: Default::default() };
            world.memory.opens.follow(opened);
        }
        let more = open(root(), fid, open_flags::READ, 1 << 40);
        assert_eq!(world.errno(|tx| apply(tx, &more)), Errno::ENFILE);
        world.is_replay = true;
        world.run(|tx| apply(tx, &more));
        world.is_replay = false;
        for handle in [1, 1 << 40] {
            world.memory.opens.follow(OpenChange::Closed { fid, session, handle, wrote: false });
        }
        world.run(|tx| apply(tx, &more));
    }

    #[test]
    fn directories_open_for_reading_only() {
        let mut world = World::new();
        let dir = world.mkdir(Fid::ROOT, "d");
        world.run(|tx| apply(tx, &open(user(7), dir, open_flags::READ, 1)));
        assert_eq!(world.errno(|tx| apply(tx, &open(root(), dir, open_flags::WRITE, 2))), Errno::EISDIR);
    }

    #[test]
    fn cutting_a_file_that_was_written_leaves_a_record_for_the_osts() {
        let mut world = World::new();
        let fid = world.file(Fid::ROOT, "a");
        world.run(|tx| {
            let mut inode = tx.inode(fid)?;
            (inode.written, inode.size) = (true, 10);
            tx.put_inode(fid, &mut inode);
            Ok(())
        });
        let reply = world.run(|tx| apply(tx, &open(root(), fid, open_flags::WRITE | open_flags::TRUNCATE, 1)));
        assert_eq!((reply.attr.size, reply.attr.truncate_epoch, reply.attr.attr_epoch), (0, 1, 1));
        assert_eq!((world.count(keys::TRUNCATE), world.effects.truncate), (1, Some(fid)));
    }

    /// open, write |X| (client and servers), truncate
    #[test]
    fn cutting_a_file_whose_size_was_lost_reaches_the_osts() {
        let mut world = World::new();
        let fid = world.file(Fid::ROOT, "a");
        world.run(|tx| {
            let mut inode = tx.inode(fid)?;
            (inode.written, inode.size) = (true, 0);
            tx.put_inode(fid, &mut inode);
            Ok(())
        });
        world.run(|tx| apply(tx, &open(root(), fid, open_flags::WRITE | open_flags::TRUNCATE, 1)));
        assert_eq!((world.count(keys::TRUNCATE), world.effects.truncate), (1, Some(fid)));
    }

    #[test]
    fn the_first_open_for_writing_is_answered_when_it_is_committed() {
        let mut world = World::new();
        let fid = world.file(Fid::ROOT, "a");
        world.run(|tx| apply(tx, &open(root(), fid, open_flags::READ, 1)));
        assert!(!world.effects.durable);
        world.run(|tx| apply(tx, &open(root(), fid, open_flags::WRITE, 2)));
        assert!(world.effects.durable);
        world.run(|tx| apply(tx, &open(root(), fid, open_flags::WRITE, 3)));
        assert!(!world.effects.durable);
    }

    #[test]
    fn cutting_an_empty_file_needs_no_ost() {
        let mut world = World::new();
        let fid = world.file(Fid::ROOT, "a");
        world.run(|tx| apply(tx, &open(root(), fid, open_flags::WRITE | open_flags::TRUNCATE, 1)));
        assert_eq!((world.count(keys::TRUNCATE), world.effects.truncate), (0, None));
    }
}
