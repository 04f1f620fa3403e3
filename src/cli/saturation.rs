//! Flags that ask, when a run is over, whether it was overloaded.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use forebay::sim::report::saturation::Detectors;

use super::units;

/// Who is asked, about what, and where the answers go.
#[derive(Clone, Debug, Args)]
pub(crate) struct SaturationArgs {
    /// Detectors that say after the run whether it was overloaded: composite, threshold, backlog-drift or all
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(super) detectors: Vec<String>,
    /// Writes what the detectors said on the way
    #[arg(long, value_name = "FILE")]
    pub(super) saturation_report: Option<PathBuf>,
    /// The last part of the run, on which the detectors' final verdict is taken: a duration such as `10s`, or seconds
    /// [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = units::seconds_above_zero)]
    saturation_final_window: Option<Duration>,
}

impl SaturationArgs {
    /// The detectors to ask; `None` if there are none.
    ///
    /// # Errors
    ///
    /// If there is no such detector, or a report is wanted and nobody is asked.
    pub(super) fn asked(&self) -> anyhow::Result<Option<Detectors>> {
        if self.detectors.is_empty() {
            for (flag, is_given) in [
                ("saturation-report", self.saturation_report.is_some()),
                ("saturation-final-window", self.saturation_final_window.is_some()),
            ] {
                ensure!(!is_given, "`--{flag}` needs `--detectors`");
            }
            return Ok(None);
        }
        let detectors = self.detectors.join(",").parse();
        let mut detectors: Detectors = detectors.context("`--detectors`")?;
        if let Some(window) = self.saturation_final_window {
            detectors.final_window_s = window.as_secs_f64();
        }
        Ok(Some(detectors))
    }
}
