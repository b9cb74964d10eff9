//! Block devices that fail on demand. They need root and support of the kernel; without them a test says so and is
//! skipped.

use std::{
    fs::{self, File},
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    process::Command,
};

use super::Scratch;

/// A block device in memory (zram). Its writes can be made to fail with EIO, while reads still work.
pub struct Zram {
    number: u32,
}

impl Zram {
    /// `None`, with the reason on stderr, if it cannot be made.
    pub fn new(bytes: u64) -> Option<Self> {
        let added = fs::read_to_string("/sys/class/zram-control/hot_add");
        let why = |error: &dyn std::fmt::Display| eprintln!("no zram device can be made here ({error}): skipped");
        let number = added.inspect_err(|error| why(error)).ok()?.trim().parse().expect("a number");
        let device = Self { number };
        device.set("disksize", &bytes.to_string());
        let there = fs::metadata(device.path()).is_ok_and(|meta| meta.file_type().is_block_device());
        if !there {
            why(&"it has no node in /dev");
        }
        there.then_some(device)
    }

    pub fn path(&self) -> String {
        format!("/dev/zram{}", self.number)
    }

    /// From now on every write fails with EIO, unless all its bytes are the same.
    pub fn fail_writes(&self) {
        self.set("mem_limit", "1");
    }

    pub fn heal(&self) {
        self.set("mem_limit", "0");
    }

    fn set(&self, what: &str, value: &str) {
        fs::write(format!("/sys/block/zram{}/{what}", self.number), value).expect("the kernel takes it");
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        // A process that had it open may still be ending.
        for _ in 0..100 {
            let removed = fs::write("/sys/class/zram-control/hot_remove", self.number.to_string()).is_ok();
            if removed || !Path::new(&format!("/sys/block/zram{}", self.number)).exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

/// A disk of `bytes` in its own file system in memory, which may have less space than that. As a file it is thin:
/// writes beyond the space fail with ENOSPC. As a loop device it can be truncated: I/O behind that fails with EIO. (Not
/// both at once: the kernel's loop driver reports a short write as complete.)
pub struct Small {
    device: Option<String>,
    tmpfs: PathBuf,
}

impl Small {
    /// A sparse file. `None`, with the reason on stderr, if it cannot be made.
    pub fn file(scratch: &Scratch, bytes: u64, room_bytes: u64) -> Option<Self> {
        let tmpfs = Path::new(scratch.path()).join("small");
        fs::create_dir_all(&tmpfs).expect("made");
        let small = Self { device: None, tmpfs };
        let size = format!("size={room_bytes}");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&small.tmpfs))?;
        File::create(small.backing()).and_then(|file| file.set_len(bytes)).expect("a sparse file");
        Some(small)
    }

    /// A block device.
    pub fn device(scratch: &Scratch, bytes: u64) -> Option<Self> {
        let small = Self::file(scratch, bytes, 4 * bytes)?;
        let device = run(Command::new("losetup").args(["-f", "--show"]).arg(small.backing()))?;
        Some(Self { device: Some(device), tmpfs: small.keep() })
    }

    pub fn path(&self) -> String {
        self.device.clone().unwrap_or_else(|| self.backing().to_string_lossy().into_owned())
    }

    /// The file under the device.
    pub fn backing(&self) -> PathBuf {
        self.tmpfs.join("disk")
    }

    /// Enlarges the file system to the full size of the disk.
    pub fn grow(&self) {
        run(Command::new("mount").args(["-o", "remount,size=1G"]).arg(&self.tmpfs)).expect("remounted");
    }

    /// The offset of `bytes` on the disk.
    pub fn find(&self, bytes: &[u8]) -> Option<u64> {
        let all = fs::read(self.backing()).expect("it can be read");
        all.windows(bytes.len()).position(|window| window == bytes).map(|at| at as u64)
    }

    /// From now on reads at and behind `at` fail with EIO.
    pub fn cut(&self, at: u64) {
        File::options().write(true).open(self.backing()).and_then(|file| file.set_len(at)).expect("cut");
    }

    fn keep(mut self) -> PathBuf {
        std::mem::take(&mut self.tmpfs)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        if let Some(device) = &self.device {
            let _ = Command::new("losetup").args(["-d", device]).output();
        }
        if self.tmpfs.as_os_str() != "" {
            let _ = Command::new("umount").arg("-l").arg(&self.tmpfs).output();
        }
    }
}

fn run(command: &mut Command) -> Option<String> {
    match command.output() {
        Ok(output) if output.status.success() => Some(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        other => {
            eprintln!("no such device can be made here ({command:?}: {other:?}): skipped");
            None
        }
    }
}
