//! Where the store lies: a file that this run makes in a directory and writes once before anything is measured, or a
//! device.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use forebay_command::{
    error::{CliError, CliResult, Doing},
    paths::utf8,
    progress::{self, Counts},
};
use forebay_env::Env;
use forebay_oss::limits::TABLE_CACHE_BYTES;
use forebay_proto::{TargetId, Uuid};
use forebay_store::{FormatOptions, OpenOptions as StoreOptions, Store};

use super::args::StoreArgs;
use crate::{aligned::AlignedBuffer, scratch};

/// Bytes of one write while the file is filled.
const FILL_BYTES: u64 = 4 << 20;
/// The run's directory within the given one.
const SCRATCH: &str = "forebay-bench-store";

/// The place. Dropping it removes what this run made.
pub struct Site {
    scratch: PathBuf,
    data: PathBuf,
    /// Bytes of the file or device.
    pub bytes: u64,
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.scratch) {
            eprintln!("forebay: cannot remove {}: {error}", self.scratch.display());
        }
    }
}

impl Site {
    /// Makes and fills the file, or checks the device.
    pub fn prepare(args: &StoreArgs) -> CliResult<Self> {
        let shown = args.target.display();
        let kind = args.target.metadata().doing(|| format!("cannot use {shown}"))?.file_type();
        if kind.is_dir() {
            return Self::in_directory(&args.target, args.size);
        }
        if !kind.is_block_device() {
            return Err(CliError::usage(format!("{shown} is neither a directory nor a block device")));
        }
        if !args.overwrite {
            return Err(CliError::usage(format!("{shown}: its content would be lost; add --overwrite if you mean it")));
        }
        let mut file = File::open(&args.target).doing(|| format!("cannot open {shown}"))?;
        let bytes = std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).doing(|| format!("size of {shown}"))?;
        let site = Self { scratch: scratch::make(&args.dir, SCRATCH)?, data: args.target.clone(), bytes };
        site.fill()?;
        Ok(site)
    }

    fn in_directory(dir: &Path, bytes: u64) -> CliResult<Self> {
        let scratch = scratch::make(dir, SCRATCH)?;
        let site = Self { data: scratch.join("data"), scratch, bytes: bytes / FILL_BYTES * FILL_BYTES };
        site.fill()?;
        Ok(site)
    }

    /// Writes all of the file once. Neither measurement, of the store or of the raw file, includes the allocation of
    /// extents.
    fn fill(&self) -> CliResult {
        let shown = self.data.display();
        let file = self.open_raw(true)?;
        let bar = progress::bar(&format!("filling {shown}"), self.bytes, Counts::Bytes);
        let buffer = AlignedBuffer::new(FILL_BYTES as usize);
        let mut at = 0;
        while at < self.bytes {
            let length = FILL_BYTES.min(self.bytes - at);
            file.write_all_at(&buffer.bytes()[..length as usize], at).doing(|| format!("cannot fill {shown}"))?;
            at += length;
            bar.set(at);
        }
        file.sync_all().doing(|| format!("cannot flush {shown}"))
    }

    /// Opens the file or device without the page cache.
    pub fn open_raw(&self, create: bool) -> CliResult<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_DIRECT);
        let is_file = self.data.starts_with(&self.scratch);
        options.create(create && is_file).open(&self.data).doing(|| format!("cannot open {}", self.data.display()))
    }

    /// Formats an empty store there.
    pub async fn format(&self, env: &Env) -> CliResult {
        let dir = self.store_dir();
        if dir.exists() {
            std::fs::remove_dir_all(&dir).doing(|| format!("cannot remove {}", dir.display()))?;
        }
        let cluster = Uuid::from_random(env.random_u64(), env.random_u64());
        let data_path = Some(utf8(&self.data.canonicalize().doing(|| "cannot resolve the data's path".into())?)?);
        // The content belongs to this run: what `fill` wrote, or the store of the previous repetition.
        let options = FormatOptions {
            data_path,
            data_overwrite: true,
            ..FormatOptions::new(cluster, TargetId::ost(0), self.bytes)
        };
        Store::format(env, &utf8(&dir)?, &options).await.doing(|| "cannot format".into()).map(drop)
    }

    /// Opens the store as an OST's server does.
    pub async fn open(&self, env: &Env) -> CliResult<Store> {
        let options = StoreOptions { cache_bytes: Some(TABLE_CACHE_BYTES), ..StoreOptions::default() };
        Store::open(env, &utf8(&self.store_dir())?, &options).await.doing(|| "cannot open the store".into())
    }

    fn store_dir(&self) -> PathBuf {
        self.scratch.join("OST0000")
    }
}
