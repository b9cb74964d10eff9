//! What the client waits for, as people are shown it.

use forebay_proto::TargetId;
use forebay_rpc::SessionState;

use crate::Client;

/// A target that has requests to answer, or cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// Which.
    pub target: TargetId,
    /// What is the matter with it; empty if nothing is known to be.
    pub trouble: &'static str,
    /// Requests it was sent, or is to be sent first.
    pub requests: u64,
}

impl Client {
    /// Targets this client waits for, ordered.
    pub fn awaited(&self) -> Vec<Awaited> {
        let peers = self.inner.peers.all();
        let awaited = peers.iter().map(|peer| Awaited {
            target: peer.session.target(),
            trouble: trouble(peer.session.state()),
            requests: peer.session.stats().in_flight,
        });
        awaited.filter(|one| one.requests > 0 || !one.trouble.is_empty()).collect()
    }
}

fn trouble(state: SessionState) -> &'static str {
    match state {
        SessionState::Up | SessionState::Closed => "",
        SessionState::Connecting => "does not answer",
        SessionState::Recovering => "recovers",
        SessionState::Stopped => "has stopped",
        SessionState::Refused => "refuses this client",
    }
}
