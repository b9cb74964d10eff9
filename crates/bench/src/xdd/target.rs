//! The targets of the measurement: opened, sized, filled, and removed again if this run made them.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use forebay_command::{
    error::{CliError, CliResult, Doing},
    progress::{self, Counts},
};

use super::args::XddArgs;
use crate::aligned::AlignedBuffer;

/// Bytes of one write while a new file is filled.
const FILL_BYTES: u64 = 1 << 20;

/// An open target. Dropping it removes the file if this run made it.
pub struct Target {
    /// As given on the command line.
    pub name: String,
    /// Open for the operations of the run.
    pub file: File,
    /// The part of the target that is used, a multiple of the request size.
    pub bytes: u64,
    made: Option<PathBuf>,
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(path) = &self.made
            && let Err(error) = std::fs::remove_file(path)
        {
            eprintln!("forebay: cannot remove {}: {error}", path.display());
        }
    }
}

/// Opens all targets; makes and fills files in directories.
pub fn prepare(args: &XddArgs) -> CliResult<Vec<Target>> {
    args.targets.iter().map(|path| open(path, args)).collect()
}

fn open(path: &Path, args: &XddArgs) -> CliResult<Target> {
    let shown = path.display();
    let kind = path.metadata().doing(|| format!("cannot use {shown}"))?.file_type();
    if kind.is_dir() {
        return make(&path.join("xdd.data"), args, path.display().to_string());
    }
    if !(kind.is_file() || kind.is_block_device()) {
        return Err(CliError::usage(format!("{shown} is neither a device nor a file nor a directory")));
    }
    if args.writes() && !args.overwrite {
        let words = "writing would destroy its content: add --overwrite if you mean it, or use --op read";
        return Err(CliError::usage(format!("{shown} exists; {words}")));
    }
    let file = options(args).open(path).doing(|| format!("cannot open {shown}"))?;
    let size = std::io::Seek::seek(&mut &file, std::io::SeekFrom::End(0)).doing(|| format!("size of {shown}"))?;
    let bytes = size.min(args.size) / args.request * args.request;
    if bytes == 0 {
        return Err(CliError::usage(format!("{shown} has {size} bytes, less than one request")));
    }
    Ok(Target { name: shown.to_string(), file, bytes, made: None })
}

fn make(path: &Path, args: &XddArgs, name: String) -> CliResult<Target> {
    let shown = path.display();
    let file = options(args).write(true).create_new(true).open(path).doing(|| format!("cannot make {shown}"))?;
    let bytes = args.size / args.request * args.request;
    let target = Target { name, file, bytes, made: Some(path.to_owned()) };
    fill(&target).doing(|| format!("cannot fill {shown}"))?;
    Ok(target)
}

/// Writes the file once, so that no measurement includes its allocation, and reads find data.
fn fill(target: &Target) -> std::io::Result<()> {
    let bar = progress::bar(&format!("filling {}", target.name), target.bytes, Counts::Bytes);
    let buffer = AlignedBuffer::new(FILL_BYTES as usize);
    let mut offset = 0;
    while offset < target.bytes {
        let length = FILL_BYTES.min(target.bytes - offset);
        target.file.write_all_at(&buffer.bytes()[..length as usize], offset)?;
        offset += length;
        bar.set(offset);
    }
    target.file.sync_all()
}

fn options(args: &XddArgs) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(args.writes());
    if !args.buffered {
        options.custom_flags(libc::O_DIRECT);
    }
    options
}
