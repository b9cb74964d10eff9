//! This program as other processes.

use std::{os::unix::process::CommandExt, process::Command};

use crate::posix;

/// A command that runs this very program, even if its file was replaced meanwhile.
pub fn this_program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("forebay");
    posix::with_default_signals(&mut command);
    command
}
