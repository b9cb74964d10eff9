//! What `forebay status` shows of a target, and the cluster's map.

use std::collections::BTreeMap;

use forebay_env::DiskRequests;
use forebay_proto::{
    Errno, ErrorReply, Histogram,
    message::{FrameHeader, StatusReply},
};
use forebay_rpc::server::Connection;
use forebay_store::{CopyState, CopyStatus, MirrorStatus};
use serde_json::{Map, Value, json};

use crate::{TargetState, core::Core, limits};

impl Core {
    pub(crate) fn answer_status(&self, connection: &Connection, header: &FrameHeader) {
        self.answer(connection, header, &StatusReply { json: self.status_json() });
    }

    pub(crate) fn answer_map(&self, connection: &Connection, header: &FrameHeader) {
        match &self.options.map {
            Some(map) => self.answer(connection, header, &map()),
            None => {
                let words = format!("{} does not keep the cluster's map; ask MDT0000", self.store.identity().target);
                self.refuse(connection, header, &ErrorReply::new(Errno::ENOSYS, words));
            }
        }
    }

    pub(crate) fn status_json(&self) -> String {
        let identity = self.store.identity();
        let mut status = Map::new();
        let kind = if identity.target.kind == forebay_proto::TargetKind::Mdt { "mdt" } else { "ost" };
        status.insert("name".into(), identity.target.to_string().into());
        status.insert("kind".into(), kind.into());
        status.insert("cluster".into(), identity.cluster.to_string().into());
        status.insert("uuid".into(), identity.uuid.to_string().into());
        status.insert("state".into(), self.state.get().name().into());
        if self.state.get() == TargetState::Stopped {
            status.insert("reason".into(), self.stop_reason.borrow().clone().into());
        }
        status.insert("incarnation".into(), self.incarnation().0.into());
        status.insert("last_committed".into(), self.store.last_committed().0.into());
        status.insert("last_applied".into(), self.order.last_applied().0.into());
        status.insert("sessions".into(), self.sessions.borrow().len().into());
        status.insert("clients".into(), self.clients());
        status.insert("protection".into(), self.protection_status());
        status.insert("certificate".into(), self.certificate_status());
        status.insert("recovery".into(), self.recovery_status());
        status.insert("space".into(), self.space_status());
        status.insert("requests".into(), self.request_status());
        status.insert("pinned_bytes".into(), self.pinned_bytes().into());
        status.insert("networks".into(), self.networks_status());
        status.insert("asked".into(), self.asked_status());
        status.insert("devices".into(), self.devices_status());
        status.insert("journal".into(), self.journal_status());
        status.insert("commits".into(), self.commits_status());
        status.insert("store".into(), self.store_status());
        if let Some(mirror) = self.store.mirror() {
            status.insert("mirror".into(), mirror_status(&mirror));
        }
        if let Ok(Value::Object(more)) = serde_json::from_str(&self.service().status()) {
            status.extend(more);
        }
        Value::Object(status).to_string()
    }

    fn clients(&self) -> Value {
        let now = self.env.now();
        let sessions = self.sessions.borrow();
        let shown = sessions.values().take(limits::STATUS_CLIENTS).map(|session| {
            json!({
                "session": session.id.0,
                "client": session.client.to_string(),
                "description": session.description,
                "peer": session.peer.borrow().as_ref().map(ToString::to_string),
                "protection": session.protection(),
                "connected": session.is_connected(),
                "idle_ms": now.since(session.last_seen.get()).as_millis() as u64,
                "under_way": session.under_way(),
                "pinned_bytes": session.pinned.bytes(&self.store),
            })
        });
        shown.collect()
    }

    fn networks_status(&self) -> Value {
        let networks = self.network_metrics();
        let shown = networks.iter().map(|network| {
            json!({
                "address": network.address,
                "sent_bytes": network.sent_bytes,
                "received_bytes": network.received_bytes,
            })
        });
        shown.collect()
    }

    /// How many connected sessions have which protection.
    fn protection_status(&self) -> Value {
        let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
        for protection in self.sessions.borrow().values().filter_map(|session| session.protection()) {
            *counts.entry(protection).or_default() += 1;
        }
        json!(counts)
    }

    /// The certificate that this server shows; null without keys.
    fn certificate_status(&self) -> Value {
        let keys = self.env.own_keys();
        let shown = keys.and_then(|keys| Some((keys.name().to_string(), keys.validity()?)));
        let now = self.env.unix_time().since_1970();
        shown.map_or(Value::Null, |(node, validity)| {
            json!({
                "node": node,
                "expires_ns": validity.to.as_nanos() as u64,
                "left_s": validity.to.saturating_sub(now).as_secs(),
                "ends_soon": validity.ends_soon(now),
            })
        })
    }

    fn recovery_status(&self) -> Value {
        let recovery = self.recovery.borrow();
        let (phase, awaited) = recovery.describe();
        json!({
            "phase": phase,
            "expected": recovery.expected,
            "awaited": awaited,
            "replayed": recovery.replayed,
            "window_ms": self.options.recovery_window.as_millis() as u64,
            "left_ms": recovery.left(self.env.now(), self.options.recovery_window).as_millis() as u64,
        })
    }

    fn space_status(&self) -> Value {
        let space = self.store.space();
        json!({
            "total_bytes": space.total_bytes,
            "used_bytes": space.used_bytes,
            "reserved_bytes": space.reserved_bytes,
            "available_bytes": space.available_bytes,
            "slabs": {
                "free": space.slabs.free, "open": space.slabs.open, "full": space.slabs.full, "bad": space.slabs.bad,
            },
        })
    }

    fn request_status(&self) -> Value {
        let counters = self.counters.get();
        json!({
            "served": counters.requests,
            "resends": counters.resends,
            "answered_again": counters.resends_answered,
            "replays": self.recovery.borrow().replayed,
            "run_again": counters.reruns,
            "evictions": counters.evictions,
            "fenced": self.fenced.borrow().len(),
            "in_line": self.order.line_len(),
            "uncommitted_keys": self.dirty.borrow().len(),
            "bulk_bytes": self.gate.used_bytes(),
            "bulk_bytes_max": self.gate.limit_bytes(),
        })
    }

    /// Client requests by size.
    fn asked_status(&self) -> Value {
        let asked = self.asked();
        json!({ "reads": sizes(&asked.reads), "writes": sizes(&asked.writes) })
    }

    /// Device requests by size.
    fn devices_status(&self) -> Value {
        let devices = self.store.devices().into_iter().map(|device| {
            let DiskRequests { reads, writes, durable_writes, flushes } = &device.requests;
            json!({
                "device": device.part, "copy": device.copy,
                "reads": sizes(reads), "writes": sizes(writes), "durable_writes": durable_writes, "flushes": flushes,
            })
        });
        devices.collect()
    }

    fn journal_status(&self) -> Value {
        let stats = self.store.stats();
        json!({
            "ring_bytes": stats.journal_ring_bytes,
            "used_bytes": stats.journal_used_bytes,
            "free_bytes": stats.journal_free_bytes,
            "written_bytes": stats.journal_bytes,
            "wraps": stats.journal_wraps,
        })
    }

    fn commits_status(&self) -> Value {
        let stats = self.store.stats();
        let us = |percent| stats.commit_us.percentile(percent);
        json!({
            "count": stats.commits(),
            "closed_by": { "time": stats.closed_by_time, "size": stats.closed_by_size, "demand": stats.closed_on_demand },
            "latency_us": { "p50": us(50.0), "p99": us(99.0), "max": stats.commit_us.max() },
        })
    }

    fn store_status(&self) -> Value {
        let (stats, recovery) = (self.store.stats(), self.store.recovery());
        json!({
            "commits": stats.commits(),
            "commit_us_mean": stats.commit_us.sum().checked_div(stats.commits()).unwrap_or(0),
            "commit_us_max": stats.commit_us.max(),
            "transactions": stats.transactions,
            "user_bytes": stats.user_bytes,
            "device_bytes": stats.device_bytes,
            "runs": stats.runs,
            "journal_bytes": stats.journal_bytes,
            "checkpoints": stats.checkpoints,
            "slabs_cleaned": stats.slabs_cleaned,
            "slabs_retired": stats.slabs_retired,
            "read_corruptions": stats.read_corruptions,
            "table_resident_bytes": stats.table_resident_bytes,
            "recovered_records": recovery.records,
            "recovered_ms": recovery.duration.as_millis() as u64,
            "torn_tail": recovery.torn_tail,
            "clean_stop": recovery.clean,
        })
    }
}

/// Requests by size: those of each bucket are larger than the bound before and at most `up_to`. Empty buckets are left
/// out.
fn sizes(histogram: &Histogram) -> Value {
    let filled = histogram.buckets().filter(|(_, count)| *count > 0);
    let buckets = filled.map(|(bound, count)| json!({ "up_to": bound, "count": count }));
    json!({
        "count": histogram.count(), "bytes": histogram.sum(), "max": histogram.max(),
        "sizes": buckets.collect::<Vec<Value>>(),
    })
}

fn mirror_status(mirror: &MirrorStatus) -> Value {
    let copy = |copy: &CopyStatus| match &copy.state {
        CopyState::InSync => json!({ "path": copy.path, "state": "in sync" }),
        CopyState::Resync { done_bytes, total_bytes } => {
            json!({ "path": copy.path, "state": "resync", "done_bytes": done_bytes, "total_bytes": total_bytes })
        }
        CopyState::Lost { reason } => json!({ "path": copy.path, "state": "lost", "reason": reason }),
    };
    let parts = mirror.parts.iter().map(|part| {
        let copies: Vec<Value> = part.copies.iter().map(copy).collect();
        json!({ "part": part.part, "copies": copies, "mended": part.mended, "bad_places": part.bad_places })
    });
    json!({ "degraded": mirror.is_degraded(), "parts": parts.collect::<Vec<Value>>() })
}
