//! Changes of bytes and sizes whose replies have not left: nobody is shown them, and nobody else writes over them.
//!
//! Bytes are shown to others before they are committed, as their writer brings them back after a crash. Who has no reply cannot: it asks
//! again, after all that others had replies to was brought back, so that what was seen would be gone for a while, and older bytes
//! would lie over newer ones. A reply may be held for as long as a commit takes, by an earlier one of its session. Where nothing is
//! held nobody waits.
//!
//! A reply that has left counts as told, though it may be lost on its way, until the server knows that its connection is: a write that
//! is brought back lies where it lay. Not so an append, which another client is shown only when it is committed, or its client has
//! used the slot again. And not so a write that another client's append lies behind: there would be a hole meanwhile.

use std::ops::Range;

use forebay_env::{Bug, planted};
use forebay_proto::{ErrorReply, Fid, SessionId, Transno};
use forebay_target::Context;

use crate::{Oss, limits, recent::Recent};

/// A change that was let in.
struct Change {
    session: SessionId,
    slot: u16,
    sequence: u64,
    transno: Transno,
    /// In order, apart.
    ranges: Vec<Range<u64>>,
    growth: Growth,
}

/// Whether a change makes its file longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// It does not.
    None,
    /// To the end of what is written.
    Size,
    /// The same, and where it lies was the server's choice: brought back by who has not heard of that, it may lie elsewhere.
    Append,
}

impl Growth {
    /// Of a change that makes a file of `before` bytes at least `after` long.
    pub fn between(before: u64, after: u64) -> Self {
        if after > before { Self::Size } else { Self::None }
    }
}

/// What somebody does that others' changes may show in; ranges in order, apart.
#[derive(Clone, Copy)]
enum Look<'a> {
    /// They are shown to somebody, and the file's size too: of the own session's changes as well, as another program may have made them.
    Show(&'a [Range<u64>]),
    /// They are written over. (Who writes over its own is told after it was told of these.)
    Overwrite(&'a [Range<u64>]),
    /// An append lies behind all there is: who has its reply brings that back, and the bytes before it have to be there.
    Append,
}

/// All of them. See the module.
#[derive(Default)]
pub struct Unheard(Recent<Change>);

impl Change {
    fn is_seen_by(&self, session: SessionId, look: Look<'_>) -> bool {
        match look {
            Look::Show(ranges) => self.growth != Growth::None || meet(&self.ranges, ranges),
            Look::Overwrite(ranges) => self.session != session && meet(&self.ranges, ranges),
            Look::Append => self.growth != Growth::None,
        }
    }
}

/// Whether some range of one meets some of the other.
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

impl Unheard {
    /// Those in the way, up to `until`.
    fn in_the_way(
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
    /// For whoever looks.
    fn is_over(&self, change: &Change) -> bool {
        let Change { session, slot, sequence, transno, growth, .. } = *change;
        let is_heard = || growth == Growth::None || self.target().has_heard(session, slot, sequence, transno);
        transno <= self.store().last_committed() || self.is_told(change) && is_heard()
    }

    fn is_told(&self, change: &Change) -> bool {
        let Change { session, slot, sequence, transno, .. } = *change;
        transno <= self.store().last_committed() || self.target().has_told(session, slot, sequence, transno)
    }

    /// For what `session` does: its replies arrive in the order in which they left.
    fn is_over_for(&self, change: &Change, session: SessionId, look: Look<'_>) -> bool {
        let has_to_be_heard = match look {
            Look::Show(_) => change.growth == Growth::Append && !planted(Bug::UnheardAppendShown),
            Look::Overwrite(_) => false,
            // The reply names those that are appends too.
            Look::Append => change.growth == Growth::Size,
        };
        if has_to_be_heard && change.session != session { self.is_over(change) } else { self.is_told(change) }
    }

    /// `ctx` changes `ranges` of the object, under `transno`.
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
            self.unheard.0.add(fid, change, |change| self.is_over(change));
        }
    }

    /// Waits until everybody has been told of what they have changed there, up to `until`; false if nobody was waited for. Errors: the
    /// target has stopped.
    async fn wait_told(&self, ctx: &Context, fid: Fid, look: Look<'_>, until: Transno) -> Result<bool, ErrorReply> {
        if ctx.is_replay() || planted(Bug::UnheardShown) {
            return Ok(false);
        }
        let session = ctx.session();
        let is_over = |change: &Change| self.is_over_for(change, session, look);
        let mut changes = self.unheard.in_the_way(fid, session, look, until, is_over);
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

    /// Waits until the writers of what was seen in `ranges`, and who made the file as long as it was, have been told of that: to be asked
    /// after the look.
    pub(crate) async fn all_told(&self, ctx: &Context, fid: Fid, ranges: &[Range<u64>]) -> Result<(), ErrorReply> {
        self.wait_told(ctx, fid, Look::Show(ranges), self.target().last_applied()).await.map(drop)
    }

    /// Waits until what others have changed in `ranges`, or are about to, was told to them.
    pub(crate) async fn others_told(&self, ctx: &Context, fid: Fid, ranges: &[Range<u64>]) -> Result<(), ErrorReply> {
        for _ in 0..limits::LOOKS {
            if !self.wait_told(ctx, fid, Look::Overwrite(ranges), Transno(u64::MAX)).await? {
                break;
            }
        }
        Ok(())
    }

    /// What of the size `file_bytes` is told to who has made the change `transno`, and looked at nothing: where somebody was not told yet of
    /// what made the file longer, only to where this change itself makes it reach. Who is told of more may bring it back after a crash,
    /// with zeros where the bytes were that made it so.
    pub(crate) fn told_size(&self, ctx: &Context, fid: Fid, transno: Transno, own: u64, file_bytes: u64) -> u64 {
        let is_untold = |it: &Change| it.growth != Growth::None && it.transno < transno && !self.is_over(it);
        let is_known = ctx.is_replay() || planted(Bug::UntoldSizeTold);
        if !is_known && self.unheard.0.of(fid, |changes| changes.iter().any(is_untold)) {
            own.min(file_bytes)
        } else {
            file_bytes
        }
    }

    /// Waits until all changes before `transno` that made the file longer were told to their writers.
    pub(crate) async fn growth_told(&self, ctx: &Context, fid: Fid, transno: Transno) -> Result<(), ErrorReply> {
        // Its own reply waits for this.
        let before = Transno(transno.0 - 1);
        self.wait_told(ctx, fid, Look::Append, before).await.map(drop)
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
    fn what_others_changed_there_is_in_the_way() {
        let unheard = Unheard::default();
        unheard.0.add(F, change(1, 10, &[0..10, 50..60], Growth::None), |_| false);
        unheard.0.add(F, change(2, 11, &[20..30], Growth::Size), |_| false);
        let last_of = |changes: Vec<Change>| changes.iter().map(|change| change.transno.0).max();
        let last = |session, ranges: &[Range<u64>], shows| {
            let look = if shows { Look::Show(ranges) } else { Look::Overwrite(ranges) };
            last_of(unheard.in_the_way(F, SessionId(session), look, Transno(99), |_| false))
        };
        assert_eq!(
            (last(3, &[5..6], false), last(3, &[10..20], false), last(1, &[5..6], false)),
            (Some(10), None, None)
        );
        assert_eq!((last(3, &[10..20, 59..70], false), last(3, &[0..100], false)), (Some(10), Some(11)));
        assert_eq!((last(3, &[], true), last(2, &[], true), last(2, &[], false)), (Some(11), Some(11), None));
        let until = |until, over: u64| {
            let is_over = |it: &Change| it.transno > Transno(over);
            last_of(unheard.in_the_way(F, SessionId(3), Look::Show(&[0..100]), Transno(until), is_over))
        };
        assert_eq!((until(10, 99), until(99, 10), until(9, 99)), (Some(10), Some(10), None));
        let before_append =
            |session| last_of(unheard.in_the_way(F, SessionId(session), Look::Append, Transno(99), |_| false));
        assert_eq!((before_append(3), before_append(2)), (Some(11), Some(11)));
    }

    #[test]
    fn ranges_meet_where_they_share_a_byte() {
        let one = [0..10, 20..30, 40..50];
        assert!(meet(&one, &[29..40]) && meet(&one, &[0..1]) && meet(&one, &[15..16, 45..46]));
        assert!(!meet(&one, &[10..20, 30..40, 50..99]) && !meet(&one, &[]) && !meet(&[], &one));
    }
}
