//! Hearing of changes in directories, and of SIGHUP, which asks for files to be read again.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tracing::warn;

/// Tells that something changed in the directories of some files, or that the process got SIGHUP.
#[derive(Debug)]
pub(in crate::serve) struct DirectoryWatch {
    directories: Vec<Directory>,
    sender: mpsc::Sender<()>,
    /// Holds at most one message: that there was a change is all there is to know.
    changes: mpsc::Receiver<()>,
    /// `None` if the system does not let us hear of it.
    hangups: Option<Signal>,
}

#[derive(Debug)]
struct Directory {
    path: PathBuf,
    /// The directory that had the path when watching began.
    watched: Option<Identity>,
    watcher: Option<RecommendedWatcher>,
}

impl DirectoryWatch {
    /// Watches the directories of `files`. Where that fails, the log says so and nothing is ever heard. Needs a tokio
    /// runtime.
    pub(in crate::serve) fn new<'p>(files: impl IntoIterator<Item = &'p Path>) -> Self {
        let (sender, changes) = mpsc::channel(1);
        let mut paths: Vec<_> = files.into_iter().map(directory_of).collect();
        paths.dedup();
        Self {
            directories: paths.into_iter().map(|path| Directory::new(path, &sender)).collect(),
            sender,
            changes,
            hangups: signal(SignalKind::hangup()).ok(),
        }
    }

    /// Waits for a change, or SIGHUP.
    pub(in crate::serve) async fn changed(&mut self) {
        let hangup = async {
            match &mut self.hangups {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // The sender lives as long as this does: the channel does not end.
            _ = self.changes.recv() => {}
            _ = hangup => {}
        }
    }

    /// Forgets the change that was heard of, if any.
    pub(in crate::serve) fn forget(&mut self) {
        while self.changes.try_recv().is_ok() {}
    }

    /// Watches the directories that have the paths, where those are others than before.
    pub(in crate::serve) fn renew(&mut self) {
        for directory in &mut self.directories {
            directory.renew(&self.sender);
        }
    }
}

impl Directory {
    fn new(path: PathBuf, sender: &mpsc::Sender<()>) -> Self {
        let watched = Identity::of(&path);
        let watcher = match attach(&path, sender) {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                let directory = path.display();
                warn!(%directory, %error, "directory cannot be watched; its file is read every {:?}", super::REREAD);
                None
            }
        };
        Self { path, watched, watcher }
    }

    fn renew(&mut self, sender: &mpsc::Sender<()>) {
        if self.watcher.is_none() || self.watched != Identity::of(&self.path) {
            self.watched = Identity::of(&self.path);
            self.watcher = attach(&self.path, sender).ok();
        }
    }
}

fn directory_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn attach(directory: &Path, sender: &mpsc::Sender<()>) -> notify::Result<RecommendedWatcher> {
    let sender = sender.clone();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        if event.is_ok_and(|event| is_change(&event)) {
            // A full channel holds this message already.
            let _ = sender.try_send(());
        }
    })?;
    watcher.watch(directory, RecursiveMode::NonRecursive)?;
    Ok(watcher)
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
