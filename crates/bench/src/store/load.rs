//! Operations on the store: writes and deletes, with the rows that an OSS writes with them.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use bytes::Bytes;
use forebay_env::{AlignedBuf, Env};
use forebay_oss::ObjectRow;
use forebay_proto::{Fid, Transno, WriteId, crc, limits::BLOCK_BYTES};
use forebay_store::{Fragment, Store, StoreResult, Txn};

use super::args::APPEND_BYTES;
use crate::ior::SplitMix64;

/// Buffers that are written in turn.
const BUFFERS: usize = 16;
/// Bytes of the row that keeps a request's reply, as the target writes it.
const REPLY_ROW_BYTES: usize = 40;

/// A buffer of 1 MiB and the plain sums of its blocks.
struct Buffer {
    bytes: Bytes,
    plain: Vec<u64>,
}

/// A store under load. Clones share it.
#[derive(Clone)]
pub struct Load {
    env: Env,
    store: Store,
    buffers: Rc<Vec<Buffer>>,
    written: Rc<Cell<u64>>,
    transno: Rc<Cell<Transno>>,
    sums_in_time: bool,
}

impl Load {
    /// Load on an open store.
    pub fn new(env: &Env, store: Store, sums_in_time: bool) -> Self {
        let buffers = Rc::new((0..BUFFERS as u64).map(buffer).collect());
        let transno = Rc::new(Cell::new(Transno::new(store.incarnation(), 0)));
        Self { env: env.clone(), store, buffers, written: Rc::default(), transno, sums_in_time }
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Appends 1 MiB at `offset`, aligned as the server's receive buffers are.
    pub async fn append(&self, fid: Fid, offset: u64) -> StoreResult<()> {
        let buffer = &self.buffers[self.written.get() as usize % BUFFERS];
        let write_id = self.next_write_id();
        let block = |(number, (at, length)): (usize, (u64, u64))| {
            if self.sums_in_time {
                let begin = (at - offset) as usize;
                return crc::block_sum(fid, at, write_id, &buffer.bytes[begin..begin + length as usize]);
            }
            crc::seal(fid, at, write_id, buffer.plain[number], length)
        };
        let sums = crc::blocks(offset, APPEND_BYTES, BLOCK_BYTES).enumerate().map(block).collect();
        self.write(fid, offset, buffer.bytes.clone(), write_id, sums).await
    }

    /// Overwrites `length` bytes at any `offset`, and computes their sums.
    pub async fn overwrite(&self, fid: Fid, offset: u64, length: u64) -> StoreResult<()> {
        let write_id = self.next_write_id();
        let bytes = self.buffers[self.written.get() as usize % BUFFERS].bytes.slice(..length as usize);
        let block = |(at, length): (u64, u64)| {
            let begin = (at - offset) as usize;
            crc::block_sum(fid, at, write_id, &bytes[begin..begin + length as usize])
        };
        let sums = crc::blocks(offset, length, BLOCK_BYTES).map(block).collect();
        self.write(fid, offset, bytes.clone(), write_id, sums).await
    }

    /// Destroys an object.
    pub async fn destroy(&self, fid: Fid) -> StoreResult<()> {
        let version = self.next_transno();
        self.store.prefetch(&[forebay_oss::key(fid)]).await?;
        self.store.prefetch_extents(fid, 0..u64::MAX).await?;
        let mut txn = self.store.begin();
        txn.destroy(fid, version)?;
        txn.delete(forebay_oss::key(fid));
        txn.set_transno(version);
        txn.apply().map(drop)
    }

    async fn write(&self, fid: Fid, offset: u64, data: Bytes, write_id: WriteId, sums: Vec<u64>) -> StoreResult<()> {
        let length = data.len() as u64;
        let room = self.store.reserve(length, 1).await?;
        let version = self.next_transno();
        let placed = self
            .store
            .place(room, vec![Fragment { fid, offset, data, write_id, version, generation: 1, sums }])
            .await?;
        self.store.prefetch(&[&forebay_oss::key(fid)[..], &reply_key(version)]).await?;
        self.store.prefetch_extents(fid, offset..offset + length).await?;
        let mut txn = self.store.begin();
        txn.insert(placed)?;
        self.put_rows(&mut txn, fid, offset + length, version);
        txn.set_transno(version);
        txn.apply().map(drop)
    }

    fn put_rows(&self, txn: &mut Txn, fid: Fid, end: u64, version: Transno) {
        let row = ObjectRow { object_bytes: end, file_bytes: end, transno: version, ..ObjectRow::default() };
        txn.put(forebay_oss::key(fid), row.to_bytes());
        txn.put(reply_key(version), vec![0; REPLY_ROW_BYTES]);
    }

    fn next_write_id(&self) -> WriteId {
        self.written.set(self.written.get() + 1);
        WriteId { client: 1, sequence: self.written.get() }
    }

    /// Assigned at the start of a write, not in the order of applying as a target does; the store does not check that.
    fn next_transno(&self) -> Transno {
        self.transno.set(Transno(self.transno.get().0 + 1));
        self.transno.get()
    }

    /// Runs jobs 0 to `jobs` - 1, `depth` at a time; ends at the first error.
    pub async fn run<F>(&self, jobs: u64, depth: u32, job: impl Fn(Load, u64) -> F + 'static) -> StoreResult<()>
    where
        F: Future<Output = StoreResult<()>> + 'static,
    {
        let next = Rc::new(Cell::new(0));
        let failed = Rc::new(RefCell::new(None));
        let job = Rc::new(job);
        let worker = |_| {
            let (load, next, failed, job) = (self.clone(), next.clone(), failed.clone(), job.clone());
            self.env.spawn(async move {
                while next.get() < jobs && failed.borrow().is_none() {
                    let number = next.replace(next.get() + 1);
                    if let Err(error) = job(load.clone(), number).await {
                        failed.borrow_mut().get_or_insert(error);
                    }
                }
            })
        };
        let workers: Vec<_> = (0..depth).map(worker).collect();
        for worker in workers {
            worker.await;
        }
        failed.take().map_or(Ok(()), Err)
    }
}

/// A fid from a client's sequence.
pub fn fid(number: u64) -> Fid {
    Fid { high: 0, low: 1 << 20 | number }
}

fn buffer(number: u64) -> Buffer {
    let mut bytes = AlignedBuf::zeroed(APPEND_BYTES as usize);
    let mut random = SplitMix64(number);
    bytes.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.next_u64().to_le_bytes()));
    let bytes = bytes.freeze();
    let plain = bytes.chunks(BLOCK_BYTES as usize).map(crc::crc64).collect();
    Buffer { bytes, plain }
}

/// Key of the row that keeps a reply: one of 16 slots of one session.
fn reply_key(transno: Transno) -> [u8; 11] {
    let mut key = [0x11; 11];
    key[1..9].copy_from_slice(&1u64.to_be_bytes());
    key[9..].copy_from_slice(&((transno.0 % 16) as u16).to_be_bytes());
    key
}
