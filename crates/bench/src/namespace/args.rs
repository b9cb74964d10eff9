//! Arguments of `forebay bench namespace`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use forebay_command::{
    error::{CliError, CliResult},
    units::{parse_count, parse_positive_size},
};
use serde_json::{Value, json};

/// Files that a worker creates at a time.
pub const CHUNK: u64 = 1000;
/// Data bytes of the MDT for each file: rows, and space for the checkpoint that replaces them.
const STORE_BYTES_PER_FILE: u64 = 1 << 10;

/// One process of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Phase {
    /// Makes all files, stops cleanly.
    Create,
    /// Starts, looks files up, stops cleanly.
    Restart,
    /// Starts, makes a few more files, dies.
    Crash,
    /// Starts, takes all files away while the directories are listed, stops cleanly.
    Remove,
}

/// What to make where.
#[derive(Debug, Args)]
pub struct NamespaceArgs {
    /// Directory (gets an MDT, removed at the end)
    pub dir: PathBuf,
    /// Files to make: 100k, 10M
    #[arg(long, default_value = "10M", value_parser = parse_count, value_name = "N")]
    pub files: u64,
    /// Files of a directory
    #[arg(long, default_value = "1000", value_parser = parse_count, value_name = "N")]
    pub per_directory: u64,
    /// In the end take all files away, and list the directories meanwhile, over and over
    #[arg(long)]
    pub remove: bool,
    /// Requests in flight
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub depth: u32,
    /// Random lookups after each start
    #[arg(long, default_value_t = 1000, value_name = "N")]
    pub lookups: u64,
    /// Files made before the crash
    #[arg(long, default_value = "100k", value_parser = parse_count, value_name = "N")]
    pub before_crash: u64,
    /// Memory for the MDT's rows (about 82 bytes a file), beyond which those not in use are read when they are wanted [default:
    /// as much as there is]
    #[arg(long, value_parser = parse_positive_size, value_name = "SIZE")]
    pub cache: Option<u64>,
    /// Disk space of the MDT, which is set aside [default: 1 KiB for each file]
    #[arg(long, value_parser = parse_positive_size, value_name = "SIZE")]
    pub store: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// One process of a run, for the run itself
    #[arg(long, hide = true)]
    pub phase: Option<Phase>,
}

impl NamespaceArgs {
    /// Refuses values that make no sense.
    pub fn validate(&self) -> CliResult {
        if self.per_directory < CHUNK || !self.per_directory.is_multiple_of(CHUNK) {
            return Err(CliError::usage("--per-directory must be a multiple of 1000"));
        }
        if self.files == 0 || self.depth == 0 || self.depth > 1024 || self.lookups == 0 {
            return Err(CliError::usage("--files and --lookups must be at least 1, --depth 1 to 1024"));
        }
        Ok(())
    }

    /// Data bytes of the MDT.
    pub fn store_bytes(&self) -> u64 {
        let bytes = self.store.unwrap_or((self.files + self.before_crash) * STORE_BYTES_PER_FILE);
        bytes.next_multiple_of(64 << 20).max(512 << 20)
    }

    /// The arguments in the JSON report.
    pub fn parameters(&self) -> Value {
        json!({
            "files": self.files, "files_per_directory": self.per_directory, "depth": self.depth,
            "lookups": self.lookups, "before_crash": self.before_crash, "store_bytes": self.store_bytes(), "cache_bytes": self.cache,
        })
    }
}
