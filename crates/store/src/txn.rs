//! Transactions.

use std::ops::Range;

use bytes::Bytes;
use forebay_proto::{Fid, Transno};

use crate::{CommitPoint, Placed, StoreResult};

/// A transaction being built: nothing is visible before [`Txn::apply`]; dropped, it leaves no trace.
pub struct Txn {}

impl Txn {
    /// The row's value, as this transaction will leave it. Errors: `NotResident`.
    pub fn get(&self, _key: &[u8]) -> StoreResult<Option<Bytes>> {
        todo!()
    }

    /// Sets a row.
    pub fn put(&mut self, _key: impl AsRef<[u8]>, _value: impl Into<Bytes>) {
        todo!()
    }

    /// Removes a row, if it exists.
    pub fn delete(&mut self, _key: impl AsRef<[u8]>) {
        todo!()
    }

    /// Makes placed fragments visible; extents they overlap are trimmed. Prefetch the extents of each fragment's range
    /// just before. Errors: `NotResident`.
    pub fn insert(&mut self, _placed: Placed) -> StoreResult<()> {
        todo!()
    }

    /// Removes an object's bytes from `object_bytes` on. Prefetch the extents of `object_bytes..u64::MAX` just before.
    pub fn truncate(&mut self, _fid: Fid, _object_bytes: u64, _version: Transno) -> StoreResult<()> {
        todo!()
    }

    /// Removes an object's bytes in `range`.
    pub fn punch(&mut self, _fid: Fid, _range: Range<u64>, _version: Transno) -> StoreResult<()> {
        todo!()
    }

    /// Removes all bytes of an object. Prefetch the extents of `0..u64::MAX` just before.
    pub fn destroy(&mut self, _fid: Fid, _version: Transno) -> StoreResult<()> {
        todo!()
    }

    /// The highest transno contained: what `last_committed` moves to when this is durable.
    pub fn set_transno(&mut self, _transno: Transno) {
        todo!()
    }

    /// Changes the table, at once and as a whole. Errors: `NotResident` (nothing changed: prefetch, build it anew),
    /// `Stopped`, `Busy` (more than a quarter of the journal waits to be committed).
    pub fn apply(self) -> StoreResult<CommitPoint> {
        todo!()
    }
}
