//! `docs/flags.md`, and what the chart knows of flags, from the flags themselves.

use std::collections::BTreeSet;

use clap::{Arg, Command, CommandFactory};

use crate::Forebay;
use crate::cli::reference;

const INTRODUCTION: &str = "\
# Flags

<!-- Made by `forebay docs flags`. Change what a flag says of itself where it is declared, and make this page anew. -->

Without a command, `forebay` serves, and takes these flags. They are those of the reference picker as far as they have a
meaning here, so that the image can be exchanged in a pod spec. Flags of the reference that change nothing here are
accepted, with a warning if one asks for something that is not done; they are at the end of this page. Of a flag that is
given twice the last one counts. The log level can also be given as a filter in `RUST_LOG`, which goes before the flags.

Endpoints are the pods of an InferencePool (`--pool-name`), pods with certain labels (`--endpoint-selector`), or those of
a file: `--endpoints-file`, or a `file-discovery` plugin in the configuration. One of these is needed. Objectives are
objects of the cluster if there is an InferencePool; with a file of endpoints they come from that file, from
`--objectives-file`, or from both. Beside such a file `--endpoint-selector`, `--config-object` and
`--ha-enable-leader-election` are refused, for they need Kubernetes.
";

/// The reference page of all flags and commands.
pub(super) fn page() -> String {
    let mut command = Forebay::command();
    command.build();
    let mut text = format!("{INTRODUCTION}\n{}", table(&command));
    for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        if command.get_name() == "help" {
            continue;
        }
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        text.push_str(&format!(
            "\n## `forebay {}`\n\n{about}.\n\n{}",
            command.get_name(),
            table(command)
        ));
    }
    text.push_str("\n## Accepted without effect\n\n");
    for flag in reference::flags_without_effect() {
        text.push_str(&format!("- `--{flag}`\n"));
    }
    text
}

/// The flags of the service, for the chart, which refuses others before a pod does.
pub(super) fn of_chart() -> String {
    let mut command = Forebay::command();
    command.build();
    let flags = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let names = flags.flat_map(|arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        arg.get_long()
            .into_iter()
            .chain(aliases)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    });
    let names: BTreeSet<_> = names
        .filter(|name| !["help", "version"].contains(&name.as_str()))
        .collect();
    let mut text =
        "# Made by `forebay docs chart-flags`: flags of the service, and those that are accepted and change nothing.\n"
            .to_owned();
    for (title, names) in [("flags", names), ("withoutEffect", reference::flags_without_effect())] {
        text.push_str(&format!("{title}:\n"));
        for name in names {
            text.push_str(&format!("- {name}\n"));
        }
    }
    text
}

fn table(command: &Command) -> String {
    let mut text = "| Flag | Default | Meaning |\n|---|---|---|\n".to_owned();
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
        if ["help", "version"].contains(&arg.get_id().as_str()) {
            continue;
        }
        let about = arg.get_help().map(ToString::to_string).unwrap_or_default();
        text.push_str(&format!("| {} | {} | {about} |\n", name(arg), default(arg)));
    }
    text
}

fn name(arg: &Arg) -> String {
    let names: Vec<_> = arg
        .get_value_names()
        .into_iter()
        .flatten()
        .map(ToString::to_string)
        .collect();
    match (arg.get_short(), arg.get_long()) {
        (Some(short), _) => format!("`-{short} {}`", names.join(" ")),
        // A flag that may stand alone is a switch; its value is `true` or `false`.
        (None, Some(long)) if arg.is_require_equals_set() => format!("`--{long}`"),
        (None, Some(long)) if names.is_empty() || !arg.get_action().takes_values() => format!("`--{long}`"),
        (None, Some(long)) => format!("`--{long} {}`", names.join(" ")),
        (None, None) => format!("`{}`", names.join(" ")),
    }
}

fn default(arg: &Arg) -> String {
    let values: Vec<_> = arg
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy())
        .collect();
    match values.as_slice() {
        [] => "none".to_owned(),
        values => format!("`{}`", values.join(",")),
    }
}
