//! One worker: it runs what its player draws through the client library, and records each operation with its call and
//! return times.

use std::{cell::RefCell, collections::BTreeMap, fmt, rc::Rc, time::Duration};

use forebay_client::{
    Client, ClientError, ClientResult, LockOutcome, LockSpec, OpenFile, OpenMode, SetAttributes, lock_kind, lock_mode,
};
use forebay_env::Env;
use forebay_history::{Event, Kind, Player, file, lock, log, names, stamp};
use forebay_proto::{Errno, Fid};

use super::{kernel::Kernel, stage::Stage};
use crate::workload::caller;

/// Bytes that one read of a whole file requests. On a file with one target this is one request.
const WHOLE_BYTES: usize = 128 << 10;
/// The same on a file with several targets.
const STRIPED_BYTES: usize = 1 << 20;
/// Offset of the counter under flock. The counter of a range is at eight times the range's number.
const FLOCK_COUNTER: u64 = 4096;

/// The events of all workers. They outlive clients.
pub type Notes = Rc<RefCell<Vec<Event>>>;

/// Why a worker stops.
#[derive(Debug)]
pub enum Stop {
    /// A call failed with an error that is not an answer.
    Failed(ClientError),
    /// A read or size is impossible in any history.
    Wrong(String),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Failed(error) => write!(f, "a call failed: {error}"),
            Stop::Wrong(what) => f.write_str(what),
        }
    }
}

impl From<ClientError> for Stop {
    fn from(error: ClientError) -> Self {
        Self::Failed(error)
    }
}

/// Runs a worker's operations.
pub struct Actor {
    pub env: Env,
    pub client: Client,
    /// The model of the kernel above the client, shared by its workers. `None`: the worker uses the library.
    pub kernel: Option<Rc<Kernel>>,
    pub notes: Notes,
    pub stage: Rc<Stage>,
    pub worker: u32,
    /// The client buffers writes: an acknowledged one dies with the client unless it has released the lock.
    pub keeps_back: bool,
    /// Files kept open, by object.
    pub open: BTreeMap<u32, OpenFile>,
}

type Ask = forebay_history::Ask;

impl Actor {
    /// Runs one operation.
    pub async fn run(&mut self, object: u32, ask: Ask, player: &RefCell<Player>) -> Result<(), Stop> {
        let (fid, kind) = (self.stage.fids[object as usize], self.stage.kinds[object as usize]);
        match ask {
            Ask::Name(names::Ask::Links(name), _) => self.links(object, fid, name as u32).await,
            Ask::Name(ask, _) => {
                let note = self.begin(object, Ask::Name(ask.clone(), None));
                let answer = self.name(fid, &ask).await?;
                self.end(note, Ask::Name(ask, Some(answer)));
                Ok(())
            }
            Ask::Bytes(ask, _) => {
                let keeps = !player.borrow_mut().one_in(3);
                if ask == file::Ask::Truncate(0) && !keeps {
                    return self.cut_by_open(object, fid).await;
                }
                let file = self.opened(object, fid).await?;
                let by_handle = keeps.then_some(&file);
                let note = self.begin(object, Ask::Bytes(ask.clone(), None));
                let answer = self.bytes(&file, by_handle, kind, &ask).await?;
                self.end(note, Ask::Bytes(ask, Some(answer)));
                self.maybe_close(object, keeps).await
            }
            Ask::Log(ask, _) => {
                let keeps = !player.borrow_mut().one_in(5);
                let file = self.opened(object, fid).await?;
                let note = self.begin(object, Ask::Log(ask.clone(), None));
                let answer = self.log(&file, kind, &ask).await?;
                self.end(note, Ask::Log(ask, Some(answer)));
                self.maybe_close(object, keeps).await
            }
            Ask::Lock(ask, _) => {
                let file = self.opened(object, fid).await?;
                self.lock(object, &file, ask).await
            }
        }
    }

    /// Writes to a file and keeps it open.
    pub async fn run_kept_open(&mut self, object: u32, ask: Ask) -> Result<(), Stop> {
        let (fid, kind) = (self.stage.fids[object as usize], self.stage.kinds[object as usize]);
        let Ask::Bytes(ask, _) = ask else { unreachable!("it is about bytes") };
        let file = self.opened(object, fid).await?;
        let note = self.begin(object, Ask::Bytes(ask.clone(), None));
        let answer = self.bytes(&file, Some(&file), kind, &ask).await?;
        self.end(note, Ask::Bytes(ask, Some(answer)));
        Ok(())
    }

    /// Closes all open files.
    pub async fn finish(&mut self) -> Result<(), Stop> {
        for (_, file) in std::mem::take(&mut self.open) {
            self.client.close(file).await?;
        }
        Ok(())
    }

    fn now(&self) -> u64 {
        self.env.now().0
    }

    fn begin(&self, object: u32, ask: Ask) -> usize {
        let (worker, begun) = (self.worker, self.now());
        self.env.log(&format!("worker {worker}, object {object}: {ask:?}"));
        let mut notes = self.notes.borrow_mut();
        notes.push(Event { object, worker, begun, ended: u64::MAX, ask });
        notes.len() - 1
    }

    fn end(&self, note: usize, ask: Ask) {
        let event = &mut self.notes.borrow_mut()[note];
        self.env.log(&format!("worker {}, object {}, answer: {ask:?}", self.worker, event.object));
        (event.ended, event.ask) = (self.now(), ask);
    }

    async fn opened(&mut self, object: u32, fid: Fid) -> ClientResult<OpenFile> {
        if let Some(file) = self.open.get(&object) {
            return Ok(file.clone());
        }
        let file = self.client.open(&caller(), fid, OpenMode::READ_WRITE).await?;
        self.open.insert(object, file.clone());
        Ok(file)
    }

    async fn maybe_close(&mut self, object: u32, keeps: bool) -> Result<(), Stop> {
        if !keeps && let Some(file) = self.open.remove(&object) {
            self.client.close(file).await?;
        }
        Ok(())
    }

    async fn name(&self, dir: Fid, ask: &names::Ask) -> ClientResult<names::Answer> {
        use names::{Answer, Ask};
        let result = match (ask, &self.kernel) {
            (Ask::Links(number), _) => {
                let attr = self.client.getattr(Fid { high: 0, low: *number }, None).await;
                attr.map(|attr| Answer::Count(attr.nlink))
            }
            (_, None) => self.name_of_client(dir, ask).await,
            (_, Some(kernel)) => self.name_of_kernel(kernel, dir, ask).await,
        };
        match result {
            Err(error) if error.errno == Errno::ENOENT => Ok(Answer::Absent),
            Err(error) if error.errno == Errno::ESTALE && matches!(ask, Ask::Link(..) | Ask::Links(_)) => {
                Ok(Answer::Absent)
            }
            Err(error) if error.errno == Errno::EEXIST => Ok(Answer::Exists),
            other => other,
        }
    }

    async fn name_of_client(&self, dir: Fid, ask: &names::Ask) -> ClientResult<names::Answer> {
        use names::{Answer, Ask};
        let (client, caller) = (&self.client, &caller());
        let rename = async |from: &u32, to: &u32, flags| {
            client.rename(caller, (dir, &text(from)), (dir, &text(to)), flags).await.map(|()| Answer::Done)
        };
        match ask {
            Ask::Create(name) => self.make(dir, &text(name)).await.map(|fid| Answer::File(fid.low)),
            Ask::Link(from, to) => {
                let attr = client.lookup(caller, dir, &text(from)).await?;
                client.link(caller, attr.fid, dir, &text(to)).await.map(|_| Answer::Done)
            }
            Ask::Rename(from, to) => rename(from, to, 0).await,
            Ask::Move(from, to) => rename(from, to, 1).await,
            Ask::Exchange(from, to) => rename(from, to, 2).await,
            Ask::Unlink(name) => client.unlink(caller, dir, &text(name)).await.map(|()| Answer::Done),
            Ask::Look(name) => client.lookup(caller, dir, &text(name)).await.map(|attr| Answer::File(attr.fid.low)),
            Ask::Links(_) => unreachable!("it is not about a name"),
        }
    }

    async fn make(&self, dir: Fid, name: &[u8]) -> ClientResult<Fid> {
        let mode = OpenMode { exclusive: true, ..OpenMode::READ_WRITE };
        let made = self.client.create_pending(&caller(), dir, name, 0o644, mode).await;
        made.map(|(attr, _closed_when_dropped)| attr.fid)
    }

    /// Changes or looks up a name like the kernel: first what it has cached, then the request, then the reply updates
    /// its cache.
    async fn name_of_kernel(&self, kernel: &Kernel, dir: Fid, ask: &names::Ask) -> ClientResult<names::Answer> {
        use names::{Answer, Ask};
        if let Ask::Look(name) = ask {
            return Ok(kernel.look(dir, &text(name)).await?.map_or(Answer::Absent, Answer::File));
        }
        let lock = kernel.lock_of(dir);
        let _alone = lock.write().await;
        let there = async |name: &u32| -> ClientResult<u64> {
            Ok(kernel.look_locked(dir, &text(name)).await?.ok_or(Errno::ENOENT)?)
        };
        let (taken, changed) = match ask {
            Ask::Create(name) => {
                if kernel.look_locked(dir, &text(name)).await?.is_some() {
                    return Ok(Answer::Exists);
                }
                let asked = kernel.asks();
                let made = self.make(dir, &text(name)).await?;
                kernel.told(asked, dir, &text(name), Some(made)).await;
                return Ok(Answer::File(made.low));
            }
            Ask::Unlink(name) => (name, vec![name]),
            Ask::Link(from, to) | Ask::Rename(from, to) | Ask::Exchange(from, to) | Ask::Move(from, to) => {
                (from, vec![from, to])
            }
            Ask::Look(_) | Ask::Links(_) => unreachable!("it changes nothing"),
        };
        there(taken).await?;
        match ask {
            Ask::Exchange(_, to) => drop(there(to).await?),
            Ask::Move(_, to) | Ask::Link(_, to) if kernel.look_locked(dir, &text(to)).await?.is_some() => {
                return Ok(Answer::Exists);
            }
            _ => {}
        }
        let answer = self.name_of_client(dir, ask).await;
        let names: Vec<Vec<u8>> = changed.into_iter().map(text).collect();
        kernel.changed(dir, &names.iter().map(|name| &name[..]).collect::<Vec<_>>()).await;
        answer
    }

    /// Looks up a name, then reads the link count of its file.
    async fn links(&self, object: u32, dir: Fid, name: u32) -> Result<(), Stop> {
        let mut ask = names::Ask::Look(name);
        loop {
            let note = self.begin(object, Ask::Name(ask.clone(), None));
            let answer = self.name(dir, &ask).await?;
            self.end(note, Ask::Name(ask.clone(), Some(answer.clone())));
            match answer {
                // Through a kernel no program can address a file by its inode number.
                names::Answer::File(number) if self.kernel.is_none() => ask = names::Ask::Links(number),
                _ => return Ok(()),
            }
        }
    }

    async fn cut_by_open(&self, object: u32, fid: Fid) -> Result<(), Stop> {
        let note = self.begin(object, Ask::Bytes(file::Ask::Truncate(0), None));
        let mode = OpenMode { truncate: true, ..OpenMode::READ_WRITE };
        let file = self.client.open(&caller(), fid, mode).await?;
        self.end(note, Ask::Bytes(file::Ask::Truncate(0), Some(file::Answer::Done)));
        Ok(self.client.close(file).await?)
    }

    async fn bytes(
        &self,
        file: &OpenFile,
        by_handle: Option<&OpenFile>,
        kind: Kind,
        ask: &file::Ask,
    ) -> Result<file::Answer, Stop> {
        use file::{Answer, Ask};
        let (client, bytes) = (&self.client, kind.cell_bytes());
        Ok(match *ask {
            Ask::Write { at, cells, tag } => {
                let data = stamp::bytes(tag, cells, bytes);
                let length = data.len();
                let written = client.write(file, u64::from(at) * bytes as u64, data).await?;
                if written < length {
                    // Part of the write failed. The servers have enough space, so the client has lost a server.
                    let words = format!("{written} of {length} bytes were written");
                    return Err(Stop::Failed(ClientError::new(Errno::EIO, words)));
                }
                Answer::Done
            }
            Ask::Append { cells, tag } => {
                client.append(file, stamp::bytes(tag, cells, bytes)).await?;
                Answer::Done
            }
            Ask::Truncate(cells) => {
                let size = Some(u64::from(cells) * bytes as u64);
                let changes = SetAttributes { size, ..SetAttributes::default() };
                client.setattr(&caller(), file.fid(), changes, by_handle).await?;
                Answer::Done
            }
            Ask::Read => {
                let most = if matches!(kind, Kind::Striped | Kind::Shared) { STRIPED_BYTES } else { WHOLE_BYTES };
                let seen = client.read(file, 0, most).await?;
                Answer::Cells(stamp::cells(&seen, bytes).map_err(Stop::Wrong)?)
            }
            Ask::Size => Answer::Size(self.size(file, by_handle, bytes).await? as u32),
        })
    }

    async fn size(&self, file: &OpenFile, by_handle: Option<&OpenFile>, cell_bytes: usize) -> Result<u64, Stop> {
        let size = self.client.getattr(file.fid(), by_handle).await?.size;
        if size.is_multiple_of(cell_bytes as u64) {
            return Ok(size / cell_bytes as u64);
        }
        Err(Stop::Wrong(format!("{} has {size} bytes; everything is written in cells of {cell_bytes}", file.fid())))
    }

    async fn log(&self, file: &OpenFile, kind: Kind, ask: &log::Ask) -> Result<log::Answer, Stop> {
        let bytes = kind.cell_bytes();
        Ok(match *ask {
            log::Ask::Append { cells, tag } => {
                let at = self.client.append(file, stamp::bytes(tag, cells, bytes)).await?;
                log::Answer::At(Some(at / bytes as u64))
            }
            log::Ask::Read { from, cells } => {
                let seen = self.client.read(file, from * bytes as u64, cells as usize * bytes).await?;
                log::Answer::Cells(stamp::cells(&seen, bytes).map_err(Stop::Wrong)?)
            }
            log::Ask::Size => log::Answer::Size(self.size(file, Some(file), bytes).await?),
        })
    }

    /// Takes a lock and holds it. If the lock has a counter, increments that. Then releases the lock.
    async fn lock(&self, object: u32, file: &OpenFile, ask: lock::Ask) -> Result<(), Stop> {
        let note = self.begin(object, Ask::Lock(ask.clone(), None));
        let spec = self.spec(&ask);
        if ask.wait {
            self.client.lock(file, spec.clone()).await?;
        } else if self.client.try_lock(file, spec.clone()).await? == LockOutcome::Denied {
            self.end(note, Ask::Lock(ask, Some(lock::Answer::Denied)));
            return Ok(());
        }
        let from = self.now();
        let held = |until, counted| Ask::Lock(ask.clone(), Some(lock::Answer::Held { from, until, counted }));
        let so_far = |until, counted| self.notes.borrow_mut()[note].ask = held(until, counted);
        so_far(from, None);
        self.env.sleep(Duration::from_micros(ask.hold_us.into())).await;
        let mut counted = None;
        if let Some(counter) = ask.counter() {
            let place = counter.map_or(FLOCK_COUNTER, |range| u64::from(range) * 8);
            let seen = self.client.read(file, place, 8).await?;
            let mut number = [0; 8];
            number[..seen.len()].copy_from_slice(&seen);
            let next = u64::from_le_bytes(number) + 1;
            let asked = self.now();
            self.client.write(file, place, next.to_le_bytes().to_vec()).await?;
            counted = Some(next);
            // The write was accepted, so the client was not fenced: it still had the lock when it sent the write.
            so_far(asked, counted.filter(|_| !self.keeps_back));
        }
        let until = self.now();
        self.client.try_lock(file, LockSpec { mode: lock_mode::NONE, ..spec }).await?;
        self.end(note, held(until, counted));
        Ok(())
    }

    fn spec(&self, ask: &lock::Ask) -> LockSpec {
        let (kind, start, end) = match ask.flock {
            true => (lock_kind::FLOCK, 0, i64::MAX as u64),
            false => (lock_kind::FCNTL, u64::from(ask.ranges.0) * 10, u64::from(ask.ranges.1) * 10 + 9),
        };
        let mode = if ask.exclusive { lock_mode::EXCLUSIVE } else { lock_mode::SHARED };
        LockSpec { kind, owner: u64::from(self.worker) + 1, mode, start, end, pid: self.worker + 1, handle: 0 }
    }

    /// Reads everything, and takes every lock: each must become free.
    pub async fn audit(&mut self, player: &RefCell<Player>) -> Result<(), Stop> {
        for (object, kind) in self.stage.kinds.clone().into_iter().enumerate() {
            for ask in Ask::all(kind) {
                self.run(object as u32, ask, player).await?;
            }
        }
        self.finish().await
    }
}

pub(super) fn text(name: &u32) -> Vec<u8> {
    format!("n{name}").into_bytes()
}
