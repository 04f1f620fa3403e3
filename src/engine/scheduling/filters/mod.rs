//! Filters: who may serve at all.

mod label_selector;
mod prefix_affinity;
mod role;

use super::super::plugin::{Entry, Plugin, instance};
use super::super::saturation::{ConcurrencyDetector, UtilizationDetector};
use super::Filter;

/// Every filter. To add one: a file beside this one, and a line here. The last ones are saturation detectors, too.
pub const TABLE: &[Entry<dyn Filter>] = &[
    entry::<label_selector::LabelSelectorFilter>(),
    entry::<role::DecodeFilter>(),
    entry::<role::PrefillFilter>(),
    entry::<role::EncodeFilter>(),
    entry::<prefix_affinity::PrefixAffinityFilter>(),
    entry::<UtilizationDetector>(),
    entry::<ConcurrencyDetector>(),
];

const fn entry<P: Plugin + Filter + 'static>() -> Entry<dyn Filter> {
    Entry::of::<P>(|params, needs| Ok(Box::new(instance::<P>(params, needs)?)))
}

#[cfg(test)]
mod conformance;
