//! GrantedSpace for fallocate(2) beyond what one OST has: what mounts were granted comes back, and behind the end of a file there are other OSTs.

use std::collections::BTreeMap;

use forebay_env::Time;
use forebay_proto::{
    limits::STRIPE_BYTES_MIN,
    message::{OstStatFs, OstStatFsReply},
};
use forebay_rpc::Call;

use crate::{
    Allocate, Client, ClientError, ClientResult, OpenFile, io::plan::plan_whole, limits,
    session::instance::ClientInstance, tasks::try_all,
};

impl Client {
    /// Sets room aside for `length` bytes from `offset` on, for which their OSTs had none (`error`). Fails with that where it was right.
    pub(crate) async fn reserve_elsewhere(
        &self,
        file: &OpenFile,
        (offset, length): (u64, u64),
        what: Allocate,
        instance: ClientInstance,
        error: ClientError,
    ) -> ClientResult<()> {
        let until = self.env().now() + limits::GRANTS_WAIT;
        while self.comes_back(file, offset, length, until).await? {
            match self.roomy(file, async || self.allocate_once(file, (offset, length), what, instance).await).await {
                Err(again) if again.errno == error.errno => {}
                done => return done,
            }
        }
        let Allocate::Reserve { keep_size: false } = what else { return Err(error) };
        let (size, end) = (self.getattr(file.fid(), Some(file)).await?.size, offset + length);
        // Before anything is changed. What lies in the file stays on its OSTs.
        if offset < size || self.statfs().await?.available_bytes < length {
            return Err(error);
        }
        // As much as there is on each: a file has few parts.
        let osts = self.inner.peers.osts();
        while self.env().now() < until && self.spaces(osts.clone()).await?.iter().any(|space| space.granted_bytes > 0) {
            self.env().sleep(limits::GRANTS_POLL).await;
        }
        self.reserve_on_others(file, (offset, end), what, instance, error).await
    }

    /// The OSTs of the range would have room for it, were what is granted to mounts given back, and it may be in a moment.
    async fn comes_back(&self, file: &OpenFile, offset: u64, length: u64, until: Time) -> ClientResult<bool> {
        if self.env().now() >= until {
            return Ok(false);
        }
        let mut wanted: BTreeMap<u32, u64> = BTreeMap::new();
        for range in plan_whole(&file.state().layout(), offset, length) {
            *wanted.entry(range.ost).or_default() += range.length;
        }
        let spaces = self.spaces(wanted.keys().copied().collect()).await?;
        let may = spaces.iter().zip(wanted.values()).all(|(space, wanted)| space.promisable_bytes >= *wanted);
        if !may || spaces.iter().all(|space| space.granted_bytes == 0) {
            return Ok(false);
        }
        self.env().sleep(limits::GRANTS_POLL).await;
        Ok(true)
    }

    /// As a file grows onto full OSTs: as much as they have room for, then the rest on others.
    async fn reserve_on_others(
        &self,
        file: &OpenFile,
        (mut from, end): (u64, u64),
        what: Allocate,
        instance: ClientInstance,
        error: ClientError,
    ) -> ClientResult<()> {
        for _ in 0..limits::EXTENSIONS {
            let layout = file.state().layout();
            let Some((_, part)) = layout.touched(from, 1).next().filter(|(_, part)| part.has_osts()) else { break };
            let spaces = self.spaces(part.osts.clone()).await?;
            let room = spaces.iter().map(|space| space.promisable_bytes.saturating_sub(space.granted_bytes)).min();
            // Where several take turns, each has whole stripes.
            let unit = if part.osts.len() == 1 { STRIPE_BYTES_MIN } else { part.stripe_bytes };
            let room = room.unwrap_or(0) / u64::from(unit) * u64::from(unit);
            let here = (room * part.osts.len() as u64).min(end - from);
            if here > 0 {
                self.roomy(file, async || self.allocate_once(file, (from, here), what, instance).await).await?;
                from += here;
            }
            if from == end {
                return Ok(());
            }
            self.extend(file, from, 1, &part.osts).await.map_err(|_| error.clone())?;
        }
        Err(error)
    }

    async fn spaces(&self, osts: Vec<u32>) -> ClientResult<Vec<OstStatFsReply>> {
        let asks = osts.into_iter().map(|ost| {
            let client = self.clone();
            async move { client.ost(ost, &OstStatFs {}, Call::default()).await.map(|called| called.reply) }
        });
        Ok(try_all(self.env(), asks).await?)
    }
}
