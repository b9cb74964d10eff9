//! Leases of the MDT on inodes and entries, and the attributes and entries that are cached under them.
//!
//! An inode lease is the right to use cached attributes and, of a directory, cached entries, present and absent. It ends when it is
//! recalled, when the MDT restarts, and when the MDT has replied to no request that was sent within the last
//! [`LEASE_CLIENT_TERM`](forebay_proto::limits::LEASE_CLIENT_TERM): so the MDT knows when it is over without a message from the client.
//!
//! What is leased and cached is in the [`LeaseTable`], which is pure. [`Leases`] steps it: it brings the time, and
//! after each step it notifies the kernel's hook of what has to be dropped. The table is not borrowed then, as a hook
//! may call back.
//!
//! Invariant: an answer from here is what the MDT would have replied at some time during the call.
//! Invariant: a recall is acknowledged to the MDT after the kernel was notified of what it may no longer cache
//! ([`Leases::attributes_for`], [`Leases::name_for`]), or after the kernel's timeout.
//! Invariant: bounded ([`limits::CACHED_INODES`](crate::limits::CACHED_INODES), [`limits::CACHED_NAMES`](crate::limits::CACHED_NAMES)).

pub(crate) mod recalls;
pub(crate) mod size_watches;
mod table;
pub(crate) mod watches;

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use forebay_env::{Env, Time};
use forebay_proto::{
    Fid, Transno,
    message::{Attr, AwaitRecalls, DataRecall, EntryReply, OpenReply},
};

pub use self::table::Dropped;
use self::table::LeaseTable;
pub(crate) use self::table::{EntryChange, Holds, SoleLease, Ticket, commits};

/// Notified at once of what has to be dropped. False: the kernel may not have received it, notify it again.
pub(crate) type Hook = Rc<dyn Fn(Dropped) -> bool>;

/// Everything that is kept. See the module.
pub(crate) struct Leases {
    env: Env,
    table: RefCell<LeaseTable>,
    hook: RefCell<Option<Hook>>,
    /// The task that polls for recalls runs.
    pub asking: Cell<bool>,
    /// Open handles that write: the MDT may count the data of their files as leased, whatever we know of it.
    pub writers: Cell<usize>,
}

impl Leases {
    pub fn new(env: &Env) -> Self {
        Self {
            env: env.clone(),
            table: RefCell::default(),
            hook: RefCell::default(),
            asking: Cell::new(false),
            writers: Cell::new(0),
        }
    }

    pub fn set_hook(&self, hook: Hook) {
        *self.hook.borrow_mut() = Some(hook);
    }

    /// See [`LeaseTable::question`].
    pub fn question(&self) -> Option<AwaitRecalls> {
        let writes = self.writers.get() > 0;
        self.step(|table| table.question(writes))
    }

    /// No change of entries is acknowledged before it is sent, in any directory, until the answer is dropped. See
    /// [`LeaseTable::pause_answering_all`].
    pub fn pause_answering_all(&self) -> AllPaused<'_> {
        self.step(LeaseTable::pause_answering_all);
        AllPaused { leases: self, is_over: false }
    }

    /// See [`LeaseTable::change_begins`].
    pub fn change_begins(&self, fid: Fid) -> OwnChange<'_> {
        OwnChange { leases: self, begun: self.step(|table| table.change_begins(fid)) }
    }

    /// See [`LeaseTable::name_changes`].
    pub fn name_changes(&self, parent: Fid, name: &[u8]) -> OwnChange<'_> {
        OwnChange { leases: self, begun: self.step(|table| table.name_changes(parent, name)) }
    }

    /// Notifies the hook of what was dropped. Returns what may not have been received, to be delivered again.
    pub fn tell(&self, mut dropped: Vec<Dropped>) -> Vec<Dropped> {
        if !dropped.is_empty() {
            let hook = self.hook.borrow().clone();
            dropped.retain(|dropped| hook.as_ref().is_some_and(|hook| !hook(*dropped)));
        }
        dropped
    }

    /// A step that ends no leases but those that are given up.
    fn step<T>(&self, run: impl FnOnce(&mut LeaseTable) -> T) -> T {
        self.run(run).0
    }

    /// A step that ends leases. Returns what the kernel may not have been notified of, to be delivered again.
    fn end(&self, run: impl FnOnce(&mut LeaseTable)) -> Vec<Dropped> {
        self.run(run).1
    }

    fn run<T>(&self, run: impl FnOnce(&mut LeaseTable) -> T) -> (T, Vec<Dropped>) {
        let (result, effects) = self.table.borrow_mut().step(self.env.now(), run);
        let ended = self.tell(effects.ended);
        let given_up = self.tell(effects.given_up);
        if !given_up.is_empty() {
            self.table.borrow_mut().not_heard(given_up);
        }
        (result, ended)
    }

    /// Nothing changes, whatever the time.
    fn look<T>(&self, look: impl FnOnce(&LeaseTable) -> T) -> T {
        look(&self.table.borrow())
    }
}

/// Methods of [`Leases`] that do the same of the table: by a look at it, a step, or a step that ends leases.
macro_rules! of_the_table {
    ($($how:ident $method:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        impl Leases {
            $(
                #[doc = concat!("See [`LeaseTable::", stringify!($method), "`].")]
                pub fn $method(&self, $($argument: $type),*) $(-> $result)? {
                    self.$how(|table| table.$method($($argument),*))
                }
            )*
        }
    };
}

of_the_table! {
    look ticket() -> Ticket;
    step heard(begun: Time);
    look kept() -> (u64, u64);

    // What is kept.
    step entry(fid: Fid) -> Option<EntryReply>;
    step is_leased(fid: Fid) -> bool;
    step written(fid: Fid) -> Option<EntryReply>;
    step name(parent: Fid, name: &[u8]) -> Option<Option<EntryReply>>;
    step attributes_for(attr: &Attr) -> Duration;
    step new_file_for(fid: Fid) -> Duration;
    step name_for(parent: Fid, name: &[u8], fid: Option<Fid>) -> Duration;
    look names_until(dir: Fid) -> Time;
    step name_moved(until: Time, to: Fid) -> bool;
    look is_unchanged(fid: Fid, asked: Ticket) -> bool;

    // What replies bring.
    step learn(asked: Ticket, entry: &EntryReply);
    step learn_name(asked: Ticket, parent: Fid, name: &[u8], leases: u32, fid: Option<Fid>);
    step learn_file(asked: Ticket, file: &OpenReply);
    step learn_attributes(asked: Ticket, file: &Attr);
    step learn_empty(asked: Ticket, entry: &EntryReply);
    step accessed(fid: Fid, at_ns: i64);

    // Our own changes.
    step touch(fid: Fid);
    step links_change(fid: Fid);
    step touch_at(fid: Fid, transno: Transno);
    step directory_changed(begun: Ticket, dir: &Attr, transno: Transno);
    step name_changed(begun: Ticket, parent: Fid, name: &[u8], fid: Option<Option<Fid>>);

    // Data of files.
    step learn_data(asked: Ticket, fid: Fid, brought: Holds);
    look holds(fid: Fid) -> Holds;
    step may_keep(fid: Fid) -> Holds;
    step data_is_ours(fid: Fid) -> Option<u64>;
    look size_of(fid: Fid) -> Option<(u64, u64)>;
    step give_up_ranges(fid: Fid);
    step end_data(fid: Fid);
    step lose_data();
    step flushed(recall: DataRecall);

    // Changes that are acknowledged before they are sent.
    step learn_changes(asked: Ticket, flags: u32, parent: Fid, fid: Option<Fid>);
    step answers_for(fid: Fid) -> Option<Attr>;
    step alone(parent: Fid, name: &[u8]) -> Option<SoleLease>;
    step is_empty(fid: Fid) -> bool;
    step stop_answering(fid: Fid);
    step pause_answering(fid: Fid);
    step resume_answering(fid: Fid);
    look may_hold_names(fid: Fid) -> bool;
    step gave_names_back(fid: Fid);
    look changing() -> Vec<Fid>;
    step answer(told: &EntryChange) -> Ticket;
    step entry_applied(begun: Ticket, of: (Fid, &[u8]), dir: Option<&Attr>, transno: Transno);
    step failed(parent: Fid, fid: Fid);
    end unless_leased(fid: Fid, flags: u32) -> Vec<Dropped>;

    // Recalls, and what is given back.
    step give_up_idle() -> bool;
    end drop_recalled(fids: &[Fid]) -> Vec<Dropped>;
    step return_later(fids: Vec<Fid>);
    step what_is_flushed() -> Option<AwaitRecalls>;
    step answered(question: &AwaitRecalls);
    step acknowledge(sequence: u64);
    end lost() -> Vec<Dropped>;
    step keep_within(bytes: u64);
    step take_undelivered() -> Vec<Dropped>;
}

/// A change under way. When it is dropped nobody waits for the change any more.
pub(crate) struct OwnChange<'a> {
    leases: &'a Leases,
    begun: Ticket,
}

impl OwnChange<'_> {
    /// The number of its beginning.
    pub fn begun(&self) -> Ticket {
        self.begun
    }
}

impl Drop for OwnChange<'_> {
    fn drop(&mut self) {
        self.leases.step(|table| table.change_ends(self.begun));
    }
}

/// See [`Leases::pause_answering_all`].
pub(crate) struct AllPaused<'a> {
    leases: &'a Leases,
    is_over: bool,
}

impl AllPaused<'_> {
    /// The change was made, or was not.
    pub fn over(mut self) {
        self.is_over = true;
    }
}

impl Drop for AllPaused<'_> {
    fn drop(&mut self) {
        self.leases.step(|table| table.resume_answering_all(self.is_over));
    }
}

#[cfg(test)]
mod tests;
