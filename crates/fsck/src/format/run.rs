//! Runs (docs/format.md, "Run"): the unit that is appended to a slab.

use bytes::Bytes;
use forebay_proto::{DecodeError, Fid, Incarnation, Reader, Transno, Uuid, WriteId, crc::crc64};

use super::{word32, word64};
use crate::limits;

const MAGIC: &[u8; 8] = b"FBYRUN01";
const VERSION: u32 = 1;
const FIXED_BYTES: usize = 96;
const DESCRIPTOR_BYTES: usize = 84;
const SUM_AT: usize = 80;
/// The polynomial of CRC-64/NVME, bits reversed.
const POLYNOMIAL: u64 = 0x9a6c_9329_ac4b_c9b5;

/// The kind of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentKind {
    /// Bytes of an object.
    Data,
    /// A tombstone: truncate, punch or destroy.
    Tombstone(u8),
    /// A page of the table.
    IndexPage,
    /// A piece of a slab snapshot.
    Root,
}

/// A fragment, as the header of its run describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The kind.
    pub kind: FragmentKind,
    /// The object, or a page's number.
    pub fid: Fid,
    /// First byte within the object.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Chosen by the writer.
    pub write_id: WriteId,
    /// Assigned by the target.
    pub version: Transno,
    /// Layout generation.
    pub generation: u32,
    /// Offset of the payload in the run.
    pub payload_at: u32,
    /// The sum of each block.
    pub sums: Vec<u64>,
}

impl Fragment {
    /// Bytes of payload.
    pub fn payload_bytes(&self) -> u64 {
        if matches!(self.kind, FragmentKind::Tombstone(_)) { 0 } else { self.length }
    }
}

/// The header of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunHeader {
    /// Length of header and payload.
    pub total_bytes: u64,
    /// The slab.
    pub slab: u32,
    /// The slab's epoch.
    pub epoch: u64,
    /// Sequence number in the slab, from 0.
    pub number: u32,
    /// Sum of the previous run, or of the slab's header.
    pub prev_sum: u64,
    /// The incarnation that wrote it.
    pub incarnation: Incarnation,
    /// The target's generation at that time.
    pub generation: u32,
    /// Counter of the highest transno of its incarnation known durable at that time; 0: none.
    pub committed: u32,
    /// Journal position known durable at that time.
    pub durable_lsn: u64,
    /// The header's own sum.
    pub sum: u64,
    /// The fragments in it.
    pub fragments: Vec<Fragment>,
}

/// True if the run can be `gap` sectors behind the `last` one. Within an epoch run numbers rise, runs are adjacent, and
/// each run lost in between took at least one sector. A run that cannot be there is misplaced: it was written over
/// another run and would hide those within its length.
pub fn belongs(last: Option<&RunHeader>, run: &RunHeader, gap: u64) -> bool {
    let next = match last {
        Some(last) if last.epoch != run.epoch => return true,
        last => last.map_or(0, |last| u64::from(last.number) + 1),
    };
    match u64::from(run.number).checked_sub(next) {
        Some(0) => gap == 0,
        Some(lost) => gap > 0 && lost <= gap,
        None => false,
    }
}

/// What is at a position where a run may begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// No run of this target.
    Nothing,
    /// A header of this many bytes, ready for decoding.
    Header(usize),
}

/// Examines the first bytes of a sector.
pub fn peek(sector: &[u8], target: Uuid) -> Begin {
    let ours = sector.len() >= FIXED_BYTES
        && sector[..8] == *MAGIC
        && word32(sector, 8) == VERSION
        && sector[24..32] == target.0[8..];
    let bytes = word32(sector, 12);
    let fits = bytes != 0 && bytes <= limits::RUN_HEADER_BYTES && u64::from(bytes).is_multiple_of(limits::SECTOR);
    if ours && fits { Begin::Header(bytes as usize) } else { Begin::Nothing }
}

/// Decodes the header in exactly these bytes, which have passed [`peek`].
pub fn decode(bytes: &[u8]) -> Result<RunHeader, DecodeError> {
    if bytes.len() < FIXED_BYTES {
        return Err(DecodeError::new("it is too short"));
    }
    let sum = word64(bytes, SUM_AT);
    if sum_of(bytes) != sum {
        return Err(DecodeError::new("its sum does not match"));
    }
    let mut r = Reader::new(&bytes[16..]);
    let total_bytes = r.u64()?;
    r.take(8)?;
    let (slab, number, epoch, prev_sum) = (r.u32()?, r.u32()?, r.u64()?, r.u64()?);
    let (incarnation, count, durable_lsn) = (Incarnation(r.u32()?), r.u32()? as usize, r.u64()?);
    r.take(16)?;
    let (generation, committed) = (r.u32()?, r.u32()?);
    if count > r.remaining() / DESCRIPTOR_BYTES {
        return Err(DecodeError::new("it claims more fragments than it holds"));
    }
    let fragments = (0..count).map(|_| decode_fragment(&mut r)).collect::<Result<_, _>>()?;
    let run = RunHeader {
        total_bytes,
        slab,
        epoch,
        number,
        prev_sum,
        incarnation,
        generation,
        committed,
        durable_lsn,
        sum,
        fragments,
    };
    check_lengths(&run, bytes.len() as u64)?;
    Ok(run)
}

/// Corrects a header of `target` in which a single byte is wrong. The sum determines which byte and what it was: of the
/// 2^64 sums no more than 2^28 are one byte away.
pub fn mended(bytes: &Bytes, target: Uuid) -> Option<Bytes> {
    if bytes.len() < FIXED_BYTES {
        return None;
    }
    let wrong = sum_of(bytes) ^ word64(bytes, SUM_AT);
    if wrong == 0 {
        return None;
    }
    let mut mended = bytes.to_vec();
    if wrong.to_le_bytes().iter().filter(|byte| **byte != 0).count() == 1 {
        mended[SUM_AT..SUM_AT + 8].copy_from_slice(&sum_of(bytes).to_le_bytes());
    } else {
        let (at, flipped) = one_byte(wrong, bytes.len())?;
        mended[at] ^= flipped;
    }
    let right = peek(&mended, target) == Begin::Header(bytes.len()) && decode(&mended).is_ok();
    right.then(|| mended.into())
}

/// The position of the byte among `length`, and its bits, that change the sum by `wrong`.
fn one_byte(wrong: u64, length: usize) -> Option<(usize, u8)> {
    let mut table = [0u64; 256];
    // Index of each table entry by its highest byte, which is unique.
    let mut by_top = [0usize; 256];
    for (index, entry) in table.iter_mut().enumerate() {
        *entry = (0..8).fold(index as u64, |sum, _| if sum & 1 == 1 { sum >> 1 ^ POLYNOMIAL } else { sum >> 1 });
        by_top[(*entry >> 56) as usize] = index;
    }
    let mut sum = wrong;
    for at in (0..length).rev() {
        let index = by_top[(sum >> 56) as usize];
        if table[index] == sum {
            return Some((at, index as u8));
        }
        // The sum before the byte behind `at`.
        sum = (sum ^ table[index]) << 8 | index as u64;
    }
    None
}

fn sum_of(bytes: &[u8]) -> u64 {
    let mut zeroed = bytes.to_vec();
    zeroed[SUM_AT..SUM_AT + 8].fill(0);
    crc64(&zeroed)
}

fn decode_fragment(r: &mut Reader<'_>) -> Result<Fragment, DecodeError> {
    let mut r = r.prefixed()?;
    let kind = match r.u8()? {
        1 => FragmentKind::Data,
        code @ 2..=4 => FragmentKind::Tombstone(code),
        5 => FragmentKind::IndexPage,
        6 => FragmentKind::Root,
        _ => return Err(DecodeError::new("a fragment is of a kind not known here")),
    };
    r.take(3)?;
    let fid = Fid { high: r.u64()?, low: r.u64()? };
    let (offset, length) = (r.u64()?, r.u64()?);
    let write_id = WriteId { client: r.u64()?, sequence: r.u64()? };
    let (version, generation, payload_at) = (Transno(r.u64()?), r.u32()?, r.u32()?);
    r.u64()?; // tombstones' first epoch
    let count = r.u32()? as usize;
    if count > r.remaining() / 8 {
        return Err(DecodeError::new("a fragment claims more sums than there are bytes"));
    }
    let sums = (0..count).map(|_| r.u64()).collect::<Result<_, _>>()?;
    Ok(Fragment { kind, fid, offset, length, write_id, version, generation, payload_at, sums })
}

/// Checks that payloads are in the run, behind its header, and do not overlap.
fn check_lengths(run: &RunHeader, header_bytes: u64) -> Result<(), DecodeError> {
    if run.total_bytes < header_bytes || !run.total_bytes.is_multiple_of(limits::SECTOR) {
        return Err(DecodeError::new("its length is impossible"));
    }
    if run.fragments.iter().any(|f| u64::from(f.payload_at) > run.total_bytes) {
        return Err(DecodeError::new("a fragment lies outside of it"));
    }
    let payloads = run.fragments.iter().filter(|f| f.payload_bytes() > 0);
    let mut places: Vec<(u64, u64)> = payloads.map(|f| (u64::from(f.payload_at), f.payload_bytes())).collect();
    places.sort_unstable();
    let mut free_from = header_bytes;
    for (at, bytes) in places {
        let end = at.checked_add(bytes).filter(|end| *end <= run.total_bytes);
        match end {
            Some(end) if at >= free_from => free_from = end,
            _ => return Err(DecodeError::new("a fragment's payload lies outside of it or in another's")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Uuid = Uuid([7; 16]);

    fn fragment(kind: u8, offset: u64, length: u64, payload_at: u32, sums: &[u64]) -> Vec<u8> {
        let mut out = vec![kind, 0, 0, 0];
        for word in [1, 2, offset, length, 3, 4, 5u64] {
            out.extend(word.to_le_bytes());
        }
        out.extend(6u32.to_le_bytes());
        out.extend(payload_at.to_le_bytes());
        out.extend(0u64.to_le_bytes());
        out.extend((sums.len() as u32).to_le_bytes());
        sums.iter().for_each(|sum| out.extend(sum.to_le_bytes()));
        [&(out.len() as u32).to_le_bytes()[..], &out].concat()
    }

    fn header(fragments: &[Vec<u8>]) -> Vec<u8> {
        let mut out = b"FBYRUN01\x01\0\0\0\0\x10\0\0".to_vec();
        out.extend(12_288u64.to_le_bytes());
        out.extend([7; 8]);
        out.extend([7, 0, 0, 0, 9, 0, 0, 0]);
        out.extend(8u64.to_le_bytes());
        out.extend(10u64.to_le_bytes());
        out.extend([11, 0, 0, 0, fragments.len() as u8, 0, 0, 0]);
        out.extend((12u64 << 12).to_le_bytes());
        out.extend([0; 16]);
        out.extend([13, 0, 0, 0, 4, 3, 2, 1]);
        assert_eq!(out.len(), 96);
        fragments.iter().for_each(|f| out.extend(f));
        out.resize(4096, 0);
        let sum = crc64(&out);
        out[80..88].copy_from_slice(&sum.to_le_bytes());
        out
    }

    #[test]
    fn a_run_made_by_hand_is_read() {
        let bytes = header(&[fragment(1, 65_536, 5000, 4096, &[99]), fragment(3, 0, 1 << 40, 0, &[])]);
        assert_eq!(peek(&bytes, TARGET), Begin::Header(4096));
        assert_eq!(peek(&bytes, Uuid([8; 16])), Begin::Nothing);
        let run = decode(&bytes).unwrap();
        assert_eq!((run.slab, run.number, run.epoch, run.prev_sum), (7, 9, 8, 10));
        assert_eq!((run.incarnation, run.generation, run.durable_lsn), (Incarnation(11), 13, 12 << 12));
        assert_eq!(run.committed, 0x0102_0304);
        let data = &run.fragments[0];
        assert_eq!((data.offset, data.length, data.payload_at, &data.sums[..]), (65_536, 5000, 4096, &[99][..]));
        assert_eq!(run.fragments[1].kind, FragmentKind::Tombstone(3));
    }

    #[test]
    fn a_header_of_which_one_byte_is_wrong_is_mended() {
        let good = header(&[fragment(1, 65_536, 5000, 4096, &[99])]);
        for at in (0..300).chain([4095]) {
            let mut rotten = good.clone();
            rotten[at] ^= 0x41;
            assert_eq!(mended(&rotten.clone().into(), TARGET).as_deref(), Some(&good[..]), "byte {at}");
            rotten[200 - at / 50] ^= 7;
            if at != 200 - at / 50 {
                assert_eq!(mended(&rotten.into(), TARGET), None, "byte {at} and another");
            }
        }
        assert_eq!(mended(&good.clone().into(), TARGET), None, "nothing is wrong");
        assert_eq!(mended(&good.into(), Uuid([8; 16])), None, "another target's");
    }

    #[test]
    fn damage_and_impossible_payloads_are_refused() {
        let good = header(&[fragment(1, 0, 5000, 4096, &[99])]);
        for at in 0..good.len() {
            let mut rotten = good.clone();
            rotten[at] ^= 4;
            assert!(decode(&rotten).is_err(), "byte {at}");
        }
        for (at, length) in [(4096, 9000), (4000, 10), (4096, u64::MAX)] {
            assert!(decode(&header(&[fragment(1, 0, length, at, &[])])).is_err());
        }
        assert!(decode(&header(&[fragment(1, 0, 100, 4096, &[]), fragment(1, 0, 100, 4195, &[])])).is_err());
        assert!(decode(&header(&[fragment(7, 0, 0, 0, &[])])).is_err());
    }
    #[test]
    fn a_run_belongs_where_its_number_and_the_gap_before_it_agree() {
        let run = |number: u32, epoch: u64| RunHeader {
            number,
            epoch,
            ..decode(&header(&[fragment(1, 0, 5000, 4096, &[99])])).expect("a run")
        };
        let last = run(4, 8);
        assert!(belongs(None, &run(0, 8), 0) && !belongs(None, &run(0, 8), 1), "the first one lies at the beginning");
        assert!(belongs(None, &run(2, 8), 2) && !belongs(None, &run(2, 8), 1), "two that are lost had a sector each");
        assert!(belongs(Some(&last), &run(5, 8), 0));
        assert!(!belongs(Some(&last), &run(5, 8), 1), "it would touch");
        assert!(belongs(Some(&last), &run(6, 8), 7), "one is lost, of whatever length");
        assert!(!belongs(Some(&last), &run(6, 8), 0), "there is no room for the one before");
        assert!(!belongs(Some(&last), &run(4, 8), 0) && !belongs(Some(&last), &run(1, 8), 9), "it was there before");
        assert!(belongs(Some(&last), &run(1, 7), 3), "of another opening");
    }
}
