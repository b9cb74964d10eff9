//! Reads that lie far apart, in even steps: the next ones are fetched together, in requests of several of them to each OST.
//! What lies in between is not.

use std::{collections::BTreeMap, ops::Range, rc::Rc};

use super::{
    Ahead, Fetch,
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
        let cache = &self.inner.cache.read;
        let within = |step: &Range<u64>| step.start.min(size)..step.end.min(size);
        let there = steps.iter().map(within).filter(|step| !step.is_empty());
        let steps: Vec<Range<u64>> = there.take(self.steps_most(steps)).collect();
        // One stands for all: what is missing before it is fetched with it.
        let is_missing = |step: &Range<u64>| cache.first_gap(file.fid, lease, step).is_some();
        if self.env().now() < file.reading.no_steps_until.get() || !steps.get(steps.len() / 2).is_some_and(is_missing) {
            return;
        }
        let (mut arrivals, what) = (Vec::new(), Fetch { ahead, across: false, size });
        'steps: for mut step in steps {
            while let Some(gap) = cache.first_gap(file.fid, lease, &step) {
                if !self.may_fetch_ahead(file) {
                    break 'steps;
                }
                let Some(arrival) = self.begin_fetch(file, lease, &gap, &what) else { break };
                step.start = arrival.range.end;
                arrivals.push(arrival);
            }
        }
        for arrivals in in_requests(file, arrivals, self.inner.options.max_rpc_bytes.into()) {
            let (client, file) = (self.clone(), file.clone());
            drop(self.env().spawn(async move {
                // An OST that is away does not take the room of all others.
                let fetch = client.fetch_together(&file, lease, arrivals);
                if !matches!(client.env().timeout(limits::PREFETCH_TERM, fetch).await, Ok(Some(()))) {
                    // One that is damaged, or slow, takes the others along: each is fetched alone when it is wanted.
                    file.reading.no_steps_until.set(client.env().now() + limits::NO_STEPS_PAUSE);
                }
            }));
        }
    }

    /// What was fetched for one reader is a part of what is kept of all.
    fn steps_most(&self, steps: &[Range<u64>]) -> usize {
        let bytes = steps.first().map_or(1, |step| (step.end - step.start).max(1));
        (self.read_cache_bytes() / limits::STEPS_SHARE / bytes).max(1) as usize
    }

    /// `None`: they could not be had.
    async fn fetch_together(&self, file: &Rc<FileState>, lease: LeaseNumber, arrivals: Vec<Arrival>) -> Option<()> {
        let ranges: Vec<Range<u64>> = arrivals.iter().map(|arrival| arrival.range.clone()).collect();
        let reads = self.fresh(file, async || self.read_ranges_once(file, &ranges).await).await.ok()?;
        let together = ranges.len() > 1;
        for (arrival, read) in arrivals.into_iter().zip(reads) {
            self.take_in(file, lease, arrival, read, together);
        }
        Some(())
    }
}

/// What one request each fetches: stretches on the same OST, in the order of the file.
fn in_requests(file: &FileState, arrivals: Vec<Arrival>, most: u64) -> Vec<Vec<Arrival>> {
    let layout = file.layout();
    let mut of_osts: BTreeMap<Option<u32>, Vec<Vec<Arrival>>> = BTreeMap::new();
    for arrival in arrivals {
        let bytes = |of: &Arrival| of.range.end - of.range.start;
        let piece = layout.pieces(arrival.range.start, 1).into_iter().next();
        let requests = of_osts.entry(piece.map(|piece| piece.ost)).or_default();
        let fits = |request: &&mut Vec<Arrival>| {
            request.len() < limits::READ_PIECES && request.iter().map(bytes).sum::<u64>() + bytes(&arrival) <= most
        };
        match requests.last_mut().filter(fits) {
            Some(request) => request.push(arrival),
            None => requests.push(vec![arrival]),
        }
    }
    let mut requests: Vec<Vec<Arrival>> = of_osts.into_values().flatten().collect();
    requests.iter_mut().for_each(|request| request.sort_by_key(|arrival| arrival.range.start));
    requests
}
