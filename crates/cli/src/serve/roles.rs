//! Whether the key of this host's servers fits the targets that they are to serve. With another key they would start,
//! and nobody would believe them.

use forebay_command::{
    error::{CliError, CliResult},
    paths::utf8,
};
use forebay_env::{Env, Network};
use forebay_keys::Keys;
use forebay_proto::TargetKind;
use forebay_store::{Identity, Store};

use crate::server::Serving;

/// Refuses a key that may not serve one of `targets`.
pub fn refuse_unfit(env: &Env, network: &Network, targets: &[Serving]) -> CliResult {
    let Network::Keys(keys) = network else { return Ok(()) };
    targets.iter().try_for_each(|target| match Store::peek_identity(env, &utf8(&target.dir)?) {
        Ok(identity) => refuse_for(keys, &identity),
        // A target that cannot be read reports that when it is opened.
        Err(_) => Ok(()),
    })
}

fn refuse_for(keys: &Keys, identity: &Identity) -> CliResult {
    let (id, node) = (identity.target, keys.name());
    if identity.cluster != node.cluster {
        return Err(CliError::failed(format!(
            "{id} belongs to cluster {}, and the key of this host's servers is of cluster {}: give its own with --keys DIR",
            identity.cluster, node.cluster
        )));
    }
    if node.role.may_serve(id.kind) {
        return Ok(());
    }
    let wanted = if id.kind == TargetKind::Mdt { "mds" } else { "ost" };
    Err(CliError::failed(format!(
        "the key of this host's servers is of role {}, which may not serve {id}, so nobody would believe it: on the host with \
         the authority, `forebay keys for KEYS NEW --role {wanted} --name {}` makes one that may",
        node.role,
        node.name()
    )))
}
