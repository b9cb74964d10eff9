//! Questions to targets outside of any mount.

use std::time::Duration;

use forebay_env::{Address, Env, real};
use forebay_proto::{
    TargetId, TargetKind,
    message::{ClusterMap, GetMap, Status},
};
use forebay_rpc::RpcError;
use serde_json::{Map, Value, json};

use crate::{
    cluster::ClusterArg,
    error::{CliResult, Doing},
};

/// A server that is up answers sooner than this.
const LOOK: Duration = Duration::from_secs(2);

/// A target and what it said; `Err` in words if it does not answer.
pub struct Answer {
    /// Which.
    pub id: TargetId,
    /// Its state, as JSON.
    pub status: Result<Map<String, Value>, String>,
}

/// The map of a cluster: from its description, or from the MGS.
pub async fn map(env: &Env, cluster: &ClusterArg) -> CliResult<ClusterMap> {
    match cluster {
        ClusterArg::Described(cluster) => Ok(cluster.map()),
        ClusterArg::Addresses(addresses) => forebay_rpc::ask(env, addresses, &GetMap {}).await.doing(|| {
            let addresses: Vec<String> = addresses.iter().map(Address::to_string).collect();
            format!("the MGS does not answer at {}; is it up, and is that its address?", addresses.join(" or "))
        }),
    }
}

/// Says at once on stderr if MDT0000 does not answer, who waits for it for `patience` anyway: it may be starting.
pub fn tell_if_silent(cluster: &ClusterArg, patience: Duration) {
    let mgs = cluster.mgs();
    let answer = real::run(|env| async move {
        let asked = env.timeout(LOOK, forebay_rpc::ask(&env, &mgs, &GetMap {})).await;
        asked
            .map_err(|_| format!("no answer within {LOOK:?}"))
            .and_then(|answer| answer.map_err(|error| error.to_string()))
    });
    if let Err(why) = answer {
        eprintln!("forebay: MDT0000 does not answer ({why}); waiting up to {} s for it", patience.as_secs());
    }
}

/// Asks all targets of `map` for their state, side by side.
pub async fn states(env: &Env, map: &ClusterMap) -> Vec<Answer> {
    let asked: Vec<_> = map
        .targets
        .iter()
        .map(|target| {
            let (env_of_task, addresses) = (env.clone(), addresses(&target.addresses));
            let task = env.spawn(async move { forebay_rpc::ask(&env_of_task, &addresses, &Status {}).await });
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

fn parse(reply: Result<String, RpcError>) -> Result<Map<String, Value>, String> {
    let json = reply.map_err(|error| error.to_string())?;
    match serde_json::from_str(&json) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(other) => Err(format!("it answered {other} instead of an object")),
        Err(error) => Err(format!("its answer is not JSON: {error}")),
    }
}

fn addresses(texts: &[String]) -> Vec<Address> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

impl Answer {
    /// The contract's object of a target: what it says of itself, and what we know in any case.
    pub fn to_json(&self) -> Value {
        let mut object = match &self.status {
            Ok(map) => map.clone(),
            Err(words) => Map::from_iter([
                ("state".to_owned(), json!("down")),
                ("error".to_owned(), json!(words)),
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
