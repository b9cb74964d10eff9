//! One worker: random operations in its own directory. Each result is compared with the model of what a program should
//! see.
//!
//! A worker runs one operation at a time, so its model is exact. Other workers may read its files (`peek`).

mod attributes;
mod data;
mod layouts;
mod names;

use std::{cell::RefCell, collections::BTreeMap, ops::Range, rc::Rc, time::Duration};

use forebay_client::{Caller, Client, ClientError, OpenFile, OpenMode};
use forebay_env::Env;
use forebay_history::Dice;
use forebay_proto::{Errno, Fid};

use crate::{
    damage::Damage,
    model::{FileModel, Names, Node, NodeId},
    stop::{Excuses, Stop, judge},
};

pub use self::attributes::attribute_of;

/// Largest file of the workload.
const FILE_BYTES: u64 = 700 << 10;
/// Pause before a retry after EIO at the start.
pub const LATER: Duration = Duration::from_millis(200);
/// Clients that were told of a loss are replaced within this time.
const BEGIN_ANEW_TERM: Duration = Duration::from_secs(20);
/// Longest pause of a worker between two operations, in microseconds. With the pauses a run lasts as long as several
/// faults.
const THINK_US: u64 = 12_000;
/// Most names per worker.
const NAMES: usize = 24;

/// The identity of all workers.
pub fn caller() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new() }
}

/// What a worker knows. It outlives a crash of the worker's client.
pub struct Worker {
    /// Name of its directory in the root.
    pub home: String,
    /// Operations that completed.
    pub completed: u64,
    /// Operations refused with ENOSPC.
    pub refused: u64,
    /// Operations that returned EIO.
    pub failed: u64,
    /// Its names.
    pub names: Names,
    /// Its files' bytes.
    pub files: BTreeMap<NodeId, FileModel>,
    /// The model's number of each inode.
    pub fids: BTreeMap<Fid, NodeId>,
    /// Raised before and after each change, so that other workers notice changes.
    pub version: u64,
    /// The client died, and its files have not been verified since. Other workers cannot tell what to expect.
    pub in_doubt: bool,
    /// After the client's death: the names and files to expect if servers died after it.
    loose: Option<(Names, BTreeMap<NodeId, FileModel>)>,
    /// The change that is in flight.
    pub pending: Option<Pending>,
    /// A difference that another worker saw in a run with evictions. This worker's client must be told of a loss.
    pub suspicion: Option<String>,
    /// The damage on the disks, of all files.
    pub damage: Damage,
    dice: Dice,
    next: u64,
}

/// A change in flight, in case the client dies before the reply.
#[derive(Clone, Debug)]
pub enum Pending {
    /// The names after the change.
    Names(BTreeMap<String, Node>),
    /// A write.
    Write { file: NodeId, offset: u64, length: u64, tag: u64 },
    /// A truncate.
    Truncate { file: NodeId, size: u64 },
    /// A hole punch.
    Punch { file: NodeId, offset: u64, length: u64 },
}

/// A worker, shared with the tasks that run it.
pub type Shared = Rc<RefCell<Worker>>;

impl Worker {
    /// A worker whose directory does not exist yet.
    pub fn new(home: String, seed: u64, damage: &Damage) -> Shared {
        let files = BTreeMap::new();
        Rc::new(RefCell::new(Self {
            home,
            completed: 0,
            refused: 0,
            failed: 0,
            names: Names::default(),
            files,
            fids: BTreeMap::new(),
            version: 0,
            in_doubt: false,
            loose: None,
            pending: None,
            suspicion: None,
            damage: damage.clone(),
            dice: Dice::new(seed),
            next: 1,
        }))
    }

    /// Updates the model after the client's death. `servers_have_all`: all servers are up and have recovered, so they
    /// have all acknowledged changes and keep them, unless one dies before it commits (see [`Worker::look_loosely`]).
    ///
    /// Two kinds of acknowledged changes may still be missing. Unless the client `writes_through`, it may have buffered
    /// writes since the last sync. And the last `answered` changes of names were delayed, so the MDT may not have them.
    pub fn client_died(&mut self, servers_have_all: bool, writes_through: bool, answered: usize) {
        self.version += 1;
        self.suspicion = None;
        let strict = !std::mem::replace(&mut self.in_doubt, true) && servers_have_all;
        // The client died again before its files were verified: everything since the first death counts too.
        self.look_loosely();
        let (before, pending) = ((self.names.clone(), self.files.clone()), self.pending.clone());
        self.settle_pending();
        if !strict {
            return;
        }
        self.pending = pending;
        let names = std::mem::replace(&mut self.names, before.0);
        let files = std::mem::replace(&mut self.files, before.1);
        self.loose = Some((names, files));
        self.names.sync_all_but(answered);
        if writes_through {
            self.files.values_mut().for_each(FileModel::sync);
        }
        self.settle_pending();
    }

    /// A server died after the client, perhaps before it committed everything, so unsynced changes may be lost. False
    /// if the model already allows for that.
    pub fn look_loosely(&mut self) -> bool {
        let Some((names, files)) = self.loose.take() else { return false };
        (self.names, self.files) = (names, files);
        true
    }

    /// The files have been verified.
    pub fn seen(&mut self) {
        self.in_doubt = false;
        self.loose = None;
    }

    /// The change in flight may or may not have been executed.
    fn settle_pending(&mut self) {
        match self.pending.take() {
            None => {}
            Some(Pending::Names(after)) => self.names.maybe(|names| *names = after),
            Some(Pending::Write { file, offset, length, tag }) => self.file(file).maybe_write(offset, length, tag),
            // Executed or not: the earlier state stays possible through the history.
            Some(Pending::Truncate { file, size }) => self.file(file).truncate(size),
            Some(Pending::Punch { file, offset, length }) => self.file(file).punch(offset, length),
        }
    }

    fn suspect(&mut self, words: String) {
        self.suspicion.get_or_insert(words);
    }

    fn file(&mut self, file: NodeId) -> &mut FileModel {
        self.files.entry(file).or_default()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn paths(&self, wanted: impl Fn(&Node) -> bool) -> Vec<String> {
        self.names.current().iter().filter(|(_, node)| wanted(node)).map(|(path, _)| path.clone()).collect()
    }
}

/// Finds or makes a worker's directory in the root.
async fn find_or_make(client: &Client, name: &str, excuses: Excuses) -> Result<Fid, Stop> {
    let made = match client.mkdir(&caller(), Fid::ROOT, name.as_bytes(), 0o755).await {
        Err(e) if e.errno == Errno::EEXIST => client.lookup(&caller(), Fid::ROOT, name.as_bytes()).await,
        made => made,
    };
    match made {
        Ok(attr) => Ok(attr.fid),
        Err(e) if excuses.cover(&e) => Err(Stop::Excused),
        Err(e) => Err(Stop::Failed(e.errno, format!("home: {e}"))),
    }
}

/// Runs a worker's operations through one client.
pub struct Runner {
    env: Env,
    client: Client,
    me: Shared,
    home: Fid,
    dice: Dice,
    /// Files kept open across operations; some have lost their names.
    open: Vec<(OpenFile, NodeId)>,
    /// The errors that servers may return.
    excuses: Excuses,
    /// The evictions of its client at the last time the worker asked for losses.
    evictions: u64,
    /// Attributes are long, as the MDT is small.
    fills_mdt: bool,
}

type Outcome = Result<(), Stop>;

impl Runner {
    /// Finds or makes the worker's directory.
    pub async fn start(
        env: &Env,
        client: Client,
        me: Shared,
        (excuses, fills_mdt): (Excuses, bool),
    ) -> Result<Self, Stop> {
        let name = me.borrow().home.clone();
        let home = loop {
            match find_or_make(&client, &name, excuses).await {
                Ok(home) => break home,
                Err(Stop::Excused) => env.sleep(LATER).await,
                Err(stop) => return Err(stop),
            }
        };
        let seed = me.borrow_mut().dice.roll();
        let (env, dice, open) = (env.clone(), Dice::new(seed), Vec::new());
        Ok(Self { env, client, me, home, dice, open, excuses, evictions: 0, fills_mdt })
    }

    /// Runs one random operation. Errors: a difference from the model.
    pub async fn step(&mut self, others: &[Shared]) -> Outcome {
        self.env.sleep(Duration::from_micros(self.dice.below(THINK_US))).await;
        self.ask_what_is_lost().await?;
        let what = self.dice.below(100);
        let outcome = match what {
            _ if self.fills_mdt && self.dice.below(6) == 0 => self.attribute().await,
            0..=13 => self.create().await,
            14..=36 => self.write().await,
            37..=41 => self.append().await,
            42..=46 => self.truncate().await,
            47..=58 => self.read().await,
            59..=62 => self.stat().await,
            63..=66 => self.fsync().await,
            67..=71 => self.rename().await,
            72..=74 => self.link().await,
            75..=79 => self.unlink().await,
            80 => self.lay_out().await,
            81..=82 => self.mkdir().await,
            83..=84 => self.rmdir().await,
            85 => self.symlink().await,
            86 => self.migrate().await,
            87..=88 => self.list().await,
            89..=91 => self.keep_open().await,
            92..=93 => self.punch().await,
            94 => self.sync_all().await,
            95 => self.attribute().await,
            _ => self.peek(others).await,
        };
        let mut me = self.me.borrow_mut();
        match outcome {
            Ok(()) => {}
            Err(Stop::Excused) => me.failed += 1,
            // The change stays pending: it may have been executed.
            Err(stop) => return Err(stop.at(&format!("{} operation {} (kind {what})", me.home, me.completed))),
        }
        me.pending = None;
        me.completed += 1;
        Ok(())
    }

    /// After an eviction, asks for losses before building on files that may be gone: fsync reports a loss, other calls
    /// need not. Of two workers only one gets the error; the other waits here until the client is replaced.
    async fn ask_what_is_lost(&mut self) -> Outcome {
        let evictions = self.client.stats().evictions;
        if !self.excuses.evicted || evictions == self.evictions {
            return Ok(());
        }
        self.evictions = evictions;
        self.client.sync_all().await.map_err(|error| judge("sync", &error, Excuses::default()))?;
        self.env.sleep(BEGIN_ANEW_TERM).await;
        Ok(())
    }

    /// Writes the next operation to the trace.
    fn say(&self, what: &str) {
        let me = self.me.borrow();
        self.env.log(&format!("{} operation {}: {what}", me.home, me.completed));
    }

    /// Closes all open files.
    pub async fn finish(mut self) -> Outcome {
        for (file, _) in std::mem::take(&mut self.open) {
            let closed = self.client.close(file).await;
            self.allow(closed)?;
        }
        Ok(())
    }

    /// Turns an error that is legitimate in this run into `None`: nothing happened.
    fn allow<T>(&self, result: Result<T, ClientError>) -> Result<Option<T>, Stop> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(e) if e.errno == Errno::ENOSPC && self.excuses.full => {
                self.me.borrow_mut().refused += 1;
                Ok(None)
            }
            Err(e) if e.errno == Errno::EIO && self.excuses.eio => {
                self.me.borrow_mut().failed += 1;
                Ok(None)
            }
            Err(e) => Err(Stop::Failed(e.errno, format!("unexpected error {e}"))),
        }
    }

    /// Like [`Runner::allow`], for a read of these bytes of a file: EIO is right for damaged ones.
    fn allow_read<T>(
        &self,
        result: Result<T, ClientError>,
        file: &OpenFile,
        range: Range<u64>,
    ) -> Result<Option<T>, Stop> {
        let damage = self.me.borrow().damage.clone();
        match result {
            Err(e) if e.errno == Errno::EIO && damage.touches(&file.layout(), file.fid(), range) => {
                damage.told();
                self.me.borrow_mut().failed += 1;
                Ok(None)
            }
            result => self.allow(result),
        }
    }

    /// Changes names: records the change as pending, sends the request, then enters it in the model.
    async fn change_names<T>(
        &mut self,
        change: impl Fn(&mut BTreeMap<String, Node>),
        request: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<Option<T>, Stop> {
        {
            let mut me = self.me.borrow_mut();
            let after = me.names.after(&change);
            me.pending = Some(Pending::Names(after));
            me.version += 1;
        }
        let result = request.await;
        let answer = self.allow(result)?;
        let mut me = self.me.borrow_mut();
        me.version += 1;
        if answer.is_some() {
            me.names.change(change);
        }
        Ok(answer)
    }

    /// Like [`Runner::change_names`], for a change that frees space and so must work on a full MDT.
    async fn delete_names<T>(
        &mut self,
        change: impl Fn(&mut BTreeMap<String, Node>),
        request: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<Option<T>, Stop> {
        let excuses = self.excuses;
        self.excuses.full = false;
        let answer = self.change_names(change, request).await;
        self.excuses = excuses;
        answer
    }

    /// The parent directory and the last component of a path.
    async fn parent<'p>(&self, path: &'p str) -> Result<(Fid, &'p str), Stop> {
        let mut dir = self.home;
        let mut rest = path;
        while let Some((first, below)) = rest.split_once('/') {
            let attr = self.client.lookup(&caller(), dir, first.as_bytes()).await;
            dir = attr.map_err(|e| judge(&format!("lookup {first}"), &e, self.excuses))?.fid;
            rest = below;
        }
        Ok((dir, rest))
    }

    async fn fid(&mut self, path: &str) -> Result<Fid, Stop> {
        let (dir, name) = self.parent(path).await?;
        let attr = self.client.lookup(&caller(), dir, name.as_bytes()).await;
        let fid = attr.map_err(|e| judge(&format!("lookup {path}"), &e, self.excuses))?.fid;
        // If the call waited through an eviction, the name may refer to another file again.
        self.ask_what_is_lost().await?;
        Ok(fid)
    }

    fn random_dir(&mut self) -> String {
        let mut dirs = self.me.borrow().paths(|node| *node == Node::Dir);
        dirs.push(String::new());
        self.dice.pick(&dirs).cloned().unwrap_or_default()
    }

    fn new_path(&mut self, kind: &str) -> String {
        let dir = self.random_dir();
        let name = format!("{kind}{}", self.me.borrow_mut().number());
        if dir.is_empty() { name } else { format!("{dir}/{name}") }
    }

    /// A random file, by a name or one that is open.
    fn random_file(&mut self) -> Option<(String, NodeId)> {
        let me = self.me.borrow();
        let files: Vec<(String, NodeId)> = me
            .names
            .current()
            .iter()
            .filter_map(|(path, node)| if let Node::File(id) = node { Some((path.clone(), *id)) } else { None })
            .collect();
        drop(me);
        self.dice.pick(&files).cloned()
    }

    /// An open file to work on: one that is kept open, or one opened for this operation.
    async fn open_some(&mut self) -> Result<Option<(OpenFile, NodeId, bool)>, Stop> {
        if !self.open.is_empty() && self.dice.below(2) == 0 {
            let which = self.dice.below(self.open.len() as u64) as usize;
            let (file, id) = self.open[which].clone();
            return Ok(Some((file, id, false)));
        }
        let Some((path, id)) = self.random_file() else { return Ok(None) };
        let fid = self.fid(&path).await?;
        let opened = self.client.open(&caller(), fid, OpenMode::READ_WRITE).await;
        Ok(self.allow(opened)?.map(|file| (file, id, true)))
    }

    async fn done_with(&mut self, file: OpenFile, is_ours: bool) -> Outcome {
        if !is_ours {
            return Ok(());
        }
        self.say(&format!("close {}", file.fid()));
        let closed = self.client.close(file).await;
        self.allow(closed)?;
        Ok(())
    }

    async fn stat(&mut self) -> Outcome {
        let Some((path, id)) = self.random_file() else { return Ok(()) };
        let fid = self.fid(&path).await?;
        let attr = self.client.getattr(fid, None).await;
        let Some(attr) = self.allow(attr)? else { return Ok(()) };
        let mut me = self.me.borrow_mut();
        me.file(id).check_size(attr.size, false).map_err(|e| format!("stat {path}: {e}"))?;
        let links = me.names.links(id);
        if attr.nlink as usize != links {
            return Err(Stop::Names(format!("{path} has {} links, expected {links}", attr.nlink)));
        }
        Ok(())
    }

    /// Keeps a file open across operations, or closes one. So some files lose their names while open.
    async fn keep_open(&mut self) -> Outcome {
        if self.open.len() >= 3 {
            let (file, _) = self.open.remove(0);
            return self.done_with(file, true).await;
        }
        let Some((path, id)) = self.random_file() else { return Ok(()) };
        let fid = self.fid(&path).await?;
        let opened = self.client.open(&caller(), fid, OpenMode::READ_WRITE).await;
        if let Some(file) = self.allow(opened)? {
            self.open.push((file, id));
        }
        Ok(())
    }

    /// Reads another worker's file. If that worker changed nothing meanwhile, the file must match its model.
    async fn peek(&mut self, others: &[Shared]) -> Outcome {
        let Some(other) = self.dice.pick(others).cloned() else { return Ok(()) };
        let roll = self.dice.roll();
        let (version, home, path, id) = {
            let other = other.borrow();
            let files: Vec<_> = other
                .names
                .current()
                .iter()
                .filter_map(|(path, node)| if let Node::File(id) = node { Some((path.clone(), *id)) } else { None })
                .collect();
            if other.in_doubt || other.pending.is_some() || files.is_empty() {
                return Ok(());
            }
            let (path, id) = files[(roll % files.len() as u64) as usize].clone();
            (other.version, other.home.clone(), path, id)
        };
        let full = format!("/{home}/{path}");
        let read = self.client.read_file(&caller(), &full).await;
        let damaged = matches!(&read, Err(e) if e.errno == Errno::EIO) && self.is_damaged(&full).await?;
        if other.borrow().version != version || other.borrow().pending.is_some() {
            return Ok(());
        }
        if damaged {
            self.me.borrow().damage.told();
            return Err(Stop::Excused);
        }
        let bytes = match self.allow(read) {
            Err(stop) if self.excuses.evicted && !stop.tells_eviction(&self.client) => {
                other.borrow_mut().suspect(format!("peek at {full}: {stop}"));
                return Ok(());
            }
            read => read.map_err(|stop| stop.at(&format!("peek at {full}")))?,
        };
        let Some(bytes) = bytes else { return Ok(()) };
        let mut other = other.borrow_mut();
        let model = other.file(id);
        let checked = if bytes.len() as u64 == model.size() {
            model.check(0, &bytes, false)
        } else {
            Err(format!("{} bytes, expected {}", bytes.len(), model.size()))
        };
        match checked.map_err(|words| format!("peek at {full}: {words}")) {
            Err(words) if self.excuses.evicted => other.suspect(words),
            checked => checked?,
        }
        Ok(())
    }

    /// True if any part of a file may be damaged.
    async fn is_damaged(&self, path: &str) -> Result<bool, Stop> {
        let Ok(file) = self.client.open_path(&caller(), path, OpenMode::READ).await else { return Ok(false) };
        let is_damaged = self.me.borrow().damage.touches(&file.layout(), file.fid(), 0..u64::MAX);
        let closed = self.client.close(file).await;
        self.allow(closed)?;
        Ok(is_damaged)
    }
}
