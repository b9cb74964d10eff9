//! Unacknowledged changes: executed here, but their replies have not left. No other client reads or overwrites them.
//!
//! Changes are visible before they are committed, because their writer replays them after a crash. A writer without the
//! reply cannot: it sends the request again, after all replays. Bytes that others had read would be missing for a
//! while, and older bytes would overwrite newer ones. A reply may be held for as long as a commit takes, by an earlier
//! reply of its session. Where no reply is held, no request waits.
//!
//! A reply that has left counts as acknowledged, though the network may lose it, until the server knows that the
//! connection is gone: a replayed write keeps its offset. Two cases are stricter. An append is shown to other clients
//! only when it is committed, or its client has used the slot again. So is a write that another client's append lies
//! behind: a hole would be there meanwhile.

use std::ops::Range;

use forebay_env::{Bug, planted};
use forebay_proto::{ErrorReply, Fid, SessionId, Transno};
use forebay_target::Context;

use crate::{Oss, limits, recent::Recent};

/// A change that was admitted.
struct Change {
    session: SessionId,
    slot: u16,
    sequence: u64,
    transno: Transno,
    /// In order, without overlaps.
    ranges: Vec<Range<u64>>,
    growth: Growth,
}

/// Whether a change makes its file longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// It does not make the file longer.
    None,
    /// It makes the file longer, to the end of what is written.
    Size,
    /// As `Size`, and the server chose the offset. A client without the reply sends the append again, and it may get
    /// another offset.
    Append,
}

impl Growth {
    /// Of a change that makes a file of `before` bytes at least `after` long.
    pub fn between(before: u64, after: u64) -> Self {
        if after > before { Self::Size } else { Self::None }
    }
}

/// How a request may depend on other changes; ranges in order, without overlaps.
#[derive(Clone, Copy)]
enum Look<'a> {
    /// The ranges and the file's size are shown to a client. The session's own changes count too: another program may
    /// have made them.
    Show(&'a [Range<u64>]),
    /// The ranges are overwritten. The session's own changes do not count: their replies leave before the reply to this
    /// request.
    Overwrite(&'a [Range<u64>]),
    /// An append lies behind all existing bytes. A client that has its reply replays it, and the bytes before it must
    /// be there then.
    Append,
}

/// All unacknowledged changes. See the module.
#[derive(Default)]
pub struct Unacknowledged(Recent<Change>);

impl Change {
    fn is_seen_by(&self, session: SessionId, look: Look<'_>) -> bool {
        match look {
            Look::Show(ranges) => self.growth != Growth::None || meet(&self.ranges, ranges),
            Look::Overwrite(ranges) => self.session != session && meet(&self.ranges, ranges),
            Look::Append => self.growth != Growth::None,
        }
    }
}

/// Whether any range of one overlaps any range of the other.
fn meet(one: &[Range<u64>], other: &[Range<u64>]) -> bool {
    let whole = |ranges: &[Range<u64>]| Some(ranges.first()?.start..ranges.last()?.end);
    let (Some(x), Some(y)) = (whole(one), whole(other)) else { return false };
    if x.end <= y.start || y.end <= x.start {
        return false;
    }
    let (mut a, mut b) = (one.iter().peekable(), other.iter().peekable());
    while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
        if x.start < y.end && y.start < x.end {
            return true;
        }
        if x.end <= y.start {
            a.next()
        } else {
            b.next()
        };
    }
    false
}

impl Unacknowledged {
    /// Changes that the request has to wait for, up to `until`.
    fn conflicting(
        &self,
        fid: Fid,
        session: SessionId,
        look: Look<'_>,
        until: Transno,
        is_over: impl Fn(&Change) -> bool,
    ) -> Vec<Change> {
        self.0.of(fid, |changes| {
            let seen = changes.iter().filter(|it| it.transno <= until && it.is_seen_by(session, look) && !is_over(it));
            seen.map(|it| Change { ranges: Vec::new(), ..*it }).collect()
        })
    }
}

impl Oss {
    /// Whether the change counts as acknowledged for every request: committed, or replied to. If it makes the file
    /// longer, its client must also have received the reply.
    fn is_over(&self, change: &Change) -> bool {
        let Change { session, slot, sequence, transno, growth, .. } = *change;
        let is_received =
            || growth == Growth::None || self.target().has_reply_received(session, slot, sequence, transno);
        transno <= self.store().last_committed() || self.is_replied(change) && is_received()
    }

    fn is_replied(&self, change: &Change) -> bool {
        let Change { session, slot, sequence, transno, .. } = *change;
        transno <= self.store().last_committed() || self.target().has_replied(session, slot, sequence, transno)
    }

    /// The same for a request of `session`. Of its own changes the replies need only have left: they arrive in that
    /// order.
    fn is_over_for(&self, change: &Change, session: SessionId, look: Look<'_>) -> bool {
        let has_to_be_received = match look {
            Look::Show(_) => change.growth == Growth::Append && !planted(Bug::UnacknowledgedAppendShown),
            Look::Overwrite(_) => false,
            // Replies to earlier appends may be lost: the reply lists those appends.
            Look::Append => change.growth == Growth::Size,
        };
        if has_to_be_received && change.session != session { self.is_over(change) } else { self.is_replied(change) }
    }

    /// Records that `ctx` changes `ranges` of the object, under `transno`.
    pub(crate) fn note_change(
        &self,
        ctx: &Context,
        fid: Fid,
        transno: Transno,
        ranges: Vec<Range<u64>>,
        growth: Growth,
    ) {
        if !ctx.is_replay() {
            let (session, slot, sequence) = ctx.request();
            let change = Change { session, slot, sequence, transno, ranges, growth };
            self.unacknowledged.0.add(fid, change, |change| self.is_over(change));
        }
    }

    /// Waits until the conflicting changes up to `until` are acknowledged; false if there were none. Errors: the target
    /// has stopped.
    async fn wait_acknowledged(
        &self,
        ctx: &Context,
        fid: Fid,
        look: Look<'_>,
        until: Transno,
    ) -> Result<bool, ErrorReply> {
        if ctx.is_replay() || planted(Bug::UnacknowledgedShown) {
            return Ok(false);
        }
        let session = ctx.session();
        let is_over = |change: &Change| self.is_over_for(change, session, look);
        let mut changes = self.unacknowledged.conflicting(fid, session, look, until, is_over);
        let Some(last) = changes.iter().map(|change| change.transno).max() else { return Ok(false) };
        self.target().passed(last).await;
        loop {
            changes.retain(|change| !is_over(change));
            if changes.is_empty() || ctx.has_ended() {
                return Ok(true);
            }
            self.target().wait_any_commit().await?;
        }
    }

    /// Waits until all changes that a read of `ranges` may have seen are acknowledged, including those that made the
    /// file longer. The caller asks this after the read.
    pub(crate) async fn reads_acknowledged(
        &self,
        ctx: &Context,
        fid: Fid,
        ranges: &[Range<u64>],
    ) -> Result<(), ErrorReply> {
        self.wait_acknowledged(ctx, fid, Look::Show(ranges), self.target().last_applied()).await.map(drop)
    }

    /// Waits until all changes by other sessions in `ranges`, applied or only admitted, are acknowledged.
    pub(crate) async fn overwrites_acknowledged(
        &self,
        ctx: &Context,
        fid: Fid,
        ranges: &[Range<u64>],
    ) -> Result<(), ErrorReply> {
        for _ in 0..limits::UNACKNOWLEDGED_RETRIES {
            if !self.wait_acknowledged(ctx, fid, Look::Overwrite(ranges), Transno(u64::MAX)).await? {
                break;
            }
        }
        Ok(())
    }

    /// The file size that the reply to the change `transno` reports, when its request has read nothing. While an
    /// earlier change that made the file longer is unacknowledged, the reply reports at most `own`: the size that this
    /// change needs. A client that knows a larger size may restore it after a crash, with zeros in place of the bytes
    /// that made it so.
    pub(crate) fn reportable_size(&self, ctx: &Context, fid: Fid, transno: Transno, own: u64, file_bytes: u64) -> u64 {
        let is_untold = |it: &Change| it.growth != Growth::None && it.transno < transno && !self.is_over(it);
        let is_known = ctx.is_replay() || planted(Bug::UnacknowledgedSizeShown);
        if !is_known && self.unacknowledged.0.of(fid, |changes| changes.iter().any(is_untold)) {
            own.min(file_bytes)
        } else {
            file_bytes
        }
    }

    /// Waits until all changes before `transno` that made the file longer are acknowledged.
    pub(crate) async fn growth_acknowledged(
        &self,
        ctx: &Context,
        fid: Fid,
        transno: Transno,
    ) -> Result<(), ErrorReply> {
        // Not the change itself: its own reply waits for this.
        let before = Transno(transno.0 - 1);
        self.wait_acknowledged(ctx, fid, Look::Append, before).await.map(drop)
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // one range is meant
mod tests {
    use super::*;

    const F: Fid = Fid { high: 0, low: 5 };

    fn change(session: u64, transno: u64, ranges: &[Range<u64>], growth: Growth) -> Change {
        let (session, transno) = (SessionId(session), Transno(transno));
        Change { session, slot: 0, sequence: 1, transno, ranges: ranges.to_vec(), growth }
    }

    #[test]
    fn unacknowledged_changes_of_another_session_in_the_range_conflict() {
        let unacknowledged = Unacknowledged::default();
        unacknowledged.0.add(F, change(1, 10, &[0..10, 50..60], Growth::None), |_| false);
        unacknowledged.0.add(F, change(2, 11, &[20..30], Growth::Size), |_| false);
        let last_of = |changes: Vec<Change>| changes.iter().map(|change| change.transno.0).max();
        let last = |session, ranges: &[Range<u64>], shows| {
            let look = if shows { Look::Show(ranges) } else { Look::Overwrite(ranges) };
            last_of(unacknowledged.conflicting(F, SessionId(session), look, Transno(99), |_| false))
        };
        assert_eq!(
            (last(3, &[5..6], false), last(3, &[10..20], false), last(1, &[5..6], false)),
            (Some(10), None, None)
        );
        assert_eq!((last(3, &[10..20, 59..70], false), last(3, &[0..100], false)), (Some(10), Some(11)));
        assert_eq!((last(3, &[], true), last(2, &[], true), last(2, &[], false)), (Some(11), Some(11), None));
        let until = |until, over: u64| {
            let is_over = |it: &Change| it.transno > Transno(over);
            last_of(unacknowledged.conflicting(F, SessionId(3), Look::Show(&[0..100]), Transno(until), is_over))
        };
        assert_eq!((until(10, 99), until(99, 10), until(9, 99)), (Some(10), Some(10), None));
        let before_append =
            |session| last_of(unacknowledged.conflicting(F, SessionId(session), Look::Append, Transno(99), |_| false));
        assert_eq!((before_append(3), before_append(2)), (Some(11), Some(11)));
    }

    #[test]
    fn ranges_meet_where_they_share_a_byte() {
        let one = [0..10, 20..30, 40..50];
        assert!(meet(&one, &[29..40]) && meet(&one, &[0..1]) && meet(&one, &[15..16, 45..46]));
        assert!(!meet(&one, &[10..20, 30..40, 50..99]) && !meet(&one, &[]) && !meet(&[], &one));
    }
}
