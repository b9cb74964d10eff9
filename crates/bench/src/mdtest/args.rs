//! Arguments of `forebay bench mdtest`, and their combinations.

use std::path::PathBuf;

use clap::Args;
use forebay_command::{
    error::{CliError, CliResult},
    units::{parse_count, parse_size, show_count},
};
use serde_json::{Value, json};

use crate::names::{DIRECTORIES, Layout, Op, Plan, TASKS, TaskConfig, Tree};

/// Default items of a process.
const ITEMS: u64 = 1000;
/// Most levels of a tree: their paths stay below the 4096 bytes that a system call takes.
const DEPTH: u32 = 100;
/// Most bytes of a file: they are kept in memory.
const FILE_BYTES: u64 = 1 << 30;

/// mdtest's flags, where mdtest has one.
#[derive(Debug, Args)]
pub struct MdtestArgs {
    /// Directories to work in; several: mounts that the processes are spread over
    #[arg(default_value = ".")]
    pub dirs: Vec<PathBuf>,
    /// Name of the directory made in each of them
    #[arg(short = 'o', long, default_value = "mdtest.tree", value_name = "NAME")]
    pub name: String,
    /// Processes
    #[arg(short = 'N', long, default_value_t = 2, value_name = "N")]
    pub procs: u32,
    /// Directories and files of each process: 1000, 10k [default: 1000]
    #[arg(short = 'n', long, value_parser = parse_count, value_name = "N", conflicts_with = "per_directory")]
    pub items: Option<u64>,
    /// The same, in each directory of the tree
    #[arg(short = 'I', long, value_parser = parse_count, value_name = "N")]
    pub per_directory: Option<u64>,
    /// Directories in each directory of the tree
    #[arg(short = 'b', long, default_value_t = 1, value_name = "N")]
    pub branching: u64,
    /// Levels of the tree below its root
    #[arg(short = 'z', long, default_value_t = 0, value_name = "N")]
    pub depth: u32,
    /// Items in the last level of the tree only
    #[arg(short = 'L', long)]
    pub leaves_only: bool,
    /// A tree for each process instead of one for all
    #[arg(short = 'u', long)]
    pub own_directories: bool,
    /// Files only
    #[arg(short = 'F', long)]
    pub files: bool,
    /// Directories only
    #[arg(short = 'D', long)]
    pub directories: bool,
    /// Make them (with none of -C, -T, -E, -r: all four; without -r they are kept)
    #[arg(short = 'C', long)]
    pub create: bool,
    /// Look at them (stat)
    #[arg(short = 'T', long)]
    pub stat: bool,
    /// Open, read and close the files
    #[arg(short = 'E', long)]
    pub read: bool,
    /// Remove them
    #[arg(short = 'r', long)]
    pub remove: bool,
    /// Bytes written to each new file
    #[arg(short = 'w', long, default_value = "0", value_parser = parse_size, value_name = "SIZE")]
    pub write_bytes: u64,
    /// Bytes read from each file
    #[arg(short = 'e', long, default_value = "0", value_parser = parse_size, value_name = "SIZE")]
    pub read_bytes: u64,
    /// fsync new files before close
    #[arg(short = 'y', long)]
    pub fsync: bool,
    /// Look at and read what the process this many further has made, so that no cache has it (mdtest's -N)
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub stride: u32,
    /// Look and read in random order
    #[arg(short = 'R', long)]
    pub random: bool,
    /// Seed of the random order
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Repetitions
    #[arg(short = 'i', long, default_value_t = 1, value_name = "N")]
    pub repetitions: u32,
    /// Report the CPU time of these processes too (the servers and the mount)
    #[arg(long, value_delimiter = ',', value_name = "PID,...")]
    pub cpu_of: Vec<u32>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl MdtestArgs {
    /// Refuses combinations that make no sense.
    pub fn validate(&self) -> CliResult {
        let wrong = |message: String| Err(CliError::usage(message));
        if self.procs == 0 || self.procs > TASKS {
            return wrong(format!("-N {}: use 1 to {TASKS} processes", self.procs));
        }
        if self.items == Some(0) || self.per_directory == Some(0) || self.repetitions == 0 || self.branching == 0 {
            return wrong("-n, -I, -b and -i must be at least 1".into());
        }
        if self.depth > DEPTH || self.tree().directories().is_none() {
            return wrong(format!("-b and -z: a tree has at most {DEPTH} levels and {DIRECTORIES} directories"));
        }
        if self.total_items().is_none() {
            return wrong("-n (or -I times the directories) times -N is more than 64 bits".into());
        }
        if self.write_bytes > FILE_BYTES || self.read_bytes > FILE_BYTES {
            return wrong("-w and -e: use 1 GiB at most, and bench ior for large files".into());
        }
        if self.creates() && self.read_bytes > self.write_bytes {
            return wrong("-e reads more bytes than -w writes to each file".into());
        }
        if self.name.is_empty() || self.name.contains('/') || self.name == "." || self.name == ".." {
            return wrong(format!("-o '{}': give a name only; the directories are arguments of their own", self.name));
        }
        if self.repetitions > 1 && self.creates() != self.removes() {
            return wrong("-i repeats runs that both make and remove: give -C and -r, or neither".into());
        }
        Ok(())
    }

    fn all_phases(&self) -> bool {
        !(self.create || self.stat || self.read || self.remove)
    }

    /// Whether the run creates its items.
    pub fn creates(&self) -> bool {
        self.create || self.all_phases()
    }

    /// Whether the run removes its items.
    pub fn removes(&self) -> bool {
        self.remove || self.all_phases()
    }

    /// The phases in mdtest's order: directories, then files.
    pub fn phases(&self) -> Vec<Op> {
        let all = self.all_phases();
        let wanted = |op: &Op| match op {
            Op::MakeTree | Op::MakeDirectory | Op::Create => self.create || all,
            Op::StatDirectory | Op::Stat => self.stat || all,
            Op::Read => self.read || all,
            Op::RemoveDirectory | Op::Remove | Op::RemoveTree => self.remove || all,
            Op::Utime => false,
        };
        let kind = |op: &Op| match (self.files, self.directories) {
            (true, false) => op.is_of_tree() || op.is_of_files(),
            (false, true) => op.is_of_tree() || !op.is_of_files(),
            _ => true,
        };
        let order = [
            Op::MakeTree,
            Op::MakeDirectory,
            Op::StatDirectory,
            Op::RemoveDirectory,
            Op::Create,
            Op::Stat,
            Op::Read,
            Op::Remove,
            Op::RemoveTree,
        ];
        order.into_iter().filter(wanted).filter(kind).collect()
    }

    fn tree(&self) -> Tree {
        Tree { branching: self.branching, depth: self.depth, leaves_only: self.leaves_only }
    }

    /// Items of each process; `None` if the total overflows.
    fn total_items(&self) -> Option<u64> {
        let holders = self.tree().holders();
        let each = match self.per_directory {
            Some(per_directory) => per_directory.checked_mul(holders.end - holders.start)?,
            None => self.items.unwrap_or(ITEMS),
        };
        each.checked_mul(u64::from(self.procs)).map(|_| each)
    }

    fn layout(&self) -> Layout {
        let items = self.total_items().expect("the arguments were validated");
        Layout { tree: self.tree(), own: self.own_directories, items }
    }

    /// The plan of the run.
    pub fn plan(&self) -> Plan {
        let named = |op: Op| if op.is_of_files() { format!("file-{}", op.name()) } else { op.name().to_owned() };
        Plan { layout: self.layout(), tasks: self.procs, stride: self.stride, cpu_of: self.cpu_of.clone(), named }
    }

    /// The configuration of process `rank`, except the directory it works in.
    pub fn task_config(&self, rank: u32, plan: &Plan) -> TaskConfig {
        TaskConfig {
            rank,
            layout: plan.layout,
            base: String::new(),
            write_bytes: self.write_bytes,
            read_bytes: self.read_bytes,
            sync: self.fsync,
            random_seed: self.random.then_some(self.seed),
        }
    }

    /// The run in one sentence.
    pub fn headline(&self) -> String {
        let layout = self.layout();
        let kinds = match (self.files, self.directories) {
            (true, false) => "files",
            (false, true) => "directories",
            _ => "directories and as many files",
        };
        let place = if layout.own { "a tree of its own" } else { "one shared tree" };
        let directories = layout.tree.directories().unwrap_or(0);
        let dirs: Vec<String> = self.dirs.iter().map(|dir| dir.display().to_string()).collect();
        format!(
            "mdtest: {} processes, {} {kinds} each in {place} ({} directories, {} items of a process in one) on {}",
            self.procs,
            show_count(layout.items),
            show_count(directories),
            show_count(layout.per_directory()),
            dirs.join(", "),
        )
    }

    /// The arguments in the JSON report.
    pub fn parameters(&self) -> Value {
        let (layout, tree) = (self.layout(), self.tree());
        let dirs: Vec<String> = self.dirs.iter().map(|dir| dir.display().to_string()).collect();
        json!({
            "dirs": dirs, "procs": self.procs, "items": layout.items, "items_per_directory": layout.per_directory(),
            "branching": tree.branching, "depth": tree.depth, "leaves_only": tree.leaves_only,
            "own_directories": layout.own, "write_bytes": self.write_bytes, "read_bytes": self.read_bytes,
            "fsync": self.fsync, "stride": self.stride, "random_seed": self.random.then_some(self.seed),
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
        mdtest: MdtestArgs,
    }

    fn parse(line: &str) -> MdtestArgs {
        Line::try_parse_from(format!("mdtest {line}").split_whitespace()).expect(line).mdtest
    }

    fn names(line: &str) -> Vec<String> {
        let args = parse(line);
        args.phases().into_iter().map(args.plan().named).collect()
    }

    #[test]
    fn items_are_counted_by_process_or_by_directory_of_the_tree() {
        let layout = |line: &str| parse(line).layout();
        assert_eq!(layout("").items, 1000);
        assert_eq!((layout("-n 10k -z 1 -b 9").items, layout("-n 10k -z 1 -b 9").per_directory()), (10_000, 1000));
        assert_eq!(layout("-I 10 -b 3 -z 2").items, 10 * 13);
        assert_eq!(layout("-I 10 -b 3 -z 2 -L").items, 10 * 9);
        assert!(Line::try_parse_from("mdtest -n 1 -I 1".split(' ')).is_err());
    }

    #[test]
    fn phases_come_in_order_and_can_be_chosen() {
        assert_eq!(
            names(""),
            [
                "tree-create",
                "directory-create",
                "directory-stat",
                "directory-remove",
                "file-create",
                "file-stat",
                "file-read",
                "file-remove",
                "tree-remove"
            ]
        );
        assert_eq!(names("-D -C -T"), ["tree-create", "directory-create", "directory-stat"]);
        assert_eq!(names("-F -r"), ["file-remove", "tree-remove"]);
        assert_eq!(names("-F -D"), names(""));
        let (kept, found) = (parse("-C"), parse("-T"));
        assert!(kept.creates() && !kept.removes() && !found.creates() && !found.removes());
    }

    #[test]
    fn arguments_that_contradict_each_other_are_refused_with_words() {
        for (line, words) in [
            ("-N 0", "1 to 4096"),
            ("-n 0", "at least 1"),
            ("-b 0 -z 1", "at least 1"),
            ("-b 1000 -z 4", "at most 100 levels and 10000000 directories"),
            ("-z 101", "at most 100 levels"),
            ("-n 18446744073709551615", "64 bits"),
            ("-w 1k -e 2k", "more bytes than -w"),
            ("-w 2GiB", "1 GiB at most"),
            ("-o a/b", "a name only"),
            ("-C -i 2", "both make and remove"),
        ] {
            let error = parse(line).validate().expect_err(line);
            assert!(error.exit_code() == 2 && error.message.contains(words), "{line}: {error}");
        }
    }

    #[test]
    fn reading_alone_takes_what_an_earlier_run_wrote() {
        assert!(parse("-E -e 4k").validate().is_ok());
        assert!(parse("-E -r -e 4k").validate().is_ok());
    }
}
