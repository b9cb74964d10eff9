//! A metadata server without a store, for tests of single operations: rows in an ordered map.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_proto::{
    Errno, Fid, SessionId, Transno, Uuid,
    message::{Caller, Close, Create, LayoutSpec, Make, OpenReply, open_flags},
};
use forebay_store::StoreResult;

use crate::{
    bootstrap,
    halt::{Halt, Step},
    inode::{S_IFDIR, S_IFREG},
    memory::Memory,
    placement::Table,
    tx::{Alone, Effects, Origin, Rows, Tx},
};

/// Rows in memory; a transaction works on a copy of what it changes.
pub struct Overlay<'a> {
    base: &'a BTreeMap<Bytes, Bytes>,
    changes: BTreeMap<Bytes, Option<Bytes>>,
}

impl Rows for Overlay<'_> {
    fn get(&self, key: &[u8]) -> StoreResult<Option<Bytes>> {
        Ok(match self.changes.get(key) {
            Some(change) => change.clone(),
            None => self.base.get(key).cloned(),
        })
    }

    fn put(&mut self, key: &[u8], value: Bytes) {
        self.changes.insert(Bytes::copy_from_slice(key), Some(value));
    }

    fn delete(&mut self, key: &[u8]) {
        self.changes.insert(Bytes::copy_from_slice(key), None);
    }
}

/// An MDT in a map.
pub struct World {
    /// The table.
    pub rows: BTreeMap<Bytes, Bytes>,
    /// The state in memory.
    pub memory: Memory,
    /// The session of the next requests.
    pub session: SessionId,
    /// Server time, one second later with each request.
    pub now_ns: i64,
    /// The next requests are executed again after a restart.
    pub is_replay: bool,
    /// True if creates find space.
    pub has_space: bool,
    /// The effects of the last operation.
    pub effects: Effects,
    transno: u64,
    next_fid: u64,
}

impl World {
    /// A root directory that any user may write to, three OSTs, one client.
    pub fn new() -> Self {
        let mut world = Self {
            rows: BTreeMap::new(),
            memory: Memory::new(0, 42),
            session: SessionId(1),
            now_ns: 1_700_000_000_000_000_000,
            has_space: true,
            is_replay: false,
            effects: Effects::default(),
            transno: 0,
            next_fid: 0,
        };
        world
            .memory
            .placement
            .push(Transno(0), &Table { weights: [(0, 1), (1, 1), (2, 1)].into(), ..Table::default() });
        world.memory.sequences.insert(forebay_proto::FidSequence(1), world.client());
        let mut rows = Overlay { base: &BTreeMap::new(), changes: BTreeMap::new() };
        bootstrap::write(&mut rows, bootstrap::Owner::default(), 42, world.now_ns);
        world.rows = rows.changes.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        world.memory.inodes = 1;
        world.run(|tx| {
            let mut root = tx.inode(Fid::ROOT)?;
            root.mode = S_IFDIR | 0o777;
            tx.put_inode(Fid::ROOT, &mut root);
            Ok(())
        });
        world
    }

    fn client(&self) -> Uuid {
        Uuid::from_random(0, 1)
    }

    /// Applies an operation that must succeed.
    pub fn run<R>(&mut self, op: impl FnOnce(&mut Tx<'_>) -> Step<R>) -> R {
        self.attempt(op).unwrap_or_else(|halt| panic!("{halt:?}"))
    }

    /// Applies an operation that must fail; nothing may have changed.
    pub fn errno<R: std::fmt::Debug>(&mut self, op: impl FnOnce(&mut Tx<'_>) -> Step<R>) -> Errno {
        match self.attempt(op) {
            Err(Halt::Fail(error)) => error.errno,
            Err(Halt::NoSpace) => Errno::ENOSPC,
            other => panic!("it should have failed: {other:?}"),
        }
    }

    /// Applies an operation if it succeeds.
    pub fn attempt<R>(&mut self, op: impl FnOnce(&mut Tx<'_>) -> Step<R>) -> Step<R> {
        self.transno += 1;
        self.now_ns += 1_000_000_000;
        let origin = Origin {
            session: self.session,
            client: self.client(),
            is_replay: self.is_replay,
            transno: Transno(self.transno),
            now_ns: self.now_ns,
            has_space: self.has_space,
            has_space_for_inline: self.has_space,
        };
        let mut rows = Overlay { base: &self.rows, changes: BTreeMap::new() };
        let mut tx = Tx::new(&mut rows, &Alone, &self.memory, origin);
        let result = op(&mut tx)?;
        self.effects = std::mem::take(&mut tx.effects);
        for (key, value) in rows.changes {
            match value {
                Some(value) => self.rows.insert(key, value),
                None => self.rows.remove(&key),
            };
        }
        self.memory.inodes = self.memory.inodes.saturating_add_signed(self.effects.inodes);
        self.effects.opens.iter().for_each(|change| self.memory.opens.follow(*change));
        Ok(result)
    }

    /// The next fid of the client.
    pub fn fid(&mut self) -> Fid {
        self.next_fid += 1;
        Fid { high: 0, low: 1 << 20 | self.next_fid }
    }

    /// A create request of `caller`.
    pub fn create(&mut self, caller: &Caller, parent: Fid, name: &str, handle: u64) -> Create {
        Create {
            caller: caller.clone(),
            parent,
            name: name.to_owned().into(),
            fid: self.fid(),
            mode: S_IFREG | 0o644,
            flags: open_flags::READ | open_flags::WRITE,
            handle,
            layout: LayoutSpec::inherit(),
            at_ns: 0,
        }
    }

    /// Makes a file as root, without opening it.
    pub fn file(&mut self, parent: Fid, name: &str) -> Fid {
        let request = self.create(&root(), parent, name, 0);
        let reply: OpenReply = self.run(|tx| crate::ops::create::apply(tx, &request));
        reply.attr.fid
    }

    /// Closes a handle of the session; `wrote`: bytes were written through it.
    pub fn close(&mut self, fid: Fid, handle: u64, wrote: bool) {
        let (size, truncate_epoch, mtime_ns, attr_epoch) = (0, 0, 0, u64::MAX);
        let request = Close {
            fid,
            handle,
            wrote,
            size,
            truncate_epoch,
            mtime_ns,
            attr_epoch,
            sparse: false,
            inline: None,
            set: None,
        };
        self.run(|tx| crate::ops::close::apply(tx, &request));
    }

    /// A mkdir request of `caller`.
    pub fn make(&mut self, caller: &Caller, parent: Fid, name: &str, mode: u32) -> Make {
        Make {
            caller: caller.clone(),
            parent,
            name: name.to_owned().into(),
            fid: self.fid(),
            mode,
            rdev: 0,
            symlink: Bytes::new(),
            at_ns: 0,
        }
    }

    /// Makes a directory as root.
    pub fn mkdir(&mut self, parent: Fid, name: &str) -> Fid {
        let request = self.make(&root(), parent, name, S_IFDIR | 0o755);
        self.run(|tx| crate::ops::make::apply(tx, &request)).attr.fid
    }

    /// Rows whose keys begin with `kind`.
    pub fn count(&self, kind: u8) -> usize {
        self.rows.keys().filter(|key| key[0] == kind).count()
    }
}

/// User 0.
pub fn root() -> Caller {
    Caller { uid: 0, gid: 0, groups: vec![] }
}

/// A user in their own group.
pub fn user(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: vec![] }
}
