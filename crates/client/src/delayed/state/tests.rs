use bytes::Bytes;

use super::*;
use crate::{delayed::queue::EntryOp, tasks::Counted, testing::attr};

#[test]
fn some_flush_waits_until_the_last_of_them_has_ended() {
    let delayed = Rc::new(Delayed::default());
    let flush = || Counted::new(&delayed, |delayed| &delayed.waiting);
    assert!(!delayed.waiting.any());
    let (one, other) = (flush(), flush());
    assert!(delayed.waiting.any());
    drop(one);
    assert!(delayed.waiting.any(), "another flush waits");
    drop(other);
    assert!(!delayed.waiting.any());
}

#[test]
fn a_file_is_coming_while_its_create_is_delayed_and_nothing_was_done_with_it_at_first() {
    let delayed = Delayed::default();
    let (file, other) = (attr(8).fid, attr(9).fid);
    let on_pending = OnPendingCreate::new(attr(8), ClientInstance::default());
    assert!(on_pending.writes.is_empty() && on_pending.bytes == 0 && on_pending.set_attr.is_none());
    let made = Made {
        handle: 3,
        result: RefCell::default(),
        arrived: Notify::new(),
        on_pending: RefCell::new(Some(on_pending)),
    };
    delayed.coming.borrow_mut().insert(file, Rc::new(made));
    let op = EntryOp { directory: other, name: Bytes::from_static(b"new"), fid: file };
    let number = delayed.queue.borrow_mut().add_entry(op);
    assert_eq!(delayed.coming(file).map(|made| made.handle), Some(3));
    assert!(delayed.coming(other).is_none());
    assert!(delayed.has(Scope::Inode(file)) && delayed.has(Scope::Inode(other)) && !delayed.has(Scope::SetAttrs));
    // The create is lost: whoever waits has the file still, and nobody finds it.
    let waits = delayed.coming(file).expect("it is coming");
    delayed.coming.borrow_mut().remove(&file);
    delayed.queue.borrow_mut().end_entry(number);
    assert!(delayed.coming(file).is_none() && !delayed.has(Scope::All));
    assert!(waits.result.borrow().is_none());
}
