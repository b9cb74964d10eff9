//! Selects the queued fragments for the next run. A fragment that does not fit is cut at block boundaries.

use std::collections::VecDeque;

use bytes::Bytes;
use forebay_proto::{crc, limits::BLOCK_BYTES};

use super::{
    super::run::{self, FragmentKind},
    State, Stream,
    lay_out::goes_as_it_is,
    ticket::{Item, Queued},
};
use crate::limits;

/// True if a piece of the item may be cut off at a block boundary.
fn may_be_cut(item: &Item) -> bool {
    item.kind == FragmentKind::Data && item.sums.len() > 1
}

/// Bytes of a run with the smallest piece of `item` that may be written alone.
pub(super) fn least_run_bytes(item: &Item) -> u64 {
    let (data, sums) = match may_be_cut(item) {
        true => (BLOCK_BYTES - item.offset % BLOCK_BYTES, 1),
        false => (item.data.len() as u64, item.sums.len()),
    };
    run::header_bytes(run::DESCRIPTOR_BYTES + 8 * sums) as u64 + data.next_multiple_of(limits::SECTOR)
}

/// How full the next run is.
#[derive(Default)]
struct Fill {
    descriptors: usize,
    aligned: u64,
    packed: u64,
    members: usize,
}

impl Fill {
    fn with(&self, item: &Item) -> Self {
        let bytes = item.data.len() as u64;
        let aligned = goes_as_it_is(item);
        Self {
            descriptors: self.descriptors + run::DESCRIPTOR_BYTES + 8 * item.sums.len(),
            aligned: self.aligned + if aligned { bytes } else { 0 },
            packed: self.packed + if aligned { 0 } else { bytes },
            members: self.members + 1,
        }
    }

    fn total(&self) -> u64 {
        run::header_bytes(self.descriptors) as u64 + self.aligned + self.packed.next_multiple_of(limits::SECTOR)
    }

    fn full(&self) -> bool {
        self.members >= limits::RUN_FRAGMENTS || self.aligned + self.packed >= limits::RUN_BYTES
    }
}

/// Takes the members of the next run off the queues.
pub(super) fn select(state: &mut State, stream: Stream, room: u64) -> Vec<Queued> {
    let mut members = Vec::new();
    let mut fill = Fill::default();
    while !fill.full() {
        let queue = state.queue(stream);
        let Some(first) = queue.front() else { break };
        if fill.with(&first.item).total() <= room {
            fill = fill.with(&first.item);
            members.extend(queue.pop_front());
            continue;
        }
        if let Some(head) = cut_to_fit(queue, &fill, room) {
            members.push(head);
        }
        break;
    }
    members
}

/// Cuts the first item of `queue` so that its head fits; the rest stays first in the queue.
fn cut_to_fit(queue: &mut VecDeque<Queued>, fill: &Fill, room: u64) -> Option<Queued> {
    let first = queue.front_mut()?;
    if !may_be_cut(&first.item) {
        return None;
    }
    let left = room.saturating_sub(fill.total() + 2 * limits::SECTOR + 8 * first.item.sums.len() as u64);
    let end = (first.item.offset + left) / BLOCK_BYTES * BLOCK_BYTES;
    // A single block may fit exactly where the cautious estimate above says that it does not.
    let end = end.max((first.item.offset / BLOCK_BYTES + 1) * BLOCK_BYTES);
    let (head, rest) = split(&first.item, end)?;
    if fill.with(&head).total() > room {
        return None;
    }
    first.ticket.one_more();
    let (class, ticket, tries) = (first.class, first.ticket.clone(), first.tries);
    first.item = rest;
    Some(Queued { item: head, class, ticket, tries })
}

/// Splits the item at object offset `at`, a block boundary within it.
fn split(item: &Item, at: u64) -> Option<(Item, Item)> {
    let head_bytes = at.checked_sub(item.offset).filter(|bytes| *bytes > 0 && *bytes < item.length)?;
    let blocks = crc::blocks(item.offset, head_bytes, BLOCK_BYTES).count();
    let piece = |offset, data: Bytes, sums: &[u64]| Item {
        offset,
        length: data.len() as u64,
        data,
        sums: sums.to_vec(),
        ..item.clone()
    };
    let (head, rest) = (item.data.slice(..head_bytes as usize), item.data.slice(head_bytes as usize..));
    Some((piece(item.offset, head, &item.sums[..blocks]), piece(at, rest, &item.sums[blocks..])))
}

#[cfg(test)]
mod tests {
    use forebay_proto::{Fid, Transno, WriteId};

    use super::*;

    #[test]
    fn an_item_is_split_between_blocks_with_their_sums() {
        let item = Item {
            kind: FragmentKind::Data,
            fid: Fid::ROOT,
            offset: 60_000,
            length: 100_000,
            data: Bytes::from(vec![0; 100_000]),
            write_id: WriteId::default(),
            version: Transno(1),
            generation: 0,
            origin_epoch: 0,
            sums: vec![1, 2, 3],
        };
        let (head, rest) = split(&item, 131_072).unwrap();
        assert_eq!((head.offset, head.length, head.sums), (60_000, 71_072, vec![1, 2]));
        assert_eq!((rest.offset, rest.length, rest.sums), (131_072, 28_928, vec![3]));
        assert!(split(&item, 60_000).is_none() && split(&item, 160_000).is_none());
    }
}
