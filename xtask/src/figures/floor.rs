//! Our FUSE layer with an empty back end, for the same programs: `bench fuse-floor --hold`.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use super::{Outcome, Plan, forebay::Forebay, process::output};

/// A mounted floor. Dropping it unmounts it.
pub struct Floor {
    child: Child,
    /// The mount point.
    pub mnt: PathBuf,
}

impl Floor {
    /// Mounts it.
    pub fn mount(forebay: &Forebay, plan: &Plan) -> Outcome<Self> {
        let mnt = plan.dir.join("floor");
        let mut command = forebay.command(&["bench", "fuse-floor", "--hold", &mnt.to_string_lossy()]);
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| format!("{command:?}: {error}"))?;
        let stdout = child.stdout.take().ok_or("its stdout is no pipe")?;
        let floor = Self { child, mnt };
        let mut line = String::new();
        match BufReader::new(stdout).read_line(&mut line) {
            Ok(length) if length > 0 => Ok(floor),
            _ => Err(format!("{command:?} did not mount")),
        }
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        // It unmounts on SIGTERM. An error means that it has already ended, which is fine.
        let _ = output(Command::new("kill").arg("-TERM").arg(self.child.id().to_string()));
        let _ = self.child.wait();
        let _ = std::fs::remove_dir(&self.mnt);
    }
}
