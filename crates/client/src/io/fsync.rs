//! Durability: of one file, of everything.

use forebay_env::Boxed;
use forebay_proto::{
    Errno, Fid,
    message::{FlushBuffered, GetAttr, Sync},
};
use forebay_rpc::Call;

use crate::{
    Client, ClientError, ClientResult, OpenFile,
    delayed::queue::Scope,
    leases::Holds,
    session::losses::Began,
    tasks::{all, try_all},
};

impl Client {
    /// Commits all uncommitted changes of the file by anyone, on every target of its layout, and its inode and first
    /// name at the MDT (also with `datasync`: without them the data could not be found).
    ///
    /// EIO if acknowledged changes were lost before they could be committed.
    pub fn fsync<'a>(&'a self, file: &'a OpenFile, _datasync: bool) -> Boxed<'a, ClientResult<()>> {
        Box::pin(async move {
            let was_good = file.check();
            // An earlier loss is reported once, here too.
            file.report_to_sync()?;
            was_good?;
            let _outside = self.flush_writes_through(file).await?;
            let synced = self.sync_targets(file).await;
            // A target that ended the session meanwhile has synced less than was acknowledged.
            file.report_to_sync()?;
            synced
        })
    }

    /// The MDT, and every OST that the file has objects on, also those that another client has put it on meanwhile.
    async fn sync_targets(&self, file: &OpenFile) -> ClientResult<()> {
        #[derive(Clone, Copy)]
        enum Part {
            Ost(u32),
            Mdt,
            Layout,
        }
        let fid = file.fid();
        let is_ours = self.inner.mdt.leases.holds(fid) == Holds::All;
        let looks = [Part::Mdt].into_iter().chain((!is_ours).then_some(Part::Layout));
        let mut synced = file.layout();
        let mut parts: Vec<Part> = synced.osts().into_iter().map(Part::Ost).chain(looks).collect();
        while !parts.is_empty() {
            let objects = Sync { fid: Some(synced.objects_of(fid)) };
            let syncs = parts.into_iter().map(|part| {
                let (client, objects, state) = (self.clone(), objects.clone(), file.state().clone());
                async move {
                    match part {
                        Part::Ost(ost) => {
                            client.inner.peers.former_drained(Some(ost)).await;
                            client.ost(ost, &objects, Call::default()).await.map(drop)?;
                        }
                        Part::Mdt => client.mdt(fid, &Sync { fid: Some(fid) }).await.map(drop)?,
                        Part::Layout => client.refresh(&state).await?,
                    }
                    ClientResult::Ok(())
                }
            });
            try_all(self.env(), syncs).await?;
            let layout = file.layout();
            let same_objects = layout.objects_of(fid) == synced.objects_of(fid);
            let known = if same_objects { synced.osts() } else { Vec::new() };
            parts = layout.osts().into_iter().filter(|ost| !known.contains(ost)).map(Part::Ost).collect();
            synced = layout;
        }
        Ok(())
    }

    /// Commits the names and attributes of a directory, whoever changed them.
    ///
    /// EIO if changes of the directory or its names were lost after they had been acknowledged.
    pub fn fsync_dir(&self, fid: Fid) -> Boxed<'_, ClientResult<()>> {
        Box::pin(async move {
            let began = self.inner.losses.begin();
            // Who looks at it has what others answered ahead sent first. (What is there no more is synced all the same.)
            let _ = self.mdt(fid, &GetAttr { fid }).await;
            let synced = self.mdt(fid, &Sync { fid: Some(fid) }).await;
            self.inner.losses.report_of(fid, began).map_or(Ok(()), Err)?;
            Ok(synced.map(drop)?)
        })
    }

    /// When it returns, everything that was acknowledged to anybody before is durable, on every target of the map.
    ///
    /// EIO if something acknowledged to this client was lost, and no `sync_all` had reported that when this one began.
    pub fn sync_all(&self) -> Boxed<'_, ClientResult<()>> {
        Box::pin(async move {
            let began = self.inner.losses.begin();
            // What other clients buffer is on no target yet.
            self.mdt(Fid::ROOT, &FlushBuffered {}).await?;
            let osts =
                try_all(self.env(), self.inner.peers.osts().into_iter().map(|ost| self.clone().begin(ost))).await;
            let synced = self.sync_started(began).await;
            osts.map(drop).and(synced)
        })
    }

    /// Makes sure that there is a session with an OST.
    async fn begin(self, ost: u32) -> ClientResult<()> {
        self.inner.peers.ost(ost).await.map(drop)
    }

    /// As [`Client::sync_all`], on the targets this client has talked to: all it was acknowledged is there.
    pub(crate) async fn sync_started(&self, began: Began) -> ClientResult<()> {
        self.flush_delayed(Scope::All).await;
        self.send_everything_kept().await;
        self.inner.peers.former_drained(None).await;
        let syncs = self.inner.peers.started().into_iter().map(|peer| async move {
            peer.call(&Sync { fid: None }, Call::default()).await?;
            ClientResult::Ok(())
        });
        let synced = all(self.env(), syncs).await.into_iter().collect::<ClientResult<Vec<()>>>();
        match self.inner.losses.report(began) {
            0 => synced.map(drop),
            n => {
                let words = format!("{n} acknowledged changes were lost before they were durable");
                Err(ClientError::new(Errno::EIO, words))
            }
        }
    }
}
