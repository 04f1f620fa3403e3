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
    ModelServer(cli::model_server::ModelServerArgs),
}

fn main() -> ExitCode {
    let result = match Forebay::parse().command {
        Command::ModelServer(args) => cli::model_server::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
