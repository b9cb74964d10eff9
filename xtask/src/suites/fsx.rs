//! `fsx`: random operations on one file. Each read is compared with what was written.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use super::{
    Plan,
    cluster::Cluster,
    tools::{FSX, tool},
};
use crate::figures::Outcome;

/// Weights of everything that reads and writes without a mapping. No operation has 0 bytes: fsx counts the EINVAL that
/// any file system returns for an empty posix_fallocate as a failure. Few operations read through a mapping. fsx 0.3.2
/// keeps each of those mapped until it ends, so the kernel has more and more work for each write and truncate, and
/// refuses the 65,531st. A write through a mapping reads there too.
const PLAIN: &str = r#"
flen = 1048576
[opsize]
min = 1
max = 131072
[weights]
close_open = CLOSE_OPEN
read = 10
write = 10
mapread = MAPREAD
mapwrite = MAPWRITE
invalidate = 0.5
truncate = 3
fsync = 0.2
fdatasync = 0.2
posix_fallocate = 1
punch_hole = 2
sendfile = 1
posix_fadvise = 0.2
copy_file_range = 2
"#;

/// One mount, with reads and writes.
pub fn one_mount(cluster: &Cluster<'_>, plan: &Plan) -> Outcome<String> {
    seeds(cluster, plan, "fsx", 1, false, false)
}

/// Two mounts in turns: the file is closed and opened through the other mount again and again.
pub fn two_mounts(cluster: &Cluster<'_>, plan: &Plan) -> Outcome<String> {
    seeds(cluster, plan, "fsx-two", 10, false, true)
}

/// Two mounts in turns, with mappings beside reads and writes.
pub fn two_mapped(cluster: &Cluster<'_>, plan: &Plan) -> Outcome<String> {
    seeds(cluster, plan, "fsx-two-mmap", 10, true, true)
}

/// One mount, with mappings beside reads and writes.
pub fn mapped(cluster: &Cluster<'_>, plan: &Plan) -> Outcome<String> {
    seeds(cluster, plan, "fsx-mmap", 1, true, false)
}

fn seeds(cluster: &Cluster<'_>, plan: &Plan, name: &str, close_open: u32, mapped: bool, two: bool) -> Outcome<String> {
    let program = tool(FSX)?;
    cluster.striped_dir(name, "-1")?;
    let configuration = plan.dir.join(format!("{name}.toml"));
    let (reads, writes) = if mapped { ("0.5", "10") } else { ("0", "0") };
    let text = PLAIN.replace("CLOSE_OPEN", &close_open.to_string());
    let text = text.replace("MAPREAD", reads).replace("MAPWRITE", writes);
    let text = if mapped { text } else { text.replace("invalidate = 0.5\n", "") };
    fs::write(&configuration, text).map_err(|error| format!("{}: {error}", configuration.display()))?;
    for seed in &plan.seeds {
        let file = format!("{name}/{seed}");
        let path = if two { plan.dir.join(format!("{name}-{seed}")) } else { cluster.first.join(&file) };
        let mut turns = Turns { link: path.clone(), places: [cluster.first.join(&file), cluster.second.join(&file)] };
        if two {
            turns.point_at(0)?;
        }
        let mut fsx = Command::new(&program);
        let numbers = ["-N".to_owned(), plan.operations.to_string(), "-S".to_owned(), seed.to_string()];
        fsx.arg("-f").arg(&configuration).args(numbers).arg("-P").arg(&plan.dir).arg(&path).stdout(Stdio::piped());
        let begun = Instant::now();
        let mut child = fsx.spawn().map_err(|error| format!("fsx: {error}"))?;
        if two {
            turns.take_until_end(&mut child)?;
        }
        let said = child.wait_with_output().map_err(|error| format!("fsx: {error}"))?;
        if !said.status.success() {
            return Err(format!("seed {seed}: {}\n{}", said.status, String::from_utf8_lossy(&said.stdout)));
        }
        println!("   seed {seed}: passed in {} s", begun.elapsed().as_secs());
    }
    Ok(format!("{} operations from each of seeds {:?}", plan.operations, plan.seeds))
}

/// A symbolic link that points to the file through one mount, then through the other.
struct Turns {
    link: PathBuf,
    places: [PathBuf; 2],
}

impl Turns {
    fn point_at(&self, which: usize) -> Outcome {
        let fresh = self.link.with_extension("next");
        let _ = fs::remove_file(&fresh);
        std::os::unix::fs::symlink(&self.places[which], &fresh)
            .and_then(|()| fs::rename(&fresh, &self.link))
            .map_err(|error| format!("{}: {error}", self.link.display()))
    }

    fn take_until_end(&mut self, child: &mut Child) -> Outcome {
        let mut which = 0;
        while child.try_wait().map_err(|error| format!("fsx: {error}"))?.is_none() {
            which = 1 - which;
            self.point_at(which)?;
            std::thread::sleep(Duration::from_millis(3));
        }
        fs::remove_file(Path::new(&self.link)).map_err(|error| format!("{}: {error}", self.link.display()))
    }
}
