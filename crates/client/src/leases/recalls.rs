//! Asks the MDT for recalls for as long as something is kept: its answers also keep the leases alive.

use std::{
    rc::{Rc, Weak},
    time::Duration,
};

use forebay_env::{Bug, planted};
use forebay_proto::{
    Fid,
    message::{AwaitRecalls, DataRecall},
};
use forebay_rpc::{ClientSession, SessionState};

use crate::{Attr, Client, Dropped, client::Inner, delayed::queue::Scope, leases::Holds, limits};

impl Client {
    /// How long `attr` may be cached without a request; when that ends earlier, the hook of [`Client::set_dropped`] is
    /// notified.
    pub fn attributes_for(&self, attr: &Attr) -> Duration {
        self.inner.mdt.leases.attributes_for(attr)
    }

    /// The same of a file that [`Client::create`] has just made, for somebody who follows what is done through this client.
    pub fn new_file_for(&self, fid: Fid) -> Duration {
        self.inner.mdt.leases.new_file_for(fid)
    }

    /// How long `name` of `parent` may be believed to lead to `fid` (`None`: to nothing).
    pub fn name_for(&self, parent: Fid, name: &[u8], fid: Option<Fid>) -> Duration {
        self.inner.mdt.leases.name_for(parent, name, fid)
    }

    /// Called when something may not be believed any more, before the MDT knows. It must not wait for anything; if it
    /// returns false it is called again a little later, and the MDT is kept waiting.
    pub fn set_dropped(&self, hook: impl Fn(Dropped) -> bool + 'static) {
        self.inner.mdt.leases.set_hook(Rc::new(hook));
    }
}

impl Inner {
    /// After something was cached under a lease: sees to it that its recall is received.
    pub fn listen(self: &Rc<Self>) {
        if !self.mdt.leases.asking.replace(true) {
            let (inner, session) = (Rc::downgrade(self), self.peers.mdt().session.clone());
            drop(self.env.spawn(async move { ask(inner, session).await }));
        }
    }

    /// The MDT knows of no leases any more.
    pub fn lose_leases(self: &Rc<Self>) {
        self.open_files().iter().for_each(|file| file.sharing.forget());
        let undelivered = self.mdt.leases.lost();
        self.tell_again(undelivered);
        let client = Client { inner: self.clone() };
        drop(self.env.spawn(async move { client.watch_sizes().await }));
    }

    /// Tells what was dropped and may not have been heard.
    pub fn tell_again(self: &Rc<Self>, undelivered: Vec<Dropped>) {
        if !undelivered.is_empty() {
            let inner = self.clone();
            drop(self.env.spawn(async move { inner.say_again(undelivered).await }));
        }
    }

    /// The MDT recalls a lease on data: what was buffered is sent, then the MDT is notified at once.
    fn send_recalled(self: &Rc<Self>, recall: DataRecall, session: &ClientSession) {
        if self.mdt.leases.holds(recall.fid) == Holds::Ranges
            && let Some(file) = self.file(recall.fid)
        {
            file.sharing.end(self.env.now());
        }
        if self.mdt.leases.may_hold_names(recall.fid) {
            return self.send_names(recall, session);
        }
        self.mdt.leases.give_up_ranges(recall.fid);
        let Some(file) = self.file(recall.fid).filter(|file| self.keeps(file)) else {
            return self.mdt.leases.flushed(recall);
        };
        if planted(Bug::FlushedBeforeSent) {
            self.mdt.leases.flushed(recall.clone());
        }
        let (client, session) = (Client { inner: self.clone() }, session.clone());
        drop(self.env.spawn(async move {
            // Sent or lost, nothing of it comes later.
            client.flush_kept(&file).await;
            client.inner.mdt.leases.flushed(recall);
            // The other question may be waiting for its answer just now.
            say_flushed(&client.inner, &session).await;
            client.inner.listen();
        }));
    }

    /// The same of the names of a directory.
    fn send_names(self: &Rc<Self>, recall: DataRecall, session: &ClientSession) {
        let given_back = self.give_names_back(recall.fid);
        let is_idle = !self.delayed.has(Scope::Entries(recall.fid)) && self.made_in(recall.fid).is_empty();
        if is_idle || planted(Bug::EntriesLeaseReturnedEarly) {
            self.mdt.leases.gave_names_back(recall.fid);
            return self.mdt.leases.flushed(recall);
        }
        let (inner, session) = (self.clone(), session.clone());
        drop(self.env.spawn(async move {
            given_back.await;
            inner.mdt.leases.flushed(recall);
            say_flushed(&inner, &session).await;
            inner.listen();
        }));
    }

    async fn say_again(&self, mut undelivered: Vec<Dropped>) {
        while !undelivered.is_empty() {
            self.env.sleep(limits::NOTIFY_PAUSE).await;
            undelivered = self.mdt.leases.tell(undelivered);
        }
    }
}

async fn ask(owner: Weak<Inner>, session: ClientSession) {
    loop {
        let Some(inner) = owner.upgrade() else { return };
        let ended = matches!(session.state(), SessionState::Closed | SessionState::Refused);
        // Before it is settled what is returned: what is leased again until that is sent would be returned with it.
        loop {
            if inner.mdt.leases.give_up_idle() {
                Client { inner: inner.clone() }.watch_sizes().await;
            }
            let undelivered = inner.mdt.leases.take_undelivered();
            if undelivered.is_empty() {
                break;
            }
            inner.say_again(undelivered).await;
        }
        let Some(question) = inner.mdt.leases.question().filter(|_| !ended) else {
            inner.mdt.leases.asking.set(false);
            return;
        };
        let env = inner.env.clone();
        drop(inner);
        if !pose(&owner, &session, question).await {
            env.sleep(limits::RECALLS_PAUSE).await;
        }
    }
}

/// Reports that what was buffered is sent. The poll for recalls receives the recalls in the reply too, and sees to it
/// that the kernel is notified before they are acknowledged. To deliver them here as well would acknowledge them while
/// that still goes on.
async fn say_flushed(inner: &Rc<Inner>, session: &ClientSession) {
    let Some(question) = inner.mdt.leases.what_is_flushed() else { return };
    let begun = inner.env.now();
    match session.ask(&question).await {
        Ok(recalls) => {
            inner.mdt.leases.heard(begun);
            recalls.data.into_iter().for_each(|recall| inner.send_recalled(recall, session));
        }
        // Each is known by its number: it may be reported twice.
        Err(_) => question.flushed.into_iter().for_each(|recall| inner.mdt.leases.flushed(recall)),
    }
}

/// Sends one request, and does what the reply requires. False if there was no reply.
async fn pose(owner: &Weak<Inner>, session: &ClientSession, question: AwaitRecalls) -> bool {
    let Some(inner) = owner.upgrade() else { return false };
    let begun = inner.env.now();
    drop(inner);
    let answer = session.ask(&question).await;
    let Some(inner) = owner.upgrade() else { return false };
    let Ok(recalls) = answer else {
        // Each is known by its number: it may be reported twice.
        question.flushed.into_iter().for_each(|recall| inner.mdt.leases.flushed(recall));
        inner.mdt.leases.return_later(question.returned);
        return false;
    };
    inner.mdt.leases.heard(begun);
    inner.mdt.leases.answered(&question);
    let client = Client { inner: inner.clone() };
    for fid in recalls.fids.iter().copied().chain(recalls.data.iter().map(|recall| recall.fid)) {
        // From now on, sizes that other clients write have to be watched.
        client.watch_after_recall(fid).await;
    }
    recalls.data.into_iter().for_each(|recall| inner.send_recalled(recall, session));
    let mut undelivered = inner.mdt.leases.drop_recalled(&recalls.fids);
    // Of leases that were given up a moment ago, or are meanwhile, the kernel may not know yet; they may be the recalled ones.
    loop {
        undelivered.extend(inner.mdt.leases.take_undelivered());
        if undelivered.is_empty() {
            break;
        }
        inner.say_again(std::mem::take(&mut undelivered)).await;
    }
    // What was taken away, and is gone for its program, others may see only when it is.
    for fid in recalls.fids.iter().filter(|fid| inner.delayed.has(Scope::Entries(**fid))) {
        Client { inner: inner.clone() }.flush_delayed(Scope::Entries(*fid)).await;
    }
    inner.mdt.leases.acknowledge(recalls.sequence);
    true
}
