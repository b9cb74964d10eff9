//! Where an OST's data is on its tier, and whether the space is enough for an experiment. An experiment without enough
//! space is rejected before it runs; otherwise the full OST would be an error of the simulated system.

use super::{Machine, Window, payload::TRANSFER_BYTES};

/// Most data bytes of an OST. A run writes only a part of it.
const OST_BYTES: u64 = 256 << 30;
/// Overhead of headers, tables and slabs reserved for the cleaner: a fraction of the bytes written, and its minimum.
const BESIDE: (f64, u64) = (0.1, 1 << 30);

/// An OST's data on its part of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// Bytes of the OST's part of the tier.
    pub part: u64,
    /// Offset of the data in the part: behind the journal, aligned to a full stripe, as an administrator of a RAID
    /// device would align it.
    pub base: u64,
    /// Bytes of the data.
    pub bytes: u64,
}

impl Room {
    pub fn of(machine: &Machine) -> Self {
        Self::on(machine, machine.tier.model().bytes)
    }

    fn on(machine: &Machine, tier_bytes: u64) -> Self {
        let whole = |bytes: u64| bytes / TRANSFER_BYTES * TRANSFER_BYTES;
        let part = whole(tier_bytes / u64::from(machine.osts_per_tier()));
        let distance = (machine.journal.distance.value * part as f64) as u64;
        let base =
            distance.next_multiple_of(TRANSFER_BYTES).max(machine.journal.mib.mib().next_multiple_of(TRANSFER_BYTES));
        Self { part, base, bytes: whole(part.saturating_sub(base)).min(OST_BYTES) }
    }
}

/// Most bytes that the clients write to one OST until a window ends. Each client has one file; OSTs are assigned in
/// turn.
pub(super) fn of_window(machine: &Machine, window: Window) -> u64 {
    let files = machine.clients.nodes.count().div_ceil(machine.osts()).max(1);
    let rates = [
        machine.tier.write_mb_s() / machine.osts_per_tier() as f64,
        machine.port.mb_s.value,
        machine.network.node_mb_s.value,
        machine.network.node_mb_s.value * f64::from(files),
    ];
    let mb_s = rates.into_iter().fold(f64::MAX, f64::min);
    let seconds = (window.warm_up + window.length).as_secs_f64();
    let under_way = u64::from(files * machine.clients.rpcs_in_flight.count()) * TRANSFER_BYTES;
    (mb_s * 1e6 * seconds) as u64 + machine.tier.cache_bytes() + under_way
}

/// Rejects a machine whose OSTs lack the space for `written` bytes each. Errors: a text that says what would fit.
pub(super) fn check(machine: &Machine, written: u64, shorter: &str) -> Result<(), String> {
    let needed = written + ((written as f64 * BESIDE.0) as u64).max(BESIDE.1);
    if Room::of(machine).bytes >= needed {
        return Ok(());
    }
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    if needed > OST_BYTES {
        let most = OST_BYTES >> 30;
        return Err(format!(
            "{:.0} GiB may be written to an OST, and one of the laboratory has {most} GiB at most: {shorter}",
            gib(needed)
        ));
    }
    let fits = |gib: &u64| Room::on(machine, gib << 30).bytes >= needed;
    let least = (1..=10_000_000).find(fits).unwrap_or(10_000_000);
    Err(format!(
        "tier.gib = {}: up to {:.1} GiB may be written to an OST, beside its journal and what it keeps free: use {least} or more\
         {}",
        machine.tier.gib(),
        gib(written),
        if shorter.is_empty() { String::new() } else { format!(", or {shorter}") }
    ))
}
