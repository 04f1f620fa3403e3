//! A connection of the gateway, in plain text or under TLS.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use crate::serve::connections::{Kept, Place, Use};

#[derive(Debug)]
pub(super) enum Connection {
    Plain(Box<Kept<TcpStream>>),
    Tls(Box<TlsStream<Kept<TcpStream>>>),
}

/// A connection that was accepted elsewhere.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) stream: std::net::TcpStream,
    pub(super) place: Place,
}

impl Connection {
    /// Takes over a connection that was accepted elsewhere. Must be called within the runtime that will serve it.
    pub(super) async fn take_over(accepted: Accepted, tls: Option<TlsAcceptor>) -> io::Result<Self> {
        let stream = TcpStream::from_std(accepted.stream)?;
        stream.set_nodelay(true)?;
        let stream = Kept::new(stream, accepted.place);
        Ok(match tls {
            None => Self::Plain(Box::new(stream)),
            // Whoever does not come to terms brings no request either, and so does not stay.
            Some(tls) => Self::Tls(Box::new(tls.accept(stream).await?)),
        })
    }
}

impl Connected for Connection {
    type ConnectInfo = Use;

    fn connect_info(&self) -> Self::ConnectInfo {
        match self {
            Self::Plain(stream) => stream.for_requests(),
            Self::Tls(stream) => stream.get_ref().0.for_requests(),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
