//! Capabilities: signs them, and tells the OSTs with which keys (docs/decisions/0050).
//!
//! The MDT has one master key, as a row. Keys are derived from it by their numbers. A new number is in use every
//! [`MdsOptions::capability_life`](crate::MdsOptions). OSTs take the numbers before and after it too: so a capability
//! lasts at least one such time, and an OST that misses one turn refuses nothing that is good.
//!
//! Invariant: a number is durable before anything is signed with it.
//! Invariant: only the MDT's row and the OSTs' rows hold keys; no client is sent one.

use forebay_env::PeerIdentity;
use forebay_keys::{CapabilityKey, PublicKey};
use forebay_proto::{
    Decode, Errno, ErrorReply, Fid,
    message::{Authorize, AuthorizeReply, Capability, OpenReply, SetCapabilityKeys, open_flags, rights},
};
use forebay_target::{Answer, Attempt, Context};

use crate::{
    Mds,
    halt::{Step, corrupt},
    keys,
    ops::migrate,
    tx::Tx,
};

impl Mds {
    /// Makes the master key, and takes the next number in use when it is time.
    pub(crate) async fn keep_capability_keys(&self) -> Result<(), ErrorReply> {
        if self.env.own_name().is_none() {
            return Ok(());
        }
        let _turn = self.membership.turn().await;
        let now_ns = self.env.unix_time().0;
        let edits = self.members(|members| members.next_signing(now_ns, self.capability_life));
        match edits {
            Some(edits) => self.commit_members(edits).await,
            None => Ok(()),
        }
    }

    /// Tells an OST which keys count. It answers once it has made them durable.
    pub(crate) async fn push_capability_keys(&self, ost: u32) -> Result<(), ErrorReply> {
        let keys = self.members(|members| members.signing_keys().map(|keys| keys.map(|key| key.to_message())));
        let Some(keys) = keys else { return Ok(()) };
        match self.osts.ask(ost, &SetCapabilityKeys { keys: keys.into() }).await {
            // One of a build from before asks for no capabilities.
            Err(error) if error.errno != Errno::EOPNOTSUPP => Err(error),
            _ => Ok(()),
        }
    }

    /// Signs what the sender may do with the objects of a file. Without keys there is nothing to sign, and no OST asks.
    pub(crate) async fn authorize(&self, ctx: &Context, body: &[u8]) -> Attempt<Answer> {
        let Authorize { object, node } = Decode::from_bytes(body)?;
        // A process of this machine talks to OSTs of others with keys of its own.
        let named = || node[..].try_into().ok().map(PublicKey).filter(|_| ctx.with_peer(is_local));
        let Some(node) = node_of(ctx).or_else(named) else {
            return Ok(Answer::read(&AuthorizeReply::from(Capability::NONE)));
        };
        let owner = self.look_unshared(ctx, |tx| owner_of(tx, object)).await?;
        let capability = self.sign(&node, object, self.rights_to(ctx, owner));
        let capability =
            capability.ok_or_else(|| ErrorReply::new(Errno::EAGAIN, "there is no key for capabilities yet"))?;
        Ok(Answer::read(&AuthorizeReply::from(capability)))
    }

    /// The answer to an Open or Create, with a capability for what was opened: that saves the client the next round trip.
    pub(crate) fn with_capability(&self, ctx: &Context, answer: Answer) -> Attempt<Answer> {
        let Some(node) = node_of(ctx) else { return Ok(answer) };
        let reply = OpenReply::from_bytes(&answer.body)?;
        let layout = reply.layout.filter(|layout| !layout.osts().is_empty());
        let capability = layout.and_then(|layout| {
            let fid = reply.attr.fid;
            self.sign(&node, layout.objects_of(fid), self.rights_to(ctx, fid))
        });
        Ok(Answer { capability: capability.unwrap_or_default(), ..answer })
    }

    fn sign(&self, node: &PublicKey, object: Fid, rights: u8) -> Option<Capability> {
        let key: Option<CapabilityKey> = self.members(|members| members.signing_key());
        Some(key?.sign(node, object, rights))
    }

    /// What the sender may do with the bytes of a file that it reaches.
    fn rights_to(&self, ctx: &Context, fid: Fid) -> u8 {
        if self.tenant_of(ctx).is_none() {
            // The node's word about its users counts: the client checks them, as the MDT does when a file is opened.
            return rights::ALL;
        }
        let (memory, session) = (self.memory.borrow(), ctx.session());
        let (_, writers) = memory.opens.of_file(session, fid);
        let writes = writers > 0 || memory.leases.data.has(session, fid);
        let is_read = |(_, open, flags): &(u64, Fid, u32)| *open == fid && flags & open_flags::READ != 0;
        let reads = memory.opens.of_session(session).iter().any(is_read);
        rights::STAT | if writes { rights::WRITE } else { 0 } | if reads { rights::READ } else { 0 }
    }
}

fn is_local(peer: Option<&PeerIdentity>) -> bool {
    matches!(peer, Some(PeerIdentity::Process { .. } | PeerIdentity::Named(_)))
}

fn node_of(ctx: &Context) -> Option<PublicKey> {
    ctx.with_peer(|peer| match peer {
        Some(PeerIdentity::Node { key, .. }) => Some(*key),
        _ => None,
    })
}

/// The file whose objects have this fid. Errors: ESTALE.
fn owner_of(tx: &Tx<'_>, object: Fid) -> Step<Fid> {
    let key = keys::objects(object);
    let owner = match tx.row(key)? {
        Some(row) => migrate::decode_owner(&row).map_err(|error| corrupt(key.as_ref(), error))?,
        None => object,
    };
    let inode = tx.inode(owner)?;
    match inode.layout().map(|layout| layout.objects_of(owner)) {
        Some(of_layout) if of_layout == object => Ok(owner),
        _ => Err(Errno::ESTALE.into()),
    }
}
