//! Locks of a node, by name: they end with their guard, or with the life that took them.

use std::rc::Rc;

use super::{NodeId, world::World};
use crate::files::FileLock;

impl World {
    /// Takes the lock `name`. None: it is taken already.
    pub(crate) fn lock(self: &Rc<Self>, node: NodeId, life: u64, name: &str) -> Option<FileLock> {
        let taken = self.node(node, |n| {
            let taken = n.locks.contains_key(name);
            n.locks.entry(name.to_string()).or_insert(life);
            taken
        });
        let guard = || LockGuard { world: self.clone(), node, life, name: name.to_string() };
        (!taken).then(|| FileLock { _keep: Box::new(guard()) })
    }
}

struct LockGuard {
    world: Rc<World>,
    node: NodeId,
    life: u64,
    name: String,
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.world.node(self.node, |n| {
            if n.locks.get(&self.name) == Some(&self.life) {
                n.locks.remove(&self.name);
            }
        });
    }
}
