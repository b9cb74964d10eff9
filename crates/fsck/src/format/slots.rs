//! The directory of slots of a shared journal device (docs/format.md, "A shared journal device").

use forebay_env::DiskPart;
use forebay_proto::{DecodeError, Reader, Uuid, crc::crc64};

use super::{word32, word64};
use crate::limits::{self, SECTOR};

const MAGIC: &[u8; 8] = b"FBYSLOTS";
const VERSION: u32 = 1;

/// What the first two sectors of a device contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slots {
    /// No directory of slots: the device belongs to one target, or to none.
    None,
    /// The slot of each target.
    Intact(Vec<(Uuid, DiskPart)>),
    /// Both copies are damaged.
    Damaged,
    /// Written by a newer program, with its version.
    Newer(u32),
}

/// Decodes both copies. The intact one with the higher sequence number counts.
pub fn decode(sectors: &[u8]) -> Slots {
    let found: Vec<_> = sectors.chunks(SECTOR as usize).take(2).zip([1, 0]).map(|(s, parity)| one(s, parity)).collect();
    if let Some(version) =
        found.iter().find_map(|one| if let One::Newer(version) = one { Some(*version) } else { None })
    {
        return Slots::Newer(version);
    }
    let all_none = found.iter().all(|one| matches!(one, One::None));
    let intact =
        found.into_iter().filter_map(|one| if let One::Intact(seq, slots) = one { Some((seq, slots)) } else { None });
    match intact.max_by_key(|(seq, _)| *seq) {
        Some((_, slots)) => Slots::Intact(slots),
        None if all_none => Slots::None,
        None => Slots::Damaged,
    }
}

enum One {
    None,
    Damaged,
    Newer(u32),
    Intact(u64, Vec<(Uuid, DiskPart)>),
}

fn one(sector: &[u8], parity: u64) -> One {
    if sector.get(8..16) != Some(MAGIC) {
        return One::None;
    }
    if sector.len() != SECTOR as usize || crc64(&sector[8..]) != word64(sector, 0) {
        return One::Damaged;
    }
    let version = word32(sector, 16);
    if version > VERSION {
        return One::Newer(version);
    }
    match fields(sector) {
        Ok((seq, slots)) if seq % 2 == parity && is_possible(&slots) => One::Intact(seq, slots),
        _ => One::Damaged,
    }
}

fn fields(sector: &[u8]) -> Result<(u64, Vec<(Uuid, DiskPart)>), DecodeError> {
    let (count, seq) = (word32(sector, 20) as usize, word64(sector, 40));
    if count > limits::SLOTS || seq == 0 {
        return Err(DecodeError::new("its number or its slots are impossible"));
    }
    let mut r = Reader::new(&sector[64..]);
    let mut slot = || {
        let target = Uuid(r.array()?);
        r.take(32)?; // cluster, kind and number, state
        Ok((target, DiskPart { offset: r.u64()?, bytes: r.u64()? }))
    };
    Ok((seq, (0..count).map(|_| slot()).collect::<Result<_, _>>()?))
}

fn is_possible(slots: &[(Uuid, DiskPart)]) -> bool {
    let mut parts: Vec<DiskPart> = slots.iter().map(|(_, part)| *part).collect();
    parts.sort_by_key(|part| part.offset);
    let mut free_from = limits::SLOTS_START;
    parts.iter().all(|part| {
        let fits = part.bytes > 0 && part.bytes % SECTOR == 0 && part.offset % SECTOR == 0 && part.offset >= free_from;
        free_from = part.offset.saturating_add(part.bytes);
        fits
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_hand(seq: u64, slots: &[(u8, u64, u64)]) -> Vec<u8> {
        let mut out = vec![0; 8];
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend((slots.len() as u32).to_le_bytes());
        out.extend([5; 16]);
        out.extend(seq.to_le_bytes());
        out.resize(64, 0);
        for (target, offset, bytes) in slots {
            out.extend([*target; 16]);
            out.extend([9; 16]);
            [2u32, 3, 2, 0].iter().for_each(|word| out.extend(word.to_le_bytes()));
            out.extend(offset.to_le_bytes());
            out.extend(bytes.to_le_bytes());
        }
        out.resize(4096, 0);
        let sum = crc64(&out[8..]);
        out[..8].copy_from_slice(&sum.to_le_bytes());
        out
    }

    #[test]
    fn a_directory_made_by_hand_is_read_and_the_newer_intact_copy_counts() {
        let part = DiskPart { offset: 2 << 20, bytes: 8192 };
        let (odd, even) = (by_hand(3, &[(1, 2 << 20, 8192)]), by_hand(4, &[]));
        assert_eq!(decode(&[odd.clone(), even.clone()].concat()), Slots::Intact(vec![]));
        assert_eq!(decode(&[odd.clone(), vec![0; 4096]].concat()), Slots::Intact(vec![(Uuid([1; 16]), part)]));
        assert_eq!(decode(&[0; 8192]), Slots::None);
        assert_eq!(decode(&[even, vec![0; 4096]].concat()), Slots::Damaged);
        for at in (0..4096).filter(|at| !(8..16).contains(at)) {
            let mut rotten = [odd.clone(), vec![0; 4096]].concat();
            rotten[at] ^= 1;
            assert_eq!(decode(&rotten), Slots::Damaged, "byte {at}");
        }
        for bad in [&[(1, 4096, 4096)][..], &[(1, 1 << 20, 0)], &[(1, 1 << 20, 8192), (2, (1 << 20) + 4096, 4096)]] {
            assert_eq!(decode(&[by_hand(1, bad), vec![0; 4096]].concat()), Slots::Damaged);
        }
    }
}
