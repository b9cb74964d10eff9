//! The open journal: appends in memory, writes asynchronously, and knows how far it is durable.
//!
//! Invariant: the first failed write or flush stops it for good; a record behind a hole is never acknowledged.
//! Invariant: writes and anchors run as tasks of their own, so a caller that is dropped leaves nothing half done.

use std::{cell::RefCell, rc::Rc};

use bytes::Bytes;
use forebay_env::{AlignedBuf, Bug, Env, EnvResult, planted, sync::Notify};
use forebay_proto::{Incarnation, Uuid};

use super::{
    Anchor, Checkpoint, JournalError, JournalErrorKind, JournalResult, Lsn, Owner, RootLocation,
    geometry::Geometry,
    limits::{RING_BYTES_MIN, RING_START, SECTOR},
    ring::{Batch, Ring},
};
use crate::mirror::Device;

/// The open journal of one target. Clones share it.
#[derive(Clone)]
pub struct Journal {
    inner: Rc<Inner>,
}

struct Inner {
    env: Env,
    disk: Device,
    state: RefCell<State>,
    /// Notified when `state` changes in a way that a caller may wait for.
    changed: Notify,
}

struct State {
    ring: Ring,
    anchoring: bool,
    failure: Option<JournalError>,
}

impl Journal {
    /// Makes `disk` an empty journal; its contents are lost. Errors: `Invalid` if it is too small, `Medium`,
    /// `FlushFailed`.
    pub async fn format(env: &Env, disk: impl Into<Device>, target: Uuid, generation: u32) -> JournalResult<()> {
        let disk: Device = disk.into();
        let geometry = Geometry::of_device(disk.bytes()).ok_or_else(|| too_small(disk.bytes()))?;
        let owner = Owner { target, generation, salt: env.random_u64() };
        let checkpoint = Checkpoint::default();
        let anchor = Anchor {
            seq: 1,
            incarnation: Incarnation(0),
            checkpoint,
            durable: Lsn(0),
            root: None,
            extra: Bytes::new(),
        };
        // Zeros over both anchors and the first record's location, before the new anchor: a crash in between leaves no
        // journal at all.
        let blank = AlignedBuf::zeroed((RING_START + SECTOR) as usize);
        disk.write_durable(0, vec![blank.freeze()]).await?;
        let sector = anchor.encode(&owner, geometry).freeze();
        disk.write_durable(Anchor::device_offset(anchor.seq), vec![sector]).await?;
        Ok(disk.flush().await?)
    }

    pub(super) fn new(env: Env, disk: Device, ring: Ring) -> Self {
        let state = RefCell::new(State { ring, anchoring: false, failure: None });
        Self { inner: Rc::new(Inner { env, disk, state, changed: Notify::new() }) }
    }

    /// Appends a transaction in memory and returns its end. [`Journal::write_out`] makes it durable.
    ///
    /// Errors: `Full` (ask [`Journal::room_for`] first), `Stopped`.
    pub fn append(&self, payload: &[u8]) -> JournalResult<Lsn> {
        self.running()?;
        self.inner.state.borrow_mut().ring.append(payload)
    }

    /// Writes everything appended so far; returns the durable lsn, which is at least the head at the time of the call.
    ///
    /// Several calls may run at once: their writes overlap, but durability advances only over a prefix. Errors:
    /// `Medium`, `FlushFailed`; `Stopped` from then on.
    pub async fn write_out(&self) -> JournalResult<Lsn> {
        let head = self.start_writing()?;
        self.durable_at(head).await
    }

    /// Hands everything appended so far to the device, and nothing that is appended later. Returns its end, for
    /// [`Journal::durable_at`]. Errors: `Stopped`.
    pub fn start_writing(&self) -> JournalResult<Lsn> {
        self.running()?;
        self.start_batch();
        Ok(self.position().lsn)
    }

    /// Waits until everything before `end`, whose write was started before, is durable; returns the durable lsn.
    /// Errors: as [`Journal::write_out`].
    pub async fn durable_at(&self, end: Lsn) -> JournalResult<Lsn> {
        self.inner.until(|state| (state.ring.durable() >= end).then(|| state.ring.durable())).await
    }

    /// Makes everything durable and says so in an empty record, so that later damage is not taken for a torn tail.
    ///
    /// To be called after 100 ms of idleness. Writes nothing if the last record says so already, or the ring has no
    /// space.
    pub async fn attest(&self) -> JournalResult<Lsn> {
        self.attest_as(false).await
    }

    /// As [`Journal::attest`], at the end of a clean stop: the next recovery reports `clean` if nothing was appended
    /// after it.
    pub async fn attest_clean(&self) -> JournalResult<Lsn> {
        self.attest_as(true).await
    }

    /// Writes the next anchor durably; then the ring before `checkpoint` is free again.
    ///
    /// `root` and `extra` are what the store starts from at `checkpoint`; they must be durable already. Calls run one
    /// at a time. Errors: as [`Journal::write_out`].
    pub async fn set_checkpoint(
        &self,
        checkpoint: Checkpoint,
        root: Option<RootLocation>,
        extra: Bytes,
    ) -> JournalResult<()> {
        self.running()?;
        if self.durable() < checkpoint.lsn {
            self.write_out().await?;
        }
        self.inner.until(|state| (!state.anchoring).then_some(())).await?;
        let seq = self.start_anchor(checkpoint, root, extra);
        self.inner.until(|state| (state.ring.anchor_seq() >= seq).then_some(())).await
    }

    /// The device that the journal lies on.
    pub fn device(&self) -> &Device {
        &self.inner.disk
    }

    /// The position after the last append: what a checkpoint of the present state names.
    pub fn position(&self) -> Checkpoint {
        self.inner.state.borrow().ring.head()
    }

    /// Everything before this is durable.
    pub fn durable(&self) -> Lsn {
        self.inner.state.borrow().ring.durable()
    }

    /// The incarnation that was opened when this journal was.
    pub fn incarnation(&self) -> Incarnation {
        self.position().incarnation
    }

    /// True if a transaction of `payload_bytes` can be appended now.
    pub fn room_for(&self, payload_bytes: u64) -> bool {
        self.inner.state.borrow().ring.room_for(payload_bytes)
    }

    /// Ring bytes that transactions may still take before the next checkpoint.
    pub fn free_bytes(&self) -> u64 {
        self.inner.state.borrow().ring.free_bytes()
    }

    /// Ring bytes since the checkpoint.
    pub fn used_bytes(&self) -> u64 {
        self.inner.state.borrow().ring.used_bytes()
    }

    /// Bytes of the ring.
    pub fn ring_bytes(&self) -> u64 {
        self.inner.state.borrow().ring.geometry().ring_bytes()
    }

    /// The share of the transactions' space that has been used since the checkpoint: 0 to 1.
    pub fn used_fraction(&self) -> f64 {
        let (used, free) = (self.used_bytes() as f64, self.free_bytes() as f64);
        used / (used + free)
    }

    async fn attest_as(&self, clean: bool) -> JournalResult<Lsn> {
        self.write_out().await?;
        self.running()?;
        self.inner.state.borrow_mut().ring.append_attest(clean);
        self.write_out().await
    }

    fn running(&self) -> JournalResult<()> {
        self.inner.state.borrow().failure.as_ref().map_or(Ok(()), |failure| Err(failure.sticking()))
    }

    fn start_batch(&self) {
        let Some(batch) = self.inner.state.borrow_mut().ring.take_batch() else { return };
        let inner = self.inner.clone();
        drop(self.inner.env.spawn(async move { inner.write_batch(batch).await }));
    }

    fn start_anchor(&self, checkpoint: Checkpoint, root: Option<RootLocation>, extra: Bytes) -> u64 {
        let inner = self.inner.clone();
        let mut state = self.inner.state.borrow_mut();
        assert!(state.ring.tail() <= checkpoint.lsn, "checkpoints go forward");
        let incarnation = state.ring.head().incarnation;
        let (seq, durable) = (state.ring.anchor_seq() + 1, state.ring.durable());
        let anchor = Anchor { seq, incarnation, checkpoint, durable, root, extra };
        let sector = anchor.encode(state.ring.owner(), state.ring.geometry()).freeze();
        state.anchoring = true;
        drop(self.inner.env.spawn(async move { inner.write_anchor(seq, checkpoint.lsn, sector).await }));
        seq
    }
}

impl Inner {
    async fn write_batch(&self, batch: Batch) {
        for write in batch.writes {
            if let Err(error) = self.make_durable(write.device_offset, write.parts, Bug::JournalNotFlushed).await {
                return self.fail(error.into());
            }
        }
        self.state.borrow_mut().ring.complete(batch.end);
        self.changed.notify_waiters();
    }

    async fn write_anchor(&self, seq: u64, tail: Lsn, sector: Bytes) {
        if let Err(error) = self.make_durable(Anchor::device_offset(seq), vec![sector], Bug::AnchorNotFlushed).await {
            return self.fail(error.into());
        }
        let mut state = self.state.borrow_mut();
        state.ring.anchored(seq, tail);
        state.anchoring = false;
        drop(state);
        self.changed.notify_waiters();
    }

    /// Writes and flushes, unless the bug `unflushed` is planted.
    async fn make_durable(&self, at: u64, parts: Vec<Bytes>, unflushed: Bug) -> EnvResult<()> {
        if planted(unflushed) { self.disk.write(at, parts).await } else { self.disk.write_durable(at, parts).await }
    }

    fn fail(&self, error: JournalError) {
        self.state.borrow_mut().failure.get_or_insert(error);
        self.changed.notify_waiters();
    }

    /// Waits until `ready` returns a value. After a failure, what holds already still succeeds; everything else fails.
    async fn until<T>(&self, ready: impl Fn(&State) -> Option<T>) -> JournalResult<T> {
        loop {
            let changed = self.changed.notified();
            {
                let state = self.state.borrow();
                if let Some(answer) = ready(&state) {
                    return Ok(answer);
                }
                if let Some(failure) = &state.failure {
                    return Err(failure.clone());
                }
            }
            changed.await;
        }
    }
}

fn too_small(device_bytes: u64) -> JournalError {
    let least = RING_START + RING_BYTES_MIN;
    JournalError::new(JournalErrorKind::Invalid, format!("a journal needs {least} bytes at least, not {device_bytes}"))
}
