//! The few system calls that std does not provide, each behind a safe function.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // for commands, benchmarks, demo; nothing here serves

use std::{
    ffi::{CStr, CString},
    fs::File,
    io,
    os::{
        fd::{AsRawFd, IntoRawFd},
        unix::{ffi::OsStrExt, fs::MetadataExt, process::CommandExt},
    },
    path::Path,
    process::Command,
};

/// Sets the umask so that only the owner may use files and sockets that this process and its children make.
pub fn for_owner_alone() {
    // SAFETY: no memory.
    unsafe { libc::umask(0o077) };
}

/// Nanoseconds of the machine's monotonic clock: comparable between processes of one machine.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the call to fill.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    assert_eq!(result, 0, "CLOCK_MONOTONIC is always there");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU seconds (user and system) this process has used.
pub fn own_cpu_seconds() -> f64 {
    // SAFETY: all zeros is a valid rusage, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// CPU seconds (user and system) this thread has used.
pub fn thread_cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the call to fill.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0, "a thread has its clock");
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Bytes this process has had written to devices, as the kernel counts them; 0 where it does not.
pub fn own_written_bytes() -> u64 {
    let counters = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let written = counters.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    written.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

/// `VmRSS` or `VmHWM` (its peak) of this process in bytes, as the kernel counts them; 0 where it does not.
pub fn memory_bytes(what: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':'));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Raises this process's limit of open files as far as allowed, up to 2^20; returns the limit.
pub fn raise_open_files() -> u64 {
    const ENOUGH: u64 = 1 << 20;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit for the call to fill.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return ENOUGH;
    }
    let wanted = libc::rlimit { rlim_cur: limit.rlim_max.min(ENOUGH), ..limit };
    // SAFETY: `wanted` is a valid rlimit.
    if wanted.rlim_cur > limit.rlim_cur && unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &wanted) } == 0 {
        limit = wanted;
    }
    limit.rlim_cur
}

/// Memory that this process may use, limited by the machine and its cgroup.
pub fn machine_memory_bytes() -> u64 {
    // SAFETY: sysconf has no preconditions.
    let (pages, page) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    let machine = pages.max(1) as u64 * page.max(1) as u64;
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limit = |path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    limits.into_iter().filter_map(limit).fold(machine, u64::min)
}

/// CPU seconds (user and system) process `pid` has used so far; `None` if there is no such process.
pub fn cpu_seconds_of(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let ticks = parse_stat_ticks(&stat)?;
    // SAFETY: sysconf has no preconditions.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Some(ticks as f64 / ticks_per_second.max(1) as f64)
}

/// As [`cpu_seconds_of`], with nanosecond resolution.
pub fn cpu_clock_of(pid: u32) -> Option<f64> {
    let mut clock: libc::clockid_t = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both are valid places for the calls to fill.
    let known = unsafe {
        libc::clock_getcpuclockid(pid as libc::pid_t, &mut clock) == 0 && libc::clock_gettime(clock, &mut time) == 0
    };
    known.then_some(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

/// Processor model, number of processors, and kernel, in one line.
pub fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map_or("?", |m| m.1);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = kernel.trim().split('-').next().unwrap_or("?");
    format!("{model}, {cores} cores, Linux {kernel}").replace(['"', '\\'], "'")
}

/// The date, as `2026-11-22` (UTC).
pub fn today() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seconds = now as libc::time_t;
    // SAFETY: all zeros is a valid tm, and the call fills it.
    let date = unsafe {
        let mut date: libc::tm = std::mem::zeroed();
        libc::gmtime_r(&seconds, &mut date);
        date
    };
    format!("{:04}-{:02}-{:02}", date.tm_year + 1900, date.tm_mon + 1, date.tm_mday)
}

/// utime + stime of a `/proc/PID/stat` line. The command's name may contain any character, so fields count from its
/// last `)`.
fn parse_stat_ticks(stat: &str) -> Option<u64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

/// When process `pid` started (in the kernel's ticks since boot); `None` if it does not run. A process whose first
/// thread is a zombie runs as long as it has other threads: they hold its files, and its locks on them.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let has_others = || std::fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|tasks| tasks.count() > 1);
    if fields.first() == Some(&"Z") && !has_others() { None } else { fields.get(19)?.parse().ok() }
}

/// The owner of this file, or of the process of this /proc directory.
pub fn owner(path: &Path) -> Option<u32> {
    Some(path.symlink_metadata().ok()?.uid())
}

/// Sets the name of this process in ps, top, pkill and the kernel's log. A process started by `/proc/self/exe` would be
/// called `exe`.
pub fn be_called(name: &std::ffi::CStr) {
    // SAFETY: a string that ends; the kernel takes 15 bytes of it.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Lets a closed pipe end this process, as it ends `cat`. Not for processes that serve.
pub fn end_with_closed_pipes() {
    // SAFETY: the default action of a signal is async-signal-safe.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Whether process `pid` was killed or has ended, and still exists as a zombie.
pub fn is_ending(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
}

/// The parent of process `pid`; `None` if there is no such process.
pub fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Asks the kernel to forget the clean pages of `file`.
pub fn drop_file_pages(file: &File) {
    // SAFETY: a plain system call on an open descriptor; advice only.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

/// True if this process is root.
pub fn is_root() -> bool {
    user_id() == 0
}

/// False if this user may not write to the file at `path`. True if there is none.
pub fn may_write(path: &Path) -> bool {
    let Ok(path) = c_path(path) else { return true };
    // SAFETY: `path` ends in NUL and lives across the call.
    let result = check(unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK, libc::AT_EACCESS) });
    !result.is_err_and(|error| error.raw_os_error() == Some(libc::EACCES))
}

/// Permission bits that this process removes from files it makes. umask(2) could report them only by changing them.
pub fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let octal = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    octal.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0o777)
}

/// True if this process may call mount(2): it has CAP_SYS_ADMIN.
pub fn may_mount() -> bool {
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    hex.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).is_some_and(|caps| caps & CAP_SYS_ADMIN != 0)
}

/// Effective user.
pub fn user_id() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::geteuid() }
}

/// Effective group.
pub fn group_id() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::getegid() }
}

/// The device number of the file system that `path` leads to, as (major, minor). Queries only the kernel, never a
/// server of that file system: it may be unreachable.
pub fn device_of(path: &Path) -> Option<(u32, u32)> {
    let path = c_path(path).ok()?;
    // SAFETY: zeros are a valid statx for the call to fill; `path` ends in NUL and lives across the call.
    unsafe {
        let mut stat: libc::statx = std::mem::zeroed();
        let flags = libc::AT_STATX_DONT_SYNC | libc::AT_NO_AUTOMOUNT;
        check(libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, 0, &mut stat)).ok()?;
        Some((stat.stx_dev_major, stat.stx_dev_minor))
    }
}

/// Changes to the root directory, so that this process holds no mount in use.
pub fn leave_directory() {
    // If even the root is not accessible, the process stays; a later unmount then fails with EBUSY.
    let _ = std::env::set_current_dir("/");
}

/// Sends `signal` to `pid`.
pub fn send_signal(pid: u32, signal: i32) -> io::Result<()> {
    let pid = i32::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
    assert!(pid > 1, "never signals a group, all processes or init");
    // SAFETY: no memory is involved.
    check(unsafe { libc::kill(pid, signal) })
}

/// Begins a new session: this process outlives its caller, and receives no signals of its terminal.
pub fn begin_session() {
    // SAFETY: no memory is involved. If this process leads a group already, it was started separately.
    unsafe { libc::setsid() };
}

/// Whether process `pid` leads its session.
pub fn leads_session(pid: u32) -> bool {
    let Ok(pid) = i32::try_from(pid) else { return false };
    // SAFETY: no memory is involved.
    unsafe { libc::getsid(pid) == pid }
}

/// Lets `command` inherit no open files of this process's caller, such as a lock or a pipe that another process waits
/// for. `own_session`: it also begins a new session.
pub fn in_background(command: &mut Command, own_session: bool) -> &mut Command {
    // SAFETY: between fork and exec only setsid, close_range and sigprocmask run; all are async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            if own_session {
                libc::setsid();
            }
            // Linux before 5.11 lacks this call; then the files stay open.
            libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
            unblock_all_signals();
            Ok(())
        })
    }
}

/// Undoes [`catch_signals`] in a child.
///
/// Safety: async-signal-safe; for use between fork and exec.
unsafe fn unblock_all_signals() {
    // SAFETY: the set is initialised before use.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
    }
}

/// Lets `command` receive signals that this process blocks for [`wait_for_stop_signal`].
pub fn with_default_signals(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec only sigprocmask runs; it is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            unblock_all_signals();
            Ok(())
        })
    }
}

fn stop_signals() -> libc::sigset_t {
    // SAFETY: the set is initialised by sigemptyset before signals are added.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(&mut set, signal);
        }
        set
    }
}

/// Blocks SIGINT, SIGTERM and SIGHUP in this thread and those it starts later, so that one thread can wait for them.
pub fn catch_signals() {
    // SAFETY: the set is initialised.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &stop_signals(), std::ptr::null_mut()) };
}

/// Waits for one of the signals of [`catch_signals`] and returns it.
pub fn wait_for_stop_signal() -> i32 {
    let mut signal = 0;
    // SAFETY: the set is initialised, `signal` is a valid place for the answer.
    unsafe { libc::sigwait(&stop_signals(), &mut signal) };
    signal
}

/// Closes `file` and returns the error, which std drops.
pub fn close(file: File) -> io::Result<()> {
    let descriptor = file.into_raw_fd();
    // SAFETY: the descriptor is ours, open, and not used after this.
    check(unsafe { libc::close(descriptor) })
}

/// Flushes the file system that holds `file`.
pub fn sync_filesystem(file: &File) -> io::Result<()> {
    // SAFETY: a plain system call on an open descriptor.
    check(unsafe { libc::syncfs(file.as_raw_fd()) })
}

/// Makes the empty file `path` without opening it.
pub fn make_file(path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: `path` ends in NUL and lives across the call.
    check(unsafe { libc::mknod(path.as_ptr(), libc::S_IFREG | 0o666, 0) })
}

/// Value of the extended attribute `name` of `path` (symbolic links are followed).
pub fn get_xattr(path: &Path, name: &CStr) -> io::Result<Vec<u8>> {
    let path = c_path(path)?;
    let mut value = vec![0_u8; 64 << 10];
    // SAFETY: both strings end in NUL; the kernel writes at most `value.len()` bytes.
    let length = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    value.truncate(usize::try_from(length).map_err(|_| io::Error::last_os_error())?);
    Ok(value)
}

/// Sets the extended attribute `name` of `path`.
pub fn set_xattr(path: &Path, name: &CStr, value: &[u8]) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: both strings end in NUL; the kernel reads `value.len()` bytes of `value`.
    check(unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) })
}

/// Removes the extended attribute `name` of `path`.
pub fn remove_xattr(path: &Path, name: &CStr) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: both strings end in NUL and live across the call.
    check(unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) })
}

/// The next data of `file` at or after `offset`: where it begins and ends.
pub fn next_data(file: &File, offset: u64) -> io::Result<Option<(u64, u64)>> {
    let seek = |offset: u64, what: i32| {
        // SAFETY: a plain system call on an open descriptor.
        let found = unsafe { libc::lseek(file.as_raw_fd(), offset as i64, what) };
        u64::try_from(found).map_err(|_| io::Error::last_os_error())
    };
    match seek(offset, libc::SEEK_DATA) {
        Ok(start) => Ok(Some((start, seek(start, libc::SEEK_HOLE)?))),
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The name and number of a user.
pub fn show_user(user: u32) -> String {
    // SAFETY: the result is read at once, before another call in this program replaces it.
    let name = unsafe {
        libc::getpwuid(user).as_ref().map(|entry| CStr::from_ptr(entry.pw_name).to_string_lossy().into_owned())
    };
    name.map_or_else(|| format!("user {user}"), |name| format!("{name} (user {user})"))
}

/// The user with this name.
pub fn user_named(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: `name` ends in NUL; the result is read at once, before another call in this program replaces it.
    unsafe { libc::getpwnam(name.as_ptr()).as_ref().map(|user| user.pw_uid) }
}

/// The group with this name.
pub fn group_named(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: as in `user_named`.
    unsafe { libc::getgrnam(name.as_ptr()).as_ref().map(|group| group.gr_gid) }
}

/// True if `name` matches the shell `pattern`.
pub fn matches_pattern(pattern: &CStr, name: &CStr) -> bool {
    // SAFETY: both end in NUL.
    unsafe { libc::fnmatch(pattern.as_ptr(), name.as_ptr(), 0) == 0 }
}

/// [`matches_pattern`], ignoring case.
pub fn matches_pattern_of_any_case(pattern: &CStr, name: &CStr) -> bool {
    // SAFETY: both end in NUL.
    unsafe { libc::fnmatch(pattern.as_ptr(), name.as_ptr(), libc::FNM_CASEFOLD) == 0 }
}

/// Sets access and modification time of an open file, in nanoseconds since 1970.
pub fn set_times_of(file: &File, atime_ns: i128, mtime_ns: i128) -> io::Result<()> {
    let times = [timespec(atime_ns), timespec(mtime_ns)];
    // SAFETY: the descriptor is open, `times` holds the two entries the call reads.
    check(unsafe { libc::futimens(file.as_raw_fd(), times.as_ptr()) })
}

/// Sets access and modification time of `path`, in seconds since 1970.
pub fn set_times(path: &Path, seconds: i64) -> io::Result<()> {
    let path = c_path(path)?;
    let time = libc::timespec { tv_sec: seconds, tv_nsec: 0 };
    // SAFETY: `path` ends in NUL and lives across the call, as do the two entries that it reads.
    check(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), [time; 2].as_ptr(), 0) })
}

/// Nanoseconds since 1970 as a timespec.
pub fn timespec(ns: i128) -> libc::timespec {
    libc::timespec { tv_sec: ns.div_euclid(1_000_000_000) as i64, tv_nsec: ns.rem_euclid(1_000_000_000) as i64 }
}

/// Bytes that this user may still use in the file system at `path`.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let path = c_path(path)?;
    // SAFETY: all zeros is a valid statvfs; `path` ends in NUL.
    unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        check(libc::statvfs(path.as_ptr(), &mut stat))?;
        Ok(stat.f_bavail * stat.f_frsize)
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// The result of a system call that returns 0 on success.
pub fn check(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_of_a_process_is_read_past_a_name_with_blanks_and_brackets() {
        let stat = "12 (a) b (c) S 1 12 12 0 -1 4194560 100 0 0 0 250 30 0 0 20 0 1 0 5 6 7";
        assert_eq!(parse_stat_ticks(stat), Some(280));
        assert_eq!(parse_stat_ticks("12 (short) S 1"), None);
    }

    #[test]
    fn own_process_has_a_peak_that_is_not_below_its_memory() {
        assert!(memory_bytes("VmRSS") > 0 && memory_bytes("VmHWM") >= 1 << 20);
        assert_eq!(memory_bytes("VmNothing"), 0);
    }

    #[test]
    fn own_process_has_cpu_seconds_and_pid_zero_has_none() {
        assert!(cpu_seconds_of(std::process::id()).is_some());
        assert!(cpu_seconds_of(0).is_none());
    }
}
