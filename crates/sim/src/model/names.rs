//! The names of one worker's directory tree, with every state since the last sync.

use std::collections::{BTreeMap, BTreeSet};

use super::file::WriteTag;

/// The model's number of an inode.
pub type NodeId = u64;

/// What a path refers to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    /// A regular file; its bytes are in the worker's table of files.
    File(NodeId),
    /// A directory.
    Dir,
    /// A symbolic link and its target.
    Symlink(String),
    /// A file's extended attribute. It has its own key among the names (see [`attribute_key`]).
    Attribute(WriteTag, usize),
}

/// The key of a file's attribute among the names. No path begins like this.
pub fn attribute_key(file: NodeId) -> String {
    format!("//{file}")
}

/// A path and what it refers to.
pub type Entry = (String, Node);

/// All names below a worker's directory, by path relative to it.
#[derive(Clone, Debug, Default)]
pub struct Names {
    current: BTreeMap<String, Node>,
    /// States since the last sync, oldest first, without the current one.
    before: Vec<BTreeMap<String, Node>>,
}

impl Names {
    /// The current names.
    pub fn current(&self) -> &BTreeMap<String, Node> {
        &self.current
    }

    /// Enters an acknowledged change.
    pub fn change(&mut self, change: impl FnOnce(&mut BTreeMap<String, Node>)) {
        let after = self.after(change);
        self.before.push(std::mem::replace(&mut self.current, after));
    }

    /// The names as `change` will leave them. A file that loses its last name loses its attribute.
    pub fn after(&self, change: impl FnOnce(&mut BTreeMap<String, Node>)) -> BTreeMap<String, Node> {
        let mut after = self.current.clone();
        change(&mut after);
        let files: BTreeSet<String> = after
            .values()
            .filter_map(|node| if let Node::File(id) = node { Some(attribute_key(*id)) } else { None })
            .collect();
        after.retain(|path, node| !matches!(node, Node::Attribute(..)) || files.contains(path));
        after
    }

    /// Enters a change that was sent and may have been executed.
    pub fn maybe(&mut self, change: impl FnOnce(&mut BTreeMap<String, Node>)) {
        let after = self.after(change);
        // A possible state that is not the current one.
        self.before.push(after);
    }

    /// Everything current is durable.
    pub fn sync(&mut self) {
        self.before.clear();
    }

    /// All but the last `changes` are durable.
    pub fn sync_all_but(&mut self, changes: usize) {
        self.before.drain(..self.before.len().saturating_sub(changes));
    }

    /// A file was synced. The last change of its names is durable with everything before it, but nothing after it.
    pub fn sync_file(&mut self, file: NodeId) {
        let paths = |state: &BTreeMap<String, Node>| -> BTreeSet<String> {
            let named = state.iter().filter(|(_, node)| **node == Node::File(file));
            named.map(|(path, _)| path.clone()).collect()
        };
        let now = paths(&self.current);
        if let Some(last) = self.before.iter().rposition(|state| paths(state) != now) {
            self.before.drain(..=last);
        }
    }

    /// The client was evicted, perhaps with its last change in flight. That change may have been executed although
    /// earlier ones were lost, so each state is also possible with that change added.
    pub fn last_change_may_stand_alone(&mut self) {
        let states: Vec<_> = self.before.iter().chain([&self.current]).cloned().collect();
        // The last two states, or one of them and one that was sent. Their order is not known here.
        let last = &states[states.len().saturating_sub(3)..];
        let mut alone = BTreeSet::new();
        for (from, to) in last.iter().flat_map(|from| last.iter().map(move |to| (from, to))) {
            let changed = |path: &&String| from.get(*path) != to.get(*path);
            let paths: BTreeSet<&String> = from.keys().chain(to.keys()).filter(changed).collect();
            for state in &states {
                let mut state = state.clone();
                for path in &paths {
                    match to.get(*path) {
                        Some(node) => drop(state.insert((*path).clone(), node.clone())),
                        None => drop(state.remove(*path)),
                    }
                }
                alone.insert(state);
            }
        }
        self.before.splice(0..0, alone);
    }

    /// Compares a listing. With `loose` any state since the last sync is accepted, and becomes current.
    pub fn check(&mut self, seen: &BTreeMap<String, Node>, loose: bool) -> Result<(), String> {
        if *seen == self.current {
            if loose {
                self.before.clear();
            }
            return Ok(());
        }
        if loose && let Some(found) = self.before.iter().rev().find(|state| *state == seen) {
            self.current = found.clone();
            self.before.clear();
            return Ok(());
        }
        if loose && self.is_mixed(seen) {
            self.current = seen.clone();
            self.before.clear();
            return Ok(());
        }
        // Of the possible states, show the one with the fewest differences.
        let differences = |state: &BTreeMap<String, Node>| {
            let absent = state.iter().filter(|(path, node)| seen.get(*path) != Some(node)).count();
            absent + seen.iter().filter(|(path, node)| state.get(*path) != Some(node)).count()
        };
        let possible = self.before.iter().filter(|_| loose).chain([&self.current]);
        let nearest = possible.min_by_key(|state| differences(state)).unwrap_or(&self.current);
        let missing: Vec<_> = nearest.iter().filter(|(path, node)| seen.get(*path) != Some(node)).collect();
        let extra: Vec<_> = seen.iter().filter(|(path, node)| nearest.get(*path) != Some(node)).collect();
        Err(format!(
            "names differ from {} possible states: missing or changed {missing:?}, unexpected {extra:?}",
            1 + self.before.len()
        ))
    }

    /// True if the names match one state, and each attribute matches a state too. The order in which delayed
    /// directory operations and changes of attributes are lost is not promised.
    fn is_mixed(&self, seen: &BTreeMap<String, Node>) -> bool {
        let states = || self.before.iter().chain([&self.current]);
        let is_name = |(_, node): &(&String, &Node)| !matches!(node, Node::Attribute(..));
        let names = |state: &BTreeMap<String, Node>| {
            state.iter().filter(is_name).map(|(p, n)| (p.clone(), n.clone())).collect::<Vec<_>>()
        };
        let found = names(seen);
        let files = found.iter().filter_map(|(_, node)| if let Node::File(id) = node { Some(*id) } else { None });
        let mut keys = files.map(attribute_key);
        keys.all(|key| states().any(|state| state.get(&key) == seen.get(&key)))
            && states().any(|state| names(state) == found)
    }

    /// The file of a path in the latest state in which the path is a file.
    pub fn possible_file(&self, path: &str) -> Option<NodeId> {
        let states = std::iter::once(&self.current).chain(self.before.iter().rev());
        states
            .filter_map(|state| state.get(path))
            .find_map(|node| if let Node::File(id) = node { Some(*id) } else { None })
    }

    /// Number of names.
    pub fn count(&self) -> usize {
        self.current.values().filter(|node| !matches!(node, Node::Attribute(..))).count()
    }

    /// The attribute of a file.
    pub fn attribute(&self, file: NodeId) -> Option<&Node> {
        self.current.get(&attribute_key(file))
    }

    /// Number of links of a file.
    pub fn links(&self, file: NodeId) -> usize {
        self.current.values().filter(|node| **node == Node::File(file)).count()
    }

    /// Names of a directory's children (`""`: the worker's own directory).
    pub fn children(&self, dir: &str) -> Vec<String> {
        let prefix = if dir.is_empty() { String::new() } else { format!("{dir}/") };
        let below = self.current.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
        below
            .filter(|(path, _)| !path[prefix.len()..].contains('/'))
            .map(|(path, _)| path[prefix.len()..].into())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_must_be_the_current_one_or_after_a_double_crash_one_since_the_sync() {
        let mut names = Names::default();
        names.change(|n| drop(n.insert("a".into(), Node::File(1))));
        names.sync();
        names.change(|n| drop(n.insert("b".into(), Node::Dir)));
        let synced: BTreeMap<_, _> = [("a".to_string(), Node::File(1))].into();
        assert!(names.check(&synced, false).is_err());
        assert_eq!(names.check(&synced, true), Ok(()));
        assert_eq!(names.check(&synced, false), Ok(()), "what was found is current");
        assert!(names.check(&BTreeMap::new(), true).is_err(), "synced names do not vanish");
    }

    #[test]
    fn a_synced_file_keeps_its_names_and_what_came_before_but_not_what_came_after() {
        let mut names = Names::default();
        names.change(|n| drop(n.insert("a".into(), Node::File(1))));
        names.change(|n| drop(n.insert("b".into(), Node::File(2))));
        names.sync_file(1);
        assert!(names.clone().check(&BTreeMap::new(), true).is_err(), "the synced file is gone");
        let only_a: BTreeMap<_, _> = [("a".to_string(), Node::File(1))].into();
        assert_eq!(names.check(&only_a, true), Ok(()));
    }

    #[test]
    fn children_are_the_names_one_level_down() {
        let mut names = Names::default();
        names.change(|n| {
            for path in ["d", "d/x", "d/y", "dd", "e"] {
                n.insert(path.into(), Node::Dir);
            }
        });
        assert_eq!(names.children(""), ["d", "dd", "e"]);
        assert_eq!(names.children("d"), ["x", "y"]);
    }

    #[test]
    fn an_eviction_may_keep_the_last_change_of_a_name_and_lose_earlier_ones() {
        let mut names = Names::default();
        for (number, path) in (1..).zip(["a", "b", "c"]) {
            names.change(|n| drop(n.insert(path.into(), Node::File(number))));
        }
        let seen = |paths: &[(&str, NodeId)]| -> BTreeMap<String, Node> {
            paths.iter().map(|(path, number)| ((*path).to_owned(), Node::File(*number))).collect()
        };
        assert!(names.clone().check(&seen(&[("a", 1), ("c", 3)]), true).is_err(), "in their order");
        names.last_change_may_stand_alone();
        assert!(names.clone().check(&seen(&[("c", 3), ("x", 9)]), true).is_err(), "nothing of its own");
        assert_eq!(names.check(&seen(&[("a", 1), ("c", 3)]), true), Ok(()));
    }
}
