//! A panic is a defect, and costs the request at hand: not the process, and not the accounts of other requests.
//!
//! Panics are caught where a stream is polled or dropped, and where the engine is called. They are logged and counted. A
//! `Drop` that panics while another panic unwinds would abort the process, and so nothing that a stream drops may let one
//! out: not the stream itself, and not its ticket.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use futures_util::Stream;
use tonic::Status;

/// Catches panics, and counts them.
#[derive(Debug, Default)]
pub struct Panics {
    caught: AtomicU64,
}

impl Panics {
    /// Calls `work`, which is a part of `place`. `None` if it panicked.
    pub fn contain<T>(&self, place: &'static str, work: impl FnOnce() -> T) -> Option<T> {
        // What may be left half-done is looked after by the caller: a stream is dropped, the engine is told what it lost.
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(value) => Some(value),
            Err(payload) => {
                self.caught.fetch_add(1, Ordering::Relaxed);
                let panic = message(&*payload);
                tracing::error!(
                    place,
                    panic,
                    "panic caught: a defect of Forebay; only the request at hand fails"
                );
                None
            }
        }
    }

    /// Panics caught so far.
    pub fn caught(&self) -> u64 {
        self.caught.load(Ordering::Relaxed)
    }
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&'static str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("not a text")
}

/// A stream of replies that ends with an error if it panics.
#[derive(Debug)]
pub struct Contained<S> {
    stream: Option<S>,
    panics: Arc<Panics>,
}

impl<S> Contained<S> {
    /// Contains the panics of `stream`.
    pub fn new(stream: S, panics: Arc<Panics>) -> Self {
        let stream = Some(stream);
        Self { stream, panics }
    }

    fn end(&mut self) {
        if let Some(stream) = self.stream.take() {
            self.panics.contain("end of a stream", || drop(stream));
        }
    }
}

impl<S, T> Stream for Contained<S>
where
    S: Stream<Item = Result<T, Status>> + Unpin,
{
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { stream, panics } = &mut *self;
        let Some(stream) = stream else {
            return Poll::Ready(None);
        };
        if let Some(polled) = panics.contain("stream", || Pin::new(stream).poll_next(cx)) {
            return polled;
        }
        self.end();
        Poll::Ready(Some(Err(Status::internal(
            "the endpoint picker failed on this request",
        ))))
    }
}

impl<S> Drop for Contained<S> {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, StreamExt};
    use tonic::Code;

    use super::*;

    /// Panics when it is polled for the second time, and when it is dropped.
    struct Faulty(u32);

    impl Stream for Faulty {
        type Item = Result<u32, Status>;

        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            self.0 += 1;
            assert!(self.0 < 2, "a defect");
            Poll::Ready(Some(Ok(self.0)))
        }
    }

    impl Drop for Faulty {
        fn drop(&mut self) {
            panic!("another one");
        }
    }

    #[test]
    fn a_stream_that_panics_ends_with_an_error_and_panics_no_further_when_it_is_dropped() {
        let panics = Arc::<Panics>::default();
        let mut stream = Contained::new(Faulty(0), Arc::clone(&panics));
        let mut next = || stream.next().now_or_never().expect("it never waits");

        assert_eq!(next().map(Result::ok), Some(Some(1)));
        assert_eq!(next().unwrap().unwrap_err().code(), Code::Internal);
        assert!(next().is_none());
        assert_eq!(panics.caught(), 2);
    }

    #[test]
    fn streams_that_are_dropped_while_a_panic_unwinds_do_not_abort_the_process() {
        let panics = Arc::<Panics>::default();
        let streams: Vec<_> = (0..3).map(|_| Contained::new(Faulty(0), Arc::clone(&panics))).collect();

        panics.contain("test", move || {
            let _streams = streams;
            panic!("the first of four");
        });

        assert_eq!(panics.caught(), 4);
    }
}
