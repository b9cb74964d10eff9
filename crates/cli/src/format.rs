//! `forebay format mdt|ost DIR`: makes an empty target.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use forebay_env::{Env, real};
use forebay_proto::{TargetId, TargetKind, Uuid};
use forebay_store::{FormatOptions, Identity, Store};

use crate::{
    error::{CliError, CliResult, Doing},
    units::{parse_positive_size, show_bytes},
};

/// Data bytes of a metadata target, unless told otherwise.
pub const MDT_BYTES: u64 = 4 << 30;
/// Data bytes of an object storage target, unless told otherwise.
pub const OST_BYTES: u64 = 16 << 30;

/// What a target is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Names and attributes.
    Mdt,
    /// Data.
    Ost,
}

/// What to make.
#[derive(Debug, Args)]
pub struct FormatArgs {
    /// Names and attributes (mdt), or data (ost)
    pub kind: Kind,
    /// Directory of the target
    pub dir: PathBuf,
    /// Number among its kind: OST0003 is 3
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub index: u32,
    /// The cluster it belongs to (an mdt begins a new one)
    #[arg(long, value_name = "UUID")]
    pub cluster: Option<Uuid>,
    /// Bytes for data [default: 4GiB for mdt, 16GiB for ost; a block device's own size]
    #[arg(long, value_parser = parse_positive_size, value_name = "SIZE")]
    pub size: Option<u64>,
    /// Block device or file for the data, instead of DIR/data
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// Block device or file for the journal, instead of DIR/journal
    #[arg(long, value_name = "PATH")]
    pub journal: Option<PathBuf>,
    /// Bytes of the journal [default: 1/64 of the data, 16MiB to 1GiB]
    #[arg(long, value_parser = parse_positive_size, value_name = "SIZE")]
    pub journal_size: Option<u64>,
    /// Bytes of a slab [default: up to 16MiB]
    #[arg(long, value_parser = parse_positive_size, value_name = "SIZE")]
    pub slab_size: Option<u64>,
    /// Bytes of the device's full stripe: writes are cut at multiples of it [default: 1MiB]
    #[arg(long, value_parser = parse_positive_size, value_name = "SIZE")]
    pub full_stripe: Option<u64>,
    /// Keep a copy on a second device (not in this version)
    #[arg(long, value_name = "PATH", hide = true)]
    pub mirror: Option<PathBuf>,
}

/// Makes it and says what it made.
pub fn run(args: &FormatArgs) -> CliResult {
    let identity = real::run(|env| async move { format(&env, args).await })?;
    println!(
        "{} of cluster {} is ready in {}: {} for data, {} for the journal",
        identity.target,
        identity.cluster,
        args.dir.display(),
        show_bytes(identity.data_bytes),
        show_bytes(identity.journal_bytes),
    );
    Ok(())
}

async fn format(env: &Env, args: &FormatArgs) -> CliResult<Identity> {
    if args.mirror.is_some() {
        return Err(CliError::usage("--mirror is not in this version; put the mdt on a device that mirrors itself"));
    }
    let target = TargetId { kind: args.target_kind(), index: args.index };
    refuse_more_mdts(target)?;
    let cluster = match (args.cluster, args.kind) {
        (Some(cluster), _) => cluster,
        (None, Kind::Mdt) => new_uuid(env),
        (None, Kind::Ost) => {
            return Err(CliError::usage(
                "an ost joins a cluster: add --cluster UUID, as `forebay format mdt` printed it",
            ));
        }
    };
    format_target(env, &args.dir, &args.options(cluster, target)?).await
}

impl FormatArgs {
    fn target_kind(&self) -> TargetKind {
        match self.kind {
            Kind::Mdt => TargetKind::Mdt,
            Kind::Ost => TargetKind::Ost,
        }
    }

    fn options(&self, cluster: Uuid, target: TargetId) -> CliResult<FormatOptions> {
        let size = self.size.unwrap_or(default_bytes(self.target_kind()));
        let defaults = FormatOptions::new(cluster, target, size);
        Ok(FormatOptions {
            data_path: self.data.as_deref().map(utf8).transpose()?,
            journal_path: self.journal.as_deref().map(utf8).transpose()?,
            journal_bytes: self.journal_size.unwrap_or(defaults.journal_bytes),
            slab_bytes: self.slab_size.unwrap_or(defaults.slab_bytes),
            stripe_bytes: self.full_stripe.unwrap_or(defaults.stripe_bytes),
            ..defaults
        })
    }
}

/// Data bytes of a target of `kind`, unless told otherwise.
pub fn default_bytes(kind: TargetKind) -> u64 {
    match kind {
        TargetKind::Mdt => MDT_BYTES,
        TargetKind::Ost => OST_BYTES,
    }
}

/// There is one MDT in this version.
pub fn refuse_more_mdts(target: TargetId) -> CliResult {
    if target.kind == TargetKind::Mdt && target.index > 0 {
        return Err(CliError::usage("this version has one MDT per cluster: use --index 0"));
    }
    Ok(())
}

/// Makes the directory and the target in it.
pub async fn format_target(env: &Env, dir: &Path, options: &FormatOptions) -> CliResult<Identity> {
    let dir = utf8(dir)?;
    env.create_dir(&dir).doing(|| format!("cannot make {dir}"))?;
    Store::format(env, &dir, options).await.doing(|| format!("cannot format {} in {dir}", options.target))
}

/// A new cluster's name.
pub fn new_uuid(env: &Env) -> Uuid {
    Uuid::from_random(env.random_u64(), env.random_u64())
}

/// Paths go through the environment as text.
pub fn utf8(path: &Path) -> CliResult<String> {
    let text = path.to_str().ok_or_else(|| CliError::usage(format!("the path {} is not UTF-8", path.display())))?;
    Ok(text.to_owned())
}
