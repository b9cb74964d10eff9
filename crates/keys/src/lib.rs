//! Who is who in a cluster: its certificate authority, the certificates of its nodes, and whose certificate is believed.
//!
//! A cluster has one authority. It signs a certificate for every node that may open or accept a TCP connection. The
//! certificate holds a [`NodeName`]: the cluster, a role and a name. Handshakes and signatures are those of `rustls` and
//! `rcgen`; nothing here is cryptography of our own.
//!
//! Not here: the bytes of a connection (`env::tls`), and what a node may do once it is known.

mod authority;
mod capability;
mod error;
mod membership;
mod name;
mod node;
mod token;
mod validity;

pub use authority::Authority;
pub use capability::{CAPABILITY_KEY_BYTES, CapabilityKey};
pub use error::{KeyError, KeyResult};
pub use membership::Membership;
pub use name::{NodeName, Role};
pub use node::{ALPN_INTEGRITY_ONLY, Keys, NodeKey, Peer, PublicKey, certificate_to_pem};
pub use token::{SECRET_BYTES, Token, random_secret, secret_hash};
pub use validity::{CLOCKS_APART, NODE_LIFE, Validity};

#[cfg(test)]
mod tests;
