//! What is going on, on the standard error: spinners at a terminal, and plain lines elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::Instant;

/// Time between two pictures of a spinner.
const TICK: Duration = Duration::from_millis(80);
/// Time between two lines about numbers that change.
const LINE: Duration = Duration::from_secs(1);

/// Shows one step after the other.
#[derive(Debug)]
pub(super) struct Progress {
    at_terminal: bool,
}

/// A step that is going on. Dropped before it is done, it vanishes.
#[derive(Debug)]
pub(super) struct Step {
    what: String,
    began: Instant,
    spinner: Option<ProgressBar>,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            at_terminal: std::io::stderr().is_terminal(),
        }
    }

    /// A step begins.
    pub(super) fn begin(&self, what: String) -> Step {
        let spinner = self.at_terminal.then(|| {
            let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})").expect("the template is valid");
            let spinner = ProgressBar::new_spinner().with_style(style).with_message(what.clone());
            spinner.enable_steady_tick(TICK);
            spinner
        });
        Step {
            what,
            began: Instant::now(),
            spinner,
        }
    }

    /// Numbers begin to change.
    pub(super) fn live(&self) -> Live {
        let picture = self.at_terminal.then(|| {
            let style = ProgressStyle::with_template("{msg}").expect("the template is valid");
            ProgressBar::new_spinner().with_style(style)
        });
        Live { picture, said: None }
    }

    /// Says something between steps.
    #[expect(clippy::unused_self, reason = "who has no progress to show has nothing to say")]
    pub(super) fn say(&self, text: &str) {
        eprintln!("{text}");
    }
}

/// Numbers that change: a table that is drawn again and again at a terminal, and a line every second elsewhere.
/// Dropped, the table vanishes.
#[derive(Debug)]
pub(super) struct Live {
    picture: Option<ProgressBar>,
    said: Option<Instant>,
}

impl Live {
    /// The numbers are these.
    pub(super) fn show(&mut self, table: impl FnOnce() -> String, line: impl FnOnce() -> String) {
        if let Some(picture) = &self.picture {
            picture.set_message(table());
        } else if self.said.is_none_or(|said| said.elapsed() >= LINE) {
            self.said = Some(Instant::now());
            eprintln!("{}", line());
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(picture) = &self.picture {
            picture.finish_and_clear();
        }
    }
}

impl Step {
    /// The step ends well.
    pub(super) fn done(mut self) {
        if let Some(spinner) = self.spinner.take() {
            spinner.finish_and_clear();
        }
        let took = self.began.elapsed().as_secs_f64();
        eprintln!("✓ {} ({took:.1} s)", self.what);
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Some(spinner) = &self.spinner {
            spinner.finish_and_clear();
        }
    }
}
