//! A simple model of the namespace. Tests run random operations against it and compare results, errnos, the whole tree,
//! link counts and counters, and what is left when everything is deleted.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_proto::{
    Errno, Fid, Reader,
    message::{Close, Link, Lookup, Rename, Rmdir, SetXattr, Unlink},
};

use crate::{
    halt::{Halt, Step},
    inode::{S_IFDIR, S_IFLNK},
    keys,
    ops::{self, rename},
    testing::{World, root},
};

/// What a name points to.
#[derive(Clone, Debug, PartialEq)]
enum Node {
    File { nlink: u32, open: Vec<u64> },
    Link,
    Dir { parent: Fid, names: BTreeMap<String, Fid> },
}

struct Model {
    nodes: BTreeMap<Fid, Node>,
}

type Outcome = Result<(), Errno>;

impl Model {
    fn new() -> Self {
        Self { nodes: [(Fid::ROOT, Node::Dir { parent: Fid::ROOT, names: BTreeMap::new() })].into() }
    }

    fn is_dir(&self, fid: Fid) -> bool {
        matches!(self.nodes.get(&fid), Some(Node::Dir { .. }))
    }

    fn names(&self, dir: Fid) -> Result<&BTreeMap<String, Fid>, Errno> {
        match self.nodes.get(&dir) {
            Some(Node::Dir { names, .. }) => Ok(names),
            Some(_) => Err(Errno::ENOTDIR),
            None => Err(Errno::ESTALE),
        }
    }

    fn names_mut(&mut self, dir: Fid) -> &mut BTreeMap<String, Fid> {
        match self.nodes.get_mut(&dir) {
            Some(Node::Dir { names, .. }) => names,
            other => panic!("{other:?} is no directory"),
        }
    }

    fn find(&self, dir: Fid, name: &str) -> Result<Fid, Errno> {
        self.names(dir)?.get(name).copied().ok_or(Errno::ENOENT)
    }

    fn add(&mut self, dir: Fid, name: &str, fid: Fid, node: Node) -> Outcome {
        if self.names(dir)?.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        self.names_mut(dir).insert(name.into(), fid);
        self.nodes.insert(fid, node);
        Ok(())
    }

    fn link(&mut self, fid: Fid, dir: Fid, name: &str) -> Outcome {
        self.names(dir)?;
        let node = self.nodes.get(&fid).ok_or(Errno::ESTALE)?.clone();
        if self.names(dir)?.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        match node {
            Node::Dir { .. } => return Err(Errno::EPERM),
            Node::File { nlink: 0, .. } => return Err(Errno::ENOENT),
            Node::File { nlink, open } => drop(self.nodes.insert(fid, Node::File { nlink: nlink + 1, open })),
            // Links to symbolic links are not tried: the model counts none for them.
            Node::Link => unreachable!(),
        }
        self.names_mut(dir).insert(name.into(), fid);
        Ok(())
    }

    fn drop_name(&mut self, fid: Fid) {
        let ends = match self.nodes.get_mut(&fid) {
            Some(Node::File { nlink, open }) => {
                *nlink -= 1;
                *nlink == 0 && open.is_empty()
            }
            _ => true,
        };
        if ends {
            self.nodes.remove(&fid);
        }
    }

    fn unlink(&mut self, dir: Fid, name: &str) -> Outcome {
        let fid = self.find(dir, name)?;
        if self.is_dir(fid) {
            return Err(Errno::EISDIR);
        }
        self.names_mut(dir).remove(name);
        self.drop_name(fid);
        Ok(())
    }

    fn rmdir(&mut self, dir: Fid, name: &str) -> Outcome {
        let fid = self.find(dir, name)?;
        if !self.names(fid)?.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        self.names_mut(dir).remove(name);
        self.drop_name(fid);
        Ok(())
    }

    fn below(&self, fid: Fid, mut dir: Fid) -> bool {
        loop {
            if dir == fid {
                return true;
            }
            match self.nodes.get(&dir) {
                Some(Node::Dir { parent, .. }) if dir != Fid::ROOT => dir = *parent,
                _ => return false,
            }
        }
    }

    fn rename(&mut self, from: (Fid, &str), to: (Fid, &str), flags: u32) -> Outcome {
        self.names(from.0)?;
        self.names(to.0)?;
        let moved = self.find(from.0, from.1)?;
        let victim = self.names(to.0)?.get(to.1).copied();
        match victim {
            Some(_) if flags == rename::NOREPLACE => return Err(Errno::EEXIST),
            None if flags == rename::EXCHANGE => return Err(Errno::ENOENT),
            Some(victim) if victim == moved => return Ok(()),
            _ => {}
        }
        if self.is_dir(moved) && self.below(moved, to.0) {
            return Err(Errno::EINVAL);
        }
        if let Some(victim) = victim {
            if flags == rename::EXCHANGE {
                if self.is_dir(victim) && self.below(victim, from.0) {
                    return Err(Errno::EINVAL);
                }
                self.names_mut(from.0).insert(from.1.into(), victim);
                self.names_mut(to.0).insert(to.1.into(), moved);
                self.set_parent(victim, from.0);
                self.set_parent(moved, to.0);
                return Ok(());
            }
            match (self.is_dir(moved), self.is_dir(victim)) {
                (true, false) => return Err(Errno::ENOTDIR),
                (false, true) => return Err(Errno::EISDIR),
                (true, true) if !self.names(victim)?.is_empty() => return Err(Errno::ENOTEMPTY),
                _ => {}
            }
            self.drop_name(victim);
        }
        self.names_mut(from.0).remove(from.1);
        self.names_mut(to.0).insert(to.1.into(), moved);
        self.set_parent(moved, to.0);
        Ok(())
    }

    fn set_parent(&mut self, fid: Fid, dir: Fid) {
        if let Some(Node::Dir { parent, .. }) = self.nodes.get_mut(&fid) {
            *parent = dir;
        }
    }
}

/// The system under test, the model, and the random generator.
struct Run {
    world: World,
    model: Model,
    seed: u64,
    state: u64,
    next_handle: u64,
}

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

impl Run {
    fn new(seed: u64) -> Self {
        Self { world: World::new(), model: Model::new(), seed, state: seed, next_handle: 1 }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % n
    }

    fn name(&mut self) -> &'static str {
        NAMES[self.below(NAMES.len() as u64) as usize]
    }

    /// Any inode; one time in eight a removed one.
    fn any(&mut self) -> Fid {
        let fids: Vec<Fid> = self.model.nodes.keys().copied().collect();
        match self.below(8) {
            0 => Fid { high: 0, low: 1 << 20 | self.below(200) },
            _ => fids[self.below(fids.len() as u64) as usize],
        }
    }

    fn dir(&mut self) -> Fid {
        let dirs: Vec<Fid> = self.model.nodes.keys().copied().filter(|fid| self.model.is_dir(*fid)).collect();
        match self.below(12) {
            0 => self.any(),
            _ => dirs[self.below(dirs.len() as u64) as usize],
        }
    }

    fn check<R>(&self, what: &str, got: Step<R>, expected: Outcome) {
        let got = match got {
            Ok(_) => Ok(()),
            Err(Halt::Fail(error)) => Err(error.errno),
            Err(halt) => panic!("seed {}: {what}: {halt:?}", self.seed),
        };
        assert_eq!(got, expected, "seed {}: {what}", self.seed);
    }

    fn step(&mut self) {
        let (dir, name) = (self.dir(), self.name());
        match self.below(16) {
            0..4 => self.create(dir, name),
            4..6 => self.make(dir, name, S_IFDIR | 0o755),
            6 => self.make(dir, name, S_IFLNK | 0o777),
            7 => self.link(dir, name),
            8..10 => self.unlink(dir, name),
            10 => self.rmdir(dir, name),
            11..14 => self.rename(dir, name),
            14 => self.close(),
            _ => self.set_xattr(),
        }
    }

    fn create(&mut self, dir: Fid, name: &str) {
        let handle = if self.below(3) == 0 { self.next_handle } else { 0 };
        self.next_handle += 1;
        let mut request = self.world.create(&root(), dir, name, handle);
        request.flags |= forebay_proto::message::open_flags::EXCLUSIVE;
        let open = if handle == 0 { vec![] } else { vec![handle] };
        let expected = self.model.add(dir, name, request.fid, Node::File { nlink: 1, open });
        let got = self.world.attempt(|tx| ops::create::apply(tx, &request));
        self.check(&format!("{request:?}"), got, expected);
    }

    fn make(&mut self, dir: Fid, name: &str, mode: u32) {
        let mut request = self.world.make(&root(), dir, name, mode);
        request.symlink = "target".into();
        let node = match mode & S_IFDIR == S_IFDIR {
            true => Node::Dir { parent: dir, names: BTreeMap::new() },
            false => Node::Link,
        };
        let expected = self.model.add(dir, name, request.fid, node);
        let got = self.world.attempt(|tx| ops::make::apply(tx, &request));
        self.check(&format!("{request:?}"), got, expected);
    }

    fn link(&mut self, parent: Fid, name: &'static str) {
        let fid = self.any();
        if self.model.nodes.get(&fid) == Some(&Node::Link) {
            return;
        }
        let request = Link { caller: root(), fid, parent, name: name.into() };
        let expected = self.model.link(fid, parent, name);
        let got = self.world.attempt(|tx| ops::link::apply(tx, &request));
        self.check(&format!("{request:?}"), got, expected);
    }

    fn unlink(&mut self, parent: Fid, name: &'static str) {
        let request = Unlink { caller: root(), parent, name: name.into(), at_ns: 0 };
        let expected = self.model.unlink(parent, name);
        let got = self.world.attempt(|tx| ops::unlink::apply(tx, &request));
        self.check(&format!("{request:?}"), got, expected);
    }

    fn rmdir(&mut self, parent: Fid, name: &'static str) {
        let request = Rmdir { caller: root(), parent, name: name.into(), at_ns: 0 };
        let expected = self.model.rmdir(parent, name);
        let got = self.world.attempt(|tx| ops::rmdir::apply(tx, &request));
        self.check(&format!("{request:?}"), got, expected);
    }

    fn rename(&mut self, from_parent: Fid, from: &'static str) {
        let (to_parent, to, flags) = (self.dir(), self.name(), [0, 0, 1, 2][self.below(4) as usize]);
        let request =
            Rename { caller: root(), from_parent, from_name: from.into(), to_parent, to_name: to.into(), flags };
        let expected = self.model.rename((from_parent, from), (to_parent, to), flags);
        let got = self.world.attempt(|tx| ops::rename::apply(tx, &request));
        self.check(&format!("{request:?}"), got, expected);
    }

    fn close(&mut self) {
        let fid = self.any();
        let Some(Node::File { open, nlink }) = self.model.nodes.get_mut(&fid) else { return };
        let Some(handle) = open.pop() else { return };
        if open.is_empty() && *nlink == 0 {
            self.model.nodes.remove(&fid);
        }
        self.close_handle(fid, handle);
    }

    fn close_handle(&mut self, fid: Fid, handle: u64) {
        let request = Close {
            fid,
            handle,
            wrote: false,
            size: 0,
            truncate_epoch: 0,
            mtime_ns: 0,
            attr_epoch: 0,
            sparse: false,
            inline: None,
            set: None,
        };
        let got = self.world.attempt(|tx| ops::close::apply(tx, &request));
        self.check(&format!("{request:?}"), got, Ok(()));
    }

    fn set_xattr(&mut self) {
        let fid = self.any();
        let expected = match self.model.nodes.get(&fid) {
            None => Err(Errno::ESTALE),
            Some(Node::Link) => Err(Errno::EPERM),
            Some(_) => Ok(()),
        };
        let name = format!("user.{}", self.name());
        let request = SetXattr { caller: root(), fid, name: name.into(), value: "v".into(), flags: 0 };
        let got = self.world.attempt(|tx| ops::xattr::set(tx, &request));
        self.check(&format!("{request:?}"), got, expected);
    }

    /// Compares all lookups, counts and listings with the model.
    fn compare(&mut self) {
        let nodes = self.model.nodes.clone();
        assert_eq!(self.world.memory.inodes as usize, nodes.len(), "seed {}", self.seed);
        assert_eq!(self.world.count(keys::INODE), nodes.len(), "seed {}", self.seed);
        let counter = &self.world.rows[keys::inode_count().as_ref()];
        assert_eq!(Reader::new(counter).remaining(), counter.len());
        assert_eq!(crate::bootstrap::decode_counter(counter), Ok(nodes.len() as u64));
        let dirents: usize =
            nodes.values().map(|node| if let Node::Dir { names, .. } = node { names.len() } else { 0 }).sum();
        assert_eq!(self.world.count(keys::DIRENT), dirents, "seed {}", self.seed);
        for (fid, node) in &nodes {
            let inode = self.world.run(|tx| tx.inode(*fid));
            match node {
                Node::File { nlink, .. } => assert_eq!(inode.nlink, *nlink, "seed {}: {fid}", self.seed),
                Node::Link => assert_eq!(inode.nlink, 1),
                Node::Dir { parent, names } => {
                    let subdirectories = names.values().filter(|fid| self.model.is_dir(**fid)).count() as u32;
                    let dir = inode.dir().unwrap();
                    assert_eq!(
                        (inode.nlink, dir.entries, dir.parent),
                        (2 + subdirectories, names.len() as u64, *parent),
                        "seed {}: {fid}",
                        self.seed
                    );
                    for (name, child) in names {
                        let request = Lookup { caller: root(), parent: *fid, name: Bytes::from(name.clone()) };
                        let found = self.world.run(|tx| ops::lookup::apply(tx, &request)).entry;
                        assert_eq!(found.map(|entry| entry.attr.fid), Some(*child));
                    }
                }
            }
        }
    }

    /// Deletes everything; only the first rows and the destroy log may remain.
    fn delete_all(&mut self) {
        while let Some((dir, name, fid)) = self.deepest_name() {
            if self.model.is_dir(fid) { self.rmdir(dir, name) } else { self.unlink(dir, name) }
        }
        let open: Vec<(Fid, Vec<u64>)> = self
            .model
            .nodes
            .iter()
            .filter_map(
                |(fid, node)| if let Node::File { open, .. } = node { Some((*fid, open.clone())) } else { None },
            )
            .collect();
        for (fid, handles) in open {
            handles.into_iter().for_each(|handle| self.close_handle(fid, handle));
        }
        let root_xattrs = keys::xattrs(Fid::ROOT);
        let left: Vec<_> =
            self.world.rows.keys().filter(|key| key[0] != keys::DESTROY && key[..] != *root_xattrs.as_ref()).collect();
        assert_eq!(left.len(), 3, "seed {}: superblock, root, counter: {left:?}", self.seed);
    }

    fn deepest_name(&self) -> Option<(Fid, &'static str, Fid)> {
        self.model.nodes.iter().find_map(|(dir, node)| {
            let Node::Dir { names, .. } = node else { return None };
            let (name, fid) = names
                .iter()
                .find(|(_, fid)| self.model.names(**fid).is_ok_and(BTreeMap::is_empty) || !self.model.is_dir(**fid))?;
            Some((*dir, NAMES.into_iter().find(|known| known == name)?, *fid))
        })
    }
}

#[test]
fn random_operations_do_what_the_model_does() {
    for seed in 0..60 {
        let mut run = Run::new(seed);
        for step in 0..600 {
            run.step();
            if step % 100 == 99 {
                run.compare();
            }
        }
        run.delete_all();
    }
}
