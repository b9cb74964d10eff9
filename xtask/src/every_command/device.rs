//! A block device: a file with the kernel's loop driver.

use std::{fs::File, path::Path, process::Command};

/// A loop device. Dropping it detaches it.
pub struct Device {
    name: String,
}

impl Device {
    /// A device of `bytes` bytes in the file `backing`. `None` if loop devices are not available.
    pub fn make(backing: &Path, bytes: u64) -> Option<Self> {
        File::create(backing).and_then(|file| file.set_len(bytes)).ok()?;
        let made = Command::new("losetup").args(["-f", "--show"]).arg(backing).output().ok()?;
        made.status.success().then(|| Self { name: String::from_utf8_lossy(&made.stdout).trim().to_owned() })
    }

    /// `/dev/loop7`.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let freed = Command::new("losetup").args(["-d", &self.name]).status();
        if !freed.is_ok_and(|status| status.success()) {
            eprintln!("xtask: cannot free {}", self.name);
        }
    }
}
