//! What may be wrong with the parameters of a detector, all of it told at once.

use std::time::Duration;

use super::super::config::duration::{self, DurationError};
use super::super::plugin::{Needs, Parameter};

/// The faults found so far. Each check gives back a value to go on with, which means something only if there are none.
#[derive(Debug, Default, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct Faults(Vec<String>);

pub(super) const HEADROOM: Parameter = Parameter {
    name: "headroom",
    default: "0.0",
    summary: "by how much a filter lets an endpoint be fuller than full; 0.1 is a tenth; not negative",
};

impl Faults {
    pub(super) fn positive(&mut self, name: &str, value: i64) -> u64 {
        match u64::try_from(value) {
            Ok(count) if count > 0 => count,
            _ => self.found(format!("`{name}` must be above 0, found `{value}`"), 1),
        }
    }

    pub(super) fn share(&mut self, name: &str, value: f64) -> f64 {
        if value > 0.0 && value <= 1.0 {
            value
        } else {
            self.found(
                format!("`{name}` must be above 0 and at most 1, found `{value}`; write 0.8 for 80 %"),
                1.0,
            )
        }
    }

    pub(super) fn headroom(&mut self, value: f64, needs: &mut Needs) -> f64 {
        if value >= 0.0 {
            if value > 1.0 {
                let message = format!(
                    "`headroom` is a share: `{value}` is {:.0} %; write 0.1 for 10 %",
                    value * 100.0
                );
                needs.remark("headroom", message);
            }
            value
        } else {
            self.found(format!("`headroom` must not be negative, found `{value}`"), 0.0)
        }
    }

    pub(super) fn span(&mut self, name: &str, text: &str) -> Duration {
        match duration::parse(text) {
            Ok(span) if !span.is_zero() => span,
            Ok(_) | Err(DurationError::Negative(_)) => {
                self.found(format!("`{name}` must be above 0, found `{text}`"), Duration::MAX)
            }
            Err(error) => self.found(format!("`{name}`: {error}"), Duration::MAX),
        }
    }

    pub(super) fn none_or<T>(self, made: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(made) } else { Err(self) }
    }

    fn found<T>(&mut self, fault: String, instead: T) -> T {
        self.0.push(fault);
        instead
    }
}
