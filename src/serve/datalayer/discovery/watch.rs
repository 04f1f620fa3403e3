//! Hearing of changes in a directory.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tracing::warn;

/// Tells that something changed in the directory of a file.
#[derive(Debug)]
pub(super) struct DirectoryWatch {
    directory: PathBuf,
    /// The directory that had the path when watching began.
    watched: Option<Identity>,
    watcher: Option<RecommendedWatcher>,
    sender: mpsc::Sender<()>,
    /// Holds at most one message: that there was a change is all there is to know.
    changes: mpsc::Receiver<()>,
}

impl DirectoryWatch {
    /// Watches the directory of `file`. If that fails, the log says so and nothing is ever heard.
    pub(super) fn new(file: &Path) -> Self {
        let directory = match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let (sender, changes) = mpsc::channel(1);
        let mut watch = Self {
            watched: Identity::of(&directory),
            directory,
            watcher: None,
            sender,
            changes,
        };
        match watch.attach() {
            Ok(watcher) => watch.watcher = Some(watcher),
            Err(error) => {
                let directory = watch.directory.display();
                warn!(%directory, %error, "directory cannot be watched; its file is read every {:?}", super::REREAD);
            }
        }
        watch
    }

    /// Waits for a change.
    pub(super) async fn changed(&mut self) {
        // The sender lives as long as this does: the channel does not end.
        self.changes.recv().await;
    }

    /// Forgets the change that was heard of, if any.
    pub(super) fn forget(&mut self) {
        while self.changes.try_recv().is_ok() {}
    }

    /// Watches the directory that has the path, if that is another one than before.
    pub(super) fn renew(&mut self) {
        if self.watcher.is_none() || self.watched != Identity::of(&self.directory) {
            self.watched = Identity::of(&self.directory);
            self.watcher = self.attach().ok();
        }
    }

    fn attach(&self) -> notify::Result<RecommendedWatcher> {
        let sender = self.sender.clone();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.is_ok_and(|event| is_change(&event)) {
                // A full channel holds this message already.
                let _ = sender.try_send(());
            }
        })?;
        watcher.watch(&self.directory, RecursiveMode::NonRecursive)?;
        Ok(watcher)
    }
}

/// Tells directories apart that had the same path at different times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// `None` if nothing is there.
    fn of(path: &Path) -> Option<Self> {
        let found = std::fs::metadata(path).ok()?;
        Some(Self {
            device: found.dev(),
            inode: found.ino(),
        })
    }
}

/// False for what reading a file causes: else reading it would lead to reading it.
fn is_change(event: &Event) -> bool {
    !matches!(event.kind, EventKind::Access(_))
}
