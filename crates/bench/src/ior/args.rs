//! Arguments of `forebay bench ior`, and their combinations.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use forebay_command::{
    error::{CliError, CliResult},
    units::{parse_duration, parse_positive_size, show_bytes},
};
use serde_json::{Value, json};

use super::{plan::Shape, task::TaskConfig};
use crate::aligned::ALIGNMENT;

/// Most processes of a run.
const TASKS: u32 = 4096;

/// IOR's flags, where IOR has one.
#[derive(Debug, Args)]
pub struct IorArgs {
    /// Directory to work in; several (the same directory, through mounts of their own) are taken in turns by the processes
    #[arg(value_name = "DIR", default_value = ".")]
    pub dirs: Vec<PathBuf>,
    /// Name of the test file in it (with -F each process adds its number)
    #[arg(short = 'o', long, default_value = "ior.data", value_name = "NAME")]
    pub name: String,
    /// Processes
    #[arg(short = 'N', long, default_value_t = 2, value_name = "N")]
    pub procs: u32,
    /// A file per process instead of one shared file
    #[arg(short = 'F', long)]
    pub file_per_process: bool,
    /// Bytes of one read or write
    #[arg(short = 't', long, default_value = "1MiB", value_parser = parse_positive_size, value_name = "SIZE")]
    pub transfer: u64,
    /// Contiguous bytes of each process in a segment (a multiple of -t)
    #[arg(short = 'b', long, default_value = "64MiB", value_parser = parse_positive_size, value_name = "SIZE")]
    pub block: u64,
    /// Segments: how often the blocks of all processes follow each other
    #[arg(short = 's', long, default_value_t = 1, value_name = "N")]
    pub segments: u64,
    /// Write (with neither -w nor -r: both)
    #[arg(short = 'w', long)]
    pub write: bool,
    /// Read
    #[arg(short = 'r', long)]
    pub read: bool,
    /// After writing, read everything back and check it (a phase of its own)
    #[arg(short = 'W', long)]
    pub check_write: bool,
    /// Check the bytes while reading them (costs time in the read phase)
    #[arg(short = 'R', long)]
    pub check_read: bool,
    /// Write bytes that tell their file, offset and repetition, for a check by a later run (implied by -W and -R)
    #[arg(long)]
    pub stamp: bool,
    /// fsync before close
    #[arg(short = 'e', long)]
    pub fsync: bool,
    /// Stop each phase after this time (stonewall); reads read what was written
    #[arg(short = 'D', long, value_parser = parse_duration, value_name = "TIME")]
    pub stonewall: Option<Duration>,
    /// Repetitions
    #[arg(short = 'i', long, default_value_t = 1, value_name = "N")]
    pub repetitions: u32,
    /// Read the bytes that the next process wrote
    #[arg(short = 'C', long)]
    pub reorder: bool,
    /// Keep the files
    #[arg(short = 'k', long)]
    pub keep: bool,
    /// Transfers in random order
    #[arg(short = 'z', long)]
    pub random: bool,
    /// Seed of the random order
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Bypass the page cache (O_DIRECT)
    #[arg(short = 'B', long)]
    pub direct: bool,
    /// Leave the caches as they are before reading (they are dropped as far as this user may)
    #[arg(long)]
    pub keep_caches: bool,
    /// Report the CPU time of these processes too (the servers and the mount)
    #[arg(long, value_delimiter = ',', value_name = "PID,...")]
    pub cpu_of: Vec<u32>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl IorArgs {
    /// Refuses combinations that make no sense.
    pub fn validate(&self) -> CliResult {
        let wrong = |message: String| Err(CliError::usage(message));
        if self.procs == 0 || self.procs > TASKS {
            return wrong(format!("-N {}: use 1 to {TASKS} processes", self.procs));
        }
        if self.segments == 0 || self.repetitions == 0 {
            return wrong("-s and -i must be at least 1".into());
        }
        if !self.block.is_multiple_of(self.transfer) {
            let (block, transfer) = (show_bytes(self.block), show_bytes(self.transfer));
            return wrong(format!("-b {block} is not a multiple of -t {transfer}"));
        }
        if self.direct && !self.transfer.is_multiple_of(ALIGNMENT as u64) {
            let transfer = show_bytes(self.transfer);
            return wrong(format!("O_DIRECT needs -t to be a multiple of {ALIGNMENT} bytes, and {transfer} is not"));
        }
        if self.check_write && !self.write_phase() {
            return wrong("-W checks what this run writes, but it only reads; use -R".into());
        }
        if self.name.contains('/') || self.name.is_empty() {
            return wrong(format!("-o '{}': give a name only; the directory is an argument of its own", self.name));
        }
        if self.block.checked_mul(self.segments).and_then(|b| b.checked_mul(u64::from(self.procs))).is_none() {
            return wrong("-b times -s times -N is more than 64 bits of bytes".into());
        }
        Ok(())
    }

    /// Whether the run writes.
    pub fn write_phase(&self) -> bool {
        self.write || !self.read
    }

    /// Whether the run reads.
    pub fn read_phase(&self) -> bool {
        self.read || !self.write
    }

    /// Which process writes which bytes.
    pub fn shape(&self) -> Shape {
        Shape {
            tasks: self.procs,
            file_per_process: self.file_per_process,
            transfer_bytes: self.transfer,
            block_bytes: self.block,
            segments: self.segments,
            random_seed: self.random.then_some(self.seed),
        }
    }

    /// The configuration of process `rank`.
    pub fn task_config(&self, rank: u32, shape: &Shape, base: &std::path::Path) -> TaskConfig {
        TaskConfig {
            rank,
            shape: shape.clone(),
            path: base.to_string_lossy().into_owned(),
            fsync: self.fsync,
            stonewall_ms: self.stonewall.map(|time| time.as_millis() as u64),
            direct: self.direct,
            stamp: self.stamp || self.check_write || self.check_read,
            check: self.check_read,
        }
    }

    /// The arguments in the JSON report.
    pub fn parameters(&self) -> Value {
        let dirs: Vec<String> = self.dirs.iter().map(|dir| dir.display().to_string()).collect();
        json!({
            "dir": dirs.join(" "), "procs": self.procs, "file_per_process": self.file_per_process,
            "transfer_bytes": self.transfer, "block_bytes": self.block, "segments": self.segments,
            "fsync": self.fsync, "direct": self.direct, "reorder": self.reorder, "checked": self.check_read,
            "random_seed": self.random.then_some(self.seed),
            "stonewall_s": self.stonewall.map(|time| time.as_secs_f64()),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        ior: IorArgs,
    }

    fn parse(line: &str) -> IorArgs {
        Line::try_parse_from(format!("ior {line}").split_whitespace()).expect(line).ior
    }

    #[test]
    fn the_odd_strided_pattern_of_ior_is_accepted() {
        let args = parse("/tmp -t 47008 -b 47008 -s 100 -N 4");
        assert!(args.validate().is_ok());
        assert_eq!((args.shape().transfers(), args.shape().offset(1, 2)), (100, (2 * 4 + 1) * 47_008));
    }

    #[test]
    fn arguments_that_contradict_each_other_are_refused_with_words() {
        for (line, words) in [
            ("-t 3 -b 10", "not a multiple"),
            ("-N 0", "1 to 4096"),
            ("-i 0", "at least 1"),
            ("-B -t 47008 -b 47008", "O_DIRECT"),
            ("-r -W", "use -R"),
            ("-o a/b", "a name only"),
        ] {
            let error = parse(line).validate().expect_err(line);
            assert!(error.exit_code() == 2 && error.message.contains(words), "{line}: {error}");
        }
    }

    #[test]
    fn without_w_or_r_both_phases_run() {
        let phases = |line: &str| (parse(line).write_phase(), parse(line).read_phase());
        assert_eq!(
            (phases(""), phases("-w"), phases("-r"), phases("-w -r")),
            ((true, true), (true, false), (false, true), (true, true))
        );
    }
}
