//! The journal of a live service: every call of the engine, a line each, in a file.
//!
//! The engine's owner hands entries over and goes on; a thread of its own writes them. A disk that cannot keep up stops
//! the journal, not the service.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use anyhow::Context;

use crate::engine::journal::{Entry, Header, Recorder};

/// Entries that may wait to be written.
const WAITING: usize = 65_536;

/// Where entries go.
#[derive(Debug)]
pub struct Journal {
    entries: Option<SyncSender<Entry>>,
    writer: Option<JoinHandle<()>>,
    path: PathBuf,
}

impl Journal {
    /// A journal in a new file at `path`.
    ///
    /// # Errors
    ///
    /// If there is such a file already, or it cannot be written.
    pub fn create(path: &Path, header: &Header) -> anyhow::Result<Self> {
        let place = || format!("the journal {} cannot be written", path.display());
        let mut file = BufWriter::new(File::create_new(path).with_context(place)?);
        line(&mut file, header).with_context(place)?;
        file.flush().with_context(place)?;
        let (entries, received) = sync_channel(WAITING);
        let to = path.to_owned();
        let writer = std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || write(&mut file, &received, &to))
            .context("the thread of the journal cannot be started")?;
        Ok(Self {
            entries: Some(entries),
            writer: Some(writer),
            path: path.to_owned(),
        })
    }
}

impl Recorder for Journal {
    /// Does not wait: when too many entries are on their way, the journal ends here.
    fn note(&mut self, entry: Entry) {
        let Some(entries) = &self.entries else { return };
        match entries.try_send(entry) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                tracing::error!(path = %self.path.display(), "the journal ends: the disk is too slow for it");
                self.entries = None;
            }
            // The writer has said why it ended.
            Err(TrySendError::Disconnected(_)) => self.entries = None,
        }
    }
}

impl Drop for Journal {
    /// Waits until everything is written.
    fn drop(&mut self) {
        self.entries = None;
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!(path = %self.path.display(), "the thread of the journal panicked");
        }
    }
}

fn write(file: &mut BufWriter<File>, entries: &Receiver<Entry>, path: &Path) {
    let mut all = || {
        while let Ok(entry) = entries.recv() {
            line(file, &entry)?;
            // What is there is written in one go.
            while let Ok(entry) = entries.try_recv() {
                line(file, &entry)?;
            }
            file.flush()?;
        }
        Ok::<(), std::io::Error>(())
    };
    if let Err(error) = all() {
        tracing::error!(path = %path.display(), %error, "the journal ends: it cannot be written");
    }
}

fn line(file: &mut impl Write, value: &impl serde::Serialize) -> std::io::Result<()> {
    serde_json::to_writer(&mut *file, value)?;
    file.write_all(b"\n")
}
