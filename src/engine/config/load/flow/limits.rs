//! How much may wait.

use super::super::super::super::flow::plan::{BandPlan, GlobalLimits};
use super::super::super::document::{FlowControl, PriorityBand};
use super::super::super::quantity::Quantity;
use super::super::super::report::Report;

/// What may wait in all: nothing said and 0 are both no limit.
pub(super) fn global(section: &FlowControl, report: &mut Report) -> GlobalLimits {
    let mut read = |field, name, given| {
        limit(
            given,
            &format!("flowControl.{field}"),
            &format!("global {name}"),
            report,
        )
    };
    GlobalLimits {
        bytes: read("maxBytes", "MaxBytes", section.max_bytes),
        requests: read("maxRequests", "MaxRequests", section.max_requests),
    }
}

/// What may wait in a band: nothing said and 0 are both the default, since a band always has limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BandLimits {
    pub(super) max_bytes: u64,
    pub(super) max_requests: u64,
}

impl BandLimits {
    /// The limits of the band that stands at `path` and is called `label`.
    pub(super) fn read(band: &PriorityBand, path: &str, label: &str, report: &mut Report) -> Self {
        let mut read =
            |field, name, given| limit(given, &format!("{path}.{field}"), &format!("{label} {name}"), report);
        Self {
            max_bytes: read("maxBytes", "MaxBytes", band.max_bytes).unwrap_or(BandPlan::DEFAULT_MAX_BYTES),
            max_requests: read("maxRequests", "MaxRequests", band.max_requests)
                .unwrap_or(BandPlan::DEFAULT_MAX_REQUESTS),
        }
    }
}

/// Warns of limits that were given to a band, and that those of all bands together make pointless.
pub(super) fn warn_of_the_pointless(section: &FlowControl, band: &PriorityBand, path: &str, report: &mut Report) {
    let pairs = [
        ("maxBytes", band.max_bytes, section.max_bytes),
        ("maxRequests", band.max_requests, section.max_requests),
    ];
    for (field, own, global) in pairs {
        let (own, global) = (own.map(|own| own.value), global.map(|global| global.value));
        if let (Some(own), Some(global)) = (own, global)
            && own > global
            && global > 0
        {
            report.warning(
                &format!("{path}.{field}"),
                format!(
                    "the band is never this full ({own}): `flowControl.{field}` allows {global} in all bands together"
                ),
            );
        }
    }
}

fn limit(given: Option<Quantity>, path: &str, what: &str, report: &mut Report) -> Option<u64> {
    let Quantity { value, is_rounded } = given?;
    if is_rounded {
        let message = format!(
            "this is not a whole number, and counts as {value}: `m` is a thousandth; write `M` for millions, `Mi` for \
             mebibytes"
        );
        report.warning(path, message);
    }
    match u64::try_from(value) {
        Ok(0) => None,
        Ok(limit) => Some(limit),
        Err(_) => {
            report.error(path, format!("{what} must be non-negative, got {value}"));
            None
        }
    }
}
