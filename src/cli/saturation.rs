//! Flags that ask, when a run is over, whether it was overloaded.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::Args;
use forebay::sim::report::saturation::Detectors;

/// Who is asked, about what, and where the answers go.
#[derive(Clone, Debug, Args)]
pub(crate) struct SaturationArgs {
    /// Detectors that say after the run whether it was overloaded: composite, threshold, backlog-drift or all
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(super) detectors: Vec<String>,
    /// Writes what the detectors said on the way
    #[arg(long, value_name = "FILE")]
    pub(super) saturation_report: Option<PathBuf>,
    /// Seconds at the end of the run that the detectors' last word is about
    #[arg(long, value_name = "S", default_value_t = 30.0)]
    saturation_final_window: f64,
}

impl SaturationArgs {
    /// The detectors to ask; `None` if there are none.
    ///
    /// # Errors
    ///
    /// If there is no such detector, or a report is wanted and nobody is asked.
    pub(super) fn asked(&self) -> anyhow::Result<Option<Detectors>> {
        if self.detectors.is_empty() {
            ensure!(
                self.saturation_report.is_none(),
                "`--saturation-report` needs `--detectors`"
            );
            return Ok(None);
        }
        let detectors = self.detectors.join(",").parse();
        let mut detectors: Detectors = detectors.context("`--detectors`")?;
        detectors.final_window_s = self.saturation_final_window;
        Ok(Some(detectors))
    }
}
