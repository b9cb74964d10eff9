//! Arguments of `forebay bench store`.

use std::path::PathBuf;

use clap::Args;
use forebay_command::{
    error::{CliError, CliResult},
    units::parse_positive_size,
};
use serde_json::{Value, json};

/// Bytes of one append.
pub const APPEND_BYTES: u64 = 1 << 20;
/// Objects that are appended to at the same time.
pub const OBJECTS_AT_ONCE: u64 = 4;

/// How to measure.
#[derive(Debug, Args)]
pub struct StoreArgs {
    /// Directory (gets a store of --size, removed at the end) or block device (the store takes all of it)
    pub target: PathBuf,
    /// Data bytes of the store in a directory
    #[arg(long, default_value = "4GiB", value_parser = parse_positive_size, value_name = "SIZE")]
    pub size: u64,
    /// Bytes to append in each repetition on a fresh store [default: half of the store]
    #[arg(long, value_parser = parse_positive_size, value_name = "SIZE")]
    pub bytes: Option<u64>,
    /// Bytes of the objects appended to
    #[arg(long, default_value = "256MiB", value_parser = parse_positive_size, value_name = "SIZE")]
    pub object: u64,
    /// Writes in flight
    #[arg(long, default_value_t = 16, value_name = "N")]
    pub depth: u32,
    /// Also measure after ageing: 85 % full, twice its capacity of random overwrites, a third of the files deleted
    #[arg(long)]
    pub age: bool,
    /// Longest rest after ageing and before each repetition, while the cleaner works ahead (it ends when that is done)
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub rest: u64,
    /// Random overwrites of --age, in capacities of the store
    #[arg(long, default_value_t = 2.0, value_name = "N")]
    pub overwrites: f64,
    /// Repetitions
    #[arg(short = 'i', long, default_value_t = 3, value_name = "N")]
    pub repetitions: u32,
    /// Compute the block sums of appends in the timed path (else they are sealed from sums made before)
    #[arg(long)]
    pub sums: bool,
    /// Seed of the overwrites
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Where identity and journal lie when the target is a device
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub dir: PathBuf,
    /// Allow writing to a device: ITS CONTENT IS LOST
    #[arg(long)]
    pub overwrite: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl StoreArgs {
    /// Refuses combinations that make no sense.
    pub fn validate(&self) -> CliResult {
        let wrong = |message: &str| Err(CliError::usage(message));
        if self.depth == 0 || self.depth > 1024 {
            return wrong("--depth: use 1 to 1024");
        }
        if self.repetitions == 0 {
            return wrong("-i must be at least 1");
        }
        if self.size < 256 << 20 {
            return wrong("--size: a store of less than 256MiB measures nothing");
        }
        if !self.object.is_multiple_of(APPEND_BYTES) {
            return wrong("--object must be a multiple of 1MiB");
        }
        if !(0.0..=100.0).contains(&self.overwrites) {
            return wrong("--overwrites: use 0 to 100");
        }
        Ok(())
    }

    /// Appends of one repetition on a fresh store.
    pub fn appends(&self, store_bytes: u64) -> u64 {
        (self.bytes.unwrap_or(store_bytes / 2) / APPEND_BYTES).max(1)
    }

    /// The arguments in the JSON report.
    pub fn parameters(&self, store_bytes: u64) -> Value {
        json!({
            "target": self.target.display().to_string(), "store_bytes": store_bytes, "append_bytes": APPEND_BYTES,
            "appended_bytes": self.appends(store_bytes) * APPEND_BYTES, "object_bytes": self.object,
            "objects_at_once": OBJECTS_AT_ONCE, "depth": self.depth, "aged": self.age, "overwrites": self.overwrites,
            "sums_in_timed_path": self.sums, "seed": self.seed,
        })
    }
}
