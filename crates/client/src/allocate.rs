//! fallocate(2).

use forebay_proto::{
    Errno,
    limits::{FILE_BYTES, PUNCH_BYTES},
    message::Punch,
};
use forebay_rpc::Call;

use crate::{
    Client, ClientResult, OpenFile,
    errors::Trouble,
    file::Snapshot,
    plan::{WholeRange, plan_whole},
    tasks::{detached, try_all},
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
    pub async fn fallocate(&self, file: &OpenFile, offset: u64, length: u64, what: Allocate) -> ClientResult<()> {
        file.check_write()?;
        if length == 0 {
            return Err(Errno::EINVAL.into());
        }
        if offset.checked_add(length).is_none_or(|end| end > FILE_BYTES) {
            return Err(Errno::EFBIG.into());
        }
        let (client, file, busy) = (self.clone(), file.clone(), file.state().busy());
        detached(self.env(), async move {
            let _busy = busy;
            let outside = client.send_kept_through(&file).await?;
            file.inner.wrote.set(true);
            file.state().make_sparse();
            client.roomy(&file, async || client.allocate_once(&file, offset, length, what).await).await?;
            drop(outside);
            if file.mode().sync { client.fsync(&file, true).await } else { Ok(()) }
        })
        .await
    }

    async fn allocate_once(&self, file: &OpenFile, offset: u64, length: u64, what: Allocate) -> Result<(), Trouble> {
        let at = self.with_osts(file.state(), file.state().snapshot(), offset, length).await?;
        if let Some((offset, length)) = at.layout.first_gap(offset, length).filter(|_| what.reserves()) {
            return Err(Trouble::Bare(offset, length));
        }
        if what.punches() {
            let ranges = plan_whole(&at.layout, offset, length).into_iter().flat_map(steps);
            let punches = ranges.map(|range| {
                let (client, file, at) = (self.clone(), file.clone(), at.clone());
                let (offset, length) = (range.offset, range.length);
                async move {
                    let request = Punch { object: at.object, offset, length, attr_epoch: at.attr_epoch };
                    let call = Call { fid: Some(file.fid()), ..Call::level(client.level(false)) };
                    let called = client.ost(range.ost, &request, call).await?;
                    file.state().told_time(at.attr_epoch, called.reply.mtime_ns);
                    Ok::<(), Trouble>(())
                }
            });
            try_all(self.env(), punches).await?;
        }
        if what.reserves() {
            let reserves = plan_whole(&at.layout, offset, length).into_iter().map(|range| {
                let (client, file, at) = (self.clone(), file.clone(), at.clone());
                async move { client.reserve_range(&file, &at, range).await }
            });
            try_all(self.env(), reserves).await?;
        }
        if what.extends() {
            self.raise(file.state(), &at, offset + length, self.level(false)).await?;
        }
        Ok(())
    }
}

impl Client {
    /// Sets room aside in one object, as far at a time as its OST goes.
    async fn reserve_range(&self, file: &OpenFile, at: &Snapshot, range: WholeRange) -> Result<(), Trouble> {
        let (mut offset, end) = (range.offset, range.offset + range.length);
        while offset < end {
            let (object, length, attr_epoch) = (at.object.clone(), end - offset, at.attr_epoch);
            let request = forebay_proto::message::Allocate { object, offset, length, attr_epoch };
            let call = Call { fid: Some(file.fid()), ..Call::level(self.level(false)) };
            let called = self.ost(range.ost, &request, call).await?;
            file.state().told_time(at.attr_epoch, called.reply.mtime_ns);
            // One that got nowhere would be asked for ever.
            offset = called.reply.end.max(offset + 1);
        }
        Ok(())
    }
}

/// A range of an object in steps that one request takes.
fn steps(range: WholeRange) -> impl Iterator<Item = WholeRange> {
    let begins = (range.offset..range.offset + range.length).step_by(PUNCH_BYTES as usize);
    let end = range.offset + range.length;
    begins.map(move |offset| WholeRange { offset, length: PUNCH_BYTES.min(end - offset), ..range })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_of_any_length_is_made_in_steps_that_cover_it() {
        for length in [1, PUNCH_BYTES, PUNCH_BYTES + 1, 5 * PUNCH_BYTES - 3] {
            let all: Vec<_> = steps(WholeRange { ost: 1, offset: 77, length }).collect();
            assert!(all.iter().all(|step| (1..=PUNCH_BYTES).contains(&step.length)));
            assert_eq!(all.iter().map(|step| step.length).sum::<u64>(), length);
            assert!(
                all.windows(2).all(|pair| pair[0].offset + pair[0].length == pair[1].offset) && all[0].offset == 77
            );
        }
    }
}
