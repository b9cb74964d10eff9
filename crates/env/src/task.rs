//! Tasks of a shard.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

use crate::{Elapsed, sync::oneshot};

/// A future behind a pointer.
///
/// An `async fn` is compiled by each crate that awaits it. A function that returns this type is compiled once, in its
/// own crate. So functions that other crates call, and that are long or called with many types, return it. The
/// allocation costs little compared with a request or an open.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A started task. Await it for its value; `None` if it was aborted or its node was killed.
pub struct Task<T> {
    pub(crate) value: oneshot::Receiver<T>,
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

pin_project! {
    /// A future that sends its value to a waiting task. An async block would hold the future twice: as it was passed,
    /// and as it is awaited. ([`Timed`] is none for the same reason.)
    pub(crate) struct Told<F: Future> {
        #[pin]
        future: F,
        waiting: Option<oneshot::Sender<F::Output>>,
    }
}

impl<F: Future> Told<F> {
    pub(crate) fn new(future: F) -> (Self, oneshot::Receiver<F::Output>) {
        let (waiting, value) = oneshot::channel();
        (Self { future, waiting: Some(waiting) }, value)
    }
}

impl<F: Future> Future for Told<F> {
    type Output = ();
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let value = ready!(this.future.poll(cx));
        drop(this.waiting.take().map(|waiting| waiting.send(value)));
        Poll::Ready(())
    }
}

pin_project! {
    /// A future with a timeout.
    pub(crate) struct Timed<F, S> {
        #[pin]
        pub(crate) future: F,
        #[pin]
        pub(crate) sleep: S,
    }
}

impl<F: Future, S: Future<Output = ()>> Future for Timed<F, S> {
    type Output = Result<F::Output, Elapsed>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(value) = this.future.poll(cx) {
            return Poll::Ready(Ok(value));
        }
        this.sleep.poll(cx).map(|()| Err(Elapsed))
    }
}
