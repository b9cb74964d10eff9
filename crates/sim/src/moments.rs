//! What servers and clients were doing when a fault came: the second axis of the report.

use std::collections::BTreeMap;

use forebay_client::Client;
use forebay_target::{Target, TargetState};

use crate::{
    Cluster,
    faults::{Befalls, Kind},
};

/// A state of the protocol. Several can hold at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// The server is down: dead, or reading its journal.
    Starting,
    /// The server recovers, and clients replay.
    Replaying,
    /// The server recovers, and clients reclaim handles, locks and leases.
    Reclaiming,
    /// The server serves; nothing is in flight or uncommitted.
    Idle,
    /// Requests are executing, or their replies have not left.
    Executing,
    /// Writes at level `memory` were acknowledged and are not applied yet.
    Held,
    /// Changes are applied and not durable yet.
    Uncommitted,
    /// A group commits.
    Committing,
    /// A checkpoint is being written.
    Checkpointing,
    /// The server has stopped because its device failed.
    Stopped,
    /// A client pins acknowledged changes that are not committed.
    Pinned,
    /// A client has acknowledged directory operations that the MDT has not executed yet.
    Answered,
    /// A client connects, or recovers with a restarted target.
    Reconnecting,
}

impl Moment {
    /// All states, in the order of the report.
    pub const ALL: [Moment; 13] = [
        Moment::Starting,
        Moment::Replaying,
        Moment::Reclaiming,
        Moment::Idle,
        Moment::Executing,
        Moment::Held,
        Moment::Uncommitted,
        Moment::Committing,
        Moment::Checkpointing,
        Moment::Stopped,
        Moment::Pinned,
        Moment::Answered,
        Moment::Reconnecting,
    ];
}

/// States so short that random faults seldom meet them.
pub const RARE: [Moment; 7] = [
    Moment::Starting,
    Moment::Reclaiming,
    Moment::Executing,
    Moment::Committing,
    Moment::Checkpointing,
    Moment::Answered,
    // Last, as the MDT never has it.
    Moment::Held,
];

impl Moment {
    /// True for states of clients.
    pub fn is_of_clients(self) -> bool {
        matches!(self, Moment::Pinned | Moment::Answered | Moment::Reconnecting)
    }
}

/// True if a fault of this kind can never meet this state.
pub fn cannot_meet(kind: Kind, moment: Moment) -> bool {
    match moment {
        // No server notices such a fault.
        _ if kind.befalls() == Befalls::Client => !moment.is_of_clients(),
        // The MDT is never in this state.
        Moment::Held => kind.befalls() == Befalls::Mdt,
        // Device failures stop their target, and only the usual faults come while it is stopped. In runs with devices
        // that corrupt data, or with evictions, no device fails.
        Moment::Stopped => kind.is_of_devices() || kind == Kind::MissedRecovery,
        _ => false,
    }
}

/// True if a fault meets this state too seldom to rely on: the fault occurs in a tenth of the runs, or the state lasts
/// for less than a millisecond of a recovery.
pub fn seldom_meets(kind: Kind, moment: Moment) -> bool {
    use Moment::{Answered, Checkpointing, Held, Reclaiming, Starting};
    let in_few_runs = kind.is_of_few_runs() && matches!(moment, Starting | Held | Checkpointing | Answered);
    let is_device = kind.is_of_devices() || kind.is_of_few_runs();
    in_few_runs || is_device && moment == Reclaiming
}

/// How often each kind of fault met each state.
pub type Hits = BTreeMap<(Kind, Moment), u64>;

/// The current states of a server.
pub fn of_server(cluster: &Cluster, number: usize) -> Vec<Moment> {
    let targets = cluster.targets.borrow();
    let running = cluster.sim.is_running(cluster.servers[number].node);
    let Some(target) = targets.get(&number).filter(|_| running) else { return vec![Moment::Starting] };
    match target.state() {
        TargetState::Stopped => vec![Moment::Stopped],
        TargetState::Recovering if target.recovery_phase() == "reclaiming" => vec![Moment::Reclaiming],
        TargetState::Recovering => vec![Moment::Replaying],
        TargetState::Serving => of_serving(target),
    }
}

fn of_serving(target: &Target) -> Vec<Moment> {
    let store = target.store();
    let all = [
        (target.under_way() > 0, Moment::Executing),
        (target.has_held(), Moment::Held),
        (target.has_uncommitted(), Moment::Uncommitted),
        (store.is_committing(), Moment::Committing),
        (store.is_checkpointing(), Moment::Checkpointing),
    ];
    let met: Vec<Moment> = all.into_iter().filter_map(|(is, moment)| is.then_some(moment)).collect();
    if met.is_empty() { vec![Moment::Idle] } else { met }
}

/// The current states of a client.
pub fn of_client(client: &Client) -> Vec<Moment> {
    let stats = client.stats();
    let all = [
        (stats.pinned_bytes > 0, Moment::Pinned),
        (stats.delayed_entries > 0, Moment::Answered),
        (client.is_reconnecting(), Moment::Reconnecting),
    ];
    all.into_iter().filter_map(|(is, moment)| is.then_some(moment)).collect()
}

/// A text table: one line per kind of fault, one column per state.
pub fn table(hits: &Hits) -> String {
    let mut kinds: Vec<Kind> = hits.keys().map(|(kind, _)| *kind).collect();
    kinds.dedup();
    let mut text = format!("{:18}", "");
    for moment in Moment::ALL {
        text += &format!(" {:>13}", format!("{moment:?}"));
    }
    for kind in kinds {
        text += &format!("\n{:18}", format!("{kind:?}"));
        for moment in Moment::ALL {
            text += &format!(" {:>13}", hits.get(&(kind, moment)).copied().unwrap_or(0));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_line_for_each_fault_and_zeros_where_nothing_met() {
        let hits = Hits::from([((Kind::Reset, Moment::Idle), 3), ((Kind::Paused, Moment::Starting), 1)]);
        let table = table(&hits);
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!((lines.len(), lines[0].len()), (3, Moment::ALL.len()));
        assert_eq!((lines[1][0], lines[1][1], lines[2][0], lines[2][4]), ("Paused", "1", "Reset", "3"));
    }
}
