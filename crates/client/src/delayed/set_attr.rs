//! A SETATTR of one file that was acknowledged and not sent. Pure; the sending: `send_set_attr`.

use forebay_env::Time;
use forebay_proto::{
    Fid,
    message::{Caller, SetAttr},
};
use forebay_rpc::Reservation;

use crate::SetAttributes;

/// Who else may set what is not known here.
const SUPERUSER: Caller = Caller { uid: 0, gid: 0, groups: Vec::new() };

/// Delayed attributes of one file.
pub(crate) struct DelayedSetAttr {
    pub slot: Reservation,
    pub changes: SetAttributes,
    /// When the last of them was set, as it was acknowledged to its program.
    pub at_ns: i64,
    /// It is sent as soon as somebody waits, or it has been here for long enough.
    pub since: Time,
}

impl DelayedSetAttr {
    /// The modification time is among them.
    pub fn has_time(&self) -> bool {
        self.changes.mtime.is_some()
    }

    /// Something is written: that does not count.
    pub fn time_changes(&mut self) {
        self.changes.mtime = None;
    }

    /// What is to be sent, and the slot to send it in.
    pub fn into_request(self, fid: Fid) -> (Reservation, SetAttr) {
        let request = self.changes.request(&SUPERUSER, fid, 0);
        (self.slot, SetAttr { at_ns: self.at_ns, ..request })
    }
}
