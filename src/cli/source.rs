//! Texts that the command line names: configurations, workloads, and whatever else is read whole.

use std::fmt::Display;
use std::path::Path;
use std::{fs, io};

use anyhow::{Context, anyhow};
use forebay::engine::config::SourceName;
use forebay::serve::configuration::file;

/// Reads a configuration from a file, or from standard input if the path is `-`.
pub(super) fn configuration(path: &Path) -> anyhow::Result<(String, SourceName)> {
    if path == Path::new("-") {
        let text =
            file::text_of(io::stdin()).map_err(|reason| anyhow!("failed to load config from a file '-' - {reason}"))?;
        return Ok((text, SourceName::Stdin));
    }
    let text = file::read(path)?;
    Ok((text.text, text.source))
}

/// Reads a text file that a flag names.
pub(super) fn text(path: &Path, flag: &str) -> anyhow::Result<String> {
    let bytes = fs::read(path).with_context(|| format!("`--{flag}`: cannot read {}", path.display()))?;
    String::from_utf8(bytes).map_err(|error| {
        let readable = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + readable.iter().filter(|&&byte| byte == b'\n').count();
        placed(path, line, &"the text is not in UTF-8")
    })
}

/// What stands where, when a text has an error: `file:line: ...`.
pub(super) fn placed(path: &Path, line: usize, error: &dyn Display) -> anyhow::Error {
    anyhow!("{}:{line}: error: {error}", path.display())
}

/// What a file is called in what is said of its text.
pub(super) fn name(path: &Path) -> SourceName {
    SourceName::File(path.display().to_string().into())
}

#[cfg(test)]
mod tests {
    use forebay::serve::configuration::file::MAX_BYTES;

    use super::*;

    fn refusal(path: &Path) -> String {
        configuration(path).unwrap_err().to_string()
    }

    #[test]
    fn a_file_that_is_not_there_is_named_with_the_reason() {
        let error = refusal(Path::new("/nowhere/pool.yaml"));

        assert!(
            error.starts_with("failed to load config from a file '/nowhere/pool.yaml' - No such file"),
            "{error}"
        );
    }

    #[test]
    fn a_file_has_a_bound_and_is_text() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool.yaml");
        let mut content = vec![b'#'; usize::try_from(MAX_BYTES).unwrap()];

        fs::write(&path, &content).unwrap();
        assert_eq!(configuration(&path).unwrap().0.len(), content.len());

        content.push(b'#');
        fs::write(&path, &content).unwrap();
        assert!(refusal(&path).ends_with("it is larger than 4194304 bytes"));

        fs::write(&path, b"\xff").unwrap();
        assert!(refusal(&path).contains("utf-8"));
    }
}
