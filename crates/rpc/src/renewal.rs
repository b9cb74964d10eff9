//! Renewal of this node's certificate: at two thirds of its time the MGS is asked for the next one.
//!
//! The key stays: by it the cluster knows the node, its targets, its tenant, its sessions and its bans. New connections of the
//! process show the new certificate at once. Those that live go on.

use std::time::Duration;

use forebay_env::{Address, Boxed, Env};
use forebay_proto::message::Renew;

use crate::{ask, limits};

/// Renews the certificate of this shard's keys as long as it runs; at once ends if there is none. `save` makes the
/// certificate (DER) durable. Run it once per process: its shards share their keys.
pub fn keep_renewed<'a>(
    env: &'a Env,
    mgs: Vec<Address>,
    save: impl Fn(&[u8]) -> Result<(), String> + 'a,
) -> Boxed<'a, ()> {
    Box::pin(async move {
        let Some(keys) = env.own_keys().cloned() else { return };
        let mut complaint = String::new();
        while let Some(validity) = keys.validity() {
            let now = env.unix_time().since_1970();
            let left = validity.renewed_at().saturating_sub(now);
            if !left.is_zero() {
                // Clocks jump.
                env.sleep(left.min(limits::RENEWAL_LOOK)).await;
                continue;
            }
            match renew(env, &mgs, &save).await {
                Ok(()) => complaint.clear(),
                Err(words) => {
                    if words != complaint {
                        let left = validity.to.saturating_sub(now).as_secs();
                        env.log(&format!(
                            "the certificate of {} ends in {left} s and cannot be renewed yet: {words}",
                            keys.name()
                        ));
                        complaint = words;
                    }
                    env.sleep(pause(validity.life())).await;
                }
            }
        }
    })
}

async fn renew(env: &Env, mgs: &[Address], save: impl Fn(&[u8]) -> Result<(), String>) -> Result<(), String> {
    let Some(keys) = env.own_keys() else { return Ok(()) };
    let reply = ask(env, mgs, &Renew {}).await.map_err(|error| error.to_string())?;
    let now = env.unix_time().since_1970();
    keys.renew(&reply.certificate, now).map_err(|error| error.to_string())?;
    let validity = keys.validity().map(|validity| validity.to.as_secs()).unwrap_or_default();
    env.log(&format!("the certificate of {} is renewed, until {validity} s after 1970", keys.name()));
    // The process goes on with it in any case.
    if let Err(words) = save(&reply.certificate) {
        env.log(&format!("the renewed certificate is not kept for the next start: {words}"));
    }
    Ok(())
}

/// Between two attempts: many fit into what is left.
fn pause(life: Duration) -> Duration {
    (life / 100).min(limits::RENEWAL_PAUSE)
}
