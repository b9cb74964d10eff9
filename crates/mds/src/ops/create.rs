//! Creates a regular file and opens it, or opens the existing one.

use forebay_proto::{
    Errno, ErrorReply, Fid, Layout,
    message::{Create, LayoutSpec, OpenReply, UMASK_SHIFT, lease_flags, open_flags},
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

/// Errors: EEXIST (`EXCLUSIVE`), EISDIR, ELOOP, EACCES, ENOENT in a removed directory or (`EXISTING`) of a missing
/// file, ENOSPC.
pub fn apply(tx: &mut Tx<'_>, request: &Create) -> Step<OpenReply> {
    tx.answered_at(request.parent, request.at_ns)?;
    let mut dir = tx.dir(request.parent)?;
    if request.flags & open_flags::NAMELESS != 0 {
        return nameless(tx, request, &dir);
    }
    name::check(&request.name, Errno::EISDIR)?;
    perm::access(&request.caller, &dir, perm::SEARCH)?;
    let found = tx.find(request.parent, &dir, &request.name)?;
    if let Some(entry) = found.entry() {
        if request.flags & open_flags::EXCLUSIVE != 0 {
            return Err(Errno::EEXIST.into());
        }
        let flags = request.flags & !open_flags::EXISTING;
        return open::existing(tx, &request.caller, entry.fid, flags, request.handle, true);
    }
    if request.flags & open_flags::EXISTING != 0 {
        return Err(Errno::ENOENT.into());
    }
    tx.may_add(&request.caller, &dir)?;
    tx.check_new_fid(request.fid)?;
    let new = new_file(tx, request, &dir)?;
    let writes = new.written;
    let inode = tx.add_inode(&found, &mut dir, &request.name, new)?;
    let mut leases = tx.lease_anyway(request.fid, lease_flags::INODE);
    leases = tx.lease_exclusive(request.fid, request.parent, leases);
    leases |= tx.lease_entries_write(request.parent, &dir, lease_flags::PARENT_ENTRIES_WRITE);
    if request.handle != 0 {
        open::may_open(tx)?;
        open::add_handle(tx, request.fid, request.handle, request.flags, true);
        leases |= tx.lease_data(request.fid, request.flags);
    }
    let parent = tx.cached_parent(request.parent)?;
    Ok(OpenReply { leases, parent, ..tx.open_reply(request.fid, &inode, writes, true) })
}

/// Creates a file without a name (O_TMPFILE): an orphan from the start, kept by its handle.
///
/// The caller needs the permission to add names to `dir`; the directory does not change. Errors: EINVAL without a
/// handle, or with a name.
fn nameless(tx: &mut Tx<'_>, request: &Create, dir: &Inode) -> Step<OpenReply> {
    if request.handle == 0 || !request.name.is_empty() {
        return Err(ErrorReply::new(Errno::EINVAL, "a file without a name has a handle, and no name").into());
    }
    perm::access(&request.caller, dir, perm::SEARCH)?;
    tx.may_add(&request.caller, dir)?;
    tx.check_new_fid(request.fid)?;
    let new = new_file(tx, request, dir)?;
    let writes = new.written;
    open::may_open(tx)?;
    let inode = tx.add_nameless(dir, new, request.flags & open_flags::EXCLUSIVE == 0);
    open::add_handle(tx, request.fid, request.handle, request.flags, true);
    let leases = tx.lease_data(request.fid, request.flags);
    Ok(OpenReply { leases, ..tx.open_reply(request.fid, &inode, writes, true) })
}

fn new_file<'a>(tx: &Tx<'_>, request: &'a Create, dir: &Inode) -> Step<NewInode<'a>> {
    Ok(NewInode {
        caller: &request.caller,
        fid: request.fid,
        mode: S_IFREG | request.mode & 0o7777,
        umask: request.mode >> UMASK_SHIFT & 0o777,
        body: Body::File(choose_layout(tx, request.fid, dir, &request.layout, 1)?),
        written: request.handle != 0 && request.flags & open_flags::WRITE != 0,
    })
}

/// The layout of `fid` in `dir`: always the same for the same transno.
pub fn choose_layout(tx: &Tx<'_>, fid: Fid, dir: &Inode, asked: &LayoutSpec, generation: u32) -> Step<Layout> {
    if tx.memory.placing && !tx.origin.is_replay {
        return Err(Halt::Placing);
    }
    let default = &tx.memory.default_layout;
    let inherited = dir.dir().and_then(|dir| dir.default_layout.as_ref());
    let mut parts = placement::resolve(asked, inherited, default.stripe_bytes, default.stripe_count);
    let wheels = wheels(tx)?;
    placement::check(asked, wheels)?;
    let chosen = placement::choose(fid, &parts, wheels, generation);
    if !tx.is_answered() || chosen.is_ok() {
        return Ok(chosen?);
    }
    // The client acknowledged the create when there was space for the file. A client that writes to it receives ENOSPC.
    let first = &mut parts[0];
    match wheels.of(&first.pool).and_then(|pool| pool.any(fid)) {
        Some(ost) => first.stripe_index = ost,
        // The pool is empty, as it is before it is destroyed.
        None => (first.pool, first.stripe_index) = (String::new(), wheels.all().any(fid).unwrap_or(u32::MAX)),
    }
    Ok(placement::choose(fid, &parts, wheels, generation)?)
}

/// True if a file created in `dir` without a requested layout gets one, as far as is known now.
pub fn takes_files(tx: &Tx<'_>, dir: &Inode) -> bool {
    let Some(wheels) = tx.memory.placement.at(tx.origin.transno) else { return false };
    match dir.dir().and_then(|dir| dir.default_layout.as_ref()) {
        Some(inherited) => placement::takes_files(inherited, wheels),
        None => wheels.all().has_usable(),
    }
}

/// The wheels to choose OSTs from at the transaction's transno.
pub fn wheels<'a>(tx: &Tx<'a>) -> Step<&'a placement::Wheels> {
    tx.memory
        .placement
        .at(tx.origin.transno)
        .ok_or_else(|| Halt::Fail(ErrorReply::new(Errno::ENOSPC, "no OST is known yet; see `forebay status`")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ops,
        testing::{World, root, user},
    };
    use forebay_proto::message::{SetLayout, attr_flags};

    #[test]
    fn a_new_file_has_an_inode_a_name_a_layout_and_a_handle() {
        let mut world = World::new();
        let request = world.create(&user(7), Fid::ROOT, "a", 1);
        let reply = world.run(|tx| apply(tx, &request));
        assert!(reply.created);
        assert_eq!(
            (reply.attr.uid, reply.attr.nlink, reply.attr.flags),
            (7, 1, attr_flags::SIZE_ON_OST | attr_flags::SOLE_WRITER | attr_flags::MTIME_SET)
        );
        assert_eq!(reply.layout.unwrap().generation, 1);
        assert_eq!(world.memory.opens.count(request.fid).writers, 1);
        assert_eq!((world.count(keys::HANDLE), world.memory.inodes), (1, 2));
    }

    #[test]
    fn create_with_flag_existing_opens_the_file_and_never_makes_one() {
        let mut world = World::new();
        let request = Create { flags: open_flags::EXISTING, ..world.create(&root(), Fid::ROOT, "a", 1) };
        assert_eq!(world.errno(|tx| apply(tx, &request)), Errno::ENOENT);
        let fid = world.file(Fid::ROOT, "a");
        let reply = world.run(|tx| apply(tx, &request));
        assert_eq!((reply.created, reply.attr.fid), (false, fid));
        assert_eq!(world.memory.opens.flags(fid, world.session, 1), Some(0), "it neither reads nor writes");
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
        world.memory.placement.push(
            forebay_proto::Transno(1 << 30),
            &crate::placement::Table { weights: [(9, 1)].into(), ..Default::default() },
        );
        assert_eq!(world.run(|tx| apply(tx, &request)).layout, first);
    }

    #[test]
    fn a_file_that_its_program_has_already_is_made_also_when_no_ost_has_room_any_more() {
        let mut world = World::new();
        let full = crate::placement::Table { weights: [(3, 0), (4, 0)].into(), ..Default::default() };
        world.memory.placement.push(forebay_proto::Transno(0), &full);
        let mut request = world.create(&root(), Fid::ROOT, "a", 1);
        assert_eq!(world.errno(|tx| apply(tx, &request)), Errno::ENOSPC);
        request.at_ns = 77;
        assert_eq!(world.errno(|tx| apply(tx, &request)), Errno::ESTALE, "it was not the client's to answer");
        world.memory.leases.grant_entries_write(forebay_proto::SessionId(1), Fid::ROOT);
        world.has_space = false;
        let reply = world.run(|tx| apply(tx, &request));
        assert_eq!((reply.attr.mtime_ns, reply.layout.unwrap().osts().len()), (77, 1));
    }

    /// A directory whose files lie in a pool that fills up.
    #[test]
    fn a_delayed_create_in_a_pool_that_became_full_is_placed_on_an_ost_of_that_pool() {
        let mut world = World::new();
        let table = |weight| crate::placement::Table {
            weights: [(0, 9), (1, weight)].into(),
            pools: [("fast".to_owned(), [1].into())].into(),
        };
        world.memory.placement.push(forebay_proto::Transno(0), &table(9));
        let dir = world.mkdir(Fid::ROOT, "d");
        let layout = LayoutSpec { pool: "fast".to_owned(), ..LayoutSpec::inherit() };
        world.run(|tx| ops::setlayout::apply(tx, &SetLayout { caller: root(), fid: dir, layout: layout.clone() }));
        let takes = |world: &mut World| world.run(|tx| Ok(takes_files(tx, &tx.inode(dir)?)));
        assert!(takes(&mut world));
        world.memory.placement.push(forebay_proto::Transno(0), &table(0));
        assert!(!takes(&mut world), "no lease is given here that would let a client answer");
        let mut request = world.create(&root(), dir, "a", 1);
        assert_eq!(world.errno(|tx| apply(tx, &request)), Errno::ENOSPC);
        request.at_ns = 77;
        world.memory.leases.grant_entries_write(forebay_proto::SessionId(1), dir);
        assert_eq!(world.run(|tx| apply(tx, &request)).layout.unwrap().osts(), [1], "it stays in its pool");
        let emptied = crate::placement::Table {
            weights: [(0, 9), (1, 9)].into(),
            pools: [("fast".to_owned(), [].into())].into(),
        };
        world.memory.placement.push(forebay_proto::Transno(0), &emptied);
        let mut request = world.create(&root(), dir, "b", 2);
        assert_eq!(world.errno(|tx| apply(tx, &request)), Errno::ENOSPC);
        request.at_ns = 77;
        assert_eq!(world.run(|tx| apply(tx, &request)).layout.unwrap().osts().len(), 1, "there is no pool to keep to");
    }

    #[test]
    fn a_foreign_fid_a_full_target_and_a_closed_directory_refuse() {
        let mut world = World::new();
        let mut request = world.create(&user(7), Fid::ROOT, "a", 0);
        request.fid.low += 1 << 20;
        assert_eq!(world.errno(|tx| apply(tx, &request)), Errno::EINVAL);
        let request = world.create(&user(7), Fid::ROOT, "a", 0);
        world.has_space = false;
        assert_eq!(world.errno(|tx| apply(tx, &request)), Errno::ENOSPC);
        world.has_space = true;
        let dir = world.mkdir(Fid::ROOT, "d");
        let request = world.create(&user(7), dir, "a", 0);
        assert_eq!(world.errno(|tx| apply(tx, &request)), Errno::EACCES);
    }

    fn nameless(world: &mut World, caller: &forebay_proto::message::Caller, flags: u32) -> Create {
        let mut request = world.create(caller, Fid::ROOT, "", 1);
        request.flags |= open_flags::NAMELESS | flags;
        request
    }

    #[test]
    fn a_file_without_a_name_is_an_orphan_that_ends_with_its_handle() {
        let mut world = World::new();
        let before = world.run(|tx| tx.inode(Fid::ROOT));
        let request = nameless(&mut world, &user(7), 0);
        let reply = world.run(|tx| apply(tx, &request));
        assert_eq!((reply.attr.nlink, reply.attr.uid, reply.created), (0, 7, true));
        assert_eq!((world.count(keys::ORPHAN), world.count(keys::HANDLE), world.memory.inodes), (1, 1, 2));
        assert_eq!(world.run(|tx| tx.inode(Fid::ROOT)), before);
        world.run(|tx| tx.drop_handle(request.fid, forebay_proto::SessionId(1), 1, &tx.inode(request.fid)?, true));
        assert_eq!((world.count(keys::ORPHAN), world.count(keys::DESTROY), world.memory.inodes), (0, 1, 1));
    }

    #[test]
    fn a_file_without_a_name_may_be_given_one_unless_it_was_made_not_to() {
        let mut world = World::new();
        let link = |fid: Fid| forebay_proto::message::Link { caller: root(), fid, parent: Fid::ROOT, name: "a".into() };
        let never = nameless(&mut world, &root(), open_flags::EXCLUSIVE);
        world.run(|tx| apply(tx, &never));
        assert_eq!(world.errno(|tx| crate::ops::link::apply(tx, &link(never.fid))), Errno::ENOENT);
        let may = nameless(&mut world, &root(), 0);
        world.run(|tx| apply(tx, &may));
        assert_eq!(world.run(|tx| crate::ops::link::apply(tx, &link(may.fid))).attr.nlink, 1);
        assert_eq!(world.count(keys::ORPHAN), 1, "only the other one's");
        world.run(|tx| tx.drop_handle(may.fid, forebay_proto::SessionId(1), 1, &tx.inode(may.fid)?, true));
        assert_eq!(world.run(|tx| tx.inode(may.fid)).nlink, 1);
    }

    #[test]
    fn a_file_without_a_name_needs_a_handle_and_a_directory_that_may_be_written_to() {
        let mut world = World::new();
        let dir = world.mkdir(Fid::ROOT, "d");
        let request = Create { parent: dir, ..nameless(&mut world, &user(7), 0) };
        assert_eq!(world.errno(|tx| apply(tx, &request)), Errno::EACCES);
        let request = Create { handle: 0, ..nameless(&mut world, &user(7), 0) };
        assert_eq!(world.errno(|tx| apply(tx, &request)), Errno::EINVAL);
        let file = world.file(Fid::ROOT, "f");
        let request = Create { parent: file, ..nameless(&mut world, &user(7), 0) };
        assert_eq!(world.errno(|tx| apply(tx, &request)), Errno::ENOTDIR);
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
