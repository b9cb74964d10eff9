//! Processes that wait for each other, as behind MPI_Barrier.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use forebay_client::ClientResult;
use forebay_env::{Env, Time, sync::Notify};

/// See the module.
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
    /// Starts one of them.
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

    /// Waits for all of them. When the last one ended. Errors: words; also if there were none.
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
