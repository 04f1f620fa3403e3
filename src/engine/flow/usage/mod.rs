//! Usage-limit policies: how full the pool may be for each priority.

mod fixed;
mod holdback;
mod soft_reflective;

use std::fmt::Debug;

use super::super::plugin::{Entry, Plugin, instance};

/// Says up to which saturation each band may release requests.
pub trait UsageLimitPolicy: Debug + Send {
    /// Writes a ceiling for each band; requests of a band are released while the saturation is below it.
    ///
    /// `priorities` are those of all bands, the highest first; `ceilings`, which holds a 1 for each of them, must not
    /// rise from one band to the next. Called once for each request that may be released.
    fn ceilings(&mut self, saturation: f64, priorities: &[i32], ceilings: &mut [f64]);
}

/// Every usage-limit policy. To add one: a file beside this one, and a line here.
pub const TABLE: &[Entry<dyn UsageLimitPolicy>] = &[
    entry::<fixed::StaticLimit>(),
    entry::<holdback::PriorityHoldback>(),
    entry::<soft_reflective::SoftReflectiveCeiling>(),
];

const fn entry<P: Plugin + UsageLimitPolicy + 'static>() -> Entry<dyn UsageLimitPolicy> {
    Entry::of::<P>(|params, needs| Ok(Box::new(instance::<P>(params, needs)?)))
}

#[cfg(test)]
mod conformance;
