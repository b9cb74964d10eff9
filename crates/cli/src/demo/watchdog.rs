//! Ends the demo when a server dies that the demo did not kill: its programs would wait for it forever.

use std::{
    path::PathBuf,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use forebay_command::processes::PidFile;

use super::base::{Base, end_now};

/// Time between two checks of the processes.
const LOOK: Duration = Duration::from_millis(500);

/// Watches the processes of a site until it is dropped.
pub struct Watchdog {
    awake: Arc<AtomicBool>,
}

impl Watchdog {
    /// Starts asleep.
    pub fn new(base: Base) -> Self {
        let awake = Arc::new(AtomicBool::new(false));
        let watched = Arc::downgrade(&awake);
        thread::spawn(move || watch(&watched, &base));
        Self { awake }
    }

    /// From now on every process must be alive.
    pub fn wake(&self) {
        self.awake.store(true, Ordering::SeqCst);
    }

    /// Processes are about to be stopped or killed.
    pub fn sleep(&self) {
        self.awake.store(false, Ordering::SeqCst);
    }
}

fn watch(awake: &Weak<AtomicBool>, base: &Base) {
    loop {
        thread::sleep(LOOK);
        let Some(awake) = awake.upgrade() else { return };
        let all = base.clusters().into_iter().flat_map(|dir| PidFile::all(&dir.join("run")));
        let dead = all.into_iter().find(|(_, file)| file.running().is_none());
        // Checked last: a caller that stops a process puts the watchdog to sleep first.
        if let Some((name, _)) = dead.filter(|_| awake.load(Ordering::SeqCst)) {
            abandon(base, &format!("the process of {name} ended by itself"));
        }
    }
}

/// Prints why and the last lines of the logs, cleans up, and ends the demo. Some of its programs might never end.
pub fn abandon(base: &Base, why: &str) -> ! {
    eprint!("{}", log_tails(base));
    eprintln!("forebay: {why}; the demo is given up");
    end_now(base);
    std::process::exit(1);
}

/// The last lines of the logs.
pub fn log_tails(base: &Base) -> String {
    let logs = base.clusters().into_iter().filter_map(|dir| std::fs::read_dir(dir.join("log")).ok());
    let mut paths: Vec<PathBuf> = logs.flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let tail = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let name = path.strip_prefix(&base.dir).unwrap_or(path).display();
        let last = &lines[lines.len().saturating_sub(5)..];
        (!last.is_empty()).then(|| format!("--- {name}\n{}\n", last.join("\n")))
    };
    paths.iter().filter_map(tail).collect()
}
