//! Endpoints and objectives that files list (the plugin `file-discovery`).
//!
//! The file of endpoints may hold objectives too, and a second file may hold objectives alone. They are loaded before
//! anything is served, and then they must be right. Afterwards what was good last holds: a file that is missing,
//! unreadable or wrong changes nothing, and the log says so. The *directories* are watched, since editors and ConfigMaps
//! put another file in the place of the old one.

mod content;
mod endpoints;
mod objective;
mod source;
mod watch;
mod words;

use std::collections::BTreeMap;
use std::io;
use std::iter::empty;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};
use tracing::info;

pub use content::{ContentError, DocumentError};
pub use endpoints::{EntryError, ListError};
pub use objective::ObjectiveError;
pub use source::{FileOf, MAX_FILE_BYTES};

use self::content::{Content, Stated};
use self::source::{Fresh, Source, Trouble};
pub(in crate::serve) use self::watch::DirectoryWatch;
use super::{Objectives, PoolSink};
use crate::engine::config::data_layer::{FileDiscoveryError, FileDiscoveryParams};
use crate::engine::pool::{Endpoint, EndpointId, PoolChange};

/// How long changes of a file may gather before it is read.
pub const DEBOUNCE: Duration = Duration::from_millis(100);

/// How often the file is read even though nothing was heard of it: some file systems tell of no changes.
pub const REREAD: Duration = Duration::from_secs(10);

/// Endpoints by id.
pub type Endpoints = BTreeMap<EndpointId, Arc<Endpoint>>;

/// Why endpoints and objectives are not known.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The parameters are wrong.
    #[error("file-discovery: {0}")]
    Params(#[from] FileDiscoveryError),
    /// A file cannot be read.
    #[error("cannot read the {file} file `{}`", path.display())]
    Read {
        /// What it is for.
        file: FileOf,
        /// Where it is.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file is longer than any list should be.
    #[error("{file} file `{}`: longer than {MAX_FILE_BYTES} bytes", path.display())]
    TooLong {
        /// What it is for.
        file: FileOf,
        /// Where it is.
        path: PathBuf,
    },
    /// A file does not hold what it should.
    #[error("{file} file `{}`: {reason}", path.display())]
    Content {
        /// What it is for.
        file: FileOf,
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it. Not called a source: its text is part of this one's.
        reason: ContentError,
    },
    /// Both files have an objective of the same name.
    #[error(
        "objective `{name}` is in both files: on line {} of `{}` and on line {} of `{}`; a name can be given once",
        .endpoints.1, .endpoints.0.display(), .objectives.1, .objectives.0.display()
    )]
    Clash {
        /// The name.
        name: Arc<str>,
        /// The file of endpoints, and the line in it.
        endpoints: (PathBuf, usize),
        /// The file of objectives, and the line in it.
        objectives: (PathBuf, usize),
    },
}

impl LoadError {
    /// The error and the causes that its own text does not have.
    fn in_full(&self) -> String {
        match self {
            Self::Read { source, .. } => format!("{self}: {source}"),
            Self::Params(_) | Self::TooLong { .. } | Self::Content { .. } | Self::Clash { .. } => self.to_string(),
        }
    }
}

/// Endpoints and objectives in files.
#[derive(Debug)]
pub struct FileDiscovery {
    follow: Follow,
    endpoints_file: Source,
    endpoints: Endpoints,
    /// The objectives in the file of endpoints, as it was good last.
    beside: Stated,
    objectives_file: Option<Source>,
    /// The objectives in the file of objectives, as it was good last.
    apart: Stated,
    objectives: Objectives,
    /// What keeps the objectives of both files from being used together.
    clash: Trouble,
}

/// When files are read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// After SIGHUP.
    OnDemand,
    /// Whenever they change, too.
    Changes,
}

/// What is new in the files.
#[derive(Debug, Default)]
struct News {
    changes: Vec<PoolChange>,
    /// All objectives, if any of them changed.
    objectives: Option<Objectives>,
}

impl FileDiscovery {
    /// Reads the files for the first time.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or anything in it is wrong; see [`LoadError`].
    pub fn load(params: &FileDiscoveryParams) -> Result<Self, LoadError> {
        params.validate()?;
        let endpoints_file = Source::new(FileOf::Endpoints, &params.path);
        let objectives_path = Some(params.objectives_path.as_str()).filter(|path| !path.is_empty());
        let objectives_file = objectives_path.map(|path| Source::new(FileOf::Objectives, path));
        let Content {
            endpoints,
            objectives: beside,
        } = endpoints_file.load()?;
        let apart = match &objectives_file {
            Some(file) => file.load()?.objectives,
            None => Stated::new(),
        };
        let mut discovery = Self {
            follow: if params.watch_file {
                Follow::Changes
            } else {
                Follow::OnDemand
            },
            endpoints_file,
            endpoints,
            beside,
            objectives_file,
            apart,
            objectives: Objectives::new(),
            clash: Trouble::default(),
        };
        discovery.objectives = discovery.together()?;
        Ok(discovery)
    }

    /// The endpoints of the last good list.
    pub fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// The objectives of both files, as they were good last.
    pub fn objectives(&self) -> &Objectives {
        &self.objectives
    }

    /// What leads from an empty pool to the endpoints of the last good list.
    pub fn arrivals(&self) -> Vec<PoolChange> {
        self.endpoints.values().cloned().map(PoolChange::Upsert).collect()
    }

    /// Tells `sink`, which knows the endpoints and objectives so far, of every change for as long as it is polled. Files
    /// that are not watched are read again after SIGHUP alone.
    pub async fn run<S: PoolSink>(mut self, sink: S) {
        if self.follow == Follow::OnDemand {
            let mut demand = DirectoryWatch::new(empty());
            loop {
                demand.changed().await;
                self.reload().await.tell(&sink);
            }
        }
        let files = [Some(&self.endpoints_file), self.objectives_file.as_ref()];
        let mut watch = DirectoryWatch::new(files.into_iter().flatten().map(Source::path));
        // The files may have changed after they were loaded and before they were watched.
        self.reload().await.tell(&sink);
        let mut reread = interval_at(Instant::now() + REREAD, REREAD);
        reread.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = watch.changed() => sleep(DEBOUNCE).await,
                _ = reread.tick() => watch.renew(),
            }
            watch.forget();
            self.reload().await.tell(&sink);
        }
    }

    /// Reads the files again. Returns what leads from what was good last to what is in them, as far as that is good.
    async fn reload(&mut self) -> News {
        let mut news = News::default();
        let mut recovered = false;
        if let Some(fresh) = self.endpoints_file.reload().await {
            recovered |= fresh.recovered;
            self.beside = fresh.content.objectives;
            news.changes = self.replace_endpoints(fresh.content.endpoints, fresh.recovered);
        }
        if let Some(file) = &mut self.objectives_file
            && let Some(Fresh {
                content,
                recovered: healed,
            }) = file.reload().await
        {
            recovered |= healed;
            self.apart = content.objectives;
        }
        match self.together() {
            Ok(objectives) => {
                recovered |= self.clash.end();
                news.objectives = self.replace_objectives(objectives, recovered);
            }
            Err(error) => self.clash.is(&error),
        }
        news
    }

    fn replace_endpoints(&mut self, endpoints: Endpoints, recovered: bool) -> Vec<PoolChange> {
        let changes = difference(&self.endpoints, &endpoints);
        if recovered || !changes.is_empty() {
            let (path, changed) = (self.endpoints_file.path().display(), changes.len());
            info!(%path, endpoints = endpoints.len(), changed, "endpoints reloaded");
        }
        self.endpoints = endpoints;
        changes
    }

    fn replace_objectives(&mut self, objectives: Objectives, recovered: bool) -> Option<Objectives> {
        let changed = self.objectives != objectives;
        if changed || (recovered && !objectives.is_empty()) {
            info!(objectives = objectives.len(), changed, "objectives reloaded");
        }
        self.objectives = objectives;
        changed.then(|| self.objectives.clone())
    }

    /// The objectives of both files.
    fn together(&self) -> Result<Objectives, LoadError> {
        if let Some(file) = &self.objectives_file
            && let Some((here, there)) = self
                .beside
                .values()
                .find_map(|here| Some((here, self.apart.get(&here.name)?)))
        {
            return Err(LoadError::Clash {
                name: Arc::clone(&here.name),
                endpoints: (self.endpoints_file.path().to_owned(), here.line),
                objectives: (file.path().to_owned(), there.line),
            });
        }
        let all = self.beside.values().chain(self.apart.values());
        Ok(all
            .map(|objective| (Arc::clone(&objective.name), objective.priority))
            .collect())
    }
}

impl News {
    /// Tells it. Objectives go first, so that no request finds new endpoints with old priorities.
    fn tell(self, sink: &impl PoolSink) {
        if let Some(objectives) = self.objectives {
            sink.objectives(objectives);
        }
        if !self.changes.is_empty() {
            sink.changed(self.changes);
        }
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

#[cfg(test)]
mod tests;
