//! What is written while a run is under way: decisions and journals, a line of JSON for each entry.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use forebay::engine::journal::{Entry, Recorder};
use forebay::sim::cluster::{DecisionRecord, DecisionSink};
use parking_lot::Mutex;
use serde::Serialize;

use crate::cli::target::Target;

/// A file of lines, each of which is a document of JSON.
#[derive(Debug)]
pub(super) struct Lines {
    file: BufWriter<File>,
    failed: Option<io::Error>,
}

impl Lines {
    /// What the file had is gone.
    pub(super) fn to(target: Target) -> anyhow::Result<Self> {
        Ok(Self {
            file: BufWriter::new(target.into_file()?),
            failed: None,
        })
    }

    /// Adds a line, unless one before could not be written.
    pub(super) fn add(&mut self, value: &impl Serialize) {
        if self.failed.is_none() {
            let written = serde_json::to_writer(&mut self.file, value).map_err(io::Error::from);
            self.failed = written.and_then(|()| self.file.write_all(b"\n")).err();
        }
    }

    /// Fails if any line could not be written.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.failed.take().map_or_else(|| self.file.flush(), Err)
    }
}

impl DecisionSink for Lines {
    fn take(&mut self, record: &DecisionRecord) {
        self.add(record);
    }
}

/// A journal: the engine writes its lines, and whoever runs the engine looks at the end whether they were written.
#[derive(Clone, Debug)]
pub(super) struct JournalLines(Arc<Mutex<Lines>>);

impl JournalLines {
    pub(super) fn new(lines: Lines) -> Self {
        Self(Arc::new(Mutex::new(lines)))
    }

    /// See [`Lines::add`].
    pub(super) fn add(&self, value: &impl Serialize) {
        self.0.lock().add(value);
    }

    /// See [`Lines::finish`].
    pub(super) fn finish(&self) -> io::Result<()> {
        self.0.lock().finish()
    }
}

impl Recorder for JournalLines {
    fn note(&mut self, entry: Entry) {
        self.add(&entry);
    }
}
