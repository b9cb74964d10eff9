//! Returns the attributes of a fid.

use forebay_proto::message::{EntryReply, GetAttr};

use crate::{halt::Step, keys, keys::Key, tx::Tx};

/// Rows worth prefetching together.
pub fn keys(request: &GetAttr) -> [Key; 1] {
    [keys::inode(request.fid)]
}

/// Errors: ESTALE.
pub fn apply(tx: &mut Tx<'_>, request: &GetAttr) -> Step<EntryReply> {
    tx.wait_while_cut(request.fid)?;
    let inode = tx.inode(request.fid)?;
    Ok(tx.leased_reply(request.fid, &inode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        halt::Halt,
        testing::{World, root},
    };
    use forebay_proto::{Errno, Fid, SessionId, message::attr_flags};

    #[test]
    fn while_a_file_is_open_for_writing_its_size_is_on_the_osts() {
        let mut world = World::new();
        let request = world.create(&root(), Fid::ROOT, "a", 5);
        world.run(|tx| crate::ops::create::apply(tx, &request));
        let reply = world.run(|tx| apply(tx, &GetAttr { fid: request.fid }));
        assert_eq!(reply.attr.flags, attr_flags::SIZE_ON_OST | attr_flags::SOLE_WRITER | attr_flags::MTIME_SET);
        world.session = SessionId(2);
        let reply = world.run(|tx| apply(tx, &GetAttr { fid: request.fid }));
        assert_eq!(reply.attr.flags, attr_flags::SIZE_ON_OST | attr_flags::MTIME_SET);
    }

    #[test]
    fn getattr_waits_for_a_truncate_in_progress() {
        let mut world = World::new();
        let fid = world.file(Fid::ROOT, "a");
        world.memory.truncating.insert(fid);
        assert_eq!(world.attempt(|tx| apply(tx, &GetAttr { fid })), Err(Halt::Truncating(fid)));
    }

    #[test]
    fn a_fid_that_is_gone_is_stale() {
        assert_eq!(World::new().errno(|tx| apply(tx, &GetAttr { fid: Fid { high: 0, low: 77 } })), Errno::ESTALE);
    }
}
