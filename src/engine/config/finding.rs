//! What is wrong with a configuration, and where.

use std::fmt::{self, Write as _};
use std::sync::Arc;

/// Where the text of a configuration came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceName {
    /// A file, by the path that the user gave.
    File(Arc<str>),
    /// An object of the cluster, by namespace and name.
    Object(Arc<str>),
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
            Self::File(name) | Self::Object(name) => name,
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
    /// `file:line: error: field: message`, on one line whatever was found.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            source,
            line,
            path,
            message,
            ..
        } = self;
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{source}:{line}: {severity}: ")?;
        if !path.is_empty() {
            write_visibly(f, path)?;
            f.write_str(": ")?;
        }
        write_visibly(f, message)
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

fn write_visibly(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for c in text.chars() {
        if c.is_control() {
            write!(f, "{}", c.escape_debug())?;
        } else {
            f.write_char(c)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_one_line_even_if_what_was_found_is_several() {
        let finding = Finding {
            source: SourceName::File("c.yaml".into()),
            line: 3,
            severity: Severity::Error,
            path: "plugins[0].name".to_owned(),
            message: "found `a\nb\u{1b}`".to_owned(),
        };

        assert_eq!(
            finding.to_string(),
            "c.yaml:3: error: plugins[0].name: found `a\\nb\\u{1b}`"
        );
    }
}
