//! What the service logs, and how.

use std::io::IsTerminal as _;
use std::str::FromStr;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use forebay::serve::logs::{self, LeftOut, Lines, Repeats};
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::WorkerGuard;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

/// Flags about the log.
#[derive(Debug, Args)]
pub(crate) struct LoggingArgs {
    /// How much is logged: 2 what changes, 4 every request off the happy path, 5 everything
    #[arg(
        short = 'v',
        long = "v",
        value_name = "LEVEL",
        default_value_t = 2,
        allow_negative_numbers = true
    )]
    pub(super) verbosity: i32,
    /// How log lines are written
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Encoder::Console)]
    zap_encoder: Encoder,
    /// How much is logged: `error`, `warn`, `info`, `debug`, `trace`, or a number as for `-v`, which it goes before
    #[arg(long, value_name = "LEVEL")]
    zap_log_level: Option<LogLevel>,
}

/// How much of what Forebay itself says is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LogLevel(LevelFilter);

impl LogLevel {
    /// The level that the reference's numbers stand for.
    fn of_verbosity(verbosity: i32) -> Self {
        Self(match verbosity {
            i32::MIN..=3 => LevelFilter::INFO,
            4 => LevelFilter::DEBUG,
            5.. => LevelFilter::TRACE,
        })
    }
}

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(verbosity) = text.parse() {
            return Ok(Self::of_verbosity(verbosity));
        }
        let unknown =
            || format!("`{text}` is not a log level; write `error`, `warn`, `info`, `debug`, `trace` or a number");
        match text {
            "panic" => Ok(Self(LevelFilter::ERROR)),
            // The parser of levels takes nothing for `error`.
            "" => Err(unknown()),
            words => words.parse().map(Self).map_err(|_| unknown()),
        }
    }
}

/// The level that logs everything.
const MOST_VERBOSE: i32 = 5;

/// A log that is written. What was said before this is dropped is written first, unless nobody reads it.
#[derive(Debug)]
pub(crate) struct Log {
    pub(super) left_out: LeftOut,
    _guard: WorkerGuard,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Encoder {
    /// For people
    Console,
    /// One JSON object a line
    Json,
}

impl LoggingArgs {
    /// What a level comes to that there is not.
    pub(crate) fn doubt(&self) -> Option<String> {
        let counted = self.verbosity.clamp(0, MOST_VERBOSE);
        (counted != self.verbosity).then(|| format!("`-v {}` counts as `-v {counted}`", self.verbosity))
    }

    /// Writes log lines to standard error from here on, and until the log is dropped. `$RUST_LOG` goes before the flags.
    ///
    /// # Errors
    ///
    /// `$RUST_LOG` is no filter.
    pub(crate) fn start(&self) -> anyhow::Result<Log> {
        let level = self.zap_log_level.unwrap_or(LogLevel::of_verbosity(self.verbosity)).0;
        // Libraries say nothing below `info` unless asked by name.
        // The client of the API server says itself what its caller says too.
        let words = format!("{},kube_client=off,forebay={level}", level.min(LevelFilter::INFO));
        let filter = EnvFilter::builder()
            .with_default_directive(LevelFilter::INFO.into())
            .parse(std::env::var("RUST_LOG").unwrap_or(words))
            .context("`RUST_LOG` is not a filter of log lines, such as `info` or `warn,forebay=debug`")?;
        let (writer, guard, left_out) = logs::writer(std::io::stderr());
        let lines = tracing_subscriber::fmt::layer().with_writer(Lines(writer));
        let lines = match self.zap_encoder {
            Encoder::Console => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
            Encoder::Json => lines.json().flatten_event(true).boxed(),
        };
        tracing_subscriber::registry()
            .with(filter)
            .with(lines.with_filter(Repeats::new(&left_out)))
            .init();
        Ok(Log {
            left_out,
            _guard: guard,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_level_is_a_word_or_a_number() {
        let level = |text: &str| text.parse::<LogLevel>().map(|LogLevel(level)| level);

        assert_eq!(level("debug"), Ok(LevelFilter::DEBUG));
        assert_eq!(level("panic"), Ok(LevelFilter::ERROR));
        assert_eq!(["-1", "2", "4", "9"].map(level), {
            use LevelFilter as L;
            [L::INFO, L::INFO, L::DEBUG, L::TRACE].map(Ok)
        });
        assert!(level("nonsense").is_err() && level("").is_err());
    }
}
