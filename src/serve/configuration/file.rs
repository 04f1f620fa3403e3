//! The file with the configuration, read again whenever it changes.
//!
//! The *directory* is watched, since editors and ConfigMaps put another file in the place of the old one; and the file
//! is read now and then even though nothing was heard of it.

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};
use tracing::{info, warn};

use super::{Effect, LiveConfiguration, Refused, Taken, Text};
use crate::engine::config::SourceName;
use crate::serve::causes::with_causes;
use crate::serve::datalayer::discovery::{DEBOUNCE, DirectoryWatch, REREAD};

/// The largest configuration that is read.
pub const MAX_BYTES: u64 = 4 << 20;

/// Why a file cannot be read as text.
#[derive(Debug)]
pub struct ReadError {
    path: PathBuf,
    reason: io::Error,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, reason } = self;
        // The reference's phrase: people search for it.
        write!(f, "failed to load config from a file '{}' - {reason}", path.display())
    }
}

impl std::error::Error for ReadError {}

/// Reads a file.
///
/// # Errors
///
/// It is not there, longer than [`MAX_BYTES`], or no text.
pub fn read(path: &Path) -> Result<Text, ReadError> {
    let failed = |reason| ReadError {
        path: path.to_owned(),
        reason,
    };
    let file = std::fs::File::open(path).map_err(failed)?;
    let text = text_of(file).map_err(failed)?;
    Ok(Text {
        text,
        source: SourceName::File(path.to_string_lossy().into()),
    })
}

/// Reads a text of at most [`MAX_BYTES`].
///
/// # Errors
///
/// It cannot be read, is longer, or is no text.
pub fn text_of(reader: impl io::Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    reader.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("it is larger than {MAX_BYTES} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| io::Error::other(error.utf8_error()))
}

/// A configuration in a file.
#[derive(Debug)]
pub struct ConfigFile {
    path: PathBuf,
    /// What was found last: a text, or words about trouble.
    found: Result<String, String>,
}

impl ConfigFile {
    /// The file at `path`, which held `text` when the service was started.
    pub fn new(path: PathBuf, text: String) -> Self {
        Self { path, found: Ok(text) }
    }

    /// Lets every text that the file comes to hold take over, without end.
    pub async fn follow(mut self, live: LiveConfiguration) {
        let mut watch = DirectoryWatch::new([self.path.as_path()]);
        self.look(&live).await;
        let mut reread = interval_at(Instant::now() + REREAD, REREAD);
        reread.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = watch.changed() => sleep(DEBOUNCE).await,
                _ = reread.tick() => watch.renew(),
            }
            watch.forget();
            self.look(&live).await;
        }
    }

    /// Reads the file, and does what follows if it holds something else than before.
    async fn look(&mut self, live: &LiveConfiguration) {
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || read(&path)).await;
        let read = read.expect("reading does not panic");
        let found = match &read {
            Ok(text) => Ok(text.text.clone()),
            Err(error) => Err(error.to_string()),
        };
        if found == self.found {
            return;
        }
        self.found = found;
        match read {
            Ok(text) => tell(live.base_is(text)),
            Err(error) => warn!(%error, "configuration not reloaded; what ran goes on"),
        }
    }
}

/// Logs what became of a text of a file.
fn tell(result: Result<Taken, Refused>) {
    let taken = match result {
        Ok(taken) => taken,
        Err(error) => {
            warn!(error = %with_causes(&error), "configuration refused; what ran goes on");
            return;
        }
    };
    for warning in &taken.warnings {
        warn!(%warning, "configuration");
    }
    match taken.effect {
        Effect::Runs => info!("configuration reloaded"),
        Effect::Unchanged => info!("configuration is what runs already"),
        Effect::Overruled => info!("configuration file changed; the object in the cluster goes before it"),
        Effect::RunsWithoutDiscovery => {
            warn!("configuration reloaded, but for `dataLayer.discovery`, which needs another start");
        }
    }
}
