//! Looks up a name and returns its attributes.

use forebay_proto::message::{Lookup, LookupReply, lease_flags};

use crate::{halt::Step, keys, keys::Key, name, perm, tx::Tx};

/// Rows worth prefetching together.
pub fn keys(request: &Lookup) -> [Key; 1] {
    [keys::inode(request.parent)]
}

/// Errors: ENOTDIR, EACCES, ENAMETOOLONG, ESTALE.
pub fn apply(tx: &mut Tx<'_>, request: &Lookup) -> Step<LookupReply> {
    let dir = tx.dir(request.parent)?;
    name::check_any(&request.name)?;
    perm::access(&request.caller, &dir, perm::SEARCH)?;
    if name::is_dots(&request.name) {
        let fid = if &request.name[..] == b"." { request.parent } else { tx.parent_of(request.parent, &dir)? };
        let inode = if fid == request.parent { dir } else { tx.inode(fid)? };
        return Ok(LookupReply { leases: 0, entry: Some(tx.leased_reply(fid, &inode)) });
    }
    let found = tx.find(request.parent, &dir, &request.name)?;
    let Some(fid) = found.entry().map(|entry| entry.fid) else {
        let leases = if dir.nlink > 0 { tx.lease(request.parent, lease_flags::PARENT) } else { 0 };
        return Ok(LookupReply { entry: None, leases });
    };
    tx.wait_while_cut(fid)?;
    let inode = tx.named_inode(fid)?;
    let mut entry = tx.leased_reply(fid, &inode);
    entry.leases = tx.lease_exclusive(fid, request.parent, entry.leases);
    Ok(LookupReply { leases: entry.leases | tx.lease(request.parent, lease_flags::PARENT), entry: Some(entry) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, root, user};
    use forebay_proto::{Errno, Fid};

    fn lookup(parent: Fid, name: &str) -> Lookup {
        Lookup { caller: user(7), parent, name: name.to_owned().into() }
    }

    #[test]
    fn a_name_gives_attributes_and_layout() {
        let mut world = World::new();
        let fid = world.file(Fid::ROOT, "a");
        let reply = world.run(|tx| apply(tx, &lookup(Fid::ROOT, "a"))).entry.unwrap();
        assert_eq!((reply.attr.fid, reply.attr.mode), (fid, 0o100_644));
        assert_eq!(reply.layout.unwrap().osts().len(), 1);
    }

    #[test]
    fn dots_lead_to_the_directory_and_its_parent() {
        let mut world = World::new();
        let dir = world.mkdir(Fid::ROOT, "d");
        let mut found = |parent, name| world.run(|tx| apply(tx, &lookup(parent, name))).entry.unwrap().attr.fid;
        assert_eq!(found(dir, "."), dir);
        assert_eq!(found(dir, ".."), Fid::ROOT);
        assert_eq!(found(Fid::ROOT, ".."), Fid::ROOT);
    }

    #[test]
    fn lookup_distinguishes_absent_names_missing_directories_and_permissions() {
        let mut world = World::new();
        let file = world.file(Fid::ROOT, "f");
        let absent = world.run(|tx| apply(tx, &lookup(Fid::ROOT, "x")));
        assert_eq!(absent, LookupReply { entry: None, leases: lease_flags::PARENT });
        assert_eq!(world.errno(|tx| apply(tx, &lookup(file, "x"))), Errno::ENOTDIR);
        assert_eq!(world.errno(|tx| apply(tx, &lookup(Fid { high: 0, low: 99 }, "x"))), Errno::ESTALE);
        let long = "x".repeat(256);
        assert_eq!(world.errno(|tx| apply(tx, &lookup(Fid::ROOT, &long))), Errno::ENAMETOOLONG);
        let private = world.make(&root(), Fid::ROOT, "p", 0o040_700);
        world.run(|tx| crate::ops::make::apply(tx, &private));
        assert_eq!(world.errno(|tx| apply(tx, &lookup(private.fid, "x"))), Errno::EACCES);
    }
}
