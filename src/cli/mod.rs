//! The commands, one file each, and what several of them share.

pub(crate) mod calibrate;
pub(crate) mod check;
mod cluster;
pub(crate) mod compare;
pub(crate) mod convert;
pub(crate) mod crds;
pub(crate) mod demo;
pub(crate) mod docs;
mod goodput;
mod logging;
pub(crate) mod model_server;
pub(crate) mod observe;
mod print;
mod reference;
pub(crate) mod replay;
mod saturation;
pub(crate) mod serve;
pub(crate) mod simulate;
mod source;
mod switch;
mod target;
mod units;

use std::sync::LazyLock;

use forebay::version::{COMMIT, VERSION};

/// What `--version` says: the version, and the commit if it is known.
pub(crate) fn version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| match COMMIT {
        "unknown" => VERSION.to_owned(),
        commit => format!("{VERSION} (commit {commit})"),
    });
    &TEXT
}
