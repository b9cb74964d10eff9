//! The demo's steps, in order.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use forebay_command::{
    error::{CliResult, Doing},
    posix,
    progress::{self, Bar, Counts},
    units::show_bytes,
};

use super::{
    checkpoint::{Checkpoint, Size},
    faults,
    report::{CopyPace, Paces, Report, Verified},
    site::Site,
    tree::{Pulse, Tree},
    volume::{Directory, Volume},
};

/// How often a bar reads the copiers' progress.
const LOOK: Duration = Duration::from_millis(200);
/// Most entries that are copied while servers are killed. With more, their directories alone would take the whole time.
const ENTRIES_UNDER_FIRE: usize = 4000;
/// Directories on a volume: the tree, the checkpoints, and the copy made while servers are killed.
const TREE: &str = "tree";
const CHECKPOINTS: &str = "checkpoints";
const AGAIN: &str = "copied-again";

/// Runs all steps from the mount to the last comparison. The site is stopped at the end.
pub fn run(site: &Site, size: Size, tree: Tree, local: &Path) -> CliResult<Report> {
    let began_ns = posix::monotonic_ns();
    site.mount()?;
    let local_paces = on_local_disk(local, size, &tree)?;
    let (volume, read) = (site.volume()?, site.read_volume()?);
    let [first, second] = [1, 2].map(|number| Checkpoint { size, dir: CHECKPOINTS.into(), number });
    volume.make_dirs(CHECKPOINTS, site.ost_count())?;
    let work = Work { volume: &*volume, read: &*read, checkpoint: &first, tree: &tree, name: "Forebay" };
    let forebay = work.run(&|| site.sync())?;
    say("killing an OST and the MDS while programs write");
    let fire = faults::run(site, &*volume, &second, &tree.beginning(ENTRIES_UNDER_FIRE), AGAIN)?;
    let files = first.files().into_iter().chain(second.files());
    let spread = files.map(|file| Ok((file_name(&file), volume.spread(&file, site.ost_count())?)));
    let spread: Vec<(String, Vec<u64>)> = spread.collect::<CliResult<_>>()?;
    let stored = site.stored_bytes()?;
    drop((volume, read));
    say(site.restarting());
    site.restart()?;
    let verified = verify(&*site.read_volume()?, &[(&tree, TREE), (&fire.copied, AGAIN)], &[first, second])?;
    say("stopping, and checking the targets' bytes with fsck");
    site.stop()?;
    site.fsck()?;
    let seconds = (posix::monotonic_ns() - began_ns) as f64 / 1e9;
    let checkpoint = format!("{} x {}, with fsync", size.processes, show_bytes(size.bytes));
    let (headline, interruption) = (site.headline(), site.interruption());
    let local = local_paces;
    Ok(Report { headline, tree, checkpoint, forebay, local, fire, spread, stored, interruption, verified, seconds })
}

fn on_local_disk(dir: &Path, size: Size, tree: &Tree) -> CliResult<Paces> {
    let disk = Directory::new(dir)?;
    let checkpoint = Checkpoint { size, dir: CHECKPOINTS.into(), number: 1 };
    disk.make_dirs(CHECKPOINTS, 0)?;
    let work = Work { volume: &disk, read: &disk, checkpoint: &checkpoint, tree, name: "this disk alone" };
    let paces = work.run(&|| disk.sync())?;
    std::fs::remove_dir_all(dir).doing(|| format!("cannot remove {}", dir.display()))?;
    Ok(paces)
}

/// The work that is done both on Forebay and on the disk below it.
struct Work<'a> {
    volume: &'a dyn Volume,
    /// The same, where it is read.
    read: &'a dyn Volume,
    checkpoint: &'a Checkpoint,
    tree: &'a Tree,
    name: &'a str,
}

impl Work<'_> {
    fn run(&self, sync: &dyn Fn() -> CliResult) -> CliResult<Paces> {
        let copy = self.copy(sync)?;
        let total = self.checkpoint.size.total();
        let bar = progress::bar(&format!("checkpoint: {}", self.name), total, Counts::Bytes);
        let write = self.volume.write(self.checkpoint, &mut |bytes| bar.set(bytes))?;
        drop(bar);
        let bar = progress::bar(&format!("reading back: {}", self.name), total, Counts::Bytes);
        let read = self.read.verify(self.checkpoint, &mut |bytes| bar.set(bytes))?;
        Ok(Paces { copy, write, read })
    }

    fn copy(&self, sync: &dyn Fn() -> CliResult) -> CliResult<CopyPace> {
        let pulse = Pulse::default();
        let entries = self.tree.entries.len() as u64;
        let bar = progress::bar(&format!("copying files: {}", self.name), entries, Counts::Things);
        let began_ns = posix::monotonic_ns();
        with_bar(&bar, &pulse, || self.volume.copy(self.tree, TREE, &pulse, &|| true))?;
        sync()?;
        let seconds = (posix::monotonic_ns() - began_ns) as f64 / 1e9;
        Ok(CopyPace { entries_per_s: entries as f64 / seconds })
    }
}

/// Shows the progress in `pulse` on `bar` while `work` runs.
fn with_bar<T>(bar: &Bar, pulse: &Pulse, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let looker = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                bar.set(pulse.entries.load(Ordering::Relaxed));
                thread::park_timeout(LOOK);
            }
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        looker.thread().unpark();
        result
    })
}

fn verify(volume: &dyn Volume, trees: &[(&Tree, &str)], checkpoints: &[Checkpoint]) -> CliResult<Verified> {
    let began_ns = posix::monotonic_ns();
    let entries: u64 = trees.iter().map(|(tree, _)| tree.entries.len() as u64).sum();
    let pulse = Pulse::default();
    let bar = progress::bar("comparing files", entries, Counts::Things);
    with_bar(&bar, &pulse, || trees.iter().try_for_each(|(tree, at)| volume.compare(tree, at, &pulse)))?;
    drop(bar);
    for checkpoint in checkpoints {
        let bar = progress::bar("checking a checkpoint", checkpoint.size.total(), Counts::Bytes);
        volume.verify(checkpoint, &mut |bytes| bar.set(bytes))?;
    }
    let tree_bytes: u64 = trees.iter().map(|(tree, _)| tree.bytes()).sum();
    let sizes = checkpoints.iter().map(|checkpoint| (checkpoint.files().len() as u64, checkpoint.size.total()));
    let (files, bytes) = sizes.fold((0, 0), |(files, bytes), (f, b)| (files + f, bytes + b));
    let seconds = (posix::monotonic_ns() - began_ns) as f64 / 1e9;
    Ok(Verified { entries: entries + files, bytes: tree_bytes + bytes, seconds })
}

fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

fn say(what: &str) {
    println!("... {what}");
}
