//! The real half of [`crate::Env`]: one shard, one thread.

use std::{
    future::Future,
    panic::{self, AssertUnwindSafe},
    rc::{Rc, Weak},
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::task::LocalSet;

use super::{Disks, disk, files, net};
use crate::{
    Address, Boxed, Disk, Env, EnvResult, FileLock, Network, OpenDisk, Side, Stream, Time, UnixTime, env::Half,
    net::ListenerHalf, sync::oneshot,
};

/// Weak, because tasks hold their environment and the set holds the tasks.
pub(crate) struct RealEnv {
    tasks: Weak<LocalSet>,
    disks: Disks,
}

/// The environment of the shard that runs `tasks`.
pub(super) fn shard(tasks: Weak<LocalSet>, disks: Disks) -> Env {
    Env { half: Half::Real(Rc::new(RealEnv { tasks, disks })), network: Rc::default(), encrypts: false }
}

impl RealEnv {
    pub(crate) fn now(&self) -> Time {
        Time(clock_ns(libc::CLOCK_MONOTONIC) as u64)
    }

    pub(crate) fn unix_time(&self) -> UnixTime {
        UnixTime(clock_ns(libc::CLOCK_REALTIME))
    }

    pub(crate) async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    /// Directly from the system: a generator kept here would repeat itself in the two processes after a fork.
    pub(crate) fn random_u64(&self) -> u64 {
        let mut bytes = [0u8; 8];
        let mut filled = 0;
        while filled < bytes.len() {
            let rest = &mut bytes[filled..];
            // SAFETY: `rest` is writable for its length.
            let n = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
            filled += usize::try_from(n).unwrap_or(0);
        }
        u64::from_ne_bytes(bytes)
    }

    /// The returned function ends the task.
    pub(crate) fn spawn(&self, future: Boxed<'static, ()>) -> Box<dyn Fn()> {
        // Without its tasks the shard is ending, and this is the Drop of some task: the future ends at once too.
        let handle = self.tasks.upgrade().map(|tasks| tasks.spawn_local(future).abort_handle());
        Box::new(move || handle.iter().for_each(tokio::task::AbortHandle::abort))
    }

    /// The first poll of the future has no waker. If it waits, the task that continues it polls again.
    pub(crate) fn begin(&self, mut future: Boxed<'static, ()>) {
        let mut nobody = Context::from_waker(Waker::noop());
        // If it panics, it ends alone, as a task of its own would, and drops what it holds.
        match panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut nobody))) {
            Ok(Poll::Pending) => drop(self.tasks.upgrade().map(|tasks| tasks.spawn_local(future))),
            Ok(Poll::Ready(())) | Err(_) => {}
        }
    }

    pub(crate) fn spawn_shard<M, F>(&self, name: &str, main: M) -> oneshot::Receiver<F::Output>
    where
        M: FnOnce(Env) -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let (done, value) = oneshot::channel();
        let disks = self.disks;
        let thread = std::thread::Builder::new().name(name.to_string());
        let started = thread.spawn(move || drop(done.send(super::run_with(disks, main))));
        // The sender was dropped with the closure: the receiver errs, as for a shard that was killed.
        if let Err(error) = started {
            self.log(&format!("cannot start shard {name}: {error}; raise the limit of processes (ulimit -u)"));
        }
        value
    }

    pub(crate) async fn listen(&self, address: &Address, network: &Network) -> EnvResult<ListenerHalf> {
        net::listen(address, network).await
    }

    pub(crate) async fn connect(&self, address: &Address, network: &Network) -> EnvResult<Stream> {
        net::connect(address, network).await
    }

    pub(crate) async fn open_disk(&self, path: &str, options: OpenDisk) -> EnvResult<Disk> {
        match self.disks {
            Disks::Keep => disk::open(path, options).await,
            Disks::Forget => disk::open_forgetful(path, options, self.random_u64()).await,
        }
    }

    pub(crate) fn read_file(&self, path: &str) -> EnvResult<Vec<u8>> {
        files::read(path)
    }

    pub(crate) fn write_file(&self, path: &str, bytes: &[u8]) -> EnvResult<()> {
        files::write(path, bytes)
    }

    pub(crate) fn remove_file(&self, path: &str) -> EnvResult<()> {
        files::remove(path)
    }

    pub(crate) fn create_dir(&self, path: &str) -> EnvResult<()> {
        files::create_dir(path)
    }

    pub(crate) fn lock_file(&self, path: &str) -> EnvResult<FileLock> {
        files::lock(path)
    }

    pub(crate) async fn charge_cpu(&self, _work: Duration) {}

    pub(crate) async fn charge_message(&self, _side: Side, _op: u16, _bytes: usize) {}

    pub(crate) async fn charge_bytes(&self, _side: Side, _op: u16, _bytes: usize) {}

    pub(crate) fn log(&self, line: &str) {
        eprintln!("{} {line}", utc(self.unix_time()));
    }
}

fn clock_ns(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a writable timespec.
    let answer = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(answer, 0, "Linux has had these clocks forever");
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// `2026-01-31T23:59:59.123Z`.
fn utc(time: UnixTime) -> String {
    let (seconds, ms) = (time.0.div_euclid(1_000_000_000), time.0.rem_euclid(1_000_000_000) / 1_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Year, month and day of a day since 1970-01-01, counted in eras of 400 years that begin in March.
///
/// Source: Howard Hinnant, "chrono-compatible low-level date algorithms".
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, rc::Rc};

    use super::utc;
    use crate::{UnixTime, sync::Notify};

    #[test]
    fn a_begun_future_runs_at_once_until_it_waits_and_its_panic_ends_no_other_task() {
        crate::real::run(async |env| {
            let (notify, count) = (Rc::new(Notify::new()), Rc::new(Cell::new(0)));
            env.begin({
                let count = count.clone();
                async move { count.set(1) }
            });
            assert_eq!(count.get(), 1, "done before it returned");
            env.begin({
                let (notify, count) = (notify.clone(), count.clone());
                async move {
                    notify.notified().await;
                    count.set(10);
                }
            });
            env.begin(async { panic!("alone") });
            notify.notify_one();
            while count.get() != 10 {
                env.yield_now().await;
            }
        });
    }

    #[test]
    fn log_lines_carry_utc() {
        assert_eq!(utc(UnixTime(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc(UnixTime(1_709_251_199_999_000_000)), "2024-02-29T23:59:59.999Z");
        assert_eq!(utc(UnixTime(-1_000_000)), "1969-12-31T23:59:59.999Z");
    }
}
