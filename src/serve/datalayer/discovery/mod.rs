//! Endpoints that a file lists (the plugin `file-discovery`).
//!
//! The file is loaded before anything is served, and then it must be right. Afterwards the last good list holds: a file
//! that is missing, unreadable or wrong changes nothing, and the log says so. The *directory* is watched, since
//! editors and ConfigMaps put another file in the place of the old one.

mod document;
mod watch;

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};
use tracing::{info, warn};

pub use document::{EntryError, ListError, MAX_FILE_BYTES};

use self::watch::DirectoryWatch;
use super::PoolSink;
use crate::engine::config::data_layer::{FileDiscoveryError, FileDiscoveryParams};
use crate::engine::pool::{Endpoint, EndpointId, PoolChange};

/// How long changes of a file may gather before it is read.
pub const DEBOUNCE: Duration = Duration::from_millis(100);

/// How often the file is read even though nothing was heard of it: some file systems tell of no changes.
pub const REREAD: Duration = Duration::from_secs(10);

/// Endpoints by id.
pub type Endpoints = BTreeMap<EndpointId, Arc<Endpoint>>;

/// Why there is no list of endpoints.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The parameters are wrong.
    #[error("file-discovery: {0}")]
    Params(#[from] FileDiscoveryError),
    /// The file cannot be read.
    #[error("cannot read the endpoints file `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file is longer than any list should be.
    #[error("endpoints file `{}`: longer than {MAX_FILE_BYTES} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a list of endpoints.
    #[error("endpoints file `{}`: {source}", path.display())]
    List {
        /// The file.
        path: PathBuf,
        /// What is wrong with it. Not boxed: its text is part of this one's.
        source: ListError,
    },
}

/// A list of endpoints in a file.
#[derive(Debug)]
pub struct FileDiscovery {
    path: PathBuf,
    follow: Follow,
    endpoints: Endpoints,
    /// What is wrong with the file now, as it was logged.
    trouble: Option<String>,
}

/// Whether the file is read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Follow {
    Once,
    Changes,
}

impl FileDiscovery {
    /// Reads the file for the first time.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or anything in it is wrong; see [`LoadError`].
    pub fn load(params: &FileDiscoveryParams) -> Result<Self, LoadError> {
        params.validate()?;
        let path = PathBuf::from(&params.path);
        Ok(Self {
            endpoints: read(&path)?,
            path,
            follow: if params.watch_file {
                Follow::Changes
            } else {
                Follow::Once
            },
            trouble: None,
        })
    }

    /// The endpoints of the last good list.
    pub fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// What leads from an empty pool to the endpoints of the last good list.
    pub fn arrivals(&self) -> Vec<PoolChange> {
        self.endpoints.values().cloned().map(PoolChange::Upsert).collect()
    }

    /// Tells `sink`, which knows the endpoints so far, of every change for as long as it is polled. Ends at once if the
    /// file is to be read only once.
    pub async fn run<S: PoolSink>(mut self, sink: S) {
        if self.follow == Follow::Once {
            return;
        }
        let mut watch = DirectoryWatch::new(&self.path);
        // The file may have changed after it was loaded and before it was watched.
        let changes = self.reload().await;
        if !changes.is_empty() {
            sink.changed(changes);
        }
        let mut reread = interval_at(Instant::now() + REREAD, REREAD);
        reread.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = watch.changed() => sleep(DEBOUNCE).await,
                _ = reread.tick() => watch.renew(),
            }
            watch.forget();
            let changes = self.reload().await;
            if !changes.is_empty() {
                sink.changed(changes);
            }
        }
    }

    /// Reads the file again. Returns what leads from the last good list to the one in the file, if that is good.
    async fn reload(&mut self) -> Vec<PoolChange> {
        let path = self.path.clone();
        let loaded = tokio::task::spawn_blocking(move || read(&path))
            .await
            .expect("reading does not panic");
        match loaded {
            Ok(endpoints) => self.replace(endpoints),
            Err(error) => {
                self.complain(&error);
                Vec::new()
            }
        }
    }

    fn replace(&mut self, endpoints: Endpoints) -> Vec<PoolChange> {
        let changes = difference(&self.endpoints, &endpoints);
        let recovered = self.trouble.take().is_some();
        if recovered || !changes.is_empty() {
            let (path, changed) = (self.path.display(), changes.len());
            info!(%path, endpoints = endpoints.len(), changed, "endpoints reloaded");
        }
        self.endpoints = endpoints;
        changes
    }

    /// Says what is wrong, once for each kind of trouble.
    fn complain(&mut self, error: &LoadError) {
        let trouble = describe(error);
        if self.trouble.as_ref() != Some(&trouble) {
            let kept = self.endpoints.len();
            warn!(error = %trouble, kept, "endpoints not reloaded; the last good list holds");
        }
        self.trouble = Some(trouble);
    }
}

/// What leads from `old` to `new`: first who left, then who came or changed, each in order of id.
pub fn difference(old: &Endpoints, new: &Endpoints) -> Vec<PoolChange> {
    let left = old
        .keys()
        .filter(|id| !new.contains_key(*id))
        .cloned()
        .map(PoolChange::Remove);
    let other = new.values().filter(|endpoint| old.get(&endpoint.id) != Some(endpoint));
    left.chain(other.cloned().map(PoolChange::Upsert)).collect()
}

fn read(path: &Path) -> Result<Endpoints, LoadError> {
    let unreadable = |source| LoadError::Read {
        path: path.to_owned(),
        source,
    };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(MAX_FILE_BYTES as u64 + 1)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    if text.len() > MAX_FILE_BYTES {
        return Err(LoadError::TooLong { path: path.to_owned() });
    }
    document::parse(&text).map_err(|source| LoadError::List {
        path: path.to_owned(),
        source,
    })
}

/// The error and the causes that its own text does not have.
fn describe(error: &LoadError) -> String {
    match error {
        LoadError::Read { source, .. } => format!("{error}: {source}"),
        LoadError::Params(_) | LoadError::TooLong { .. } | LoadError::List { .. } => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
