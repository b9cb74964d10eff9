//! Capabilities: what OSTs ask for from a node that has keys. The MDT gives them; one serves for all objects of a file until
//! its key ends.
//!
//! Invariant: a capability that an OST has refused is not sent again before the MDT was asked for two seconds: the OST may
//! know its key by then.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use forebay_env::{Boxed, Env, sync::Notify};
use forebay_proto::{
    Errno, ErrorReply, Fid,
    message::{AuthorizeReply, Capability},
};
use forebay_rpc::RpcError;

use crate::limits;

/// Asks the MDT for a capability for an object.
pub(crate) type Ask = Box<dyn Fn(Fid) -> Boxed<'static, Result<AuthorizeReply, RpcError>>>;

/// Capabilities that the MDT has given.
pub(crate) struct Capabilities {
    env: Env,
    ask: Ask,
    /// By object.
    known: RefCell<BTreeMap<Fid, Capability>>,
    /// Objects that are being asked about.
    asked: RefCell<BTreeMap<Fid, Rc<Notify>>>,
}

/// While it exists, others wait for the answer.
struct Asking<'a> {
    all: &'a Capabilities,
    object: Fid,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(waiting) = self.all.asked.borrow_mut().remove(&self.object) {
            waiting.notify_waiters();
        }
    }
}

impl Capabilities {
    pub fn new(env: &Env, ask: Ask) -> Self {
        Self { env: env.clone(), ask, known: RefCell::default(), asked: RefCell::default() }
    }

    fn usable(&self, object: Fid, right: u8, refused: Option<Capability>) -> Option<Capability> {
        let known = self.known.borrow().get(&object).copied();
        known.filter(|known| known.allows(right) && Some(*known) != refused)
    }

    async fn find(&self, object: Fid, right: u8, refused: Option<Capability>) -> Result<Capability, RpcError> {
        loop {
            if let Some(known) = self.usable(object, right, refused) {
                return Ok(known);
            }
            let Some(waiting) = self.asked.borrow().get(&object).cloned() else { break };
            waiting.notified().await;
        }
        self.asked.borrow_mut().insert(object, Rc::new(Notify::new()));
        let _asking = Asking { all: self, object };
        let mut pause = limits::CAPABILITY_PAUSE;
        loop {
            match self.ask(object).await {
                Ok(given) if given.allows(right) && Some(given) != refused => {
                    self.learn(object, given);
                    return Ok(given);
                }
                // There is nothing to sign with: the OST says whether it wants something.
                Ok(Capability::NONE) if refused.is_none() => return Ok(Capability::NONE),
                // The file's bytes have moved to other objects: these are not open.
                Ok(given) if given != Capability::NONE && !given.allows(right) => return Err(moved(object)),
                // The OST does not know the key yet: the MDT tells it in a moment.
                Ok(_) => {}
                Err(RpcError::Unreachable(_)) => {}
                Err(error) if matches!(error.errno(), Errno::RECOVERING | Errno::EAGAIN) => {}
                // An MDT of a build from before signs nothing.
                Err(error) if error.errno() == Errno::EOPNOTSUPP => match refused {
                    None => return Ok(Capability::NONE),
                    Some(_) => return Err(error),
                },
                Err(error) if error.errno() == Errno::ESTALE => return Err(moved(object)),
                Err(error) => return Err(error),
            }
            self.env.sleep(pause).await;
            pause = (pause * 2).min(limits::CAPABILITY_PAUSE_MAX);
            if let Some(given) = refused.filter(|_| pause >= limits::CAPABILITY_PAUSE_MAX) {
                // Long enough: perhaps it was refused by a server that has started anew since.
                return Ok(given);
            }
        }
    }

    async fn ask(&self, object: Fid) -> Result<Capability, RpcError> {
        let reply = (self.ask)(object).await?;
        reply.capability().ok_or_else(|| RpcError::Protocol("a capability of another length".into()))
    }

    /// A capability from the MDT. It replaces the one that is known, whose key may be older, unless it only allows less.
    pub fn learn(&self, object: Fid, given: Capability) {
        let mut known = self.known.borrow_mut();
        let is_less = |known: &Capability| known.key == given.key && known.rights & given.rights == given.rights;
        if given == Capability::NONE || known.get(&object).is_some_and(is_less) {
            return;
        }
        if known.len() >= limits::CAPABILITIES {
            known.clear();
        }
        known.insert(object, given);
    }
}

/// The caller fetches the file's layout anew, and repeats the request.
fn moved(object: Fid) -> RpcError {
    let words = format!("no file that is open here has the objects {object}");
    RpcError::Reply(ErrorReply::new(Errno::STALE_LAYOUT, words))
}

impl forebay_rpc::Capabilities for Capabilities {
    fn get(&self, object: Fid, right: u8, refused: Option<Capability>) -> Boxed<'_, Result<Capability, RpcError>> {
        match self.usable(object, right, refused) {
            Some(known) => Box::pin(std::future::ready(Ok(known))),
            None => Box::pin(self.find(object, right, refused)),
        }
    }
}
