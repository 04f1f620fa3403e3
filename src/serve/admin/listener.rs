//! Connections under TLS, for the pages.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::serve::ext_proc::tls::Tls;

/// A client has this long to come to terms on TLS.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Handshakes at once. Whoever comes beyond waits.
const HANDSHAKES: usize = 64;
/// The acceptor rests after an error, which usually is that no file descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections, and hands out those that have come to terms. None waits for another one's handshake.
pub(super) struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    handshakes: JoinSet<Option<(TlsStream<TcpStream>, SocketAddr)>>,
}

impl TlsListener {
    pub(super) fn new(listener: TcpListener, tls: &Tls) -> Self {
        Self {
            listener,
            acceptor: TlsAcceptor::from(tls.config.clone()),
            handshakes: JoinSet::new(),
        }
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            tokio::select! {
                Some(ended) = self.handshakes.join_next() => {
                    if let Ok(Some(connection)) = ended {
                        return connection;
                    }
                }
                accepted = self.listener.accept(), if self.handshakes.len() < HANDSHAKES => match accepted {
                    Ok((stream, address)) => {
                        let handshake = timeout(HANDSHAKE_TIMEOUT, self.acceptor.accept(stream));
                        self.handshakes.spawn(async move {
                            let stream = handshake.await.ok()?.ok()?;
                            Some((stream, address))
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}
