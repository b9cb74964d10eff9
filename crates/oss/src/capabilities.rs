//! Capabilities: a node that is no server may use an object only with the MDT's signed word (docs/decisions/0050).
//!
//! Invariant: no byte of an object is shown to such a node, and none changes for it, before this has looked at its
//! request. Connections within this machine are as good as the server's own.
//! Invariant: a replay is checked by the keys that were durable when this server started, and by those before them. It was
//! executed before, and checked then; a key that has ended meanwhile must not lose an acknowledged change.

use std::cell::{Cell, RefCell};

use forebay_env::{Bug, PeerIdentity, planted};
use forebay_keys::{CapabilityKey, PublicKey, Role};
use forebay_proto::{
    Decode, DecodeError, Encode, Errno, ErrorReply, Fid, Reader,
    message::{Needs, Op, SetCapabilityKeys, object_of},
};
use forebay_target::Context;

/// Key of the row that holds the keys.
pub const ROW: [u8; 1] = [0x81];
const VERSION: u8 = 1;

/// The keys that count.
#[derive(Default)]
pub struct Capabilities {
    now: RefCell<Vec<CapabilityKey>>,
    /// Some that counted before.
    former: RefCell<Vec<CapabilityKey>>,
    /// All that were durable at the start; empty after the replays.
    at_start: RefCell<Vec<CapabilityKey>>,
    /// There were no keys at the start: what is replayed was executed without capabilities, by a build from before.
    never_told: Cell<bool>,
}

/// Whose requests need capabilities: that of the node with this key.
enum Asker {
    Server,
    Node(PublicKey),
    Nobody,
}

impl Capabilities {
    /// The row as it was at the start.
    pub fn load(&self, row: Option<&[u8]>) -> Result<(), DecodeError> {
        let Some(row) = row else {
            self.never_told.set(true);
            return Ok(());
        };
        let Some((&VERSION, row)) = row.split_first() else {
            return Err(DecodeError::new("the row of the capability keys is of a newer version"));
        };
        let mut row = Reader::new(row);
        let (now, former) = (keys_of(&Decode::decode(&mut row)?)?, keys_of(&Decode::decode(&mut row)?)?);
        self.at_start.replace(now.iter().chain(&former).cloned().collect());
        self.now.replace(now);
        self.former.replace(former);
        Ok(())
    }

    /// The row for these keys; `None` if they are the known ones.
    pub fn row_of(&self, request: &SetCapabilityKeys) -> Result<Option<Vec<u8>>, DecodeError> {
        if keys_of(request)? == *self.now.borrow() {
            return Ok(None);
        }
        let former = self.former_after(&keys_of(request)?).iter().map(CapabilityKey::to_message).collect();
        let mut row = vec![VERSION];
        row.extend_from_slice(&request.to_bytes());
        row.extend_from_slice(&SetCapabilityKeys { keys: former }.to_bytes());
        Ok(Some(row))
    }

    /// From now on these keys count.
    pub fn set(&self, request: &SetCapabilityKeys) -> Result<(), DecodeError> {
        let keys = keys_of(request)?;
        self.former.replace(self.former_after(&keys));
        self.now.replace(keys);
        Ok(())
    }

    /// The newest of those that will have counted before `next`.
    fn former_after(&self, next: &[CapabilityKey]) -> Vec<CapabilityKey> {
        let (now, former) = (self.now.borrow(), self.former.borrow());
        let mut all: Vec<_> = former.iter().chain(&*now).filter(|key| !next.contains(key)).cloned().collect();
        all.split_off(all.len().saturating_sub(crate::limits::CAPABILITY_KEYS))
    }

    /// No more replays come.
    pub fn replayed(&self) {
        self.at_start.borrow_mut().clear();
        self.never_told.set(false);
    }

    /// Whether the sender may have this request executed.
    pub fn check(&self, ctx: &Context, op: Op, body: &[u8]) -> Result<(), ErrorReply> {
        let node = match ctx.with_peer(asker) {
            Asker::Server => return Ok(()),
            Asker::Node(key) => Some(key),
            Asker::Nobody => None,
        };
        match op.needs() {
            Needs::Session => Ok(()),
            Needs::Server => Err(refused(ctx, op, Errno::EPERM, "only servers may ask an OST for that")),
            Needs::Capability(_) if planted(Bug::CapabilityNotChecked) => Ok(()),
            Needs::Capability(right) => {
                let object =
                    object_of(op, body).ok_or_else(|| ErrorReply::new(Errno::EPROTO, "the request names no object"))?;
                match node {
                    Some(node) => self.check_capability(ctx, op, (node, object, right)),
                    None => Err(refused(ctx, op, Errno::EPERM, "nobody vouches for this connection")),
                }
            }
        }
    }

    fn check_capability(
        &self,
        ctx: &Context,
        op: Op,
        (node, object, right): (PublicKey, Fid, u8),
    ) -> Result<(), ErrorReply> {
        let capability = ctx.capability();
        let (now, at_start) = (self.now.borrow(), self.at_start.borrow());
        let keys = if ctx.is_replay() { &at_start } else { &now };
        if ctx.is_replay() && self.never_told.get() {
            return Ok(());
        }
        let mut known = keys.iter().filter(|key| key.number() == capability.key).peekable();
        if known.peek().is_none() {
            // It has ended, or its key is on its way here: nothing to log.
            let words = format!("{} of {object} with a capability that has ended, or none", op.name());
            return Err(ErrorReply::new(Errno::CAPABILITY, words));
        }
        if !known.any(|key| key.has_signed(&capability, &node, object)) {
            return Err(refused(ctx, op, Errno::CAPABILITY, &format!("a forged capability for {object}")));
        }
        if !capability.allows(right) {
            return Err(refused(
                ctx,
                op,
                Errno::CAPABILITY,
                &format!("its capability for {object} does not allow that"),
            ));
        }
        Ok(())
    }
}

fn asker(peer: Option<&PeerIdentity>) -> Asker {
    match peer {
        Some(PeerIdentity::Node { node, .. }) if matches!(node.role, Role::Mds | Role::Admin) => Asker::Server,
        Some(PeerIdentity::Node { key, .. }) => Asker::Node(*key),
        // Within this machine, and without keys: there is no more to know.
        Some(PeerIdentity::Process { .. } | PeerIdentity::Named(_) | PeerIdentity::Unknown(_)) => Asker::Server,
        Some(PeerIdentity::Stranger(_)) | None => Asker::Nobody,
    }
}

fn refused(ctx: &Context, op: Op, errno: Errno, why: &str) -> ErrorReply {
    let peer = ctx.with_peer(|peer| peer.map_or_else(|| "somebody".into(), ToString::to_string));
    ctx.target().log_refusal(&format!("{peer}: {} refused: {why}", op.name()));
    ErrorReply::new(errno, format!("{}: {why}", op.name()))
}

fn keys_of(message: &SetCapabilityKeys) -> Result<Vec<CapabilityKey>, DecodeError> {
    let keys: Option<Vec<_>> = message.keys.iter().map(CapabilityKey::from_message).collect();
    keys.filter(|keys| keys.len() <= crate::limits::CAPABILITY_KEYS)
        .ok_or_else(|| DecodeError::new("capability keys: too many, or one of another length"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(numbers: &[u32]) -> SetCapabilityKeys {
        let keys = numbers.iter().map(|number| CapabilityKey::derive(&[1; 32], *number).to_message());
        SetCapabilityKeys { keys: keys.collect() }
    }

    #[test]
    fn keys_survive_their_row_and_known_ones_need_no_row() {
        let known = Capabilities::default();
        let row = known.row_of(&message(&[4, 5])).expect("it can be read").expect("they are new");
        known.set(&message(&[4, 5])).expect("they can be read");
        assert_eq!(known.row_of(&message(&[4, 5])), Ok(None));
        let again = Capabilities::default();
        again.load(Some(&row)).expect("it can be read");
        assert_eq!(*again.now.borrow(), *known.now.borrow());
        assert_eq!(again.at_start.borrow().len(), 2);
        let row_after = again.row_of(&message(&[5, 6])).expect("it can be read").expect("one is new");
        let after = Capabilities::default();
        after.load(Some(&row_after)).expect("it can be read");
        let numbers: Vec<u32> = after.at_start.borrow().iter().map(CapabilityKey::number).collect();
        assert_eq!(numbers, [5, 6, 4], "a replay may have been signed with the one before");
        again.replayed();
        assert!(again.at_start.borrow().is_empty() && again.now.borrow().len() == 2);
        let mut newer = row;
        newer[0] = 2;
        assert!(again.load(Some(&newer)).is_err() && again.load(Some(&[])).is_err() && again.load(None).is_ok());
        assert!(known.set(&message(&[1, 2, 3, 4, 5])).is_err(), "more than the MDT sends");
    }
}
