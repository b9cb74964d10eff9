//! Attributes of a file that is being written: set here, sent with its close.
//!
//! `tar x`, `cp -p` and `rsync` write a file, give it its times, owner and mode, and close it. Under the lease on the file's data nobody
//! else can see it meanwhile, so what they set is answered from what is known here and goes to the MDT with the close; or, like
//! what is kept back of writes, when the lease is recalled, or after [`limits::KEEP_TERM`].
//!
//! Invariant: whatever shows or changes attributes at the MDT is asked for after those that are kept back were replied
//! ([`Client::settle_set`]): all but closes, changes of names that are answered ahead, and locks.
//! Invariant: they have a slot of the session from the beginning: on their way they wait for no other client.
//! Invariant: a recall of the lease on the file's data is answered after that, too.
//! Invariant: bytes that were written before do not change the time that is set, though they may be sent later: they go under the
//! attribute epoch of then.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};

use forebay_env::{Bug, Time, planted, sync::Notify};
use forebay_proto::{
    Fid,
    limits::INLINE_BYTES,
    message::{Attr, Caller, CommitLevel, SetAttr, attr_flags},
};
use forebay_rpc::{Call, Called, Reservation, RpcError};

use crate::{
    Client, SetAttributes, SetTime,
    client::Inner,
    file::FileState,
    leases::{Holds, Ticket},
    limits, mode,
};

const SET_IDS: u32 = 0o6000;
/// Who else may set what is not known here.
const SUPERUSER: Caller = Caller { uid: 0, gid: 0, groups: Vec::new() };

/// Attributes that are kept back, of all files. See the module.
#[derive(Default)]
pub(crate) struct SetAhead {
    /// Files with some that were not replied yet, and the number of the first of them.
    files: RefCell<BTreeMap<Fid, u64>>,
    last: Cell<u64>,
    ended: Notify,
}

impl SetAhead {
    /// A file of which some are kept back has come.
    pub fn arrived(&self) {
        self.ended.notify_waiters();
    }

    fn numbers(&self) -> Vec<(Fid, u64)> {
        self.files.borrow().iter().map(|(fid, number)| (*fid, *number)).collect()
    }

    fn is_under_way(&self, fid: Fid, number: u64) -> bool {
        self.files.borrow().get(&fid) == Some(&number)
    }

    /// Some of the file were sent, and not replied yet.
    pub fn is_on_its_way(&self, file: &FileState) -> bool {
        self.has(file.fid) && file.setting.borrow().is_none()
    }

    /// Some of `fid` were not replied yet.
    pub fn has(&self, fid: Fid) -> bool {
        self.files.borrow().contains_key(&fid)
    }

    fn is_empty(&self) -> bool {
        self.files.borrow().is_empty()
    }
}

/// Attributes of one file that are kept back.
pub(crate) struct Setting {
    slot: Reservation,
    changes: SetAttributes,
    /// When the last of them was set, as its program was told.
    at_ns: i64,
    /// It is sent as soon as somebody waits, or it has been here for long enough.
    since: Time,
}

impl Setting {
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

impl SetAttributes {
    /// Takes over what is set after these.
    fn then(&mut self, later: &SetAttributes) {
        let SetAttributes { mode, uid, gid, size: _, atime, mtime } = later;
        self.mode = mode.or(self.mode);
        self.uid = uid.or(self.uid);
        self.gid = gid.or(self.gid);
        self.atime = atime.or(self.atime);
        self.mtime = mtime.or(self.mtime);
    }

    /// With this clock's now.
    fn at(&self, now_ns: i64) -> SetAttributes {
        let given = |time: Option<SetTime>| match time {
            Some(SetTime::Now) => Some(SetTime::At(now_ns)),
            given => given,
        };
        SetAttributes { atime: given(self.atime), mtime: given(self.mtime), ..self.clone() }
    }

    /// What a file with `attr` is like then. `None`: that depends on more than these.
    fn applied(&self, mut attr: Attr, now_ns: i64) -> Option<Attr> {
        let depends = |bits: u32| bits & SET_IDS != 0;
        let has_acl = attr.flags & attr_flags::XATTRS != 0 && self.mode.is_some();
        if self.size.is_some() || has_acl || depends(attr.mode) || self.mode.is_some_and(depends) {
            return None;
        }
        if let Some(mode) = self.mode {
            attr.mode = attr.mode & !mode::PERMISSIONS | mode & mode::PERMISSIONS;
        }
        attr.uid = self.uid.unwrap_or(attr.uid);
        attr.gid = self.gid.unwrap_or(attr.gid);
        let time = |time: Option<SetTime>, before: i64| match time {
            None => before,
            Some(SetTime::Now) => now_ns,
            Some(SetTime::At(ns)) => ns,
        };
        attr.atime_ns = time(self.atime, attr.atime_ns);
        attr.mtime_ns = time(self.mtime, attr.mtime_ns);
        attr.ctime_ns = now_ns.max(attr.ctime_ns.saturating_add(1));
        Some(attr)
    }
}

impl FileState {
    /// What the MDT told of the file as it was `asked`, to open it for this client alone: it is so until something happens to it.
    pub fn is_like(&self, asked: Ticket, attr: &Attr) {
        *self.like.borrow_mut() = Some((asked, attr.clone()));
    }

    /// Attributes that are kept back go with a close that is on its way from now on.
    pub fn take_setting(&self) -> Option<Setting> {
        self.setting.borrow_mut().take()
    }

    /// Something is written: a time that was set before, and not sent, does not count.
    pub fn time_changes(&self) {
        if let Some(setting) = self.setting.borrow_mut().as_mut() {
            setting.time_changes();
        }
    }
}

impl Client {
    /// Sets attributes of a file without asking anybody. `None`: the MDT has to be asked.
    ///
    /// The kernel names no handle with fchown, fchmod and futimens.
    pub(crate) fn set_ahead(&self, caller: &Caller, fid: Fid, changes: &SetAttributes) -> Option<Attr> {
        let inner = &self.inner;
        let Some(state) = inner.file(fid) else { return self.set_early(caller, fid, changes) };
        let is_ours = inner.leases.may_keep(fid) == Holds::All && state.losses() == 0 && !state.is_inline();
        let is_durable = self.level() == CommitLevel::Commit || state.level.get().commits();
        let may = caller.uid == 0 && !is_durable && inner.options.write_back_bytes > 0;
        if !is_ours || !may || state.writers.get() == 0 || state.is_reopening() {
            return None;
        }
        let attr = self.keep_setting(fid, &mut state.setting.borrow_mut(), &self.like(&state)?, changes)?;
        inner.leases.links_change(fid);
        state.is_like(inner.leases.ticket(), &attr);
        self.look_after_age();
        Some(attr)
    }

    /// Keeps back what is set of a file that is `like` that, with what was `set` before; what it is like then.
    pub(crate) fn keep_setting(
        &self,
        fid: Fid,
        setting: &mut Option<Setting>,
        like: &Attr,
        changes: &SetAttributes,
    ) -> Option<Attr> {
        let inner = &self.inner;
        if setting.is_none() && inner.set_ahead.has(fid) {
            return None;
        }
        let now_ns = self.env().unix_time().0;
        let attr = changes.applied(like.clone(), now_ns)?;
        let at_ns = attr.ctime_ns;
        let changes = changes.at(now_ns);
        match setting.as_mut() {
            Some(before) => {
                before.changes.then(&changes);
                before.at_ns = at_ns;
            }
            None => {
                // The file's bytes may go along.
                let bytes = INLINE_BYTES + 2 * limits::CHANGE_BYTES;
                let slot = inner.peers.mdt().session.reserve(bytes)?;
                *setting = Some(Setting { slot, changes, at_ns, since: self.env().now() });
                let number = inner.set_ahead.last.get() + 1;
                inner.set_ahead.last.set(number);
                inner.set_ahead.files.borrow_mut().insert(fid, number);
            }
        }
        Some(attr)
    }

    /// What a file is like that only this client has open: if nothing has happened to it since that was told.
    fn like(&self, file: &FileState) -> Option<Attr> {
        let (asked, mut attr) = file.like.borrow().clone()?;
        attr.size = attr.size.max(file.size.borrow().seen()).max(file.kept.borrow().end());
        if let Some((_, written_ns)) = file.told().filter(|(epoch, _)| *epoch == attr.attr_epoch) {
            attr.ctime_ns = attr.ctime_ns.max(written_ns);
        }
        self.inner.leases.is_unchanged(file.fid, asked).then_some(attr)
    }

    /// Attributes of a file of which some are kept back, the modification time among them: nothing was written since. The kernel asks
    /// for them before it changes the owner.
    pub(crate) fn known_as_set(&self, fid: Fid) -> Option<Attr> {
        if !self.inner.set_ahead.has(fid) {
            return None;
        }
        let Some(file) = self.inner.file(fid) else { return self.known_early(fid, true) };
        let has_time = file.setting.borrow().as_ref().is_some_and(Setting::has_time);
        if has_time { self.like_of_ours(&file) } else { None }
    }

    /// The same but for the times, of any file that only this client has open.
    pub(crate) fn known_but_times(&self, fid: Fid) -> Option<Attr> {
        match self.inner.file(fid) {
            Some(file) => self.like_of_ours(&file),
            None => self.known_early(fid, false),
        }
    }

    fn like_of_ours(&self, file: &FileState) -> Option<Attr> {
        let is_ours = self.inner.leases.may_keep(file.fid) == Holds::All && file.losses() == 0;
        if is_ours { self.like(file) } else { None }
    }

    /// Some are kept back, or on their way.
    pub(crate) fn sets_any(&self) -> bool {
        !self.inner.set_ahead.is_empty()
    }

    /// Sends what has been kept back for `age`.
    pub(crate) fn send_set_of_age(&self, age: Duration) {
        let now = self.env().now();
        for (fid, _) in self.inner.set_ahead.numbers() {
            if let Some(file) = self.inner.file(fid) {
                let is_old = file.setting.borrow().as_ref().is_some_and(|setting| setting.since + age <= now);
                if is_old {
                    self.start_setting(&file);
                }
            }
        }
    }

    /// Waits until attributes that were set so far, and kept back, were replied.
    pub(crate) async fn settle_set(&self) {
        if !self.inner.set_ahead.is_empty() {
            self.settle_set_where(|_| true).await;
        }
    }

    /// The same of one file.
    pub(crate) async fn settle_set_of(&self, fid: Fid) {
        if self.inner.set_ahead.has(fid) && !planted(Bug::AttributesNotSettled) {
            self.settle_set_where(|of| of == fid).await;
        }
    }

    async fn settle_set_where(&self, wanted: impl Fn(Fid) -> bool) {
        let mut numbers = self.inner.set_ahead.numbers();
        numbers.retain(|(fid, _)| wanted(*fid));
        loop {
            let ended = self.inner.set_ahead.ended.notified();
            numbers.retain(|(fid, number)| self.inner.set_ahead.is_under_way(*fid, *number));
            if numbers.is_empty() {
                return;
            }
            // A file that is still coming is there later.
            numbers.iter().filter_map(|(fid, _)| self.inner.file(*fid)).for_each(|file| self.start_setting(&file));
            // They may go with a close, or wait for a create, that waits for something else to go with.
            self.inner.peers.mdt().session.hurry();
            ended.await;
        }
    }

    /// Sends what is kept back of the file, if it is not on its way.
    fn start_setting(&self, file: &Rc<FileState>) {
        let Some(setting) = file.take_setting() else { return };
        let (client, file, busy) = (self.clone(), file.clone(), file.busy());
        drop(self.env().spawn(async move {
            let (slot, request) = setting.into_request(file.fid);
            client.send_set(&file, &request, Some(slot)).await;
            drop(busy);
        }));
    }

    /// Sets what was answered before.
    pub(crate) async fn send_set(&self, file: &FileState, request: &SetAttr, slot: Option<Reservation>) {
        let (inner, fid) = (&self.inner, file.fid);
        let call = Call { fid: Some(fid), ..Call::level(self.level()) };
        let (asked, begun) = (inner.leases.ticket(), self.env().now());
        let mdt = inner.peers.mdt();
        let called: Result<Called<_>, RpcError> = match slot {
            Some(slot) => mdt.session.call_reserved(slot, request, call).await,
            None => mdt.call(request, call).await,
        };
        match called {
            Ok(called) => {
                inner.leases.heard(begun);
                file.adopt(asked, &called.reply.attr, called.reply.layout.as_ref());
                let is_same = inner.leases.is_unchanged(fid, asked);
                inner.leases.touch_at(fid, called.transno);
                if is_same {
                    file.is_like(inner.leases.ticket(), &called.reply.attr);
                }
            }
            Err(error) => inner.lose_set(file, &error.to_string()),
        }
        inner.end_set(fid);
    }

    /// Attributes that went with a close are set, or lost: see [`FileState::take_setting`].
    pub(crate) fn closed_set(&self, file: &FileState, outcome: Result<(), &RpcError>) {
        if let Err(error) = outcome {
            self.inner.lose_set(file, &error.to_string());
        }
        self.inner.end_set(file.fid);
    }
}

impl Inner {
    /// Nothing of it is kept back any more.
    pub(crate) fn end_set(&self, fid: Fid) {
        self.set_ahead.files.borrow_mut().remove(&fid);
        self.set_ahead.ended.notify_waiters();
    }

    pub(crate) fn lose_set(&self, file: &FileState, reason: &str) {
        let words = format!("attributes that were set are lost: {reason}");
        self.env.log(&format!("client: of {} {words}", file.fid));
        self.lost_requests.set(self.lost_requests.get() + 1);
        file.lose(&words);
    }

    /// The MDT has ended the session: what was not sent may not be set any more, over what others did since.
    pub(crate) fn lose_all_set(&self, reason: &str) {
        for (fid, _) in self.set_ahead.numbers() {
            if let Some(file) = self.file(fid)
                && file.take_setting().is_some()
            {
                self.lose_set(&file, reason);
                self.end_set(fid);
            }
        }
    }
}
