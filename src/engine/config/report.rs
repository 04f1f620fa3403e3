//! Collects findings while a document is read.

use super::finding::{ConfigErrors, Finding, Severity, SourceName};
use super::yaml::Positions;

/// The findings so far, and what is needed to place further ones.
#[derive(Debug)]
pub struct Report {
    source: SourceName,
    positions: Positions,
    findings: Vec<Finding>,
    /// Paths of what could not be read. What follows from that is not worth saying.
    unread: Vec<String>,
}

impl Report {
    pub(super) fn new(source: SourceName, positions: Positions) -> Self {
        Self {
            source,
            positions,
            findings: Vec::new(),
            unread: Vec::new(),
        }
    }

    /// From here on, what is found is about what came from `source`.
    pub(super) fn is_about(&mut self, source: SourceName) {
        self.source = source;
    }

    /// Notes that what is at `path` could not be read.
    pub(super) fn unread(&mut self, path: &str, message: String) {
        self.error(path, message);
        self.unread.push(path.to_owned());
    }

    /// Notes an error, unless it only follows from something that could not be read.
    pub fn error(&mut self, path: &str, message: impl Into<String>) {
        self.add(Severity::Error, path, message.into());
    }

    /// Notes something that is probably not meant so.
    pub fn warning(&mut self, path: &str, message: impl Into<String>) {
        self.add(Severity::Warning, path, message.into());
    }

    fn add(&mut self, severity: Severity, path: &str, message: String) {
        let within = |whole: &String| {
            let rest = path.strip_prefix(whole.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        if self.unread.iter().any(within) {
            return;
        }
        self.findings.push(Finding {
            source: self.source.clone(),
            line: self.positions.line(path),
            severity,
            path: path.to_owned(),
            message,
        });
    }

    /// True if something within what is at `path` could not be read, so that what is missing there may be that.
    pub fn misses_part_of(&self, path: &str) -> bool {
        let within = |unread: &String| {
            let rest = unread.strip_prefix(path);
            rest.is_some_and(|rest| path.is_empty() || rest.starts_with(['.', '[']))
        };
        self.unread.iter().any(within)
    }

    /// False if the names of some plugin instances are not known, because they could not be read.
    pub(super) fn names_are_certain(&self) -> bool {
        let of_a_name = |path: &String| {
            path == "plugins"
                || path.strip_prefix("plugins[").is_some_and(|rest| {
                    let (_, field) = rest.split_once(']').unwrap_or((rest, ""));
                    matches!(field, "" | ".name" | ".type")
                })
        };
        !self.unread.iter().any(of_a_name)
    }

    /// True if something stops the start.
    pub fn has_errors(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }

    /// The warnings, in the order of their lines.
    ///
    /// # Errors
    ///
    /// All findings, warnings too, if one of them is an error.
    pub fn finish(mut self) -> Result<Vec<Finding>, ConfigErrors> {
        self.findings.sort_by_key(|finding| (finding.line, finding.severity));
        if self.has_errors() {
            Err(ConfigErrors::new(self.findings))
        } else {
            Ok(self.findings)
        }
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::super::yaml;
    use super::*;

    /// A report on `text`.
    pub(in super::super) fn report(text: &str) -> Report {
        let (_, positions) = yaml::parse(text).expect("the text is YAML");
        Report::new(SourceName::Flag, positions)
    }

    impl Report {
        pub(in super::super) fn messages(&self) -> Vec<String> {
            self.findings.iter().map(|finding| finding.message.clone()).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::report;

    #[test]
    fn what_follows_from_something_unread_is_not_said() {
        let mut report = report("plugins:\n- 5\n");
        report.unread("plugins[0]", "expected a mapping".to_owned());

        report.error("plugins[0].type", "missing");
        report.error("plugins[1].type", "missing too");

        assert_eq!(report.messages(), ["expected a mapping", "missing too"]);
        assert!(!report.names_are_certain());
    }
}
