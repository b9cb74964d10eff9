//! Background tasks of a target: they follow commits, notice a failed store, and evict silent sessions.

use std::{rc::Rc, time::Duration};

use crate::{TargetState, core::Core, limits, service::Nobody};

/// Starts all tasks; they end with the target.
pub(crate) fn start(core: &Rc<Core>) {
    spawn(core, |core| async move { core.follow_commits().await });
    spawn(core, |core| async move { core.watch_store().await });
    spawn(core, |core| async move {
        let _held = DropService(core.clone());
        core.watch_sessions().await;
    });
}

/// Drops the service when the target ends. A task holds this value, so it is dropped when the target is closed, and
/// when its node dies in the simulator.
struct DropService(Rc<Core>);

impl Drop for DropService {
    fn drop(&mut self) {
        // The old service is dropped after the borrow: it may hold the last handles of other objects.
        let service = self.0.service.replace(Rc::new(Nobody));
        drop(service);
    }
}

fn spawn<F: Future<Output = ()> + 'static>(core: &Rc<Core>, task: impl FnOnce(Rc<Core>) -> F) {
    let (closed, task) = (core.closed.clone(), task(core.clone()));
    core.env.spawn(async move {
        forebay_env::sync::select! {
            biased;
            () = closed.wait() => {}
            () = task => {}
        }
    });
}

impl Core {
    /// Releases what a commit allows: replies and requests that waited for it, and keys that are committed now.
    async fn follow_commits(&self) {
        let mut commits = self.store.on_commit();
        while commits.changed().await.is_ok() {
            self.dirty.borrow_mut().committed(self.store.last_committed());
            let waiting = self.awaiting_commit.take();
            for session in waiting.into_iter().filter_map(|id| self.session(id)) {
                self.flush(&session);
            }
            self.commits.notify_waiters();
        }
    }

    /// Stops the target when a commit fails, whether a request waits for that commit or not.
    async fn watch_store(&self) {
        while self.state.get() != TargetState::Stopped {
            self.applied.notified().await;
            let Some(point) = self.last_point.get() else { continue };
            if let Err(error) = self.store.committed(point).await {
                self.stop(&error.message);
            }
        }
    }

    /// Sleeps, and returns for how long the server was stopped meanwhile (SIGSTOP, a machine that swaps). That time
    /// must not count against any client. The server reads the requests that arrived meanwhile before this returns.
    pub(crate) async fn sleep_running(&self, duration: Duration) -> Duration {
        let begun = self.env.now();
        self.env.sleep(duration).await;
        let stopped = self.env.now().since(begun).saturating_sub(duration);
        if stopped < limits::STOPPED_AT_LEAST {
            return Duration::ZERO;
        }
        self.log(&format!("this server stood still for {stopped:?}"));
        let read = self.env.now();
        self.env.sleep(limits::STOPPED_AT_LEAST).await;
        stopped + self.env.now().since(read)
    }

    /// Evicts sessions that sent nothing for the session timeout.
    async fn watch_sessions(&self) {
        let timeout = self.options.session_timeout;
        loop {
            let stopped = self.sleep_running(timeout / 4).await;
            if self.state.get() != TargetState::Serving {
                continue;
            }
            let now = self.env.now();
            for session in self.all_sessions() {
                // The time that this server was stopped does not count: what the client sent then may not be read yet.
                session.last_seen.set(session.last_seen.get() + stopped);
                if now.since(session.last_seen.get()) >= timeout {
                    self.evict(&session, &format!("nothing was heard of it for {timeout:?}")).await;
                }
            }
        }
    }
}
