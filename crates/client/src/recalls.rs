//! Asks the MDT for recalls for as long as something is kept: its answers also keep the leases alive.

use std::{
    rc::{Rc, Weak},
    time::Duration,
};

use forebay_proto::Fid;
use forebay_rpc::{ClientSession, SessionState};

use crate::{Attr, Client, Dropped, client::Inner, limits};

impl Client {
    /// How long `attr` may be believed without asking again; the hook of [`Client::set_dropped`] hears when not any more.
    pub fn attributes_for(&self, attr: &Attr) -> Duration {
        self.inner.leases.attributes_for(attr)
    }

    /// The same of a file that [`Client::create`] has just made, for somebody who follows what is done through this client.
    pub fn new_file_for(&self, fid: Fid) -> Duration {
        self.inner.leases.new_file_for(fid)
    }

    /// How long `name` of `parent` may be believed to lead to `fid` (`None`: to nothing).
    pub fn name_for(&self, parent: Fid, name: &[u8], fid: Option<Fid>) -> Duration {
        self.inner.leases.name_for(parent, name, fid)
    }

    /// Called when something may not be believed any more, before the MDT knows. It must not wait for anything; if it
    /// returns false it is called again a little later, and the MDT is kept waiting.
    pub fn set_dropped(&self, hook: impl Fn(Dropped) -> bool + 'static) {
        self.inner.leases.set_hook(Rc::new(hook));
    }
}

impl Inner {
    /// After something was learnt: sees to it that its recall is heard.
    pub fn listen(self: &Rc<Self>) {
        if !self.leases.asking.replace(true) {
            let (inner, session) = (Rc::downgrade(self), self.peers.mdt().session.clone());
            drop(self.env.spawn(async move { ask(inner, session).await }));
        }
    }

    /// The MDT knows of no leases any more.
    pub fn lose_leases(self: &Rc<Self>) {
        let unheard = self.leases.lost();
        if !unheard.is_empty() {
            let inner = self.clone();
            drop(self.env.spawn(async move { inner.say_again(unheard).await }));
        }
    }

    async fn say_again(&self, mut unheard: Vec<Dropped>) {
        while !unheard.is_empty() {
            self.env.sleep(limits::HEARING_PAUSE).await;
            unheard = self.leases.tell(unheard);
        }
    }
}

async fn ask(owner: Weak<Inner>, session: ClientSession) {
    loop {
        let Some(inner) = owner.upgrade() else { return };
        let ended = matches!(session.state(), SessionState::Closed | SessionState::Refused);
        let Some(question) = inner.leases.question().filter(|_| !ended) else {
            inner.leases.asking.set(false);
            return;
        };
        inner.say_again(inner.leases.take_unheard()).await;
        let (env, begun) = (inner.env.clone(), inner.env.now());
        drop(inner);
        let answer = session.ask(&question).await;
        let Some(inner) = owner.upgrade() else { return };
        match answer {
            Ok(recalls) => {
                inner.leases.heard(begun);
                let unheard = inner.leases.recalled(&recalls.fids, recalls.sequence);
                inner.say_again(unheard).await;
            }
            Err(_) => {
                drop(inner);
                env.sleep(limits::RECALLS_PAUSE).await;
            }
        }
    }
}
