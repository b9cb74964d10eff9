//! `striped`: files over all OSTs, through the client library; each thread of a file writes its part of it.

use std::cell::RefCell;

use bytes::Bytes;
use forebay_client::{Client, ClientResult, MountOptions, OpenFile, OpenMode};
use forebay_command::error::{CliError, CliResult, Doing};
use forebay_env::{Address, Env};
use forebay_proto::{
    Fid,
    message::{Caller, LayoutSpec},
};

use super::{
    plan::{Phase, Share, Work},
    sessions::payload,
};

/// Bytes of a stripe.
const STRIPE_BYTES: u32 = 1 << 20;
/// Stripe count: one stripe on every OST.
const ALL_OSTS: u32 = u32::MAX;

/// A mounted client.
pub struct Striped {
    env: Env,
    client: Client,
    bytes: Bytes,
    /// Open files of the current run.
    open: RefCell<Vec<OpenFile>>,
}

impl Striped {
    /// Mounts.
    pub async fn mount(env: &Env, mgs: Vec<Address>, rsz: u64) -> CliResult<Self> {
        let options = MountOptions {
            description: "bench obdfilter-survey".into(),
            read_cache_bytes: 0,
            ..MountOptions::new(mgs)
        };
        let client = Client::mount(env, options).await.doing(|| "cannot mount".into())?;
        Ok(Self { env: env.clone(), client, bytes: payload(rsz), open: RefCell::default() })
    }

    /// Runs all threads, then waits until everything is durable.
    pub async fn run(&self, work: &Work) -> CliResult {
        match work.phase {
            Phase::Destroy => return self.remove(work).await,
            Phase::Write => self.create(work).await.doing(|| "create".into())?,
            Phase::Rewrite | Phase::Read => {}
        }
        let files: Vec<OpenFile> = self.open.borrow().clone();
        let threads: Vec<_> = work
            .striped_shares()
            .into_iter()
            .map(|share| {
                let (client, bytes, work) = (self.client.clone(), self.bytes.clone(), *work);
                let file = files[share.object as usize].clone();
                self.env.spawn(async move { transfer(&client, &file, bytes, work, share).await })
            })
            .collect();
        for thread in threads {
            let ended = thread.await.ok_or_else(|| CliError::failed("a thread ended without a word"))?;
            ended.doing(|| work.phase.name().into())?;
        }
        self.client.sync_all().await.doing(|| "sync".into())
    }

    async fn create(&self, work: &Work) -> ClientResult<()> {
        for object in 0..work.point.objects {
            let (name, mode) = (name(work, object), OpenMode::READ_WRITE);
            let layout = LayoutSpec { stripe_count: ALL_OSTS, stripe_bytes: STRIPE_BYTES, ..LayoutSpec::inherit() };
            let (_, file) = self.client.create(&caller(), Fid::ROOT, name.as_bytes(), 0o644, mode, layout).await?;
            self.open.borrow_mut().push(file);
        }
        Ok(())
    }

    async fn remove(&self, work: &Work) -> CliResult {
        let files = self.open.take();
        for (object, file) in (0..).zip(files) {
            self.client.close(file).await.doing(|| "close".into())?;
            self.client.unlink(&caller(), Fid::ROOT, name(work, object).as_bytes()).await.doing(|| "unlink".into())?;
        }
        self.client.sync_all().await.doing(|| "sync".into())
    }

    /// Unmounts.
    pub async fn end(self) -> CliResult {
        self.client.unmount().await.doing(|| "unmount".into())
    }
}

async fn transfer(client: &Client, file: &OpenFile, bytes: Bytes, work: Work, share: Share) -> ClientResult<()> {
    for number in 0..share.requests {
        let offset = share.from + number * work.rsz;
        match work.phase {
            Phase::Read => drop(client.read_parts(file, offset, work.rsz as usize).await?),
            _ => drop(client.write(file, offset, bytes.clone()).await?),
        }
    }
    Ok(())
}

fn name(work: &Work, object: u32) -> String {
    format!("survey.{}.{object}", work.run)
}

fn caller() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new() }
}
