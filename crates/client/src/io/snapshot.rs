//! What the requests of one attempt carry: the current object and layout, the latest attribute epoch, and the client instance that began them.

use std::rc::Rc;

use forebay_env::{Bug, planted};
use forebay_proto::{Layout, message::ObjectRef};

use crate::{
    errors::Trouble,
    file::{FileState, OpenFile, Writer},
    session::instance::ClientInstance,
};

/// What the requests of one attempt carry.
#[derive(Clone)]
pub(crate) struct Snapshot {
    pub layout: Rc<Layout>,
    pub object: ObjectRef,
    pub attr_epoch: u64,
    /// The file is at least this long.
    pub seen: u64,
    /// The write is buffered: there is space for it.
    pub is_buffered: bool,
    /// In which it was begun.
    pub instance: ClientInstance,
}

impl Snapshot {
    /// The same for a buffered write, under no later attribute epoch than this one.
    pub fn buffered_under(mut self, latest: u64) -> Self {
        self.is_buffered = true;
        if !planted(Bug::SetTimeUndone) {
            self.attr_epoch = self.attr_epoch.min(latest);
        }
        self
    }

    /// The same of something that was begun in `instance`.
    pub fn of_instance(mut self, instance: ClientInstance) -> Self {
        self.instance = self.instance.min(instance);
        self
    }
}

impl Writer {
    /// What requests to OSTs carry.
    pub fn snapshot(&self) -> Result<Snapshot, Trouble> {
        Ok(self.file.snapshot_in(self.instance)?.buffered_under(self.attr_epoch))
    }
}

impl FileState {
    /// What requests to OSTs carry.
    pub fn snapshot(&self) -> Snapshot {
        self.activity.untouched.set(false);
        let (layout, size) = (self.layout(), *self.size.borrow());
        let fid = layout.objects_of(self.fid);
        let object = ObjectRef { fid, layout_generation: layout.generation, truncate_epoch: size.epoch() };
        let (attr_epoch, seen, instance) = (self.attr_epoch(), size.seen(), self.instance());
        Snapshot { layout, object, attr_epoch, seen, is_buffered: false, instance }
    }
}

impl OpenFile {
    /// What the requests of one attempt carry, of something that was begun in `instance`. Errors: EIO if that is over, ESTALE if the handle
    /// could not be opened again.
    pub(crate) fn snapshot_in(&self, instance: ClientInstance) -> Result<Snapshot, Trouble> {
        self.check_not_gone()?;
        Ok(self.state().snapshot().of_instance(instance))
    }
}
