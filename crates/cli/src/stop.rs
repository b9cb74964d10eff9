//! SIGTERM and Ctrl-C for commands that serve until they are stopped.
#![allow(clippy::disallowed_methods)] // one thread that only waits for signals

use forebay_command::{posix, processes};
use forebay_env::sync::watch;

/// Becomes true at the first SIGINT, SIGTERM or SIGHUP. Call it before any other thread is started.
pub fn requested() -> watch::Receiver<bool> {
    posix::catch_signals();
    let (sender, receiver) = watch::channel(false);
    std::thread::spawn(move || {
        posix::wait_for_stop_signal();
        processes::say_stopping();
        sender.send_replace(true);
    });
    receiver
}
