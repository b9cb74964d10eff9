//! Decides which of two copies counts: labels in, a verdict or a refusal out. Pure.
//!
//! A copy counts only if the other cannot have continued without it: it says that it was left alone, or the other one
//! is there and agrees. A copy that says "we are two" and is found alone may have been left behind. It is refused,
//! until the witness or the operator decides.
//!
//! Invariant: a copy is never chosen if writes were called durable without it.

use super::label::{Label, Standing};

/// What was found at the location of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// An intact label of this target and part.
    Copy(Label),
    /// No copy, and why, in words: missing, unreadable, another target's.
    Nothing(String),
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Both hold everything.
    Both {
        /// The epoch in force: the higher of the two.
        epoch: u64,
    },
    /// One holds everything; the other is brought up to date.
    Sync {
        /// The one that counts.
        from: usize,
        /// Bytes that the other holds already.
        position: u64,
    },
    /// One holds everything. At the other location lies nothing that may be overwritten without the operator's word.
    Alone {
        /// The one that counts.
        current: usize,
        /// What lies at the location of the other.
        other: String,
        /// Its label still names the other as holding everything: first, that must be changed durably.
        declare: bool,
    },
}

/// Judges what lies at the locations of the two copies. `vouched`: the last epoch that a witness knows.
pub(crate) fn judge(found: &[Found; 2], vouched: Option<u64>) -> Result<Verdict, String> {
    match found {
        [Found::Copy(a), Found::Copy(b)] if is_pair(a, b) => pair(a, b),
        [Found::Copy(a), Found::Copy(b)] => strangers([a, b], vouched),
        [Found::Copy(a), Found::Nothing(words)] => single(a, 0, words, vouched),
        [Found::Nothing(words), Found::Copy(b)] => single(b, 1, words, vouched),
        [Found::Nothing(a), Found::Nothing(b)] => Err(format!("neither copy can be used: {a}; {b}")),
    }
}

fn is_pair(a: &Label, b: &Label) -> bool {
    a.mate == b.copy && b.mate == a.copy
}

/// Two copies that name each other.
fn pair(a: &Label, b: &Label) -> Result<Verdict, String> {
    let holds_all = |label: &Label| label.standing == Standing::Member;
    let went_alone = |label: &Label| holds_all(label) && label.mate_standing == Standing::Out;
    if went_alone(a) && went_alone(b) {
        return Err(
            "both copies went on alone, each without the other, and hold different bytes; choose the one to keep, \
                    take the other away, and run `forebay mirror replace` with an empty place"
                .into(),
        );
    }
    let rank = |label: &Label| (label.epoch, holds_all(label));
    let (newer, older, from) = if rank(a) >= rank(b) { (a, b, 0) } else { (b, a, 1) };
    if !holds_all(newer) {
        return Err(
            "the copies contradict each other: neither says that it holds everything; bring back the one that does"
                .into(),
        );
    }
    let same_attempt = older.standing == Standing::Syncing;
    match newer.mate_standing {
        Standing::Member if holds_all(older) && older.epoch == newer.epoch => Ok(Verdict::Both { epoch: newer.epoch }),
        // The older copy was filled completely; the label of its source was written first.
        Standing::Member if same_attempt && older.epoch + 1 == newer.epoch => Ok(Verdict::Both { epoch: newer.epoch }),
        Standing::Syncing if same_attempt && older.epoch == newer.epoch => {
            Ok(Verdict::Sync { from, position: newer.position })
        }
        _ => Ok(Verdict::Sync { from, position: 0 }),
    }
}

/// Two copies of the target that do not name each other.
fn strangers(labels: [&Label; 2], vouched: Option<u64>) -> Result<Verdict, String> {
    // A copy that the operator prepared: this declares the previous one lost for good.
    for (new, old) in [(1, 0), (0, 1)] {
        if labels[new].standing == Standing::New && labels[old].standing == Standing::Member {
            return Ok(Verdict::Sync { from: old, position: 0 });
        }
    }
    // The label of a copy that was replaced does not say so. The later copy knows more epochs.
    let current = if labels[0].epoch >= labels[1].epoch { 0 } else { 1 };
    if labels[0].epoch == labels[1].epoch {
        return Err("two copies that do not belong together, and neither is the later; take one of them away".into());
    }
    single(labels[current], current, "an older copy, which a later one took the place of", vouched)
}

/// A copy that is found alone.
fn single(label: &Label, current: usize, words: &str, vouched: Option<u64>) -> Result<Verdict, String> {
    match (label.standing, label.mate_standing) {
        (Standing::Member, Standing::Member) => match vouched {
            Some(epoch) if epoch == label.epoch => Ok(Verdict::Alone { current, other: words.into(), declare: true }),
            Some(epoch) => Err(format!(
                "the only copy that is here was left behind (its epoch is {}, the last one {epoch}); bring back the other \
                 one. It is not here: {words}",
                label.epoch
            )),
            None => Err(format!(
                "one copy is not here, and only that one could tell whether it went on alone: {words}. Bring it back; or, if \
                 it is lost for good, say so with `forebay mirror alone`"
            )),
        },
        (Standing::Member, Standing::Syncing | Standing::Out | Standing::New) => {
            Ok(Verdict::Alone { current, other: words.into(), declare: false })
        }
        (Standing::Syncing, _) => {
            Err(format!("the copy that is here was not yet filled; bring back the other one. It is not here: {words}"))
        }
        (Standing::Out, _) => {
            Err(format!("the copy that is here was left behind; bring back the other one. It is not here: {words}"))
        }
        (Standing::New, _) => {
            Err(format!("the copy that is here is new and empty; bring back the other one. It is not here: {words}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::label::tests::sample, *};

    /// Two in sync, of epoch 3.
    fn two() -> (Label, Label) {
        (sample(), Label { copy: 0xb, mate: 0xa, ..sample() })
    }

    fn of(a: &Label, b: &Label) -> Result<Verdict, String> {
        let straight = judge(&[Found::Copy(a.clone()), Found::Copy(b.clone())], None);
        // It does not matter at which of the two locations a copy lies.
        let swapped = judge(&[Found::Copy(b.clone()), Found::Copy(a.clone())], None);
        let turned = swapped.clone().map(|verdict| match verdict {
            Verdict::Sync { from, position } => Verdict::Sync { from: 1 - from, position },
            Verdict::Alone { current, other, declare } => Verdict::Alone { current: 1 - current, other, declare },
            both => both,
        });
        assert_eq!(straight, turned);
        straight
    }

    fn by_itself(label: &Label) -> Result<Verdict, String> {
        judge(&[Found::Copy(label.clone()), Found::Nothing("gone".into())], None)
    }

    #[test]
    fn two_copies_that_agree_are_both_current_and_one_alone_is_refused() {
        let (a, b) = two();
        assert_eq!(of(&a, &b), Ok(Verdict::Both { epoch: 3 }));
        assert!(by_itself(&a).unwrap_err().contains("mirror alone"));
    }

    #[test]
    fn a_copy_that_was_left_behind_is_never_current() {
        let (a, b) = two();
        let alone = Label { epoch: 4, mate_standing: Standing::Out, ..a };
        assert_eq!(of(&alone, &b), Ok(Verdict::Sync { from: 0, position: 0 }));
        assert_eq!(by_itself(&alone), Ok(Verdict::Alone { current: 0, other: "gone".into(), declare: false }));
        let told = Label { epoch: 4, standing: Standing::Out, ..b };
        assert_eq!(of(&alone, &told), Ok(Verdict::Sync { from: 0, position: 0 }));
        assert!(by_itself(&told).unwrap_err().contains("left behind"));
    }

    #[test]
    fn two_copies_that_both_went_on_alone_are_refused_whatever_their_epochs() {
        let (a, b) = two();
        for epoch in [4, 5, 9] {
            let a = Label { epoch, mate_standing: Standing::Out, ..a.clone() };
            let b = Label { epoch: 4, mate_standing: Standing::Out, ..b.clone() };
            assert!(of(&a, &b).unwrap_err().contains("each without the other"));
        }
    }

    #[test]
    fn a_copy_that_was_being_filled_goes_on_where_it_was_and_only_in_the_same_attempt() {
        let (a, b) = two();
        let from = Label { epoch: 5, mate_standing: Standing::Syncing, position: 0x7000, ..a };
        let to = Label { epoch: 5, standing: Standing::Syncing, ..b };
        assert_eq!(of(&from, &to), Ok(Verdict::Sync { from: 0, position: 0x7000 }));
        let earlier = Label { epoch: 4, ..to.clone() };
        assert_eq!(of(&from, &earlier), Ok(Verdict::Sync { from: 0, position: 0 }));
        assert!(by_itself(&to).unwrap_err().contains("not yet filled"));
    }

    #[test]
    fn a_filled_copy_is_current_as_soon_as_the_label_of_its_mate_says_so() {
        let (a, b) = two();
        let from = Label { epoch: 6, ..a };
        let filled = Label { epoch: 5, standing: Standing::Syncing, ..b.clone() };
        assert_eq!(of(&from, &filled), Ok(Verdict::Both { epoch: 6 }));
        // Earlier contents, brought back from an image of the device: not the copy that the other one means.
        assert_eq!(of(&from, &b), Ok(Verdict::Sync { from: 0, position: 0 }));
    }

    #[test]
    fn a_new_copy_is_filled_and_an_old_one_in_its_place_is_not() {
        let (a, _) = two();
        let new = Label { copy: 0xc, mate: 0, epoch: 0, standing: Standing::New, ..sample() };
        assert_eq!(of(&a, &new), Ok(Verdict::Sync { from: 0, position: 0 }));
        // `a` was replaced by `c` in epoch 6.
        let b = Label { copy: 0xb, mate: 0xc, epoch: 6, ..sample() };
        assert!(of(&a, &b).unwrap_err().contains("mirror alone"));
        let b = Label { mate_standing: Standing::Out, ..b };
        assert!(matches!(of(&a, &b), Ok(Verdict::Alone { current: 1, declare: false, .. })));
    }

    #[test]
    fn a_witness_tells_the_last_copy_from_one_that_was_left_behind() {
        let (a, _) = two();
        let found = [Found::Copy(a), Found::Nothing("gone".into())];
        assert_eq!(judge(&found, Some(3)), Ok(Verdict::Alone { current: 0, other: "gone".into(), declare: true }));
        assert!(judge(&found, Some(4)).unwrap_err().contains("left behind"));
    }
}
