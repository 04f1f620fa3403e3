//! Where the text of a configuration comes from.

use std::io::{self, Read};
use std::path::Path;
use std::{fs, str};

use anyhow::{Context, bail};
use forebay::engine::config::SourceName;

/// Largest configuration that is read.
const MAX_BYTES: u64 = 4 << 20;

/// Reads a configuration from a file, or from standard input if the path is `-`.
pub(super) fn read(path: &Path) -> anyhow::Result<(String, SourceName)> {
    let failed = || format!("failed to load config from a file '{}'", path.display());
    let (reader, source): (Box<dyn Read>, _) = if path == Path::new("-") {
        (Box::new(io::stdin()), SourceName::Stdin)
    } else {
        let file = fs::File::open(path).with_context(failed)?;
        (Box::new(file), SourceName::File(path.to_string_lossy().into()))
    };
    let mut bytes = Vec::new();
    reader
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .with_context(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        bail!("{}: it is larger than {MAX_BYTES} bytes", failed());
    }
    let text = str::from_utf8(&bytes).with_context(failed)?;
    Ok((text.to_owned(), source))
}
