//! Where the text of a configuration comes from.

use std::fmt::Display;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

use anyhow::anyhow;
use forebay::engine::config::SourceName;

/// Largest configuration that is read.
const MAX_BYTES: u64 = 4 << 20;

/// Reads a configuration from a file, or from standard input if the path is `-`.
pub(super) fn read(path: &Path) -> anyhow::Result<(String, SourceName)> {
    let failed = |reason: &dyn Display| anyhow!("failed to load config from a file '{}' - {reason}", path.display());
    let (reader, source): (Box<dyn Read>, _) = if path == Path::new("-") {
        (Box::new(io::stdin()), SourceName::Stdin)
    } else {
        let file = fs::File::open(path).map_err(|error| failed(&error))?;
        (Box::new(file), SourceName::File(path.to_string_lossy().into()))
    };
    let mut bytes = Vec::new();
    reader
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| failed(&error))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(failed(&format_args!("it is larger than {MAX_BYTES} bytes")));
    }
    let text = String::from_utf8(bytes).map_err(|error| failed(&error.utf8_error()))?;
    Ok((text, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(path: &Path) -> String {
        read(path).unwrap_err().to_string()
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
        assert_eq!(read(&path).unwrap().0.len(), content.len());

        content.push(b'#');
        fs::write(&path, &content).unwrap();
        assert!(refusal(&path).ends_with("it is larger than 4194304 bytes"));

        fs::write(&path, b"\xff").unwrap();
        assert!(refusal(&path).contains("utf-8"));
    }
}
