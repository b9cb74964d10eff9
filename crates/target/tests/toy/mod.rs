//! A target with a service small enough to be its own oracle: counters that requests add to.
//!
//! `RaiseSize` adds to a counter here and replies with its previous value. If every request adds 1 and is executed
//! exactly once, the replies of a counter, over all clients, are `0, 1, 2, ..` without a gap or a repetition.

#![allow(dead_code)]

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use forebay_env::{
    Address, Env,
    sim::{NodeId, Sim},
};
use forebay_proto::{
    ClientId, Decode, Errno, Fid, Incarnation, SessionId, TargetId, Uuid, WriteId, crc,
    message::{
        ClusterMap, CommitLevel, Empty, GetObject, ObjectRef, ObjectReply, Op, RaiseSize, WriteObject, WriteReply,
    },
};
use forebay_rpc::{Call, Called, ClientSession, PinBudget, RpcError, SessionOptions};
use forebay_store::{FormatOptions, Fragment, OpenOptions, Store, Txn};
use forebay_target::{Abort, Answer, Attempt, Context, Service, Target, TargetOptions};

pub const CLUSTER: Uuid = Uuid([7; 16]);
pub const TARGET: TargetId = TargetId::ost(3);

/// Counters in the store's table.
pub struct Toy {
    pub env: Env,
    /// Changes take tickets, as object storage does; or are applied at once, as metadata is.
    pub tickets: bool,
    /// How long a request waits between its admission and its change.
    pub dawdle: Duration,
    /// How the next additions end, once they have filled their transaction.
    pub aborts: RefCell<VecDeque<Abort>>,
    /// How many additions were attempted.
    pub attempts: Cell<u32>,
    pub ended: RefCell<Vec<(ClientId, bool)>>,
    pub recovered: Cell<bool>,
}

pub fn counter_key(fid: Fid) -> Vec<u8> {
    let mut key = vec![0x80];
    key.extend_from_slice(&fid.to_key());
    key
}

fn read_counter(value: Option<Bytes>) -> u64 {
    value.map_or(0, |v| u64::from_bytes(&v).expect("a counter has 8 bytes"))
}

impl Toy {
    /// Adds to the counter in `txn`; returns its previous value.
    fn fill(&self, txn: &mut Txn, fid: Fid, amount: u64) -> Attempt<u64> {
        let before = read_counter(txn.get(&counter_key(fid))?);
        txn.put(counter_key(fid), (before + amount).to_le_bytes().to_vec());
        self.attempts.set(self.attempts.get() + 1);
        self.aborts.borrow_mut().pop_front().map_or(Ok(before), Err)
    }

    async fn add(&self, ctx: &Context, request: RaiseSize) -> Attempt<Answer> {
        let (fid, amount) = (request.object.fid, request.file_bytes);
        let key = counter_key(fid);
        if self.tickets {
            let ticket = ctx.admit();
            self.dawdle().await;
            ticket.turn().await;
            ctx.settle(&[&key]).await?;
            ctx.prefetch(&[&key]).await?;
            return ticket.apply(|txn| {
                ctx.touch(&[&key]);
                Ok(object_reply(self.fill(txn, fid, amount)?))
            });
        }
        self.dawdle().await;
        loop {
            ctx.settle(&[&key]).await?;
            ctx.prefetch(&[&key]).await?;
            if ctx.is_settled(&[&key]) {
                break;
            }
        }
        ctx.apply(|txn, _| {
            ctx.touch(&[&key]);
            Ok(object_reply(self.fill(txn, fid, amount)?))
        })
    }

    async fn write(&self, ctx: &Context, request: WriteObject, bulk: Bytes) -> Attempt<Answer> {
        let ticket = ctx.admit();
        let store = ctx.store();
        let (fid, offset) = (request.object.fid, request.offset);
        let range = offset..offset + bulk.len() as u64;
        let fragment = Fragment {
            fid,
            offset,
            data: bulk.clone(),
            write_id: request.write_id,
            version: ticket.transno(),
            generation: 1,
            sums: request.sums,
        };
        let room = store.reserve(bulk.len() as u64, 1).await?;
        let placed = store.place(room, vec![fragment]).await?;
        ticket.turn().await;
        store.prefetch_extents(fid, range).await?;
        ctx.prefetch::<[u8; 0]>(&[]).await?;
        ticket.apply(|txn| {
            txn.insert(placed)?;
            Ok(WriteReply { file_bytes: 0, mtime_ns: 0, attr_epoch: 0 })
        })
    }

    async fn get(&self, ctx: &Context, request: GetObject) -> Attempt<Answer> {
        let key = counter_key(request.object.fid);
        ctx.settle(&[&key]).await?;
        let value = read_counter(ctx.store().load(&key).await?);
        Ok(Answer::read(&object_reply(value)))
    }

    async fn dawdle(&self) {
        if !self.dawdle.is_zero() {
            self.env.sleep(self.dawdle).await;
        }
    }
}

fn object_reply(value: u64) -> ObjectReply {
    ObjectReply {
        exists: value > 0,
        file_bytes: value,
        object_bytes: 0,
        used_bytes: 0,
        mtime_ns: 0,
        attr_epoch: 0,
        truncate_epoch: 0,
    }
}

impl Service for Toy {
    async fn handle(self: Rc<Self>, ctx: Context, op: Op, body: Bytes, bulk: Bytes) -> Attempt<Answer> {
        match op {
            Op::RaiseSize => self.add(&ctx, RaiseSize::from_bytes(&body)?).await,
            Op::Write => self.write(&ctx, WriteObject::from_bytes(&body)?, bulk).await,
            Op::GetObject => self.get(&ctx, GetObject::from_bytes(&body)?).await,
            Op::Reclaim => Ok(Answer::read(&Empty {})),
            _ => Err(Errno::EOPNOTSUPP.into()),
        }
    }

    fn admits(&self, op: Op) -> bool {
        self.tickets && matches!(op, Op::RaiseSize | Op::Write)
    }

    async fn recovered(self: Rc<Self>) {
        self.recovered.set(true);
    }

    async fn session_ended(self: Rc<Self>, _session: SessionId, client: ClientId, evicted: bool) {
        self.ended.borrow_mut().push((client, evicted));
    }

    fn status(&self) -> String {
        "{\"toy\": true}".into()
    }
}

/// How a world is set up.
#[derive(Clone)]
pub struct Setup {
    pub tickets: bool,
    pub dawdle: Duration,
    pub window: Duration,
    pub session_timeout: Duration,
    pub commit_interval: Duration,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            tickets: false,
            dawdle: Duration::ZERO,
            window: Duration::from_secs(2),
            session_timeout: Duration::from_secs(60),
            commit_interval: Duration::from_millis(50),
        }
    }
}

/// The current server, once it runs.
pub type Running = Rc<RefCell<Option<(Target, Rc<Toy>)>>>;

/// One server with the toy, and its clients, each on a node of its own.
pub struct World {
    pub sim: Sim,
    pub server: NodeId,
    pub setup: Setup,
    /// The current server.
    pub running: Running,
}

pub fn address() -> Address {
    Address::Mem("toy".into())
}

impl World {
    pub fn new(seed: u64, setup: Setup) -> Self {
        let sim = Sim::new(seed);
        let server = sim.add_node("server");
        let world = Self { sim, server, setup, running: Rc::default() };
        world.start_server();
        world
    }

    pub fn start_server(&self) {
        let (setup, running) = (self.setup.clone(), self.running.clone());
        self.sim.start(self.server, move |env| async move {
            let store = open_store(&env, &setup).await;
            let toy = Rc::new(Toy {
                env: env.clone(),
                tickets: setup.tickets,
                dawdle: setup.dawdle,
                aborts: RefCell::default(),
                attempts: Cell::new(0),
                ended: RefCell::default(),
                recovered: Cell::new(false),
            });
            let options = TargetOptions {
                recovery_window: setup.window,
                session_timeout: setup.session_timeout,
                map: Some(Rc::new(|| ClusterMap { cluster: CLUSTER, epoch: 5, targets: vec![] })),
                ..TargetOptions::default()
            };
            let target = Target::start(&env, store, options, toy.clone()).await.expect("the target starts");
            *running.borrow_mut() = Some((target.clone(), toy));
            let listener = env.listen(&address()).await.expect("the address is free");
            target.serve(listener).await;
        });
    }

    pub fn kill_server(&self) {
        self.running.borrow_mut().take();
        self.sim.crash(self.server);
    }

    pub fn power_cut(&self) {
        self.running.borrow_mut().take();
        self.sim.power_cut(self.server);
    }

    pub fn target(&self) -> Target {
        self.running.borrow().as_ref().expect("the server runs").0.clone()
    }

    pub fn toy(&self) -> Rc<Toy> {
        self.running.borrow().as_ref().expect("the server runs").1.clone()
    }

    pub fn client(&self, name: &str) -> Client {
        let node = self.sim.add_node(name);
        Client::start(&self.sim.env(node), node, name, PinBudget::new(64 << 20))
    }

    /// A server that is a client of this one: its instance that began with `incarnation`.
    pub fn life(&self, incarnation: u32) -> Client {
        let node = self.sim.add_node(&format!("life{incarnation}"));
        let id = ClientId::of_life(0, Incarnation(incarnation));
        Client::start_as(&self.sim.env(node), node, id, "MDT0000", PinBudget::new(64 << 20))
    }
}

async fn open_store(env: &Env, setup: &Setup) -> Store {
    let options = FormatOptions { journal_bytes: 4 << 20, ..FormatOptions::new(CLUSTER, TARGET, 64 << 20) };
    // The store exists already after the first start.
    let _ = Store::format(env, "store", &options).await;
    let open = OpenOptions { commit_interval: setup.commit_interval, ..OpenOptions::default() };
    Store::open(env, "store", &open).await.expect("the store opens")
}

/// A client with one session.
#[derive(Clone)]
pub struct Client {
    pub env: Env,
    pub node: NodeId,
    pub id: ClientId,
    pub session: ClientSession,
    pub lost: Rc<RefCell<Vec<forebay_rpc::Lost>>>,
    /// Every third addition is at commit level.
    pub commits_often: bool,
    writes: Rc<Cell<u64>>,
}

impl Client {
    pub fn start(env: &Env, node: NodeId, name: &str, pins: PinBudget) -> Self {
        let id = ClientId::from_random(env.random_u64(), env.random_u64());
        Self::start_as(env, node, id, name, pins)
    }

    pub fn start_as(env: &Env, node: NodeId, id: ClientId, name: &str, pins: PinBudget) -> Self {
        let session = ClientSession::start(env, options(id, name, pins));
        let lost: Rc<RefCell<Vec<forebay_rpc::Lost>>> = Rc::default();
        let sink = lost.clone();
        session.set_lost(move |l| sink.borrow_mut().push(l));
        Self { env: env.clone(), node, id, session, lost, commits_often: false, writes: Rc::default() }
    }

    pub async fn add(&self, counter: u32) -> Result<Called<ObjectReply>, RpcError> {
        self.add_with(counter, Call::default()).await
    }

    pub async fn add_with(&self, counter: u32, call: Call) -> Result<Called<ObjectReply>, RpcError> {
        let request = RaiseSize { object: object(counter), file_bytes: 1, attr_epoch: 0, before: Vec::new() };
        self.session.call(&request, Call { fid: Some(fid(counter)), ..call }).await
    }

    pub async fn get(&self, counter: u32) -> Result<u64, RpcError> {
        let called = self.session.call(&GetObject { object: object(counter) }, Call::default()).await?;
        Ok(called.reply.file_bytes)
    }

    pub async fn write(&self, file: u32, offset: u64, data: Bytes) -> Result<Called<WriteReply>, RpcError> {
        self.writes.set(self.writes.get() + 1);
        let write_id = WriteId { client: self.id.0[0].into(), sequence: self.writes.get() };
        let sums = crc::blocks(offset, data.len() as u64, forebay_proto::limits::BLOCK_BYTES)
            .map(|(at, length)| {
                let from = (at - offset) as usize;
                crc::block_sum(fid(file), at, write_id, &data[from..from + length as usize])
            })
            .collect();
        let request = WriteObject {
            object: object(file),
            offset,
            length: data.len() as u32,
            write_id,
            sums,
            file_bytes: 0,
            attr_epoch: 0,
            granted_bytes: 0,
        };
        self.session.call(&request, Call { bulk: vec![data], fid: Some(fid(file)), ..Call::default() }).await
    }
}

pub fn options(client: ClientId, name: &str, pins: PinBudget) -> SessionOptions {
    SessionOptions {
        cluster: CLUSTER,
        target: TARGET,
        resolve: Rc::new(vec![address()]),
        client,
        description: name.into(),
        pins,
    }
}

pub fn fid(number: u32) -> Fid {
    Fid { high: 1, low: u64::from(number) }
}

pub fn object(number: u32) -> ObjectRef {
    ObjectRef { fid: fid(number), layout_generation: 1, truncate_epoch: 0 }
}

/// Contents of the replies: for each counter, the values it had before each addition.
#[derive(Clone, Default)]
pub struct Seen {
    values: Rc<RefCell<BTreeMap<u32, Vec<u64>>>>,
}

impl Seen {
    pub fn note(&self, counter: u32, before: u64) {
        self.values.borrow_mut().entry(counter).or_default().push(before);
    }

    pub fn count(&self) -> usize {
        self.values.borrow().values().map(Vec::len).sum()
    }

    /// Every addition was executed exactly once: each counter's replies are 0, 1, 2, .. in some order.
    pub fn check(&self, what: &str) {
        for (counter, values) in self.values.borrow().iter() {
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let expected: Vec<u64> = (0..values.len() as u64).collect();
            assert_eq!(sorted, expected, "{what}: counter {counter}");
        }
    }
}

/// Starts `lanes` tasks of a client, each adding `count` times: to a counter of the client's own, and to a shared one.
pub fn adders(
    client: &Client,
    own: u32,
    shared: u32,
    lanes: u32,
    count: u32,
    seen: &Seen,
) -> Vec<forebay_env::Task<()>> {
    let lane = |_| {
        let (client, seen) = (client.clone(), seen.clone());
        client.env.clone().spawn(async move {
            for i in 0..count {
                let counter = if i % 4 == 3 { shared } else { own };
                // A reply at commit level leaves after the change is durable. If it is lost then, only the reply row
                // knows of it.
                let level = if client.commits_often && i % 3 == 2 { CommitLevel::Commit } else { CommitLevel::Data };
                let called =
                    client.add_with(counter, Call::level(level)).await.expect("a call waits, it does not fail");
                seen.note(counter, called.reply.file_bytes);
            }
        })
    };
    (0..lanes).map(lane).collect()
}
