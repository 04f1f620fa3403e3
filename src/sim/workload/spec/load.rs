//! From text to a description that is known to be sound.

use crate::engine::config::yaml::second_document;
use crate::engine::config::{ConfigErrors, Finding, Severity, SourceName, read_strictly};

use super::{Problem, WorkloadSpec, check, upgrade};

/// A description that can be used.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The description, in the newest version.
    pub spec: WorkloadSpec,
    /// What is probably not meant so, in the order of the lines.
    pub warnings: Vec<Finding>,
}

/// Reads the text of a description.
///
/// # Errors
///
/// All errors in the text, not only the first, each with its line.
pub fn load(text: &str, source: &SourceName) -> Result<Loaded, ConfigErrors> {
    let (spec, mut report) = read_strictly::<WorkloadSpec>(text, source)?;
    let Some(mut spec) = spec else {
        // Of what could not be read at all nothing more can be said.
        let warnings = report.finish()?;
        return Ok(Loaded {
            spec: WorkloadSpec::default(),
            warnings,
        });
    };
    if let Some(done) = upgrade::upgrade(&mut spec) {
        report.warning("version", done);
    }
    for Problem {
        severity,
        path,
        message,
    } in check(&spec)
    {
        match severity {
            // What seems to be missing may be what could not be read.
            Severity::Error if report.misses_part_of(&path) => {}
            Severity::Error => report.error(&path, message),
            Severity::Warning => report.warning(&path, message),
        }
    }
    if let Some(line) = second_document(text) {
        report.warning(
            "",
            format!("line {line} begins another document, which is not read; give it a file of its own"),
        );
    }
    let warnings = report.finish()?;
    Ok(Loaded { spec, warnings })
}
