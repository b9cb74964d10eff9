//! What the tests of the store share: small stores, stamped bytes, a model.
#![allow(dead_code)]

pub mod history;
pub mod tears;

use std::time::Duration;

use bytes::Bytes;
use forebay_env::{AlignedBuf, Env};
use forebay_proto::{Fid, TargetId, Transno, Uuid, WriteId, crc, limits::BLOCK_BYTES};
use forebay_store::{
    CommitPoint, FormatOptions, Fragment, MirrorPlace, OpenOptions, Segment, SegmentBody, Store, StoreErrorKind,
    StoreResult,
};

/// Where the store lies.
pub const DIR: &str = "target";
/// Its disks.
pub const DISKS: [&str; 2] = ["target/data", "target/journal"];

/// Where the second copy of a mirrored store lies.
pub const MIRROR: &str = "mirror";
/// Disks of a mirrored store: by copy, data and journal.
pub const MIRRORED_DISKS: [&str; 4] = ["target/data", "target/journal", "mirror/data", "mirror/journal"];

/// The same options, with a copy in [`MIRROR`].
pub fn mirrored(options: FormatOptions) -> FormatOptions {
    let mirror = Some(MirrorPlace { dir: MIRROR.into(), ..MirrorPlace::default() });
    FormatOptions { mirror, ..options }
}

/// A store so small that everything happens in it soon.
pub fn tiny() -> FormatOptions {
    FormatOptions {
        cluster: Uuid([1; 16]),
        target: TargetId::ost(0),
        slab_bytes: 128 << 10,
        stripe_bytes: 64 << 10,
        data_path: None,
        data_bytes: (64 << 10) + 40 * (128 << 10),
        journal_path: None,
        journal_bytes: 256 << 10,
        journal_shared: false,
        journal_overwrite: false,
        data_overwrite: false,
        mirror: None,
    }
}

/// As [`OpenOptions::default`], committing often.
pub fn quick() -> OpenOptions {
    OpenOptions { commit_interval: Duration::from_millis(20), ..OpenOptions::default() }
}

/// The `number`th object.
pub fn fid(number: u64) -> Fid {
    Fid { high: 0, low: 0x100 + number }
}

/// Bytes that show which write they come from and where they belong: object, sequence and offset in every eight bytes.
pub fn stamped(fid: Fid, offset: u64, length: usize, sequence: u64) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(length);
    put_stamps(&mut buf, fid, offset, sequence);
    buf
}

/// Writes the bytes of [`stamped`] to `bytes`.
pub fn put_stamps(bytes: &mut [u8], fid: Fid, offset: u64, sequence: u64) {
    let before = (offset.next_multiple_of(8) - offset).min(bytes.len() as u64) as usize;
    let (first, rest) = bytes.split_at_mut(before);
    for (at, byte) in (offset..).zip(first) {
        *byte = stamp(fid, at, sequence);
    }
    for (number, word) in (offset.div_ceil(8)..).zip(rest.chunks_mut(8)) {
        word.copy_from_slice(&stamps(fid, number, sequence)[..word.len()]);
    }
}

/// The byte of [`stamped`] at `at`; never zero.
pub fn stamp(fid: Fid, at: u64, sequence: u64) -> u8 {
    stamps(fid, at / 8, sequence)[(at % 8) as usize]
}

/// Eight bytes of [`stamped`], from `8 * number` on.
fn stamps(fid: Fid, number: u64, sequence: u64) -> [u8; 8] {
    let mixed = fid.low ^ sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number.wrapping_mul(0xff51_afd7_ed55_8ccd);
    let word = mixed.rotate_left(29).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    (word ^ word >> 32 | 0x0101_0101_0101_0101).to_le_bytes()
}

/// A fragment with its sums.
pub fn fragment(fid: Fid, offset: u64, data: Bytes, sequence: u64, version: u64) -> Fragment {
    let write_id = WriteId { client: 7, sequence };
    let sums = crc::blocks(offset, data.len() as u64, BLOCK_BYTES)
        .map(|(at, length)| {
            let from = (at - offset) as usize;
            crc::block_sum(fid, at, write_id, &data[from..from + length as usize])
        })
        .collect();
    Fragment { fid, offset, data, write_id, version: Transno(version), generation: 1, sums }
}

/// Writes stamped bytes in a transaction of their own; `sequence` is the transno too.
pub async fn write(store: &Store, fid: Fid, offset: u64, length: usize, sequence: u64) -> StoreResult<CommitPoint> {
    let room = store.reserve(length as u64, 1).await?;
    let data = stamped(fid, offset, length, sequence).freeze();
    let placed = store.place(room, vec![fragment(fid, offset, data, sequence, sequence)]).await?;
    store.prefetch_extents(fid, offset..offset + length as u64).await?;
    let mut txn = store.begin();
    txn.insert(placed)?;
    txn.set_transno(Transno(sequence));
    txn.apply()
}

/// Destroys an object in a transaction of its own.
pub async fn destroy(store: &Store, fid: Fid, sequence: u64) -> StoreResult<CommitPoint> {
    store.prefetch_extents(fid, 0..u64::MAX).await?;
    let mut txn = store.begin();
    txn.destroy(fid, Transno(sequence))?;
    txn.set_transno(Transno(sequence));
    txn.apply()
}

/// Truncates an object in a transaction of its own.
pub async fn truncate(store: &Store, fid: Fid, bytes: u64, sequence: u64) -> StoreResult<CommitPoint> {
    store.prefetch_extents(fid, bytes..u64::MAX).await?;
    let mut txn = store.begin();
    txn.truncate(fid, bytes, Transno(sequence))?;
    txn.set_transno(Transno(sequence));
    txn.apply()
}

/// Punches a hole in a transaction of its own.
pub async fn punch(store: &Store, fid: Fid, range: std::ops::Range<u64>, sequence: u64) -> StoreResult<CommitPoint> {
    store.prefetch_extents(fid, range.clone()).await?;
    let mut txn = store.begin();
    txn.punch(fid, range, Transno(sequence))?;
    txn.set_transno(Transno(sequence));
    txn.apply()
}

/// The bytes of `range`, and a check that the returned sums are those of the returned blocks.
pub async fn read(store: &Store, fid: Fid, range: std::ops::Range<u64>) -> StoreResult<Bytes> {
    let segments = store.read(fid, range.clone()).await?;
    let mut at = range.start;
    for segment in &segments {
        assert_eq!(segment.offset, at, "segments cover the range without gaps");
        at += segment.length;
        if let SegmentBody::Data { bytes, write_id, version, sums } = &segment.body {
            assert_eq!(bytes.len() as u64, segment.length);
            let again = fragment(fid, segment.offset, bytes.clone(), write_id.sequence, version.0);
            assert_eq!(&again.sums, sums, "sums of the returned blocks");
        }
    }
    assert_eq!(at, range.end);
    Ok(Segment::concat(&segments))
}

/// A new tiny store, open.
pub async fn fresh(env: &Env, format: &FormatOptions, open: &OpenOptions) -> Store {
    Store::format(env, DIR, format).await.expect("format");
    Store::open(env, DIR, open).await.expect("open")
}

/// The kind of an error.
pub fn kind<T>(result: StoreResult<T>) -> Option<StoreErrorKind> {
    result.err().map(|error| error.kind)
}
