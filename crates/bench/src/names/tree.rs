//! Which directories a run has, and which of them holds each item: mdtest's arithmetic, without I/O.
//!
//! Order: directories are numbered level by level from the root, which is 0. Items fill one directory after the other.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Most directories of one tree.
pub const DIRECTORIES: u64 = 10_000_000;

/// Nested directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// Directories in each directory, except in the last level.
    pub branching: u64,
    /// Levels below the root.
    pub depth: u32,
    /// Only the last level holds items.
    pub leaves_only: bool,
}

impl Tree {
    /// Number of directories with the root; `None` beyond [`DIRECTORIES`].
    pub fn directories(&self) -> Option<u64> {
        let mut all = 1_u64;
        let mut level = 1_u64;
        for _ in 0..self.depth {
            level = level.checked_mul(self.branching)?;
            all = all.checked_add(level).filter(|all| *all <= DIRECTORIES)?;
        }
        Some(all)
    }

    /// The directories that hold items.
    pub fn holders(&self) -> Range<u64> {
        let all = self.directories().expect("the arguments were validated");
        let leaves = self.branching.pow(self.depth);
        if self.leaves_only { all - leaves..all } else { 0..all }
    }

    /// Path of directory `number` of the tree at `root`.
    pub fn path(&self, root: &str, number: u64) -> String {
        if number == 0 {
            return root.to_owned();
        }
        format!("{}/tree.{number}", self.path(root, (number - 1) / self.branching))
    }
}

/// All items of all processes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Layout {
    /// The tree of each process, or the one of all together.
    pub tree: Tree,
    /// A tree for each process.
    pub own: bool,
    /// Items of each process.
    pub items: u64,
}

impl Layout {
    /// Name of the tree of `rank`, below the directory of the run.
    pub fn root(&self, rank: u32) -> String {
        if self.own { format!("task.{rank}") } else { "shared".into() }
    }

    /// Items of one process in a directory; the last one may hold fewer.
    pub fn per_directory(&self) -> u64 {
        let holders = self.tree.holders();
        self.items.div_ceil(holders.end - holders.start).max(1)
    }

    /// The directory of item `number`.
    pub fn directory_of(&self, number: u64) -> u64 {
        self.tree.holders().start + number / self.per_directory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSHY: Tree = Tree { branching: 3, depth: 2, leaves_only: false };

    #[test]
    fn directories_are_numbered_level_by_level() {
        assert_eq!(BUSHY.directories(), Some(1 + 3 + 9));
        assert_eq!(BUSHY.path("r", 0), "r");
        assert_eq!((BUSHY.path("r", 3), BUSHY.path("r", 12)), ("r/tree.3".into(), "r/tree.3/tree.12".into()));
        let chain = Tree { branching: 1, depth: 3, leaves_only: false };
        assert_eq!((chain.directories(), chain.path("r", 2)), (Some(4), "r/tree.1/tree.2".into()));
    }

    #[test]
    fn items_fill_one_directory_after_the_other_and_none_is_lost() {
        let layout = Layout { tree: BUSHY, own: true, items: 40 };
        assert_eq!(layout.per_directory(), 4);
        assert_eq!((layout.directory_of(0), layout.directory_of(4), layout.directory_of(39)), (0, 1, 9));
        let leaves = Layout { tree: Tree { leaves_only: true, ..BUSHY }, ..layout };
        assert_eq!((leaves.per_directory(), leaves.directory_of(0), leaves.directory_of(39)), (5, 4, 11));
    }

    #[test]
    fn a_tree_beyond_the_bound_has_no_number_of_directories() {
        for (branching, depth) in [(10, 7), (u64::MAX, 2), (DIRECTORIES, 1)] {
            assert_eq!(Tree { branching, depth, leaves_only: false }.directories(), None);
        }
        assert!(Tree { branching: 0, depth: 0, leaves_only: true }.directories() == Some(1));
    }
}
