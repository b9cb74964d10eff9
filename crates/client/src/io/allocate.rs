//! fallocate(2).

use forebay_env::Boxed;
use forebay_proto::{
    Errno,
    limits::{FILE_BYTES, PUNCH_BYTES},
    message::Punch,
};

use crate::{
    Client, ClientResult, OpenFile,
    delayed::queue::Scope,
    errors::Trouble,
    file::FileState,
    io::plan::{WholeRange, plan_whole},
    io::snapshot::Snapshot,
    limits,
    session::instance::ClientInstance,
    tasks::{Counted, detached, try_all},
};

/// What to do with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Make a hole of it; the size stays.
    Punch,
    /// Make it read as zeros, with room set aside; `keep_size`: do not extend the file.
    Zero {
        /// Do not extend the file.
        keep_size: bool,
    },
    /// Set room aside for what of it holds no bytes, so that a later write there finds it; `keep_size`: do not extend the
    /// file.
    Reserve {
        /// Do not extend the file.
        keep_size: bool,
    },
}

impl Allocate {
    fn punches(self) -> bool {
        matches!(self, Self::Punch | Self::Zero { .. })
    }

    fn reserves(self) -> bool {
        matches!(self, Self::Reserve { .. } | Self::Zero { .. })
    }

    fn extends(self) -> bool {
        matches!(self, Self::Reserve { keep_size: false } | Self::Zero { keep_size: false })
    }
}

impl Client {
    /// Changes a range without writing it.
    pub fn fallocate<'a>(
        &'a self,
        file: &'a OpenFile,
        offset: u64,
        length: u64,
        what: Allocate,
    ) -> Boxed<'a, ClientResult<()>> {
        Box::pin(async move {
            let instance = file.check_write()?;
            if length == 0 {
                return Err(Errno::EINVAL.into());
            }
            if offset.checked_add(length).is_none_or(|end| end > FILE_BYTES) {
                return Err(Errno::EFBIG.into());
            }
            let (file, busy) = (file.clone(), file.state().busy());
            detached(self.env(), self.clone().allocate(file, busy, (offset, length), what, instance)).await
        })
    }

    async fn allocate(
        self,
        file: OpenFile,
        _busy: Counted<FileState>,
        (offset, length): (u64, u64),
        what: Allocate,
        instance: ClientInstance,
    ) -> ClientResult<()> {
        self.flush_delayed(Scope::SetAttr(file.fid())).await;
        let outside = self.flush_writes_through(&file).await?;
        file.inner.wrote.set(true);
        file.state().activity.sparse.set(true);
        let changing = self.all_bytes_change(file.fid());
        // Once more in any case: destroys may have ended between the refusal and the question about them.
        let (mut attempts, mut is_first) = (1..limits::SPACE_ATTEMPTS, true);
        let done = loop {
            match self.roomy(&file, async || self.allocate_once(&file, (offset, length), what, instance).await).await {
                Err(error)
                    if error.errno == Errno::ENOSPC
                        && attempts.next().is_some()
                        && (self.made_room(&file, file.state().snapshot().layout.osts()).await
                            || std::mem::take(&mut is_first)) => {}
                done => break done,
            }
        };
        if let Err(error) = done {
            if error.errno != Errno::ENOSPC || !what.reserves() {
                return Err(error);
            }
            self.reserve_elsewhere(&file, (offset, length), what, instance, error).await?;
        }
        drop((changing, outside));
        if file.mode().sync { self.fsync(&file, true).await } else { Ok(()) }
    }

    pub(crate) async fn allocate_once(
        &self,
        file: &OpenFile,
        (offset, length): (u64, u64),
        what: Allocate,
        instance: ClientInstance,
    ) -> Result<(), Trouble> {
        let at = self.with_osts(file.state(), file.snapshot_in(instance)?, offset, length).await?;
        if let Some((offset, length)) = at.layout.first_gap(offset, length).filter(|_| what.reserves()) {
            return Err(Trouble::Bare(offset, length));
        }
        let ranges = || plan_whole(&at.layout, offset, length).into_iter();
        let reserve = async || {
            let reserves = ranges().map(|range| {
                let (client, file, at) = (self.clone(), file.clone(), at.clone());
                async move { client.reserve_range(&file, &at, range).await }
            });
            try_all(self.env(), reserves).await
        };
        if what.reserves() {
            // Before anything is zeroed: where there is no room nothing is.
            reserve().await?;
        }
        if what.punches() {
            let punches = ranges().map(|range| {
                let (client, file, at) = (self.clone(), file.clone(), at.clone());
                async move { client.punch_range(&file, &at, range).await }
            });
            try_all(self.env(), punches).await?;
        }
        if what.punches() && what.reserves() {
            reserve().await?;
        }
        if what.extends() {
            self.raise(file.state(), &at, offset + length, self.level_of(file)).await?;
        }
        Ok(())
    }
}

impl Client {
    /// Makes a hole in one object, in as many parts as its OST wants, last first.
    async fn punch_range(&self, file: &OpenFile, at: &Snapshot, range: WholeRange) -> Result<(), Trouble> {
        let mut parts = vec![range];
        while let Some(part) = parts.pop() {
            let (object, offset, length, attr_epoch) = (at.object.clone(), part.offset, part.length, at.attr_epoch);
            let request = Punch { object, offset, length, attr_epoch };
            match self.ost_of(at, part.ost).await?.call(&request, self.change_call(file)).await.map_err(Trouble::from) {
                Ok(called) => file.state().told_time(called.reply.attr_epoch, called.reply.mtime_ns),
                Err(Trouble::Failed(error)) if error.errno == Errno::E2BIG && length > PUNCH_BYTES => {
                    parts.extend(halves(part));
                }
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(())
    }

    /// Sets room aside in one object, as far at a time as its OST goes.
    async fn reserve_range(&self, file: &OpenFile, at: &Snapshot, range: WholeRange) -> Result<(), Trouble> {
        let (mut offset, end) = (range.offset, range.offset + range.length);
        while offset < end {
            let (object, length, attr_epoch) = (at.object.clone(), end - offset, at.attr_epoch);
            let request = forebay_proto::message::Allocate { object, offset, length, attr_epoch };
            let called = self.ost_of(at, range.ost).await?.call(&request, self.change_call(file)).await?;
            file.state().told_time(called.reply.attr_epoch.max(at.attr_epoch), called.reply.mtime_ns);
            // A request that got nowhere would be repeated for ever.
            offset = called.reply.end.max(offset + 1);
        }
        Ok(())
    }
}

/// A range of an object in two.
fn halves(range: WholeRange) -> [WholeRange; 2] {
    let length = (range.length / 2).next_multiple_of(PUNCH_BYTES).min(range.length);
    [
        WholeRange { length, ..range },
        WholeRange { offset: range.offset + length, length: range.length - length, ..range },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_a_range_are_all_of_it_and_end_at_what_is_never_too_much() {
        for length in [PUNCH_BYTES + 1, 5 * PUNCH_BYTES - 3, 1 << 60] {
            let mut range = WholeRange { ost: 1, offset: 77, length };
            while range.length > PUNCH_BYTES {
                let [first, second] = halves(range);
                assert_eq!((first.offset, second.offset), (range.offset, range.offset + first.length));
                assert_eq!(first.length + second.length, range.length);
                assert!(second.length > 0 && first.length < range.length);
                range = first;
            }
        }
    }
}
