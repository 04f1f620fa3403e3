//! The `forebay` binary.

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

fn main() -> anyhow::Result<()> {
    match Forebay::parse().command {
        Command::ModelServer(args) => cli::model_server::run(args),
    }
}
