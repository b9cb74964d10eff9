//! Several requests at once, work that outlives the call that started it, and counts of work under way.

use std::{cell::Cell, rc::Rc};

use forebay_env::{Env, sync::Notify};
use forebay_proto::Errno;

use crate::{ClientError, errors::Trouble};

/// Runs all `futures` at once; their results in their order. A single one runs in place.
pub(crate) async fn all<T, E, F>(env: &Env, futures: impl IntoIterator<Item = F>) -> Vec<Result<T, E>>
where
    T: 'static,
    E: From<ClientError> + 'static,
    F: Future<Output = Result<T, E>> + 'static,
{
    let mut futures: Vec<F> = futures.into_iter().collect();
    if futures.len() == 1 {
        return vec![futures.remove(0).await];
    }
    let tasks: Vec<_> = futures.into_iter().map(|future| env.spawn(future)).collect();
    let mut results = Vec::with_capacity(tasks.len());
    for task in tasks {
        results.push(task.await.unwrap_or_else(|| Err(ended().into())));
    }
    results
}

/// As [`all`]; the first error in their order, if there is one.
pub(crate) async fn try_all<T, E, F>(env: &Env, futures: impl IntoIterator<Item = F>) -> Result<Vec<T>, E>
where
    T: 'static,
    E: From<ClientError> + 'static,
    F: Future<Output = Result<T, E>> + 'static,
{
    all(env, futures).await.into_iter().collect()
}

/// Runs `future` to its end even if the caller stops waiting for it. It begins at once.
pub(crate) fn detached<T, E, F>(env: &Env, future: F) -> impl Future<Output = Result<T, E>> + use<T, E, F>
where
    T: 'static,
    E: From<ClientError> + 'static,
    F: Future<Output = Result<T, E>> + 'static,
{
    let task = env.spawn(future);
    async move { task.await.unwrap_or_else(|| Err(ended().into())) }
}

/// How much work of one kind is under way.
#[derive(Default)]
pub(crate) struct UnderWay {
    count: Cell<usize>,
    ended: Notify,
}

impl UnderWay {
    /// Some is under way.
    pub fn any(&self) -> bool {
        self.count.get() > 0
    }

    /// Waits until none is.
    pub async fn ended(&self) {
        while self.any() {
            self.ended.notified().await;
        }
    }
}

/// Work that counts as under way until this is dropped. Who counts it lives as long.
pub(crate) struct Counted<T: 'static> {
    owner: Rc<T>,
    kind: fn(&T) -> &UnderWay,
}

impl<T> Counted<T> {
    pub fn new(owner: &Rc<T>, kind: fn(&T) -> &UnderWay) -> Self {
        let count = &kind(owner).count;
        count.set(count.get() + 1);
        Self { owner: owner.clone(), kind }
    }
}

impl<T> Drop for Counted<T> {
    fn drop(&mut self) {
        let work = (self.kind)(&self.owner);
        work.count.set(work.count.get() - 1);
        if !work.any() {
            work.ended.notify_waiters();
        }
    }
}

fn ended() -> ClientError {
    ClientError::new(Errno::EIO, "the client ended during the call")
}

/// The first failure, a stale one if there is any: then the whole attempt is repeated.
pub(crate) fn worst(troubles: impl IntoIterator<Item = Trouble>) -> Option<Trouble> {
    let mut first = None;
    for trouble in troubles {
        if matches!(trouble, Trouble::Stale(_)) {
            return Some(trouble);
        }
        first.get_or_insert(trouble);
    }
    first
}
