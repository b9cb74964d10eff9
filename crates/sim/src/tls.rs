//! Runs whose connections are TLS.

use std::{sync::Arc, time::Duration};

use forebay_env::{Network, sim::Sim};
use forebay_keys::{Authority, Keys, NodeKey, NodeName, Role, Validity};
use forebay_proto::Uuid;

/// Of so many seeds, one runs over TLS; every other one of these with integrity only.
const ONE_IN: u64 = 8;
/// Any time that a simulated clock shows, after all of its jumps.
const VALIDITY: Validity = Validity { from: Duration::ZERO, to: Duration::from_secs(i64::MAX as u64 / 1_000_000_000) };

/// Has the machines that are added from now on talk TLS as clients, if this is a seed for it. Returns the network of
/// servers then, which are added next. Keys are the system's chance, not the seed's, but all have the same length, so the
/// same seed gives the same trace.
pub(crate) fn draw(sim: &Sim) -> Option<Network> {
    if sim.seed() % ONE_IN != 3 {
        return None;
    }
    let authority = Authority::make(Uuid([9; 16])).expect("an authority can be made");
    let integrity_only = sim.seed() % (2 * ONE_IN) != 3;
    let network = |role| {
        let keys = keys_of(&authority, role, "all").expect("keys can be made");
        Network::Keys(Arc::new(if integrity_only { keys.with_integrity_only() } else { keys }))
    };
    sim.set_network_of_new_nodes(network(Role::Client));
    Some(network(Role::Mds))
}

/// Keys of a node that `authority` signs.
pub fn keys_of(authority: &Authority, role: Role, name: &str) -> forebay_keys::KeyResult<Keys> {
    let (key, node) = (NodeKey::make()?, NodeName::new(authority.cluster(), role, name)?);
    let certificate = authority.sign(&node, key.public_key(), VALIDITY)?;
    Keys::new(&authority.certificate(VALIDITY.from)?, certificate, &key)
}
