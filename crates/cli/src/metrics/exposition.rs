//! Counters as OpenMetrics text; docs/metrics.md explains each.
//!
//! Invariant: a family is written once, with a sample for each target. Its name ends with its unit, a counter's with
//! `_total`.

use std::fmt::Error;

use forebay_env::DiskRequests;
use forebay_proto::{Histogram, TargetKind};
use forebay_target::{NetworkMetrics, TargetMetrics, TargetState};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, text::encode},
    metrics::{MetricType, exemplar::Exemplar},
    registry::{Registry, Unit},
};

/// Content type of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Bounds of the buckets of sizes: 512 bytes to 4 MiB, powers of two.
const SIZE_BOUNDS: std::ops::RangeInclusive<u32> = 9..=22;
/// Bounds of the buckets of times, in microseconds: 64 us to 17 s, powers of two.
const TIME_BOUNDS: std::ops::RangeInclusive<u32> = 6..=24;

/// The page.
pub fn text(targets: Vec<TargetMetrics>) -> String {
    let mut registry = Registry::with_prefix("forebay");
    registry.register_collector(Box::new(Snapshot(targets)));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes any text");
    text
}

#[derive(Debug)]
struct Snapshot(Vec<TargetMetrics>);

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder) -> Result<(), Error> {
        let mut page = Page { encoder, targets: &self.0 };
        page.requests()?;
        page.journals()?;
        page.clients()?;
        page.space()
    }
}

/// Labels in addition to the target's, and a value.
type Sample<T> = (Vec<(&'static str, String)>, T);

struct Page<'e, 't> {
    encoder: DescriptorEncoder<'e>,
    targets: &'t [TargetMetrics],
}

impl Page<'_, '_> {
    /// Requests of clients, and those that reached the devices.
    fn requests(&mut self) -> Result<(), Error> {
        self.sizes("client_request", "File data per request of clients", |target| {
            let of = |direction: &str| vec![("direction", direction.to_owned())];
            match target.target.kind {
                TargetKind::Mdt => Vec::new(),
                TargetKind::Ost => {
                    vec![(of("read"), target.asked.reads.clone()), (of("write"), target.asked.writes.clone())]
                }
            }
        })?;
        self.sizes("device_request", "Bytes per request to a device", |target| {
            by_device(target, |requests, labels| {
                let of = |direction: &str| [&labels[..], &[("direction", direction.to_owned())]].concat();
                vec![(of("read"), requests.reads.clone()), (of("write"), requests.writes.clone())]
            })
        })?;
        self.counter("device_durable_writes", "Writes that had to be durable when they completed", None, |target| {
            by_device(target, |requests, labels| vec![(labels, requests.durable_writes)])
        })?;
        self.counter("device_flushes", "Flushes of a device", None, |target| {
            by_device(target, |requests, labels| vec![(labels, requests.flushes)])
        })?;
        self.counter("requests", "Requests executed", None, |t| one(t.requests))?;
        self.counter("requests_resent", "Requests that clients sent again", None, |t| one(t.resends))?;
        self.counter("requests_replayed", "Requests replayed after a restart", None, |t| one(t.replays))?;
        self.counter("requests_rerun", "Requests run again for want of a row in memory or of journal", None, |t| {
            one(t.reruns)
        })
    }

    fn journals(&mut self) -> Result<(), Error> {
        let bytes = Some(Unit::Bytes);
        self.gauge("journal_ring", "The journal's ring", &bytes, |t| one(t.store.journal_ring_bytes))?;
        self.gauge("journal_used", "Journal since the last checkpoint", &bytes, |t| one(t.store.journal_used_bytes))?;
        self.gauge("journal_free", "Journal that transactions may take before the next checkpoint", &bytes, |t| {
            one(t.store.journal_free_bytes)
        })?;
        self.counter("journal_written", "Payload given to the journal", bytes, |t| one(t.store.journal_bytes))?;
        self.counter("commits", "Groups of transactions committed, by what closed them", None, |t| {
            let of = |reason: &str, count| (vec![("reason", reason.to_owned())], count);
            let store = &t.store;
            vec![
                of("time", store.closed_by_time),
                of("size", store.closed_by_size),
                of("demand", store.closed_on_demand),
            ]
        })?;
        let seconds = Some(Unit::Seconds);
        self.family("commit", "From closing a group to its durability", &seconds, MetricType::Histogram, |t, each| {
            each(&[], &mut |mut to| histogram(&mut to, &t.store.commit_us, TIME_BOUNDS, 1e-6))
        })?;
        self.gauge("commit_max", "The longest of them", &seconds, |t| one(t.store.commit_us.max() as f64 / 1e6))?;
        self.counter("checkpoints", "Checkpoints finished", None, |t| one(t.store.checkpoints))
    }

    fn clients(&mut self) -> Result<(), Error> {
        let bytes = Some(Unit::Bytes);
        self.gauge("sessions", "Clients with a session, by whether they are connected", &None, |t| {
            let of = |state: &str, count| (vec![("state", state.to_owned())], count);
            vec![of("connected", t.sessions_connected), of("away", t.sessions - t.sessions_connected)]
        })?;
        self.gauge("pinned", "What clients keep until it is committed", &bytes, |t| one(t.pinned_bytes))?;
        self.gauge("bulk", "File data of requests in the server's memory", &bytes, |t| one(t.bulk_bytes.0))?;
        self.gauge("bulk_limit", "Its bound", &bytes, |t| one(t.bulk_bytes.1))?;
        self.counter("network", "Frames of clients and other servers, by address and direction", bytes, |t| {
            let of = |network: &NetworkMetrics, direction: &str, bytes| {
                (vec![("address", network.address.clone()), ("direction", direction.to_owned())], bytes)
            };
            let both =
                |network| [of(network, "sent", network.sent_bytes), of(network, "received", network.received_bytes)];
            t.networks.iter().flat_map(both).collect()
        })?;
        self.counter("evictions", "Clients evicted", None, |t| one(t.evictions))
    }

    fn space(&mut self) -> Result<(), Error> {
        let bytes = Some(Unit::Bytes);
        self.gauge("target_state", "1 for the state the target is in, 0 for the others", &None, |t| {
            let states = [TargetState::Recovering, TargetState::Serving, TargetState::Stopped];
            states.map(|state| (vec![("state", state.name().to_owned())], u64::from(state == t.state))).to_vec()
        })?;
        self.gauge("space", "Space of a target, by use", &bytes, |t| {
            let space = &t.space;
            let of = |kind: &str, bytes| (vec![("use", kind.to_owned())], bytes);
            vec![
                of("total", space.total_bytes),
                of("used", space.used_bytes),
                of("reserved", space.reserved_bytes),
                of("available", space.available_bytes),
            ]
        })?;
        self.counter("placed", "File data placed for clients", bytes.clone(), |t| one(t.store.user_bytes))?;
        self.counter("runs", "Runs appended to slabs", None, |t| one(t.store.runs))?;
        self.counter("runs_written", "Their bytes, headers, index and moved data included", bytes, |t| {
            one(t.store.device_bytes)
        })?;
        self.counter("slabs_cleaned", "Slabs emptied by the cleaner", None, |t| one(t.store.slabs_cleaned))?;
        self.counter("slabs_retired", "Slabs given up after failed writes", None, |t| one(t.store.slabs_retired))?;
        self.counter("read_corruptions", "Reads that did not match their sums", None, |t| one(t.store.read_corruptions))
    }

    fn counter(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        samples: impl Fn(&TargetMetrics) -> Vec<Sample<u64>>,
    ) -> Result<(), Error> {
        self.family(name, help, &unit, MetricType::Counter, |target, each| {
            samples(target).iter().try_for_each(|(labels, value)| {
                each(labels, &mut |mut to| to.encode_counter(value, None::<&Exemplar<Labels, u64>>))
            })
        })
    }

    fn gauge<T: prometheus_client::encoding::EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        unit: &Option<Unit>,
        samples: impl Fn(&TargetMetrics) -> Vec<Sample<T>>,
    ) -> Result<(), Error> {
        self.family(name, help, unit, MetricType::Gauge, |target, each| {
            samples(target).iter().try_for_each(|(labels, value)| each(labels, &mut |mut to| to.encode_gauge(value)))
        })
    }

    fn sizes(
        &mut self,
        name: &str,
        help: &str,
        samples: impl Fn(&TargetMetrics) -> Vec<Sample<Histogram>>,
    ) -> Result<(), Error> {
        self.family(name, help, &Some(Unit::Bytes), MetricType::Histogram, |target, each| {
            samples(target)
                .iter()
                .try_for_each(|(labels, sizes)| each(labels, &mut |mut to| histogram(&mut to, sizes, SIZE_BOUNDS, 1.0)))
        })
    }

    /// Writes one family. `samples` calls its argument for each sample of a target, with the labels in addition to the
    /// target's.
    fn family(
        &mut self,
        name: &str,
        help: &str,
        unit: &Option<Unit>,
        metric_type: MetricType,
        samples: impl Fn(&TargetMetrics, &mut Each<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut family = self.encoder.encode_descriptor(name, help, unit.as_ref(), metric_type)?;
        for target in self.targets {
            samples(target, &mut |labels, write| {
                let mut all: Labels = vec![("target", target.target.to_string())];
                all.extend_from_slice(labels);
                write(family.encode_family(&all)?)
            })?;
        }
        Ok(())
    }
}

type Labels = Vec<(&'static str, String)>;

/// Takes the labels of a sample and a function that writes its value.
type Each<'a> = dyn FnMut(&[(&'static str, String)], Write<'_>) -> Result<(), Error> + 'a;
type Write<'a> = &'a mut dyn FnMut(MetricEncoder<'_>) -> Result<(), Error>;

fn one<T>(value: T) -> Vec<Sample<T>> {
    vec![(Vec::new(), value)]
}

fn by_device<T>(target: &TargetMetrics, samples: impl Fn(&DiskRequests, Labels) -> Vec<Sample<T>>) -> Vec<Sample<T>> {
    let of = |device: &forebay_store::DeviceStats| {
        samples(&device.requests, vec![("device", device.part.into()), ("copy", device.copy.to_string())])
    };
    target.devices.iter().flat_map(of).collect()
}

/// Writes a histogram. Its buckets have the same bounds for all quantities; `unit` converts the recorded values.
fn histogram(
    to: &mut MetricEncoder<'_>,
    of: &Histogram,
    bounds: std::ops::RangeInclusive<u32>,
    unit: f64,
) -> Result<(), Error> {
    let mut above = 0;
    let mut buckets: Vec<(f64, u64)> = Vec::new();
    for bound in bounds.map(|power| 1 << power) {
        buckets.push((bound as f64 * unit, of.count_within(above, bound)));
        above = bound;
    }
    buckets.push((f64::INFINITY, of.count_within(above, u64::MAX)));
    to.encode_histogram::<Labels>(of.sum() as f64 * unit, of.count(), &buckets, None)
}
