//! The bytes of a run: the slab header before the first run, the run header, payloads from where they lie in memory or
//! packed.
//!
//! Invariant: a device write lies within one full stripe, or covers several whole ones.

use bytes::Bytes;
use forebay_env::{AlignedBuf, is_aligned};

use super::{
    super::{
        header::{self, SlabHeader},
        run::{Descriptor, RunHeader},
    },
    OpenSlab, Run, State, Stream, Writer,
    ticket::{Item, Queued},
};
use crate::limits;

impl Writer {
    pub(super) fn build(&self, state: &mut State, stream: Stream, members: Vec<Queued>) -> Run {
        let open = state.open[stream as usize].as_mut().expect("room() left a slab open");
        let config = &self.config;
        let mut parts = Vec::new();
        let begins_at = open.at;
        let opened = open.opened.filter(|_| open.at == 0);
        if open.at == 0 {
            let slab_header = SlabHeader { slab: open.slab, epoch: open.epoch, incarnation: config.incarnation };
            let sector = slab_header.encode(config.target);
            open.prev_sum = header::sum_of(&sector);
            parts.push(sector.freeze());
            open.at = limits::SECTOR;
        }
        let (mut run_header, payload, places) = self.lay_out(open, &members);
        run_header.total_bytes = run_header.header_bytes() as u64 + payload.iter().map(|p| p.len() as u64).sum::<u64>();
        let (header_bytes, sum) = run_header.encode(config.target);
        parts.push(header_bytes.freeze());
        parts.extend(payload);
        let run_at = open.at;
        open.at += run_header.total_bytes;
        open.runs += 1;
        open.prev_sum = sum;
        assert!(open.at <= config.geometry.slab_bytes, "a run ends in its slab");
        let mut alloc = self.alloc.borrow_mut();
        members.iter().for_each(|_| alloc.pin(open.slab));
        let members = members.into_iter().zip(places.into_iter().map(|at| run_at as u32 + at)).collect();
        let failures_before = self.suspects.borrow().failures;
        Run {
            slab: open.slab,
            epoch: open.epoch,
            at: begins_at,
            bytes: open.at - begins_at,
            parts,
            members,
            failures_before,
            opened,
            fresh: open.opened.is_some_and(|opened| opened.is_fresh()),
        }
    }

    /// The header, the payload's parts, and where in the run each member's payload begins.
    fn lay_out(&self, open: &OpenSlab, members: &[Queued]) -> (RunHeader, Vec<Bytes>, Vec<u32>) {
        let mut header = RunHeader {
            total_bytes: 0,
            slab: open.slab,
            epoch: open.epoch,
            number: open.runs,
            prev_sum: open.prev_sum,
            incarnation: self.config.incarnation,
            generation: self.config.generation,
            durable_lsn: self.durable_lsn.get(),
            moved_lsn: self.durable_lsn.get(),
            committed: self.committed.get(),
            fragments: members.iter().map(|m| describe(&m.item, open.epoch)).collect(),
        };
        let mut at = header.header_bytes();
        let mut parts = Vec::new();
        for (member, fragment) in members.iter().zip(&mut header.fragments).filter(|(m, _)| goes_as_it_is(&m.item)) {
            fragment.payload_at = at as u32;
            at += member.item.data.len();
            parts.push(member.item.data.clone());
        }
        let packed: usize = members.iter().filter(|m| !goes_as_it_is(&m.item)).map(|m| m.item.data.len()).sum();
        let mut buf = AlignedBuf::to_be_filled(packed.next_multiple_of(limits::SECTOR as usize));
        buf[packed..].fill(0);
        let mut filled = 0;
        for (member, fragment) in members.iter().zip(&mut header.fragments).filter(|(m, _)| !goes_as_it_is(&m.item)) {
            let data = &member.item.data;
            fragment.payload_at = if data.is_empty() { 0 } else { (at + filled) as u32 };
            buf[filled..filled + data.len()].copy_from_slice(data);
            filled += data.len();
        }
        if !buf.is_empty() {
            parts.push(buf.freeze());
        }
        let places = header.fragments.iter().map(|fragment| fragment.payload_at).collect();
        (header, parts, places)
    }
}

fn describe(item: &Item, epoch: u64) -> Descriptor {
    let origin = if item.origin_epoch == 0 { epoch } else { item.origin_epoch };
    Descriptor {
        kind: item.kind,
        fid: item.fid,
        offset: item.offset,
        length: item.length,
        write_id: item.write_id,
        version: item.version,
        generation: item.generation,
        payload_at: 0,
        origin_epoch: if item.kind.is_tombstone() { origin } else { 0 },
        sums: item.sums.clone(),
    }
}

/// True if the device can take the item's bytes from where they lie in memory.
pub(super) fn goes_as_it_is(item: &Item) -> bool {
    !item.data.is_empty() && is_aligned(&item.data)
}

/// Cuts `parts`, to be written at `at`, at the start of the first whole full stripe and at the end of the last.
pub(super) fn cut_at_stripes(mut at: u64, parts: &[Bytes], stripe_bytes: u64) -> Vec<(u64, Vec<Bytes>)> {
    let end = at + parts.iter().map(|part| part.len() as u64).sum::<u64>();
    let cuts = [at.next_multiple_of(stripe_bytes), end / stripe_bytes * stripe_bytes];
    let mut writes: Vec<(u64, Vec<Bytes>)> = Vec::new();
    for part in parts {
        let mut rest = part.clone();
        while !rest.is_empty() {
            let next_cut = cuts.into_iter().find(|cut| *cut > at).unwrap_or(end);
            let take = (next_cut - at).min(rest.len() as u64) as usize;
            match writes.last_mut() {
                Some((_, parts)) if !cuts.contains(&at) => parts.push(rest.split_to(take)),
                _ => writes.push((at, vec![rest.split_to(take)])),
            }
            at += take as u64;
        }
    }
    writes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_writes_are_cut_at_full_stripes() {
        let parts = [Bytes::from(vec![1; 4096]), Bytes::from(vec![2; 8192]), Bytes::from(vec![3; 4096])];
        let writes = cut_at_stripes(4096, &parts, 8192);
        let shape: Vec<(u64, usize)> =
            writes.iter().map(|(at, parts)| (*at, parts.iter().map(Bytes::len).sum())).collect();
        assert_eq!(shape, [(4096, 4096), (8192, 8192), (16384, 4096)]);
    }

    #[test]
    fn whole_stripes_go_to_the_device_together_and_a_part_of_one_is_not_cut() {
        let shape = |at, bytes: &[usize]| -> Vec<(u64, usize)> {
            let parts: Vec<Bytes> = bytes.iter().map(|bytes| Bytes::from(vec![1; *bytes])).collect();
            let writes = cut_at_stripes(at, &parts, 8192);
            writes.iter().map(|(at, parts)| (*at, parts.iter().map(Bytes::len).sum())).collect()
        };
        assert_eq!(shape(4096, &[4096, 32768]), [(4096, 4096), (8192, 32768)]);
        assert_eq!(shape(8192, &[4096, 16384]), [(8192, 16384), (24576, 4096)]);
        assert_eq!(shape(8192, &[4096]), [(8192, 4096)]);
        assert_eq!(shape(12288, &[4096]), [(12288, 4096)]);
    }
}
