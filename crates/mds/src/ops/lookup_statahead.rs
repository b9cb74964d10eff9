//! Statahead: looks up a name, and returns the attributes of the names that follow it too. Clients use it when they
//! have listed a directory and then stat all of its entries.
//!
//! The rows of the other names come from an earlier scan. The reply includes only names that are still valid and whose
//! inodes can be leased: the client did not request them, so only a recall notifies it of changes. Leases of other
//! clients on those inodes are left alone. There is one exception: leases of the clients that also hold one on the
//! requested inode are recalled together with it, as a client that created one of the files probably created many.

use forebay_env::{Bug, planted};
use forebay_proto::{
    Errno, Fid,
    message::{LookupStatahead, LookupStataheadReply, NamedAttr, lease_flags},
};

use super::lookup;
use crate::{
    dirent::{self, Entry},
    halt::{Halt, Step},
    keys::{self, Key},
    leases::Use,
    limits, perm,
    tx::Tx,
};

/// The cookie from which the scan for other names starts. Errors: as [`lookup::apply`].
pub fn first(tx: &mut Tx<'_>, request: &LookupStatahead) -> Step<u64> {
    let dir = tx.dir(request.lookup.parent)?;
    perm::access(&request.lookup.caller, &dir, perm::SEARCH)?;
    // Other clients' changes of the directory must be known to the MDT first.
    tx.share_names(request.lookup.parent);
    let seed = dir.dir().ok_or(Errno::ENOTDIR)?.seed;
    Ok(dirent::first_cookie(seed, &request.lookup.name))
}

/// How many rows to scan, starting at that cookie.
pub fn rows(request: &LookupStatahead) -> usize {
    (request.names as usize).min(limits::STATAHEAD_NAMES) + 1
}

/// Rows worth prefetching in addition to those of the lookup.
pub fn other_keys(request: &LookupStatahead, others: &[(u64, Entry)]) -> Vec<Key> {
    let keys_of =
        |(cookie, entry): &(u64, Entry)| [keys::dirent(request.lookup.parent, *cookie), keys::inode(entry.fid)];
    others.iter().flat_map(keys_of).collect()
}

/// `others`: the result of the scan from [`first`] on. Errors: as [`lookup::apply`].
pub fn apply(tx: &mut Tx<'_>, request: &LookupStatahead, others: &[(u64, Entry)]) -> Step<LookupStataheadReply> {
    let mut found = lookup::apply(tx, &request.lookup)?;
    if let Some(entry) = found.entry.as_mut().filter(|entry| entry.leases == 0) {
        // A client that stats all names looks at each more than once.
        entry.leases = tx.lease_waited_for(entry.attr.fid, lease_flags::INODE);
        found.leases |= entry.leases;
    }
    let mut reply = LookupStataheadReply { others: Vec::new(), found };
    if reply.found.leases & lease_flags::PARENT == 0 {
        return Ok(reply);
    }
    tx.share_names(request.lookup.parent);
    // Leases of these sessions on the other inodes are recalled together with theirs on the name's inode.
    let (memory, session) = (tx.memory, tx.origin.session);
    let found_fid = reply.found.entry.as_ref().map(|entry| entry.attr.fid);
    let asked = found_fid.map_or(Vec::new(), |fid| memory.leases.conflicting_sessions(session, fid, Use::Shows));
    let other_names = others.iter().filter(|(_, entry)| entry.name != request.lookup.name);
    for (cookie, entry) in other_names.take(rows(request) - 1) {
        if is_written(tx, entry.fid) || !memory.leases.conflicts_only_with(&asked, session, entry.fid) {
            continue;
        }
        match other(tx, request, *cookie, entry) {
            Ok(told) => reply.others.extend(told),
            // Paged out since the prefetch.
            Err(Halt::Missing(_)) => {}
            Err(halt) => return Err(halt),
        }
    }
    Ok(reply)
}

fn other(tx: &mut Tx<'_>, request: &LookupStatahead, cookie: u64, entry: &Entry) -> Step<Option<NamedAttr>> {
    if tx.name_at(request.lookup.parent, cookie)?.as_ref() != Some(entry) {
        return Ok(None);
    }
    let Some(inode) = tx.find_inode(entry.fid)? else { return Ok(None) };
    let mut leases = tx.lease_waited_for(entry.fid, lease_flags::INODE);
    if leases == 0 && !planted(Bug::StataheadUnleased) {
        return Ok(None);
    }
    // A client that removes all names can acknowledge each removal itself.
    leases = tx.lease_exclusive(entry.fid, request.lookup.parent, leases);
    Ok(Some(NamedAttr { name: entry.name.clone(), attr: tx.attr(entry.fid, &inode), leases }))
}

/// True if a writer or a truncate may change the file's size without the MDT knowing.
fn is_written(tx: &Tx<'_>, fid: Fid) -> bool {
    tx.memory.opens.has_writer(fid) || tx.memory.truncating.contains(&fid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    use crate::{
        opens::OpenChange,
        ops::readdir,
        testing::{World, root},
    };
    use forebay_proto::{
        ClientId, SessionId, Transno,
        message::{Caller, Lookup, Unlink, open_flags},
    };
    use std::collections::BTreeSet;

    fn request(name: &str, names: u32) -> LookupStatahead {
        LookupStatahead { lookup: Lookup { caller: root(), parent: Fid::ROOT, name: name.to_owned().into() }, names }
    }

    /// The current result of the scan.
    fn scan(world: &mut World, request: &LookupStatahead) -> Vec<(u64, Entry)> {
        let first = world.run(|tx| first(tx, request));
        let from = Bytes::copy_from_slice(keys::dirent(Fid::ROOT, first).as_ref());
        let to = Bytes::from(keys::after(keys::dirents(Fid::ROOT).as_ref()));
        let found = world.rows.range(from..to).take(rows(request));
        readdir::decode(&found.map(|(key, value)| (key.clone(), value.clone())).collect::<Vec<_>>()).unwrap()
    }

    fn told(world: &mut World, request: &LookupStatahead, others: &[(u64, Entry)]) -> BTreeSet<Bytes> {
        let reply = world.run(|tx| apply(tx, request, others));
        assert!(reply.others.iter().all(|other| world.effects.granted.contains(&other.attr.fid)));
        reply.others.into_iter().map(|other| other.name).collect()
    }

    /// A directory with ten files, and the name of the one with the first cookie.
    fn ten() -> (World, String, Vec<Entry>) {
        let mut world = World::new();
        for number in 0..10 {
            world.file(Fid::ROOT, &format!("f{number}"));
        }
        let mut in_order = (0..10).map(|number| format!("f{number}")).collect::<Vec<_>>();
        in_order.sort_by_key(|name| world.run(|tx| first(tx, &request(name, 1))));
        let first = in_order.remove(0);
        let others = scan(&mut world, &request(&first, 20)).into_iter().map(|(_, entry)| entry).skip(1).collect();
        (world, first, others)
    }

    #[test]
    fn names_that_follow_come_with_leases_as_many_as_were_requested() {
        let (mut world, name, others) = ten();
        for names in [3, 9, 20] {
            let request = request(&name, names);
            let found = scan(&mut world, &request);
            let expected = others.iter().take(names as usize).map(|entry| entry.name.clone()).collect();
            assert_eq!(told(&mut world, &request, &found), expected);
        }
    }

    #[test]
    fn statahead_leaves_out_names_that_changed_after_the_scan() {
        let (mut world, name, others) = ten();
        let request = request(&name, 20);
        let found = scan(&mut world, &request);
        let unlink = |name: &Bytes| Unlink { caller: root(), parent: Fid::ROOT, name: name.clone(), at_ns: 0 };
        for other in &others[..2] {
            world.run(|tx| crate::ops::unlink::apply(tx, &unlink(&other.name)));
        }
        let again = String::from_utf8(others[1].name.to_vec()).unwrap();
        world.file(Fid::ROOT, &again);
        let expected = others[2..].iter().map(|entry| entry.name.clone()).collect();
        assert_eq!(told(&mut world, &request, &found), expected);
    }

    #[test]
    fn statahead_recalls_no_lease_and_leaves_out_files_that_another_session_changes() {
        let (mut world, name, others) = ten();
        world.memory.opens.follow(OpenChange::Opened {
            fid: others[0].fid,
            session: SessionId(2),
            handle: 1,
            flags: open_flags::WRITE,
            client: ClientId::default(),
            made: false,
            transno: Transno(1),
        });
        world.memory.leases.grant(SessionId(2), others[1].fid);
        world.memory.leases.changed(SessionId(2), others[1].fid);
        // The session only believes that it holds the lease.
        world.memory.leases.grant(SessionId(2), others[2].fid);
        let request = request(&name, 20);
        let found = scan(&mut world, &request);
        let expected = others[2..].iter().map(|entry| entry.name.clone()).collect();
        assert_eq!(told(&mut world, &request, &found), expected);
    }

    #[test]
    fn statahead_recalls_more_leases_only_from_the_session_that_holds_the_looked_up_inode() {
        let (mut world, name, others) = ten();
        let request = request(&name, 20);
        let found = scan(&mut world, &request);
        let leases = &mut world.memory.leases;
        for (session, fid) in [(2, found[0].1.fid), (2, others[0].fid), (3, others[1].fid)] {
            leases.grant(SessionId(session), fid);
            leases.changed(SessionId(session), fid);
        }
        leases.grant_data(SessionId(2), others[2].fid);
        let left = others.iter().enumerate().filter(|(number, _)| !matches!(number, 1 | 2));
        let expected = left.map(|(_, entry)| entry.name.clone()).collect();
        assert_eq!(told(&mut world, &request, &found), expected);
    }

    #[test]
    fn statahead_needs_the_permission_of_the_lookup_and_follows_absent_names() {
        let (mut world, ..) = ten();
        // A name that is not the last in the order of cookies.
        let mut absent = (0..100).map(|number| request(&format!("absent{number}"), 20));
        let (absent, found) = absent
            .find_map(|absent| {
                let found = scan(&mut world, &absent);
                (!found.is_empty()).then_some((absent, found))
            })
            .expect("not all of them do");
        let reply = world.run(|tx| apply(tx, &absent, &found));
        assert_eq!((reply.found.entry, reply.others.len()), (None, found.len()));
        let private = world.make(&root(), Fid::ROOT, "p", 0o040_700);
        world.run(|tx| crate::ops::make::apply(tx, &private));
        let caller = Caller { uid: 7, gid: 7, groups: Vec::new() };
        let lookup = Lookup { caller, parent: private.fid, name: "x".into() };
        let refused = LookupStatahead { lookup, names: 2 };
        assert_eq!(world.errno(|tx| first(tx, &refused)), Errno::EACCES);
        assert_eq!(world.errno(|tx| apply(tx, &refused, &[])), Errno::EACCES);
    }
}
