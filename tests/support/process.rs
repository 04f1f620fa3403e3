//! A model server in a process of its own, which can be killed and stopped as those of a pool can.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use forebay::serve::demo::children::{Child, Signal};
use tempfile::TempDir;

use super::happens;

/// The process. Dropped, it ends.
pub(crate) struct ServerProcess {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    child: Child,
    _logs: TempDir,
}

impl ServerProcess {
    /// A stand-in that is this many times as fast as a GPU, on any free port.
    pub(crate) async fn start(name: &'static str, speed: f64) -> Self {
        Self::start_at(name, speed, SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    /// The same at an address, such as that of one that was killed.
    pub(crate) async fn start_at(name: &'static str, speed: f64, address: SocketAddr) -> Self {
        let logs = TempDir::with_prefix("forebay-server-").unwrap();
        let arguments = [
            "model-server".to_owned(),
            format!("--name={name}"),
            format!("--host={}", address.ip()),
            format!("--port={}", address.port()),
            format!("--speed={speed}"),
        ];
        let mut child = Child::start(name, Path::new(env!("CARGO_BIN_EXE_forebay")), arguments, logs.path()).unwrap();
        let mut listens_at = None;
        happens("the model server listens", Duration::from_secs(30), async || {
            child.check().map_err(|error| error.to_string())?;
            let printed = child.printed();
            let line = printed.lines().find_map(|line| line.strip_prefix("listening on "));
            listens_at = line.and_then(|line| line.parse().ok());
            listens_at.map(|_: SocketAddr| ()).ok_or(printed)
        })
        .await;
        Self {
            name,
            address: listens_at.unwrap(),
            child,
            _logs: logs,
        }
    }

    /// Its process ends at once, and its port is closed.
    pub(crate) async fn kill(&mut self) {
        self.child.signal(Signal::KILL);
        self.child.wait().await.unwrap();
    }

    /// It goes on to take connections, as the system does for it, and does nothing more.
    pub(crate) fn hang(&self) {
        self.child.signal(Signal::STOP);
    }

    /// It goes on after it hung.
    pub(crate) fn wake(&self) {
        self.child.signal(Signal::CONT);
    }
}
