//! The trace: a hash over all decisions, and lines for debugging.

use std::cell::{Cell, RefCell};

/// A kind of event; its number goes into the hash.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Poll = 1,
    Start,
    Crash,
    Pause,
    Send,
    Deliver,
    Break,
    DiskSubmit,
    DiskDone,
    DiskFlush,
    Log,
    Fault,
}

/// Running hash over decisions with their virtual time and node.
#[derive(Default)]
pub(crate) struct Trace {
    hash: Cell<u64>,
    printing: Cell<bool>,
    /// Log lines since a test asked for them.
    kept: RefCell<Option<Vec<String>>>,
}

impl Trace {
    pub(crate) fn note(&self, now: u64, kind: Kind, node: u32, a: u64, b: u64) {
        let mut hash = self.hash.get();
        for word in [now, (kind as u64) << 32 | u64::from(node), a, b] {
            hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
        self.hash.set(hash);
    }

    pub(crate) fn log(&self, now: u64, node: u32, name: &str, line: &str) {
        let sum = line.bytes().fold(0u64, |sum, byte| sum.rotate_left(5) ^ u64::from(byte));
        self.note(now, Kind::Log, node, line.len() as u64, sum);
        if let Some(kept) = &mut *self.kept.borrow_mut() {
            kept.push(format!("{name}: {line}"));
        }
        self.print(now, name, || line.to_string());
    }

    /// Prints a line for debugging; it is not part of the hash.
    pub(crate) fn print(&self, now: u64, name: &str, line: impl FnOnce() -> String) {
        if self.printing.get() {
            eprintln!("[{:>6}.{:09} {name}] {}", now / 1_000_000_000, now % 1_000_000_000, line());
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash.get()
    }

    /// The log lines since the last call; from the first one on they are kept.
    pub(crate) fn take_log(&self) -> Vec<String> {
        self.kept.borrow_mut().replace(Vec::new()).unwrap_or_default()
    }

    pub(crate) fn set_printing(&self, on: bool) {
        self.printing.set(on);
    }
}
