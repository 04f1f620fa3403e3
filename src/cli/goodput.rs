//! Flags that say when a request is good: a bound of each latency, by SLO class.

use std::collections::BTreeMap;

use anyhow::Context;
use clap::Args;
use forebay::sim::report::{Dimension, GoodputTargets};
use forebay::sim::workload::spec::GoodputTarget;

/// What is promised to the SLO classes.
#[derive(Clone, Debug, Args)]
pub(crate) struct GoodputArgs {
    /// The time to first token that is good enough, such as `critical=100ms,standard=500ms`
    #[arg(long, value_name = "CLASS=TIME,...")]
    slo_ttft: Option<String>,
    /// The time between tokens that is good enough
    #[arg(long, value_name = "CLASS=TIME,...")]
    slo_itl: Option<String>,
    /// The time to the last token that is good enough
    #[arg(long, value_name = "CLASS=TIME,...")]
    slo_e2e: Option<String>,
}

impl GoodputArgs {
    /// Targets as the flags give them, and where they give none, as a file does.
    ///
    /// # Errors
    ///
    /// Names the flag that cannot be read.
    pub(super) fn targets(&self, written: &BTreeMap<String, GoodputTarget>) -> anyhow::Result<GoodputTargets> {
        let flags = [
            ("slo-ttft", Dimension::Ttft, &self.slo_ttft),
            ("slo-itl", Dimension::Itl, &self.slo_itl),
            ("slo-e2e", Dimension::E2e, &self.slo_e2e),
        ];
        let mut given = GoodputTargets::default();
        for (flag, dimension, text) in flags {
            if let Some(text) = text {
                given.add(dimension, text).with_context(|| format!("`--{flag}`"))?;
            }
        }
        Ok(given.or(&of_file(written)))
    }
}

fn of_file(written: &BTreeMap<String, GoodputTarget>) -> GoodputTargets {
    let mut targets = GoodputTargets::default();
    for (class, target) in written {
        let dimensions = [
            (Dimension::Ttft, target.ttft_ms),
            (Dimension::Itl, target.itl_ms),
            (Dimension::E2e, target.e2e_ms),
        ];
        for (dimension, ms) in dimensions {
            if let Some(ms) = ms {
                targets.set(class, dimension, ms * 1000.0);
            }
        }
    }
    targets
}
