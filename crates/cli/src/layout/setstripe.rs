//! `forebay setstripe`: sets the layout of a new file, or the default layout of a directory.

use std::{
    io,
    path::{Path, PathBuf},
};

use clap::Args;
use forebay_command::{
    error::{CliError, CliResult, program},
    posix,
};

use super::{LAYOUT, choices, flags::LayoutFlags, layout_of, parent_of, without_mount};

/// What new files get.
#[derive(Debug, Args)]
pub struct SetstripeArgs {
    #[command(flatten)]
    layout: LayoutFlags,
    /// The layout of FILE (or what new files of directory FILE get)
    #[arg(long, value_name = "FILE")]
    copy: Option<PathBuf>,
    /// Directory: forget its layout, inherit again
    #[arg(short = 'd', long = "delete")]
    delete: bool,
    /// Directories (new files and directories in them get the layout), or files to be made with it
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

/// Sets the layout.
pub fn run(args: &SetstripeArgs) -> CliResult {
    let layout = args.layout.or_like(args.copy.as_deref())?;
    layout.text()?;
    if args.delete && !layout.is_empty() {
        return Err(CliError::usage("-d forgets a directory's layout: leave the other flags out"));
    }
    for path in &args.paths {
        args.refuse_pointless(path)?;
        // Values that are left open stay open for a directory; a file gets those of its directory.
        let inherits = !path.is_dir() && args.copy.is_none();
        let asked = args.layout.stripes()?.filter(|_| !path.is_dir());
        let layout =
            if inherits { layout.or_inherited(&layout_of(parent_of(path))?, &choices(path)?) } else { layout.clone() };
        layout.check(&choices(path)?)?;
        apply(path, &layout.text()?)?;
        if let Some(asked) = asked {
            warn_of_fewer(path, asked);
        }
    }
    Ok(())
}

/// Warns if OSTs were skipped and the file has fewer stripes than `asked`.
pub fn warn_of_fewer(path: &Path, asked: u64) {
    // The layout is set; an error of this check does not matter.
    let Ok(layout) = layout_of(path) else { return };
    let got = layout["components"][0]["osts"].as_array().map_or(asked, |osts| osts.len() as u64);
    if got < asked {
        let (program, shown, s) = (program(), path.display(), if got == 1 { "" } else { "s" });
        eprintln!(
            "{program}: {shown}: {got} stripe{s}, not {asked}: the other OSTs are full or do not answer (`forebay df`); \
             set it again when they have room"
        );
    }
}

impl SetstripeArgs {
    /// Refuses changes that would have no effect.
    fn refuse_pointless(&self, path: &Path) -> CliResult {
        let shown = path.display();
        if path.metadata().is_ok_and(|meta| !meta.is_file() && !meta.is_dir()) {
            return Err(CliError::usage(format!("{shown} is no regular file or directory, and has no layout")));
        }
        if !self.delete && self.layout.is_empty() && self.copy.is_none() && path.is_dir() {
            return Err(CliError::usage(format!(
                "{shown}: say what new files are to get (-c COUNT, -S SIZE, -i OST, -p POOL, -E END ...), or -d to inherit again"
            )));
        }
        if self.delete && !path.is_dir() {
            return Err(CliError::usage(format!(
                "{shown}: -d is for directories; `forebay migrate` gives a file another layout"
            )));
        }
        Ok(())
    }
}

/// Sets the layout of `path`, which is made as an empty file if it does not exist.
pub fn apply(path: &Path, text: &str) -> CliResult {
    let shown = path.display();
    let made = match posix::make_file(path) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
        Err(error) => return Err(CliError::failed(format!("cannot make {shown}: {error}"))),
    };
    posix::set_xattr(path, LAYOUT, text.as_bytes()).map_err(|error| {
        if made {
            // A file without the requested layout must not remain.
            let _ = std::fs::remove_file(path);
        }
        CliError::failed(format!("cannot set the layout of {shown}: {}", explain(&error)))
    })
}

fn explain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EEXIST | libc::EBUSY | libc::ENOTEMPTY) => {
            "it has data, and that fixes a file's layout; `forebay migrate` moves it to another".into()
        }
        Some(libc::ENOSPC) => "no OST with room fits it; see `forebay df`".into(),
        Some(libc::EPERM | libc::EACCES) => "only its owner can".into(),
        Some(libc::EINVAL | libc::ERANGE) => "the server refuses it; are all OSTs known (`forebay status`)?".into(),
        _ => without_mount(error),
    }
}
