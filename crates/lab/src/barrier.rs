//! Processes that wait for each other, as in MPI_Barrier.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use forebay_client::ClientResult;
use forebay_env::{Env, Time, sync::Notify};

/// A barrier.
#[derive(Default)]
pub struct Barrier {
    inner: Rc<Inner>,
}

#[derive(Default)]
struct Inner {
    missing: Cell<u32>,
    last: Cell<Option<Time>>,
    ended: Notify,
    failure: RefCell<Option<String>>,
}

impl Barrier {
    /// Starts a process that the barrier waits for.
    pub fn run(&self, env: &Env, process: impl Future<Output = ClientResult<()>> + 'static) {
        let (inner, own) = (self.inner.clone(), env.clone());
        inner.missing.set(inner.missing.get() + 1);
        drop(env.spawn(async move {
            if let Err(error) = process.await {
                inner.failure.borrow_mut().get_or_insert(error.to_string());
            }
            inner.missing.set(inner.missing.get() - 1);
            inner.last.set(Some(own.now()));
            inner.ended.notify_waiters();
        }));
    }

    /// Waits for all processes and returns the time when the last one ended. Errors: the first failure, or that there
    /// was no process.
    pub async fn all(&self) -> Result<Time, String> {
        loop {
            let ended = self.inner.ended.notified();
            if self.inner.missing.get() == 0 {
                break;
            }
            ended.await;
        }
        match self.inner.failure.take() {
            Some(words) => Err(words),
            None => self.inner.last.get().ok_or_else(|| "nobody came to the barrier".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use forebay_client::ClientError;
    use forebay_env::sim::Sim;
    use forebay_proto::Errno;

    use super::*;

    #[test]
    fn a_barrier_ends_with_the_last_task_and_reports_the_first_failure() {
        let sim = Sim::new(1);
        let env = sim.env(sim.add_node("host"));
        let (ended, failed, nobody) = sim.block_on(async {
            let slow = |ms, result: ClientResult<()>| {
                let env = env.clone();
                async move {
                    env.sleep(Duration::from_millis(ms)).await;
                    result
                }
            };
            let barrier = Barrier::default();
            [3, 1, 2].into_iter().for_each(|ms| barrier.run(&env, slow(ms, Ok(()))));
            let begun = sim.now();
            let ended = barrier.all().await.map(|last| last.since(begun));
            let barrier = Barrier::default();
            let error = |words: &str| Err(ClientError::new(Errno::EIO, words.to_owned()));
            barrier.run(&env, slow(3, error("second")));
            barrier.run(&env, slow(1, error("first")));
            (ended, barrier.all().await.map(drop), Barrier::default().all().await.map(drop))
        });
        assert_eq!(ended, Ok(Duration::from_millis(3)));
        assert!(failed.expect_err("one failed").contains("first"));
        assert!(nobody.is_err());
    }
}
