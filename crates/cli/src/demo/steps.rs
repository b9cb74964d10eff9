//! The demo's steps, in order.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::atomic::Ordering,
    thread,
    time::Duration,
};

use super::{
    checkpoint::{self, Checkpoint, Size},
    faults,
    report::{CopyPace, Paces, Report, Verified},
    site::Site,
    tree::{self, Pulse, Tree},
};
use crate::{
    bench::ior::drop_caches,
    error::{CliResult, Doing},
    posix,
    progress::{self, Bar, Counts},
    units::show_bytes,
};

/// How often a bar looks at what copiers have done.
const LOOK: Duration = Duration::from_millis(200);

/// From the mount to the last comparison; the site is stopped at the end.
pub fn run(site: &Site, size: Size, tree: Tree, local: &Path) -> CliResult<Report> {
    let began_ns = posix::monotonic_ns();
    site.mount()?;
    let local_paces = Measured { dir: local, size, tree: &tree, name: "this disk alone" }.run(&|| sync_local(local))?;
    std::fs::remove_dir_all(local).doing(|| format!("cannot remove {}", local.display()))?;
    let (mnt, files) = (site.mnt(), site.mnt().join("files"));
    checkpoint::stripe_over_all(site, &mnt.join("files/checkpoints"))?;
    let forebay = Measured { dir: &files, size, tree: &tree, name: "Forebay" }.run(&|| site.sync())?;
    let first = Checkpoint::new(size, &files.join("checkpoints"), 1)?;
    let second = Checkpoint::new(size, &files.join("checkpoints"), 2)?;
    say("killing an OST and the MDS while programs write");
    let again = mnt.join("again");
    let fire = faults::run(site, &second, size.total(), &tree, &again)?;
    let all_files: Vec<PathBuf> = first.files().into_iter().chain(second.files()).collect();
    let spread = checkpoint::bytes_per_ost(&all_files, site.cluster().ost_count())?;
    restart(site)?;
    let verified = verify(&[(&tree, &files.join("tree")), (&fire.copied, &again)], &[first, second], size)?;
    say("stopping");
    site.stop()?;
    let seconds = (posix::monotonic_ns() - began_ns) as f64 / 1e9;
    let headline = headline(site);
    let checkpoint = format!("{} x {}, with fsync", size.processes, show_bytes(size.bytes));
    Ok(Report { headline, tree, checkpoint, forebay, local: local_paces, fire, spread, verified, seconds })
}

fn headline(site: &Site) -> String {
    let osts = site.cluster().ost_count();
    format!("Forebay: 1 MDT and {osts} OSTs, each served by a process of its own, mounted at {}", site.mnt().display())
}

/// The work that is done on Forebay and on the disk below it alike.
struct Measured<'a> {
    dir: &'a Path,
    size: Size,
    tree: &'a Tree,
    name: &'a str,
}

impl Measured<'_> {
    fn run(&self, sync: &dyn Fn() -> CliResult) -> CliResult<Paces> {
        std::fs::create_dir_all(self.dir).doing(|| format!("cannot make {}", self.dir.display()))?;
        let copy = self.copy(sync)?;
        let checkpoint = Checkpoint::new(self.size, &self.dir.join("checkpoints"), 1)?;
        let bar = progress::bar(&format!("checkpoint: {}", self.name), self.size.total(), Counts::Bytes);
        let write = checkpoint.write(|bytes| bar.set(bytes))?;
        drop(bar);
        drop_caches(&checkpoint.files());
        let bar = progress::bar(&format!("reading back: {}", self.name), self.size.total(), Counts::Bytes);
        let read = checkpoint.verify(|bytes| bar.set(bytes))?;
        Ok(Paces { copy, write, read })
    }

    fn copy(&self, sync: &dyn Fn() -> CliResult) -> CliResult<CopyPace> {
        let pulse = Pulse::default();
        let entries = self.tree.entries.len() as u64;
        let bar = progress::bar(&format!("copying files: {}", self.name), entries, Counts::Things);
        let began_ns = posix::monotonic_ns();
        with_bar(&bar, &pulse, || tree::copy(self.tree, &self.dir.join("tree"), &pulse, &|| true))?;
        sync()?;
        let seconds = (posix::monotonic_ns() - began_ns) as f64 / 1e9;
        Ok(CopyPace { entries_per_s: entries as f64 / seconds })
    }
}

/// Shows on `bar` what `pulse` counts while `work` is done.
fn with_bar<T>(bar: &Bar, pulse: &Pulse, work: impl FnOnce() -> T) -> T {
    let done = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                bar.set(pulse.entries.load(Ordering::Relaxed));
                thread::park_timeout(LOOK);
            }
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    })
}

fn sync_local(dir: &Path) -> CliResult {
    let file = File::open(dir).doing(|| format!("cannot open {}", dir.display()))?;
    posix::sync_filesystem(&file).doing(|| format!("cannot sync {}", dir.display()))
}

fn restart(site: &Site) -> CliResult {
    say("stopping everything and starting it again");
    site.stop()?;
    site.start_servers()?;
    site.mount()
}

fn verify(trees: &[(&Tree, &PathBuf)], checkpoints: &[Checkpoint], size: Size) -> CliResult<Verified> {
    let began_ns = posix::monotonic_ns();
    let entries: u64 = trees.iter().map(|(tree, _)| tree.entries.len() as u64).sum();
    let pulse = Pulse::default();
    let bar = progress::bar("comparing files", entries, Counts::Things);
    with_bar(&bar, &pulse, || trees.iter().try_for_each(|(tree, at)| tree::compare(tree, at, &pulse)))?;
    drop(bar);
    for checkpoint in checkpoints {
        let bar = progress::bar("checking a checkpoint", size.total(), Counts::Bytes);
        checkpoint.verify(|bytes| bar.set(bytes))?;
    }
    let files: u64 = trees.iter().map(|(tree, _)| tree.bytes()).sum();
    let checkpoint_files: u64 = checkpoints.iter().map(|checkpoint| checkpoint.files().len() as u64).sum();
    Ok(Verified {
        entries: entries + checkpoint_files,
        bytes: files + checkpoints.len() as u64 * size.total(),
        seconds: (posix::monotonic_ns() - began_ns) as f64 / 1e9,
    })
}

fn say(what: &str) {
    println!("... {what}");
}
