//! Workers that share a tree: each takes a few entries of one directory at a time.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use forebay_command::error::CliResult;

use super::tree::{Entry, Kind, Tree};

/// Threads that copy or compare in parallel: more than processors, because each mostly waits.
pub const COPIERS: usize = 8;
/// Entries of a directory that a worker takes at a time.
const SHARE_NAMES: usize = 64;

/// The entries that a worker takes at a time. It opens their directory once.
pub struct Share<'t> {
    /// Relative to the tree's root; empty for the root itself.
    pub dir: &'t Path,
    /// Numbers of entries that are not directories, in order.
    pub entries: Vec<usize>,
    /// Set for one share of each directory: all entries that the directory must have.
    pub all: Option<Vec<&'t Entry>>,
}

/// Everything in `tree`, by directory.
pub fn shares(tree: &Tree) -> Vec<Share<'_>> {
    let mut by_dir: BTreeMap<&Path, Vec<usize>> = BTreeMap::from([(Path::new(""), Vec::new())]);
    for (number, entry) in tree.entries.iter().enumerate() {
        by_dir.entry(parent_of(entry)).or_default().push(number);
        if entry.kind == Kind::Dir {
            by_dir.entry(&entry.path).or_default();
        }
    }
    let mut shares = Vec::new();
    for (dir, numbers) in by_dir {
        let all = numbers.iter().map(|&number| &tree.entries[number]).collect();
        let is_other = |number: &usize| tree.entries[*number].kind != Kind::Dir;
        let others: Vec<usize> = numbers.iter().copied().filter(is_other).collect();
        let mut chunks = others.chunks(SHARE_NAMES);
        let entries = chunks.next().unwrap_or_default().to_vec();
        shares.push(Share { dir, entries, all: Some(all) });
        shares.extend(chunks.map(|chunk| Share { dir, entries: chunk.to_vec(), all: None }));
    }
    shares
}

/// The directory an entry lies in, relative to the tree's root.
pub fn parent_of(entry: &Entry) -> &Path {
    entry.path.parent().unwrap_or(Path::new(""))
}

/// Runs `work` on all `shares` with [`COPIERS`] threads. Stops early at the first error and returns it. `begin` makes
/// the private state of each thread.
pub fn each<W>(
    shares: &[Share<'_>],
    begin: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, &Share<'_>) -> CliResult + Sync,
) -> CliResult {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let first_error = Mutex::new(Ok(()));
    let worker = || {
        let mut own = begin();
        while !failed.load(Ordering::Relaxed)
            && let Some(share) = shares.get(next.fetch_add(1, Ordering::Relaxed))
        {
            if let Err(error) = work(&mut own, share)
                && !failed.swap(true, Ordering::Relaxed)
            {
                *first_error.lock().expect("no worker panics") = Err(error);
            }
        }
    };
    thread::scope(|scope| (0..COPIERS).for_each(|_| drop(scope.spawn(worker))));
    first_error.into_inner().expect("no worker panics")
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_command::error::CliError;

    fn tree(entries: &[(&str, Kind)]) -> Tree {
        let entry = |(path, kind): &(&str, Kind)| Entry { path: path.into(), kind: kind.clone(), mode: 0, mtime_ns: 0 };
        Tree { root: "/".into(), entries: entries.iter().map(entry).collect(), bounds: Tree::ALL }
    }

    #[test]
    fn every_name_is_in_one_share_and_every_directory_is_listed_once() {
        let mut entries = vec![("d", Kind::Dir), ("d/e", Kind::Dir), ("f", Kind::File(1))];
        let names: Vec<String> = (0..150).map(|i| format!("d/{i:03}")).collect();
        entries.extend(names.iter().map(|name| (name.as_str(), Kind::File(0))));
        let tree = tree(&entries);
        let shares = shares(&tree);
        let mut numbers: Vec<usize> = shares.iter().flat_map(|share| share.entries.clone()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (2..153).collect::<Vec<_>>());
        let listed = shares.iter().filter_map(|share| Some((share.dir.to_str()?, share.all.as_ref()?.len())));
        assert_eq!(listed.collect::<Vec<_>>(), [("", 2), ("d", 151), ("d/e", 0)]);
    }

    #[test]
    fn the_first_error_ends_the_work() {
        let names: Vec<String> = (0..10_000).map(|i| format!("{i}")).collect();
        let entries: Vec<_> = names.iter().map(|name| (name.as_str(), Kind::File(0))).collect();
        let (tree, done) = (tree(&entries), AtomicUsize::new(0));
        let shares = shares(&tree);
        let refuse = |(): &mut (), _: &Share<'_>| {
            done.fetch_add(1, Ordering::Relaxed);
            Err(CliError::failed("no"))
        };
        assert!(each(&shares, || (), refuse).is_err());
        // Regardless of scheduling, a thread takes no further share after an error.
        assert!(shares.len() > COPIERS && done.load(Ordering::Relaxed) <= COPIERS);
    }

    #[test]
    fn an_error_of_one_share_is_the_result_of_all() {
        let names: Vec<String> = (0..1_000).map(|i| format!("{i}")).collect();
        let entries: Vec<_> = names.iter().map(|name| (name.as_str(), Kind::File(0))).collect();
        let tree = tree(&entries);
        let work = |(): &mut (), share: &Share<'_>| match share.entries.contains(&500) {
            true => Err(CliError::failed("no")),
            false => Ok(()),
        };
        assert!(each(&shares(&tree), || (), work).is_err());
    }
}
