//! What is wrong with a configuration, and where.

use std::fmt;
use std::sync::Arc;

/// Where the text of a configuration came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceName {
    /// A file, by the path that the user gave.
    File(Arc<str>),
    /// Standard input.
    Stdin,
    /// The flag `--config-text`.
    Flag,
    /// Nothing was given: the default that is built in.
    BuiltIn,
}

impl fmt::Display for SourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File(path) => path,
            Self::Stdin => "<stdin>",
            Self::Flag => "--config-text",
            Self::BuiltIn => "<built-in default>",
        })
    }
}

/// What a finding means for the one who wants to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// It can, and something in it is probably not what was meant.
    Warning,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where the text came from.
    pub source: SourceName,
    /// Line of the field, from 1, or of the nearest thing around it that is there.
    pub line: usize,
    /// Whether it stops the start.
    pub severity: Severity,
    /// Path of the field, such as `plugins[2].parameters.maxNumOfEndpoints`. Empty for the document.
    pub path: String,
    /// What was found, and what would be right.
    pub message: String,
}

impl fmt::Display for Finding {
    /// `file:line: error: field: message`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            source, line, path, message, ..
        } = self;
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{source}:{line}: {severity}: ")?;
        if !path.is_empty() {
            write!(f, "{path}: ")?;
        }
        f.write_str(message)
    }
}

/// Why a configuration cannot be used: every error in it, and the warnings besides, in the order of their lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(Vec<Finding>);

impl ConfigErrors {
    pub(super) fn new(findings: Vec<Finding>) -> Self {
        Self(findings)
    }

    /// Errors and warnings, in the order of their lines.
    pub fn findings(&self) -> &[Finding] {
        &self.0
    }
}

impl fmt::Display for ConfigErrors {
    /// One finding a line, without a line end after the last.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, finding) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            fmt::Display::fmt(finding, f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
