//! The directory of slots: the contents of the first two sectors of a shared journal device (`docs/format.md`).
//!
//! Invariant: directory `seq` lies in the first sector if odd, in the second if even; so a torn write leaves the
//! previous one.
//! Invariant: slots lie within the device behind the directory, and no two share a byte or a target.

use forebay_env::{AlignedBuf, DiskPart};
use forebay_proto::{DecodeError, Reader, TargetId, TargetKind, Uuid, Writer, crc::crc64};

use crate::{
    StoreError, StoreErrorKind, StoreResult,
    limits::{SECTOR, SLOT_ALIGN_BYTES, SLOTS_MAX, SLOTS_START},
};

pub(super) const MAGIC: [u8; 8] = *b"FBYSLOTS";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;

/// Which target's journal lies where on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Directory {
    /// Id of the device: random, chosen when it becomes a device with slots.
    pub device: Uuid,
    /// Counts directories of the device, from 1.
    pub seq: u64,
    /// In the order in which they were taken.
    pub slots: Vec<Slot>,
}

/// One target's part of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub target: Uuid,
    pub cluster: Uuid,
    pub name: TargetId,
    pub state: SlotState,
    pub part: DiskPart,
}

/// State of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// The process that has it locked makes a journal in it. If it is not locked, it is free.
    Preparing,
    /// It holds the target's journal.
    InUse,
}

impl Directory {
    /// Where it lies.
    pub(super) fn device_offset(&self) -> u64 {
        if self.seq % 2 == 1 { 0 } else { SECTOR }
    }

    /// Its sector.
    pub(super) fn encode(&self) -> AlignedBuf {
        assert!(self.slots.len() <= SLOTS_MAX, "a directory has room for {SLOTS_MAX} slots");
        let mut w = Writer::default();
        w.u64(0); // the sum, last
        w.bytes(&MAGIC);
        w.u32(VERSION);
        w.u32(self.slots.len() as u32);
        w.bytes(&self.device.0);
        w.u64(self.seq);
        w.bytes(&[0; 16]);
        for slot in &self.slots {
            w.bytes(&slot.target.0);
            w.bytes(&slot.cluster.0);
            w.u32(if slot.name.kind == TargetKind::Mdt { 1 } else { 2 });
            w.u32(slot.name.index);
            w.u32(if slot.state == SlotState::Preparing { 1 } else { 2 });
            w.u32(0);
            w.u64(slot.part.offset);
            w.u64(slot.part.bytes);
        }
        let mut sector = AlignedBuf::padded_copy(&w.into_vec());
        let sum = crc64(&sector[8..]);
        sector[..8].copy_from_slice(&sum.to_le_bytes());
        sector
    }

    /// The newer of the two in the device's first sectors. None: there is no sign of a directory.
    ///
    /// Errors: `Corrupt` if neither is intact, `Unsupported` if a newer program wrote it.
    pub(super) fn newest(sectors: &[u8], path: &str) -> StoreResult<Option<Self>> {
        let found: Vec<_> = sectors.chunks(SECTOR as usize).take(2).map(decode).collect();
        if let Some(version) = found.iter().find_map(|found| if let Found::Newer(v) = found { Some(v) } else { None }) {
            let words =
                format!("{path}: its directory of slots is of version {version}, by a newer forebay; use that one");
            return Err(StoreError::new(StoreErrorKind::Unsupported, words));
        }
        let intact = found.iter().zip([1, 0]).filter_map(|(found, parity)| match found {
            Found::Intact(directory) if directory.seq % 2 == parity => Some(directory.clone()),
            _ => None,
        });
        match intact.max_by_key(|directory| directory.seq) {
            Some(directory) => Ok(Some(directory)),
            None if found.iter().all(|found| *found == Found::Nothing) => Ok(None),
            None => Err(StoreError::corrupt(format!(
                "{path}: both copies of its directory of slots are damaged, so nobody knows whose journals lie where; \
                 restore the first 8192 bytes from a copy, or rebuild each target's journal elsewhere: \
                 `forebay fsck --repair DIR --journal PATH`"
            ))),
        }
    }

    /// The target's slot.
    pub(super) fn of(&self, target: Uuid) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.target == target)
    }

    /// The first gap of at least `bytes` on a device of `device_bytes`.
    pub(super) fn gap(&self, bytes: u64, device_bytes: u64) -> Option<DiskPart> {
        let mut parts: Vec<_> = self.slots.iter().map(|slot| slot.part).collect();
        parts.sort_by_key(|part| part.offset);
        let mut free_from = SLOTS_START;
        let ends = parts.iter().map(|part| part.offset).chain([device_bytes]).collect::<Vec<_>>();
        for (number, end) in ends.into_iter().enumerate() {
            if free_from.checked_add(bytes).is_some_and(|needed| needed <= end) {
                return Some(DiskPart { offset: free_from, bytes });
            }
            if let Some(part) = parts.get(number) {
                free_from = (part.offset + part.bytes).next_multiple_of(SLOT_ALIGN_BYTES);
            }
        }
        None
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Bad,
    Newer(u32),
    Intact(Directory),
}

fn decode(sector: &[u8]) -> Found {
    if sector.get(8..16) != Some(&MAGIC) {
        return Found::Nothing;
    }
    let whole = sector.len() == SECTOR as usize;
    if !whole || crc64(&sector[8..]).to_le_bytes() != sector[..8] {
        return Found::Bad;
    }
    let version = u32::from_le_bytes(sector[16..20].try_into().expect("four bytes"));
    if version > VERSION {
        return Found::Newer(version);
    }
    fields(&mut Reader::new(&sector[20..])).ok().filter(Directory::is_possible).map_or(Found::Bad, Found::Intact)
}

fn fields(r: &mut Reader<'_>) -> Result<Directory, DecodeError> {
    let count = r.u32()? as usize;
    let (device, seq) = (Uuid(r.array()?), r.u64()?);
    r.take(16)?;
    if count > SLOTS_MAX || seq == 0 {
        return Err(DecodeError::new("number of slots, or sequence"));
    }
    let slots = (0..count).map(|_| slot(r)).collect::<Result<_, _>>()?;
    Ok(Directory { device, seq, slots })
}

fn slot(r: &mut Reader<'_>) -> Result<Slot, DecodeError> {
    let (target, cluster) = (Uuid(r.array()?), Uuid(r.array()?));
    let kind = match r.u32()? {
        1 => TargetKind::Mdt,
        2 => TargetKind::Ost,
        _ => return Err(DecodeError::new("kind of the target")),
    };
    let name = TargetId { kind, index: r.u32()? };
    let state = match r.u32()? {
        1 => SlotState::Preparing,
        2 => SlotState::InUse,
        _ => return Err(DecodeError::new("state of the slot")),
    };
    r.u32()?;
    let part = DiskPart { offset: r.u64()?, bytes: r.u64()? };
    Ok(Slot { target, cluster, name, state, part })
}

impl Directory {
    fn is_possible(&self) -> bool {
        let mut slots: Vec<_> = self.slots.iter().collect();
        let targets: std::collections::BTreeSet<_> = slots.iter().map(|slot| slot.target.0).collect();
        slots.sort_by_key(|slot| slot.part.offset);
        let mut free_from = SLOTS_START;
        targets.len() == slots.len()
            && slots.iter().all(|slot| {
                let DiskPart { offset, bytes } = slot.part;
                let sectors = offset.is_multiple_of(SECTOR) && bytes.is_multiple_of(SECTOR) && bytes > 0;
                let fits = sectors && offset >= free_from;
                free_from = offset.saturating_add(bytes);
                fits && free_from < u64::MAX
            })
    }
}

const _: () = assert!(HEADER_BYTES + 64 * SLOTS_MAX <= SECTOR as usize);

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(number: u8, offset: u64, bytes: u64) -> Slot {
        Slot {
            target: Uuid([number; 16]),
            cluster: Uuid([9; 16]),
            name: TargetId::ost(u32::from(number)),
            state: SlotState::InUse,
            part: DiskPart { offset, bytes },
        }
    }

    fn directory() -> Directory {
        let preparing = Slot { state: SlotState::Preparing, ..slot(2, 4 << 20, 20 << 12) };
        Directory { device: Uuid([7; 16]), seq: 5, slots: vec![slot(1, 1 << 20, 1 << 20), preparing] }
    }

    fn newest(first: &[u8], second: &[u8]) -> StoreResult<Option<Directory>> {
        Directory::newest(&[first, second].concat(), "device")
    }

    #[test]
    fn a_directory_has_the_bytes_of_the_format_page() {
        let sector = directory().encode();
        let words = |at: usize| u64::from_le_bytes(sector[at..at + 8].try_into().unwrap());
        let halves = |at: usize| u32::from_le_bytes(sector[at..at + 4].try_into().unwrap());
        assert_eq!((sector.len(), words(0), &sector[8..16]), (4096, 0xa714_d97e_6d0b_5666, &b"FBYSLOTS"[..]));
        assert_eq!((halves(16), halves(20), &sector[24..40], words(40)), (1, 2, &[7; 16][..], 5));
        assert_eq!((&sector[64..80], &sector[80..96]), (&[1; 16][..], &[9; 16][..]));
        assert_eq!((halves(96), halves(100), halves(104), halves(108)), (2, 1, 2, 0));
        assert_eq!((words(112), words(120)), (1 << 20, 1 << 20));
        assert_eq!((&sector[128..144], halves(168), words(176), words(184)), (&[2; 16][..], 1, 4 << 20, 20 << 12));
        assert!(sector[48..64].iter().chain(&sector[192..]).all(|byte| *byte == 0));
    }

    #[test]
    fn the_newer_intact_slot_directory_counts_and_one_copy_may_be_torn() {
        let (odd, even) = (directory(), Directory { seq: 6, slots: Vec::new(), ..directory() });
        let blank = [0; 4096];
        assert_eq!(newest(&odd.encode(), &even.encode()).unwrap(), Some(even.clone()));
        assert_eq!(newest(&blank, &even.encode()).unwrap(), Some(even.clone()));
        assert_eq!(newest(&odd.encode(), &blank).unwrap(), Some(odd.clone()));
        for cut in (512..4096).step_by(512) {
            // Written over the previous one, torn.
            let old = Directory { seq: 4, slots: vec![slot(3, 8 << 20, 4096); 1], ..directory() };
            let full =
                Directory { slots: (1..=40).map(|n| slot(n, u64::from(n) << 20, 4096)).collect(), ..even.clone() };
            let torn = [&full.encode()[..cut], &old.encode()[cut..]].concat();
            let found = newest(&odd.encode(), &torn).unwrap().unwrap();
            assert!(found == odd || found == full, "{cut}");
        }
        assert_eq!(newest(&blank, &blank).unwrap(), None);
        // In the sector of the other one.
        assert_eq!(newest(&even.encode(), &blank).unwrap_err().kind, StoreErrorKind::Corrupt);
    }

    #[test]
    fn damage_is_told_and_never_taken_for_a_device_without_slots() {
        let sector = directory().encode();
        for at in 0..4096 {
            let mut rotten = sector.to_vec();
            rotten[at] ^= 1;
            let found = newest(&rotten, &[0; 4096]);
            assert!(
                matches!(&found, Err(error) if error.kind == StoreErrorKind::Corrupt) || (8..16).contains(&at),
                "{at}"
            );
        }
        let mut newer = sector.to_vec();
        newer[16] = 2;
        let sum = crc64(&newer[8..]);
        newer[..8].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(newest(&newer, &[0; 4096]).unwrap_err().kind, StoreErrorKind::Unsupported);
    }

    #[test]
    fn impossible_slots_are_refused() {
        for slots in [
            vec![slot(1, 4096, 4096)],
            vec![slot(1, 1 << 20, 2 << 20), slot(2, 2 << 20, 4096)],
            vec![slot(1, 1 << 20, 4096), slot(1, 2 << 20, 4096)],
            vec![slot(1, 1 << 20, 0)],
            vec![slot(1, (1 << 20) + 512, 4096)],
            vec![slot(1, 1 << 20, u64::MAX / 4096 * 4096)],
        ] {
            let directory = Directory { slots, ..directory() };
            assert!(newest(&directory.encode(), &[0; 4096]).is_err(), "{directory:?}");
        }
    }

    #[test]
    fn a_slot_is_taken_in_the_first_gap_that_has_room() {
        let mib = 1 << 20;
        let part = |offset: u64, bytes: u64| Some(DiskPart { offset: offset * mib, bytes });
        let empty = Directory { slots: Vec::new(), ..directory() };
        assert_eq!(empty.gap(4 * mib, 5 * mib), part(1, 4 * mib));
        assert_eq!(empty.gap(4 * mib, 5 * mib - 4096), None);
        assert_eq!(empty.gap(u64::MAX / 4096 * 4096, 1 << 40), None);
        let holes = Directory { slots: vec![slot(1, 8 * mib, 4096), slot(2, mib, 2 * mib + 4096)], ..directory() };
        assert_eq!(holes.gap(4 * mib, 64 * mib), part(4, 4 * mib));
        assert_eq!(holes.gap(4 * mib + 4096, 64 * mib), part(9, 4 * mib + 4096));
        assert_eq!(holes.gap(5 * mib, 13 * mib), None);
    }
}
