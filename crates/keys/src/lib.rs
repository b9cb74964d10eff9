//! Who is who in a cluster: its certificate authority, the certificates of its nodes, and whose certificate is believed.
//!
//! A cluster has one authority. It signs a certificate for every node that may open or accept a TCP connection. The
//! certificate holds a [`NodeName`]: the cluster, a role and a name. Handshakes and signatures are those of `rustls` and
//! `rcgen`; nothing here is cryptography of our own.
//!
//! Not here: the bytes of a connection (`env::tls`), and what a node may do once it is known.

mod authority;
mod error;
mod name;
mod node;

pub use authority::{Authority, Validity};
pub use error::{KeyError, KeyResult};
pub use name::{NodeName, Role};
pub use node::{Keys, NodeKey, Peer, certificate_to_pem};

#[cfg(test)]
mod tests;
