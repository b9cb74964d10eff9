//! Which connections over a network a shard has, and how the node at the other side becomes known.
//!
//! Unix sockets stay within the machine, and the kernel vouches for who is there. TCP needs keys: TLS with nodes of the
//! same cluster. Without keys it is refused, unless the shard was told to do without.
//!
//! Invariant: with keys, no byte of a caller leaves over a network, and none reaches a caller, before the other side has
//! shown a certificate of the cluster. One exception: a listener for anybody ([`crate::Listener::for_anybody`]) also takes those that
//! show none, as a host does that is about to join, and says so ([`PeerIdentity::Stranger`]).
//! Invariant: once a node's ban is known here, no frame of it is read, on open connections too.

use std::{cell::Cell, rc::Rc, sync::Arc, time::Duration};

use forebay_keys::{KeyError, Keys, Membership, NodeName, PublicKey};

use crate::{Address, Bug, Env, EnvError, EnvErrorKind, EnvResult, PeerIdentity, Stream, planted, tls};

/// Which connections over a network a shard has.
#[derive(Clone, Debug, Default)]
pub enum Network {
    /// No TCP: there are no keys.
    #[default]
    Closed,
    /// TCP within this machine, and nobody vouches for the other side. Every user of the machine can connect.
    InsecureLoopback,
    /// TCP with anybody. For what is public, such as metrics.
    Public,
    /// TLS with the nodes that these keys believe, over TCP and `mem:` addresses.
    Keys(Arc<Keys>),
}

impl Network {
    /// The keys for connections over `address`. Errors: it needs keys, and there are none.
    fn keys_for(&self, address: &Address) -> EnvResult<Option<Arc<Keys>>> {
        match (self, address) {
            (_, Address::Unix(_)) => Ok(None),
            (Self::Keys(keys), _) => Ok(Some(keys.clone())),
            (Self::Closed, Address::Tcp(_)) => Err(EnvError::new(
                EnvErrorKind::Permission,
                format!("{address}: TCP needs the cluster's keys, and none were given; give --keys DIR"),
            )),
            (_, Address::Tcp(_) | Address::Mem(_)) => Ok(None),
        }
    }

    /// TCP is for addresses of this machine only.
    pub(crate) fn is_loopback_only(&self) -> bool {
        matches!(self, Self::InsecureLoopback)
    }
}

/// The error of a plain TCP connection beyond this machine.
pub(crate) fn beyond_loopback(address: &dyn std::fmt::Display) -> EnvError {
    EnvError::new(
        EnvErrorKind::Permission,
        format!("{address} is not an address of this machine: without keys TCP is for loopback addresses only"),
    )
}

/// A connection that was accepted, before its handshake.
pub struct Accepted {
    pub(crate) stream: Stream,
    pub(crate) peer: PeerIdentity,
    pub(crate) keys: Option<Arc<Keys>>,
    pub(crate) anybody: bool,
}

/// The node at the other side of a connection with TLS.
pub(crate) struct KnownNode {
    pub(crate) name: NodeName,
    key: PublicKey,
    keys: Arc<Keys>,
    /// Epoch of the bans among which it was not.
    checked: Cell<u32>,
}

impl KnownNode {
    pub(crate) fn membership(&self) -> &Membership {
        self.keys.membership()
    }

    /// Errors: the node is banned.
    pub(crate) fn check(&self) -> EnvResult<()> {
        let epoch = self.membership().epoch();
        if self.checked.get() != epoch && !planted(Bug::BanNotHeard) {
            if self.membership().is_banned(&self.name, &self.key) {
                let words = format!("{} is banned; `forebay node ban --lift` ends that", self.name);
                return Err(EnvError::new(EnvErrorKind::Permission, words));
            }
            self.checked.set(epoch);
        }
        Ok(())
    }
}

impl Accepted {
    /// Who is at the other side, as far as is known before the handshake.
    pub fn peer(&self) -> &PeerIdentity {
        &self.peer
    }

    /// The stream, after the handshake if it needs one, and who is at its other side. It takes as long as the other
    /// side likes.
    pub async fn handshake(self, env: &Env) -> EnvResult<(Stream, PeerIdentity)> {
        let Some(keys) = self.keys else { return Ok((self.stream, self.peer)) };
        let now = env.unix_time().since_1970();
        let config = if self.anybody { keys.to_accept_anybody(now) } else { keys.to_accept(now) };
        let (secured, address) = (tls::accept(self.stream, config).await?, self.peer.to_string());
        if self.anybody && secured.certificates.is_empty() {
            return Ok((secured.stream, PeerIdentity::Stranger(address)));
        }
        let encrypted = secured.encrypted;
        let stream = named(&keys, secured)?;
        let node = stream.node.clone().expect("it was named a moment ago");
        Ok((stream, PeerIdentity::Node { node: node.name.clone(), key: node.key, address, encrypted }))
    }
}

impl Env {
    /// The same shard, with these connections over a network.
    pub fn with_network(&self, network: Network) -> Self {
        Self { network: Rc::new(network), ..self.clone() }
    }

    /// The same shard, whose connections are encrypted, also where both sides allow integrity only: for secrets.
    pub fn encrypting(&self) -> Self {
        Self { encrypts: true, ..self.clone() }
    }

    /// Listens on `address`. Errors: `InUse` if another listener has it, `Permission`, `InvalidInput`.
    pub async fn listen(&self, address: &Address) -> EnvResult<crate::Listener> {
        let keys = self.network.keys_for(address)?;
        if keys.as_ref().is_some_and(|keys| !keys.can_accept()) {
            let words = format!("{address}: a host that is about to join the cluster serves nothing");
            return Err(EnvError::new(EnvErrorKind::Permission, words));
        }
        let half = self.listen_plain(address, &self.network).await?;
        Ok(crate::Listener { half, keys, anybody: false })
    }

    /// Connects to `address`. Errors: `Disconnected` or `NotFound` if no server listens there; `Permission` if it has no
    /// certificate of the cluster, or there are no keys.
    pub async fn connect(&self, address: &Address) -> EnvResult<Stream> {
        let keys = self.network.keys_for(address)?;
        let stream = self.connect_plain(address, &self.network).await?;
        let Some(keys) = keys else { return Ok(stream) };
        let now = self.unix_time().since_1970();
        refuse_own_expired(&keys, now)
            .map_err(|error| EnvError::new(error.kind, format!("{address}: {}", error.message)))?;
        let (config, name) = if self.encrypts { keys.to_connect_encrypted(now) } else { keys.to_connect(now) };
        let secured = async { named(&keys, tls::connect(stream, config, name).await?) };
        secured.await.map_err(|error| EnvError::new(error.kind, format!("{address}: {}", error.message)))
    }
}

/// The other side would refuse it, and could not say as much.
fn refuse_own_expired(keys: &Keys, now: Duration) -> EnvResult<()> {
    match keys.validity() {
        Some(validity) if validity.to < now => Err(EnvError::new(
            EnvErrorKind::Permission,
            format!(
                "the certificate of {} has expired by this machine's clock: set that if it is ahead (chrony, ntpd); else this \
                 host needs new keys",
                keys.name()
            ),
        )),
        _ => Ok(()),
    }
}

fn refused(error: KeyError) -> EnvError {
    EnvError::new(EnvErrorKind::Permission, format!("TLS: {error}"))
}

/// The stream, with the name in the other side's certificate. Errors: that node is banned.
fn named(keys: &Arc<Keys>, secured: tls::Secured) -> EnvResult<Stream> {
    let peer = keys.peer(Some(&secured.certificates)).map_err(refused)?;
    // No epoch has this number: the first check looks.
    let checked = Cell::new(u32::MAX);
    let node = KnownNode { name: peer.name, key: peer.key, keys: keys.clone(), checked };
    node.check()?;
    Ok(Stream { node: Some(Rc::new(node)), ..secured.stream })
}

impl Env {
    /// What is known of the cluster's membership, where this shard has keys.
    pub fn membership(&self) -> Option<&Membership> {
        match &*self.network {
            Network::Keys(keys) => Some(keys.membership()),
            _ => None,
        }
    }

    /// This node's keys, where this shard has some.
    pub fn own_keys(&self) -> Option<&Arc<Keys>> {
        match &*self.network {
            Network::Keys(keys) => Some(keys),
            _ => None,
        }
    }

    /// This node's public key in the cluster, where this shard has keys that its authority has signed.
    pub fn own_key(&self) -> Option<&PublicKey> {
        match &*self.network {
            Network::Keys(keys) => keys.public_key(),
            _ => None,
        }
    }

    /// What this node is called in the cluster, where this shard has keys.
    pub fn own_name(&self) -> Option<&NodeName> {
        match &*self.network {
            Network::Keys(keys) => Some(keys.name()),
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "network/tests.rs"]
mod tests;
