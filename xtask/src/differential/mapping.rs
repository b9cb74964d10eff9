//! Calls through mappings. The kernel reads and writes the memory, from and to another file, so an access beyond the
//! end of the mapped file returns EFAULT.

use std::os::fd::AsRawFd;

use super::{
    answer::{Answer, Fact},
    call::{Call, Data, SlotId},
    place::{Map, PAGE, Place},
    sys::{Arg::*, Asked, sys},
};

impl Place {
    /// Makes the call, if it is one of these.
    pub fn mapping_call(&mut self, call: &Call) -> Option<Answer> {
        Some(match call {
            Call::Load { slot, page, count } => {
                self.with_mapping(*slot, *page, *count, false, |place, address| place.load(address, *count))
            }
            Call::Store { slot, page, skip, data, msync } => {
                let length = skip + data.length;
                self.with_mapping(*slot, *page, length, true, |place, address| {
                    let stored = place.store(address + *skip as i64, *data);
                    let answer = Answer::from(stored)
                        .with(Fact::Words("fsync", place.stored_is_kept(*slot, address, length, *msync)));
                    let loaded = place.load(address, length);
                    loaded.facts.into_iter().fold(answer, Answer::with)
                })
            }
            Call::Map { map, slot, page, pages, private } => self.map(*map, *slot, *page, *pages, *private).into(),
            Call::MapLoad { map, at, count } => match self.inside(*map, *at, *count) {
                Some((address, count)) => self.load(address, count),
                None => Err(libc::EFAULT).into(),
            },
            Call::MapStore { map, at, data } => match self.inside(*map, *at, data.length) {
                Some((address, length)) => {
                    let stored = self.store(address, Data { length, ..*data });
                    let start = address / PAGE * PAGE;
                    let room = address - start + length as i64;
                    let synced = sys(libc::SYS_msync, &mut [Int(start), Int(room), Int(libc::MS_SYNC.into())]);
                    Answer::from(stored).with(Fact::Words("msync", format!("{synced:?}")))
                }
                None => Err(libc::EFAULT).into(),
            },
            Call::Unmap { map } => self.unmap(*map).into(),
            _ => return None,
        })
    }

    /// Maps a range for the duration of `act`.
    fn with_mapping(
        &mut self,
        slot: SlotId,
        page: i64,
        length: usize,
        store: bool,
        act: impl FnOnce(&mut Self, i64) -> Answer,
    ) -> Answer {
        let (fd, _kept) = self.fresh(slot, if store { libc::O_RDWR } else { libc::O_RDONLY });
        let protection = libc::PROT_READ | if store { libc::PROT_WRITE } else { 0 };
        let length = length.max(1).next_multiple_of(PAGE as usize);
        match self.mmap(fd, page, length, protection, libc::MAP_SHARED) {
            Ok(address) => {
                let answer = act(self, address);
                let _ = sys(libc::SYS_munmap, &mut [Int(address), Int(length as i64)]);
                answer
            }
            Err(errno) => Err(errno).into(),
        }
    }

    fn mmap(&self, fd: i64, page: i64, length: usize, protection: i32, flags: i32) -> Asked {
        let mut args =
            [Int(0), Int(length as i64), Int(protection.into()), Int(flags.into()), Int(fd), Int(page * PAGE)];
        sys(libc::SYS_mmap, &mut args)
    }

    /// A store may move times as late as at the next msync(2) or fsync(2), so one of them is called immediately.
    fn stored_is_kept(&self, slot: SlotId, address: i64, length: usize, msync: bool) -> String {
        let done = if msync {
            sys(libc::SYS_msync, &mut [Int(address), Int(length as i64), Int(libc::MS_SYNC.into())])
        } else {
            sys(libc::SYS_fsync, &mut [Int(self.fd(slot))])
        };
        format!("{done:?}")
    }

    /// Reads memory through the kernel.
    fn load(&self, address: i64, count: usize) -> Answer {
        let fd: i64 = self.bounce.as_raw_fd().into();
        let result = sys(libc::SYS_pwrite64, &mut [Int(fd), Int(address), Int(count as i64), Int(0)]);
        let mut room = vec![0; result.unwrap_or(0).max(0) as usize];
        let _ = sys(libc::SYS_pread64, &mut [Int(fd), Out(&mut room), Int(0)]);
        Answer::from(result).with(Fact::Bytes(room))
    }

    /// Writes memory through the kernel.
    fn store(&self, address: i64, data: Data) -> Asked {
        let fd: i64 = self.bounce.as_raw_fd().into();
        sys(libc::SYS_pwrite64, &mut [Int(fd), In(&data.bytes()), Int(0)])?;
        sys(libc::SYS_pread64, &mut [Int(fd), Int(address), Int(data.length as i64), Int(0)])
    }

    fn map(&mut self, map: usize, slot: SlotId, page: i64, pages: usize, private: bool) -> Asked {
        let flags = if private { libc::MAP_PRIVATE } else { libc::MAP_SHARED };
        let length = pages * PAGE as usize;
        let address = self.mmap(self.fd(slot), page, length, libc::PROT_READ | libc::PROT_WRITE, flags)?;
        let _ = self.unmap(map);
        self.maps[map] = Some(Map { address, length });
        Ok(0)
    }

    /// munmap(2), if the slot is mapped.
    pub fn unmap(&mut self, map: usize) -> Asked {
        match self.maps[map].take() {
            Some(Map { address, length }) => sys(libc::SYS_munmap, &mut [Int(address), Int(length as i64)]),
            None => Err(libc::EFAULT),
        }
    }

    /// The part of a mapping within a range.
    fn inside(&self, map: usize, at: usize, count: usize) -> Option<(i64, usize)> {
        let Map { address, length } = self.maps[map].as_ref()?;
        let at = at % length;
        Some((address + at as i64, count.min(length - at)))
    }
}
