//! Which build this is.

/// The version of the package.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that the program was built from: what `FOREBAY_COMMIT` said during the build, or, in a release build, what
/// the build script found.
pub const COMMIT: &str = match option_env!("FOREBAY_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};
