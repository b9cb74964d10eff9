//! `forebay setstripe` and `getstripe`: where the bytes of files lie, with the flags of Lustre's `lfs`.
//!
//! They speak with the mount through one virtual extended attribute, `forebay.layout`: read, it is JSON (a file's layout,
//! or what new files of a directory get); written, it is text in the flags of this command.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // speaks with a mount, as a program does

use std::{
    ffi::CStr,
    io,
    path::{Path, PathBuf},
};

use clap::Args;
use serde_json::Value;

use crate::{
    error::{CliError, CliResult, Doing},
    posix,
    units::{parse_size, show_bytes},
};

const LAYOUT: &CStr = c"forebay.layout";

/// What new files get.
#[derive(Debug, Args)]
pub struct SetstripeArgs {
    /// Stripes: 0 = inherited, -1 = over all OSTs
    #[arg(short = 'c', long = "stripe-count", alias = "count", value_name = "N", allow_negative_numbers = true)]
    pub count: Option<i64>,
    /// Bytes of a stripe, a multiple of 64KiB; 0 = inherited
    #[arg(short = 'S', long = "stripe-size", alias = "size", value_parser = parse_size, value_name = "SIZE")]
    pub size: Option<u64>,
    /// OST of the first stripe; -1 = the server chooses
    #[arg(short = 'i', long = "stripe-index", alias = "index", value_name = "OST", allow_negative_numbers = true)]
    pub index: Option<i64>,
    /// Pool of OSTs
    #[arg(short = 'p', long, value_name = "POOL")]
    pub pool: Option<String>,
    /// Directory: forget its layout, inherit again
    #[arg(short = 'd', long = "delete", conflicts_with_all = ["count", "size", "index", "pool"])]
    pub delete: bool,
    /// Directories (new files in them get the layout), or files to be made with it
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
}

/// Sets it.
pub fn set(args: &SetstripeArgs) -> CliResult {
    let text = args.layout_text()?;
    for path in &args.paths {
        args.refuse_pointless(path)?;
        set_one(path, &text).map_err(|error| args.without_pools(error))?;
        args.tell_of_fewer(path);
    }
    Ok(())
}

impl SetstripeArgs {
    /// What would change nothing, and was meant to.
    fn refuse_pointless(&self, path: &Path) -> CliResult {
        let shown = path.display();
        let says_nothing = !self.delete
            && (self.count.is_none() && self.size.is_none() && self.index.is_none() && self.pool.is_none());
        if says_nothing && path.is_dir() {
            return Err(CliError::usage(format!(
                "{shown}: say what new files are to get (-c COUNT, -S SIZE, -i OST), or -d to inherit again"
            )));
        }
        if self.delete && !path.is_dir() {
            return Err(CliError::usage(format!(
                "{shown}: -d is for directories; a file keeps its layout, a copy of it gets its directory's"
            )));
        }
        Ok(())
    }

    /// The server's EINVAL does not say which of the flags it is about.
    fn without_pools(&self, error: CliError) -> CliError {
        match &self.pool {
            Some(pool) => {
                let words = format!("there is no pool '{pool}': this version has none; leave out -p");
                CliError::failed(format!("{}; {words}", error.message))
            }
            None => error,
        }
    }

    /// Files lie over as many OSTs as there are, as with Lustre.
    fn tell_of_fewer(&self, path: &Path) {
        let Some(count) = self.count.and_then(|count| u64::try_from(count).ok()) else { return };
        let Ok(layout) = layout_of(path) else { return };
        if let Some(osts) = layout["cluster_osts"].as_u64().filter(|osts| *osts < count) {
            let shown = path.display();
            eprintln!(
                "{shown}: there are {osts} OSTs, so files get {osts} stripes (-c -1 means all, however many there are)"
            );
        }
    }

    /// The flags as the mount reads them: `-c 4 -S 1048576 -i -1 -p POOL`.
    fn layout_text(&self) -> CliResult<String> {
        if let Some(count) = self.count.filter(|count| !(-1..=forebay_proto::limits::STRIPES as i64).contains(count)) {
            let most = forebay_proto::limits::STRIPES;
            return Err(CliError::usage(format!("-c {count}: use 1 to {most}, -1 for all OSTs, 0 to inherit")));
        }
        let minimum = u64::from(forebay_proto::limits::STRIPE_BYTES_MIN);
        if let Some(size) = self.size.filter(|size| !size.is_multiple_of(minimum) || *size > u64::from(u32::MAX)) {
            let size = show_bytes(size);
            return Err(CliError::usage(format!("-S {size}: use a multiple of {} below 4 GiB", show_bytes(minimum))));
        }
        if let Some(index) = self.index.filter(|index| !(-1..i64::from(u32::MAX)).contains(index)) {
            return Err(CliError::usage(format!("-i {index}: use the number of an OST, or -1")));
        }
        let mut words = vec![
            format!("-c {}", self.count.unwrap_or(0)),
            format!("-S {}", self.size.unwrap_or(0)),
            format!("-i {}", self.index.unwrap_or(-1)),
        ];
        words.extend(self.pool.iter().map(|pool| format!("-p {pool}")));
        Ok(words.join(" "))
    }
}

fn set_one(path: &Path, text: &str) -> CliResult {
    let shown = path.display();
    // Made without opening it: the layout of a file is fixed when it is first opened for writing.
    let made = match posix::make_file(path) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
        Err(error) => return Err(CliError::failed(format!("cannot make {shown}: {error}"))),
    };
    posix::set_xattr(path, LAYOUT, text.as_bytes()).map_err(|error| {
        if made {
            // Without its layout it is not what was asked for.
            let _ = std::fs::remove_file(path);
        }
        CliError::failed(format!("cannot set the layout of {shown}: {}", explain(&error, made)))
    })
}

fn explain(error: &io::Error, made: bool) -> String {
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => "it is not on a Forebay mount".into(),
        Some(libc::EEXIST | libc::EBUSY | libc::ENOTEMPTY) if !made => {
            "it was opened for writing before, and that fixes a file's layout; copy it to a new file".into()
        }
        Some(libc::EINVAL | libc::ERANGE) => "the server refuses it: is there such an OST? (`forebay status`)".into(),
        _ => error.to_string(),
    }
}

/// Lets new files of `dir` lie over `count` OSTs.
pub fn set_layout(dir: &Path, count: usize) -> CliResult {
    set_one(dir, &format!("-c {count} -S 0 -i -1"))
}

/// Whose layout to show.
#[derive(Debug, Args)]
pub struct GetstripeArgs {
    /// Only the stripe count
    #[arg(short = 'c', long = "stripe-count")]
    pub count: bool,
    /// Only the stripe size
    #[arg(short = 'S', long = "stripe-size")]
    pub size: bool,
    /// Only the OST of the first stripe
    #[arg(short = 'i', long = "stripe-index")]
    pub index: bool,
    /// Only the pool
    #[arg(short = 'p', long)]
    pub pool: bool,
    /// A directory itself, not the files in it
    #[arg(short = 'd', long)]
    pub directory: bool,
    /// All files below directories
    #[arg(short = 'r', long)]
    pub recursive: bool,
    /// Print JSON, a line per file
    #[arg(long)]
    pub json: bool,
    /// Files and directories
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
}

/// Shows it.
pub fn get(args: &GetstripeArgs) -> CliResult {
    for path in &args.paths {
        show(path, args)?;
        if path.is_dir() && !args.directory {
            show_entries(path, args)?;
        }
    }
    Ok(())
}

fn show_entries(dir: &Path, args: &GetstripeArgs) -> CliResult {
    let entries = std::fs::read_dir(dir).doing(|| format!("cannot list {}", dir.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let kind = path.symlink_metadata().doing(|| format!("cannot look at {}", path.display()))?.file_type();
        if kind.is_file() || (args.recursive && kind.is_dir()) {
            show(&path, args)?;
        }
        if args.recursive && kind.is_dir() {
            show_entries(&path, args)?;
        }
    }
    Ok(())
}

fn show(path: &Path, args: &GetstripeArgs) -> CliResult {
    let layout = layout_of(path)?;
    if args.json {
        let mut layout = layout;
        layout["path"] = path.display().to_string().into();
        println!("{layout}");
        return Ok(());
    }
    let wanted =
        [(args.count, "stripe_count"), (args.size, "stripe_size"), (args.index, "stripe_index"), (args.pool, "pool")];
    let fields: Vec<String> =
        wanted.iter().filter(|(wanted, _)| *wanted).map(|(_, key)| plain(&layout[*key])).collect();
    if fields.is_empty() {
        println!("{}", describe(path, &layout))
    } else {
        println!("{}", fields.join(" "))
    }
    Ok(())
}

/// The layout of a file, or what new files of a directory get.
pub fn layout_of(path: &Path) -> CliResult<Value> {
    let shown = path.display();
    let text = posix::get_xattr(path, LAYOUT).map_err(|error| {
        let words = match error.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::ENODATA) => "it is not on a Forebay mount".to_owned(),
            _ => error.to_string(),
        };
        CliError::failed(format!("cannot tell the layout of {shown}: {words}"))
    })?;
    serde_json::from_slice(&text).doing(|| format!("the mount described the layout of {shown} in a way not understood"))
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// As `lfs getstripe` shows it.
fn describe(path: &Path, layout: &Value) -> String {
    let field = |key: &str| plain(&layout[key]);
    let Some(osts) = layout["osts"].as_array() else {
        let (count, size, index) = (field("stripe_count"), field("stripe_size"), field("stripe_index"));
        return format!("{}\nstripe_count:  {count} stripe_size:   {size} stripe_offset: {index}\n", path.display());
    };
    let mut lines = vec![
        path.display().to_string(),
        format!("lmm_stripe_count:  {}", field("stripe_count")),
        format!("lmm_stripe_size:   {}", field("stripe_size")),
        "lmm_pattern:       raid0".into(),
        format!("lmm_layout_gen:    {}", field("generation")),
        format!("lmm_stripe_offset: {}", osts.first().map_or("-".into(), plain)),
        "\tobdidx\t\tobjid".into(),
    ];
    lines.extend(osts.iter().map(|ost| format!("\t{:>6}\t\t{}", plain(ost), field("fid"))));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        set: SetstripeArgs,
    }

    fn text(line: &str) -> CliResult<String> {
        let words = ["setstripe"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).expect(line).set.layout_text()
    }

    #[test]
    fn flags_of_lfs_become_the_mounts_text() {
        assert_eq!(text("-c 4 -S 1M -i 2 dir").expect("fine"), "-c 4 -S 1048576 -i 2");
        assert_eq!(text("-c -1 dir").expect("fine"), "-c -1 -S 0 -i -1");
        assert_eq!(text("-p fast -i -1 dir").expect("fine"), "-c 0 -S 0 -i -1 -p fast");
        assert_eq!(text("-d dir").expect("fine"), "-c 0 -S 0 -i -1");
    }

    #[test]
    fn impossible_layouts_are_refused_before_anything_is_made() {
        for (line, words) in [("-c 2001 d", "1 to 2000"), ("-S 47008 d", "64 KiB"), ("-i -2 d", "-1")] {
            let error = text(line).expect_err(line);
            assert!(error.exit_code() == 2 && error.message.contains(words), "{error}");
        }
    }

    #[test]
    fn layouts_are_shown_as_lfs_shows_them() {
        let file =
            json!({"stripe_count": 2, "stripe_size": 1_048_576, "generation": 1, "osts": [3, 0], "fid": "[0x0:0x1]"});
        let shown = describe(Path::new("f"), &file);
        assert!(shown.contains("lmm_stripe_count:  2") && shown.contains("lmm_stripe_offset: 3"), "{shown}");
        assert!(shown.contains("\t     0\t\t[0x0:0x1]"), "{shown}");
        let dir = json!({"stripe_count": 4, "stripe_size": 0, "stripe_index": -1, "pool": ""});
        assert!(describe(Path::new("d"), &dir).contains("stripe_count:  4 stripe_size:   0 stripe_offset: -1"));
    }
}
