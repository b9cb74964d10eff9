//! Byte-range write leases: granted when all claims on a file are apart, recalled together.

use forebay_env::{Bug, planted};
use forebay_proto::{
    Decode, Errno, ErrorReply, Fid, SessionId,
    limits::CLAIM_PIECES,
    message::{Claim, ClaimReply},
};
use forebay_target::{Answer, Attempt, Context};

use crate::{Mds, inode::Inode, keys, memory::Memory};

impl Mds {
    /// Executes a `Claim`.
    pub(crate) async fn claim(&self, ctx: &Context, body: &[u8]) -> Attempt<Answer> {
        let Claim { fid, pieces } = Claim::from_bytes(body)?;
        let session = ctx.session();
        if pieces.is_empty() {
            self.memory.borrow_mut().leases.claims.end(session, fid);
            if !planted(Bug::ClaimEndNotAwaited) {
                self.wait_flushed(session, fid).await;
            }
            return Ok(Answer::read(&ClaimReply { granted: false }));
        }
        if pieces.len() > CLAIM_PIECES || pieces.iter().any(|pieces| pieces.validate().is_err()) {
            return Err(ErrorReply::new(Errno::EINVAL, "a claim of too many pieces, or of what no file has").into());
        }
        ctx.prefetch(&[keys::inode(fid)]).await?;
        if !self.target()?.has_session(session) {
            return Err(ErrorReply::new(Errno::EVICTED, "the session was ended").into());
        }
        let mut memory = self.memory.borrow_mut();
        if memory.opens.of_file(session, fid).1 == 0 {
            let words = format!("{fid} is not open for writing in this session");
            return Err(ErrorReply::new(Errno::EBADF, words).into());
        }
        let noted = memory.leases.claims.claim(session, fid, pieces);
        let granted =
            noted && self.may_buffer(fid) && everybody_claims(&memory, fid) && memory.leases.may_share_ranges(fid);
        if granted {
            memory.leases.grant_data(session, fid);
        }
        drop(memory);
        if noted {
            // A session with a claim need not wait for the data of the others.
            self.leases_ended(&[fid]);
        }
        Ok(Answer::read(&ClaimReply { granted }))
    }

    /// True if writes to `fid` may be acknowledged before they are durable. (If its row is not in memory a moment after
    /// the prefetch, the answer is no.)
    fn may_buffer(&self, fid: Fid) -> bool {
        let row = self.store.get(keys::inode(fid).as_ref()).ok().flatten();
        row.and_then(|row| Inode::decode(&row).ok()).is_some_and(|inode| !inode.commits())
    }

    /// Waits until all other sessions have sent what they have buffered of `fid` now.
    pub(crate) async fn wait_flushed(&self, session: SessionId, fid: Fid) {
        loop {
            let changed = self.changed();
            let now = self.env.now();
            let Some(end) = self.memory.borrow_mut().leases.recall_from_others(session, fid, now) else { return };
            self.evict_overdue();
            let _ = self.env.timeout(end.since(now), changed).await;
        }
    }
}

/// True if several sessions have `fid` open, each has a claim, and no two claims overlap.
fn everybody_claims(memory: &Memory, fid: Fid) -> bool {
    let Some(claimants) = memory.leases.claims.apart(fid) else { return false };
    let (sessions, handles) = claimants
        .fold((0, 0), |(sessions, handles), session| (sessions + 1, handles + memory.opens.of_file(session, fid).0));
    sessions > 1 && handles == memory.opens.count(fid).handles
}
