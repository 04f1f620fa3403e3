//! Profile handlers: which profiles run, and whose answer counts.

mod single;

use super::super::plugin::{Entry, Plugin, instance};
use super::ProfileHandler;

/// Every profile handler. To add one: a file beside this one, and a line here.
pub const TABLE: &[Entry<dyn ProfileHandler>] = &[entry::<single::SingleProfileHandler>()];

/// The handler of a plan with one profile that names none.
pub const DEFAULT: &str = "single-profile-handler";

const fn entry<P: Plugin + ProfileHandler + 'static>() -> Entry<dyn ProfileHandler> {
    Entry::of::<P>(|params, needs| Ok(Box::new(instance::<P>(params, needs)?)))
}
