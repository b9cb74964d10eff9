//! Reading from whichever copy has the right bytes, and repairing the other.
//!
//! Invariant: a repair copies what is there at that moment, while all writes to the location wait. It never brings back
//! older bytes.

use std::ops::Range;

use forebay_env::{AlignedBuf, Boxed, EnvError, EnvErrorKind, EnvResult};

use super::mirror::{Mirror, Role, closed};
use crate::limits::{MIRROR_BAD_PLACES, MIRROR_STUCK, SECTOR};

/// Tells right bytes from wrong ones.
type Good<'a> = &'a dyn Fn(&[u8]) -> bool;

impl Mirror {
    /// See [`super::Device::read_checked`]. Without `good`, nothing shows whether the bytes are right. Then only
    /// unreadable sectors are repaired: in the rest, the other copy may have the better bytes.
    pub(crate) async fn read_checked(&self, offset: u64, len: usize, good: Option<Good<'_>>) -> EnvResult<AlignedBuf> {
        let mut worse = None;
        for copy in self.members() {
            match self.read_copy(copy, offset, len).await {
                Ok(bytes) if good.is_none_or(|good| good(&bytes)) => {
                    if worse.is_some() && good.is_some() {
                        self.mend_place(offset..offset + len as u64, copy).await?;
                    } else if worse.is_some() {
                        self.mend_unreadable(offset..offset + len as u64, copy).await?;
                    }
                    return Ok(bytes);
                }
                Err(error) if error.kind == EnvErrorKind::InvalidInput => return Err(error),
                Ok(bytes) => worse = Some(Ok(bytes)),
                Err(error) => worse = Some(worse.filter(Result::is_ok).unwrap_or(Err(error))),
            }
        }
        worse.unwrap_or_else(|| Err(closed()))
    }

    /// Repairs what a read found bad. A location that stays bad is only noted: the rest of its copy is still useful.
    fn mend_place(&self, range: Range<u64>, from: usize) -> Boxed<'_, EnvResult<()>> {
        Box::pin(async move {
            let (bad, good) = (self.dirs.path(1 - from, self.owner.part), self.dirs.path(from, self.owner.part));
            let (at, len) = (range.start, range.end - range.start);
            let life = {
                let state = self.state.borrow();
                let of = &state.copies[1 - from];
                if of.bad_places.contains(&at) {
                    return Ok(());
                }
                of.life
            };
            let _turn = self.copier.lock().await;
            let Err(error) = self.copy(range, from).await? else {
                self.env.log(&format!("{}: {len} bytes at {at} of {bad} were bad; mended from {good}", self.name()));
                return Ok(());
            };
            let words = format!("{len} bytes at {at} of {bad} are bad and stay so: {}", error.message);
            self.env.log(&format!("{}: {words}; replace it soon", self.name()));
            let many = {
                let mut state = self.state.borrow_mut();
                let places = &mut state.copies[1 - from].bad_places;
                places.insert(at);
                places.len() > MIRROR_BAD_PLACES
            };
            if many { self.lose(1 - from, life, &words).await } else { Ok(()) }
        })
    }

    /// Repairs those sectors that the other copy cannot read.
    async fn mend_unreadable(&self, range: Range<u64>, from: usize) -> EnvResult<()> {
        for at in range.step_by(SECTOR as usize) {
            match self.read_copy(1 - from, at, SECTOR as usize).await {
                Err(error) if error.kind == EnvErrorKind::Medium => self.mend_place(at..at + SECTOR, from).await?,
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Reads from one copy. A copy that does not answer for long is left behind, if the other one can continue.
    pub(crate) async fn read_copy(&self, copy: usize, offset: u64, len: usize) -> EnvResult<AlignedBuf> {
        let (disk, life) = {
            let state = self.state.borrow();
            let of = &state.copies[copy];
            let disk = of.disk.clone().filter(|_| of.role == Role::Member);
            let left = || EnvError::new(EnvErrorKind::Medium, format!("{}: this copy was left behind", self.name()));
            (disk.ok_or_else(left)?, of.life)
        };
        self.check_range(offset, len)?;
        if self.members().len() < 2 {
            return disk.read(offset, len).await;
        }
        match self.env.timeout(MIRROR_STUCK, disk.read(offset, len)).await {
            Ok(answer) => answer,
            Err(_) => {
                let words = format!("a read of {len} bytes at {offset} is not answered");
                self.lose(copy, life, &words).await?;
                Err(EnvError::new(EnvErrorKind::Medium, words))
            }
        }
    }

    /// The labels lie behind the part: no request may reach them.
    fn check_range(&self, offset: u64, len: usize) -> EnvResult<()> {
        let end = offset.checked_add(len as u64).filter(|end| *end <= self.owner.bytes);
        let words = || format!("{len} bytes at {offset} lie beyond the {} bytes of {}", self.owner.bytes, self.name());
        end.map(drop).ok_or_else(|| EnvError::new(EnvErrorKind::InvalidInput, words()))
    }

    /// Makes the other copy equal to `from` within `range`. A copy that cannot be repaired is left behind.
    pub(crate) async fn mend(&self, range: Range<u64>, from: usize) -> EnvResult<()> {
        let _turn = self.copier.lock().await;
        let life = self.state.borrow().copies[1 - from].life;
        let copied = self.copy(range.clone(), from).await?;
        if let Err(error) = copied {
            return self.lose(1 - from, life, &error.message).await;
        }
        Ok(())
    }

    /// Makes the other copy equal to `from` within `range`, while writes there wait. Bytes that are equal already are
    /// not written.
    ///
    /// Errors: those of `from` outside, those of the other copy inside.
    pub(super) async fn copy(&self, range: Range<u64>, from: usize) -> EnvResult<EnvResult<()>> {
        let _free = self.exclude(range.clone()).await;
        let (source, other) = {
            let state = self.state.borrow();
            (state.copies[from].disk.clone().ok_or_else(closed)?, state.copies[1 - from].disk.clone())
        };
        let Some(other) = other else { return Ok(Ok(())) };
        let (at, len) = (range.start, (range.end - range.start) as usize);
        let bytes = source.read(at, len).await?;
        let read = || {
            let other = other.clone();
            self.within(1 - from, async move { other.read(at, len).await })
        };
        if read().await.is_ok_and(|there| there[..] == bytes[..]) {
            return Ok(Ok(()));
        }
        let bytes = bytes.freeze();
        let written = async {
            let (disk, parts) = (other.clone(), vec![bytes.clone()]);
            self.within(1 - from, async move {
                disk.write(at, parts).await?;
                disk.flush().await
            })
            .await?;
            let again = read().await?;
            let kept = again[..] == bytes[..];
            let words =
                || EnvError::new(EnvErrorKind::Medium, format!("it does not keep what is written at {}", range.start));
            if kept { Ok(()) } else { Err(words()) }
        };
        let written = written.await;
        self.state.borrow_mut().mended += u64::from(written.is_ok());
        Ok(written)
    }

    /// As [`Mirror::copy`], for a chunk that may be unreadable in part; without a flush. Returns the number of
    /// unreadable sectors.
    pub(super) async fn fill(&self, range: Range<u64>, from: usize) -> EnvResult<EnvResult<u64>> {
        let _free = self.exclude(range.clone()).await;
        let (source, other) = {
            let state = self.state.borrow();
            (state.copies[from].disk.clone().ok_or_else(closed)?, state.copies[1 - from].disk.clone())
        };
        let Some(other) = other else { return Ok(Err(closed())) };
        let (first, len) = (range.start, (range.end - range.start) as usize);
        let write = |bytes: AlignedBuf| {
            let other = other.clone();
            self.within(1 - from, async move { other.write(first, vec![bytes.freeze()]).await })
        };
        let mut bytes = match source.read(first, len).await {
            // Written even if it reads back the same: a device whose flush failed may show bytes that a crash takes
            // away.
            Ok(bytes) => return Ok(write(bytes).await.map(|()| 0)),
            Err(error) if error.kind == EnvErrorKind::Medium => AlignedBuf::zeroed(len),
            Err(error) => return Err(error),
        };
        let there = {
            let other = other.clone();
            self.within(1 - from, async move { other.read(first, len).await }).await
        };
        let mut unreadable = 0;
        for (number, sector) in bytes.chunks_mut(SECTOR as usize).enumerate() {
            let at = range.start + number as u64 * SECTOR;
            match source.read(at, sector.len()).await {
                Ok(read) => sector.copy_from_slice(&read),
                Err(error) if error.kind == EnvErrorKind::Medium => {
                    unreadable += 1;
                    // The other copy may have the right bytes there: it may have been a member before.
                    if let Ok(there) = &there {
                        let within = (at - range.start) as usize;
                        sector.copy_from_slice(&there[within..within + sector.len()]);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(write(bytes).await.map(|()| unreadable))
    }
}
