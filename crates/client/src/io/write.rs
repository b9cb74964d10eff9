//! Writes: planned by the layout, summed once, several requests in flight per OST; the size is raised last.
//!
//! A write through and a flush of buffered runs take the same path, [`Client::write_once`].
//! Invariant: a write is acknowledged only when every request, and the raise of the size it needs, was replied.
//! Invariant: the bytes are not copied here; slices of them go to the socket and stay pinned until they are committed.

use std::collections::BTreeSet;

use forebay_env::{Boxed, Bug, planted};
use forebay_proto::{
    Errno,
    limits::FILE_BYTES,
    message::{CommitLevel, Piece, Sync, WriteObject, WritePieces, WriteReply},
};
use forebay_rpc::{Call, Called};

use crate::{
    Client, ClientError, ClientResult, OpenFile,
    delayed::granted_space::request_cost,
    delayed::queue::Scope,
    errors::Trouble,
    io::plan::{ObjectRange, ObjectRequest, plan_write},
    io::snapshot::Snapshot,
    limits,
    payload::{Payload, Run},
    session::instance::ClientInstance,
    tasks::{all, detached, worst},
};

/// What came of an attempt.
#[derive(Debug)]
pub(crate) struct Written {
    /// So many bytes, from the first on, are there.
    pub bytes: usize,
    /// Why the next are not, if some are missing.
    pub cut: Option<ClientError>,
}

/// What came of one request.
struct WriteOutcome {
    ost: u32,
    /// Its first byte in the file.
    start: u64,
    /// How far it has raised the size.
    result: Result<u64, Trouble>,
}

impl Client {
    /// Writes `data` (its parts one after another) at `offset`; returns how many bytes: fewer than given only if the
    /// rest failed, which a call for the rest would report.
    ///
    /// The parts are not copied: they go to the socket as they are and stay pinned until they are committed.
    pub async fn write(&self, file: &OpenFile, offset: u64, data: impl Into<Payload>) -> ClientResult<usize> {
        self.write_payload(file, offset, data.into()).await
    }

    fn write_payload<'a>(&'a self, file: &'a OpenFile, offset: u64, data: Payload) -> Boxed<'a, ClientResult<usize>> {
        Box::pin(async move {
            let instance = file.check_write()?;
            let length = writable(offset, data.len())?;
            if length == 0 {
                return Ok(0);
            }
            let busy = file.state().busy();
            if file.state().inline.is_there() {
                self.outline(file.state()).await?;
            }
            let changing = self.bytes_change(file.fid(), offset..offset + length as u64);
            if length == data.len() && self.buffer_write(file, offset, &data, instance).await {
                return Ok(length);
            }
            let (client, file, run) = (self.clone(), file.clone(), data.into_run(offset, length));
            let held = (busy, changing);
            detached(self.env(), async move {
                let written = client.write_through(&file, run, instance).await;
                drop(held);
                written
            })
            .await
        })
    }

    /// Sends what is buffered before it, then `run`.
    async fn write_through(&self, file: &OpenFile, run: Run, instance: ClientInstance) -> ClientResult<usize> {
        self.flush_delayed(Scope::SetAttr(file.fid())).await;
        let _writing = self.begin_write(file.state(), run.offset, run.len() as u64).await?;
        self.flush_own_writes_through(file).await?;
        file.inner.wrote.set(true);
        if run.offset > file.state().size.borrow().seen() {
            file.state().activity.sparse.set(true);
        }
        let written = self.write_run(file, &run, &|| file.snapshot_in(instance)).await?.bytes;
        self.wrote(file, written).await?;
        Ok(written)
    }

    /// Writes `runs`, which are in order and apart: all of them at once, or else each alone, as much of it as there is
    /// space for, and where OSTs are missing. `lost` receives why bytes are not there, for each run that misses some.
    ///
    /// Order: one run after another. One that goes elsewhere as its OST is full does so at the end of the file, and is not to find those
    /// behind it there already. `at`: what the requests of an attempt carry.
    pub(crate) async fn write_runs(
        &self,
        file: &OpenFile,
        runs: &[Run],
        at: &dyn Fn() -> Result<Snapshot, Trouble>,
        lost: &dyn Fn(&ClientError),
    ) {
        for (number, run) in runs.iter().enumerate() {
            // Behind the first once more: it may have been the only one for which OSTs were missing.
            if number < 2 && self.write_at_once(file, &runs[number..], at).await {
                break;
            }
            match self.write_run(file, run, at).await {
                Ok(Written { cut: None, .. }) => {}
                Ok(Written { bytes, cut: Some(error) }) => {
                    let words = format!("{} of its bytes: {error}", run.len() - bytes);
                    lost(&ClientError::new(error.errno, words));
                }
                Err(error) => lost(&error),
            }
        }
    }

    /// Several runs, in few requests. False: some of them may not be there.
    async fn write_at_once(&self, file: &OpenFile, runs: &[Run], at: &dyn Fn() -> Result<Snapshot, Trouble>) -> bool {
        let once = async || self.write_once(file, &at()?, runs).await;
        runs.len() > 1 && self.try_fresh(file.state(), once).await.is_ok()
    }

    /// Writes `run`, again and again until the epoch was current; fails only if nothing is written.
    ///
    /// A stale attempt is repeated whole: then all of it lies after the truncate that made it stale. `at`: what the requests of an
    /// attempt carry.
    pub(crate) async fn write_run(
        &self,
        file: &OpenFile,
        run: &Run,
        at: &dyn Fn() -> Result<Snapshot, Trouble>,
    ) -> ClientResult<Written> {
        let (length, mut written) = (run.len(), 0);
        while written < length {
            // Bytes for which an OST has no space go to another one, if what came before is there: as a write of their
            // own.
            let rest = [run.skip(written)];
            let once = async || self.write_once(file, &at()?, &rest).await;
            match self.roomy(file, once).await {
                Ok(Written { bytes, cut }) => {
                    written += bytes;
                    // Parts behind one that was lost are there, and others may have written over them since: not again.
                    if cut.as_ref().is_some_and(|error| error.errno != Errno::ENOSPC) {
                        return Ok(Written { bytes: written, cut });
                    }
                }
                Err(error) if written == 0 => return Err(error),
                Err(error) => return Ok(Written { bytes: written, cut: Some(error) }),
            }
        }
        Ok(Written { bytes: written, cut: None })
    }

    /// What is due when a write of `bytes` has been replied.
    pub(crate) async fn wrote(&self, file: &OpenFile, bytes: usize) -> ClientResult<()> {
        if file.mode().sync {
            self.make_name_durable(file).await?;
        }
        self.inner.counters.written(bytes);
        Ok(())
    }

    /// One attempt to write `runs`, which are in order and apart, under the epochs of `at`. Of a single run some may be written;
    /// several are, or it fails, and then some of them may be there.
    pub(crate) async fn write_once(&self, file: &OpenFile, at: &Snapshot, runs: &[Run]) -> Result<Written, Trouble> {
        if let Some((offset, length)) = runs.iter().find_map(|run| at.layout.first_gap(run.offset, run.len() as u64)) {
            return Err(Trouble::Bare(offset, length));
        }
        let level = self.level_of(file);
        let writes = plan_write(&at.layout, runs, self.inner.options.max_rpc_bytes);
        let outcomes = self.execute(file, at, writes, level).await;
        let raised = outcomes.iter().filter_map(|outcome| outcome.result.as_ref().ok().copied()).max().unwrap_or(0);
        let (written, end) = came_of(at, runs, outcomes)?;
        if end > raised && !(at.is_buffered && planted(Bug::BufferedSizeNotRaised)) {
            self.raise(file.state(), at, end, level).await?;
        }
        // Else it is done, in the epoch of `at`: a truncate that came since lies after it, and it must not be done again.
        Ok(written)
    }

    /// Sends what was planned, all at once but for the bound of each OST. The outcomes are in the order of the plan.
    async fn execute(
        &self,
        file: &OpenFile,
        at: &Snapshot,
        writes: Vec<ObjectRequest>,
        level: CommitLevel,
    ) -> Vec<WriteOutcome> {
        // The size comes last: raised with one of several parts it would cover another that fails.
        let carries = writes.len() == 1;
        let places: Vec<_> = writes.iter().map(|write| (write.ost, write.file_start())).collect();
        let sends = writes.into_iter().map(|write| {
            let (client, file, at) = (self.clone(), file.clone(), at.clone());
            async move { client.send_write(&file, &at, write, level, carries).await }
        });
        let results = all(self.env(), sends).await;
        places.into_iter().zip(results).map(|((ost, start), result)| WriteOutcome { ost, start, result }).collect()
    }

    /// One request. At the home it carries the size too, if it `carries` it: else what is known of it. Returns how far it has raised
    /// the size.
    async fn send_write(
        &self,
        file: &OpenFile,
        at: &Snapshot,
        write: ObjectRequest,
        level: CommitLevel,
        carries: bool,
    ) -> Result<u64, Trouble> {
        let is_home = write.ost == at.layout.home();
        let end = if carries && is_home { write.file_end() } else { 0 };
        let file_bytes = if is_home { end.max(at.seen) } else { 0 };
        let called = self.call_write(file, at, write, level, file_bytes).await?;
        let state = file.state();
        if file_bytes > 0 {
            state.raised(at, file_bytes, called.transno);
            state.size.borrow_mut().see(at.object.truncate_epoch, called.reply.file_bytes);
        }
        state.told_time(called.reply.attr_epoch.max(at.attr_epoch), called.reply.mtime_ns);
        Ok(end)
    }

    /// The request itself, in the words for one piece if it has only one.
    async fn call_write(
        &self,
        file: &OpenFile,
        at: &Snapshot,
        write: ObjectRequest,
        level: CommitLevel,
        file_bytes: u64,
    ) -> Result<Called<WriteReply>, Trouble> {
        let (write_id, object, attr_epoch) = (self.write_id(), at.object.clone(), at.attr_epoch);
        let sums = write.sums(object.fid, write_id);
        let ObjectRequest { ost, pieces, bytes, parts } = write;
        let granted_bytes = if at.is_buffered { request_cost(bytes, pieces.len()) } else { 0 };
        let call = Call { bulk: parts, fid: Some(file.fid()), ..Call::level(level) };
        let peer = self.ost_of(at, ost).await?;
        let called = if let [one] = &pieces[..] {
            let Piece { offset, length } = one.piece();
            let message = WriteObject { object, offset, length, write_id, sums, file_bytes, attr_epoch, granted_bytes };
            peer.data_call(&message, call).await
        } else {
            let pieces = pieces.iter().map(ObjectRange::piece).collect();
            let message = WritePieces { object, pieces, write_id, sums, file_bytes, attr_epoch, granted_bytes };
            peer.data_call(&message, call).await
        };
        self.inner.write_back.room.asked(ost, granted_bytes, &called);
        Ok(called?)
    }

    /// What a change of the objects of a file is sent with, but for its bytes.
    pub(crate) fn change_call(&self, file: &OpenFile) -> Call {
        Call { fid: Some(file.fid()), ..Call::level(self.level_of(file)) }
    }

    /// A durable write to a file whose name is not durable would be lost with it.
    async fn make_name_durable(&self, file: &OpenFile) -> ClientResult<()> {
        let names = Some(file.state().activity.links.get());
        if file.inner.named.get() != names {
            self.mdt(file.fid(), &Sync { fid: Some(file.fid()) }).await?;
            file.inner.named.set(names);
        }
        Ok(())
    }
}

/// How many of `length` bytes one call writes at `offset`.
pub(crate) fn writable(offset: u64, length: usize) -> ClientResult<usize> {
    if length > 0 && offset >= FILE_BYTES {
        return Err(Errno::EFBIG.into());
    }
    Ok((length.min(limits::CALL_BYTES) as u64).min(FILE_BYTES.saturating_sub(offset)) as usize)
}

/// What came of an attempt to write `runs`, and how long the file is by it. Pure.
fn came_of(at: &Snapshot, runs: &[Run], outcomes: Vec<WriteOutcome>) -> Result<(Written, u64), Trouble> {
    let (first, end) = (runs[0].offset, runs.last().map_or(0, Run::end));
    let failed = outcomes.iter().filter(|outcome| outcome.result.is_err()).map(|outcome| outcome.start).min();
    let (bytes, end) = match failed {
        None => (runs.iter().map(Run::len).sum(), end),
        Some(start) if runs.len() == 1 => ((start - first) as usize, start),
        Some(_) => (0, first),
    };
    if bytes == 0 && first >= at.seen {
        full(first, &outcomes)?;
    }
    let cut = match worst(outcomes.into_iter().filter_map(|outcome| outcome.result.err())) {
        Some(trouble) if bytes == 0 || matches!(trouble, Trouble::Stale(_)) => return Err(trouble),
        Some(Trouble::Failed(error) | Trouble::Full(_, _, error)) => Some(error),
        Some(Trouble::Bare(..) | Trouble::Stale(_)) | None => None,
    };
    Ok((Written { bytes, cut }, end))
}

/// Fails with the OSTs that had no room, if one of those is why nothing was written. Pure.
fn full(offset: u64, outcomes: &[WriteOutcome]) -> Result<(), Trouble> {
    let mut osts = BTreeSet::new();
    let mut first = None;
    for WriteOutcome { ost, result, .. } in outcomes {
        match result {
            Err(Trouble::Failed(error)) if error.errno == Errno::ENOSPC => {
                osts.insert(*ost);
                first.get_or_insert(error.clone());
            }
            Err(_) => return Ok(()),
            Ok(_) => {}
        }
    }
    first.map_or(Ok(()), |error| Err(Trouble::Full(offset, osts.into_iter().collect(), error)))
}

#[cfg(test)]
mod tests {
    use forebay_proto::{Fid, Layout, message::ObjectRef};

    use super::*;

    fn snapshot() -> Snapshot {
        let object = ObjectRef { fid: Fid { high: 0, low: 9 }, layout_generation: 1, truncate_epoch: 1 };
        let layout = Layout::plain(1, 64 << 10, vec![0, 1]);
        let (is_buffered, instance) = Default::default();
        Snapshot { layout: layout.into(), object, attr_epoch: 1, seen: 10, is_buffered, instance }
    }

    fn run(offset: u64, length: usize) -> Run {
        Run { offset, parts: vec![vec![0; length].into()] }
    }

    fn no_room() -> Trouble {
        Trouble::Failed(Errno::ENOSPC.into())
    }

    /// What comes of writing `runs` if the requests to `failing` fail.
    fn attempt(runs: &[Run], failing: &[u32], trouble: fn() -> Trouble) -> Result<(Written, u64), Trouble> {
        let at = snapshot();
        let outcome = |request: ObjectRequest| WriteOutcome {
            ost: request.ost,
            start: request.file_start(),
            result: if failing.contains(&request.ost) { Err(trouble()) } else { Ok(0) },
        };
        came_of(&at, runs, plan_write(&at.layout, runs, 1 << 20).into_iter().map(outcome).collect())
    }

    #[test]
    fn a_failed_request_leaves_the_bytes_before_it() {
        let runs = [run(1000, 200_000)];
        let all = attempt(&runs, &[], no_room);
        assert!(matches!(all, Ok((Written { bytes: 200_000, cut: None }, 201_000))), "{all:?}");
        let some = attempt(&runs, &[1], no_room);
        assert!(matches!(some, Ok((Written { bytes: 64_536, cut: Some(_) }, 65_536))), "{some:?}");
        let none = attempt(&runs, &[0], no_room);
        assert!(matches!(&none, Err(Trouble::Full(1000, osts, _)) if *osts == [0]), "{none:?}");
        let inside = attempt(&[run(0, 200_000)], &[0], no_room);
        assert!(matches!(inside, Err(Trouble::Failed(_))), "{inside:?}: what lies in the file stays on its OSTs");
    }

    #[test]
    fn several_runs_are_written_or_fail_and_a_stale_request_makes_all_stale() {
        let runs = [run(1000, 500), run(70_000, 500), run(150_000, 500)];
        let all = attempt(&runs, &[], no_room);
        assert!(matches!(all, Ok((Written { bytes: 1500, cut: None }, 150_500))), "{all:?}");
        assert!(attempt(&runs, &[1], no_room).is_err());
        let stale = || Trouble::Stale(Errno::STALE_EPOCH.into());
        let some = attempt(&[run(1000, 200_000)], &[1], stale);
        assert!(matches!(some, Err(Trouble::Stale(_))), "{some:?}");
    }

    #[test]
    fn a_call_ends_at_the_largest_size_of_a_file() {
        assert_eq!(writable(FILE_BYTES - 10, 100), Ok(10));
        assert_eq!(writable(FILE_BYTES, 1), Err(Errno::EFBIG.into()));
        assert_eq!(writable(u64::MAX, 0), Ok(0));
        assert_eq!(writable(0, usize::MAX), Ok(limits::CALL_BYTES));
    }
}
