//! Reads that lie far apart, in even steps: the next ones are fetched together, one request to each OST for as many of them
//! as a request may have. What lies in between is not.

use std::{collections::BTreeMap, ops::Range, rc::Rc};

use super::{
    Ahead,
    cache::{Arrival, LeaseNumber},
};
use crate::{Client, file::FileState, limits};

impl Client {
    /// Fetches `steps`, which are expected next, if the one in their middle is neither here nor on its way.
    pub(super) fn fetch_steps(
        &self,
        file: &Rc<FileState>,
        lease: LeaseNumber,
        ahead: &Ahead,
        steps: &[Range<u64>],
        size: u64,
    ) {
        let cache = &self.inner.read_cache;
        let within = |step: &Range<u64>| step.start.min(size)..step.end.min(size);
        let is_missing = |step: &Range<u64>| cache.first_gap(file.fid, lease, &within(step)).is_some();
        // One stands for all: what is missing before it is fetched with it.
        if !steps.get(steps.len() / 2).is_some_and(is_missing) {
            return;
        }
        let mut arrivals = Vec::new();
        'steps: for step in steps {
            let mut step = within(step);
            while let Some(gap) = cache.first_gap(file.fid, lease, &step) {
                if !self.may_fetch_ahead(file) {
                    break 'steps;
                }
                let Some(arrival) = self.begin_fetch(file, lease, &gap, ahead, size) else { break };
                step.start = arrival.range.end;
                arrivals.push(arrival);
            }
        }
        for arrivals in of_each_ost(file, arrivals) {
            let (client, file) = (self.clone(), file.clone());
            drop(self.env().spawn(async move {
                // An OST that is away does not take the room of all others.
                let fetch = client.fetch_together(&file, lease, arrivals);
                let _ = client.env().timeout(limits::READ_AHEAD_TERM, fetch).await;
            }));
        }
    }

    async fn fetch_together(&self, file: &Rc<FileState>, lease: LeaseNumber, arrivals: Vec<Arrival>) {
        let ranges: Vec<Range<u64>> = arrivals.iter().map(|arrival| arrival.range.clone()).collect();
        let Ok(reads) = self.fresh(file, async || self.read_ranges_once(file, &ranges).await).await else { return };
        for (arrival, read) in arrivals.into_iter().zip(reads) {
            self.take_in(file, lease, arrival, read);
        }
    }
}

/// Stretches that lie on the same OST, in the order of the file.
fn of_each_ost(file: &FileState, arrivals: Vec<Arrival>) -> Vec<Vec<Arrival>> {
    let layout = file.layout();
    let mut all: BTreeMap<Option<u32>, Vec<Arrival>> = BTreeMap::new();
    for arrival in arrivals {
        let piece = layout.pieces(arrival.range.start, 1).into_iter().next();
        all.entry(piece.map(|piece| piece.ost)).or_default().push(arrival);
    }
    let mut all: Vec<Vec<Arrival>> = all.into_values().collect();
    all.iter_mut().for_each(|of_one| of_one.sort_by_key(|arrival| arrival.range.start));
    all
}
