//! Migrate: a file takes over the objects of another file, into which it was copied. This gives a file with data
//! another layout.
//!
//! The migrating client reads the file's version, copies the file to a file without a name that has the wanted
//! layout, and requests the exchange. The MDT refuses if the file changed since, has a writer, or is open elsewhere.
//! Otherwise its OSTs get a new truncate epoch (nobody reads or writes under the old layout any more), and one
//! transaction exchanges the layouts. The other file is destroyed with its last handle, and the old objects with it.
//! After a crash at any moment the file has one of the two layouts, complete.
//!
//! Objects keep the fid under which they were created. So after the exchange the layout holds that fid
//! (`Layout::objects`), and a row names the file that owns the objects. The collection reads that row.

use forebay_proto::{
    DecodeError, Errno, ErrorReply, Fid, Layout, Reader, Transno,
    message::{Empty, GetContentVersion, Migrate, MigrateReply},
};

use super::{Purpose, extend};
use crate::{
    halt::Step,
    inode::{Body, Inode},
    keys,
    keys::Key,
    perm,
    tx::Tx,
};

/// Rows worth prefetching together.
pub fn start_keys(request: &GetContentVersion) -> [Key; 1] {
    [keys::inode(request.fid)]
}

/// Rows worth prefetching together.
pub fn keys(request: &Migrate) -> [Key; 2] {
    [keys::inode(request.fid), keys::inode(request.other)]
}

/// Returns the version of the file's content, which is valid until the content changes. Errors: EBUSY, EINVAL.
pub fn start(tx: &mut Tx<'_>, request: &GetContentVersion) -> Step<MigrateReply> {
    tx.wait_for_truncate(request.fid)?;
    let inode = tx.inode(request.fid)?;
    check_idle(tx, request.fid, &inode)?;
    Ok(MigrateReply { version: inode.transno.0 })
}

fn check_idle(tx: &Tx<'_>, fid: Fid, inode: &Inode) -> Result<(), ErrorReply> {
    if inode.layout().is_none() {
        return Err(ErrorReply::new(Errno::EINVAL, "only regular files have objects that can be moved"));
    }
    if inode.inline {
        return Err(ErrorReply::new(
            Errno::EBUSY,
            "the file's bytes lie with the MDT: have them written to its OSTs first",
        ));
    }
    if tx.memory.opens.has_writer(fid) {
        return Err(ErrorReply::new(Errno::EBUSY, "the file is open for writing"));
    }
    if tx.memory.opens.is_open_elsewhere(fid, tx.origin.session) {
        return Err(ErrorReply::new(Errno::EBUSY, "the file is open on another mount"));
    }
    Ok(())
}

/// Errors: EPERM; EBUSY, also while the copy is still being written; EAGAIN if the file changed since.
pub fn apply(tx: &mut Tx<'_>, request: &Migrate) -> Step<Empty> {
    tx.wait_for_truncate(request.fid)?;
    tx.wait_for_truncate(request.other)?;
    let mut inode = tx.inode(request.fid)?;
    let other = tx.inode(request.other)?;
    perm::owner(&request.caller, &inode)?;
    perm::owner(&request.caller, &other)?;
    check_idle(tx, request.fid, &inode)?;
    if other.layout().is_none() || other.inline || request.fid == request.other {
        return Err(Errno::EINVAL.into());
    }
    if inode.transno != Transno(request.version) {
        return Err(ErrorReply::new(Errno::EAGAIN, "the file changed while it was copied").into());
    }
    if tx.memory.opens.has_writer(request.other) {
        return Err(ErrorReply::new(Errno::EBUSY, "the copy is still being written").into());
    }
    if other.size != inode.size {
        return Err(ErrorReply::new(Errno::EINVAL, "the copy is not as long as the file").into());
    }
    inode.truncate_epoch = inode.truncate_epoch.max(other.truncate_epoch) + 1;
    inode.written = true;
    tx.put_inode_touched(request.fid, &mut inode);
    tx.log_truncate(request.fid, &inode, Purpose::Exchange { other: request.other });
    Ok(Empty {})
}

/// The second half, once the OSTs of the file know the epoch. False if the copy changed meanwhile.
pub fn exchange(tx: &mut Tx<'_>, fid: Fid, inode: &mut Inode, other_fid: Fid) -> Step<bool> {
    let Some(mut other) = tx.find_inode(other_fid)? else { return Ok(false) };
    let (Some(old), Some(new)) = (inode.layout().cloned(), other.layout().cloned()) else { return Ok(false) };
    if inode.inline || other.inline || inode.project != other.project {
        return Ok(false);
    }
    if tx.memory.opens.has_writer(other_fid) || tx.memory.opens.has_writer(fid) || other.size != inode.size {
        return Ok(false);
    }
    let generation = old.generation.max(new.generation) + 1;
    let (old_name, new_name) = (old.objects_of(fid), new.objects_of(other_fid));
    inode.body = Body::File(Layout { generation, objects: rename(tx, new_name, fid), ..new });
    other.body = Body::File(Layout { generation, objects: rename(tx, old_name, other_fid), ..old });
    (inode.sparse, other.written) = (inode.sparse || other.sparse, true);
    // Times of writing the copy are no times of the file.
    inode.attr_epoch = inode.attr_epoch.max(other.attr_epoch) + 1;
    inode.mtime_set = true;
    other.truncate_epoch = inode.truncate_epoch;
    tx.put_inode_touched(other_fid, &mut other);
    let size = inode.size;
    extend::recut(tx, fid, inode, size);
    Ok(true)
}

/// From now on the objects called `objects` belong to `owner`.
fn rename(tx: &mut Tx<'_>, objects: Fid, owner: Fid) -> Option<Fid> {
    if objects == owner {
        tx.delete(keys::objects(objects));
        return None;
    }
    tx.put_with(keys::objects(objects), |out| {
        out.push(1);
        crate::varint::put_fid(out, owner);
    });
    Some(objects)
}

/// Whose the objects are that a row of [`keys::objects`] is about.
pub fn decode_owner(row: &[u8]) -> Result<Fid, DecodeError> {
    let mut row = Reader::new(row);
    match row.u8()? {
        1 => crate::varint::get_fid(&mut row),
        _ => Err(DecodeError::new("the owner of objects: a version this program does not know")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ops,
        testing::{World, root, user},
    };

    fn written(world: &mut World, name: &str) -> Fid {
        let fid = world.file(Fid::ROOT, name);
        world.run(|tx| {
            let mut inode = tx.inode(fid)?;
            (inode.written, inode.size) = (true, 10);
            tx.put_inode(fid, &mut inode);
            Ok(())
        });
        fid
    }

    fn request(world: &mut World, fid: Fid, other: Fid) -> Migrate {
        let version = world.run(|tx| start(tx, &GetContentVersion { fid })).version;
        Migrate { caller: root(), fid, other, version }
    }

    #[test]
    fn layouts_are_exchanged_and_the_old_objects_go_with_the_copy() {
        let mut world = World::new();
        let (fid, copy) = (written(&mut world, "a"), written(&mut world, "copy"));
        let old = world.run(|tx| tx.inode(fid)).layout().unwrap().home();
        let request = request(&mut world, fid, copy);
        world.run(|tx| apply(tx, &request));
        assert_eq!(world.effects.truncate, Some(fid));
        world.run(|tx| {
            let mut inode = tx.inode(fid)?;
            exchange(tx, fid, &mut inode, copy)
        });
        let layout = world.run(|tx| tx.inode(fid)).layout().unwrap().clone();
        assert_eq!((layout.objects, world.count(keys::OBJECTS)), (Some(copy), 2));
        let unlink = forebay_proto::message::Unlink {
            caller: root(),
            parent: Fid::ROOT,
            name: bytes::Bytes::from_static(b"copy"),
            at_ns: 0,
        };
        world.run(|tx| ops::unlink::apply(tx, &unlink));
        assert!(world.rows.contains_key(keys::destroy(old, fid).as_ref()));
        assert_eq!(world.count(keys::OBJECTS), 1);
    }

    #[test]
    fn a_file_that_changed_or_is_in_use_stays_where_it_is() {
        let mut world = World::new();
        let (fid, copy) = (written(&mut world, "a"), written(&mut world, "copy"));
        let good = request(&mut world, fid, copy);
        assert_eq!(world.errno(|tx| apply(tx, &Migrate { version: 1, ..good.clone() })), Errno::EAGAIN);
        assert_eq!(world.errno(|tx| apply(tx, &Migrate { caller: user(7), ..good.clone() })), Errno::EPERM);
        let open = |fid, flags, handle| forebay_proto::message::Open { caller: root(), fid, flags, handle };
        world.run(|tx| ops::open::apply(tx, &open(copy, 2, 9)));
        assert_eq!(world.errno(|tx| apply(tx, &good)), Errno::EBUSY);
        world.run(|tx| ops::open::apply(tx, &open(fid, 2, 10)));
        assert_eq!(world.errno(|tx| apply(tx, &good)), Errno::EBUSY);
        assert_eq!(world.errno(|tx| start(tx, &GetContentVersion { fid })), Errno::EBUSY);
        world.session = forebay_proto::SessionId(2);
        assert_eq!(world.errno(|tx| start(tx, &GetContentVersion { fid: Fid::ROOT })), Errno::EINVAL);
    }
}
