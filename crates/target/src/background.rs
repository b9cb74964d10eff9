//! What a target does by itself: follows commits, notices a failed store, evicts silent sessions.

use std::{rc::Rc, time::Duration};

use crate::{TargetState, core::Core, limits, service::Nobody};

/// Starts all of it; it ends with the target.
pub(crate) fn start(core: &Rc<Core>) {
    spawn(core, |core| async move { core.follow_commits().await });
    spawn(core, |core| async move { core.watch_store().await });
    spawn(core, |core| async move {
        let _held = LetGoOfService(core.clone());
        core.watch_sessions().await;
    });
}

/// Held by a task, so that it is dropped when the target is closed, and when its node dies in the simulator.
struct LetGoOfService(Rc<Core>);

impl Drop for LetGoOfService {
    fn drop(&mut self) {
        // The old one is dropped after the borrow: it may hold the last handles of other things.
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
    /// Lets go of what a commit allows: replies that waited for it, keys that are clean, requests that settle.
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

    /// Stops the target when a commit fails, whoever waits for it or not.
    async fn watch_store(&self) {
        while self.state.get() != TargetState::Stopped {
            self.applied.notified().await;
            let Some(point) = self.last_point.get() else { continue };
            if let Err(error) = self.store.committed(point).await {
                self.stop(&error.message);
            }
        }
    }

    /// Sleeps; how much longer than that it took: the server was stopped (SIGSTOP, a machine that swaps), and nobody may be
    /// blamed for that time. What came meanwhile is read before this returns.
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

    /// Evicts sessions nothing was heard of for too long.
    async fn watch_sessions(&self) {
        let timeout = self.options.session_timeout;
        loop {
            let stopped = self.sleep_running(timeout / 4).await;
            if self.state.get() != TargetState::Serving {
                continue;
            }
            let now = self.env.now();
            for session in self.all_sessions() {
                // What it sent while this server stood still is not read yet.
                session.last_seen.set(session.last_seen.get() + stopped);
                if now.since(session.last_seen.get()) >= timeout {
                    self.evict(&session, &format!("nothing was heard of it for {timeout:?}")).await;
                }
            }
        }
    }
}
