//! Log lines that nobody waits for.
//!
//! A log is written to a pipe, and whoever should read it may not. So a thread of its own writes the lines; what it has
//! not written yet is bounded, in lines and in bytes of each, and a line that finds no room is left out and counted. A
//! message that is said more often than [`Repeats::PER_SECOND`] is left out for the rest of the second, and counted too.

mod line;
mod repeats;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};

pub use line::Lines;
pub use repeats::Repeats;

/// Time that one line about lines is about.
const WINDOW: Duration = Duration::from_secs(10);

/// Lines that wait to be written. With [`line::MAX_BYTES`] for each: 16 MiB.
const WAITING_LINES: usize = 4096;

/// Lines that were left out.
#[derive(Clone, Debug, Default)]
pub struct LeftOut {
    repeated: Arc<AtomicU64>,
    unwritten: Option<ErrorCounter>,
}

impl LeftOut {
    /// Lines that repeated others too often.
    pub fn repeated(&self) -> u64 {
        self.repeated.load(Ordering::Relaxed)
    }

    /// Lines that could not be written in time.
    pub fn unwritten(&self) -> u64 {
        let count = self.unwritten.as_ref().map_or(0, ErrorCounter::dropped_lines);
        u64::try_from(count).unwrap_or(u64::MAX)
    }
}

/// Says every 10 s how many lines were left out since the last time, if any were.
pub async fn tell(left_out: LeftOut) {
    let mut ticks = interval(WINDOW);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = (0, 0);
    loop {
        ticks.tick().await;
        let now = (left_out.repeated(), left_out.unwritten());
        if now != told {
            let (repeated, unwritten) = (now.0 - told.0, now.1 - told.1);
            tracing::warn!(repeated, unwritten, "log lines were left out");
            told = now;
        }
    }
}

/// Writes lines to `output` in a thread of its own until the guard is dropped, which waits for the rest, but not for long.
pub fn writer(output: impl io::Write + Send + 'static) -> (NonBlocking, WorkerGuard, LeftOut) {
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(WAITING_LINES)
        .thread_name("log")
        .finish(output);
    let left_out = LeftOut {
        repeated: Arc::default(),
        unwritten: Some(writer.error_counter()),
    };
    (writer, guard, left_out)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::mpsc;

    use super::*;

    /// Takes its first write, and then waits until it is let go.
    struct Blocked {
        has_begun: mpsc::Sender<()>,
        go_on: mpsc::Receiver<()>,
    }

    impl io::Write for Blocked {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            let _ = self.has_begun.send(());
            let _ = self.go_on.recv();
            Ok(buf.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn whoever_logs_does_not_wait_for_a_blocked_pipe_and_what_is_left_out_is_counted() {
        let (has_begun, began) = mpsc::channel();
        let (go_on, held) = mpsc::channel();
        let (mut writer, guard, left_out) = writer(Blocked { has_begun, go_on: held });
        writer.write_all(b"first\n").unwrap();
        began.recv().unwrap();

        for _ in 0..WAITING_LINES + 10 {
            writer.write_all(b"line\n").unwrap();
        }

        assert_eq!(left_out.unwritten(), 10);
        drop(go_on);
        drop(guard);
    }
}
