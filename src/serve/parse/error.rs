//! Why a request body is refused.
//!
//! A text begins as the reference's does (spec, ext-proc 4.2), and goes on with what was found, where, and what would
//! be right. Contents of the body are never repeated beyond a few characters.

use std::fmt;

use super::json::Value;

/// Why a request is answered with 400. Its text is the message of the answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// No parser takes this path.
    #[error("no parser registered matching path suffix for: {0}")]
    NoParser(String),
    /// The body is not what it was read as.
    #[error("{doing}: {reason}")]
    Malformed {
        /// What was attempted.
        doing: &'static str,
        /// What is wrong, and where.
        reason: String,
    },
    /// The body breaks a rule of its API.
    #[error("{rule} ({fault})")]
    Refused {
        /// The rule.
        rule: &'static str,
        /// What was found instead.
        fault: Fault,
    },
}

impl ParseError {
    pub(super) fn malformed(doing: &'static str, reason: &dyn fmt::Display) -> Self {
        Self::Malformed {
            doing,
            reason: reason.to_string(),
        }
    }
}

/// A field that is missing, or has a value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The key at the top level of the body.
    field: &'static str,
    /// What kind of value was found and at which byte of the body. `None` if the field is missing.
    found: Option<(&'static str, usize)>,
    /// What would be right.
    expected: &'static str,
}

impl Fault {
    pub(super) fn found(value: Value<'_>, field: &'static str, expected: &'static str) -> Self {
        Self {
            field,
            found: Some((value.describe(), value.at())),
            expected,
        }
    }

    pub(super) fn missing(field: &'static str, expected: &'static str) -> Self {
        Self {
            field,
            found: None,
            expected,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, expected, .. } = self;
        match self.found {
            Some((what, at)) => write!(f, "found {what} at byte {at} as `{field}`, expected {expected}"),
            None => write!(f, "found no `{field}`, expected {expected}"),
        }
    }
}
