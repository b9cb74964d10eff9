//! `forebay demo`: the whole file system in one command.
//!
//! It formats an MDT and four OSTs, serves each from its own process, mounts, copies a real tree in and writes a
//! checkpoint. It kills an OST and the MDS while programs write, and restarts them. Then it stops and starts
//! everything, compares every name and byte, reports, and cleans up. It acts as a user program: plain files, threads
//! and clocks.
//!
//! With `--hosts` it does the same with a cluster over hosts that it makes: programs write on one and read on another, and
//! all processes of all hosts are killed before the comparison.
//!
//! Invariant: exit code 0 only if everything was verified.
//! Invariant: in every case (errors, Ctrl-C), nothing stays mounted, and no process and no host stays behind.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod base;
mod checkpoint;
mod compare;
pub mod copier;
mod copy;
mod crew;
mod dir;
mod faults;
mod hosts;
mod library;
mod on_hosts;
mod report;
mod site;
mod steps;
mod tree;
mod volume;
mod watchdog;

use std::path::PathBuf;

use clap::Args;
use forebay_command::{
    error::{CliError, CliResult, Doing},
    posix,
    units::{show_bytes, show_count},
};

use base::{Base, clear, end_now, is_ending, is_mounted};
use checkpoint::Size;
use site::{Shape, Site};
use tree::{Bounds, Tree};

/// OSTs of the demo on one host. Of several hosts each has one.
const OSTS: u32 = 4;
/// Processes of a checkpoint.
const PROCESSES: u32 = 4;

/// How much to do.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Where to work: a directory that is empty or not there yet [default: a new one for temporary files]
    pub dir: Option<PathBuf>,
    /// Less data: done in a fraction of the time
    #[arg(long)]
    pub quick: bool,
    /// Leave the cluster and the files there at the end (stopped)
    #[arg(long)]
    pub keep: bool,
    /// A tree to copy in, instead of one that is found on this machine
    #[arg(long, value_name = "DIR")]
    pub tree: Option<PathBuf>,
    /// Use the client library even where a mount is possible
    #[arg(long)]
    pub library: bool,
    /// A cluster over this many hosts, which the demo makes: network namespaces. Needs root. Programs write on one and read
    /// on another
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=16), conflicts_with_all = ["library", "keep"])]
    pub hosts: Option<u32>,
    /// Bytes of each process of a checkpoint
    #[arg(long, hide = true, value_parser = forebay_command::units::parse_positive_size)]
    pub checkpoint_size: Option<u64>,
}

/// Amount of work of the demo.
#[derive(Clone, Copy, Debug)]
struct Scale {
    checkpoint: Size,
    tree_bytes: u64,
    shape: Shape,
}

impl Scale {
    /// `tree`: the tree to copy in.
    fn of(args: &DemoArgs, tree: &Tree) -> Self {
        let each = args.checkpoint_size.unwrap_or(if args.quick { 64 << 20 } else { 512 << 20 });
        let checkpoint = Size { processes: PROCESSES, bytes: each.next_multiple_of(1 << 20) };
        let (entries, tree_bytes) = (tree.entries.len() as u64, tree.bytes());
        // Two checkpoints, the tree and the part of it that is copied again, and headers of small files. Half as much
        // again for the cleaner.
        let data = 2 * checkpoint.total() + tree_bytes * 5 / 4 + entries * 8192 * 5 / 4;
        let osts = args.hosts.unwrap_or(OSTS);
        let ost_bytes = (data * 3 / 2 / u64::from(osts)).next_multiple_of(64 << 20).max(512 << 20);
        let shape = Shape { osts, ost_bytes, mdt_bytes: if args.quick { 512 << 20 } else { 1 << 30 } };
        Self { checkpoint, tree_bytes, shape }
    }

    /// Bytes of the targets, and of a local checkpoint and tree to compare with.
    fn needed_bytes(&self) -> u64 {
        let targets = u64::from(self.shape.osts) * self.shape.ost_bytes + self.shape.mdt_bytes;
        targets + targets / 16 + self.checkpoint.total() + self.tree_bytes + (256 << 20)
    }
}

/// Runs the demo.
pub fn run(args: &DemoArgs) -> CliResult {
    args.hosts.map_or(Ok(()), |_| on_hosts::refuse_without())?;
    let tree = find_tree(args)?;
    let scale = Scale::of(args, &tree);
    let base = prepare(args, &scale)?;
    end_at_signals(&base);
    let result = play(args, scale, tree, &base);
    if result.is_err() && is_ending() {
        // The thread that ends the demo prints why, and sets the exit code.
        loop {
            std::thread::park();
        }
    }
    if result.is_err() || !args.keep {
        clear(&base, false);
    }
    let text = result?;
    print!("\n{text}");
    if args.keep {
        println!("\nKept in {}: `forebay up {}/cluster` brings it up again.", base.dir.display(), base.dir.display());
    }
    Ok(())
}

/// The whole tree that was asked for or found, unless it is very large.
fn find_tree(args: &DemoArgs) -> CliResult<Tree> {
    let (entries, bytes) = if args.quick { (3_000, 64 << 20) } else { (60_000, 1 << 30) };
    let source = args.tree.clone().unwrap_or_else(tree::find_source);
    Tree::scan(&source, Bounds { entries, bytes })
}

fn play(args: &DemoArgs, scale: Scale, tree: Tree, base: &Base) -> CliResult<String> {
    let mounts = args.hosts.is_some() || may_mount(args);
    println!("Working in {}. The tree to copy in is {}:", base.dir.display(), tree.root.display());
    println!(
        "{} files, {} directories, {} links, {}.",
        show_count(tree.file_count()),
        show_count(tree.dir_count()),
        show_count(tree.link_count()),
        show_bytes(tree.bytes())
    );
    let site = match args.hosts {
        Some(_) => Site::start_on_hosts(base, scale.shape)?,
        None => Site::start(base, scale.shape, args.keep, mounts)?,
    };
    let result = steps::run(&site, scale.checkpoint, tree, &base.dir.join("local"));
    if result.is_err() && !is_ending() {
        eprint!("{}", site.log_tails());
    }
    result.map(|report| report.text())
}

/// Whether the programs use a mount; if not, prints why.
fn may_mount(args: &DemoArgs) -> bool {
    let why = if args.library {
        "As asked, nothing is mounted".to_owned()
    } else if let Err(why) = forebay_fuse::check_device() {
        format!("Nothing can be mounted here, as {why}")
    } else if !posix::may_mount() {
        "Only root may mount here (in a container, one with CAP_SYS_ADMIN)".to_owned()
    } else {
        return true;
    };
    println!("{why}: the demo's programs use the client library instead.");
    false
}

/// The working directory: for the demo alone, with enough space.
fn prepare(args: &DemoArgs, scale: &Scale) -> CliResult<Base> {
    let dir = args.dir.clone().unwrap_or_else(temporary);
    let shown = dir.display();
    let made = !dir.exists();
    std::fs::create_dir_all(&dir).doing(|| format!("cannot make {shown}"))?;
    let mut entries = std::fs::read_dir(&dir).doing(|| format!("cannot use {shown}"))?;
    if entries.next().is_some() {
        return Err(CliError::usage(format!("{shown} is not empty; give the demo a directory of its own")));
    }
    let dir_used = dir.canonicalize().doing(|| format!("cannot use {shown}"))?;
    let base = Base { dir: dir_used, made, hosts: args.hosts.map(|hosts| hosts as usize) };
    let free = posix::free_bytes(&base.dir).doing(|| format!("free space of {shown}"))?;
    if free < scale.needed_bytes() {
        clear(&base, false);
        return Err(CliError::failed(format!(
            "{shown} has {} free and the demo needs {}: give another DIR{}",
            show_bytes(free),
            show_bytes(scale.needed_bytes()),
            if args.quick { "" } else { ", or add --quick" },
        )));
    }
    Ok(base)
}

/// /var/tmp is on a disk; /tmp may be in memory.
fn temporary() -> PathBuf {
    let parent = PathBuf::from("/var/tmp");
    let parent = if parent.is_dir() { parent } else { std::env::temp_dir() };
    parent.join(format!("forebay-demo-{}", std::process::id()))
}

/// Ctrl-C and SIGTERM end the demo as an error would.
fn end_at_signals(base: &Base) {
    posix::catch_signals();
    let base = base.clone();
    std::thread::spawn(move || {
        let signal = posix::wait_for_stop_signal();
        eprintln!("\nforebay: interrupted; unmounting, stopping the servers, removing {}", base.dir.display());
        end_now(&base);
        let left = is_mounted(&base);
        std::process::exit(if left { 1 } else { 128 + signal });
    });
}
