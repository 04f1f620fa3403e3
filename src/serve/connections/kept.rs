//! A connection in its place.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::transport::server::Connected;

use super::{Place, Use};

/// The first request of a connection has to begin within this time.
const FIRST_REQUEST: Duration = Duration::from_secs(10);
/// Somebody has to read again within this time, once nothing more fits into the buffers.
const STALLED_WRITE: Duration = Duration::from_secs(30);

/// A connection that ends when it has to make room, when no request comes over it, and when nobody reads what it says.
#[derive(Debug)]
pub struct Kept<C> {
    connection: C,
    displaced: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Over if the first request did not begin by then. `None` once it has.
    silence: Option<Pin<Box<Sleep>>>,
    /// Over if a write that waits does not go on. `None` while none waits.
    stall: Option<Pin<Box<Sleep>>>,
    place: Place,
}

impl<C> Kept<C> {
    /// Keeps `connection` in `place`. Needs a tokio runtime.
    pub fn new(connection: C, place: Place) -> Self {
        Self {
            connection,
            displaced: Box::pin(place.displaced().clone().cancelled_owned()),
            silence: Some(Box::pin(sleep(FIRST_REQUEST))),
            stall: None,
            place,
        }
    }

    /// The connection, as its requests know it.
    pub fn for_requests(&self) -> Use {
        self.place.for_requests()
    }

    /// Ready with an error if the connection has to end.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.displaced.as_mut().poll(cx).is_ready() {
            return Poll::Ready(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "it made room for others",
            ));
        }
        if let Some(silence) = &mut self.silence {
            if self.place.has_served() {
                self.silence = None;
            } else if silence.as_mut().poll(cx).is_ready() {
                return Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "no request came over it"));
            }
        }
        Poll::Pending
    }

    /// Looks at how a write went.
    fn written<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.stall = None;
            return result;
        }
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(STALLED_WRITE)));
        match stall.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "nobody reads it"))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for Kept<C> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Poll::Ready(error) = this.poll_end(cx) {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut this.connection).poll_read(cx, buf)
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for Kept<C> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.connection).poll_write(cx, buf);
        this.written(cx, result)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.connection).poll_write_vectored(cx, bufs);
        this.written(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.connection).poll_flush(cx);
        this.written(cx, result)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.connection).poll_shutdown(cx);
        this.written(cx, result)
    }
}

impl<C> Connected for Kept<C> {
    type ConnectInfo = Use;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.for_requests()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::time::Instant;

    use super::*;
    use crate::serve::connections::Connections;

    fn kept(connections: &Connections) -> (Kept<DuplexStream>, DuplexStream) {
        let (here, there) = duplex(4);
        (Kept::new(here, connections.admit().unwrap()), there)
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_over_which_no_request_comes_ends() {
        let (start, connections) = (Instant::now(), Connections::new(1));
        let (mut silent, mut client) = kept(&connections);
        // A first byte is no request.
        client.write_u8(0).await.unwrap();
        silent.read_u8().await.unwrap();

        let error = silent.read_u8().await.unwrap_err();

        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed(), FIRST_REQUEST);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_brought_a_request_may_rest() {
        let connections = Connections::new(1);
        let (mut resting, _client) = kept(&connections);
        drop(resting.for_requests().begin());

        let hour = Duration::from_secs(3600);
        assert!(tokio::time::timeout(hour, resting.read_u8()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_makes_room_ends_at_once() {
        let (start, connections) = (Instant::now(), Connections::new(1));
        let (mut first, _client) = kept(&connections);

        let (error, _second) = tokio::join!(first.read_u8(), async { connections.admit() });

        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_nobody_reads_ends_and_a_slow_reader_does_not() {
        let (start, connections) = (Instant::now(), Connections::new(1));
        let (mut stalled, mut client) = kept(&connections);
        let pause = STALLED_WRITE - Duration::from_secs(1);

        let slow = async {
            for _ in 0..3 {
                tokio::time::sleep(pause).await;
                client.read_exact(&mut [0; 4]).await.unwrap();
            }
        };
        let (result, ()) = tokio::join!(stalled.write_all(&[0; 64]), slow);

        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed(), 3 * pause + STALLED_WRITE);
    }
}
