//! Processes that end when their owner does.
//!
//! A child runs in a process group of its own, so that a Ctrl-C at the terminal reaches its owner alone, which then ends
//! its children in order. What is dropped before that is killed, with everything that it started.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, kill_process, kill_process_group};
use tokio::process::Command;

pub use rustix::process::Signal;

/// What is shown of a log, from its end.
const TAIL_BYTES: u64 = 4096;

/// A running process and what it printed.
#[derive(Debug)]
pub struct Child {
    name: String,
    process: tokio::process::Child,
    log: PathBuf,
}

/// Why a child is not there.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// It could not be started.
    #[error("cannot start {name} (`{}`)", program.display())]
    Start {
        /// What it is.
        name: String,
        /// What was to be run.
        program: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It ended by itself.
    #[error("{name} ended ({status}); its last words:\n{tail}")]
    Ended {
        /// What it is.
        name: String,
        /// How it ended.
        status: ExitStatus,
        /// The end of what it printed.
        tail: String,
    },
    /// The system does not tell how it is.
    #[error("cannot learn how {name} is")]
    Unknown {
        /// What it is.
        name: String,
        /// Why not.
        source: io::Error,
    },
}

impl Child {
    /// Starts `program`; what it prints goes to a file in `logs` that is named after `name`.
    ///
    /// # Errors
    ///
    /// If the file cannot be made or the program cannot be run.
    pub fn start(
        name: &str,
        program: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        logs: &Path,
    ) -> Result<Self, ChildError> {
        let log = logs.join(format!("{}.log", name.replace(' ', "-")));
        let start = || {
            let output = File::options().create(true).append(true).open(&log)?;
            Command::new(program)
                .args(arguments)
                .stdin(Stdio::null())
                .stdout(output.try_clone()?)
                .stderr(output)
                .process_group(0)
                .spawn()
        };
        match start() {
            Ok(process) => Ok(Self {
                name: name.to_owned(),
                process,
                log,
            }),
            Err(source) => Err(ChildError::Start {
                name: name.to_owned(),
                program: program.to_owned(),
                source,
            }),
        }
    }

    /// What the child is.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id, unless it has ended.
    pub fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Everything that it printed, as far as it is text.
    pub fn printed(&self) -> String {
        std::fs::read(&self.log).map_or_else(
            |error| format!("(its log cannot be read: {error})"),
            |bytes| String::from_utf8_lossy(&bytes).into_owned(),
        )
    }

    /// The end of what it printed.
    pub fn tail(&self) -> String {
        read_tail(&self.log).unwrap_or_else(|error| format!("(its log cannot be read: {error})"))
    }

    /// Passes if the child runs.
    ///
    /// # Errors
    ///
    /// If it has ended.
    pub fn check(&mut self) -> Result<(), ChildError> {
        match self.process.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.ended(status)),
            Err(source) => Err(self.unknown(source)),
        }
    }

    /// Waits until the child has ended, and says how.
    ///
    /// # Errors
    ///
    /// If the system does not tell.
    pub async fn wait(&mut self) -> Result<ExitStatus, ChildError> {
        match self.process.wait().await {
            Ok(status) => Ok(status),
            Err(source) => Err(self.unknown(source)),
        }
    }

    /// Waits until the child has ended, which nobody asked it to.
    pub async fn unexpected_end(&mut self) -> ChildError {
        match self.wait().await {
            Ok(status) => self.ended(status),
            Err(error) => error,
        }
    }

    /// Sends a signal, unless the child has ended.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            // It may end in this moment, which is what most signals are for.
            let _ = kill_process(pid, signal);
        }
    }

    /// Asks the child to end, and kills it if it has not after `grace`.
    pub async fn stop(mut self, signal: Signal, grace: Duration) {
        self.signal(signal);
        // Dropped in any case; what is left of it is killed then.
        let _ = tokio::time::timeout(grace, self.process.wait()).await;
    }

    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.process.id()?).ok()?)
    }

    fn ended(&self, status: ExitStatus) -> ChildError {
        ChildError::Ended {
            name: self.name.clone(),
            status,
            tail: self.tail(),
        }
    }

    fn unknown(&self, source: io::Error) -> ChildError {
        ChildError::Unknown {
            name: self.name.clone(),
            source,
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Without an id it has been waited for, and its number may be that of another process.
        if let Some(pid) = self.pid() {
            // It may have ended in this moment.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

fn read_tail(log: &Path) -> io::Result<String> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    Ok(String::from_utf8_lossy(&tail).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::wait::until;
    use super::*;

    fn shell(script: &str, logs: &Path) -> Child {
        Child::start("a shell", Path::new("/bin/sh"), ["-c", script], logs).unwrap()
    }

    async fn runs(pid: &str) -> bool {
        // A process that was killed and that nobody has waited for is no longer running, but has an entry.
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !state.is_empty() && !state.contains(") Z ")
    }

    #[tokio::test]
    async fn what_a_dropped_child_started_is_killed_too() {
        let logs = tempfile::tempdir().unwrap();
        let child = shell("sleep 1000 & echo $!; wait", logs.path());
        let mut grandchild = String::new();
        until(Duration::from_secs(10), "the shell prints a process id", async || {
            grandchild = child.printed().trim().to_owned();
            if grandchild.is_empty() {
                Err("nothing".to_owned())
            } else {
                Ok(())
            }
        })
        .await
        .unwrap();
        assert!(runs(&grandchild).await);

        drop(child);

        until(Duration::from_secs(10), "the grandchild ends", async || {
            if runs(&grandchild).await {
                Err("it runs".to_owned())
            } else {
                Ok(())
            }
        })
        .await
        .unwrap();
    }

    #[tokio::test]
    async fn a_child_that_ends_leaves_its_last_words() {
        let logs = tempfile::tempdir().unwrap();
        let mut child = shell("echo out; echo err >&2; exit 3", logs.path());

        let error = child.unexpected_end().await.to_string();

        assert_eq!(error, "a shell ended (exit status: 3); its last words:\nout\nerr");
    }

    #[tokio::test]
    async fn a_child_that_ignores_the_signal_is_killed_after_the_grace() {
        let logs = tempfile::tempdir().unwrap();
        let child = shell("trap '' TERM; echo ready; while :; do sleep 1000; done", logs.path());
        until(Duration::from_secs(10), "the shell is ready", async || {
            if child.printed().is_empty() {
                Err("nothing".to_owned())
            } else {
                Ok(())
            }
        })
        .await
        .unwrap();
        let pid = child.id().unwrap().to_string();

        child.stop(Signal::TERM, Duration::from_millis(1)).await;

        until(Duration::from_secs(10), "the child ends", async || {
            if runs(&pid).await {
                Err("it runs".to_owned())
            } else {
                Ok(())
            }
        })
        .await
        .unwrap();
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_named() {
        let logs = tempfile::tempdir().unwrap();

        let error = Child::start("nothing", Path::new("/no/such/program"), ["-x"], logs.path()).unwrap_err();

        assert_eq!(error.to_string(), "cannot start nothing (`/no/such/program`)");
    }
}
