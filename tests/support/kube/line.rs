//! The line between Forebay and the API server, which a test can cut.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Duration, sleep};
use tokio_util::task::AbortOnDropHandle;

/// What becomes of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Condition {
    /// None is taken.
    is_cut: bool,
    /// Those of an earlier count are cut.
    count: u64,
}

/// Passes connections on.
pub(crate) struct Line {
    pub(super) address: SocketAddr,
    condition: watch::Sender<Condition>,
    latency: watch::Sender<Duration>,
    /// Bytes that came from the API server.
    received: Arc<AtomicU64>,
    _task: AbortOnDropHandle<()>,
}

impl Line {
    pub(super) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let condition = watch::Sender::new(Condition::default());
        let latency = watch::Sender::new(Duration::ZERO);
        let received = Arc::new(AtomicU64::new(0));
        let (watched, slowness, counter) = (condition.clone(), latency.clone(), Arc::clone(&received));
        let task = tokio::spawn(async move {
            loop {
                let (near, _) = listener.accept().await.unwrap();
                let began = *watched.borrow();
                if began.is_cut {
                    continue;
                }
                let (mut condition, latency) = (watched.subscribe(), *slowness.borrow());
                let passed = pass(near, server, latency, Arc::clone(&counter));
                tokio::spawn(async move {
                    tokio::select! {
                        () = passed => {}
                        _ = condition.wait_for(|condition| condition.count != began.count) => {}
                    }
                });
            }
        });
        Self {
            address,
            condition,
            latency,
            received,
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// Cuts every connection, and takes none.
    pub(crate) fn cut(&self) {
        self.condition.send_modify(|condition| {
            condition.is_cut = true;
            condition.count += 1;
        });
    }

    /// Takes connections again.
    pub(crate) fn mend(&self) {
        self.condition.send_modify(|condition| condition.is_cut = false);
    }

    /// Cuts the connections that are there. New ones are taken.
    pub(crate) fn interrupt(&self) {
        self.condition.send_modify(|condition| condition.count += 1);
    }

    /// Each new connection takes so long.
    pub(crate) fn slow(&self, latency: Duration) {
        self.latency.send_replace(latency);
    }

    /// Bytes that came from the API server.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

async fn pass(mut near: TcpStream, server: SocketAddr, latency: Duration, counter: Arc<AtomicU64>) {
    sleep(latency).await;
    if let Ok(stream) = TcpStream::connect(server).await {
        let mut far = Counted { stream, counter };
        // However it ends, it has ended.
        let _ = copy_bidirectional(&mut near, &mut far).await;
    }
}

/// A stream whose bytes are counted as they are read.
struct Counted {
    stream: TcpStream,
    counter: Arc<AtomicU64>,
}

impl AsyncRead for Counted {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let polled = Pin::new(&mut this.stream).poll_read(cx, buf);
        let read = buf.filled().len() - before;
        this.counter.fetch_add(read as u64, Ordering::Relaxed);
        polled
    }
}

impl AsyncWrite for Counted {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
