//! What was kept back with gaps in between: few requests, each of many pieces of one object.

use std::{collections::BTreeMap, rc::Rc};

use bytes::Bytes;
use forebay_proto::{
    Layout,
    limits::OBJECT_PIECES,
    message::{Piece, WritePieces},
};
use forebay_rpc::Call;

use super::parts::Run;
use crate::{
    Client, OpenFile,
    delayed::granted_space::request_cost,
    errors::Trouble,
    file::{Snapshot, Writer},
    io::plan::plan,
    payload::{Payload, block_sums},
    tasks::{all, worst},
};

/// One request: pieces of one object, in order and apart.
#[derive(Debug, PartialEq, Eq)]
struct Scattered {
    ost: u32,
    pieces: Vec<Piece>,
    parts: Vec<Vec<Bytes>>,
    bytes: u64,
    /// Where the last of its bytes lies in the file.
    file_end: u64,
}

/// Requests of at most `max_rpc_bytes` for `runs`, which are in order. All of them have OSTs. Pure.
fn plan_scattered(layout: &Layout, runs: &[Run], max_rpc_bytes: u64) -> Vec<Scattered> {
    let mut objects: BTreeMap<u32, Vec<Scattered>> = BTreeMap::new();
    for run in runs {
        let payload = Payload::from(run.parts.clone());
        for range in plan(layout, run.offset, run.len() as u64, max_rpc_bytes) {
            let parts = payload.gather(run.offset, &range.ranges);
            let piece = Piece { offset: range.offset, length: range.length as u32 };
            let of_ost = objects.entry(range.ost).or_default();
            let fits = |last: &&mut Scattered| {
                let follows = last.pieces.last().is_some_and(|before| before.offset < piece.offset);
                follows && last.bytes + range.length <= max_rpc_bytes && last.pieces.len() < OBJECT_PIECES
            };
            let Some(last) = of_ost.last_mut().filter(fits) else {
                let (ost, bytes, file_end) = (range.ost, range.length, range.file_end());
                of_ost.push(Scattered { ost, pieces: vec![piece], parts: vec![parts], bytes, file_end });
                continue;
            };
            last.bytes += range.length;
            last.file_end = last.file_end.max(range.file_end());
            match last.pieces.last_mut().filter(|before| before.offset + u64::from(before.length) == piece.offset) {
                // They touch in the object: one piece.
                Some(before) => {
                    before.length += piece.length;
                    last.parts.last_mut().expect("each piece has its parts").extend(parts);
                }
                None => {
                    last.pieces.push(piece);
                    last.parts.push(parts);
                }
            }
        }
    }
    objects.into_values().flatten().collect()
}

impl Client {
    /// Writes all of `runs`, or fails; then some of it may be there.
    pub(super) async fn write_scattered(&self, by: &Writer, runs: &Rc<Vec<Run>>) -> Result<(), Trouble> {
        let state = by.file.state();
        let at = || Ok::<_, Trouble>(by.file.snapshot_in(by.instance)?.buffered_under(by.attr_epoch));
        self.try_fresh(state, async || self.write_scattered_once(&by.file, &at()?, runs).await).await
    }

    async fn write_scattered_once(&self, file: &OpenFile, at: &Snapshot, runs: &[Run]) -> Result<(), Trouble> {
        if let Some((offset, length)) = runs.iter().find_map(|run| at.layout.first_gap(run.offset, run.len() as u64)) {
            return Err(Trouble::Bare(offset, length));
        }
        let home = at.layout.home();
        let requests = plan_scattered(&at.layout, runs, self.inner.options.max_rpc_bytes.into());
        // The size comes last: raised with one of several parts it would cover another that fails.
        let carries = requests.len() == 1;
        let carried = requests.iter().filter(|request| carries && request.ost == home).map(|request| request.file_end);
        let carried = carried.max();
        let sends = requests.into_iter().map(|request| {
            let (client, file, at) = (self.clone(), file.clone(), at.clone());
            async move { client.write_scattered_object(&file, &at, request, carries).await }
        });
        let results = all(self.env(), sends).await;
        if let Some(trouble) = worst(results.into_iter().filter_map(Result::err)) {
            return Err(trouble);
        }
        let end = runs.last().map_or(0, Run::end);
        if end > carried.unwrap_or(0) {
            self.raise(file.state(), at, end, self.level_of(file)).await?;
        }
        Ok(())
    }

    async fn write_scattered_object(
        &self,
        file: &OpenFile,
        at: &Snapshot,
        request: Scattered,
        carries: bool,
    ) -> Result<(), Trouble> {
        let write_id = self.write_id();
        let end = if carries { request.file_end } else { 0 };
        let file_bytes = if request.ost == at.layout.home() { end.max(at.seen) } else { 0 };
        let pieces = request.pieces.iter().zip(&request.parts);
        let granted_bytes = if at.is_buffered { request_cost(request.bytes, request.pieces.len()) } else { 0 };
        let sums = pieces.flat_map(|(piece, parts)| block_sums(at.object.fid, piece.offset, write_id, parts));
        let message = WritePieces {
            object: at.object.clone(),
            sums: sums.collect(),
            pieces: request.pieces,
            write_id,
            file_bytes,
            attr_epoch: at.attr_epoch,
            granted_bytes,
        };
        let bulk = request.parts.into_iter().flatten().collect();
        let call = Call { bulk, fid: Some(file.fid()), ..Call::level(self.level_of(file)) };
        let called = self.ost_of(at, request.ost).await?.data_call(&message, call).await;
        self.inner.write_back.room.asked(request.ost, granted_bytes, &called);
        let called = called?;
        self.object_written(file.state(), at, file_bytes, &called);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Dice;

    /// Whatever the layout, each byte goes to where a write of it alone would put it, in requests that the OST takes.
    #[test]
    fn every_byte_goes_to_its_place_in_few_requests() {
        for seed in 0..300 {
            let mut dice = Dice::new(seed);
            let layout = dice.layout();
            let (length, stride) = (1 + dice.below(50_000), 60_000 + dice.below(200_000));
            let start = dice.below(1 << 20);
            let run = |i: u64, dice: &mut Dice| Run {
                offset: start + i * stride,
                parts: vec![dice.bytes(length as usize).into()],
            };
            let runs: Vec<Run> = (0..1 + dice.below(40)).map(|i| run(i, &mut dice)).collect();
            let runs: Vec<Run> =
                runs.into_iter().filter(|run| layout.first_gap(run.offset, run.len() as u64).is_none()).collect();
            let mut objects: BTreeMap<(u32, u64), u8> = BTreeMap::new();
            let requests = plan_scattered(&layout, &runs, 256 << 10);
            for request in &requests {
                assert!(request.bytes <= 256 << 10, "seed {seed}");
                let ends = request.pieces.windows(2);
                assert!(ends.into_iter().all(|two| two[0].offset + u64::from(two[0].length) < two[1].offset));
                for (piece, parts) in request.pieces.iter().zip(&request.parts) {
                    let bytes = parts.concat();
                    assert_eq!(bytes.len(), piece.length as usize, "seed {seed}");
                    let places = bytes.iter().zip(piece.offset..);
                    places.for_each(|(byte, at)| assert!(objects.insert((request.ost, at), *byte).is_none()));
                }
            }
            let mut whole = 0;
            for run in &runs {
                for range in plan(&layout, run.offset, run.len() as u64, 64 << 20) {
                    let bytes = Payload::from(run.parts.clone()).gather(run.offset, &range.ranges).concat();
                    whole += bytes.len();
                    let places = bytes.iter().zip(range.offset..);
                    places.for_each(|(byte, at)| assert_eq!(objects.get(&(range.ost, at)), Some(byte), "seed {seed}"));
                }
            }
            assert_eq!(objects.len(), whole, "seed {seed}");
            assert!(requests.len() <= whole / (100 << 10) + 24, "seed {seed}: {} requests", requests.len());
        }
    }
}
