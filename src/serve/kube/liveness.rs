//! Whether the process that leads is still there.
//!
//! The end of a process ends its connections. Who keeps one open to the leader hears of its end at once, long before its
//! lease has run out. Only an address that refuses connections after it has taken one counts as an end: what is cut off, or
//! gone with its node, answers nothing, and a firewall may refuse what it never let through. There the lease decides.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tracing::debug;

/// Time between two attempts to connect, once one has succeeded.
const AGAIN: Duration = Duration::from_millis(50);
/// Time between two attempts to connect before one has succeeded.
const AGAIN_AT_FIRST: Duration = Duration::from_secs(1);
/// Time that a connection has to come about.
const CONNECT: Duration = Duration::from_secs(1);
/// Refusals in a row that are no accident.
const REFUSALS: u32 = 2;

/// Waits until the process that listens at `address` has ended.
pub(super) async fn ended(address: SocketAddr) {
    let (mut was_there, mut refusals) = (false, 0);
    loop {
        match timeout(CONNECT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                (was_there, refusals) = (true, 0);
                closed(stream).await;
                debug!(%address, "the leader closed the connection that was to tell of its end");
            }
            Ok(Err(error)) if was_there && error.kind() == ErrorKind::ConnectionRefused => {
                refusals += 1;
                if refusals == REFUSALS {
                    return;
                }
            }
            Ok(Err(_)) | Err(_) => refusals = 0,
        }
        sleep(if was_there { AGAIN } else { AGAIN_AT_FIRST }).await;
    }
}

/// Waits until the other side has closed a connection. What it says is of no interest.
async fn closed(mut stream: TcpStream) {
    let mut said = [0; 64];
    while stream.read(&mut said).await.is_ok_and(|bytes| bytes > 0) {}
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::net::TcpListener;

    use super::*;

    /// At an address that nobody else uses, so that its port stays free afterwards.
    async fn listener(ip: [u8; 4]) -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind(SocketAddr::from((ip, 0))).await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    #[tokio::test]
    async fn a_process_whose_connections_end_and_that_takes_no_others_has_ended() {
        let (listener, address) = listener([127, 2, 0, 1]).await;
        let told = tokio::spawn(ended(address));
        let (connection, _) = listener.accept().await.unwrap();

        drop((connection, listener));

        told.await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_that_is_closed_is_made_again_and_is_no_end() {
        let (listener, address) = listener([127, 2, 0, 2]).await;
        let mut told = pin!(ended(address));

        for _ in 0..3 {
            let connection = tokio::select! {
                accepted = listener.accept() => accepted.unwrap(),
                () = &mut told => panic!("it is still there"),
            };
            drop(connection);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_has_never_answered_tells_nothing() {
        let (listener, address) = listener([127, 2, 0, 3]).await;
        drop(listener);

        let told = timeout(Duration::from_secs(60), ended(address)).await;

        assert!(told.is_err());
    }
}
