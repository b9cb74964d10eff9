//! Replies of the MDT about inline data, in any order.

use super::*;
use crate::testing::{Dice, attr};

/// What the MDT has of a file in one truncate epoch: no bytes, and later, until the epoch ends, perhaps some.
#[derive(Clone, Debug)]
struct Epoch {
    bytes: Option<Bytes>,
}

/// What the MDT replied at some time.
#[derive(Clone, Debug)]
struct Reply {
    attr: Attr,
    /// They came along.
    bytes: Option<Bytes>,
}

fn told(epoch: u64, is_inline: bool) -> Attr {
    let flags = if is_inline { attr_flags::INLINE } else { 0 };
    Attr { truncate_epoch: epoch, flags, ..attr(8) }
}

/// A history of the file at the MDT, and what it replies now and then meanwhile.
fn history(dice: &mut Dice) -> (Vec<Epoch>, Vec<Reply>) {
    let (mut epochs, mut replies) = (vec![Epoch { bytes: None }], Vec::new());
    for _ in 0..30 {
        let epoch = epochs.len() as u64 - 1;
        match dice.below(6) {
            // A truncate, or the bytes are written to the OSTs: that is another epoch.
            0 => epochs.push(Epoch { bytes: None }),
            // A close brings them. They do not change within the epoch.
            1 if epochs[epoch as usize].bytes.is_none() => {
                let length = 1 + dice.below(20) as usize;
                epochs[epoch as usize].bytes = Some(dice.bytes(length).into());
            }
            _ => {
                let bytes = epochs[epoch as usize].bytes.clone();
                let attr = Attr { size: bytes.as_ref().map_or(0, Bytes::len) as u64, ..told(epoch, bytes.is_some()) };
                replies.push(Reply { attr, bytes: bytes.filter(|_| dice.one_in(2)) });
            }
        }
    }
    (epochs, replies)
}

#[test]
fn bytes_of_another_truncate_epoch_are_never_shown_in_whatever_order_replies_come() {
    let (mut shown, mut late) = (0, 0);
    for seed in 0..1000 {
        let mut dice = Dice::new(seed);
        let (epochs, mut replies) = history(&mut dice);
        let (inline, mut latest) = (InlineData::default(), 0);
        while !replies.is_empty() {
            // Mostly in their order.
            let at = if dice.one_in(3) { dice.below(replies.len() as u64) as usize } else { 0 };
            let Reply { attr, bytes } = replies.remove(at);
            let before = inline.known();
            late += u64::from(attr.truncate_epoch < latest);
            latest = latest.max(attr.truncate_epoch);
            inline.learn(&attr, latest);
            if let Some(bytes) = bytes {
                inline.keep(&attr, bytes);
            }
            if attr.truncate_epoch < latest {
                assert_eq!(inline.known(), before, "seed {seed}: a reply of before changes what is known");
            }
            let Some(known) = inline.known() else { continue };
            assert_eq!(known.epoch, latest, "seed {seed}: another epoch has begun");
            assert!(epochs[known.epoch as usize].bytes.is_some(), "seed {seed}: none were there");
            if known.bytes.is_some() {
                assert_eq!(known.bytes, epochs[known.epoch as usize].bytes, "seed {seed}: epoch {}", known.epoch);
                shown += 1;
            }
        }
    }
    assert!(shown > 1000 && late > 1000, "{shown}, {late}");
}

#[test]
fn a_reply_of_before_the_bytes_came_does_not_take_them_away() {
    let inline = InlineData::default();
    inline.learn(&told(4, true), 4);
    inline.keep(&told(4, true), Bytes::from_static(b"abc"));
    let known = Some(Inline { epoch: 4, bytes: Some(Bytes::from_static(b"abc")) });
    inline.learn(&told(4, false), 4);
    assert_eq!(inline.known(), known, "it was sent before they came to the MDT, in the same epoch");
    inline.learn(&told(4, true), 4);
    assert_eq!(inline.known(), known, "that they are there is nothing new");
    inline.learn(&told(3, false), 4);
    assert_eq!((inline.known(), inline.is_there()), (known, true));
    inline.learn(&told(5, false), 5);
    assert_eq!((inline.known(), inline.is_there()), (None, false));
}

#[test]
fn in_a_later_epoch_other_bytes_are_there_and_those_of_before_are_not() {
    let inline = InlineData::default();
    inline.learn(&told(4, true), 4);
    inline.keep(&told(4, true), Bytes::from_static(b"abc"));
    inline.learn(&told(6, true), 6);
    assert_eq!(inline.known(), Some(Inline { epoch: 6, bytes: None }));
    inline.keep(&told(4, true), Bytes::from_static(b"abc"));
    assert_eq!(inline.known(), Some(Inline { epoch: 6, bytes: None }), "late bytes of epoch 4");
    inline.keep(&told(7, true), Bytes::from_static(b"abc"));
    assert_eq!(inline.known(), Some(Inline { epoch: 6, bytes: None }), "bytes of an epoch that is not known");
}

#[test]
fn a_file_of_whose_later_epoch_something_is_known_is_not_inline_by_an_earlier_reply() {
    let inline = InlineData::default();
    inline.learn(&told(4, true), 5);
    assert!(!inline.is_there());
    inline.learn(&told(5, true), 5);
    assert!(inline.is_there());
}

#[test]
fn bytes_that_have_left_are_gone_unless_those_of_a_later_epoch_are_there() {
    let inline = InlineData::default();
    inline.left(9);
    assert!(!inline.is_there(), "nothing was known");
    inline.learn(&told(4, true), 4);
    inline.left(3);
    assert!(inline.is_there(), "those of epoch 4 came after them");
    inline.left(4);
    assert!(!inline.is_there());
    inline.keep(&told(4, true), Bytes::from_static(b"abc"));
    assert_eq!(inline.known(), None, "late bytes of what has left");
}
