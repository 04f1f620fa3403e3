//! A file that is read again and again.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use tracing::warn;

use super::LoadError;
use super::content::{self, Content};

/// The longest file that is read.
pub const MAX_FILE_BYTES: usize = 1 << 20;

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOf {
    /// A list of endpoints, and objectives beside it.
    Endpoints,
    /// Objectives alone.
    Objectives,
}

impl fmt::Display for FileOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Endpoints => "endpoints",
            Self::Objectives => "objectives",
        })
    }
}

/// A file, and what is wrong with it.
#[derive(Debug)]
pub(super) struct Source {
    file: FileOf,
    path: PathBuf,
    pub(super) trouble: Trouble,
}

/// What a file says, read again.
#[derive(Debug)]
pub(super) struct Fresh {
    pub(super) content: Content,
    /// Whether it was in trouble before.
    pub(super) recovered: bool,
}

impl Source {
    pub(super) fn new(file: FileOf, path: &str) -> Self {
        Self {
            file,
            path: path.into(),
            trouble: Trouble::default(),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file.
    pub(super) fn load(&self) -> Result<Content, LoadError> {
        read(&self.path, self.file)
    }

    /// Reads the file again. `None` if it is in trouble, which the log says.
    pub(super) async fn reload(&mut self) -> Option<Fresh> {
        let (path, file) = (self.path.clone(), self.file);
        let loaded = tokio::task::spawn_blocking(move || read(&path, file))
            .await
            .expect("reading does not panic");
        match loaded {
            Ok(content) => Some(Fresh {
                content,
                recovered: self.trouble.end(),
            }),
            Err(error) => {
                self.trouble.is(&error);
                None
            }
        }
    }
}

/// What is wrong now, as it was logged.
#[derive(Debug, Default)]
pub(super) struct Trouble(Option<String>);

impl Trouble {
    /// Says what is wrong, once for each kind of trouble.
    pub(super) fn is(&mut self, error: &LoadError) {
        let words = error.in_full();
        if self.0.as_ref() != Some(&words) {
            warn!(error = %words, "not reloaded; what was read last holds");
        }
        self.0 = Some(words);
    }

    /// Nothing is wrong. Returns whether anything was.
    pub(super) fn end(&mut self) -> bool {
        self.0.take().is_some()
    }

    #[cfg(test)]
    pub(super) fn words(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

fn read(path: &Path, file: FileOf) -> Result<Content, LoadError> {
    let unreadable = |source| LoadError::Read {
        file,
        path: path.to_owned(),
        source,
    };
    let mut text = String::new();
    let opened = std::fs::File::open(path).map_err(unreadable)?;
    opened
        .take(MAX_FILE_BYTES as u64 + 1)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    if text.len() > MAX_FILE_BYTES {
        return Err(LoadError::TooLong {
            file,
            path: path.to_owned(),
        });
    }
    content::parse(&text, file).map_err(|reason| LoadError::Content {
        file,
        path: path.to_owned(),
        reason,
    })
}
