//! Pending signals of the threads whose requests are served, read from /proc.
//!
//! Nothing is known of a thread that cannot be seen from here (0: it is in another pid namespace).
#![allow(clippy::disallowed_methods)] // a thread's signals stand in /proc

use std::{fs, io};

/// Bit of SIGKILL in a mask of /proc. The kernel sets it for every signal that ends the process, unless the process
/// dumps core.
const KILL: u64 = bit(libc::SIGKILL);
/// Signals that dump core where the process does not catch them.
const CORE: u64 = bit(libc::SIGQUIT)
    | bit(libc::SIGABRT)
    | bit(libc::SIGBUS)
    | bit(libc::SIGILL)
    | bit(libc::SIGFPE)
    | bit(libc::SIGSEGV)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGSYS)
    | bit(libc::SIGXCPU)
    | bit(libc::SIGXFSZ);
/// Signals by which a person or a batch system asks a program to end. Timers, children and the like do not interrupt
/// calls on a local file system.
const END: u64 = bit(libc::SIGHUP) | bit(libc::SIGINT) | bit(libc::SIGQUIT) | bit(libc::SIGTERM);

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// True of a thread that is gone, or has a pending signal that it neither blocks nor ignores.
pub(crate) fn is_interrupted(thread: u32) -> bool {
    asked(thread, |status| to_see_to(status) != 0)
}

/// True of a thread that is gone, or has a pending signal that asks it to end.
pub(crate) fn is_asked_to_end(thread: u32) -> bool {
    asked(thread, |status| to_see_to(status) & END != 0)
}

/// True of a thread that is gone, or that will end without returning to its program.
pub(crate) fn is_killed(thread: u32) -> bool {
    asked(thread, kills)
}

/// Signals that are pending and neither blocked nor ignored.
fn to_see_to(status: &str) -> u64 {
    pending(status) & !mask(status, "SigBlk:") & !mask(status, "SigIgn:")
}

fn kills(status: &str) -> bool {
    pending(status) & KILL != 0 || to_see_to(status) & !mask(status, "SigCgt:") & CORE != 0
}

fn asked(thread: u32, of: impl Fn(&str) -> bool) -> bool {
    let Ok(thread @ 1..) = i32::try_from(thread) else { return false };
    match fs::read_to_string(format!("/proc/{thread}/status")) {
        Ok(status) => of(&status),
        Err(_) => {
            // SAFETY: signal 0 is none; it only asks whether the thread exists.
            let outcome = unsafe { libc::kill(thread, 0) };
            outcome != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
        }
    }
}

fn pending(status: &str) -> u64 {
    mask(status, "SigPnd:") | mask(status, "ShdPnd:")
}

fn mask(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `look` with a thread that has `signal` pending and blocks it.
    fn with_blocked(signal: i32, look: impl FnOnce(u32)) {
        // SAFETY: the set is initialised before use; the signal goes to this thread alone, which blocks it until it has
        // taken it back out.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, signal);
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            libc::pthread_kill(libc::pthread_self(), signal);
            look(libc::gettid() as u32);
            let mut taken = 0;
            libc::sigwait(&set, &mut taken);
            assert_eq!(taken, signal);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        }
    }

    #[test]
    fn a_pending_signal_that_is_blocked_neither_interrupts_nor_kills() {
        with_blocked(libc::SIGUSR1, |thread| assert!(!is_interrupted(thread) && !is_killed(thread)));
    }

    #[test]
    fn a_pending_signal_counts_unless_it_is_blocked_or_ignored() {
        let status = |pending: &str, shared: &str, blocked: &str, ignored: &str| {
            format!("Name:\tx\nSigPnd:\t{pending}\nShdPnd:\t{shared}\nSigBlk:\t{blocked}\nSigIgn:\t{ignored}\n")
        };
        let counts = |status: String| to_see_to(&status) != 0;
        assert!(!counts(status("0", "0", "0", "0")));
        assert!(counts(status("0000000000000002", "0", "0", "0")));
        assert!(counts(status("0", "0000000000004000", "0000000000000001", "0")));
        assert!(!counts(status("2", "0", "2", "0")) && !counts(status("0", "2", "0", "2")));
        assert!(kills(&status("100", "0", "0", "0")), "SIGKILL is the ninth");
        assert!(
            kills(&status("4", "0", "0", "0")) && !kills(&(status("4", "0", "0", "0") + "SigCgt:\t4\n")),
            "SIGQUIT"
        );
        assert!(
            to_see_to(&status("0", "4000", "0", "0")) & END != 0
                && to_see_to(&status("2000", "0", "0", "0")) & END == 0
        );
        assert!(is_interrupted(i32::MAX as u32) && is_killed(i32::MAX as u32), "who is gone waits for nothing");
        assert!(!is_interrupted(0) && !is_killed(0), "nothing is known of who cannot be seen");
    }
}
