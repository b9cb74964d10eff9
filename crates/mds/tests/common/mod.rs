//! An MDT with its real server, two OSTs that only remember which objects they have, and clients, each on a node of its
//! own.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use forebay_env::{
    Address, Env,
    sim::{NodeId, Sim},
};
use forebay_mds::{Mds, MdsOptions};
use forebay_proto::{
    ClientId, Decode, Errno, ErrorReply, Fid, FidSequence, Reader, TargetId, Uuid,
    message::{
        Attr, AwaitRecalls, Caller, Close, Create, Destroy, DirEntry, Empty, GetAttr, GetObject, LayoutSpec,
        LeaseSequence, Link, ListObjects, ListObjectsReply, Lookup, Make, ObjectRef, ObjectReply, Op, Open, OpenHandle,
        Operation, OstStatFsReply, RaiseSize, ReadDir, Reclaim, Rename, Rmdir, TruncateObject, Unlink, open_flags,
    },
};
use forebay_rpc::{Call, ClientSession, PinBudget, RpcError, SessionOptions};
use forebay_store::{FormatOptions, OpenOptions, Store};
use forebay_target::{Answer, Attempt, Context, Service, Target, TargetOptions};

pub const CLUSTER: Uuid = Uuid([7; 16]);
pub const OSTS: u32 = 2;

/// Objects as rows: fid to (file size, truncate epoch).
#[derive(Default)]
pub struct FakeOst {
    pub truncates: Cell<u64>,
    /// True if it cannot read the data that a truncate would cut.
    pub is_damaged: Cell<bool>,
}

fn object_key(fid: Fid) -> Vec<u8> {
    [&[0x80], &fid.to_key()[..]].concat()
}

fn object_reply(row: Option<&[u8]>) -> ObjectReply {
    let mut r = Reader::new(row.unwrap_or(&[0; 16]));
    ObjectReply {
        exists: row.is_some(),
        file_bytes: r.u64().expect("16 bytes"),
        object_bytes: 0,
        used_bytes: 0,
        mtime_ns: 1_800_000_000_000_000_000,
        attr_epoch: 0,
        truncate_epoch: r.u64().expect("16 bytes"),
    }
}

fn object_row(file_bytes: u64, truncate_epoch: u64) -> Vec<u8> {
    [file_bytes.to_le_bytes(), truncate_epoch.to_le_bytes()].concat()
}

impl FakeOst {
    async fn put(&self, ctx: &Context, fid: Fid, row: impl Fn(ObjectReply) -> Vec<u8>) -> Attempt<Answer> {
        let key = object_key(fid);
        ctx.prefetch(&[&key]).await?;
        ctx.apply(|txn, _| {
            let old = object_reply(txn.get(&key)?.as_deref());
            txn.put(&key, row(old));
            Ok(object_reply(txn.get(&key)?.as_deref()))
        })
    }
}

impl Service for FakeOst {
    async fn handle(self: Rc<Self>, ctx: Context, op: Op, body: Bytes, _bulk: Bytes) -> Attempt<Answer> {
        match op {
            Op::RaiseSize => {
                let request = RaiseSize::from_bytes(&body)?;
                let grow = |old: ObjectReply| object_row(old.file_bytes.max(request.file_bytes), old.truncate_epoch);
                self.put(&ctx, request.object.fid, grow).await
            }
            Op::TruncateObject => {
                let request = TruncateObject::from_bytes(&body)?;
                self.truncates.set(self.truncates.get() + 1);
                if self.is_damaged.get() {
                    return Err(ErrorReply::new(Errno::EIO, "its index is damaged").into());
                }
                let size = if request.file_bytes == u64::MAX { 0 } else { request.file_bytes };
                self.put(&ctx, request.fid, |_| object_row(size, request.truncate_epoch)).await
            }
            Op::Destroy => {
                let keys: Vec<_> = Destroy::from_bytes(&body)?.fids.into_iter().map(object_key).collect();
                ctx.prefetch(&keys).await?;
                ctx.apply(|txn, _| {
                    keys.iter().for_each(|key| txn.delete(key));
                    Ok(Empty {})
                })
            }
            Op::GetObject => {
                let object = GetObject::from_bytes(&body)?.object;
                let row = ctx.store().load(&object_key(object.fid)).await?;
                let reply = object_reply(row.as_deref());
                if self.is_damaged.get() && reply.truncate_epoch < object.truncate_epoch {
                    // Waits for a truncate that it has not received yet.
                    std::future::pending::<()>().await;
                }
                Ok(Answer::read(&reply))
            }
            // It serves requests under any layout.
            Op::FenceLayout => Ok(Answer::read(&Empty {})),
            Op::ListObjects => {
                let request = ListObjects::from_bytes(&body)?;
                let fids = objects(ctx.store()).await;
                let wanted = |fid: &Fid| (request.from..request.to).contains(&fid.sequence()) && *fid > request.after;
                let mut fids: Vec<Fid> = fids.into_keys().filter(wanted).collect();
                let end = fids.len() <= 2;
                fids.truncate(2);
                Ok(Answer::read(&ListObjectsReply { fids, end }))
            }
            Op::OstStatFs => {
                let reply = OstStatFsReply {
                    total_bytes: 1 << 40,
                    available_bytes: 1 << 40,
                    objects: 0,
                    granted_bytes: 0,
                    promisable_bytes: 1 << 40,
                };
                Ok(Answer::read(&reply))
            }
            _ => Err(Errno::EOPNOTSUPP.into()),
        }
    }
}

async fn objects(store: &Store) -> BTreeMap<Fid, u64> {
    let rows = store.scan(&[0x80], &[0x81], 100_000).await.expect("the store reads");
    rows.iter().map(|(key, row)| (Fid::from_key(&key[1..]).unwrap(), object_reply(Some(row)).file_bytes)).collect()
}

/// How a world is set up.
#[derive(Clone)]
pub struct Setup {
    pub commit_interval: Duration,
    pub session_timeout: Duration,
    pub window: Duration,
    pub cache_bytes: Option<u64>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            commit_interval: Duration::from_millis(50),
            session_timeout: Duration::from_secs(60),
            window: Duration::from_secs(2),
            cache_bytes: None,
        }
    }
}

/// The current server and its target.
pub type Running<S> = Rc<RefCell<Option<(Rc<S>, Target)>>>;
/// Open handles: file, flags.
pub type Handles = Rc<RefCell<BTreeMap<u64, (Fid, u32)>>>;

pub struct World {
    pub sim: Sim,
    pub mdt: NodeId,
    pub osts: Vec<NodeId>,
    pub setup: Setup,
    pub mds: Running<Mds>,
    pub ost_targets: Vec<Running<FakeOst>>,
}

fn address(target: TargetId) -> Address {
    Address::Mem(target.to_string())
}

async fn open_store(env: &Env, target: TargetId, setup: &Setup) -> Store {
    let options = FormatOptions { journal_bytes: 4 << 20, ..FormatOptions::new(CLUSTER, target, 64 << 20) };
    // It exists already after the first start.
    let _ = Store::format(env, "store", &options).await;
    let open = OpenOptions {
        commit_interval: setup.commit_interval,
        cache_bytes: setup.cache_bytes,
        ..OpenOptions::default()
    };
    Store::open(env, "store", &open).await.expect("the store opens")
}

impl World {
    pub fn new(seed: u64, setup: Setup) -> Self {
        let sim = Sim::new(seed);
        let mdt = sim.add_node("mdt");
        let osts: Vec<_> = (0..OSTS).map(|index| sim.add_node(&format!("ost{index}"))).collect();
        let ost_targets = osts.iter().map(|_| Rc::default()).collect();
        let world = Self { sim, mdt, osts, setup, mds: Rc::default(), ost_targets };
        (0..OSTS).for_each(|index| world.start_ost(index));
        world.start_mds();
        world
    }

    fn target_options(&self) -> TargetOptions {
        TargetOptions {
            recovery_window: self.setup.window,
            session_timeout: self.setup.session_timeout,
            ..TargetOptions::default()
        }
    }

    pub fn start_mds(&self) {
        let (setup, options, running) = (self.setup.clone(), self.target_options(), self.mds.clone());
        self.sim.start(self.mdt, move |env| async move {
            let store = open_store(&env, TargetId::mdt(0), &setup).await;
            let osts = (0..OSTS).map(|index| (index, vec![address(TargetId::ost(index))])).collect();
            let options = MdsOptions { target: options, ..MdsOptions::new(CLUSTER, osts) };
            let (mds, target) = Mds::start(&env, store, options).await.expect("the server starts");
            *running.borrow_mut() = Some((mds, target.clone()));
            target.serve(env.listen(&address(TargetId::mdt(0))).await.expect("the address is free")).await;
        });
    }

    pub fn start_ost(&self, index: u32) {
        let (setup, options) = (self.setup.clone(), self.target_options());
        let running = self.ost_targets[index as usize].clone();
        self.sim.start(self.osts[index as usize], move |env| async move {
            let store = open_store(&env, TargetId::ost(index), &setup).await;
            let ost = Rc::new(FakeOst::default());
            let target = Target::start(&env, store, options, ost.clone()).await.expect("the target starts");
            *running.borrow_mut() = Some((ost, target.clone()));
            target.serve(env.listen(&address(TargetId::ost(index))).await.expect("the address is free")).await;
        });
    }

    pub fn kill_mds(&self) {
        self.mds.borrow_mut().take();
        self.sim.crash(self.mdt);
    }

    pub fn power_cut_mds(&self) {
        self.mds.borrow_mut().take();
        self.sim.power_cut(self.mdt);
    }

    /// Sets whether all OSTs are damaged.
    pub fn damage_osts(&self, are_damaged: bool) {
        for running in &self.ost_targets {
            running.borrow().as_ref().expect("it runs").0.is_damaged.set(are_damaged);
        }
    }

    pub fn kill_ost(&self, index: u32) {
        self.ost_targets[index as usize].borrow_mut().take();
        self.sim.crash(self.osts[index as usize]);
    }

    pub fn status(&self) -> String {
        let mds = self.mds.borrow();
        let (mds, _) = mds.as_ref().expect("the server runs");
        Service::status(&**mds)
    }

    /// All objects of all OSTs.
    pub fn objects(&self) -> BTreeMap<(u32, Fid), u64> {
        let mut all = BTreeMap::new();
        for index in 0..OSTS {
            let store = self.ost_targets[index as usize].borrow().as_ref().expect("it runs").1.store().clone();
            let objects = self.sim.block_on(objects(&store));
            all.extend(objects.into_iter().map(|(fid, bytes)| ((index, fid), bytes)));
        }
        all
    }

    /// Rows of the MDT whose keys begin with `kind`.
    pub fn rows(&self, kind: u8) -> usize {
        let store = self.mds.borrow().as_ref().expect("the server runs").1.store().clone();
        self.sim.block_on(async { store.scan(&[kind], &[kind + 1], 100_000).await.expect("the store reads").len() })
    }

    pub fn client(&self, name: &str) -> Rc<Client> {
        let node = self.sim.add_node(name);
        let env = self.sim.env(node);
        let client = Rc::new(Client::start(&env, node, name));
        self.sim.block_on(client.lease());
        client
    }

    /// Runs until all tasks are done, within a bounded virtual time.
    pub fn finish(&self, tasks: Vec<forebay_env::Task<()>>, what: &str) {
        let env = self.sim.env(self.sim.add_node("watch"));
        self.sim.block_on(async {
            for task in tasks {
                let done = env.timeout(Duration::from_secs(120), task).await;
                assert!(matches!(done, Ok(Some(()))), "{what}: a task did not finish");
            }
        });
    }
}

/// A client of the MDT, and of the OSTs that it writes to.
pub struct Client {
    pub env: Env,
    pub node: NodeId,
    pub mdt: ClientSession,
    pub osts: Vec<ClientSession>,
    pub handles: Handles,
    pub lost: Rc<Cell<u64>>,
    sequence: Cell<FidSequence>,
    next: Cell<u32>,
}

pub fn root() -> Caller {
    Caller { uid: 0, gid: 0, groups: vec![] }
}

type Result2<T> = Result<T, Errno>;

impl Client {
    fn start(env: &Env, node: NodeId, name: &str) -> Self {
        let id = ClientId::from_random(env.random_u64(), env.random_u64());
        let pins = PinBudget::new(64 << 20);
        let session = |target| {
            let options = SessionOptions {
                cluster: CLUSTER,
                target,
                resolve: Rc::new(vec![address(target)]),
                client: id,
                description: name.into(),
                pins: pins.clone(),
            };
            ClientSession::start(env, options)
        };
        let mdt = session(TargetId::mdt(0));
        let (handles, lost): (Handles, Rc<Cell<u64>>) = Default::default();
        let held = handles.clone();
        mdt.set_reclaim(move || {
            let handle =
                |(handle, (fid, flags)): (&u64, &(Fid, u32))| OpenHandle { fid: *fid, handle: *handle, flags: *flags };
            Reclaim { handles: held.borrow().iter().map(handle).collect(), locks: Vec::new(), directories: Vec::new() }
        });
        let sink = lost.clone();
        mdt.set_lost(move |_| sink.set(sink.get() + 1));
        let osts = (0..OSTS).map(|index| session(TargetId::ost(index))).collect();
        let (sequence, next) = (Cell::new(FidSequence(0)), Cell::new(0));
        Self { env: env.clone(), node, mdt, osts, handles, lost, sequence, next }
    }

    async fn lease(&self) {
        let reply = self.ask(&LeaseSequence {}).await.expect("a sequence is leased");
        self.sequence.set(reply.sequence);
    }

    pub fn fid(&self) -> Fid {
        self.next.set(self.next.get() + 1);
        Fid::new(0, self.sequence.get(), self.next.get())
    }

    pub async fn ask<O: Operation>(&self, request: &O) -> Result2<O::Reply> {
        match self.mdt.call(request, Call::default()).await {
            Ok(called) => Ok(called.reply),
            Err(RpcError::Reply(error)) => Err(error.errno),
            Err(error) => panic!("{request:?}: {error}"),
        }
    }

    /// Creates and opens for writing; returns fid, handle, OST of the first stripe.
    pub async fn create(&self, parent: Fid, name: &str) -> Result2<(Fid, u64, u32)> {
        let (fid, handle) = (self.fid(), u64::from(self.next.get()));
        let flags = open_flags::WRITE | open_flags::EXCLUSIVE;
        let (caller, name, layout) = (root(), name.to_owned().into(), LayoutSpec::inherit());
        let reply =
            self.ask(&Create { caller, parent, name, fid, mode: 0o644, flags, handle, layout, at_ns: 0 }).await?;
        self.handles.borrow_mut().insert(handle, (fid, open_flags::WRITE));
        Ok((fid, handle, reply.layout.expect("a file has a layout").osts()[0]))
    }

    /// Creates without opening; returns fid, OST of the first stripe.
    pub async fn mknod(&self, parent: Fid, name: &str) -> Result2<(Fid, u32)> {
        let (fid, flags, handle) = (self.fid(), open_flags::EXCLUSIVE, 0);
        let (caller, name, layout) = (root(), name.to_owned().into(), LayoutSpec::inherit());
        let reply =
            self.ask(&Create { caller, parent, name, fid, mode: 0o644, flags, handle, layout, at_ns: 0 }).await?;
        Ok((fid, reply.layout.expect("a file has a layout").osts()[0]))
    }

    /// Writes to the file, so that it has `file_bytes` bytes.
    pub async fn write(&self, fid: Fid, ost: u32, file_bytes: u64) -> Result<(), RpcError> {
        let object = ObjectRef { fid, layout_generation: 1, truncate_epoch: 0 };
        let request = RaiseSize { object, file_bytes, attr_epoch: 0, before: Vec::new() };
        self.osts[ost as usize].call(&request, Call::default()).await.map(drop)
    }

    pub async fn close(&self, fid: Fid, handle: u64, size: u64) -> Result2<()> {
        self.handles.borrow_mut().remove(&handle);
        let close = Close {
            fid,
            handle,
            wrote: size > 0,
            size,
            truncate_epoch: 0,
            mtime_ns: 1_800_000_000_000_000_000,
            attr_epoch: 0,
            sparse: false,
            inline: None,
            set: None,
        };
        self.ask(&close).await.map(drop)
    }

    pub async fn open(&self, fid: Fid, flags: u32) -> Result2<u64> {
        self.next.set(self.next.get() + 1);
        let handle = u64::from(self.next.get());
        self.ask(&Open { caller: root(), fid, flags, handle }).await?;
        self.handles.borrow_mut().insert(handle, (fid, flags));
        Ok(handle)
    }

    pub async fn mkdir(&self, parent: Fid, name: &str) -> Result2<Fid> {
        let (caller, fid, name) = (root(), self.fid(), name.to_owned().into());
        self.ask(&Make { caller, parent, name, fid, mode: 0o040_755, rdev: 0, symlink: Bytes::new(), at_ns: 0 })
            .await?;
        Ok(fid)
    }

    /// Releases the leases on `fid`, so that others need not recall them.
    pub async fn give_back(&self, fid: Fid) {
        let back = AwaitRecalls { acknowledged: 0, returned: vec![fid], flushed: Vec::new() };
        let _ = self.env.timeout(Duration::from_millis(10), self.mdt.ask(&back)).await;
    }

    pub async fn unlink(&self, parent: Fid, name: &str) -> Result2<()> {
        self.ask(&Unlink { caller: root(), parent, name: name.to_owned().into(), at_ns: 0 }).await.map(drop)
    }

    pub async fn rmdir(&self, parent: Fid, name: &str) -> Result2<()> {
        self.ask(&Rmdir { caller: root(), parent, name: name.to_owned().into(), at_ns: 0 }).await.map(drop)
    }

    pub async fn link(&self, fid: Fid, parent: Fid, name: &str) -> Result2<()> {
        self.ask(&Link { caller: root(), fid, parent, name: name.to_owned().into() }).await.map(drop)
    }

    pub async fn rename(&self, from: (Fid, &str), to: (Fid, &str)) -> Result2<()> {
        let (from_name, to_name) = (from.1.to_owned().into(), to.1.to_owned().into());
        let request = Rename { caller: root(), from_parent: from.0, from_name, to_parent: to.0, to_name, flags: 0 };
        self.ask(&request).await.map(drop)
    }

    pub async fn lookup(&self, parent: Fid, name: &str) -> Result2<Attr> {
        let request = Lookup { caller: root(), parent, name: name.to_owned().into() };
        let reply = self.ask(&request).await?;
        reply.entry.map(|entry| entry.attr).ok_or(Errno::ENOENT)
    }

    pub async fn getattr(&self, fid: Fid) -> Result2<Attr> {
        self.ask(&GetAttr { fid }).await.map(|reply| reply.attr)
    }

    /// All names of a directory without dots.
    pub async fn names(&self, fid: Fid) -> BTreeMap<String, Fid> {
        let (mut names, mut cookie) = (BTreeMap::new(), 0);
        loop {
            let request = ReadDir { fid, cookie, max_bytes: 2000, with_attributes: true };
            let reply = self.ask(&request).await.expect("the directory is listed");
            cookie = reply.entries.last().map_or(cookie, |entry| entry.cookie);
            let shown = |entry: DirEntry| (String::from_utf8(entry.name.to_vec()).unwrap(), entry.fid);
            names.extend(reply.entries.into_iter().filter(|entry| !entry.name.starts_with(b".")).map(shown));
            if reply.end {
                return names;
            }
        }
    }
}
