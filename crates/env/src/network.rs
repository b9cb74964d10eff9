//! Which connections over a network a shard has, and how the node at the other side becomes known.
//!
//! Unix sockets stay within the machine, and the kernel vouches for who is there. TCP needs keys: TLS with nodes of the
//! same cluster. Without keys it is refused, unless the shard was told to do without.
//!
//! Invariant: with keys, no byte of a caller leaves over a network, and none reaches a caller, before the other side has
//! shown a certificate of the cluster.

use std::{rc::Rc, sync::Arc};

use forebay_keys::{Keys, NodeName};

use crate::{Address, Env, EnvError, EnvErrorKind, EnvResult, PeerIdentity, Stream, tls};

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
        let stream = named(&keys, tls::accept(self.stream, keys.to_accept(env.unix_time().since_1970())).await?)?;
        let node = stream.node().cloned().expect("it was named a moment ago");
        Ok((stream, PeerIdentity::Node { node, address: self.peer.to_string() }))
    }
}

impl Env {
    /// The same shard, with these connections over a network.
    pub fn with_network(&self, network: Network) -> Self {
        Self { half: self.half.clone(), network: Rc::new(network) }
    }

    /// Listens on `address`. Errors: `InUse` if another listener has it, `Permission`, `InvalidInput`.
    pub async fn listen(&self, address: &Address) -> EnvResult<crate::Listener> {
        let keys = self.network.keys_for(address)?;
        let half = self.listen_plain(address, &self.network).await?;
        Ok(crate::Listener { half, keys })
    }

    /// Connects to `address`. Errors: `Disconnected` or `NotFound` if no server listens there; `Permission` if it has no
    /// certificate of the cluster, or there are no keys.
    pub async fn connect(&self, address: &Address) -> EnvResult<Stream> {
        let keys = self.network.keys_for(address)?;
        let stream = self.connect_plain(address, &self.network).await?;
        let Some(keys) = keys else { return Ok(stream) };
        let (config, name) = keys.to_connect(self.unix_time().since_1970());
        let secured = async { named(&keys, tls::connect(stream, config, name).await?) };
        secured.await.map_err(|error| EnvError::new(error.kind, format!("{address}: {}", error.message)))
    }
}

/// The stream, with the name in the other side's certificate.
fn named(keys: &Keys, secured: tls::Secured) -> EnvResult<Stream> {
    let refused = |error: forebay_keys::KeyError| EnvError::new(EnvErrorKind::Permission, format!("TLS: {error}"));
    let node: NodeName = keys.peer(Some(&secured.certificates)).map_err(refused)?.name;
    Ok(Stream { node: Some(Rc::new(node)), ..secured.stream })
}

#[cfg(test)]
#[path = "network/tests.rs"]
mod tests;
