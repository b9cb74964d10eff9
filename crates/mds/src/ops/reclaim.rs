//! Reclaim, in recovery: a client names the handles and locks that it holds. The handles must be in the table. Locks
//! are in no table: the clients' reclaims are all there is (no lock is granted before all clients have reclaimed
//! theirs).

use forebay_env::{Bug, planted};
use forebay_proto::{
    Errno, ErrorReply,
    message::{Caller, Empty, OpenHandle, Reclaim, open_flags},
};

use crate::{halt::Step, keys, keys::Key, ops::open, perm, tx::Tx};

/// Rows worth prefetching together.
pub fn keys(_request: &Reclaim) -> [Key; 0] {
    []
}

/// Errors: ESTALE if a file is gone. A handle whose row was lost with an uncommitted open is written again. A handle
/// that the client is closing is not, as the close may have removed it: a resend of the close is answered from the
/// cached reply, or fails as the handle does not exist.
pub fn apply(tx: &mut Tx<'_>, request: &Reclaim) -> Step<Empty> {
    let named = request.handles.iter().map(|held| held.fid).chain(request.locks.iter().map(|held| held.fid));
    for fid in named.chain(request.directories.iter().copied()) {
        tx.check_reach(fid)?;
    }
    for held in &request.handles {
        let is_known = tx.memory.opens.flags(held.fid, tx.origin.session, held.handle).is_some();
        let is_closing = held.flags & open_flags::CLOSING != 0;
        let is_gone = !is_known && tx.row(keys::inode(held.fid))?.is_none();
        if is_gone && is_closing {
            continue;
        }
        if held.flags & open_flags::WRITE != 0 {
            // An executed close has ended the lease: if it were restored, no client would ever release it.
            let may_hold = is_known || !is_closing;
            tx.effects.reclaimed.push((held.fid, may_hold && held.flags & open_flags::DATA_WRITE_LEASE != 0));
        }
        if is_known || is_closing {
            continue;
        }
        if is_gone {
            let message = format!("handle {} of {} is lost: the file was destroyed", held.handle, held.fid);
            return Err(ErrorReply::new(Errno::ESTALE, message).into());
        }
        check_of_tenant(tx, held)?;
        open::add_handle(tx, held.fid, held.handle, held.flags, false);
    }
    tx.effects.changing.extend(&request.directories);
    let session = tx.origin.session;
    let locks = request.locks.iter().filter(|_| !planted(Bug::LocksNotReclaimed));
    tx.effects.locks.extend(locks.map(|held| (session, held.fid, held.lock.clone())));
    Ok(Empty {})
}

/// A handle that is not in the table is believed only as far as a tenant's node could have opened it.
fn check_of_tenant(tx: &Tx<'_>, held: &OpenHandle) -> Step<()> {
    let Some(tenant) = &tx.tenant else { return Ok(()) };
    let wanted = open::wanted(held.flags);
    if tenant.is_read_only() && wanted & perm::WRITE != 0 {
        return Err(Errno::EROFS.into());
    }
    let inode = tx.inode(held.fid)?;
    Ok(perm::access(&Caller { uid: 0, gid: 0, groups: Vec::new() }, &inode, wanted)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;
    use forebay_proto::{Fid, message::OpenHandle};

    fn reclaim(fid: Fid) -> Reclaim {
        Reclaim {
            handles: vec![OpenHandle { fid, handle: 4, flags: open_flags::READ }],
            locks: Vec::new(),
            directories: Vec::new(),
        }
    }

    #[test]
    fn a_known_handle_needs_nothing_and_a_lost_one_comes_back() {
        let mut world = World::new();
        let fid = world.file(Fid::ROOT, "a");
        world.run(|tx| apply(tx, &reclaim(fid)));
        assert_eq!(world.memory.opens.count(fid).handles, 1);
        let rows = world.rows.clone();
        world.run(|tx| apply(tx, &reclaim(fid)));
        assert_eq!(world.rows, rows);
    }

    #[test]
    fn a_handle_of_a_file_that_is_gone_is_stale() {
        assert_eq!(World::new().errno(|tx| apply(tx, &reclaim(Fid { high: 0, low: 99 }))), Errno::ESTALE);
    }

    /// close, executed |X|, reclaim
    #[test]
    fn a_handle_that_may_be_closed_does_not_come_back_and_its_file_may_be_gone() {
        let mut world = World::new();
        let fid = world.file(Fid::ROOT, "a");
        for fid in [fid, Fid { high: 0, low: 99 }] {
            let mut request = reclaim(fid);
            request.handles[0].flags |= open_flags::CLOSING;
            world.run(|tx| apply(tx, &request));
            assert_eq!(world.memory.opens.count(fid).handles, 0);
        }
        assert_eq!(world.count(keys::HANDLE), 0);
    }
}
