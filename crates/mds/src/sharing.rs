//! Claims at work: who may keep back what it writes to a file that others have open, and how that ends.

use forebay_env::{Bug, planted};
use forebay_proto::{
    Decode, Errno, ErrorReply, Fid, SessionId,
    limits::CLAIM_PIECES,
    message::{Claim, ClaimReply},
};
use forebay_target::{Answer, Context};

use crate::{Mds, inode::Inode, keys, memory::Memory};

impl Mds {
    /// Executes a `Claim`.
    pub(crate) async fn claim(&self, ctx: &Context, body: &[u8]) -> Result<Answer, ErrorReply> {
        let Claim { fid, pieces } = Claim::from_bytes(body)?;
        let session = ctx.session();
        if pieces.is_empty() {
            self.memory.borrow_mut().kept.claims.end(session, fid);
            if !planted(Bug::ClaimEndNotAwaited) {
                self.have_sent(session, fid).await;
            }
            return Ok(Answer::read(&ClaimReply { granted: false }));
        }
        if pieces.len() > CLAIM_PIECES || pieces.iter().any(|pieces| pieces.validate().is_err()) {
            return Err(ErrorReply::new(Errno::EINVAL, "a claim of too many pieces, or of what no file has"));
        }
        ctx.prefetch(&[keys::inode(fid)]).await?;
        if !self.target()?.has_session(session) {
            return Err(ErrorReply::new(Errno::EVICTED, "the session was ended"));
        }
        let mut memory = self.memory.borrow_mut();
        if memory.opens.of_file(session, fid).1 == 0 {
            return Err(ErrorReply::new(Errno::EBADF, format!("{fid} is not open for writing in this session")));
        }
        let noted = memory.kept.claims.claim(session, fid, pieces);
        let granted =
            noted && self.may_be_kept_back(fid) && everybody_claims(&memory, fid) && memory.kept.is_share_free(fid);
        if granted {
            memory.kept.grant_data(session, fid);
        }
        drop(memory);
        if noted {
            // Who has a claim is not made to wait for the others'.
            self.leases_ended(&[fid]);
        }
        Ok(Answer::read(&ClaimReply { granted }))
    }

    /// What is written to `fid` need not be durable when it is acknowledged. (That its row is not in memory, a moment after it was
    /// brought there, is no reason to believe so.)
    fn may_be_kept_back(&self, fid: Fid) -> bool {
        let row = self.store.get(keys::inode(fid).as_ref()).ok().flatten();
        row.and_then(|row| Inode::decode(&row).ok()).is_some_and(|inode| !inode.commits())
    }

    /// Waits until all others have sent what they kept back of `fid` by now.
    pub(crate) async fn have_sent(&self, session: SessionId, fid: Fid) {
        loop {
            let changed = self.changed();
            let now = self.env.now();
            let Some(end) = self.memory.borrow_mut().kept.recall_from_others(session, fid, now) else { return };
            self.evict_overdue();
            let _ = self.env.timeout(end.since(now), changed).await;
        }
    }
}

/// Several sessions have `fid` open; each has a claim, and no two may write the same byte.
fn everybody_claims(memory: &Memory, fid: Fid) -> bool {
    let Some(claimants) = memory.kept.claims.apart(fid) else { return false };
    let (sessions, handles) = claimants
        .fold((0, 0), |(sessions, handles), session| (sessions + 1, handles + memory.opens.of_file(session, fid).0));
    sessions > 1 && handles == memory.opens.count(fid).handles
}
