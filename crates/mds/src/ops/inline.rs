//! Inline data: small files whose bytes are stored on the MDT, in a row beside the inode's.
//!
//! The client that created the file, or cut it to nothing, sends the bytes with its last close, if no OST received a request
//! anything about the file since ([`take`]). Before anybody writes to the file again, the bytes are written to the
//! file's home ([`outline`]). That goes through the truncate log, under a new truncate epoch, so it completes after any
//! crash.
//!
//! Invariant: the row exists if and only if the inode has the flag for it, and is as long as the file.
//! Invariant: within a truncate epoch the bytes do not change, so a client that was shown them may cache them until it
//! sees another epoch.
//! Invariant: while the bytes are inline, no OST has any of the file. A client with the file open for writing requests
//! [`outline`] before it sends an OST any request.

use bytes::Bytes;
use forebay_env::{Bug, planted};
use forebay_proto::{
    DecodeError, Errno, ErrorReply, Fid,
    limits::INLINE_BYTES,
    message::{Close, EntryReply, Outline, ReadInline, open_flags},
};

use super::Purpose;
use crate::{
    halt::{Step, corrupt, no_space},
    inode::Inode,
    keys,
    keys::Key,
    tx::{Tx, stuck_truncate},
};

const VERSION: u8 = 1;

/// The value of a row.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(VERSION);
    out.extend_from_slice(bytes);
}

/// Reads a row's value.
pub fn decode(row: &Bytes) -> Result<Bytes, DecodeError> {
    match row.first() {
        Some(&VERSION) if row.len() <= 1 + INLINE_BYTES => Ok(row.slice(1..)),
        Some(&VERSION) => Err(DecodeError::new("inline: more bytes than lie in a row")),
        _ => Err(DecodeError::new("inline: a version this program does not know")),
    }
}

/// The bytes of an inline file. Errors: EIO for a row that is missing, or not as long as the file.
pub fn bytes(tx: &Tx<'_>, fid: Fid, inode: &Inode) -> Step<Bytes> {
    let key = keys::inline(fid);
    if inode.size > INLINE_BYTES as u64 && tx.memory.truncating.contains(&fid) {
        // The file grows beyond inline size, and that truncate is stuck.
        return Err(stuck_truncate(fid).into());
    }
    let row = tx.row(key)?.ok_or(DecodeError::new("inline: it is missing")).and_then(|row| decode(&row));
    let length = inode.size;
    let whole = row.and_then(|bytes| match bytes.len() as u64 == length {
        true => Ok(bytes),
        false => Err(DecodeError::new("inline: not as long as the file")),
    });
    whole.map_err(|error| corrupt(key.as_ref(), error))
}

/// Takes all bytes of the file from its last close. `inode` has the new size already. True if the bytes are inline now.
/// Errors: EBUSY if another handle has the file open, if a truncate is in progress, or if the file has bytes; ENOSPC;
/// EINVAL.
pub fn take(tx: &mut Tx<'_>, request: &Close, inode: &mut Inode) -> Step<bool> {
    let Some(bytes) = &request.inline else { return Ok(false) };
    let flags = tx.memory.opens.flags(request.fid, tx.origin.session, request.handle).unwrap_or_default();
    let is_whole = bytes.len() as u64 == request.size && (1..=INLINE_BYTES).contains(&bytes.len());
    if !is_whole || !request.wrote || flags & open_flags::WRITE == 0 || !inode.is_file() {
        return Err(ErrorReply::new(Errno::EINVAL, "these are not all bytes of a small file").into());
    }
    if inode.nlink == 0 && tx.memory.opens.count(request.fid).handles == 1 {
        // The file is destroyed with this handle.
        return Ok(false);
    }
    // A session that also had the file open at the first execution may be lost. A truncate that was complete then may
    // be in progress again.
    let is_last =
        tx.origin.is_replay || tx.memory.opens.count(request.fid).handles == 1 || planted(Bug::InlineTakenFromOthers);
    let is_cut = !tx.origin.is_replay && tx.memory.truncating.contains(&request.fid);
    let is_current = request.truncate_epoch == inode.truncate_epoch && !is_cut;
    if !is_last || !is_current || inode.inline || inode.size != 0 || !has_space_for_all(inode) {
        return Err(ErrorReply::new(Errno::EBUSY, "the bytes of this file belong on its OSTs").into());
    }
    if !tx.origin.has_space_for_inline && !tx.origin.is_replay {
        return Err(no_space().into());
    }
    tx.put_with(keys::inline(request.fid), |out| encode(bytes, out));
    tx.touch(keys::inode(request.fid));
    inode.inline = true;
    Ok(true)
}

/// True if the home's first object can hold the largest inline file.
fn has_space_for_all(inode: &Inode) -> bool {
    let first = inode.layout().and_then(|layout| layout.components.first());
    first.is_some_and(|part| part.has_osts() && part.end >= INLINE_BYTES as u64)
}

/// Rows worth prefetching together.
pub fn keys(fid: Fid) -> [Key; 2] {
    [keys::inode(fid), keys::inline(fid)]
}

/// Rows worth prefetching together.
pub fn read_keys(request: &ReadInline) -> [Key; 2] {
    keys(request.fid)
}

/// Returns the bytes as the reply's bulk; no bulk if the file is not inline. Errors: ESTALE.
pub fn read(tx: &mut Tx<'_>, request: &ReadInline) -> Step<EntryReply> {
    tx.wait_while_cut(request.fid)?;
    let inode = tx.inode(request.fid)?;
    let session = tx.origin.session;
    let is_read = |(_, fid, flags): &(u64, Fid, u32)| *fid == request.fid && flags & open_flags::READ != 0;
    if inode.guard.is_some() && !tx.memory.opens.of_session(session).iter().any(is_read) {
        tx.check_guard(&inode)?;
    }
    if inode.inline {
        tx.effects.bulk = Some(bytes(tx, request.fid, &inode)?);
    }
    Ok(tx.leased_reply(request.fid, &inode))
}

/// Rows worth prefetching together.
pub fn outline_keys(request: &Outline) -> [Key; 1] {
    [keys::inode(request.fid)]
}

/// Starts to write the bytes to the file's home, if the file is inline. Replies with the file's state after that.
/// Errors: ESTALE; ENOSPC; EIO if an OST cannot take the bytes.
pub fn outline(tx: &mut Tx<'_>, request: &Outline) -> Step<EntryReply> {
    tx.wait_for_truncate(request.fid)?;
    let mut inode = tx.inode(request.fid)?;
    if inode.inline {
        let home = inode.layout().ok_or(Errno::EINVAL)?.home();
        if tx.memory.exhausted.contains(&home) && !tx.origin.is_replay {
            let words = "the OST that the file's bytes belong on is full; see `forebay df`";
            return Err(ErrorReply::new(Errno::ENOSPC, words).into());
        }
        let size = inode.size;
        inode.truncate_epoch += 1;
        // The time of this write must not become the file's time. The current time is by its writer's clock, the next
        // one by an OST's.
        (inode.attr_epoch, inode.mtime_set) = (inode.attr_epoch + 1, true);
        tx.put_inode_touched(request.fid, &mut inode);
        tx.log_truncate(request.fid, &inode, Purpose::Outline { size });
        inode.inline = false;
    }
    Ok(tx.entry_reply(request.fid, &inode))
}

impl Tx<'_> {
    /// Adjusts the row of a file that gets another size (its inode has the old one). The bytes are cut or extended by
    /// zeros. The row is deleted at size 0, and stays unchanged if the file grows beyond inline size.
    pub fn resize_inline(&mut self, fid: Fid, inode: &mut Inode, size: u64) -> Step<()> {
        let old = bytes(self, fid, inode)?;
        match usize::try_from(size).ok().filter(|size| *size <= INLINE_BYTES) {
            Some(0) => {
                self.delete(keys::inline(fid));
                inode.inline = false;
            }
            Some(size) => {
                if size > old.len() {
                    self.need_space()?;
                }
                let mut new = old.to_vec();
                new.resize(size, 0);
                self.put_with(keys::inline(fid), |out| encode(&new, out));
            }
            None => {}
        }
        Ok(())
    }

    /// The bytes are on the file's home now (the caller writes the inode's row).
    pub fn end_inline(&mut self, fid: Fid, inode: &mut Inode) {
        self.delete(keys::inline(fid));
        inode.inline = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ops::{self, TruncateLog},
        testing::{World, root},
    };
    use forebay_proto::{
        Layout, SessionId,
        message::{Open, SetAttr, Unlink, attr_flags, lease_flags, set_attr},
    };

    const BYTES: &[u8] = b"twelve bytes";

    fn close(fid: Fid, bytes: &[u8]) -> Close {
        Close {
            fid,
            handle: 1,
            wrote: true,
            size: bytes.len() as u64,
            truncate_epoch: 0,
            mtime_ns: 5,
            attr_epoch: 0,
            sparse: false,
            inline: Some(Bytes::copy_from_slice(bytes)),
            set: None,
        }
    }

    fn made(world: &mut World) -> Fid {
        let request = world.create(&root(), Fid::ROOT, "a", 1);
        world.run(|tx| ops::create::apply(tx, &request)).attr.fid
    }

    /// An inline file.
    fn small(world: &mut World) -> Fid {
        let fid = made(world);
        world.run(|tx| ops::close::apply(tx, &close(fid, BYTES)));
        fid
    }

    fn open(world: &mut World, fid: Fid, flags: u32, handle: u64) -> forebay_proto::message::OpenReply {
        let request = Open { caller: root(), fid, flags, handle };
        world.run(|tx| ops::open::apply(tx, &request))
    }

    fn resize(world: &mut World, fid: Fid, size: u64) {
        let (caller, mask) = (root(), set_attr::SIZE);
        let request =
            SetAttr { caller, fid, mask, mode: 0, uid: 0, gid: 0, size, atime_ns: 0, mtime_ns: 0, handle: 0, at_ns: 0 };
        world.run(|tx| ops::setattr::apply(tx, &request));
    }

    fn here(world: &mut World, fid: Fid) -> Option<Vec<u8>> {
        let inode = world.run(|tx| tx.inode(fid));
        assert_eq!(inode.inline, world.rows.contains_key(keys::inline(fid).as_ref()));
        inode.inline.then(|| world.run(|tx| bytes(tx, fid, &inode)).to_vec())
    }

    fn log(world: &mut World, fid: Fid) -> Option<Purpose> {
        let row = world.run(|tx| tx.row(keys::truncate(fid)))?;
        Some(TruncateLog::decode(&row).unwrap().purpose)
    }

    #[test]
    fn the_last_close_makes_a_small_file_inline_and_opens_return_the_bytes() {
        let mut world = World::new();
        let fid = small(&mut world);
        assert_eq!(here(&mut world, fid).as_deref(), Some(BYTES));
        let reply = open(&mut world, fid, open_flags::READ, 2);
        assert_eq!((reply.attr.size, reply.attr.flags), (12, attr_flags::INLINE));
        assert_eq!((world.effects.bulk.as_deref(), reply.leases), (Some(BYTES), lease_flags::INODE));
        // A client that opens for writing gets the bytes, but no lease: that would mean that nobody writes.
        let reply = open(&mut world, fid, open_flags::READ | open_flags::WRITE, 3);
        assert_eq!(world.effects.bulk.as_deref(), Some(BYTES));
        assert_eq!(reply.leases & lease_flags::INODE, 0);
        open(&mut world, fid, open_flags::WRITE, 4);
        assert_eq!(world.effects.bulk, None);
        let entry = world.run(|tx| read(tx, &ReadInline { fid }));
        assert_eq!((entry.attr.flags, world.effects.bulk.as_deref()), (attr_flags::INLINE, Some(BYTES)));
    }

    #[test]
    fn a_close_with_a_part_of_a_file_or_a_large_file_as_inline_bytes_is_refused() {
        let mut world = World::new();
        let fid = made(&mut world);
        let long = vec![7; INLINE_BYTES + 1];
        let odd = [
            close(fid, b""),
            close(fid, &long),
            Close { size: 13, ..close(fid, BYTES) },
            Close { wrote: false, ..close(fid, BYTES) },
        ];
        for request in odd {
            assert_eq!(world.errno(|tx| ops::close::apply(tx, &request)), Errno::EINVAL);
        }
        let late = Close { truncate_epoch: 1, ..close(fid, BYTES) };
        assert_eq!(world.errno(|tx| ops::close::apply(tx, &late)), Errno::EBUSY);
        world.run(|tx| ops::close::apply(tx, &close(fid, &long[..INLINE_BYTES])));
        assert_eq!(here(&mut world, fid).map(|bytes| bytes.len()), Some(INLINE_BYTES));
    }

    #[test]
    fn inline_bytes_of_a_file_that_another_session_has_open_are_refused() {
        let mut world = World::new();
        let fid = made(&mut world);
        world.session = SessionId(2);
        open(&mut world, fid, open_flags::READ, 9);
        world.session = SessionId(1);
        assert_eq!(world.errno(|tx| ops::close::apply(tx, &close(fid, BYTES))), Errno::EBUSY);
        // It was taken once; the session that has the file open now did not then.
        world.is_replay = true;
        world.run(|tx| ops::close::apply(tx, &close(fid, BYTES)));
        assert_eq!(here(&mut world, fid).as_deref(), Some(BYTES));
    }

    #[test]
    fn an_mdt_short_of_space_refuses_inline_bytes_with_enospc() {
        let mut world = World::new();
        let fid = made(&mut world);
        world.has_space = false;
        assert_eq!(world.errno(|tx| ops::close::apply(tx, &close(fid, BYTES))), Errno::ENOSPC);
        world.run(|tx| ops::close::apply(tx, &Close { inline: None, ..close(fid, BYTES) }));
        assert_eq!(here(&mut world, fid), None);
    }

    #[test]
    fn inline_bytes_over_two_components_of_a_layout_are_refused() {
        let mut world = World::new();
        let fid = made(&mut world);
        world.run(|tx| {
            let mut inode = tx.inode(fid)?;
            let mut layout = Layout::plain(1, 1 << 20, vec![0]);
            let behind = forebay_proto::Component { start: 5000, ..layout.components[0].clone() };
            layout.components[0].end = 5000;
            layout.components.push(behind);
            inode.body = crate::inode::Body::File(layout);
            tx.put_inode(fid, &mut inode);
            Ok(())
        });
        assert_eq!(world.errno(|tx| ops::close::apply(tx, &close(fid, BYTES))), Errno::EBUSY);
    }

    #[test]
    fn inline_bytes_are_truncated_and_extended_in_their_row_up_to_its_bound() {
        let mut world = World::new();
        let fid = small(&mut world);
        resize(&mut world, fid, 6);
        assert_eq!((here(&mut world, fid).as_deref(), log(&mut world, fid)), (Some(&b"twelve"[..]), None));
        resize(&mut world, fid, 8);
        assert_eq!((here(&mut world, fid).as_deref(), log(&mut world, fid)), (Some(&b"twelve\0\0"[..]), None));
        let inode = world.run(|tx| tx.inode(fid));
        assert_eq!((inode.size, inode.truncate_epoch, inode.sparse), (8, 2, true));
        resize(&mut world, fid, 1 << 20);
        assert_eq!(log(&mut world, fid), Some(Purpose::Outline { size: 1 << 20 }));
        assert_eq!(world.count(keys::INLINE), 1, "until they are written");
    }

    #[test]
    fn cut_to_nothing_the_file_has_no_row() {
        let mut world = World::new();
        let fid = small(&mut world);
        resize(&mut world, fid, 0);
        assert_eq!((here(&mut world, fid), world.count(keys::INLINE)), (None, 0));
        assert_eq!(log(&mut world, fid), Some(Purpose::Cut { size: 0 }));
    }

    #[test]
    fn outline_truncates_the_file_and_logs_the_bytes_to_be_written_to_the_home() {
        let mut world = World::new();
        let fid = small(&mut world);
        let entry = world.run(|tx| outline(tx, &Outline { fid }));
        assert_eq!((entry.attr.flags, entry.attr.truncate_epoch, entry.attr.attr_epoch), (0, 1, 1));
        assert_eq!(world.effects.truncate, Some(fid));
        assert_eq!(log(&mut world, fid), Some(Purpose::Outline { size: 12 }));
        world.run(|tx| {
            let mut inode = tx.inode(fid)?;
            tx.end_inline(fid, &mut inode);
            tx.put_inode(fid, &mut inode);
            Ok(())
        });
        assert_eq!(here(&mut world, fid), None);
        // A client that repeats the request gets the current state.
        let entry = world.run(|tx| outline(tx, &Outline { fid }));
        assert_eq!((entry.attr.truncate_epoch, world.effects.truncate), (1, None));
        let entry = world.run(|tx| read(tx, &ReadInline { fid }));
        assert_eq!((entry.attr.flags, world.effects.bulk.clone()), (0, None));
    }

    #[test]
    fn outline_to_a_full_home_is_enospc_and_the_bytes_stay_inline() {
        let mut world = World::new();
        let fid = small(&mut world);
        world.memory.exhausted = [0, 1, 2].into();
        assert_eq!(world.errno(|tx| outline(tx, &Outline { fid })), Errno::ENOSPC);
        assert_eq!(here(&mut world, fid).as_deref(), Some(BYTES));
    }

    #[test]
    fn a_file_that_cannot_be_outlined_is_read_and_not_opened_for_writing() {
        let mut world = World::new();
        let fid = small(&mut world);
        world.run(|tx| outline(tx, &Outline { fid }));
        world.memory.truncating.insert(fid);
        world.memory.stuck.insert(fid);
        open(&mut world, fid, open_flags::READ, 7);
        assert_eq!(world.effects.bulk.as_deref(), Some(BYTES));
        let request = Open { caller: root(), fid, flags: open_flags::READ | open_flags::WRITE, handle: 8 };
        assert_eq!(world.errno(|tx| ops::open::apply(tx, &request)), Errno::EIO);
    }

    /// cut to nothing, written, closed |X| the log of the cut is there again, and its close is replayed
    #[test]
    fn a_close_is_replayed_though_the_truncate_before_it_is_under_way_again() {
        let mut world = World::new();
        let fid = made(&mut world);
        world.memory.truncating.insert(fid);
        assert_eq!(world.errno(|tx| ops::close::apply(tx, &close(fid, BYTES))), Errno::EBUSY);
        world.is_replay = true;
        world.run(|tx| ops::close::apply(tx, &close(fid, BYTES)));
        assert_eq!(here(&mut world, fid).as_deref(), Some(BYTES));
    }

    #[test]
    fn unlink_of_an_inline_file_removes_the_bytes_and_destroys_no_object() {
        let mut world = World::new();
        let _ = small(&mut world);
        let unlink = Unlink { caller: root(), parent: Fid::ROOT, name: "a".into(), at_ns: 0 };
        world.run(|tx| ops::unlink::apply(tx, &unlink));
        assert_eq!((world.count(keys::INLINE), world.count(keys::DESTROY), world.memory.inodes), (0, 0, 1));
    }

    #[test]
    fn an_inline_file_unlinked_while_open_ends_with_its_last_handle() {
        let mut world = World::new();
        let fid = made(&mut world);
        let unlink = Unlink { caller: root(), parent: Fid::ROOT, name: "a".into(), at_ns: 0 };
        world.run(|tx| ops::unlink::apply(tx, &unlink));
        world.run(|tx| ops::close::apply(tx, &close(fid, BYTES)));
        assert_eq!((world.count(keys::INLINE), world.memory.inodes), (0, 1));
    }

    #[test]
    fn a_row_that_is_missing_or_of_another_length_is_damage() {
        let mut world = World::new();
        let fid = small(&mut world);
        let key = Bytes::copy_from_slice(keys::inline(fid).as_ref());
        let request = Open { caller: root(), fid, flags: open_flags::READ, handle: 5 };
        for row in [Some(&b"\x01short"[..]), Some(b"\x02twelve bytes"), Some(b""), None] {
            match row {
                Some(row) => world.rows.insert(key.clone(), Bytes::from_static(row)),
                None => world.rows.remove(&key),
            };
            assert_eq!(world.errno(|tx| ops::open::apply(tx, &request)), Errno::EIO, "{row:?}");
        }
    }

    /// The golden bytes of docs/format-mdt.md.
    #[test]
    fn rows_have_the_bytes_of_the_format() {
        let mut out = Vec::new();
        encode(BYTES, &mut out);
        assert_eq!(out, b"\x01twelve bytes");
        assert_eq!(decode(&out.into()).as_deref(), Ok(BYTES));
        assert!(decode(&vec![1; INLINE_BYTES + 2].into()).is_err());
    }
}
