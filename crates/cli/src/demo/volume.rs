//! Where the demo's programs work: a directory of this machine (the mount, or the disk below it), or the library.
//!
//! Paths are relative to the volume's root.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use forebay_bench::ior::drop_caches;
use forebay_command::{
    error::{CliResult, Doing},
    posix,
};

use super::{
    checkpoint::{self, Checkpoint, Pace},
    compare, copier,
    tree::{Pulse, Tree},
};
use crate::layout;

/// The operations of the demo's programs.
pub trait Volume: Sync {
    /// Copies `tree` to the new directory `to`; asks `go_on` before each file. Returns what was copied.
    fn copy(&self, tree: &Tree, to: &str, pulse: &Pulse, go_on: &(dyn Fn() -> bool + Sync)) -> CliResult<Tree>;
    /// Compares `tree` with the tree at `at`.
    fn compare(&self, tree: &Tree, at: &str, pulse: &Pulse) -> CliResult;
    /// Makes the directory `dir` and those above it. New files in it are striped over `osts` OSTs (0 = the default).
    fn make_dirs(&self, dir: &str, osts: usize) -> CliResult;
    /// Writes a checkpoint, with fsync; `on_progress` receives the number of bytes written.
    fn write(&self, checkpoint: &Checkpoint, on_progress: &mut dyn FnMut(u64)) -> CliResult<Pace>;
    /// Reads the checkpoint back and checks every byte, bypassing caches where possible.
    fn verify(&self, checkpoint: &Checkpoint, on_progress: &mut dyn FnMut(u64)) -> CliResult<Pace>;
    /// Bytes of a file on each of `osts` OSTs.
    fn spread(&self, file: &str, osts: usize) -> CliResult<Vec<u64>>;
}

/// A directory, used as programs use one.
pub struct Directory {
    root: PathBuf,
}

impl Directory {
    /// Makes the directory `root`.
    pub fn new(root: &Path) -> CliResult<Self> {
        std::fs::create_dir_all(root).doing(|| format!("cannot make {}", root.display()))?;
        Ok(Self { root: root.to_owned() })
    }

    /// Makes everything written to its file system durable, if the file system supports that.
    pub fn sync(&self) -> CliResult {
        let shown = self.root.display();
        let file = File::open(&self.root).doing(|| format!("cannot open {shown}"))?;
        posix::sync_filesystem(&file).doing(|| format!("cannot sync {shown}"))
    }
}

impl Volume for Directory {
    fn copy(&self, tree: &Tree, to: &str, pulse: &Pulse, go_on: &(dyn Fn() -> bool + Sync)) -> CliResult<Tree> {
        copier::have_copied(tree, &self.root.join(to), pulse, go_on)
    }

    fn compare(&self, tree: &Tree, at: &str, pulse: &Pulse) -> CliResult {
        compare::compare(tree, &self.root.join(at), pulse)
    }

    fn make_dirs(&self, dir: &str, osts: usize) -> CliResult {
        let dir = self.root.join(dir);
        std::fs::create_dir_all(&dir).doing(|| format!("cannot make {}", dir.display()))?;
        if osts == 0 { Ok(()) } else { layout::set_layout(&dir, osts) }
    }

    fn write(&self, checkpoint: &Checkpoint, on_progress: &mut dyn FnMut(u64)) -> CliResult<Pace> {
        checkpoint::write_files(checkpoint, &self.root, on_progress)
    }

    fn verify(&self, checkpoint: &Checkpoint, on_progress: &mut dyn FnMut(u64)) -> CliResult<Pace> {
        let files: Vec<PathBuf> = checkpoint.files().iter().map(|file| self.root.join(file)).collect();
        drop_caches(&files);
        checkpoint::verify_files(checkpoint, &self.root, on_progress)
    }

    fn spread(&self, file: &str, osts: usize) -> CliResult<Vec<u64>> {
        let path = self.root.join(file);
        let size = path.metadata().doing(|| format!("cannot look at {}", path.display()))?.len();
        let layout = layout::layout_of(&path)?;
        let list = layout["osts"].as_array().map_or(&[][..], Vec::as_slice);
        let osts_of_file = list.iter().filter_map(serde_json::Value::as_u64).map(|ost| ost as u32).collect();
        let stripe_bytes = layout["stripe_size"].as_u64().unwrap_or(1 << 20) as u32;
        let layout = forebay_proto::Layout::plain(1, stripe_bytes, osts_of_file);
        Ok(bytes_per_ost(&layout, size, osts))
    }
}

/// Bytes of a file of `size` bytes on each OST.
pub fn bytes_per_ost(layout: &forebay_proto::Layout, size: u64, osts: usize) -> Vec<u64> {
    let mut bytes = vec![0; osts];
    for piece in layout.pieces(0, size) {
        if let Some(place) = bytes.get_mut(piece.ost as usize) {
            *place += piece.length;
        }
    }
    bytes
}
