//! Leases sequences of fids: the next one before the last is used up.

use forebay_proto::{Errno, Fid, message::LeaseSequence};
use forebay_rpc::RpcError;

use crate::{Client, ClientResult, session::fids::Lease, tasks::detached};

impl Client {
    /// A fid nobody has used.
    pub(crate) async fn new_fid(&self) -> ClientResult<Fid> {
        loop {
            let taken = self.inner.mdt.fids.leases.borrow_mut().take();
            if let Some(fid) = taken {
                self.lease_ahead();
                return Ok(fid);
            }
            detached(self.env(), self.clone().lease(false)).await?;
        }
    }

    /// Makes something that has an unused fid. If the MDT ended the session before it executed the request, the fid is
    /// not this client's any more: then with another.
    pub(crate) async fn with_new_fid<T>(&self, make: impl AsyncFn(Fid) -> Result<T, RpcError>) -> ClientResult<T> {
        loop {
            let fid = self.new_fid().await?;
            let instance = self.inner.instance();
            match make(fid).await {
                Err(RpcError::Reply(reply)) if reply.errno == Errno::EINVAL && instance != self.inner.instance() => {}
                made => return Ok(made?),
            }
        }
    }

    /// As [`Client::new_fid`], if there is one without waiting.
    pub(crate) fn fid_at_once(&self) -> Option<Fid> {
        let fid = self.inner.mdt.fids.leases.borrow_mut().take()?;
        self.lease_ahead();
        Some(fid)
    }

    fn lease_ahead(&self) {
        let fids = &self.inner.mdt.fids;
        if fids.leases.borrow().is_low() && fids.leasing.try_lock().is_ok() {
            // A failure shows when the last fid is gone and the lease is waited for.
            drop(self.env().spawn(self.clone().lease(true)));
        }
    }

    /// Leases a sequence unless another task did meanwhile; `ahead`: before the last is used up.
    async fn lease(self, ahead: bool) -> ClientResult<()> {
        let fids = &self.inner.mdt.fids;
        let _turn = fids.leasing.lock().await;
        let enough = if ahead { !fids.leases.borrow().is_low() } else { !fids.leases.borrow().leases.is_empty() };
        if enough {
            return Ok(());
        }
        let instance = self.inner.instance();
        let reply = self.mdt(Fid::ROOT, &LeaseSequence {}).await?;
        if instance != self.inner.instance() {
            // It may have been leased to the client that this one was.
            return Ok(());
        }
        // Number 0 stays unused: a fid is never all zeros.
        let lease = Lease { mdt_index: reply.mdt_index, sequence: reply.sequence, next: 1 };
        fids.leases.borrow_mut().leases.push(lease);
        Ok(())
    }
}
