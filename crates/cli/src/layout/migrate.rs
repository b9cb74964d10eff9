//! `forebay migrate`: gives files with data another layout. A file keeps its inode, its names and its attributes.
//!
//! The file is copied to one without a name, which nobody else sees and which ends with this process. Then both
//! exchange their objects atomically, if the original has not changed since (`mds::ops::migrate`). A crash of any part
//! leaves the file whole.

use std::{
    ffi::CStr,
    fs::{File, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use clap::Args;
use forebay_command::{
    error::{CliError, CliResult, Doing},
    posix,
    progress::{self, Bar, Counts},
};

use super::{LAYOUT, choices, flags::LayoutFlags, layout_of, parent_of, setstripe::warn_of_fewer, without_mount};

/// Read before the copy: the version of the file's content. Written after it: the copy and that version.
const MIGRATE: &CStr = c"forebay.migrate";
/// Bytes copied at a time.
const STEP: usize = 4 << 20;
/// How long the mount may take to close the handle that wrote the copy.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Which files, to what layout.
#[derive(Debug, Args)]
pub struct MigrateArgs {
    #[command(flatten)]
    layout: LayoutFlags,
    /// To the layout of FILE
    #[arg(long, value_name = "FILE")]
    copy: Option<PathBuf>,
    /// Try again this often if a file changes meanwhile
    #[arg(long, default_value_t = 3, value_name = "N")]
    retries: u32,
    /// Never keep others from the file (as it is anyway: whoever writes wins)
    #[arg(short = 'n', long = "non-block", alias = "non-direct")]
    non_block: bool,
    /// Say what was moved
    #[arg(short = 'v', long)]
    verbose: bool,
    /// Files; without layout flags each gets what new files of its directory get
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

/// Migrates the files.
pub fn run(args: &MigrateArgs) -> CliResult {
    let layout = args.layout.or_like(args.copy.as_deref())?;
    layout.text()?;
    let sizes: Vec<u64> = args.paths.iter().map(|path| path.metadata().map_or(0, |meta| meta.len())).collect();
    let bar = progress::bar("moving", sizes.iter().sum(), Counts::Bytes);
    for path in &args.paths {
        // Without flags the copy gets the default layout of its directory.
        let wanted = match layout.is_empty() || args.copy.is_some() {
            true => layout.clone(),
            false => layout.or_inherited(&layout_of(parent_of(path))?, &choices(path)?),
        };
        wanted.check(&choices(path)?)?;
        let text = wanted.text()?;
        move_file(path, (!wanted.is_empty()).then_some(text.as_str()), args.retries, &bar)?;
        if let Some(asked) = layout.stripes()?.filter(|_| args.copy.is_none()) {
            warn_of_fewer(path, asked);
        }
        if args.verbose {
            println!("{}", path.display());
        }
    }
    Ok(())
}

fn move_file(path: &Path, layout: Option<&str>, retries: u32, bar: &Bar) -> CliResult {
    let shown = path.display();
    let meta = path.metadata().doing(|| format!("cannot look at {shown}"))?;
    if !meta.is_file() {
        return Err(CliError::usage(format!("{shown} is not a regular file; `forebay setstripe` is for directories")));
    }
    for attempt in 0..=retries {
        match try_move(path, layout, bar) {
            Ok(()) => return Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && attempt < retries => {}
            Err(error) => {
                return Err(CliError::failed(format!("{shown} stays where it is: {}", explain(&error))));
            }
        }
    }
    Ok(())
}

fn explain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EBUSY) => {
            "somebody has it open for writing, or on another mount; try again when they are done".into()
        }
        Some(libc::EAGAIN) => "it changed each time it was copied; try again when it is quiet".into(),
        Some(libc::ENOSPC) => "there is no room for a copy of it; see `forebay df`".into(),
        Some(libc::EPERM | libc::EACCES) => "only its owner can move it".into(),
        _ => without_mount(error),
    }
}

fn try_move(path: &Path, layout: Option<&str>, bar: &Bar) -> io::Result<()> {
    let from = File::open(path)?;
    // The file whose bytes are copied, even if the name leads elsewhere by now.
    let source = PathBuf::from(format!("/proc/self/fd/{}", from.as_raw_fd()));
    let version = posix::get_xattr(&source, MIGRATE)?;
    let version = String::from_utf8_lossy(&version).into_owned();
    let dir = parent_of(path);
    let copy = OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(dir)?;
    if copy.metadata()?.dev() != from.metadata()?.dev() {
        return Err(io::Error::from_raw_os_error(libc::EXDEV));
    }
    let own_path = PathBuf::from(format!("/proc/self/fd/{}", copy.as_raw_fd()));
    if let Some(layout) = layout {
        posix::set_xattr(&own_path, LAYOUT, layout.as_bytes())?;
    }
    copy_bytes(&from, &copy, bar)?;
    copy.sync_all()?;
    // A read-only handle keeps the copy alive, so that it cannot change during the exchange.
    let keeper = File::open(&own_path)?;
    let ino = copy.metadata()?.ino();
    drop(copy);
    let text = format!("{ino} {version}");
    let begun = Instant::now();
    loop {
        match posix::set_xattr(&source, MIGRATE, text.as_bytes()) {
            // The kernel releases a closed file a moment later.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && begun.elapsed() < TIMEOUT => {
                posix::get_xattr(&source, MIGRATE)?;
                sleep(Duration::from_millis(20));
            }
            done => {
                drop(keeper);
                return done;
            }
        }
    }
}

/// Copies the data and preserves holes.
fn copy_bytes(from: &File, to: &File, bar: &Bar) -> io::Result<()> {
    let size = from.metadata()?.len();
    to.set_len(size)?;
    let mut buffer = vec![0; STEP];
    let mut at = 0;
    while let Some((start, end)) = posix::next_data(from, at)? {
        let mut offset = start;
        while offset < end.min(size) {
            let length = STEP.min((end.min(size) - offset) as usize);
            let read = from.read_at(&mut buffer[..length], offset)?;
            if read == 0 {
                // The file was truncated meanwhile: the exchange will be refused.
                return Ok(());
            }
            to.write_all_at(&buffer[..read], offset)?;
            offset += read as u64;
            bar.add(read as u64);
        }
        at = end;
    }
    Ok(())
}
