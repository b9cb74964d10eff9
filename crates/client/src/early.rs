//! What is done with a file that was made ahead, before the MDT has replied: its first bytes and its attributes.
//!
//! Whoever makes a small file writes it at once. Its create was answered (see [`crate::ahead`]), so it comes to pass, and nobody else
//! sees the file before that is so; then what was done with it is kept back like anything else that is.
//!
//! Invariant: what was done early is part of the file before its create counts as replied, and before anything else is done
//! with it.
//! Invariant: no more than may lie with the MDT ([`Client::most_inline`]), in order from the first
//! byte on, and only while every OST has room for all that this client may keep back.

use std::rc::Rc;

use forebay_env::{Bug, planted};
use forebay_proto::{
    Fid,
    message::{Attr, Caller, CommitLevel, SetAttr},
};

use crate::{
    Client, OpenFile, SetAttributes,
    client::Inner,
    eras::{Era, era_is_over},
    file::FileState,
    leases::Holds,
    limits,
    payload::Payload,
    set_ahead::Setting,
    write_back::room::cost,
};

/// What was done with a file that is still coming.
pub(crate) struct Early {
    /// What programs were told that it is like.
    attr: Attr,
    writes: Vec<(u64, Payload)>,
    bytes: u64,
    /// When the last of them was written.
    at_ns: i64,
    setting: Option<Setting>,
    /// In which all of it was answered.
    era: Era,
}

impl Early {
    /// Nothing, with a file that will be like that.
    pub fn new(attr: Attr, era: Era) -> Self {
        Self { attr, writes: Vec::new(), bytes: 0, at_ns: 0, setting: None, era }
    }
}

impl Client {
    /// Takes a write to a file that is still coming. False: it has to wait for it.
    pub(crate) fn write_early(&self, early: &mut Early, offset: u64, data: &Payload) -> bool {
        let (here, length) = (&self.inner.write_back, data.len() as u64);
        let most = self.most_inline(early.attr.inline_bound()) as u64;
        if early.era != self.inner.era() {
            return false;
        }
        let fits = offset == early.bytes && early.bytes + length <= most;
        let may = self.level() != CommitLevel::Commit && here.has_room_for(length, self.inner.options.write_back_bytes);
        if length == 0 || !fits || !may || !self.all_osts_have_room(length) {
            return false;
        }
        here.add(length, 1);
        early.writes.push((offset, data.clone()));
        (early.bytes, early.at_ns) = (early.bytes + length, self.env().unix_time().0);
        if let Some(setting) = &mut early.setting {
            setting.time_changes();
        }
        self.inner.counters.written(data.len());
        true
    }

    /// As [`Client::set_ahead`], of a file that is still coming.
    pub(crate) fn set_early(&self, caller: &Caller, fid: Fid, changes: &SetAttributes) -> Option<Attr> {
        let made = self.inner.ahead.coming(fid)?;
        let mut early = made.early().borrow_mut();
        let early = early.as_mut()?;
        let options = &self.inner.options;
        let is_over = early.era != self.inner.era();
        if caller.uid != 0 || self.level() == CommitLevel::Commit || options.write_back_bytes == 0 || is_over {
            return None;
        }
        let attr = self.keep_setting(fid, &mut early.setting, &early.attr, changes)?;
        early.attr = attr.clone();
        Some(Attr { size: early.bytes, ..attr })
    }

    /// What a file that is still coming is like; `with_times`: only if the modification time is known too.
    pub(crate) fn known_early(&self, fid: Fid, with_times: bool) -> Option<Attr> {
        let made = self.inner.ahead.coming(fid)?;
        let early = made.early().borrow();
        let early = early.as_ref()?;
        let is_known = !with_times || early.setting.as_ref().is_some_and(Setting::has_time);
        is_known.then(|| Attr { size: early.bytes, ..early.attr.clone() })
    }

    /// Waits until a file has come: what was done with it is part of it then.
    pub(crate) async fn settle_coming(&self, fid: Fid) {
        if self.inner.ahead.coming(fid).is_some() && !planted(Bug::EarlyBytesComeLate) {
            self.settle(fid).await;
        }
    }

    /// The file has come: what was done with it is kept back, or done.
    pub(crate) async fn take_over(&self, early: Early, parent: Fid, file: &OpenFile) {
        let (state, fid) = (file.state().clone(), file.fid());
        state.came_to.set(Some(parent));
        if early.era != self.inner.era() && !planted(Bug::EraSurvived) {
            return self.lose_early_of(&state, early);
        }
        self.inner.write_back.subtract(early.bytes, early.writes.len());
        for (offset, data) in &early.writes {
            self.insert_kept(file, *offset, data, early.at_ns);
        }
        if early.bytes > 0 || early.setting.is_some() {
            self.look_after_age();
        }
        let is_ours = self.inner.leases.may_keep(fid) == Holds::All;
        match early.setting {
            Some(setting) if is_ours => {
                *state.setting.borrow_mut() = Some(setting);
                state.is_like(self.inner.leases.ticket(), &early.attr);
                self.inner.set_ahead.arrived();
            }
            Some(setting) => {
                // Its time of change will be that of the MDT.
                let (slot, request) = setting.into_request(fid);
                self.send_set(&state, &SetAttr { at_ns: 0, ..request }, Some(slot)).await;
            }
            None => {}
        }
        if !is_ours && early.bytes > 0 {
            // Others may open it as soon as it is there.
            let _ = self.env().timeout(limits::EARLY_TERM, self.send_kept(&state)).await;
        }
    }

    /// The names of a directory are given back: what was done early with files that came to it goes first. Whoever asked for it may
    /// have done so before the MDT counted the data of these files as leased.
    pub(crate) async fn send_came_to(&self, dir: Fid) {
        for file in self.inner.came_to(dir) {
            // What is lost of it, its handles report.
            let _ = self.send_kept(&file).await;
            self.settle_set_of(file.fid).await;
        }
    }

    /// The file has come, but the MDT has ended the session since: others may have changed it, and its handles tell what is lost.
    fn lose_early_of(&self, file: &FileState, early: Early) {
        if early.bytes > 0 {
            self.lose_kept(file, &era_is_over());
        }
        if early.setting.is_some() {
            self.inner.lose_set(file, &era_is_over().to_string());
        }
        self.lose_early(file.fid, early);
    }

    /// The file does not come.
    pub(crate) fn lose_early(&self, fid: Fid, early: Early) {
        self.inner.write_back.subtract(early.bytes, early.writes.len());
        if early.setting.is_some() {
            self.inner.end_set(fid);
        }
    }

    /// Whether every OST that a new file may be placed on has granted room for `length` bytes more. Asks them, if not.
    fn all_osts_have_room(&self, length: u64) -> bool {
        let (here, osts) = (&self.inner.write_back, self.inner.peers.osts());
        if osts.is_empty() || osts.len() > limits::EARLY_OSTS {
            return false;
        }
        let more = cost(length, 1);
        let lacking = here.room.lacking(osts.iter().copied(), here.held() + more);
        if lacking.is_empty() {
            self.look_after_room(osts);
            return true;
        }
        if !here.asking.replace(true) {
            let client = self.clone();
            drop(self.env().spawn(async move {
                client.have_room(lacking, more).await;
                client.inner.write_back.asking.set(false);
            }));
        }
        false
    }
}

impl Inner {
    /// Files of which something is kept back that were made ahead in the directory.
    pub(crate) fn came_to(&self, dir: Fid) -> Vec<Rc<FileState>> {
        let keeps = |file: &Rc<FileState>| !file.kept.borrow().is_clean() || self.set_ahead.has(file.fid);
        let mut files = self.open_files();
        files.retain(|file| file.came_to.get() == Some(dir) && keeps(file));
        files
    }
}
