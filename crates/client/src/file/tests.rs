//! What is known of an open file, with a client that has nothing but an instance.

use forebay_proto::message::ObjectRef;

use super::*;
use crate::{
    ClientResult,
    testing::{Dice, attr},
};

/// A client as far as a file needs one.
#[derive(Default)]
struct Owner {
    instance: Cell<ClientInstance>,
    ended: Cell<usize>,
    dropped: RefCell<Vec<u64>>,
}

impl FileOwner for Owner {
    fn instance(&self) -> ClientInstance {
        self.instance.get()
    }

    fn file_ends(&self, _: &FileState) {
        self.ended.set(self.ended.get() + 1);
    }

    fn handle_dropped(self: Rc<Self>, handle: &OpenInner) {
        self.dropped.borrow_mut().push(handle.handle);
    }
}

fn owned(owner: &Rc<Owner>, attr: &Attr) -> Rc<FileState> {
    let weak: Weak<Owner> = Rc::downgrade(owner);
    Rc::new(FileState::new(weak, 1 << 20, attr, Layout::plain(1, 64 << 10, vec![3, 4])))
}

fn fresh() -> (Rc<Owner>, Rc<FileState>) {
    let owner = Rc::new(Owner::default());
    let file = owned(&owner, &attr(8));
    (owner, file)
}

/// As `Client::make_handle` makes one.
fn handle(owner: &Rc<Owner>, file: &Rc<FileState>, number: u64, mode: OpenMode) -> OpenFile {
    let inner = OpenInner {
        owner: owner.clone(),
        caller: Caller { uid: 0, gid: 0, groups: Vec::new() },
        state: file.clone(),
        privileges: Privileges::of(&attr(8)),
        handle: number,
        mode,
        stage: Cell::new(Stage::Open),
        wrote: Rc::default(),
        named: Cell::new(None),
        lock_lost: Cell::new(false),
        reported: Cell::new(file.losses()),
        synced: Cell::new(file.losses.reported.get()),
        pattern: RefCell::default(),
        closed: Cell::new(file.losses()),
    };
    OpenFile { inner: Rc::new(inner) }
}

/// Something that happens to a handle of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// Buffered bytes are lost.
    Loss,
    /// read(2) or write(2).
    Call,
    Close,
    Fsync,
}

const EVENTS: [Event; 4] = [Event::Loss, Event::Call, Event::Close, Event::Fsync];

/// Every sequence of so many events.
fn sequences(length: u32) -> impl Iterator<Item = Vec<Event>> {
    (0..4_usize.pow(length)).map(move |number| (0..length).map(|at| EVENTS[number / 4_usize.pow(at) % 4]).collect())
}

fn ask(file: &OpenFile, event: Event) -> ClientResult<()> {
    match event {
        Event::Loss => {
            file.state().lose(ClientError::new(Errno::ENOSPC, "lost"));
            Ok(())
        }
        Event::Call => file.check(),
        Event::Close => file.check_close(),
        Event::Fsync => file.report_to_sync(),
    }
}

/// After which calls one reports no earlier loss again: fsync reports it whatever others have reported, close whatever
/// ordinary calls have.
fn is_silenced_by(event: Event, before: Event) -> bool {
    match event {
        Event::Loss => false,
        Event::Call => matches!(before, Event::Call | Event::Close | Event::Fsync),
        Event::Close => matches!(before, Event::Close | Event::Fsync),
        Event::Fsync => before == Event::Fsync,
    }
}

#[test]
fn each_handle_reports_a_loss_once_to_calls_to_close_and_to_fsync() {
    for events in sequences(6) {
        let (owner, file) = fresh();
        let one = handle(&owner, &file, 1, OpenMode::READ_WRITE);
        let other = handle(&owner, &file, 2, OpenMode::READ_WRITE);
        for (at, event) in events.iter().enumerate() {
            let silenced = events[..at].iter().rposition(|before| is_silenced_by(*event, *before));
            let is_due = events[silenced.unwrap_or(0)..at].contains(&Event::Loss);
            let expected = if is_due && *event != Event::Loss { Err(Errno::ENOSPC) } else { Ok(()) };
            let result = ask(&one, *event).map_err(|error| error.errno);
            assert_eq!(result, expected, "{:?} as number {at} of {events:?}", event);
        }
        // What one handle reported, the other one reports too.
        let was_lost = events.contains(&Event::Loss);
        for event in [Event::Call, Event::Close, Event::Fsync] {
            assert_eq!(ask(&other, event).is_err(), was_lost, "{event:?} of the other handle after {events:?}");
            assert_eq!(ask(&other, event), Ok(()), "{event:?} of the other handle, again, after {events:?}");
        }
    }
}

#[test]
fn a_handle_that_is_opened_after_a_loss_reports_it_to_fsync_unless_another_fsync_was_told() {
    for is_told in [false, true] {
        let (owner, file) = fresh();
        let before = handle(&owner, &file, 1, OpenMode::WRITE);
        file.lose(Errno::ENOSPC.into());
        assert!(!is_told || before.report_to_sync().is_err());
        let after = handle(&owner, &file, 2, OpenMode::WRITE);
        assert_eq!((after.check(), after.check_close()), (Ok(()), Ok(())), "it is none of its own");
        assert_eq!(after.report_to_sync().is_err(), !is_told);
        assert_eq!(after.report_to_sync(), Ok(()));
    }
}

#[test]
fn the_last_of_several_losses_is_reported_and_none_is_left_after_it() {
    let (owner, file) = fresh();
    let open = handle(&owner, &file, 1, OpenMode::WRITE);
    file.lose(ClientError::new(Errno::EIO, "the first"));
    file.lose(ClientError::new(Errno::ENOSPC, "the second"));
    assert_eq!((file.losses(), file.loss().message.as_str()), (2, "the second"));
    assert_eq!(open.check(), Err(ClientError::new(Errno::ENOSPC, "the second")));
    assert_eq!(open.check(), Ok(()));
}

#[test]
fn a_handle_that_is_no_longer_good_says_so_each_time_and_keeps_its_losses() {
    let (owner, file) = fresh();
    let open = handle(&owner, &file, 1, OpenMode::READ_WRITE);
    file.lose(Errno::ENOSPC.into());
    let errno = |open: &OpenFile| open.check().err().map(|error| error.errno);
    open.inner.stage.set(Stage::Gone);
    assert_eq!([errno(&open), errno(&open)], [Some(Errno::ESTALE); 2]);
    assert!(open.check_not_gone().is_err() && open.snapshot_in(ClientInstance::default()).is_err());
    open.inner.stage.set(Stage::Closed);
    assert_eq!([errno(&open), errno(&open)], [Some(Errno::EBADF); 2]);
    assert_eq!(open.check_not_gone(), Ok(()));
    open.inner.stage.set(Stage::Open);
    assert!(!open.has_lost_lock());
    open.lose_lock();
    assert!(open.has_lost_lock());
    assert_eq!([errno(&open), errno(&open)], [Some(Errno::EIO); 2]);
    open.inner.lock_lost.set(false);
    assert_eq!([errno(&open), errno(&open)], [Some(Errno::ENOSPC), None], "the loss was not reported before");
}

#[test]
fn a_handle_reads_and_writes_only_as_it_was_opened_and_uses_up_no_report_else() {
    let (owner, file) = fresh();
    let (reads, writes) = (handle(&owner, &file, 1, OpenMode::READ), handle(&owner, &file, 2, OpenMode::WRITE));
    file.lose(Errno::ENOSPC.into());
    assert_eq!(reads.check_write(), Err(Errno::EBADF.into()));
    assert_eq!(writes.check_read(), Err(Errno::EBADF.into()));
    assert_eq!((reads.check_read(), reads.check_read()), (Err(Errno::ENOSPC.into()), Ok(())));
    assert_eq!(writes.check_write(), Err(Errno::ENOSPC.into()));
    owner.instance.set(ClientInstance::default().next());
    assert_eq!(writes.check_write(), Ok(ClientInstance::default().next()), "in which the write begins");
}

#[test]
fn a_handle_that_is_dropped_open_is_given_to_its_client_once_and_a_closed_one_is_not() {
    let (owner, file) = fresh();
    let (one, two) = (handle(&owner, &file, 1, OpenMode::READ), handle(&owner, &file, 2, OpenMode::READ));
    let clone = one.clone();
    drop(one);
    assert!(owner.dropped.borrow().is_empty(), "a clone is left");
    drop(clone);
    two.inner.stage.set(Stage::Closed);
    drop(two);
    assert_eq!(*owner.dropped.borrow(), [1]);
    assert_eq!(owner.ended.get(), 0);
    let busy = file.busy();
    drop(file);
    assert_eq!(owner.ended.get(), 0, "a change is under way");
    drop(busy);
    assert_eq!(owner.ended.get(), 1);
}

#[test]
fn changes_under_way_and_handles_that_are_reopened_are_counted() {
    let (_owner, file) = fresh();
    let (one, two) = (file.busy(), file.busy());
    drop(one);
    assert!(file.activity.changes.any());
    drop(two);
    assert!(!file.activity.changes.any());
    let reopens = || Counted::new(&file, |file| &file.activity.reopening);
    let (one, two) = (reopens(), reopens());
    drop(two);
    assert!(file.activity.reopening.any(), "one is not open yet");
    drop(one);
    assert!(!file.activity.reopening.any());
}

/// The file at the MDT at some time.
#[derive(Clone, Debug)]
struct Version {
    attr: Attr,
    layout: Layout,
    /// The largest size within the epoch, whenever that was.
    most: u64,
}

/// Truncates, changes of the layout, times that are set, and writes, one after another.
fn versions(dice: &mut Dice) -> Vec<Version> {
    let mut now = Version { attr: attr(8), layout: Layout::plain(1, 64 << 10, vec![3, 4]), most: 0 };
    let mut versions = vec![now.clone()];
    for _ in 0..25 {
        match dice.below(5) {
            0 => {
                now.attr.truncate_epoch += 1;
                now.attr.size = dice.below(100);
            }
            // Another layout comes with another epoch.
            1 => {
                now.attr.truncate_epoch += 1;
                let generation = now.layout.generation + 1;
                now.layout = Layout::plain(generation, 64 << 10, vec![generation]);
            }
            2 => now.attr.attr_epoch += 1,
            _ => now.attr.size += dice.below(100),
        }
        versions.push(now.clone());
    }
    for at in 0..versions.len() {
        let epoch = versions[at].attr.truncate_epoch;
        let same = versions.iter().filter(|version| version.attr.truncate_epoch == epoch);
        versions[at].most = same.map(|version| version.attr.size).max().unwrap_or(0);
    }
    versions
}

#[test]
fn replies_in_any_order_bring_a_file_to_its_last_version_and_never_back() {
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let (_owner, file) = fresh();
        let versions = versions(&mut dice);
        let (last_epoch, most) = (versions[25].attr.truncate_epoch, versions[25].most);
        let mut order: Vec<usize> = (0..versions.len()).collect();
        while !order.is_empty() {
            let at = order.swap_remove(dice.below(order.len() as u64) as usize);
            let Version { attr, layout, .. } = &versions[at];
            let (before, epoch_before) = (file.version(), file.attr_epoch());
            let comes = !dice.one_in(3) || at == 25;
            file.adopt(Ticket::numbered(at as u64), attr, comes.then_some(layout));
            let (epoch, generation) = file.version();
            assert!((epoch, generation) >= before && generation >= before.1, "seed {seed}: back from {before:?}");
            assert!(file.attr_epoch() >= epoch_before, "seed {seed}");
            // The layout is that of the epoch: requests of one epoch never go by the layout of another.
            let of_epoch = versions.iter().find(|version| version.attr.truncate_epoch == epoch).expect("it was there");
            assert_eq!(*file.layout(), of_epoch.layout, "seed {seed}: epoch {epoch}");
            assert!(file.size.borrow().seen() <= of_epoch.most, "seed {seed}: {:?}", file.size.borrow());
        }
        let (epoch, seen) = (file.size.borrow().epoch(), file.size.borrow().seen());
        assert_eq!((epoch, file.attr_epoch()), (last_epoch, versions[25].attr.attr_epoch), "seed {seed}");
        let last = &versions[25].attr;
        assert!((last.size..=most).contains(&seen), "seed {seed}: {seen} of {} to {most}", last.size);
    }
}

#[test]
fn a_reply_of_a_later_truncate_epoch_without_a_layout_is_not_taken_over() {
    let (_owner, file) = fresh();
    let later = Attr { truncate_epoch: 1, size: 70, attr_epoch: 5, flags: attr_flags(true), ..attr(8) };
    file.adopt(Ticket::numbered(1), &later, None);
    assert_eq!((file.version(), file.size.borrow().seen(), file.attr_epoch()), ((0, 1), 0, 0));
    assert!(!file.inline.is_there());
    file.adopt(Ticket::numbered(1), &later, Some(&Layout::plain(2, 64 << 10, vec![9])));
    assert_eq!((file.version(), file.size.borrow().seen(), file.attr_epoch()), ((1, 2), 70, 5));
    assert!(file.inline.is_there());
    let larger = Attr { size: 90, flags: 0, ..later };
    file.adopt(Ticket::numbered(2), &larger, None);
    assert_eq!((file.size.borrow().seen(), file.inline.is_there()), (90, true), "the epoch is known");
}

fn attr_flags(is_inline: bool) -> u32 {
    if is_inline { forebay_proto::message::attr_flags::INLINE } else { 0 }
}

#[test]
fn the_latest_time_that_a_target_told_counts_and_a_later_attribute_epoch_goes_before_a_later_time() {
    let owner = Rc::new(Owner::default());
    let file = owned(&owner, &Attr { attr_epoch: 4, ..attr(8) });
    assert_eq!((file.told(), file.time()), (None, (u64::MAX, 0)), "none was told");
    file.told_time(3, 999);
    assert_eq!(file.told(), None, "it was set since, in epoch 4");
    for (epoch, time, latest) in [(4, 50, (4, 50)), (4, 40, (4, 50)), (5, 10, (5, 10)), (4, 70, (5, 10))] {
        file.told_time(epoch, time);
        assert_eq!((file.told(), file.time()), (Some(latest), latest), "after {epoch}, {time}");
    }
}

#[test]
fn a_close_tells_the_size_that_osts_told_of_lost_changes_only_within_its_epoch() {
    let owner = Rc::new(Owner::default());
    let file = owned(&owner, &Attr { truncate_epoch: 2, size: 300, ..attr(8) });
    for (told, expected) in
        [(None, (2, 300)), (Some((2, 100)), (2, 100)), (Some((1, 100)), (2, 300)), (Some((3, 7)), (2, 300))]
    {
        assert_eq!(file.size_to_close(told), expected, "{told:?}");
    }
}

#[test]
fn a_raise_counts_if_it_was_made_in_this_instance_and_within_the_truncate_epoch() {
    let (owner, file) = fresh();
    let at = file.snapshot();
    file.raised(&at, 100, Transno(5));
    file.raised(&at, 70, Transno(4));
    assert!(file.size.borrow().covers(0, 100) && !file.size.borrow().covers(0, 101));
    assert_eq!(file.raises.last.get(), (0, Transno(5)), "the later of two");
    // Another session may never bring the next one back.
    owner.instance.set(ClientInstance::default().next());
    file.raised(&at, 900, Transno(9));
    assert!(!file.size.borrow().covers(0, 101));
    assert_eq!((file.raises.last.get(), file.size.borrow().seen()), ((0, Transno(5)), 100));
    let cut = Attr { truncate_epoch: 1, ..attr(8) };
    file.adopt(Ticket::numbered(1), &cut, Some(&Layout::plain(2, 64 << 10, vec![7])));
    let late = at.of_instance(ClientInstance::default());
    owner.instance.set(ClientInstance::default());
    file.raised(&late, 900, Transno(8));
    assert_eq!((file.size.borrow().seen(), file.size.borrow().covers(1, 1)), (0, false), "it was cut meanwhile");
    // The new home counts for itself.
    file.raised(&file.snapshot(), 20, Transno(2));
    assert_eq!(file.raises.last.get(), (1, Transno(2)));
    file.raised(&late, 900, Transno(9));
    assert_eq!(file.raises.last.get(), (1, Transno(2)), "one of the home of before");
}

#[test]
fn a_snapshot_has_what_requests_carry_and_is_as_old_as_what_it_is_for() {
    let (owner, file) = fresh();
    let migrated = Layout { objects: Some(Fid { high: 0, low: 99 }), ..Layout::plain(6, 64 << 10, vec![7]) };
    let told = Attr { truncate_epoch: 3, attr_epoch: 8, size: 50, ..attr(8) };
    file.adopt(Ticket::numbered(1), &told, Some(&migrated));
    owner.instance.set(ClientInstance::default().next());
    file.activity.untouched.set(true);
    let at = file.snapshot();
    assert!(!file.activity.untouched.get(), "an OST is sent something");
    let object = ObjectRef { fid: Fid { high: 0, low: 99 }, layout_generation: 6, truncate_epoch: 3 };
    assert_eq!((&at.object, at.attr_epoch, at.seen, at.is_buffered), (&object, 8, 50, false));
    assert_eq!((at.instance, *at.layout == migrated), (ClientInstance::default().next(), true));
    let buffered = at.clone().buffered_under(5);
    assert_eq!((buffered.is_buffered, buffered.attr_epoch), (true, 5), "a time that was set later stays");
    assert_eq!(at.clone().buffered_under(9).attr_epoch, 8);
    assert_eq!(at.clone().of_instance(ClientInstance::default()).instance, ClientInstance::default());
    let next = ClientInstance::default().next().next();
    assert_eq!(at.of_instance(next).instance, ClientInstance::default().next(), "it was begun in the earlier one");
    drop(owner);
    assert_eq!(file.snapshot().instance, ClientInstance::default(), "without a client");
}

#[test]
fn a_write_behind_all_that_is_known_of_the_file_leaves_a_gap() {
    let (owner, file) = fresh();
    let open = handle(&owner, &file, 1, OpenMode::WRITE);
    assert!(!open.leaves_a_gap(0) && open.leaves_a_gap(1));
    file.size.borrow_mut().see(0, 100);
    assert!(!open.leaves_a_gap(100) && open.leaves_a_gap(101));
    file.buffered.borrow_mut().parts.insert(100, vec![1; 50].into(), Time(0));
    assert!(!open.leaves_a_gap(150) && open.leaves_a_gap(151));
}

#[test]
fn what_a_file_says_of_itself_comes_from_the_reply_to_what_was_asked_last() {
    use forebay_proto::message::choice_flags;
    let (_owner, file) = fresh();
    let bound = InlineBound::new(4096);
    let says = Attr { flags: choice_flags(Some(CommitLevel::Commit)) | choice_flags(bound), ..attr(8) };
    file.adopt(Ticket::numbered(5), &says, None);
    file.adopt(Ticket::numbered(4), &attr(8), None);
    let known = || (file.attributes.level.get().own(), file.attributes.inline_bound.get().own());
    assert_eq!(known(), (Some(CommitLevel::Commit), bound));
    file.adopt(Ticket::numbered(6), &attr(8), None);
    assert_eq!(known(), (None, None));
    assert!(file.attributes.like.borrow().is_none());
    file.is_like(Ticket::numbered(7), &says);
    assert_eq!(*file.attributes.like.borrow(), Some((Ticket::numbered(7), says)));
}
