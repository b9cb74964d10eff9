//! Counters of this process's targets, for Prometheus and the like: `GET /metrics` on a port of the process.
//!
//! Off by default. A target replies on its own shard with a copy of its counters, which takes microseconds. The text is
//! made on the shard that serves HTTP, which has nothing else to do.

mod exposition;
mod http;
pub mod of_cluster;

use std::{rc::Rc, time::Duration};

use forebay_command::error::{CliError, CliResult, Doing};
use forebay_env::{
    Address, Env, Listener, Network,
    sync::{mpsc, oneshot},
};
use forebay_target::{Target, TargetMetrics};

use crate::listen_address::is_loopback;

/// A target that does not reply within this time is left out of the page.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The address at which a process serves its metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// A TCP address.
    pub address: Address,
    /// Other machines may reach it.
    pub public: bool,
}

/// Parses `HOST:PORT` of an argument.
pub fn parse_address(text: &str) -> Result<Address, String> {
    let wrong = || format!("'{text}' is not HOST:PORT with a port up to 65535, such as 127.0.0.1:9870");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    if host.is_empty() || host.contains('/') || port.parse::<u16>().is_err() {
        return Err(wrong());
    }
    Ok(Address::Tcp(text.to_owned()))
}

/// Refuses addresses that other machines can reach, unless they are allowed explicitly.
pub fn refuse_public(place: &Place) -> CliResult {
    if place.public || is_loopback(&place.address)? {
        return Ok(());
    }
    Err(CliError::usage(format!(
        "--metrics {}: other machines could ask there, and whoever asks is answered; give 127.0.0.1, or --metrics-public too",
        plain(&place.address)
    )))
}

/// The address as users write it: `HOST:PORT`.
pub fn plain(address: &Address) -> String {
    let text = address.to_string();
    text.strip_prefix("tcp:").map_or(text.clone(), str::to_owned)
}

/// The page's URL.
pub fn url(address: &Address) -> String {
    format!("http://{}/metrics", plain(address))
}

/// Opens the port, before any target is started.
pub async fn listen(env: &Env, place: &Place) -> CliResult<Listener> {
    refuse_public(place)?;
    env.with_network(Network::Public)
        .listen(&place.address)
        .await
        .doing(|| format!("cannot serve metrics at {}; give another --metrics HOST:PORT", plain(&place.address)))
}

type Question = oneshot::Sender<TargetMetrics>;

/// Sends requests for metrics to a target of this process.
#[derive(Clone, Debug)]
pub struct Asker(mpsc::UnboundedSender<Question>);

/// Receives a target's requests for metrics.
#[derive(Debug)]
pub struct Answerer(mpsc::UnboundedReceiver<Question>);

/// A channel between the two.
pub fn line() -> (Asker, Answerer) {
    let (ask, hear) = mpsc::unbounded_channel();
    (Asker(ask), Answerer(hear))
}

impl Answerer {
    /// Replies on the target's shard until all senders are dropped.
    pub async fn answer(mut self, target: Target) {
        while let Some(question) = self.0.recv().await {
            // The requester may have timed out.
            let _ = question.send(target.metrics());
        }
    }
}

/// Serves the page until it is aborted.
pub async fn serve(env: Env, listener: Listener, targets: Vec<Asker>) {
    let (asking, targets) = (env.clone(), Rc::new(targets));
    let page = move || {
        let (env, targets) = (asking.clone(), targets.clone());
        async move { exposition::text(ask_all(&env, &targets).await) }
    };
    http::serve(env, listener, exposition::CONTENT_TYPE, page).await;
}

/// All replies, in the order of the targets.
async fn ask_all(env: &Env, targets: &[Asker]) -> Vec<TargetMetrics> {
    let ask = |asker: &Asker| {
        let (question, answer) = oneshot::channel();
        // A target that has ended drops the request.
        let _ = asker.0.send(question);
        answer
    };
    let (began, asked): (_, Vec<_>) = (env.now(), targets.iter().map(ask).collect());
    let mut answers = Vec::new();
    for answer in asked {
        let left = TIMEOUT.saturating_sub(env.now().since(began));
        if let Ok(Ok(metrics)) = env.timeout(left, answer).await {
            answers.push(metrics);
        }
    }
    answers.sort_by_key(|metrics| metrics.target);
    answers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for good in ["127.0.0.1:9870", "localhost:0", "[::1]:65535"] {
            assert_eq!(parse_address(good), Ok(Address::Tcp(good.into())));
        }
        for bad in ["9870", "127.0.0.1", ":9870", "127.0.0.1:65536", "127.0.0.1:-1", "unix:/x:1", "127.0.0.1:http"] {
            assert!(parse_address(bad).is_err_and(|words| words.contains("HOST:PORT")), "{bad}");
        }
    }

    #[test]
    fn other_machines_are_let_in_only_if_that_is_said() {
        let place = |text: &str, public| Place { address: parse_address(text).expect(text), public };
        for good in [place("127.0.0.1:1", false), place("[::1]:1", false), place("0.0.0.0:1", true)] {
            refuse_public(&good).expect("good");
        }
        let refused = refuse_public(&place("0.0.0.0:1", false)).expect_err("others could ask");
        assert!(refused.message.contains("--metrics-public") && refused.exit_code() == 2, "{refused}");
        assert_eq!(url(&place("127.0.0.1:9870", false).address), "http://127.0.0.1:9870/metrics");
    }
}
