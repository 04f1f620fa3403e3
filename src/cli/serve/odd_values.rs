//! What becomes of odd values of flags: every flag of every command that takes a value is given some, and a snapshot says what
//! is answered. A line that ends in `ok` takes the value as it is written.
//!
//! The flags are those that clap knows, so that none is forgotten. Of the service all is tried that happens before its ports
//! are taken; of the other commands only what the command line itself says, since the rest depends on files.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, Command, CommandFactory as _, FromArgMatches as _};
use forebay::serve::logs::LeftOut;

use crate::Forebay;

/// Values that hardly any flag takes.
const VALUES: [&str; 11] = [
    "",
    "-1",
    "0",
    "0.5",
    "80%",
    "nobody",
    "0s",
    "-1s",
    "10m",
    "1e30",
    "99999999999999999999",
];

/// Values of a flag; others than usual where they would do something to this machine.
fn values(flag: &str) -> &'static [&'static str] {
    match flag {
        // It makes a file.
        "journal" => &["", "/", "/nobody/here"],
        _ => &VALUES,
    }
}

/// What a flag of the service needs beside it.
fn beside(flag: &str) -> Vec<&'static str> {
    let plain = "--secure-serving=false";
    match flag {
        "pool-name" | "endpoints-file" => vec![plain],
        "endpoint-selector" => vec![plain, "--endpoint-target-ports=8000"],
        "endpoint-target-ports" => vec![plain, "--endpoint-selector=a=b"],
        "objectives-file" => vec![plain, "--endpoints-file=e.yaml"],
        "ha-lease-duration" | "ha-retry-period" => vec![plain, "--pool-name=p", "--ha-enable-leader-election"],
        "metrics-client-ca-file" => vec![plain, "--pool-name=p", "--metrics-cert-dir=/nobody"],
        "cert-path" | "tls-min-version" | "tls-cipher-suites" | "secure-serving" => vec!["--pool-name=p"],
        _ => vec![plain, "--pool-name=p"],
    }
}

/// What the command line says, and of the service also what follows before it takes its ports.
fn answer(words: &[String]) -> String {
    let all = std::iter::once("forebay".to_owned()).chain(words.iter().cloned());
    let mut line = super::super::with_negative_numbers(Forebay::command());
    let matches = line.try_get_matches_from_mut(all.map(OsString::from));
    let Forebay { command, serve } = match matches.and_then(|matches| Forebay::from_arg_matches(&matches)) {
        Ok(forebay) => forebay,
        // What else the command needs is not asked here.
        Err(error) if error.kind() == ErrorKind::MissingRequiredArgument => return "ok".to_owned(),
        Err(error) => {
            let text = error.to_string();
            let first = text.split("\n\n").next().unwrap_or_default();
            return first.split_whitespace().collect::<Vec<_>>().join(" ");
        }
    };
    if command.is_some() {
        return "ok".to_owned();
    }
    let mut said: Vec<_> = serve
        .without_effect
        .given()
        .into_iter()
        .map(|flag| format!("{flag} has no effect"))
        .collect();
    let settings = match serve.replaced.refuse() {
        Ok(()) => serve.into_settings(LeftOut::default(), &mut said).map(drop),
        refused => refused,
    };
    if let Err(error) = settings {
        return format!("error: {error:#}").replace('\n', " ");
    }
    match said.as_slice() {
        [] => "ok".to_owned(),
        said => format!("warning: {}", said.join("; ")),
    }
}

/// One line for each answer, with the values that get it.
fn grouped(answers: Vec<(&str, String)>) -> String {
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (value, mut answer) in answers {
        // What quotes the value back is the same answer.
        for (open, close) in [('`', '`'), ('"', '"'), ('\'', '\''), ('`', '/')] {
            if !value.is_empty() {
                answer = answer.replace(&format!("{open}{value}{close}"), &format!("{open}VALUE{close}"));
            }
        }
        values.entry(answer).or_default().push(format!("{value:?}"));
    }
    let mut lines: Vec<_> = values.into_iter().collect();
    lines.sort_by(|(a, _), (b, _)| (a != "ok", a).cmp(&(b != "ok", b)));
    let mut text = String::new();
    for (answer, values) in lines {
        writeln!(text, "  {}: {answer}", values.join(", ")).expect("text can always be written to a string");
    }
    text
}

fn assert_is_kept(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/flags"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// Flags that take a value, by their names.
fn flags_of(command: &Command) -> impl Iterator<Item = (&Arg, &str)> {
    command
        .get_arguments()
        .filter(|arg| arg.get_action().takes_values())
        .filter_map(|arg| Some((arg, arg.get_long()?)))
}

#[test]
fn every_flag_of_the_service_has_an_answer_to_odd_values() {
    let mut command = Forebay::command();
    command.build();
    let mut text = String::new();
    let mut silent = Vec::new();
    for (_, flag) in flags_of(&command) {
        writeln!(text, "--{flag}").unwrap();
        let answers: Vec<_> = values(flag)
            .iter()
            .map(|value| {
                let beside = beside(flag).into_iter().map(str::to_owned);
                let words: Vec<_> = beside.chain([format!("--{flag}={value}")]).collect();
                (*value, answer(&words))
            })
            .collect();
        if answers.iter().all(|(_, answer)| answer == "ok") {
            silent.push(flag.to_owned());
        }
        text.push_str(&grouped(answers));
    }
    assert_eq!(
        silent, [""; 0],
        "a flag that takes whatever is written says nothing to a slip"
    );
    assert_is_kept("serve", &text);
}

#[test]
fn every_flag_of_the_other_commands_has_an_answer_to_odd_values() {
    fn tried(command: &Command, path: &[String], text: &mut String) {
        for (arg, flag) in flags_of(command) {
            let names = arg.get_value_names().unwrap_or_default();
            // What a file has in it is seen when it is read.
            if names.iter().any(|name| ["FILE", "DIR"].contains(&name.as_str())) {
                continue;
            }
            writeln!(text, "{} --{flag}", path.join(" ")).unwrap();
            let answers = VALUES.iter().map(|value| {
                let words: Vec<_> = path.iter().cloned().chain([format!("--{flag}={value}")]).collect();
                (*value, answer(&words))
            });
            text.push_str(&grouped(answers.collect()));
        }
        for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
            let path: Vec<_> = path.iter().cloned().chain([command.get_name().to_owned()]).collect();
            tried(command, &path, text);
        }
    }

    let mut command = Forebay::command();
    command.build();
    let mut text = String::new();
    for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
        tried(command, &[command.get_name().to_owned()], &mut text);
    }
    assert_is_kept("commands", &text);
}
