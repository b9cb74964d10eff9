//! State of a device, independent of how it is served: its name, and whether a flush has failed.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering},
};

use super::{
    errors::{file_error, words},
    transfer::Call,
};
use crate::{EnvError, EnvErrorKind, EnvResult};

pub(super) struct Device {
    pub(super) path: String,
    flush_failed: AtomicBool,
}

impl Device {
    pub(super) fn new(path: &str) -> Self {
        Self { path: path.to_string(), flush_failed: AtomicBool::new(false) }
    }

    pub(super) fn fail_flushes(&self) {
        self.flush_failed.store(true, Ordering::Release);
    }

    /// An error once a flush has failed: writes since the last good flush are in doubt for ever.
    pub(super) fn check_flushed(&self) -> EnvResult<()> {
        if !self.flush_failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let message = format!("an earlier flush of {} failed; stop using it and check the device", self.path);
        Err(EnvError::new(EnvErrorKind::FlushFailed, message))
    }

    pub(super) fn crowded(&self, requests: usize) -> EnvError {
        let message = format!("{} takes no more requests: {requests} are waiting, or it closed", self.path);
        EnvError::new(EnvErrorKind::Other, message)
    }

    pub(super) fn error(&self, call: Call, offset: u64, left: usize, error: &io::Error) -> EnvError {
        let path = &self.path;
        match call {
            Call::Read => file_error(&format!("reading {left} bytes at {offset} of {path}"), error),
            Call::Write => file_error(&format!("writing {left} bytes at {offset} of {path}"), error),
            Call::DurableWrite if error.raw_os_error() == Some(libc::ENOSPC) => {
                file_error(&format!("writing {left} bytes at {offset} of {path}"), error)
            }
            // A durable write does not report whether its write or its flush failed: the worse case is assumed.
            Call::DurableWrite | Call::Flush => {
                self.fail_flushes();
                let message = format!(
                    "flush of {path} failed: {}; what was written since the last good flush is in doubt; check the device \
                     and its cables",
                    words(error)
                );
                EnvError::new(EnvErrorKind::FlushFailed, message)
            }
        }
    }
}
