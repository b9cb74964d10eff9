//! Renews the certificate of a process that serves or mounts, in memory and in its file.

use forebay_command::keys;
use forebay_env::{Address, Env};

/// Renews it as long as the process runs. Without keys there is nothing to do.
pub async fn run(env: Env, mgs: Vec<Address>) {
    let Some(own) = env.own_keys().cloned() else { return };
    // Over a Unix socket nobody knows which node asks.
    let mgs: Vec<Address> = mgs.into_iter().filter(|address| matches!(address, Address::Tcp(_))).collect();
    if mgs.is_empty() {
        return;
    }
    let save = |certificate: &[u8]| keys::save_renewed(&own, certificate).map_err(|error| error.message);
    forebay_rpc::keep_renewed(&env, mgs, save).await;
}
