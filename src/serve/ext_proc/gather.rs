//! Fewer and larger writes.
//!
//! HTTP/2 writes and flushes each data frame by itself, and on loopback a write costs as much as the rest of a small
//! message. A connection has many streams, of which several have something to say in the same turn of the runtime. So
//! small writes are gathered here, and a flush is put off by one turn: the streams that are ready by then go with it.
//!
//! What is gathered is bounded, nothing waits longer than a turn, and large writes are not copied.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// Larger writes go out at once, together with what was gathered before them.
const SMALL_WRITE_BYTES: usize = 4 * 1024;
/// Bytes that are gathered at most.
const GATHERED_BYTES: usize = 64 * 1024;

/// A connection whose writes are gathered.
///
/// Its owner must read, or try to, in every turn before it flushes, as HTTP/2 does: that tells one turn from the next.
/// With another owner nothing is lost, but less is gathered.
#[derive(Debug)]
pub(super) struct Gathered<C> {
    connection: C,
    gathered: BytesMut,
    /// Something was gathered after the last flush.
    has_news: bool,
    flush: Flush,
}

/// What became of the last flush that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flush {
    Done,
    /// It was put off in this turn.
    PutOff,
    /// It was put off in an earlier turn.
    Due,
}

impl<C: AsyncWrite + Unpin> Gathered<C> {
    pub(super) fn new(connection: C) -> Self {
        Self {
            connection,
            gathered: BytesMut::new(),
            has_news: false,
            flush: Flush::Done,
        }
    }

    /// Writes what was gathered.
    fn poll_release(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.gathered.is_empty() {
            let written = ready!(Pin::new(&mut self.connection).poll_write(cx, &self.gathered))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.gathered.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    /// Writes what was gathered and `bufs` after it, and tells how much of `bufs` went out.
    fn poll_write_through(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        while !self.gathered.is_empty() {
            let gathered = IoSlice::new(&self.gathered);
            let all: SmallVec<[IoSlice<'_>; 8]> = std::iter::once(gathered).chain(bufs.iter().copied()).collect();
            let written = ready!(Pin::new(&mut self.connection).poll_write_vectored(cx, &all))?;
            drop(all);
            let of_gathered = written.min(self.gathered.len());
            self.gathered.advance(of_gathered);
            if written == 0 || written > of_gathered {
                return Poll::Ready(Ok(written - of_gathered));
            }
        }
        self.has_news = false;
        Pin::new(&mut self.connection).poll_write_vectored(cx, bufs)
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for Gathered<C> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let length = bufs.iter().map(|buf| buf.len()).sum();
        if length > SMALL_WRITE_BYTES || this.gathered.len() + length > GATHERED_BYTES {
            return this.poll_write_through(cx, bufs);
        }
        for buf in bufs {
            this.gathered.extend_from_slice(buf);
        }
        this.has_news = true;
        Poll::Ready(Ok(length))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.has_news && this.flush != Flush::Due {
            this.has_news = false;
            if this.flush == Flush::Done {
                this.flush = Flush::PutOff;
                cx.waker().wake_by_ref();
            }
            return Poll::Ready(Ok(()));
        }
        ready!(this.poll_release(cx))?;
        this.has_news = false;
        this.flush = Flush::Done;
        Pin::new(&mut this.connection).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_release(cx))?;
        Pin::new(&mut this.connection).poll_shutdown(cx)
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for Gathered<C> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.flush == Flush::PutOff {
            this.flush = Flush::Due;
        }
        Pin::new(&mut this.connection).poll_read(cx, buf)
    }
}

impl<C: Connected> Connected for Gathered<C> {
    type ConnectInfo = C::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.connection.connect_info()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use futures_util::task::noop_waker_ref;
    use proptest::prelude::*;

    use super::*;

    /// Takes what is written, so much at a time.
    #[derive(Debug)]
    struct Wire {
        writes: Vec<Vec<u8>>,
        room: usize,
        is_shut: bool,
    }

    impl Wire {
        fn with_room(room: usize) -> Gathered<Self> {
            Gathered::new(Self {
                writes: Vec::new(),
                room,
                is_shut: false,
            })
        }
    }

    impl AsyncWrite for Wire {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            let taken = buf.len().min(self.room);
            self.writes.push(buf[..taken].to_vec());
            Poll::Ready(Ok(taken))
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bufs: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let all: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
            self.poll_write(cx, &all)
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.is_shut = true;
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncRead for Wire {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    #[derive(Debug, Default)]
    struct Calls(AtomicUsize);

    impl Wake for Calls {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn begin_turn(wire: &mut Gathered<Wire>) {
        let nothing = Pin::new(wire).poll_read(&mut context(), &mut ReadBuf::new(&mut []));
        assert!(nothing.is_pending());
    }

    fn write(wire: &mut Gathered<Wire>, bytes: &[u8]) -> usize {
        match Pin::new(wire).poll_write(&mut context(), bytes) {
            Poll::Ready(Ok(written)) => written,
            other => panic!("the wire takes bytes, and yet: {other:?}"),
        }
    }

    fn write_all(wire: &mut Gathered<Wire>, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = &bytes[write(wire, bytes)..];
        }
    }

    fn flush(wire: &mut Gathered<Wire>) {
        assert!(matches!(Pin::new(wire).poll_flush(&mut context()), Poll::Ready(Ok(()))));
    }

    fn context() -> Context<'static> {
        Context::from_waker(noop_waker_ref())
    }

    #[test]
    fn frames_of_a_turn_and_of_the_next_one_go_out_in_one_write() {
        let mut wire = Wire::with_room(usize::MAX);

        begin_turn(&mut wire);
        for frame in [b"a", b"b"] {
            write_all(&mut wire, frame);
            flush(&mut wire);
        }
        assert!(wire.connection.writes.is_empty());
        begin_turn(&mut wire);
        write_all(&mut wire, b"c");
        flush(&mut wire);

        assert_eq!(wire.connection.writes, [b"abc"]);
    }

    #[test]
    fn whoever_puts_off_a_flush_is_called_again() {
        let calls = Arc::new(Calls::default());
        let mut wire = Wire::with_room(usize::MAX);
        write_all(&mut wire, b"a");

        let waker = Waker::from(Arc::clone(&calls));
        let flushed = Pin::new(&mut wire).poll_flush(&mut Context::from_waker(&waker));

        assert!(matches!(flushed, Poll::Ready(Ok(()))));
        assert_eq!(calls.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_second_flush_without_news_is_not_put_off_again() {
        let mut wire = Wire::with_room(usize::MAX);
        write_all(&mut wire, b"a");

        flush(&mut wire);
        flush(&mut wire);

        assert_eq!(wire.connection.writes, [b"a"]);
    }

    #[test]
    fn a_large_write_takes_along_what_was_gathered() {
        let mut wire = Wire::with_room(usize::MAX);
        let large = vec![b'x'; SMALL_WRITE_BYTES + 1];

        write_all(&mut wire, b"a");
        write_all(&mut wire, &large);

        assert_eq!(wire.connection.writes, [[b"a", &large[..]].concat()]);
    }

    #[test]
    fn what_was_gathered_goes_out_before_the_end() {
        let mut wire = Wire::with_room(usize::MAX);
        write_all(&mut wire, b"a");

        let shut = Pin::new(&mut wire).poll_shutdown(&mut context());

        assert!(matches!(shut, Poll::Ready(Ok(()))));
        assert_eq!(wire.connection.writes, [b"a"]);
        assert!(wire.connection.is_shut);
    }

    proptest! {
        #[test]
        fn all_bytes_arrive_in_order_and_what_is_held_is_bounded(
            steps in prop::collection::vec((0..9000_usize, 0..3_u8), 1..60),
            room in 1..20_000_usize,
        ) {
            let mut wire = Wire::with_room(room);
            let mut sent = Vec::new();

            for (number, (length, what)) in steps.into_iter().enumerate() {
                match what {
                    0 => begin_turn(&mut wire),
                    1 => flush(&mut wire),
                    _ => {
                        let bytes = vec![number as u8; length];
                        write_all(&mut wire, &bytes);
                        sent.extend(bytes);
                    }
                }
                prop_assert!(wire.gathered.len() <= GATHERED_BYTES);
            }
            flush(&mut wire);
            flush(&mut wire);

            prop_assert_eq!(wire.connection.writes.concat(), sent);
        }
    }
}
