//! Tasks of a shard.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

/// A started task. Await it for its value; `None` if it was aborted or its node was killed.
pub struct Task<T> {
    pub(crate) value: crate::sync::oneshot::Receiver<T>,
    pub(crate) abort: Box<dyn Fn()>,
}

impl<T> Task<T> {
    /// Ends the task at its next await point.
    pub fn abort(&self) {
        (self.abort)();
    }
}

impl<T> Future for Task<T> {
    type Output = Option<T>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        Pin::new(&mut self.value).poll(cx).map(Result::ok)
    }
}
