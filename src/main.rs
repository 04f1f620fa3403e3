//! The `forebay` binary. Without a subcommand it serves.

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

mod cli;

#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Endpoint picker for LLM inference pools behind Envoy
///
/// Without a command, Forebay serves: Envoy asks it over ext_proc where each request goes.
#[derive(Debug, Parser)]
#[command(version = cli::version(), args_conflicts_with_subcommands = true, args_override_self = true)]
struct Forebay {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: cli::serve::ServeArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    Check(cli::check::CheckArgs),
    Demo(cli::demo::DemoArgs),
    ModelServer(cli::model_server::ModelServerArgs),
    Simulate(Box<cli::simulate::SimulateArgs>),
    Replay(Box<cli::replay::ReplayArgs>),
    Compare(cli::compare::CompareArgs),
    Observe(Box<cli::observe::ObserveArgs>),
    Calibrate(cli::calibrate::CalibrateArgs),
    Convert(cli::convert::ConvertArgs),
    Compose(cli::convert::ComposeArgs),
    Crds(cli::crds::CrdsArgs),
    #[command(hide = true)]
    Docs(cli::docs::DocsArgs),
}

fn main() -> ExitCode {
    let mut line = cli::with_negative_numbers(Forebay::command());
    let (words, warnings) = cli::older::renamed(std::env::args_os());
    for warning in warnings {
        eprintln!("warning: {warning}");
    }
    let matches = line
        .try_get_matches_from_mut(words)
        .unwrap_or_else(|error| error.exit());
    let Forebay { command, serve } =
        Forebay::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut line).exit());
    let result = match command {
        None => cli::serve::run(serve),
        Some(Command::Check(args)) => return cli::check::run(&args),
        Some(Command::Demo(args)) => cli::demo::run(args),
        Some(Command::ModelServer(args)) => cli::model_server::run(args),
        Some(Command::Simulate(args)) => {
            let flags: Vec<String> = std::env::args().skip(2).collect();
            return cli::simulate::run(&args, &flags);
        }
        Some(Command::Replay(args)) => return cli::replay::run(&args),
        Some(Command::Compare(args)) => return cli::compare::run(&args),
        Some(Command::Observe(args)) => return cli::observe::run(&args),
        Some(Command::Calibrate(args)) => return cli::calibrate::run(&args),
        Some(Command::Convert(args)) => return cli::convert::run(&args),
        Some(Command::Compose(args)) => return cli::convert::compose(&args),
        Some(Command::Crds(args)) => cli::crds::run(&args),
        Some(Command::Docs(args)) => cli::docs::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
