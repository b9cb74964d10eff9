//! Arguments of `forebay bench xdd`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use forebay_command::{
    error::{CliError, CliResult},
    units::{parse_duration, parse_positive_size, show_bytes},
};
use serde_json::{Value, json};

use crate::aligned::ALIGNMENT;

/// Reads, or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Operation {
    /// Writes.
    Write,
    /// Reads.
    Read,
}

/// Where the next request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Access {
    /// Behind the one before.
    Sequential,
    /// Anywhere, at a multiple of the request size.
    Random,
}

/// How to measure.
#[derive(Debug, Args)]
pub struct XddArgs {
    /// Devices, files or directories (a directory gets a file xdd.data of --size, removed at the end)
    #[arg(required = true)]
    pub targets: Vec<PathBuf>,
    /// What to do, in this order
    #[arg(long, value_delimiter = ',', default_value = "write,read")]
    pub op: Vec<Operation>,
    /// Where the requests go
    #[arg(long, value_delimiter = ',', default_value = "sequential")]
    pub access: Vec<Access>,
    /// Bytes of one request
    #[arg(long, default_value = "1MiB", value_parser = parse_positive_size, value_name = "SIZE")]
    pub request: u64,
    /// Requests in flight on each target
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub depth: u32,
    /// Bytes to move on each target (default: its size)
    #[arg(long, value_parser = parse_positive_size, value_name = "SIZE", conflicts_with = "seconds")]
    pub bytes: Option<u64>,
    /// Move bytes for this long instead, beginning anew at the target's end
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    pub seconds: Option<Duration>,
    /// Use only the first SIZE bytes of a device or file; size of the file made in a directory
    #[arg(long, default_value = "1GiB", value_parser = parse_positive_size, value_name = "SIZE")]
    pub size: u64,
    /// Repetitions
    #[arg(short = 'i', long, default_value_t = 1, value_name = "N")]
    pub repetitions: u32,
    /// Seed of random access
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Through the page cache instead of O_DIRECT
    #[arg(long)]
    pub buffered: bool,
    /// Count the flush at the end of a write as part of it
    #[arg(long)]
    pub sync: bool,
    /// Allow writing to devices and files that exist: THEIR CONTENT IS LOST
    #[arg(long)]
    pub overwrite: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl XddArgs {
    /// Refuses combinations that make no sense.
    pub fn validate(&self) -> CliResult {
        let wrong = |message: String| Err(CliError::usage(message));
        if self.depth == 0 || self.depth > 1024 {
            return wrong(format!("--depth {}: use 1 to 1024", self.depth));
        }
        if self.repetitions == 0 {
            return wrong("-i must be at least 1".into());
        }
        if !self.buffered && !self.request.is_multiple_of(ALIGNMENT as u64) {
            let request = show_bytes(self.request);
            return wrong(format!("--request {request} is not a multiple of {ALIGNMENT} bytes; add --buffered"));
        }
        if self.request > self.size {
            let (request, size) = (show_bytes(self.request), show_bytes(self.size));
            return wrong(format!("--request {request} is more than --size {size}"));
        }
        Ok(())
    }

    /// Whether anything is written.
    pub fn writes(&self) -> bool {
        self.op.contains(&Operation::Write)
    }

    /// The arguments in the JSON report.
    pub fn parameters(&self) -> Value {
        json!({
            "request_bytes": self.request, "depth": self.depth, "bytes": self.bytes, "size_bytes": self.size,
            "seconds": self.seconds.map(|time| time.as_secs_f64()), "buffered": self.buffered, "sync": self.sync,
        })
    }
}
