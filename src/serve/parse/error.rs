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

/// A value that is missing or of the wrong type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where in the document, as in `messages[2].content`.
    field: String,
    /// What kind of value was found and at which byte of the body. `None` if the field is missing.
    found: Option<(&'static str, usize)>,
    /// What would be right.
    expected: &'static str,
}

impl Fault {
    pub(super) fn found(value: Value<'_>, place: Place<'_>, expected: &'static str) -> Self {
        Self {
            field: place.to_string(),
            found: Some((value.describe(), value.at())),
            expected,
        }
    }

    pub(super) fn missing(place: Place<'_>, expected: &'static str) -> Self {
        Self {
            field: place.to_string(),
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

/// Where in a document a value is. Costs nothing until it is written out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'p> {
    Field(&'p str),
    Member(&'p Place<'p>, &'p str),
    Element(&'p Place<'p>, usize),
}

impl Place<'_> {
    pub(super) fn member<'p>(&'p self, key: &'p str) -> Place<'p> {
        Place::Member(self, key)
    }

    pub(super) fn element(&self, index: usize) -> Place<'_> {
        Place::Element(self, index)
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(key) => f.write_str(key),
            Self::Member(parent, key) => write!(f, "{parent}.{key}"),
            Self::Element(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}
