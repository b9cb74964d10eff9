//! Requests to targets without a mount.

use std::time::Duration;

use forebay_command::error::{CliError, CliResult};
use forebay_env::{Address, Env, Network, real};
use forebay_proto::{
    Errno, TargetId, TargetKind,
    message::{ClusterMap, GetMap, Operation, Status},
};
use forebay_rpc::RpcError;
use serde_json::{Map, Value, json};

use crate::cluster_arg::ClusterArg;

/// The state of a target whose server may be up, but does not reply in time.
pub const NO_ANSWER: &str = "no answer";
/// The state of a target whose server answers, and that server and this host do not accept each other.
pub const REFUSED: &str = "refused";

/// A server that is up replies sooner than this.
const LOOK: Duration = Duration::from_secs(2);

/// A target and its reply, if it sent one.
pub struct Answer {
    /// The target.
    pub id: TargetId,
    /// Its state, as JSON.
    pub status: Result<Map<String, Value>, Silence>,
}

/// Why the state of a target is unknown.
pub struct Silence {
    /// What is known of it.
    pub state: &'static str,
    /// The reason, for messages.
    pub words: String,
}

/// The map of a cluster, from the MGS. If that does not answer, a described cluster is as described.
pub async fn map(env: &Env, cluster: &ClusterArg) -> CliResult<ClusterMap> {
    let addresses = cluster.mgs();
    let answer = env.timeout(LOOK, forebay_rpc::ask(env, &addresses, &GetMap {})).await;
    let answer = answer.unwrap_or_else(|_| Err(RpcError::Silent(format!("no answer within {LOOK:?}"))));
    match (answer, cluster) {
        (Ok(map), _) => Ok(map),
        (Err(_), ClusterArg::Described(cluster)) if !cluster.is_joined() => Ok(cluster.map()),
        (Err(error), _) => Err(no_answer(&addresses, &error)),
    }
}

/// Sends one request to the MGS.
pub async fn mgs<O: Operation>(env: &Env, addresses: &[Address], request: &O) -> CliResult<O::Reply> {
    forebay_rpc::ask(env, addresses, request).await.map_err(|error| failed(addresses, &error))
}

/// The same, for a request that an older MGS does not know: it gets `unknown` then.
pub async fn mgs_if_known<O: Operation>(
    env: &Env,
    addresses: &[Address],
    request: &O,
    unknown: O::Reply,
) -> CliResult<O::Reply> {
    match forebay_rpc::ask(env, addresses, request).await {
        Err(RpcError::Reply(reply)) if reply.errno == Errno::EOPNOTSUPP => Ok(unknown),
        reply => reply.map_err(|error| failed(addresses, &error)),
    }
}

/// Why a request to the MGS failed.
pub fn failed(addresses: &[Address], error: &RpcError) -> CliError {
    match error {
        RpcError::Reply(reply) if reply.errno == Errno::EOPNOTSUPP && reply.message.starts_with("operation ") => {
            CliError::failed(format!("the MGS is of an older release, which has no nodes: {}", reply.message))
        }
        RpcError::Reply(reply) if reply.errno != Errno::ENOSYS => CliError::failed(reply.message.clone()),
        error => no_answer(addresses, error),
    }
}

fn no_answer(addresses: &[Address], error: &RpcError) -> CliError {
    wrong_address(addresses, error).unwrap_or_else(|| {
        let addresses = shown(addresses);
        CliError::failed(format!("the MGS does not answer at {addresses}; is it up, and is that its address?: {error}"))
    })
}

fn shown(addresses: &[Address]) -> String {
    addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(" or ")
}

/// The error if the server that replies can never be the MGS, however long the caller waits.
fn wrong_address(addresses: &[Address], error: &RpcError) -> Option<CliError> {
    let why = match error {
        RpcError::Foreign(why) => why.clone(),
        // No key, one that is not believed, or another version.
        RpcError::Protocol(why) => return Some(CliError::failed(why.clone())),
        // Only MDT0000 keeps the map.
        RpcError::Reply(reply) if reply.errno == Errno::ENOSYS => format!("{}: {}", shown(addresses), reply.message),
        _ => return None,
    };
    Some(CliError::failed(format!("{why}; give the address of MDT0000, or the DIR of `forebay up`")))
}

/// Says at once on stderr if MDT0000 does not reply. The caller waits for it for `timeout` anyway: it may be starting.
/// Errors: something other than MDT0000 replies.
pub fn warn_if_unreachable(cluster: &ClusterArg, network: &Network, timeout: Duration) -> CliResult {
    let mgs = cluster.mgs();
    let asked = mgs.clone();
    let network = network.clone();
    let answer = real::run(|env| async move {
        let env = env.with_network(network);
        env.timeout(LOOK, forebay_rpc::ask(&env, &asked, &GetMap {})).await
    });
    let why = match answer {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(error)) => match wrong_address(&mgs, &error) {
            Some(error) => return Err(error),
            None => error.to_string(),
        },
        Err(_) => format!("no answer within {LOOK:?}"),
    };
    eprintln!("forebay: MDT0000 does not answer ({why}); waiting up to {} s for it", timeout.as_secs());
    Ok(())
}

/// Asks all targets of `map` for their state, in parallel.
pub async fn states(env: &Env, map: &ClusterMap) -> Vec<Answer> {
    // Each address has a time limit of its own.
    states_within(env, map, Duration::from_secs(3600)).await
}

/// As [`states`], and a target that has not answered after `timeout` is silent.
pub async fn states_within(env: &Env, map: &ClusterMap, timeout: Duration) -> Vec<Answer> {
    let asked: Vec<_> = map
        .targets
        .iter()
        .map(|target| {
            let (env_of_task, addresses) = (env.clone(), addresses(&target.addresses));
            let task = env.spawn(async move {
                let answer = env_of_task.timeout(timeout, forebay_rpc::ask(&env_of_task, &addresses, &Status {})).await;
                answer.unwrap_or_else(|_| Err(RpcError::Silent(format!("no answer within {timeout:.1?}"))))
            });
            (target.id, task)
        })
        .collect();
    let mut answers = Vec::new();
    for (id, task) in asked {
        let reply = task.await.expect("nobody aborts the question");
        answers.push(Answer { id, status: parse(reply.map(|reply| reply.json)) });
    }
    answers
}

fn parse(reply: Result<String, RpcError>) -> Result<Map<String, Value>, Silence> {
    let silence = |words| Silence { state: "down", words };
    let json = reply.map_err(|error| match error {
        RpcError::Silent(words) => Silence { state: NO_ANSWER, words },
        // No key, one that is not believed, or another version.
        RpcError::Protocol(words) => Silence { state: REFUSED, words },
        error => silence(error.to_string()),
    })?;
    match serde_json::from_str(&json) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(other) => Err(silence(format!("it answered {other} instead of an object"))),
        Err(error) => Err(silence(format!("its answer is not JSON: {error}"))),
    }
}

fn addresses(texts: &[String]) -> Vec<Address> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

impl Answer {
    /// A target's object in the JSON output: its own status, and what is known in any case.
    pub fn to_json(&self) -> Value {
        let mut object = match &self.status {
            Ok(map) => map.clone(),
            Err(silence) => Map::from_iter([
                ("state".to_owned(), json!(silence.state)),
                ("error".to_owned(), json!(silence.words)),
                ("pid".to_owned(), Value::Null),
                ("last_committed".to_owned(), Value::Null),
            ]),
        };
        let kind = if self.id.kind == TargetKind::Mdt { "mdt" } else { "ost" };
        object.insert("name".into(), json!(self.id.to_string()));
        object.insert("kind".into(), json!(kind));
        Value::Object(object)
    }
}
