//! `forebay format mdt|ost DIR`: makes an empty target.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use forebay_command::{
    error::{CliError, CliResult, Doing},
    fresh::{self, Fresh},
    paths::{absolute, utf8},
    targets::{make_target, new_uuid},
    units::{parse_positive_size, show_bytes},
};
use forebay_env::{Env, real};
use forebay_proto::{TargetId, TargetKind, Uuid};
use forebay_store::{FormatOptions, Identity, MirrorPlace};

/// Default data bytes of a metadata target.
pub const MDT_BYTES: u64 = 4 << 30;
/// Default data bytes of an object storage target.
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
    /// Directory of the target: empty, or made if it is not there
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
    /// What the devices or files for data hold is of no worth: take them all the same
    #[arg(long)]
    pub overwrite_data: bool,
    /// Block device or file for the journal, instead of DIR/journal: all of one of its own, or, with --journal-size
    /// or where other targets have parts of it, a part
    #[arg(long, value_name = "PATH")]
    pub journal: Option<PathBuf>,
    /// Bytes of the journal [default: 1/64 of the data, 16MiB to 1GiB; all of a block device that no target has a part of]
    #[arg(long, value_parser = parse_positive_size, value_name = "SIZE")]
    pub journal_size: Option<u64>,
    /// What the journal's device holds is of no worth: take it all the same (parts of other targets stay theirs)
    #[arg(long, requires = "journal")]
    pub overwrite_journal: bool,
    /// Bytes of a slab [default: up to 16MiB]
    #[arg(long, value_parser = parse_positive_size, value_name = "SIZE")]
    pub slab_size: Option<u64>,
    /// Bytes of the device's full stripe: writes are cut at multiples of it [default: 1MiB]
    #[arg(long, value_parser = parse_positive_size, value_name = "SIZE")]
    pub full_stripe: Option<u64>,
    /// Keep everything twice: directory of the second copy, on another device (mdt only)
    #[arg(long, value_name = "PATH")]
    pub mirror: Option<PathBuf>,
    /// Block device or file for the data of the second copy, instead of PATH/data
    #[arg(long, value_name = "PATH", requires = "mirror")]
    pub mirror_data: Option<PathBuf>,
    /// Block device or file for the journal of the second copy, instead of PATH/journal
    #[arg(long, value_name = "PATH", requires = "mirror")]
    pub mirror_journal: Option<PathBuf>,
    /// Small file in a third place: tells after a crash whether a copy that is found by itself is the last one
    #[arg(long, value_name = "FILE", requires = "mirror")]
    pub witness: Option<PathBuf>,
}

/// Formats the target and prints the result.
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
    if args.mirror.is_some() && args.kind == Kind::Ost {
        return Err(CliError::usage(
            "--mirror is for an mdt; files are made redundant by their layouts (not in this version)",
        ));
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
    let options = args.options(cluster, target)?;
    args.witness.iter().try_for_each(|witness| fresh::refuse_full_file(witness))?;
    let mut fresh = Fresh::default();
    let elsewhere = [&args.data, &args.journal, &args.mirror_data, &args.mirror_journal, &args.witness];
    elsewhere.into_iter().flatten().for_each(|path| fresh.take_file(path));
    fresh.take(&args.dir)?;
    let identity = match &args.mirror {
        None => make_target(env, &args.dir, &options).await?,
        // Each copy names the other's directory.
        Some(mirror) => {
            if same_place(&args.dir, mirror) {
                return Err(CliError::usage(format!(
                    "{} cannot be both places of a mirrored target",
                    mirror.display()
                )));
            }
            fresh.take(mirror)?;
            let (dir, mirror) = (absolute_dir(env, &args.dir)?, args.mirror_place(env)?);
            make_target(env, Path::new(&dir), &FormatOptions { mirror, ..options }).await?
        }
    };
    fresh.keep()?;
    Ok(identity)
}

fn same_place(one: &Path, two: &Path) -> bool {
    one.canonicalize().is_ok_and(|one| two.canonicalize().is_ok_and(|two| one == two))
}

/// The full path of the directory, which is made if missing.
pub fn absolute_dir(env: &Env, dir: &Path) -> CliResult<String> {
    let text = utf8(dir)?;
    env.create_dir(&text).doing(|| format!("cannot make {text}"))?;
    let absolute = dir.canonicalize().doing(|| format!("cannot use {text}"))?;
    utf8(&absolute)
}

impl FormatArgs {
    fn target_kind(&self) -> TargetKind {
        match self.kind {
            Kind::Mdt => TargetKind::Mdt,
            Kind::Ost => TargetKind::Ost,
        }
    }

    fn mirror_place(&self, env: &Env) -> CliResult<Option<MirrorPlace>> {
        let Some(dir) = &self.mirror else { return Ok(None) };
        Ok(Some(MirrorPlace {
            dir: absolute_dir(env, dir)?,
            data_path: self.mirror_data.as_deref().map(absolute).transpose()?,
            journal_path: self.mirror_journal.as_deref().map(absolute).transpose()?,
            witness: self.witness.as_deref().map(absolute).transpose()?,
        }))
    }

    fn options(&self, cluster: Uuid, target: TargetId) -> CliResult<FormatOptions> {
        let size = self.size.unwrap_or(default_bytes(self.target_kind()));
        let defaults = FormatOptions::new(cluster, target, size);
        Ok(FormatOptions {
            data_path: self.data.as_deref().map(absolute).transpose()?,
            journal_path: self.journal.as_deref().map(absolute).transpose()?,
            journal_shared: self.journal_size.is_some(),
            journal_overwrite: self.overwrite_journal,
            data_overwrite: self.overwrite_data,
            journal_bytes: self.journal_size.unwrap_or(defaults.journal_bytes),
            slab_bytes: self.slab_size.unwrap_or(defaults.slab_bytes),
            stripe_bytes: self.full_stripe.unwrap_or(defaults.stripe_bytes),
            ..defaults
        })
    }
}

/// Default data bytes of a target of `kind`.
pub fn default_bytes(kind: TargetKind) -> u64 {
    match kind {
        TargetKind::Mdt => MDT_BYTES,
        TargetKind::Ost => OST_BYTES,
    }
}

/// This version supports one MDT.
pub fn refuse_more_mdts(target: TargetId) -> CliResult {
    if target.kind == TargetKind::Mdt && target.index > 0 {
        return Err(CliError::usage("this version has one MDT per cluster: use --index 0"));
    }
    Ok(())
}
