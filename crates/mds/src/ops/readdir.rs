//! Lists the entries of a directory, in the order of their cookies.
//!
//! The rows come from an earlier scan. An entry whose inode was removed meanwhile is left out. The directory may change
//! between pages: a name keeps its cookie as long as it exists.

use bytes::Bytes;
use forebay_env::{Bug, planted};
use forebay_proto::{
    Errno, ErrorReply, Fid,
    message::{Attr, DirEntry, Empty, ReadDir, ReadDirReply},
};

use crate::{
    dirent::{COOKIE_DOT, COOKIE_DOT_DOT, Dirent, Entry},
    halt::{Halt, Step, damaged},
    inode::{Inode, S_IFDIR},
    keys,
    keys::Key,
    limits,
    tx::Tx,
};

/// Bytes of an entry in a reply without its name: lengths, fid, mode, cookie. With attributes, more.
const ENTRY_BYTES: usize = 40;
const ATTR_BYTES: usize = 112;

/// Rows worth prefetching together.
pub fn keys(request: &ReadDir) -> [Key; 1] {
    [keys::inode(request.fid)]
}

/// The rows that a reply may need: from, to (exclusive), how many.
pub fn rows(request: &ReadDir) -> (Key, Vec<u8>, usize) {
    let from = keys::dirent(request.fid, request.cookie.saturating_add(1));
    let limit = (bytes(request) / ENTRY_BYTES + 1).min(limits::READDIR_ENTRIES);
    (from, keys::after(keys::dirents(request.fid).as_ref()), limit)
}

fn bytes(request: &ReadDir) -> usize {
    (request.max_bytes as usize).clamp(ENTRY_BYTES + ATTR_BYTES + 255, limits::READDIR_BYTES)
}

/// Checks the request before the scan: other clients' changes of the directory must be known to the MDT first. Errors:
/// ENOENT of a removed directory, ENOTDIR, ESTALE.
pub fn shows(tx: &mut Tx<'_>, request: &ReadDir) -> Step<Empty> {
    listed(tx, request)?;
    tx.share_names(request.fid);
    Ok(Empty {})
}

fn listed(tx: &Tx<'_>, request: &ReadDir) -> Step<Inode> {
    let dir = tx.dir(request.fid)?;
    tx.check_guard(&dir)?;
    if dir.nlink > 0 { Ok(dir) } else { Err(Errno::ENOENT.into()) }
}

/// The entries in the scanned rows, with their cookies.
pub fn decode(rows: &[(Bytes, Bytes)]) -> Result<Vec<(u64, Entry)>, ErrorReply> {
    let mut entries = Vec::with_capacity(rows.len());
    for (key, value) in rows {
        let cookie = keys::cookie_of(key).ok_or(Errno::EIO)?;
        if let Some(entry) = Dirent::decode(value).map_err(|error| damaged(key, error))?.entry {
            entries.push((cookie, entry));
        }
    }
    Ok(entries)
}

/// `entries`: those after the request's cookie; `all`: true if there are no more. Errors: as [`shows`].
pub fn apply(tx: &mut Tx<'_>, request: &ReadDir, entries: &[(u64, Entry)], all: bool) -> Step<ReadDirReply> {
    let dir = listed(tx, request)?;
    tx.share_names(request.fid);
    let mut page = Page { request, room: bytes(request), reply: ReadDirReply { entries: Vec::new(), end: false } };
    let parent = tx.parent_of(request.fid, &dir)?;
    for (cookie, name, fid) in [(COOKIE_DOT, ".", request.fid), (COOKIE_DOT_DOT, "..", parent)] {
        let entry = Entry { fid, mode: S_IFDIR, name: Bytes::from_static(name.as_bytes()) };
        if request.cookie < cookie && !page.add(tx, cookie, &entry)? {
            return Ok(page.reply);
        }
    }
    for (cookie, entry) in entries {
        if !page.add(tx, *cookie, entry)? {
            return Ok(page.reply);
        }
    }
    page.reply.end = all;
    Ok(page.reply)
}

struct Page<'a> {
    request: &'a ReadDir,
    room: usize,
    reply: ReadDirReply,
}

impl Page<'_> {
    /// Adds an entry; false if the reply has no space for it.
    fn add(&mut self, tx: &Tx<'_>, cookie: u64, entry: &Entry) -> Step<bool> {
        let with_attributes = self.request.with_attributes;
        let bytes = ENTRY_BYTES + entry.name.len() + if with_attributes { ATTR_BYTES } else { 0 };
        let Some(room) = self.room.checked_sub(bytes) else { return Ok(false) };
        // A reply without attributes does not show the inodes: leases of other clients on them stay.
        let inode: Option<Inode> = match with_attributes.then(|| tx.find_inode(entry.fid)) {
            None => None,
            // Not in memory: the reply ends here, and the next page begins with this entry.
            Some(Err(Halt::Missing(_))) if !self.reply.entries.is_empty() => return Ok(false),
            Some(found) => found?,
        };
        if with_attributes && inode.is_none() {
            return Ok(true);
        }
        self.room = room;
        self.reply.entries.push(DirEntry {
            name: entry.name.clone(),
            fid: entry.fid,
            mode: entry.mode,
            cookie,
            attr: inode.map(|inode| listed_attr(tx, entry.fid, &inode)),
        });
        Ok(true)
    }
}

fn listed_attr(tx: &Tx<'_>, fid: Fid, inode: &Inode) -> Attr {
    if planted(Bug::IdMapSkippedInListings) { inode.attr(fid, 0) } else { tx.attr(fid, inode) }
}

/// Inodes whose attributes a reply shows.
pub fn inode_keys(request: &ReadDir, entries: &[(u64, Entry)]) -> Vec<Key> {
    let shown = if request.with_attributes { entries } else { &[] };
    let fids = shown.iter().map(|(_, entry)| entry.fid);
    fids.chain([request.fid]).map(|fid: Fid| keys::inode(fid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;
    use std::collections::BTreeSet;

    fn read(world: &mut World, request: &ReadDir) -> ReadDirReply {
        let (from, to, limit) = rows(request);
        let mut found = world.rows.range(Bytes::copy_from_slice(from.as_ref())..Bytes::from(to));
        let rows: Vec<_> = found.by_ref().take(limit).map(|(key, value)| (key.clone(), value.clone())).collect();
        let all = found.next().is_none();
        let entries = decode(&rows).unwrap();
        world.run(|tx| apply(tx, request, &entries, all))
    }

    #[test]
    fn pages_show_every_name_once_and_dots_first() {
        let mut world = World::new();
        let names: BTreeSet<String> = (0..100).map(|number| format!("file{number}")).collect();
        for name in &names {
            world.file(Fid::ROOT, name);
        }
        let mut request = ReadDir { fid: Fid::ROOT, cookie: 0, max_bytes: 1500, with_attributes: true };
        let mut seen = Vec::new();
        loop {
            let reply = read(&mut world, &request);
            assert!(!reply.entries.is_empty() || reply.end);
            seen.extend(reply.entries);
            if reply.end {
                break;
            }
            request.cookie = seen.last().unwrap().cookie;
        }
        assert_eq!((&seen[0].name[..], &seen[1].name[..]), (&b"."[..], &b".."[..]));
        assert!(seen.windows(2).all(|pair| pair[0].cookie < pair[1].cookie));
        assert!(seen.iter().all(|entry| entry.attr.as_ref().unwrap().fid == entry.fid));
        let shown: BTreeSet<String> =
            seen[2..].iter().map(|entry| String::from_utf8(entry.name.to_vec()).unwrap()).collect();
        assert_eq!((seen.len(), shown), (102, names));
    }

    #[test]
    fn a_mapped_tenants_node_is_shown_its_own_ids_by_every_kind_of_reply() {
        let (mut world, tenant) = (World::new(), crate::tenant::tests::mapped(0));
        let request = world.create(&crate::testing::user(70_007), Fid::ROOT, "f", 0);
        let fid = world.run(|tx| crate::ops::create::apply(tx, &request)).attr.fid;
        for fid in [Fid::ROOT, fid] {
            world.run(|tx| {
                let mut inode = tx.inode(fid)?;
                (inode.project, inode.gid) = (tenant.project, 149);
                tx.put_inode(fid, &mut inode);
                Ok(())
            });
        }
        let rows: Vec<_> = world.rows.clone().into_iter().filter(|(key, _)| keys::cookie_of(key).is_some()).collect();
        let entries = decode(&rows).unwrap();
        let list = ReadDir { fid: Fid::ROOT, cookie: 0, max_bytes: 1 << 16, with_attributes: true };
        let listed = world.run(|tx| {
            tx.tenant = Some(tenant.clone());
            apply(tx, &list, &entries, true)
        });
        let of = |attr: &Attr| (attr.uid, attr.gid);
        let listed = listed.entries.into_iter().find(|entry| &entry.name[..] == b"f").and_then(|entry| entry.attr);
        assert_eq!(of(&listed.expect("its attributes")), (1007, 549));
        let (entry, opened) = world.run(|tx| {
            tx.tenant = Some(tenant.clone());
            let inode = tx.inode(fid)?;
            Ok((tx.entry_reply(fid, &inode), tx.open_reply(fid, &inode, false, false)))
        });
        assert_eq!((of(&entry.attr), of(&opened.attr)), ((1007, 549), (1007, 549)));
        let plain = world.run(|tx| Ok(tx.entry_reply(fid, &tx.inode(fid)?)));
        assert_eq!(of(&plain.attr), (70_007, 149), "to the admin's own nodes");
    }

    #[test]
    fn a_cookie_of_a_name_that_went_still_leads_on() {
        let mut world = World::new();
        for number in 0..10 {
            world.file(Fid::ROOT, &format!("f{number}"));
        }
        let mut request = ReadDir { fid: Fid::ROOT, cookie: 0, max_bytes: 1 << 16, with_attributes: false };
        let all = read(&mut world, &request).entries;
        let unlink = forebay_proto::message::Unlink {
            caller: crate::testing::root(),
            parent: Fid::ROOT,
            name: all[5].name.clone(),
            at_ns: 0,
        };
        world.run(|tx| crate::ops::unlink::apply(tx, &unlink));
        request.cookie = all[5].cookie;
        assert_eq!(read(&mut world, &request).entries, all[6..]);
    }
}
