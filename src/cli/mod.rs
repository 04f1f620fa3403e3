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
pub(crate) mod older;
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

/// The same command, in which a number below zero is the value of the flag before it. Otherwise it would be taken for a
/// flag, and the error would not name the one that it was meant for.
pub(crate) fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let taking = |arg: clap::Arg| match arg.get_action().takes_values() && !arg.is_positional() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    };
    command.mut_args(taking).mut_subcommands(with_negative_numbers)
}
