//! The environment of the rows: a directory, ports, and names that rows refer to. Also runs a row.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    ffi::CString,
    fs::{self, File},
    net::TcpListener,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use super::surface::Program;
use crate::figures::{Outcome, forebay::root};

/// A row that takes longer than this hangs.
const TIMEOUT: Duration = Duration::from_secs(180);
/// Consecutive ports of a section.
const PORTS: u16 = 40;

/// A separate directory, and the programs.
pub struct Site {
    dir: PathBuf,
    forebay: PathBuf,
    xtask: PathBuf,
    port: u16,
    remembered: RefCell<BTreeMap<String, String>>,
    /// Number of rows started so far.
    started: Cell<u32>,
}

/// How a row ended, and its output on stdout and stderr.
pub struct Ended {
    pub status: ExitStatus,
    pub said: String,
}

impl Site {
    /// Makes `dir`, which must not exist.
    pub fn make(dir: &Path, forebay: &Path) -> Outcome<Self> {
        fs::create_dir(dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
        let dir = dir.canonicalize().map_err(|error| error.to_string())?;
        let xtask = std::env::current_exe().map_err(|error| format!("where am I? {error}"))?;
        let forebay = forebay.canonicalize().map_err(|error| format!("{}: {error}", forebay.display()))?;
        Ok(Self { dir, forebay, xtask, port: free_ports()?, remembered: RefCell::default(), started: Cell::new(0) })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path of a program.
    pub fn path(&self, program: Program) -> &Path {
        match program {
            Program::Forebay => &self.forebay,
            Program::Xtask => &self.xtask,
        }
    }

    /// Fills in a row's text: `{d}` (the directory), `{root}` (the project), `{forebay}`, `{pid}`, and `{port}` to
    /// `{port+39}`.
    pub fn fill(&self, text: &str) -> String {
        let mut filled = text
            .replace("{d}", &self.dir.to_string_lossy())
            .replace("{root}", &root().to_string_lossy())
            .replace("{forebay}", &self.forebay.to_string_lossy())
            .replace("{pid}", &std::process::id().to_string())
            .replace("{port}", &self.port.to_string());
        for number in 1..PORTS {
            filled = filled.replace(&format!("{{port+{number}}}"), &(self.port + number).to_string());
        }
        for (name, text) in self.remembered.borrow().iter() {
            filled = filled.replace(name, text);
        }
        filled
    }

    /// Defines `name` as `text` in rows.
    pub fn remember(&self, name: &str, text: &str) {
        self.remembered.borrow_mut().insert(name.to_owned(), text.to_owned());
    }

    /// Starts `program WORDS`, under another name if `called` is set. Its output goes to a file, as processes that it
    /// leaves behind must not hold a pipe.
    pub fn start(&self, program: Program, called: &str, words: &[String]) -> Outcome<Running> {
        let number = self.started.replace(self.started.get() + 1);
        let path = self.dir.join(format!("said.{number}"));
        let said = File::create(&path).and_then(|file| Ok((file.try_clone()?, file)));
        let (out, err) = said.map_err(|error| format!("{}: {error}", path.display()))?;
        let mut command = Command::new(self.path(program));
        command.args(words).current_dir(&self.dir).stdin(Stdio::null()).stdout(out).stderr(err);
        // Keys of a client that joins do not go to this machine's own.
        command.env("FOREBAY_HOME", self.dir.join("home"));
        if !called.is_empty() {
            command.arg0(called);
        }
        // A separate process group, so that a signal also reaches its children.
        let child = command.process_group(0).spawn().map_err(|error| format!("{command:?}: {error}"))?;
        Ok(Running { child, said: path })
    }

    /// Ends what a failed row left running, so that the directory can be inspected and removed.
    pub fn clear(&self) {
        let dir = self.dir.to_string_lossy();
        for mount in fs::read_to_string("/proc/self/mounts").unwrap_or_default().lines() {
            let Some(point) = mount.split(' ').nth(1).filter(|point| point.starts_with(&*dir)) else { continue };
            if let Ok(point) = CString::new(point) {
                // SAFETY: a string that ends with a NUL.
                unsafe { libc::umount2(point.as_ptr(), libc::MNT_DETACH | libc::MNT_FORCE) };
            }
        }
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let names = line.split(|byte| *byte == 0).skip(1).any(|arg| arg.starts_with(format!("{dir}/").as_bytes()));
            if names && pid != std::process::id() as i32 {
                // SAFETY: no memory is touched.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        }
    }

    /// Removes the directory.
    pub fn remove(self) -> Outcome {
        fs::remove_dir_all(&self.dir).map_err(|error| format!("cannot remove {}: {error}", self.dir.display()))
    }
}

/// A row that has been started.
pub struct Running {
    child: Child,
    said: PathBuf,
}

impl Running {
    /// Its output so far.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.said).unwrap_or_default()).into_owned()
    }

    /// Waits until it ends.
    pub fn end(mut self) -> Outcome<Ended> {
        let status = self.wait_for(|running| running.child.try_wait().map_err(|error| error.to_string()))?;
        Ok(Ended { status, said: self.said() })
    }

    /// Waits until its output contains `word`.
    pub fn wait_until_it_says(&mut self, word: &str) -> Outcome {
        self.wait_for(|running| {
            if running.said().contains(word) {
                return Ok(Some(()));
            }
            match running.child.try_wait() {
                Ok(None) => Ok(None),
                _ => Err(format!("it ended without {word:?}; it said {:?}", running.said())),
            }
        })
    }

    /// Sends SIGTERM, and waits until it ends.
    pub fn stop(self) -> Outcome<Ended> {
        // SAFETY: our own child, which has not been waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        self.end()
    }

    fn wait_for<T>(&mut self, mut look: impl FnMut(&mut Self) -> Outcome<Option<T>>) -> Outcome<T> {
        let begun = Instant::now();
        while begun.elapsed() < TIMEOUT {
            match look(self)? {
                Some(found) => return Ok(found),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        // SAFETY: the group of our own child, which has not been waited for.
        unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
        let _ = self.child.wait();
        Err(format!("it hangs for {TIMEOUT:?}; it said {:?}", self.said()))
    }
}

/// The first of several consecutive free ports, below those that the kernel assigns.
fn free_ports() -> Outcome<u16> {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let begin = 12_000 + (std::process::id() % 400) as u16 * PORTS;
    let mut bases = (begin..28_000).step_by(PORTS.into()).chain((12_000..begin).step_by(PORTS.into()));
    bases.find(|base| (*base..base + PORTS).all(is_free)).ok_or_else(|| "no free ports".to_owned())
}
