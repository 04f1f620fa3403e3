//! The `forebay` binary.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod cli;

/// Endpoint picker for LLM inference pools behind Envoy
#[derive(Debug, Parser)]
#[command(version)]
struct Forebay {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Check(cli::check::CheckArgs),
    #[command(hide = true)]
    Docs(cli::docs::DocsArgs),
}

fn main() -> ExitCode {
    match Forebay::parse().command {
        Command::Check(args) => cli::check::run(&args),
        Command::Docs(args) => cli::docs::run(&args),
    }
}
