//! Moves a name; all cases of rename(2) and renameat2(2).
//!
//! Invariant: the directory tree stays a tree: no directory moves below itself.

use forebay_env::{Bug, planted};
use forebay_proto::{
    Errno, ErrorReply, Fid,
    message::{Changed, Rename},
};

use super::rmdir;
use crate::{
    directory::Found,
    dirent::Entry,
    halt::Step,
    inode::{Inode, S_IFMT},
    keys,
    keys::Key,
    limits, name, perm,
    tx::Tx,
};

/// `RENAME_NOREPLACE` of renameat2(2).
pub const NOREPLACE: u32 = 1;
/// `RENAME_EXCHANGE` of renameat2(2).
pub const EXCHANGE: u32 = 2;

/// Rows worth prefetching together.
pub fn keys(request: &Rename) -> [Key; 2] {
    [keys::inode(request.from_parent), keys::inode(request.to_parent)]
}

/// One side of a rename: a directory, a name in it, and the inode of that name.
struct Side {
    parent: Fid,
    found: Found,
    fid: Fid,
    inode: Inode,
}

/// Errors: ENOENT, EEXIST, ENOTDIR, EISDIR, ENOTEMPTY, EINVAL below itself or for unknown flags, EBUSY for dots,
/// EACCES, EPERM in a sticky directory.
pub fn apply(tx: &mut Tx<'_>, request: &Rename) -> Step<Changed> {
    if !matches!(request.flags, 0 | NOREPLACE | EXCHANGE) {
        return Err(ErrorReply::new(Errno::EINVAL, "rename knows NOREPLACE or EXCHANGE, not both").into());
    }
    let from_dir = directory(tx, request, request.from_parent)?;
    let to_dir = if request.to_parent == request.from_parent {
        from_dir.clone()
    } else {
        directory(tx, request, request.to_parent)?
    };
    let dots = if request.flags & NOREPLACE != 0 { Errno::EEXIST } else { Errno::EBUSY };
    name::check(&request.from_name, Errno::EBUSY)?;
    name::check(&request.to_name, dots)?;
    let from = side(tx, request.from_parent, &from_dir, &request.from_name)?.map_err(|_| Errno::ENOENT)?;
    let to = side(tx, request.to_parent, &to_dir, &request.to_name)?;
    match (&to, request.flags) {
        (Ok(_), NOREPLACE) => return Err(Errno::EEXIST.into()),
        (Err(_), EXCHANGE) => return Err(Errno::ENOENT.into()),
        (Ok(to), 0) if to.fid == from.fid => return Ok(Changed { fids: Vec::new(), parents: Vec::new(), leases: 0 }),
        _ => {}
    }
    check_moves(request, &from, &from_dir, &to_dir)?;
    let dirs = Dirs { from_dir, to_dir };
    match to {
        Ok(to) if request.flags & EXCHANGE != 0 => {
            perm::remove(&request.caller, &dirs.to_dir, &to.inode)?;
            check_moves(request, &to, &dirs.to_dir, &dirs.from_dir)?;
            check_not_below(tx, to.fid, &to.inode, request.from_parent)?;
            check_not_below(tx, from.fid, &from.inode, request.to_parent)?;
            exchange(tx, request, dirs, from, to)
        }
        Ok(to) => {
            perm::remove(&request.caller, &dirs.to_dir, &to.inode)?;
            check_not_below(tx, from.fid, &from.inode, request.to_parent)?;
            check_replaces(tx, &from.inode, &to)?;
            replace(tx, request, dirs, from, to)
        }
        Err(vacant) => {
            tx.may_add(&request.caller, &dirs.to_dir)?;
            check_not_below(tx, from.fid, &from.inode, request.to_parent)?;
            move_to(tx, request, dirs, from, vacant)
        }
    }
}

/// The parent directories; equal if the rename stays within one directory.
struct Dirs {
    from_dir: Inode,
    to_dir: Inode,
}

fn directory(tx: &Tx<'_>, request: &Rename, fid: Fid) -> Step<Inode> {
    let dir = tx.dir(fid)?;
    perm::access(&request.caller, &dir, perm::SEARCH)?;
    if dir.nlink == 0 { Err(Errno::ENOENT.into()) } else { Ok(dir) }
}

/// The inode of the name, or the free position if the name does not exist.
fn side(tx: &Tx<'_>, parent: Fid, dir: &Inode, name: &[u8]) -> Step<Result<Side, Found>> {
    let found = tx.find(parent, dir, name)?;
    let Some(fid) = found.entry().map(|entry| entry.fid) else { return Ok(Err(found)) };
    let inode = tx.named_inode(fid)?;
    Ok(Ok(Side { parent, found, fid, inode }))
}

/// Checks that the caller may move `side` out of its directory and, if it is a directory, give it another parent.
fn check_moves(request: &Rename, side: &Side, dir: &Inode, target: &Inode) -> Step<()> {
    perm::remove(&request.caller, dir, &side.inode)?;
    perm::access(&request.caller, target, perm::WRITE | perm::SEARCH)?;
    Tx::check_project(target, &side.inode)?;
    if side.inode.is_dir() && request.from_parent != request.to_parent {
        perm::access(&request.caller, &side.inode, perm::WRITE)?;
    }
    Ok(())
}

/// Refuses (EINVAL) to move the directory `fid` below itself.
fn check_not_below(tx: &Tx<'_>, fid: Fid, inode: &Inode, parent: Fid) -> Step<()> {
    if !inode.is_dir() {
        return Ok(());
    }
    let mut at = parent;
    for _ in 0..limits::DEPTH {
        if at == fid {
            return Err(Errno::EINVAL.into());
        }
        if at == tx.highest() {
            return Ok(());
        }
        at = tx.dir(at)?.dir().ok_or(Errno::ENOTDIR)?.parent;
    }
    Err(ErrorReply::new(Errno::ELOOP, format!("the way from {parent} to the root does not end; run forebay fsck"))
        .into())
}

fn check_replaces(tx: &Tx<'_>, moved: &Inode, victim: &Side) -> Step<()> {
    match (moved.is_dir(), victim.inode.is_dir()) {
        (true, false) => Err(Errno::ENOTDIR.into()),
        (false, true) => Err(Errno::EISDIR.into()),
        (true, true) => rmdir::check_empty(tx, victim.fid, &victim.inode),
        (false, false) => Ok(()),
    }
}

fn move_to(tx: &mut Tx<'_>, request: &Rename, dirs: Dirs, from: Side, vacant: Found) -> Step<Changed> {
    let subdirectories = i32::from(from.inode.is_dir());
    let entry = Entry { fid: from.fid, mode: from.inode.mode & S_IFMT, name: request.to_name.clone() };
    tx.remove_name(&from.found)?;
    // Names with the same hash share rows: search again after the removal.
    let vacant =
        if vacant.parent == from.parent { tx.find(vacant.parent, &dirs.to_dir, &request.to_name)? } else { vacant };
    tx.add_name(&vacant, entry)?;
    put_dirs(
        tx,
        request,
        dirs,
        Change { entries: -1, subdirectories: -subdirectories },
        Change { entries: 1, subdirectories },
    );
    put_moved(tx, from.fid, from.inode, request.to_parent);
    changed(tx, request, vec![from.fid])
}

fn replace(tx: &mut Tx<'_>, request: &Rename, dirs: Dirs, from: Side, mut to: Side) -> Step<Changed> {
    let subdirectories = i32::from(from.inode.is_dir());
    tx.replace_name(&to.found, from.fid, from.inode.mode & S_IFMT)?;
    let found = tx.find(from.parent, &dirs.from_dir, &request.from_name)?;
    tx.remove_name(&found)?;
    if !planted(Bug::ReplacedKeepsLink) {
        tx.drop_link(to.fid, &mut to.inode)?;
    }
    if to.inode.is_dir() {
        tx.effects.removed = Some(to.fid);
    }
    // The victim's name is replaced by the moved one: the target directory keeps its number of names.
    put_dirs(
        tx,
        request,
        dirs,
        Change { entries: -1, subdirectories: -subdirectories },
        Change { entries: 0, subdirectories: 0 },
    );
    put_moved(tx, from.fid, from.inode, request.to_parent);
    changed(tx, request, vec![from.fid, to.fid])
}

fn exchange(tx: &mut Tx<'_>, request: &Rename, dirs: Dirs, from: Side, to: Side) -> Step<Changed> {
    if from.fid == to.fid {
        return Ok(Changed { fids: Vec::new(), parents: Vec::new(), leases: 0 });
    }
    tx.replace_name(&from.found, to.fid, to.inode.mode & S_IFMT)?;
    let found = tx.find(to.parent, &dirs.to_dir, &request.to_name)?;
    tx.replace_name(&found, from.fid, from.inode.mode & S_IFMT)?;
    let comes = i32::from(to.inode.is_dir()) - i32::from(from.inode.is_dir());
    put_dirs(
        tx,
        request,
        dirs,
        Change { entries: 0, subdirectories: comes },
        Change { entries: 0, subdirectories: -comes },
    );
    put_moved(tx, from.fid, from.inode, request.to_parent);
    put_moved(tx, to.fid, to.inode, request.from_parent);
    changed(tx, request, vec![from.fid, to.fid])
}

fn changed(tx: &Tx<'_>, request: &Rename, fids: Vec<Fid>) -> Step<Changed> {
    let from = tx.cached_parent(request.from_parent)?;
    let to = if request.to_parent == request.from_parent { None } else { tx.cached_parent(request.to_parent)? };
    Ok(Changed { fids, parents: from.into_iter().chain(to).collect(), leases: 0 })
}

/// How a directory's counts change.
struct Change {
    entries: i64,
    subdirectories: i32,
}

fn put_dirs(tx: &mut Tx<'_>, request: &Rename, mut dirs: Dirs, from: Change, to: Change) {
    if request.from_parent == request.to_parent {
        let (entries, subdirectories) = (from.entries + to.entries, from.subdirectories + to.subdirectories);
        tx.put_changed_dir(request.from_parent, &mut dirs.from_dir, entries, subdirectories);
    } else {
        tx.put_changed_dir(request.from_parent, &mut dirs.from_dir, from.entries, from.subdirectories);
        tx.put_changed_dir(request.to_parent, &mut dirs.to_dir, to.entries, to.subdirectories);
    }
}

fn put_moved(tx: &mut Tx<'_>, fid: Fid, mut inode: Inode, parent: Fid) {
    inode.changed_at(tx.origin.now_ns);
    if let Some(dir) = inode.dir_mut() {
        dir.parent = parent;
    }
    tx.put_inode_touched(fid, &mut inode);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, root, user};
    use forebay_proto::message::{Caller, Lookup};

    fn rename(from: (Fid, &str), to: (Fid, &str), flags: u32) -> Rename {
        Rename {
            caller: root(),
            from_parent: from.0,
            from_name: from.1.to_owned().into(),
            to_parent: to.0,
            to_name: to.1.to_owned().into(),
            flags,
        }
    }

    fn at(world: &mut World, parent: Fid, name: &str) -> Option<Fid> {
        let request = Lookup { caller: root(), parent, name: name.to_owned().into() };
        world.run(|tx| crate::ops::lookup::apply(tx, &request)).entry.map(|entry| entry.attr.fid)
    }

    fn nlink(world: &mut World, fid: Fid) -> u32 {
        world.run(|tx| tx.inode(fid)).nlink
    }

    #[test]
    fn a_name_moves_within_and_between_directories() {
        let mut world = World::new();
        let (dir, fid) = (world.mkdir(Fid::ROOT, "d"), world.file(Fid::ROOT, "a"));
        world.run(|tx| apply(tx, &rename((Fid::ROOT, "a"), (Fid::ROOT, "b"), 0)));
        assert_eq!((at(&mut world, Fid::ROOT, "a"), at(&mut world, Fid::ROOT, "b")), (None, Some(fid)));
        world.run(|tx| apply(tx, &rename((Fid::ROOT, "b"), (dir, "c"), 0)));
        assert_eq!((at(&mut world, Fid::ROOT, "b"), at(&mut world, dir, "c")), (None, Some(fid)));
        let entries = |world: &mut World, fid| world.run(|tx| tx.inode(fid)).dir().unwrap().entries;
        assert_eq!((entries(&mut world, Fid::ROOT), entries(&mut world, dir)), (1, 1));
    }

    #[test]
    fn nothing_moves_into_the_subtree_of_a_tenant_or_out_of_it() {
        let mut world = World::new();
        let (dir, out) = (world.mkdir(Fid::ROOT, "d"), world.file(Fid::ROOT, "out"));
        world.run(|tx| {
            let mut inode = tx.inode(dir)?;
            inode.project = 5;
            tx.put_inode(dir, &mut inode);
            Ok(())
        });
        let inner = world.file(dir, "in");
        assert_eq!(world.run(|tx| tx.inode(inner)).project, 5, "a new file has the project of its directory");
        for (from, to, flags) in [
            ((Fid::ROOT, "out"), (dir, "x"), 0),
            ((dir, "in"), (Fid::ROOT, "x"), 0),
            ((Fid::ROOT, "out"), (dir, "in"), 0),
            ((Fid::ROOT, "out"), (dir, "in"), EXCHANGE),
        ] {
            assert_eq!(world.errno(|tx| apply(tx, &rename(from, to, flags))), Errno::EXDEV, "{from:?} {to:?}");
        }
        for (fid, parent) in [(out, dir), (inner, Fid::ROOT)] {
            let link = forebay_proto::message::Link { caller: root(), fid, parent, name: "y".into() };
            assert_eq!(world.errno(|tx| crate::ops::link::apply(tx, &link)), Errno::EXDEV);
        }
        world.run(|tx| apply(tx, &rename((dir, "in"), (dir, "x"), 0)));
    }

    #[test]
    fn a_directory_takes_its_link_and_its_parent_along() {
        let mut world = World::new();
        let (a, b) = (world.mkdir(Fid::ROOT, "a"), world.mkdir(Fid::ROOT, "b"));
        world.run(|tx| apply(tx, &rename((Fid::ROOT, "a"), (b, "x"), 0)));
        assert_eq!((nlink(&mut world, Fid::ROOT), nlink(&mut world, b)), (3, 3));
        assert_eq!(at(&mut world, a, ".."), Some(b));
    }

    #[test]
    fn rename_replaces_the_file_at_the_new_name() {
        let mut world = World::new();
        let (a, _b) = (world.file(Fid::ROOT, "a"), world.file(Fid::ROOT, "b"));
        world.run(|tx| apply(tx, &rename((Fid::ROOT, "a"), (Fid::ROOT, "b"), 0)));
        assert_eq!((at(&mut world, Fid::ROOT, "a"), at(&mut world, Fid::ROOT, "b")), (None, Some(a)));
        assert_eq!(world.memory.inodes, 2);
        let (c, d) = (world.mkdir(Fid::ROOT, "c"), world.mkdir(Fid::ROOT, "d"));
        world.run(|tx| apply(tx, &rename((Fid::ROOT, "c"), (Fid::ROOT, "d"), 0)));
        assert_eq!(at(&mut world, Fid::ROOT, "d"), Some(c));
        assert_eq!((nlink(&mut world, Fid::ROOT), world.attempt(|tx| tx.inode(d)).is_err()), (3, true));
    }

    #[test]
    fn two_names_of_one_file_stay_as_they_are() {
        let mut world = World::new();
        let fid = world.file(Fid::ROOT, "a");
        let link = forebay_proto::message::Link { caller: root(), fid, parent: Fid::ROOT, name: "b".into() };
        world.run(|tx| crate::ops::link::apply(tx, &link));
        world.run(|tx| apply(tx, &rename((Fid::ROOT, "a"), (Fid::ROOT, "b"), 0)));
        assert_eq!((at(&mut world, Fid::ROOT, "a"), at(&mut world, Fid::ROOT, "b")), (Some(fid), Some(fid)));
    }

    #[test]
    fn an_exchange_swaps_files_and_directories() {
        let mut world = World::new();
        let (dir, file) = (world.mkdir(Fid::ROOT, "d"), world.file(Fid::ROOT, "f"));
        let inner = world.mkdir(dir, "inner");
        world.run(|tx| apply(tx, &rename((dir, "inner"), (Fid::ROOT, "f"), EXCHANGE)));
        assert_eq!((at(&mut world, dir, "inner"), at(&mut world, Fid::ROOT, "f")), (Some(file), Some(inner)));
        assert_eq!((nlink(&mut world, dir), nlink(&mut world, Fid::ROOT)), (2, 4));
        assert_eq!(at(&mut world, inner, ".."), Some(Fid::ROOT));
    }

    #[test]
    fn no_directory_moves_below_itself() {
        let mut world = World::new();
        let a = world.mkdir(Fid::ROOT, "a");
        let b = world.mkdir(a, "b");
        let c = world.file(b, "c");
        let _ = c;
        for (request, errno) in [
            (rename((Fid::ROOT, "a"), (a, "x"), 0), Errno::EINVAL),
            (rename((Fid::ROOT, "a"), (b, "x"), 0), Errno::EINVAL),
            (rename((b, "c"), (Fid::ROOT, "a"), EXCHANGE), Errno::EINVAL),
            (rename((Fid::ROOT, "a"), (b, "c"), EXCHANGE), Errno::EINVAL),
        ] {
            assert_eq!(world.errno(|tx| apply(tx, &request)), errno, "{request:?}");
        }
    }

    #[test]
    fn rename_between_unlike_types_or_missing_names_is_refused() {
        let mut world = World::new();
        let (d, _f) = (world.mkdir(Fid::ROOT, "d"), world.file(Fid::ROOT, "f"));
        world.file(d, "x");
        world.mkdir(Fid::ROOT, "e");
        for (request, errno) in [
            (rename((Fid::ROOT, "f"), (Fid::ROOT, "d"), 0), Errno::EISDIR),
            (rename((Fid::ROOT, "e"), (Fid::ROOT, "f"), 0), Errno::ENOTDIR),
            (rename((Fid::ROOT, "e"), (Fid::ROOT, "d"), 0), Errno::ENOTEMPTY),
            (rename((Fid::ROOT, "f"), (Fid::ROOT, "d"), NOREPLACE), Errno::EEXIST),
            (rename((Fid::ROOT, "f"), (Fid::ROOT, "z"), EXCHANGE), Errno::ENOENT),
            (rename((Fid::ROOT, "z"), (Fid::ROOT, "f"), 0), Errno::ENOENT),
            (rename((Fid::ROOT, "f"), (Fid::ROOT, "z"), 3), Errno::EINVAL),
            (rename((Fid::ROOT, "."), (Fid::ROOT, "z"), 0), Errno::EBUSY),
        ] {
            assert_eq!(world.errno(|tx| apply(tx, &request)), errno, "{request:?}");
        }
    }

    #[test]
    fn moving_a_directory_needs_write_permission_to_the_directory_itself() {
        let mut world = World::new();
        let to = world.make(&user(7), Fid::ROOT, "to", 0o040_755);
        world.run(|tx| crate::ops::make::apply(tx, &to));
        let moved = world.make(&root(), Fid::ROOT, "d", 0o040_755);
        world.run(|tx| crate::ops::make::apply(tx, &moved));
        let request = Rename { caller: Caller { ..user(7) }, ..rename((Fid::ROOT, "d"), (to.fid, "d"), 0) };
        assert_eq!(world.errno(|tx| apply(tx, &request)), Errno::EACCES);
        let within = Rename { caller: user(7), ..rename((Fid::ROOT, "d"), (Fid::ROOT, "d2"), 0) };
        world.run(|tx| apply(tx, &within));
    }
}
