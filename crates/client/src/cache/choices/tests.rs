use super::*;
use crate::testing::Dice;

#[test]
fn a_reply_to_an_earlier_question_does_not_bring_an_old_choice_back() {
    let (data, commit) = (Some(CommitLevel::Data), Some(CommitLevel::Commit));
    let mut known = Known::default();
    known.see(commit, Ticket::numbered(5));
    known.see(None, Ticket::numbered(4));
    assert_eq!((known.own(), known.commits()), (commit, true));
    known.see(data, Ticket::numbered(5));
    assert_eq!((known.own(), known.commits()), (data, false));
    known.see(None, Ticket::numbered(6));
    assert_eq!(known.own(), None);
}

#[test]
fn two_attributes_choose_something() {
    let bound = InlineBound::new(4096);
    let made = Choice::made(INLINE_XATTR, Some(b"4KiB"));
    assert!(matches!(made, Some(Choice::InlineBound(own)) if own == bound));
    assert!(matches!(Choice::made(INLINE_XATTR, None), Some(Choice::InlineBound(None))));
    assert!(matches!(Choice::made(COMMIT_XATTR, Some(b"commit")), Some(Choice::Level(Some(CommitLevel::Commit)))));
    assert!(Choice::made(b"user.forebay.layout", Some(b"-c 1")).is_none());
}

#[test]
fn in_whatever_order_replies_come_the_choice_is_that_of_what_was_asked_last() {
    for seed in 0..200 {
        let (mut dice, mut known) = (Dice::new(seed), Known::new(Some(99), Ticket::numbered(10)));
        let mut last = (10, Some(99));
        for _ in 0..30 {
            let (asked, own) = (dice.below(40), (!dice.one_in(3)).then(|| dice.below(50)));
            known.see(own, Ticket::numbered(asked));
            if asked >= last.0 {
                last = (asked, own);
            }
            assert_eq!(known.own(), last.1, "seed {seed}: asked {asked}");
        }
    }
}

#[test]
fn a_value_that_is_no_choice_is_as_none_and_only_commit_commits() {
    for value in [None, Some(&b"\xff"[..]), Some(b""), Some(b"often"), Some(b"1000"), Some(b"1T")] {
        assert!(matches!(Choice::made(COMMIT_XATTR, value), Some(Choice::Level(None))), "{value:?}");
        assert!(matches!(Choice::made(INLINE_XATTR, value), Some(Choice::InlineBound(None))), "{value:?}");
    }
    for level in CommitLevel::ALL {
        let Some(Choice::Level(own)) = Choice::made(COMMIT_XATTR, Some(level.name().as_bytes())) else {
            panic!("{level:?} is not read")
        };
        assert_eq!(own, Some(level));
        assert_eq!(Known::new(own, Ticket::default()).commits(), level == CommitLevel::Commit);
    }
    assert!(!Known::<CommitLevel>::default().commits());
}
