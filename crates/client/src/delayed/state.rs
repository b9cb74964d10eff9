//! What a client has delayed: the queue, and files whose create is in it.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use forebay_env::sync::Notify;
use forebay_proto::{Fid, message::Attr};

use crate::{
    ClientResult,
    delayed::queue::{DelayedQueue, Scope},
    delayed::set_attr::DelayedSetAttr,
    file::OpenFile,
    payload::Payload,
    session::instance::ClientInstance,
    tasks::UnderWay,
};

/// Delayed operations of a client.
#[derive(Default)]
pub(crate) struct Delayed {
    pub queue: RefCell<DelayedQueue>,
    /// Files whose create is in the queue.
    pub coming: RefCell<BTreeMap<Fid, Rc<Made>>>,
    /// Flushes under way that wait for changes of entries: no request waits for another one to go with meanwhile.
    pub waiting: UnderWay,
    /// An operation has ended, or can be sent now.
    pub ended: Notify,
    /// The last operation was not delayed because the session had no slot for it.
    pub lacked_slot: Cell<bool>,
}

impl Delayed {
    /// Some operation is in `scope`.
    pub fn has(&self, scope: Scope<'_>) -> bool {
        self.queue.borrow().has(scope)
    }

    /// A file whose create is in the queue.
    pub fn coming(&self, fid: Fid) -> Option<Rc<Made>> {
        self.coming.borrow().get(&fid).cloned()
    }
}

/// A file whose create was acknowledged.
pub(crate) struct Made {
    pub handle: u64,
    pub result: RefCell<Option<ClientResult<OpenFile>>>,
    pub arrived: Notify,
    /// What was done with it so far, while it is still coming.
    pub on_pending: RefCell<Option<OnPendingCreate>>,
}

/// What was done with a file that is still coming.
pub(crate) struct OnPendingCreate {
    /// Its attributes as programs were shown them.
    pub attr: Attr,
    pub writes: Vec<(u64, Payload)>,
    pub bytes: u64,
    /// When the last of them was written.
    pub at_ns: i64,
    pub set_attr: Option<DelayedSetAttr>,
    /// In which all of it was answered.
    pub instance: ClientInstance,
}

impl OnPendingCreate {
    /// Nothing, with a file that will be like that.
    pub fn new(attr: Attr, instance: ClientInstance) -> Self {
        Self { attr, writes: Vec::new(), bytes: 0, at_ns: 0, set_attr: None, instance }
    }
}

#[cfg(test)]
mod tests;
