//! Ageing: the store is filled to 85 %, twice its capacity is overwritten at random, and a third of the files is
//! deleted.

use std::{cell::RefCell, rc::Rc};

use forebay_command::progress::{self, Counts};
use forebay_store::StoreResult;

use super::{
    args::{APPEND_BYTES, StoreArgs},
    load::{Load, fid},
};
use crate::ior::SplitMix64;

/// Bytes of one file of the ageing.
const FILE_BYTES: u64 = 16 << 20;
/// Percentage of the store's capacity that is filled.
const FULL_PERCENT: u64 = 85;
/// Lengths of overwrites.
const OVERWRITE_BYTES: std::ops::RangeInclusive<u64> = 4 << 10..=64 << 10;
/// First fid of these files; the measured appends use smaller ones.
const FIRST_FID: u64 = 1 << 16;

/// The files of an aged store.
pub struct Files {
    alive: Vec<u64>,
}

impl Files {
    /// Fills the store with files.
    pub async fn fill(load: &Load, args: &StoreArgs) -> StoreResult<Self> {
        let count = load.store().space().total_bytes * FULL_PERCENT / 100 / FILE_BYTES;
        let bar = Rc::new(progress::bar("filling to 85 %", count * FILE_BYTES, Counts::Bytes));
        let per_file = FILE_BYTES / APPEND_BYTES;
        let append = move |load: Load, number: u64| {
            let bar = bar.clone();
            async move {
                bar.add(APPEND_BYTES);
                load.append(fid(FIRST_FID + number / per_file), number % per_file * APPEND_BYTES).await
            }
        };
        load.run(count * per_file, args.depth, append).await?;
        Ok(Self { alive: (0..count).map(|number| FIRST_FID + number).collect() })
    }

    /// Overwrites `bytes` in pieces of 4 to 64 KiB at random offsets, every other one aligned to 4 KiB. Returns the
    /// bytes written.
    pub async fn overwrite(&self, load: &Load, args: &StoreArgs, bytes: u64) -> StoreResult<u64> {
        let (least, most) = (*OVERWRITE_BYTES.start(), *OVERWRITE_BYTES.end());
        let count = bytes / ((least + most) / 2);
        let bar = Rc::new(progress::bar("overwriting at random", bytes, Counts::Bytes));
        let random = Rc::new(RefCell::new(SplitMix64(args.seed)));
        let done = Rc::new(std::cell::Cell::new(0));
        let (alive, sum) = (self.alive.clone(), done.clone());
        let job = move |load: Load, number: u64| {
            let mut random = random.borrow_mut();
            let grain = if number.is_multiple_of(2) { 4096 } else { 1 };
            let length = (least + random.next_u64() % (most - least + 1)) / grain * grain;
            let offset = random.next_u64() % (FILE_BYTES - length + 1) / grain * grain;
            let file = alive[(random.next_u64() % alive.len() as u64) as usize];
            sum.set(sum.get() + length);
            bar.add(length);
            async move { load.overwrite(fid(file), offset, length).await }
        };
        load.run(count, args.depth, job).await?;
        Ok(done.get())
    }

    /// Deletes every third file.
    pub async fn delete_a_third(&mut self, load: &Load) -> StoreResult<()> {
        for number in self.alive.iter().step_by(3) {
            load.destroy(fid(*number)).await?;
        }
        let mut place = 0;
        self.alive.retain(|_| {
            place += 1;
            place % 3 != 1
        });
        Ok(())
    }

    /// Bytes of the remaining files.
    pub fn bytes(&self) -> u64 {
        self.alive.len() as u64 * FILE_BYTES
    }
}
