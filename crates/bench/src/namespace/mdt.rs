//! A metadata server, an OST that never gets data, and their only client, in one process. Every request passes through
//! rpc, target, mds and store.

use std::{cell::Cell, collections::BTreeMap, rc::Rc};

use forebay_command::error::{CliError, CliResult, Doing};
use forebay_env::{Address, Env, sync::Mutex};
use forebay_mds::{Mds, MdsOptions};
use forebay_oss::Oss;
use forebay_proto::{
    Fid, FidSequence, TargetId, Uuid,
    ids::FID_SEQUENCE_BITS,
    message::{AwaitRecalls, Caller, Create, LayoutSpec, LeaseSequence, Lookup, Make, ReadDir, Unlink},
};
use forebay_rpc::{Call, ClientSession, PinBudget, SessionOptions};
use forebay_store::{OpenOptions, Store};
use forebay_target::{Target, TargetOptions};

/// Addresses within this process.
const MDT_ADDRESS: &str = "bench-mdt";
const OST_ADDRESS: &str = "bench-ost";
/// Bytes that the client may pin for replay.
const PINNED_BYTES: u64 = 64 << 20;
/// Bytes of directory entries in one reply.
const LISTED_BYTES: u32 = 64 << 10;
const S_IFDIR: u32 = 0o040_000;

/// A served MDT, the OST it needs for layouts, and a session.
pub struct Mdt {
    store: Store,
    ost: (Target, Store),
    mds: Rc<Mds>,
    target: Target,
    client: Client,
}

/// The client. Clones share it.
#[derive(Clone)]
pub struct Client {
    session: ClientSession,
    fids: Rc<Mutex<()>>,
    /// The leased sequence and the next number in it.
    next: Rc<Cell<Option<(u32, FidSequence, u32)>>>,
}

impl Mdt {
    /// Serves the MDT and the OST in the directories, and connects to the MDT.
    pub async fn start(env: &Env, mdt_dir: &str, ost_dir: &str, cache_bytes: Option<u64>) -> CliResult<Self> {
        let ost = open(env, ost_dir, None).await?;
        let (_, ost_target) =
            Oss::start(env, ost.clone(), TargetOptions::default()).await.doing(|| "cannot serve the OST".into())?;
        let ost_address = serve(env, &ost_target, OST_ADDRESS).await?;
        let store = open(env, mdt_dir, cache_bytes).await?;
        let cluster = store.identity().cluster;
        let options = MdsOptions::new(cluster, BTreeMap::from([(0, vec![ost_address])]));
        let (mds, target) = Mds::start(env, store.clone(), options).await.doing(|| "cannot serve the MDT".into())?;
        let address = serve(env, &target, MDT_ADDRESS).await?;
        let options = SessionOptions {
            cluster,
            target: TargetId::mdt(0),
            resolve: Rc::new(vec![address]),
            // New at each start: after a crash the server waits for the client that crashed with it.
            client: Uuid::from_random(env.random_u64(), env.random_u64()),
            description: "bench namespace".into(),
            pins: PinBudget::new(PINNED_BYTES),
        };
        let session = ClientSession::start(env, options);
        session.ready().await.doing(|| "the MDT does not serve".into())?;
        drop(env.spawn(give_back(session.clone())));
        let ost = (ost_target, ost);
        Ok(Self { store, ost, mds, target, client: Client { session, fids: Rc::default(), next: Rc::default() } })
    }

    /// Its client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Its store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Stops cleanly.
    pub async fn stop(self) -> CliResult {
        self.client.session.close().await;
        self.target.close().await;
        self.mds.close().await;
        self.store.close().await.doing(|| "the MDT did not stop cleanly".into())?;
        let (target, store) = self.ost;
        target.close().await;
        store.close().await.doing(|| "the OST did not stop cleanly".into())
    }
}

async fn open(env: &Env, dir: &str, cache_bytes: Option<u64>) -> CliResult<Store> {
    Store::open(env, dir, &OpenOptions { cache_bytes, ..OpenOptions::default() })
        .await
        .doing(|| format!("cannot open {dir}"))
}

async fn serve(env: &Env, target: &Target, name: &str) -> CliResult<Address> {
    let address = Address::Mem(name.into());
    let listener = env.listen(&address).await.doing(|| "cannot listen".into())?;
    let target = target.clone();
    env.spawn(async move { target.serve(listener).await });
    Ok(address)
}

/// Releases recalled leases until the session is closed. This client caches nothing.
async fn give_back(session: ClientSession) {
    let mut heard = AwaitRecalls { acknowledged: 0, returned: Vec::new(), flushed: Vec::new() };
    while let Ok(recalls) = session.ask(&heard).await {
        heard = AwaitRecalls { acknowledged: recalls.sequence, returned: Vec::new(), flushed: recalls.data };
    }
}

impl Client {
    /// Makes a directory in the root; returns its fid.
    pub async fn mkdir(&self, name: &str) -> CliResult<Fid> {
        let fid = self.fid().await?;
        let request = Make {
            caller: root(),
            parent: Fid::ROOT,
            name: name.to_owned().into(),
            fid,
            mode: S_IFDIR | 0o755,
            rdev: 0,
            symlink: Default::default(),
            at_ns: 0,
        };
        self.session.call(&request, Call::default()).await.doing(|| format!("mkdir {name}"))?;
        Ok(fid)
    }

    /// Makes a file without opening it.
    pub async fn create(&self, parent: Fid, name: &str) -> CliResult {
        let request = Create {
            caller: root(),
            parent,
            name: name.to_owned().into(),
            fid: self.fid().await?,
            mode: 0o644,
            flags: 0,
            handle: 0,
            layout: LayoutSpec::inherit(),
            at_ns: 0,
        };
        self.session.call(&request, Call::default()).await.doing(|| format!("create {name}")).map(drop)
    }

    /// Unlinks a file.
    pub async fn unlink(&self, parent: Fid, name: &str) -> CliResult {
        let request = Unlink { caller: root(), parent, name: name.to_owned().into(), at_ns: 0 };
        self.session.call(&request, Call::default()).await.doing(|| format!("unlink {name}")).map(drop)
    }

    /// The number of entries after `cookie` in one reply, and the cookie for the next ones, if there are any.
    pub async fn list(&self, fid: Fid, cookie: u64) -> CliResult<(usize, Option<u64>)> {
        let request = ReadDir { fid, cookie, max_bytes: LISTED_BYTES, with_attributes: false };
        let reply = self.session.call(&request, Call::default()).await.doing(|| "list".into())?.reply;
        let last = reply.entries.last().map(|entry| entry.cookie);
        Ok((reply.entries.len(), last.filter(|_| !reply.end)))
    }

    /// A name's fid.
    pub async fn lookup(&self, parent: Fid, name: &str) -> CliResult<Fid> {
        let request = Lookup { caller: root(), parent, name: name.to_owned().into() };
        let called = self.session.call(&request, Call::default()).await.doing(|| format!("lookup {name}"))?;
        let entry = called.reply.entry.ok_or_else(|| CliError::failed(format!("{name} is not there")))?;
        Ok(entry.attr.fid)
    }

    async fn fid(&self) -> CliResult<Fid> {
        let _turn = self.fids.lock().await;
        let lease = match self.next.get() {
            Some((mdt, sequence, number)) if number < 1 << FID_SEQUENCE_BITS => (mdt, sequence, number),
            _ => {
                let leased = self.session.call(&LeaseSequence {}, Call::default()).await.doing(|| "lease".into())?;
                (leased.reply.mdt_index, leased.reply.sequence, 0)
            }
        };
        let (mdt, sequence, number) = lease;
        self.next.set(Some((mdt, sequence, number + 1)));
        Ok(Fid::new(mdt, sequence, number))
    }
}

fn root() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new() }
}
