//! The listener of the front: one acceptor, and a worker for each core.
//!
//! A worker is a thread with a runtime of its own, on which a connection stays from its first byte to its last: no
//! stream ever moves between cores. That costs about 60 % of what a runtime of many threads does for a small request.
//! Connections are dealt to the workers in turn. Envoy opens one for each of its own workers, and sends all its
//! streams over them.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server as Transport;

use super::connection::{Accepted, Connection};
use super::gather::Gathered;
use super::health::Health;
use super::machine::DEFAULT_MAX_BODY_BYTES;
use super::service::{Front, Services};
use super::stay::{Stay, host};
use super::tls::Tls;
use crate::serve::connections::{self, Connections};
use crate::serve::driver::Picker;

/// What a message may have besides a body.
const MESSAGE_SLACK: usize = 1024 * 1024;

/// The largest HTTP/2 frame that is taken. Frames of 1 MiB cost a quarter less than the default ones of 16 KiB for
/// bodies of 512 KiB.
const MAX_FRAME_BYTES: u32 = 1024 * 1024;
/// What a stream may send before it is read.
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
/// What a connection may send before it is read: some large bodies at once.
const CONNECTION_WINDOW_BYTES: u32 = 8 * 1024 * 1024;

/// Streams that the gateway may reset before they were looked at. It does so when many clients leave at once, and
/// that is no reason to drop its connection with all other requests on it.
const MAX_EARLY_RESETS: usize = 16 * 1024;

/// Connections that wait to be taken over by a worker.
const ACCEPTED_CONNECTIONS: usize = 64;
/// The gateway has this long to answer a ping. One that went away without a word would otherwise keep its requests
/// booked for good.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Headers of a call, in bytes. Those of the client travel in messages.
const MAX_HEADER_BYTES: u32 = 64 * 1024;

/// How the front is served.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Threads that serve connections. Default: one for each core.
    pub workers: NonZeroUsize,
    /// The largest message that is read. Default: the default bound of request bodies and 1 MiB more. Should exceed
    /// [`Settings::max_body_bytes`](super::Settings::max_body_bytes), so that buffered bodies fit.
    pub max_message_bytes: usize,
    /// The certificate; plain text without one, which is the default.
    pub tls: Option<Tls>,
    /// Health checks on the same port. Default: none.
    pub health: Option<Health>,
    /// How long connections may stay, as told through a channel. Default: for as long as gateways like.
    pub stay: watch::Receiver<Stay>,
    /// How long a connection may be silent before it is pinged. Default: 30 s.
    pub ping_after: Duration,
    /// How long streams may go on once the server is told to stop. Default: 30 s.
    pub grace: Duration,
    /// The connections of the port. Default: 1024 at a time.
    pub connections: Connections,
}

/// A listener that has its address, and serves nothing yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    options: ServerOptions,
}

/// How a server ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Streams that had not ended within the grace period.
    pub cut: usize,
}

/// Why a server ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A worker could not be started.
    #[error("a worker of the ext_proc server could not be started")]
    Start(#[source] io::Error),
    /// A worker has ended by itself.
    #[error("a worker of the ext_proc server has ended")]
    WorkerEnded,
    /// A worker could not serve.
    #[error("a worker of the ext_proc server has failed")]
    Serve(#[from] tonic::transport::Error),
}

/// A worker, as its acceptor knows it.
struct Worker {
    connections: mpsc::Sender<Accepted>,
    ended: oneshot::Receiver<Result<(), ServerError>>,
}

// === impl ServerOptions ===

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            workers: thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            max_message_bytes: Self::message_bytes_for(DEFAULT_MAX_BODY_BYTES),
            tls: None,
            health: None,
            stay: watch::channel(Stay::default()).1,
            ping_after: Duration::from_secs(30),
            grace: Duration::from_secs(30),
            connections: Connections::new(connections::DEFAULT_LIMIT),
        }
    }
}

impl ServerOptions {
    /// The message size that bodies of `max_body_bytes` need.
    pub fn message_bytes_for(max_body_bytes: usize) -> usize {
        max_body_bytes.saturating_add(MESSAGE_SLACK)
    }
}

// === impl Server ===

impl Server {
    /// Takes an address. Port 0 takes any free port.
    ///
    /// # Errors
    ///
    /// The address is not to be had.
    pub async fn bind(address: SocketAddr, options: ServerOptions) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        Ok(Self { listener, options })
    }

    /// The address that was taken.
    ///
    /// # Errors
    ///
    /// The system does not tell.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is cancelled, and then for as long as streams go on, but no longer than the grace period.
    ///
    /// # Errors
    ///
    /// A worker could not be started, or ended without being told to.
    pub async fn serve<P: Picker>(self, front: Front<P>, stop: CancellationToken) -> Result<Drained, ServerError> {
        let Self { listener, options } = self;
        let (grace, streams) = (options.grace, front.streams.clone());
        // Cuts all workers off when this future is dropped or fails.
        let cut = CancellationToken::new();
        let _guard = cut.clone().drop_guard();
        let mut workers = Vec::with_capacity(options.workers.get());
        for index in 0..options.workers.get() {
            let ends = Ends {
                stop: stop.clone(),
                cut: cut.clone(),
            };
            workers.push(start_worker(index, front.clone(), options.clone(), ends)?);
        }
        let to_workers: Vec<_> = workers.iter().map(|worker| worker.connections.clone()).collect();
        tokio::select! {
            // Being told comes before accepting another connection.
            biased;
            () = stop.cancelled() => {}
            () = deal(listener, options.connections, to_workers) => return Err(ServerError::WorkerEnded),
        }
        let ended = async {
            for worker in workers {
                drop(worker.connections);
                worker.ended.await.map_err(|_| ServerError::WorkerEnded)??;
            }
            Ok(())
        };
        tokio::pin!(ended);
        tokio::select! {
            // Streams that end in the last moment have ended.
            biased;
            result = &mut ended => result.map(|()| Drained::default()),
            () = tokio::time::sleep(grace) => {
                let drained = Drained { cut: streams.len() };
                cut.cancel();
                ended.await.map(|()| drained)
            }
        }
    }
}

/// Accepts connections and deals them to the workers in turn. Ends when a worker is gone.
async fn deal(listener: TcpListener, connections: Connections, workers: Vec<mpsc::Sender<Accepted>>) {
    for worker in workers.iter().cycle() {
        let (stream, place) = connections.accept(&listener).await;
        match stream.into_std() {
            Ok(stream) => {
                if worker.send(Accepted { stream, place }).await.is_err() {
                    return;
                }
            }
            Err(error) => tracing::warn!(%error, "a connection could not be handed to a worker"),
        }
    }
}

/// When a worker ends.
struct Ends {
    /// It takes nothing new, and ends with its last stream.
    stop: CancellationToken,
    /// It ends at once.
    cut: CancellationToken,
}

fn start_worker<P: Picker>(
    index: usize,
    front: Front<P>,
    options: ServerOptions,
    ends: Ends,
) -> Result<Worker, ServerError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ServerError::Start)?;
    let (connections, accepted) = mpsc::channel(ACCEPTED_CONNECTIONS);
    let (tell_end, ended) = oneshot::channel();
    thread::Builder::new()
        .name(format!("ext-proc-{index}"))
        .spawn(move || {
            let result = runtime.block_on(work(front, options, accepted, ends));
            // Whatever is left is cut here, before the end is told.
            drop(runtime);
            // A server that was dropped does not ask.
            let _ = tell_end.send(result);
        })
        .map_err(ServerError::Start)?;
    Ok(Worker { connections, ended })
}

/// HTTP/2 as the front speaks it.
pub fn transport() -> Transport {
    Transport::builder()
        .max_frame_size(MAX_FRAME_BYTES)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_max_pending_accept_reset_streams(Some(MAX_EARLY_RESETS))
        .http2_max_header_list_size(MAX_HEADER_BYTES)
}

async fn work<P: Picker>(
    front: Front<P>,
    options: ServerOptions,
    accepted: mpsc::Receiver<Accepted>,
    Ends { stop, cut }: Ends,
) -> Result<(), ServerError> {
    let services = Services::new(front, options.max_message_bytes, options.health);
    let tls = options.tls.map(|tls| TlsAcceptor::from(tls.config));
    // As many handshakes at once as there may be connections: none waits for others.
    let handshakes = options.connections.limit().max(1);
    let ended = stop.clone().cancelled_owned();
    let transport = transport()
        .http2_keepalive_interval(Some(options.ping_after))
        .http2_keepalive_timeout(Some(PING_TIMEOUT.min(options.ping_after)));
    tokio::select! {
        served = host(transport, services, connections(accepted, tls, handshakes), options.stay, ended) => {
            served?;
            if stop.is_cancelled() { Ok(()) } else { Err(ServerError::WorkerEnded) }
        }
        () = cut.cancelled() => Ok(()),
    }
}

/// The connections that are ready to be served. One that fails to become so is left out.
fn connections(
    accepted: mpsc::Receiver<Accepted>,
    tls: Option<TlsAcceptor>,
    handshakes: usize,
) -> impl Stream<Item = io::Result<Gathered<Connection>>> {
    let accepted = stream::unfold(accepted, |mut accepted| async move {
        let connection = accepted.recv().await?;
        Some((connection, accepted))
    });
    accepted
        .map(move |connection| Connection::take_over(connection, tls.clone()))
        .buffer_unordered(handshakes)
        .filter_map(|connection| async move {
            match connection {
                Ok(connection) => Some(Ok(Gathered::new(connection))),
                Err(error) => {
                    tracing::debug!(%error, "a connection was not established");
                    None
                }
            }
        })
}
